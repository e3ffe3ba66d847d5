/*
 * What the memory planner said of stages, beside what the closed form said of them: the
 * search is told, so that no plan is missed because the closed form takes its memory too
 * high, and none is looked at again that does not fit.
 *
 * A stage that was planned has its arena from then on. Others have what the closed form
 * says times a factor, by what they do with memory (ZeRO, what is offloaded and where,
 * whether some layers are checkpointed or lean). To be safe it is the largest arena /
 * closed form of all such stages that were planned, 1 if none was. To miss nothing it is
 * the least of those that also have this role, shape and micro-batch, and if there are
 * none, what the closed form is too high at the most (UNSEEN_FRAC). Then a stage that is
 * a plan by itself and was planned is left out, so that the next one is seen.
 */
#ifndef MIST_TUNE_ARENAS_H
#define MIST_TUNE_ARENAS_H

#include "tune/search.h"

enum { MIST_ARENA_KINDS = 1 << (2 + MIST_N_OFFLOADS + 3) };

struct mist_arena_known;

struct mist_arenas {
    struct mist_arena_known *known; /* owned; sorted by kind of stage */
    size_t n, capacity;
    double most[MIST_ARENA_KINDS]; /* of arena / closed form; 0: none was planned */
};

/* Of a stage (choice) of that kind; closed_bytes: by the closed form, as it is. All zero
 * at first. */
MIST_MUST_CHECK enum mist_status
mist_arenas_add(struct mist_arenas *arenas, const struct mist_search_kind *kind,
                const struct mist_search_choice *choice, int64_t closed_bytes,
                int64_t arena_bytes, struct mist_err *err);
void mist_arenas_fini(struct mist_arenas *arenas);

/* Corrects block->peak_bytes, which the closed form has filled. limit_bytes: what was
 * planned and is above has no place in any plan. */
void mist_arenas_correct(const struct mist_arenas *arenas, int64_t limit_bytes,
                         bool misses_nothing, const struct mist_search_kind *kind,
                         const struct mist_search_columns *block);

#endif

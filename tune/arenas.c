/* Arenas that were planned, for the search. See arenas.h. */
#include "tune/arenas.h"

#include "core/order.h"
#include "tune/search_columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arena / closed form of kinds that nobody has planned: at least. */
#define UNSEEN_FRAC 0.75

/* What the least that was seen of a kind may be too large. */
#define SEEN_SLACK_FRAC 0.05

/* No limit is that high; what may be offloaded from there is still seen. */
#define TOO_MUCH 0x1p61

struct mist_arena_known {
    struct mist_search_kind kind;
    int32_t n_layers;
    int64_t knobs; /* mist_search_pack_knobs() */
    int64_t bytes;
    int class; /* what it does with memory */
    double ratio;
};

static int compare_kinds(const struct mist_search_kind *a,
                         const struct mist_search_kind *b)
{
    return MIST_COMPARE_BY(a, b, role, in_flight, n_micro_batches, micro_batch, shape.dp,
                           shape.tp, shape.is_sequence_parallel);
}

/* Number of what a stage does with memory. */
static int find_class(const struct mist_search_knobs *knobs)
{
    int class = knobs->zero;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        class = class << 1 | (knobs->offload[k] > 0);
    return class << 3 | (knobs->updates_on_host ? 4 : 0) |
           (knobs->n_checkpointed > 0 ? 2 : 0) | (knobs->n_lean > 0);
}

/* The stages of a kind that were planned: [*n]. */
static struct mist_arena_known *find_known(const struct mist_arenas *arenas,
                                           const struct mist_search_kind *kind, size_t *n)
{
    MIST_BISECT(first, 0, arenas->n, i, compare_kinds(&arenas->known[i].kind, kind) < 0);
    size_t end = first;

    while (end < arenas->n && compare_kinds(&arenas->known[end].kind, kind) == 0)
        end++;
    *n = end - first;
    return arenas->known + first;
}

enum mist_status mist_arenas_add(struct mist_arenas *arenas,
                                 const struct mist_search_kind *kind,
                                 const struct mist_search_choice *choice,
                                 int64_t closed_bytes, int64_t arena_bytes,
                                 struct mist_err *err)
{
    struct mist_arena_known known = {
        .kind = *kind,
        .n_layers = choice->n_layers,
        .knobs = mist_search_pack_knobs(&choice->knobs),
        .bytes = arena_bytes,
        .class = find_class(&choice->knobs),
        .ratio = (double)arena_bytes / fmax(1, (double)closed_bytes),
    };
    size_t n = 0;
    struct mist_arena_known *same = find_known(arenas, kind, &n);
    for (size_t k = 0; k < n; k++)
        if (same[k].knobs == known.knobs && same[k].n_layers == known.n_layers) {
            /* what its neighbours send may take some of it */
            same[k].bytes = arena_bytes > same[k].bytes ? arena_bytes : same[k].bytes;
            return MIST_OK;
        }
    if (!MIST_RESERVE(arenas->known, arenas->capacity, arenas->n + 1))
        return mist_err_memory(err, NULL);
    size_t i = arenas->n++;
    for (; i > 0 && compare_kinds(&arenas->known[i - 1].kind, kind) > 0; i--)
        arenas->known[i] = arenas->known[i - 1];
    arenas->known[i] = known;
    arenas->most[known.class] = fmax(arenas->most[known.class], known.ratio);
    return MIST_OK;
}

void mist_arenas_fini(struct mist_arenas *arenas)
{
    free(arenas->known);
    *arenas = (struct mist_arenas){0};
}

void mist_arenas_correct(const struct mist_arenas *arenas, int64_t limit_bytes,
                         bool misses_nothing, const struct mist_search_kind *kind,
                         const struct mist_search_columns *block)
{
    bool leaves_out = misses_nothing && kind->role == MIST_SEARCH_ONLY;
    double factor[MIST_ARENA_KINDS];
    size_t n = 0;
    const struct mist_arena_known *known = find_known(arenas, kind, &n);

    for (int i = 0; i < MIST_ARENA_KINDS; i++)
        factor[i] = misses_nothing ? UNSEEN_FRAC : 1;
    for (int i = 0; i < MIST_ARENA_KINDS && !misses_nothing; i++)
        factor[i] = arenas->most[i] > 0 ? arenas->most[i] : 1;
    for (size_t k = n; k-- > 0 && misses_nothing;) {
        double ratio = known[k].ratio * (1 - SEEN_SLACK_FRAC),
               *at = &factor[known[k].class];
        *at = *at == UNSEEN_FRAC ? ratio : fmin(*at, ratio);
    }
    for (size_t i = 0; i < block->n; i++) {
        const struct mist_search_knobs knobs = mist_search_get_row(block, i);
        int64_t number = n > 0 ? mist_search_pack_knobs(&knobs) : 0;
        block->peak_bytes[i] *= factor[find_class(&knobs)];
        for (size_t k = 0; k < n; k++)
            if (known[k].knobs == number && known[k].n_layers == block->n_layers[i])
                block->peak_bytes[i] = leaves_out || known[k].bytes > limit_bytes
                                           ? TOO_MUCH
                                           : (double)known[k].bytes;
    }
}

/*
 * Why a recorded job took as long as it did, and what it would take if it were otherwise.
 *
 * A job is even when every operation takes as long as its kind usually does: the mean of
 * computations, the median of messages, over all workers and steps; and nothing has gaps.
 * How much a part (a stage, a replica, a kind of operations) slows the job down is said in
 * two ways, which differ where parts wait for one another:
 *   alone_frac  the even job with the part as it was recorded, over the even job
 *   without_s   the job as it was recorded, without gaps, with the part even
 * The slowest workers are 3 % of them, those with the largest smaller one of their stage's
 * and their replica's alone_frac. Definitions: Lin et al. 2025, "Understanding Stragglers
 * in Large Model Training Using What-if Analysis", 3.
 */
#ifndef MIST_SIM_RECORDED_RECORDED_STUDY_H
#define MIST_SIM_RECORDED_RECORDED_STUDY_H

#include "sim/recorded/operators_file.h"

struct mist_recorded_part {
    double alone_frac; /* >= 0, usually >= 1 */
    double without_s;
};

/* Mean times of a step; arrays lie in the arena. */
struct mist_recorded_study {
    int64_t n_steps, n_contradictions;
    double recorded_s;
    double unchanged_s;          /* replayed as it was */
    double unchanged_worst_frac; /* the step that the replay misses by most */
    double edited_s;             /* replayed with the edits */
    double without_gaps_s;
    double even_s;
    struct mist_recorded_part *stages, *replicas, *kinds; /* as many as the table has */
    struct mist_recorded_part slowest; /* workers, together; alone_frac too */
    bool *is_slowest;                  /* [n_replicas * n_stages] worker replica, stage */
};

/*
 * Studies an open table, as it was and with edits [n_edits <= MIST_OPTION_LIST_MAX], step
 * by step, three times. progress may be NULL. MIST_ERR_INPUT, MIST_ERR_IO, MIST_ERR_MEMORY;
 * MIST_ERR_USAGE: an edit is wrong, or changes nothing. O(parts * (operations +
 * dependencies)).
 */
enum mist_status
mist_recorded_study(struct mist_operations *table, const char *const *edits, int n_edits,
                    struct mist_recorded_study *out, struct mist_progress *progress,
                    struct mist_arena *arena, struct mist_err *err) MIST_MUST_CHECK;

/*
 * Applies one edit "NAME=VALUE" to what a job did. As in sim/what_if.h a factor is one of
 * speed, 2x is twice as fast:
 *   kernel.KIND=2x  computations of a kind (or all)
 *   link.KIND=2x    messages of a kind (or all)
 *   launch=2x       gaps and the host's calls; launch=none: there are none
 *   rank.N=0.8x     computations of worker N, replica * stages + stage
 * *n_changed grows by the operations that it changed. MIST_ERR_USAGE: no factor, or 1x;
 * then nothing was changed.
 */
enum mist_status mist_recorded_edit(struct mist_recorded_job *job, const char *edit,
                                    int64_t *n_changed,
                                    struct mist_err *err) MIST_MUST_CHECK;

/* MIST_ERR_USAGE with the names that there are, where an edit has changed no operation. */
enum mist_status mist_recorded_check_edit(const char *edit, int64_t n_changed,
                                          int64_t n_workers,
                                          struct mist_err *err) MIST_MUST_CHECK;

#endif

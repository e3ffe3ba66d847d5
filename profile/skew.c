/* How much longer computing takes than the rows say. See skew.h. */
#include "profile/skew.h"

#include "core/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t mist_skew_cut(const struct mist_drift *drift,
                      const struct mist_estimate *estimates, double length_us,
                      double *sums_us, double *expected_us)
{
    double piece_us = 0, piece_expected_us = 0;
    int64_t n = 0;

    *expected_us = 0;
    for (size_t i = 0; i < drift->n_runs; i++) {
        piece_us += drift->runs[i].time_us;
        piece_expected_us += estimates[drift->runs[i].key].mean;
        if (piece_expected_us < length_us)
            continue;
        sums_us[n++] = piece_us;
        *expected_us += piece_expected_us;
        piece_us = piece_expected_us = 0;
    }
    return n;
}

/* Whether all ranks have the same runs. */
static enum mist_status agree(struct mist_comm *comm, const struct mist_drift *drift,
                              bool *is_same, struct mist_err *err)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    for (size_t i = 0; i < drift->n_runs; i++)
        mist_hash_add_int64(&hash, drift->runs[i].key);
    int64_t mine = (int64_t)(hash.value >> 1), range[] = {mine, -mine};
    enum mist_status status =
        mist_comm_all_reduce_i64(comm, MIST_COMM_MAX, range, 2, err);
    *is_same = range[0] == -range[1];
    return status;
}

/* The frac of pieces of a length; own_frac (NULL: not asked for): the mean over the ranks
 * of what each has by itself. sums_us: room for all runs. */
static enum mist_status find_frac(struct mist_comm *comm, const struct mist_drift *drift,
                                  const struct mist_estimate *estimates, double length_us,
                                  double *sums_us, double *frac, double *own_frac,
                                  struct mist_err *err)
{
    double expected_us, own_us = 0, most_us = 0;
    int64_t n = mist_skew_cut(drift, estimates, length_us, sums_us, &expected_us);

    if (n == 0)
        return MIST_OK;
    for (int64_t i = 0; i < n; i++)
        own_us += sums_us[i];
    enum mist_status status =
        mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, sums_us, (int32_t)n, err);
    if (status == MIST_OK)
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_SUM, &own_us, 1, err);
    for (int64_t i = 0; i < n; i++)
        most_us += sums_us[i];
    *frac = fmax(0, most_us / expected_us - 1);
    if (own_frac)
        *own_frac = fmax(0, own_us / mist_comm_n_ranks(comm) / expected_us - 1);
    return status;
}

enum mist_status mist_skew_find(struct mist_comm *comm, const struct mist_drift *drift,
                                const struct mist_estimate *estimates, double pass_us,
                                double step_us, struct mist_trace_skew *out,
                                struct mist_err *err)
{
    double *sums_us = malloc((drift->n_runs + 1) * sizeof *sums_us);
    bool is_same = false;
    enum mist_status status =
        sums_us ? agree(comm, drift, &is_same, err) : mist_err_memory(err, NULL);

    *out = (struct mist_trace_skew){0};
    if (status == MIST_OK && is_same)
        status = find_frac(comm, drift, estimates, pass_us, sums_us, &out->pass_frac,
                           &out->alone_frac, err);
    if (status == MIST_OK && is_same)
        status = find_frac(comm, drift, estimates, step_us, sums_us, &out->step_frac,
                           NULL, err);
    free(sums_us);
    return status;
}

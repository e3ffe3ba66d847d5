/* How much longer computing takes than the rows say. See skew.h. */
#include "profile/skew.h"

#include "core/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t mist_skew_cut(const struct mist_drift *drift,
                      const struct mist_estimate *estimates, double length_us,
                      double *pieces)
{
    double piece_us = 0, piece_expected_us = 0;
    int64_t n = 0;

    for (size_t i = 0; i < drift->n_runs; i++) {
        piece_us += drift->runs[i].time_us;
        piece_expected_us += estimates[drift->runs[i].key].mean;
        if (piece_expected_us < length_us || piece_expected_us <= 0)
            continue;
        pieces[n++] = piece_us / piece_expected_us;
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

/* By how much the middle of pieces (sorted by this call) is beyond 1. */
static double frac_of(double *pieces, int64_t n)
{
    return fmax(0, mist_middle_mean(pieces, (size_t)n) - 1);
}

/* The frac of pieces of a length; own_frac (NULL: not asked for): the mean over the ranks
 * of what each has by itself. pieces: room for twice all runs. */
static enum mist_status find_frac(struct mist_comm *comm, const struct mist_drift *drift,
                                  const struct mist_estimate *estimates, double length_us,
                                  double *pieces, double *frac, double *own_frac,
                                  struct mist_err *err)
{
    int64_t n = mist_skew_cut(drift, estimates, length_us, pieces);
    enum mist_status status = MIST_OK;

    if (n == 0)
        return MIST_OK;
    if (own_frac) {
        double *own = pieces + n, own_sum;
        memcpy(own, pieces, (size_t)n * sizeof *own);
        own_sum = frac_of(own, n);
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_SUM, &own_sum, 1, err);
        *own_frac = own_sum / mist_comm_n_ranks(comm);
    }
    if (status == MIST_OK)
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, pieces, (int32_t)n, err);
    *frac = frac_of(pieces, n);
    return status;
}

enum mist_status mist_skew_find(struct mist_comm *comm, const struct mist_drift *drift,
                                const struct mist_estimate *estimates, double pass_us,
                                double step_us, struct mist_trace_skew *out,
                                struct mist_err *err)
{
    double *pieces = malloc((2 * drift->n_runs + 1) * sizeof *pieces);
    bool is_same = false;
    enum mist_status status =
        pieces ? agree(comm, drift, &is_same, err) : mist_err_memory(err, NULL);

    *out = (struct mist_trace_skew){0};
    if (status == MIST_OK && is_same)
        status = find_frac(comm, drift, estimates, pass_us, pieces, &out->pass_frac,
                           &out->alone_frac, err);
    if (status == MIST_OK && is_same)
        status = find_frac(comm, drift, estimates, step_us, pieces, &out->step_frac, NULL,
                           err);
    free(pieces);
    return status;
}

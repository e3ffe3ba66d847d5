/* Messages and copies timed on their streams. See time_links.h. */
#include "profile/time_links.h"

#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_ROUNDS = 5,
    N_TRIALS = 3, /* of every message, to know how many repetitions the time allows */
    LEAST_REPETITIONS = 4, /* in a round */
    MOST_REPETITIONS = 200,
};

/* One batch of repetitions of one message. */
struct batch {
    struct mist_workbench *bench;
    struct mist_comm_group *const *groups;
    const struct mist_grid_message *message;
    int32_t n_repetitions;
    int64_t turn;                     /* counts on over batches */
    double begin_s[MOST_REPETITIONS]; /* of this rank; 0 where it takes no part */
    double end_s[MOST_REPETITIONS];
};

static bool is_copy(const struct mist_grid_message *message)
{
    return message->operation == MIST_LINK_HOST_TO_DEVICE ||
           message->operation == MIST_LINK_DEVICE_TO_HOST;
}

static bool takes_part(const struct batch *batch)
{
    return is_copy(batch->message) || batch->bench->rank < batch->message->n_ranks;
}

/* True where the end of the message counts. Transfers change direction every time. */
static bool ends_here(const struct batch *batch, int64_t turn)
{
    if (batch->message->operation == MIST_LINK_SEND_RECV)
        return takes_part(batch) && batch->bench->rank == 1 - (int32_t)(turn % 2);
    return takes_part(batch);
}

/* ----------------------------------------------------------------------------- bodies */

static enum mist_status transfer(struct batch *batch, char *at, int64_t turn,
                                 struct mist_err *err)
{
    struct mist_comm *comm = batch->bench->comm;
    int32_t peer = 1 - batch->bench->rank;

    if (ends_here(batch, turn))
        return mist_comm_recv(comm, peer, 0, at, batch->message->bytes, err);
    return mist_comm_send(comm, peer, 0, at, batch->message->bytes, err);
}

static enum mist_status move_once(struct batch *batch, int64_t turn, struct mist_err *err)
{
    const struct mist_workbench *bench = batch->bench;
    int64_t bytes = batch->message->bytes;
    char *at = mist_workbench_turn(bench->message, bench->message_bytes, bytes, turn);
    char *host = mist_workbench_turn(bench->host, bench->host_bytes, bytes, turn);
    struct mist_comm_group *group = NULL;

    for (int32_t n = 2, k = 0; n <= batch->message->n_ranks; n *= 2, k++)
        group = batch->groups[k];
    switch (batch->message->operation) {
    case MIST_LINK_ALL_REDUCE:
        return mist_comm_all_reduce_sum_f32(group, (float *)(void *)at, bytes / 4, err);
    case MIST_LINK_REDUCE_SCATTER:
        return mist_comm_reduce_scatter_sum_f32(group, (float *)(void *)at, bytes / 4,
                                                err);
    case MIST_LINK_ALL_GATHER:
        return mist_comm_all_gather(group, at, bytes / batch->message->n_ranks, err);
    case MIST_LINK_SEND_RECV:
        return transfer(batch, at, turn, err);
    case MIST_LINK_HOST_TO_DEVICE:
        bench->operators->copy(at, host, bytes);
        return MIST_OK;
    case MIST_LINK_DEVICE_TO_HOST:
        bench->operators->copy(host, at, bytes);
        return MIST_OK;
    case MIST_N_LINK_OPERATIONS:
        break;
    }
    return MIST_OK;
}

static void run_batch(void *arg)
{
    struct batch *batch = arg;
    struct mist_err err = {0};
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < batch->n_repetitions && status == MIST_OK; i++) {
        int64_t turn = batch->turn + i;
        batch->begin_s[i] = batch->end_s[i] = 0;
        status = mist_comm_barrier(batch->bench->comm, &err);
        if (status != MIST_OK || !takes_part(batch))
            continue;
        batch->begin_s[i] = mist_clock_now_s();
        status = move_once(batch, turn, &err);
        batch->end_s[i] = ends_here(batch, turn) ? mist_clock_now_s() : 0;
    }
    batch->turn += batch->n_repetitions;
    if (status != MIST_OK)
        mist_device_fail(batch->bench->device, status, &err);
}

/* ----------------------------------------------------------------------- repetitions */

static enum mist_stream stream_of(const struct mist_grid_message *message)
{
    switch (message->operation) {
    case MIST_LINK_HOST_TO_DEVICE:
        return MIST_STREAM_HOST_TO_DEVICE;
    case MIST_LINK_DEVICE_TO_HOST:
        return MIST_STREAM_DEVICE_TO_HOST;
    default:
        return MIST_STREAM_GPU_GPU;
    }
}

/* Runs a batch; times_us[n_repetitions] of it on this rank, 0 where it does not end. */
static enum mist_status time_batch(struct batch *batch, double *times_us,
                                   struct mist_err *err)
{
    double begin_s[MOST_REPETITIONS];
    enum mist_status status = mist_workbench_run(batch->bench, stream_of(batch->message),
                                                 run_batch, batch, err);

    if (status != MIST_OK)
        return status;
    memcpy(begin_s, batch->begin_s, sizeof begin_s);
    if (!is_copy(batch->message)) /* the last member to begin */
        status = mist_comm_all_reduce_f64(batch->bench->comm, MIST_COMM_MAX, begin_s,
                                          batch->n_repetitions, err);
    for (int32_t i = 0; i < batch->n_repetitions; i++)
        times_us[i] = batch->end_s[i] > 0 ? (batch->end_s[i] - begin_s[i]) * 1e6 : 0;
    return status;
}

/* Seconds that one repetition of each message takes on this machine, by trying. */
static enum mist_status try_all(struct batch *batch, double *trial_s,
                                struct mist_err *err)
{
    const struct mist_grid *grid = batch->bench->grid;
    double times_us[MOST_REPETITIONS];

    batch->n_repetitions = N_TRIALS;
    for (int32_t i = 0; i < grid->n_messages; i++) {
        batch->message = &grid->messages[i];
        double start_s = mist_clock_now_s();
        enum mist_status status = time_batch(batch, times_us, err);
        if (status != MIST_OK)
            return status;
        trial_s[i] = (mist_clock_now_s() - start_s) / N_TRIALS;
    }
    return mist_comm_all_reduce_f64(batch->bench->comm, MIST_COMM_MAX, trial_s,
                                    grid->n_messages, err);
}

/* Every message gets the same part of a round. */
static int32_t n_repetitions(double budget_s, int32_t n_messages, double trial_s)
{
    double n = budget_s / N_ROUNDS / n_messages / trial_s;

    n = n < LEAST_REPETITIONS ? LEAST_REPETITIONS : n;
    return (int32_t)(n > MOST_REPETITIONS ? MOST_REPETITIONS : n);
}

static enum mist_status run_rounds(struct batch *batch, double budget_s,
                                   const double *trial_s, struct mist_samples *samples,
                                   struct mist_err *err)
{
    const struct mist_grid *grid = batch->bench->grid;
    double times_us[MOST_REPETITIONS];

    for (int round = 0; round < N_ROUNDS; round++)
        for (int32_t i = 0; i < grid->n_messages; i++) {
            batch->message = &grid->messages[i];
            batch->n_repetitions = n_repetitions(budget_s, grid->n_messages, trial_s[i]);
            enum mist_status status = time_batch(batch, times_us, err);
            if (status != MIST_OK)
                return status;
            for (int32_t k = 0; k < batch->n_repetitions; k++)
                if (times_us[k] > 0 && !mist_samples_add(&samples[i], times_us[k]))
                    return mist_err_set(err, MIST_ERR_MEMORY,
                                        "out of memory for timings");
            mist_workbench_show_progress(batch->bench);
        }
    return MIST_OK;
}

enum mist_status mist_time_links(struct mist_workbench *bench,
                                 struct mist_comm_group *const *groups, double budget_s,
                                 struct mist_estimate *estimates, struct mist_err *err)
{
    int32_t n = bench->grid->n_messages;
    struct batch *batch = calloc(1, sizeof *batch);
    struct mist_samples *samples = calloc((size_t)n, sizeof *samples);
    double *trial_s = calloc((size_t)n, sizeof *trial_s);
    enum mist_status status = MIST_ERR_MEMORY;

    if (!batch || !samples || !trial_s) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    *batch = (struct batch){.bench = bench, .groups = groups};
    status = try_all(batch, trial_s, err);
    if (status == MIST_OK)
        status = run_rounds(batch, budget_s, trial_s, samples, err);
    for (int32_t i = 0; i < n; i++) {
        estimates[i] = mist_estimate_make(samples[i].values, samples[i].n);
        mist_samples_fini(&samples[i]);
    }
    if (status == MIST_OK)
        status = mist_workbench_pool(bench, estimates, n, err);
out:
    free(batch);
    free(samples);
    free(trial_s);
    return status;
}

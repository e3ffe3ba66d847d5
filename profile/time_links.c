/* Messages and copies timed on their streams. See time_links.h. */
#include "profile/time_links.h"

#include "core/clock.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROUNDS = 5,
    LEAST_ROUNDS = 2,
    N_TRIALS = 3, /* of every message, to know how many repetitions the time allows; one
                     over several nodes */
    LEAST_REPETITIONS = 4, /* in a round */
    MOST_REPETITIONS = 200,
    N_STEPS = 12, /* of computing before each repetition: about a block's forward */
    FIRST_TAG_SPACE = 1, /* of the groups; 0 is that of all ranks, in workbench.c */
};

static const double slow_s = 0.02, very_slow_s = 0.1; /* messages repeated less */
static const int64_t trial_bytes = 256 << 10;

/* What stays from one time to the next, and one batch of repetitions of one message. */
struct mist_time_links {
    struct mist_workbench *bench;
    double budget_s;
    struct mist_samples *samples;          /* [n_messages], us */
    double *trial_s;                       /* [n_messages] of one repetition */
    int32_t n_rounds, i_round;             /* to be made, 0: not tried yet; made so far */
    struct mist_collective_group **groups; /* [n_shapes]; NULL: this rank is in none */
    struct mist_comm_group **hosts; /* [n_shapes] the same ranks; NULL also over nodes */
    int32_t *members;               /* [n_ranks] of the message's group */
    int32_t n_members;              /* 0: this rank takes no part */
    int32_t i_member;               /* which one this rank is */
    const struct mist_grid_message *message;
    const struct mist_group_shape *shape;
    int32_t n_repetitions;
    int64_t turn;       /* counts on over batches */
    int64_t n_computed; /* blocks between repetitions */
    double begin_s[MOST_REPETITIONS];
    bool ends_here[MOST_REPETITIONS];
    double *begins_s; /* [n_ranks][MOST_REPETITIONS] of the group */
};

static bool is_copy(const struct mist_time_links *batch)
{
    return batch->message->i_shape == 0;
}

static void choose_message(struct mist_time_links *batch, int32_t i_message)
{
    const struct mist_grid *grid = batch->bench->grid;

    batch->message = &grid->messages[i_message];
    batch->shape = &grid->shapes[batch->message->i_shape];
    batch->n_members = mist_grid_members(&grid->config, batch->shape, batch->bench->rank,
                                         batch->members);
    batch->i_member = 0;
    for (int32_t i = 0; i < batch->n_members; i++)
        if (batch->members[i] == batch->bench->rank)
            batch->i_member = i;
}

/* ----------------------------------------------------------------------------- bodies */

/* A transfer to the other member, who changes with the turn; over nodes there and back.
 * ends_here: where its time counts. */
static enum mist_status transfer(struct mist_time_links *batch, char *at, int64_t turn,
                                 bool *ends_here, struct mist_err *err)
{
    struct mist_collectives *collectives = batch->bench->collectives;
    int64_t bytes = batch->message->bytes;
    bool begins = batch->members[turn % 2] == batch->bench->rank;
    bool returns = batch->shape->nodes > 1;
    int32_t peer = batch->members[begins ? 1 - turn % 2 : turn % 2];
    enum mist_status status = MIST_OK;

    *ends_here = begins == returns;
    if (begins)
        status = mist_collectives_send(collectives, peer, 0, at, bytes, err);
    if (status == MIST_OK && (!begins || returns))
        status = mist_collectives_recv(collectives, peer, 0, at, bytes, err);
    if (status == MIST_OK && !begins && returns)
        status = mist_collectives_send(collectives, peer, 0, at, bytes, err);
    return status;
}

/* What the runtime does at the end of an iteration. */
static void exchange_on_host(void *arg)
{
    struct mist_time_links *batch = arg;
    double loss = 0;
    int64_t sums[3] = {0};
    struct mist_err err = {0};
    enum mist_status status =
        mist_comm_all_reduce_f64(batch->bench->comm, MIST_COMM_SUM, &loss, 1, &err);

    if (status == MIST_OK)
        status =
            mist_comm_all_reduce_i64(batch->bench->comm, MIST_COMM_SUM, sums, 3, &err);
    if (status != MIST_OK)
        mist_device_fail(batch->bench->device, status, &err);
}

static enum mist_status exchange(struct mist_time_links *batch)
{
    mist_device_fetch_results(batch->bench->device);
    mist_device_call_host(batch->bench->device, exchange_on_host, batch);
    return MIST_OK;
}

static enum mist_status reduce_scatter(const struct mist_time_links *batch, char *at,
                                       struct mist_err *err)
{
    const struct mist_grid_message *message = batch->message;
    int64_t shard_bytes = message->bytes / batch->n_members;

    return mist_collective_reduce_scatter(
        batch->groups[message->i_shape], message->dtype, at,
        at + shard_bytes * batch->i_member,
        message->bytes / mist_dtype_weight_bytes(message->dtype), err);
}

static enum mist_status all_gather(const struct mist_time_links *batch, char *at,
                                   struct mist_err *err)
{
    int64_t shard_bytes = batch->message->bytes / batch->n_members;

    return mist_collective_all_gather(batch->groups[batch->message->i_shape],
                                      at + shard_bytes * batch->i_member, at, shard_bytes,
                                      err);
}

static enum mist_status move_once(struct mist_time_links *batch, int64_t turn,
                                  bool *ends_here, struct mist_err *err)
{
    const struct mist_workbench *bench = batch->bench;
    const struct mist_grid_message *message = batch->message;
    int64_t bytes = message->bytes;
    char *at = mist_workbench_turn(bench->message, bench->message_bytes, bytes, turn);
    char *host = mist_workbench_turn(bench->host, bench->host_bytes, bytes, turn);

    *ends_here = true;
    if (message->is_exchange)
        return exchange(batch);
    switch (message->operation) {
    case MIST_LINK_ALL_REDUCE:
        return mist_collective_all_reduce(
            batch->groups[message->i_shape], message->dtype, at,
            bytes / mist_dtype_weight_bytes(message->dtype), err);
    case MIST_LINK_REDUCE_SCATTER:
        return reduce_scatter(batch, at, err);
    case MIST_LINK_ALL_GATHER:
        return all_gather(batch, at, err);
    case MIST_LINK_SEND_RECV:
        return transfer(batch, at, turn, ends_here, err);
    case MIST_LINK_HOST_TO_DEVICE:
        mist_device_copy(bench->device, at, host, bytes);
        return MIST_OK;
    case MIST_LINK_DEVICE_TO_HOST:
        mist_device_copy(bench->device, host, at, bytes);
        return MIST_OK;
    case MIST_N_LINK_OPERATIONS:
        break;
    }
    return MIST_OK;
}

static enum mist_stopwatch_work work_of(const struct mist_time_links *batch)
{
    if (batch->message->is_exchange)
        return MIST_WORK_OF_HOST;
    return is_copy(batch) ? MIST_WORK_OF_DEVICE
                          : mist_workbench_message_work(batch->bench);
}

/* A repetition is a span. */
static void run_batch(void *arg)
{
    struct mist_time_links *batch = arg;
    struct mist_workbench *bench = batch->bench;
    struct mist_err err = {0};
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < batch->n_repetitions && status == MIST_OK; i++) {
        batch->ends_here[i] = false;
        if (mist_workbench_is_on_host(bench)) /* after which caches hold other things */
            mist_workbench_compute(bench, N_STEPS, &batch->n_computed);
        mist_workbench_meet(bench);
        if (batch->n_members == 0 || atomic_load(&bench->device->has_failed))
            continue;
        mist_stopwatch_begin(&bench->watch, i, work_of(batch));
        status = move_once(batch, batch->turn + i, &batch->ends_here[i], &err);
        mist_stopwatch_end(&bench->watch, i);
    }
    batch->turn += batch->n_repetitions;
    if (status != MIST_OK)
        mist_device_fail(bench->device, status, &err);
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

/* When each repetition began: on one node when the last member of the group began. */
static enum mist_status find_begins(struct mist_time_links *batch, struct mist_err *err)
{
    int32_t n = batch->n_repetitions;
    struct mist_comm_group *group = batch->hosts[batch->message->i_shape];

    for (int32_t i = 0; i < n; i++)
        batch->begin_s[i] = batch->bench->watch.spans[i].start_s;
    if (is_copy(batch) || !group)
        return MIST_OK;
    enum mist_status status =
        mist_comm_all_gather(group, batch->begin_s, batch->begins_s,
                             n * (int64_t)sizeof *batch->begins_s, err);
    for (int32_t i = 0; i < n * batch->n_members; i++)
        batch->begin_s[i % n] = fmax(batch->begin_s[i % n], batch->begins_s[i]);
    return status;
}

/* Runs a batch; times_us[n_repetitions] of it on this rank, 0 where it does not end. */
static enum mist_status time_batch(struct mist_time_links *batch, double *times_us,
                                   struct mist_err *err)
{
    enum mist_status status =
        mist_workbench_run(batch->bench, stream_of(batch->message), run_batch, batch,
                           batch->n_repetitions, err);
    bool is_double =
        batch->message->operation == MIST_LINK_SEND_RECV && batch->shape->nodes > 1;

    if (status == MIST_OK)
        status = find_begins(batch, err);
    const struct mist_span *spans = batch->bench->watch.spans;
    for (int32_t i = 0; i < batch->n_repetitions && status == MIST_OK; i++) {
        double time_us = (spans[i].end_s - batch->begin_s[i]) * 1e6;
        times_us[i] = batch->ends_here[i] ? time_us / (is_double ? 2 : 1) : 0;
    }
    return status;
}

/* Seconds that one repetition of each message takes on this machine, by trying. */
static enum mist_status try_all(struct mist_time_links *batch, double *trial_s,
                                struct mist_err *err)
{
    const struct mist_grid *grid = batch->bench->grid;
    double times_us[MOST_REPETITIONS];
    int64_t n_bytes, expected_bytes = grid->n_messages * (int64_t)sizeof *trial_s;
    const char *bytes =
        mist_journal_take(batch->bench->journal, MIST_JOURNAL_TRIALS, &n_bytes);

    if (bytes && n_bytes == expected_bytes) {
        memcpy(trial_s, bytes, (size_t)n_bytes);
        return MIST_OK;
    }
    for (int32_t i = 0; i < grid->n_messages; i++) {
        choose_message(batch, i);
        batch->n_repetitions = batch->shape->nodes > 1 ? 1 : N_TRIALS;
        double start_s = mist_clock_now_s();
        enum mist_status status = time_batch(batch, times_us, err);
        if (status != MIST_OK)
            return status;
        trial_s[i] = (mist_clock_now_s() - start_s) / batch->n_repetitions;
        mist_workbench_show_progress(batch->bench);
    }
    enum mist_status status = mist_comm_all_reduce_f64(batch->bench->comm, MIST_COMM_MAX,
                                                       trial_s, grid->n_messages, err);
    if (status != MIST_OK)
        return status;
    return mist_journal_add(batch->bench->journal, MIST_JOURNAL_TRIALS, trial_s,
                            expected_bytes, err);
}

static int32_t least_repetitions(double trial_s)
{
    return trial_s > very_slow_s ? 1 : trial_s > slow_s ? 2 : LEAST_REPETITIONS;
}

/* Every message gets the same part of a round. */
static int32_t n_repetitions(double budget_s, int32_t n_messages, double trial_s)
{
    double least = least_repetitions(trial_s);
    double n = budget_s / MOST_ROUNDS / n_messages / trial_s;

    return (int32_t)fmin(fmax(n, least), MOST_REPETITIONS);
}

/* Fewer where even the least takes much longer than there is time. */
static int32_t n_rounds(double budget_s, int32_t n_messages, const double *trial_s)
{
    double round_s = 0;

    for (int32_t i = 0; i < n_messages; i++)
        round_s += trial_s[i] * least_repetitions(trial_s[i]);
    return (int32_t)fmin(fmax(2 * budget_s / round_s, LEAST_ROUNDS), MOST_ROUNDS);
}

/* One batch, or what an earlier session measured of it. */
static enum mist_status run_or_take(struct mist_time_links *batch, double *times_us,
                                    struct mist_err *err)
{
    struct mist_journal *journal = batch->bench->journal;
    int64_t n_bytes, expected_bytes = batch->n_repetitions * (int64_t)sizeof *times_us;
    const char *bytes = mist_journal_take(journal, MIST_JOURNAL_LINKS, &n_bytes);

    if (bytes && n_bytes == expected_bytes) {
        memcpy(times_us, bytes, (size_t)n_bytes);
        return MIST_OK;
    }
    enum mist_status status = time_batch(batch, times_us, err);
    return status == MIST_OK ? mist_journal_add(journal, MIST_JOURNAL_LINKS, times_us,
                                                expected_bytes, err)
                             : status;
}

static enum mist_status run_round(struct mist_time_links *batch, struct mist_err *err)
{
    int32_t n = batch->bench->grid->n_messages;
    double times_us[MOST_REPETITIONS];

    for (int32_t i = 0; i < n; i++) {
        choose_message(batch, i);
        batch->n_repetitions = n_repetitions(batch->budget_s, n, batch->trial_s[i]);
        enum mist_status status = run_or_take(batch, times_us, err);
        if (status != MIST_OK)
            return status;
        for (int32_t j = 0; j < batch->n_repetitions; j++)
            if (times_us[j] > 0 && !mist_samples_add(&batch->samples[i], times_us[j]))
                return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
        mist_workbench_show_progress(batch->bench);
    }
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- public */

/* Of a shape, beside what the host uses to compare begins. */
static enum mist_status make_group(struct mist_time_links *batch, int32_t i_shape,
                                   int32_t n, struct mist_err *err)
{
    const struct mist_grid *grid = batch->bench->grid;
    enum mist_status status = mist_collectives_group(
        batch->bench->collectives, batch->members, n, FIRST_TAG_SPACE + i_shape,
        mist_grid_largest_bytes(grid, false), &batch->groups[i_shape], err);

    if (status == MIST_OK && grid->shapes[i_shape].nodes == 1)
        status = mist_comm_group(batch->bench->comm, batch->members, n,
                                 FIRST_TAG_SPACE + grid->n_shapes + i_shape,
                                 &batch->hosts[i_shape], err);
    return status;
}

static enum mist_status make_groups(struct mist_time_links *batch, struct mist_err *err)
{
    const struct mist_grid *grid = batch->bench->grid;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < grid->n_shapes && status == MIST_OK; i++) {
        int32_t n = mist_grid_members(&grid->config, &grid->shapes[i], batch->bench->rank,
                                      batch->members);
        if (n > 1)
            status = make_group(batch, i, n, err);
    }
    return status;
}

enum mist_status mist_time_links_open(struct mist_workbench *bench, double budget_s,
                                      struct mist_time_links **out, struct mist_err *err)
{
    const struct mist_grid *grid = bench->grid;
    size_t n_ranks = (size_t)bench->n_ranks, n_shapes = (size_t)grid->n_shapes;
    struct mist_time_links *at = *out = calloc(1, sizeof *at);

    if (!at)
        return mist_err_memory(err, NULL);
    at->bench = bench;
    at->budget_s = budget_s;
    if (!MIST_CALLOC(at->samples, grid->n_messages) ||
        !MIST_CALLOC(at->trial_s, grid->n_messages) ||
        !MIST_CALLOC(at->groups, n_shapes) || !MIST_CALLOC(at->hosts, n_shapes) ||
        !MIST_CALLOC(at->members, n_ranks) ||
        !MIST_CALLOC(at->begins_s, n_ranks * MOST_REPETITIONS))
        return mist_err_memory(err, NULL);
    return make_groups(at, err);
}

void mist_time_links_close(struct mist_time_links *at)
{
    if (!at)
        return;
    for (int32_t i = 0; i < at->bench->grid->n_messages && at->samples; i++)
        mist_samples_fini(&at->samples[i]);
    free(at->samples);
    free(at->trial_s);
    free(at->groups);
    free(at->hosts);
    free(at->members);
    free(at->begins_s);
    free(at);
}

enum mist_status mist_time_links_run(struct mist_time_links *at, double share,
                                     struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (at->n_rounds == 0) {
        status = try_all(at, at->trial_s, err);
        at->n_rounds = n_rounds(at->budget_s, at->bench->grid->n_messages, at->trial_s);
    }
    for (; at->i_round < share * at->n_rounds && status == MIST_OK; at->i_round++)
        status = run_round(at, err);
    return status;
}

enum mist_status mist_time_links_find(const struct mist_time_links *at,
                                      struct mist_estimate *estimates,
                                      struct mist_err *err)
{
    int32_t n = at->bench->grid->n_messages;

    for (int32_t i = 0; i < n; i++)
        estimates[i] = mist_estimate_make(at->samples[i].values, at->samples[i].n);
    return mist_workbench_pool(at->bench, estimates, n, err);
}

/* -------------------------------------------------------------------------- estimates */

enum mist_status mist_time_links_try(struct mist_comm *comm, double *bytes_per_s,
                                     struct mist_err *err)
{
    int32_t n_here = mist_comm_n_node_ranks(comm), rank = mist_comm_rank(comm);
    char *bytes = calloc(1, (size_t)trial_bytes);
    enum mist_status status = mist_comm_barrier(comm, err);
    double time_s = 0;

    *bytes_per_s = 0;
    if (!bytes)
        return mist_err_memory(err, NULL);
    for (int i = 0; i < 2 && n_here < mist_comm_n_ranks(comm); i++) { /* 2nd is warm */
        double start_s = mist_clock_now_s();
        if (status == MIST_OK && rank == 0)
            status = mist_comm_send(comm, n_here, 0, bytes, trial_bytes, err);
        if (status == MIST_OK && (rank == 0 || rank == n_here))
            status =
                mist_comm_recv(comm, rank == 0 ? n_here : 0, 0, bytes, trial_bytes, err);
        if (status == MIST_OK && rank == n_here)
            status = mist_comm_send(comm, 0, 0, bytes, trial_bytes, err);
        time_s = rank == 0 ? mist_clock_now_s() - start_s : 0;
    }
    free(bytes);
    if (status == MIST_OK)
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, &time_s, 1, err);
    if (status == MIST_OK && time_s > 0)
        *bytes_per_s = 2 * (double)trial_bytes / time_s;
    return status;
}

double mist_time_links_least_s(const struct mist_grid *grid, double bytes_per_s)
{
    double total_s = 0;

    for (int32_t i = 0; i < grid->n_messages && bytes_per_s > 0; i++) {
        const struct mist_grid_message *message = &grid->messages[i];
        const struct mist_group_shape *shape = &grid->shapes[message->i_shape];
        int32_t n = mist_grid_group_ranks(shape), k = shape->ranks_per_node;
        if (shape->nodes == 1)
            continue;
        /* what leaves a node: every rank sends a shard to every rank elsewhere */
        double volume = (double)message->bytes * k * (n - k) / n;
        if (message->operation == MIST_LINK_SEND_RECV ||
            message->operation == MIST_LINK_ALL_REDUCE)
            volume *= 2;
        double time_s = volume * shape->concurrent_groups / bytes_per_s;
        total_s += time_s * (1 + LEAST_ROUNDS * least_repetitions(time_s));
    }
    return total_s;
}

/* Channels running together. See time_interference.h. */
#include "profile/time_interference.h"

#include "core/clock.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_RATIOS = 2,
    LEAST_ROUNDS = 4,
    MOST_ROUNDS = 100,
    N_TRIALS = 3,
    RELEASE = 0, /* the event that lets all channels go */
};

/* Time of a channel's work at ratio 1: about a block's forward and backward. Below, the
 * turns that the system's scheduler gives to threads of one core would not
 * average out. */
static const double least_base_us = 4000, most_base_us = 8000;
static const int64_t most_piece_bytes = 4 << 20;

/* The same on a GPU, where no threads take turns; and how many launches a batch may have,
 * since all of it waits in the streams before it begins (MIST_HELD_LAUNCHES). */
static const double least_gpu_base_us = 1000, most_gpu_base_us = 4000;
enum { MOST_GPU_STEPS = 60, MOST_GPU_PIECES = 100 }; /* at ratio 1 */

/* What a channel can do. */
enum work {
    WORK_COMPUTE,
    WORK_MESSAGE, /* and on: by enum mist_mixture_message */
    WORK_LOAD = WORK_MESSAGE + MIST_N_MIXTURE_MESSAGES,
    WORK_STORE,
    N_WORKS
};

static enum mist_stream stream_of(int work)
{
    return work == WORK_COMPUTE ? MIST_STREAM_COMPUTE
           : work == WORK_LOAD  ? MIST_STREAM_HOST_TO_DEVICE
           : work == WORK_STORE ? MIST_STREAM_DEVICE_TO_HOST
                                : MIST_STREAM_GPU_GPU;
}

struct mist_time_interference;

/* Some work: a span of its channel's number. Only its stream's thread touches it while it
 * runs. */
struct job {
    struct mist_time_interference *state;
    enum work work;
    int64_t amount; /* steps of blocks; bytes */
    int64_t turn;   /* where it goes on next time */
};

struct mist_time_interference {
    struct mist_workbench *bench;
    double budget_s, spent_s;            /* of time, in rounds */
    const struct mist_mixture *mixtures; /* [n_mixtures] */
    int32_t n_mixtures, n_rounds;        /* of these, made so far */
    bool is_calibrated;
    int64_t piece_bytes;
    struct job jobs[N_WORKS][N_RATIOS];
    struct mist_samples alone[N_WORKS][N_RATIOS]; /* us */
    struct mist_samples *together;                /* [mixtures], us */
    double release_s;
    struct mist_samples round; /* what this round measured, in its order */
    const char *stored;        /* the same of an earlier session; NULL: measure */
    int64_t n_stored_bytes;
};

/* ------------------------------------------------------------------------------- work */

/* There and back between neighbours; the last of an odd number of ranks has none. */
static enum mist_status exchange(struct mist_workbench *bench, char *at, int64_t bytes,
                                 struct mist_err *err)
{
    int32_t peer = bench->rank ^ 1;
    enum mist_status status = MIST_OK;

    if (peer >= bench->n_ranks)
        return MIST_OK;
    for (int way = 0; way < 2 && status == MIST_OK; way++) {
        if ((bench->rank + way) % 2 == 0)
            status =
                mist_collectives_send(bench->collectives, peer, 0, at, bytes / 2, err);
        else
            status =
                mist_collectives_recv(bench->collectives, peer, 0, at, bytes / 2, err);
    }
    return status;
}

static enum mist_status send_piece(struct mist_workbench *bench,
                                   enum mist_mixture_message message, char *at,
                                   int64_t bytes, struct mist_err *err)
{
    int64_t shard_bytes = bytes / bench->n_ranks;
    char *mine = at + shard_bytes * bench->rank;

    switch (message) {
    case MIST_MIXTURE_EXCHANGE:
        return exchange(bench, at, bytes, err);
    case MIST_MIXTURE_GATHER:
        return mist_collective_all_gather(bench->all, mine, at, shard_bytes, err);
    case MIST_MIXTURE_SCATTER:
        return mist_collective_reduce_scatter(bench->all, MIST_DTYPE_FP32, at, mine,
                                              bytes / 4, err);
    default:
        return mist_collective_all_reduce(bench->all, MIST_DTYPE_FP32, at, bytes / 4,
                                          err);
    }
}

static enum mist_status move_piece(struct job *job, int64_t bytes, struct mist_err *err)
{
    struct mist_workbench *bench = job->state->bench;
    int64_t turn = job->turn++;
    int64_t piece = job->state->piece_bytes;
    /* halves of the regions by direction, so that two copies don't share memory */
    int64_t half = bench->host_bytes / 2;
    bool stores = job->work == WORK_STORE;
    char *host =
        mist_workbench_turn(bench->host + (stores ? half : 0), half, piece, turn);
    char *near =
        mist_workbench_turn(bench->message + (stores ? half : 0), half, piece, turn);

    if (stream_of((int)job->work) == MIST_STREAM_GPU_GPU) {
        near = mist_workbench_turn(bench->message, bench->message_bytes, piece, turn);
        return send_piece(bench, (enum mist_mixture_message)(job->work - WORK_MESSAGE),
                          near, bytes, err);
    }
    mist_device_copy(bench->device, stores ? host : near, stores ? near : host, bytes);
    return MIST_OK;
}

static enum mist_status move(struct job *job, struct mist_err *err)
{
    int64_t unit = 8 * (int64_t)job->state->bench->n_ranks; /* shards of whole floats */
    int64_t left = job->amount, bytes = job->state->piece_bytes;
    enum mist_status status = MIST_OK;

    for (; left >= unit && status == MIST_OK; left -= bytes) {
        bytes = (left < bytes ? left : bytes) / unit * unit;
        status = move_piece(job, bytes, err);
    }
    return status;
}

/* The body of a job's task. */
static void run_job(void *arg)
{
    struct job *job = arg;
    struct mist_workbench *bench = job->state->bench;
    struct mist_err err = {0};
    enum mist_status status = MIST_OK;
    enum mist_stream stream = stream_of((int)job->work);

    mist_stopwatch_begin(&bench->watch, stream,
                         stream == MIST_STREAM_GPU_GPU
                             ? mist_workbench_message_work(bench)
                             : MIST_WORK_OF_DEVICE);
    if (job->work == WORK_COMPUTE)
        mist_workbench_compute(bench, job->amount, &job->turn);
    else
        status = move(job, &err);
    mist_stopwatch_end(&bench->watch, stream);
    if (status != MIST_OK)
        mist_device_fail(bench->device, status, &err);
}

/* ----------------------------------------------------------------------------- timing */

static void note_release(void *arg)
{
    struct mist_time_interference *state = arg;

    state->release_s = mist_clock_now_s();
}

/* Meets all ranks once they have submitted all, and looks at the clock, on the gpu_gpu
 * stream. */
static void meet(void *arg)
{
    struct mist_time_interference *state = arg;

    mist_workbench_hold(state->bench);
    mist_workbench_meet(state->bench);
    mist_device_call_host(state->bench->device, note_release, state);
}

/* us from the begin, on the host the release, until the last job ended here. */
static double time_together_us(const struct mist_time_interference *state,
                               struct job *const jobs[MIST_N_CHANNELS])
{
    const struct mist_span *spans = state->bench->watch.spans;
    double start_s = INFINITY, end_s = 0;

    for (int c = 0; c < MIST_N_CHANNELS; c++)
        if (jobs[c] && spans[c].end_s > 0) {
            start_s = fmin(start_s, spans[c].start_s);
            end_s = fmax(end_s, spans[c].end_s);
        }
    if (mist_workbench_is_on_host(state->bench))
        start_s = state->release_s;
    return end_s > 0 ? (end_s - start_s) * 1e6 : 0;
}

struct together {
    struct mist_time_interference *state;
    struct job *const *jobs; /* [MIST_N_CHANNELS]; NULL: channel idle */
};

static void submit_together(struct mist_workbench *bench, void *arg)
{
    const struct together *at = arg;

    mist_device_submit(bench->device, MIST_STREAM_GPU_GPU, meet, at->state);
    mist_device_record(bench->device, MIST_STREAM_GPU_GPU, RELEASE);
    for (int c = 0; c < MIST_N_CHANNELS; c++) {
        if (!at->jobs[c])
            continue;
        if (c != MIST_STREAM_GPU_GPU)
            mist_device_wait(bench->device, (enum mist_stream)c, RELEASE);
        mist_device_submit(bench->device, (enum mist_stream)c, run_job, at->jobs[c]);
    }
}

/* Starts the jobs at once; us until the last one ended here. */
static enum mist_status run_together(struct mist_time_interference *state,
                                     struct job *const jobs[MIST_N_CHANNELS],
                                     double *out_us, struct mist_err *err)
{
    struct together at = {state, jobs};
    enum mist_status status = mist_workbench_run_held(state->bench, 1, MIST_N_CHANNELS,
                                                      submit_together, &at, err);

    *out_us = time_together_us(state, jobs);
    return status;
}

/* run_together(), or what an earlier session measured in its place. */
static enum mist_status measure(struct mist_time_interference *state,
                                struct mist_samples *samples,
                                struct job *const jobs[MIST_N_CHANNELS],
                                struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    double time_us = 0;

    if (!state->stored)
        status = run_together(state, jobs, &time_us, err);
    else if (state->n_stored_bytes >= (int64_t)sizeof time_us) {
        memcpy(&time_us, state->stored, sizeof time_us);
        state->stored += sizeof time_us;
        state->n_stored_bytes -= (int64_t)sizeof time_us;
    }
    if (status == MIST_OK && (!state->stored || time_us > 0) &&
        (!mist_samples_add(samples, time_us) ||
         !mist_samples_add(&state->round, time_us)))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
    return status;
}

static bool has_work(const struct mist_time_interference *state, int work)
{
    return stream_of(work) != MIST_STREAM_GPU_GPU || state->bench->n_ranks > 1;
}

static enum mist_status run_alone(struct mist_time_interference *state, int work,
                                  int ratio, double *out_us, struct mist_err *err)
{
    struct job *jobs[MIST_N_CHANNELS] = {NULL};

    jobs[stream_of(work)] = &state->jobs[work][ratio];
    return run_together(state, jobs, out_us, err);
}

static enum work work_of(const struct mist_mixture *mixture, int channel)
{
    static const enum work works[MIST_N_CHANNELS] = {WORK_COMPUTE, WORK_MESSAGE,
                                                     WORK_LOAD, WORK_STORE};

    return channel == MIST_STREAM_GPU_GPU
               ? (enum work)(WORK_MESSAGE + (int)mixture->message)
               : works[channel];
}

/* ------------------------------------------------------------------------ calibration */

/* Steps that take about *time_us, from the means of the steps; on a GPU it may become
 * less. */
static int64_t count_steps(const struct mist_workbench *bench,
                           const struct mist_estimate *steps, double *time_us)
{
    const struct mist_layer_layout *layout =
        mist_grid_layout(bench->grid, 0, 0, MIST_LAYER_BLOCK);
    const struct mist_grid_step_keys *keys =
        mist_grid_keys(bench->grid, 0, 0, MIST_LAYER_BLOCK);
    int32_t n = layout->n_forward + layout->n_backward;
    int64_t most = mist_workbench_is_on_host(bench) ? 1000000 : MOST_GPU_STEPS;
    double sum_us = 0;
    int64_t n_steps = 0;

    while (sum_us < *time_us * 0.999 && n_steps < most) {
        int32_t i = (int32_t)(n_steps++ % n);
        bool is_backward = i >= layout->n_forward;
        sum_us +=
            steps[keys->of[is_backward][is_backward ? i - layout->n_forward : i]].mean;
    }
    if (n_steps == most)
        *time_us = fmin(*time_us, sum_us);
    return n_steps;
}

/* What a job alone takes on the slowest rank, the least of some tries. */
static enum mist_status try_alone(struct mist_time_interference *state, int work,
                                  double *best_us, struct mist_err *err)
{
    *best_us = INFINITY;
    for (int i = 0; i < N_TRIALS; i++) {
        double time_us;
        enum mist_status status = run_alone(state, work, 0, &time_us, err);
        if (status == MIST_OK) /* all ranks must agree on the amount */
            status = mist_workbench_max(state->bench, &time_us, err);
        if (status != MIST_OK)
            return status;
        *best_us = fmin(*best_us, time_us);
    }
    return MIST_OK;
}

/* Gives a job that moves bytes the amount that takes base_us alone. */
static enum mist_status calibrate(struct mist_time_interference *state, int work,
                                  double base_us, struct mist_err *err)
{
    struct job *job = &state->jobs[work][0];
    double most = MOST_GPU_PIECES * (double)state->piece_bytes, best_us;

    job->amount = 2 * state->piece_bytes;
    enum mist_status status = try_alone(state, work, &best_us, err);
    if (status != MIST_OK)
        return status;
    double amount = (double)job->amount * base_us / best_us;
    if (!mist_workbench_is_on_host(state->bench))
        amount = fmin(amount, most);
    job->amount = (int64_t)amount;
    return MIST_OK;
}

static void set_piece(struct mist_time_interference *state)
{
    const struct mist_workbench *bench = state->bench;
    int64_t unit = 64 * (int64_t)bench->n_ranks;

    state->piece_bytes =
        4 * mist_grid_padded_elements(bench->grid, MIST_LAYER_BLOCK, bench->n_ranks);
    if (state->piece_bytes > most_piece_bytes)
        state->piece_bytes = most_piece_bytes;
    state->piece_bytes = (state->piece_bytes + unit - 1) / unit * unit;
}

/* The first messages connect the ranks, during which no stream may be held. */
static enum mist_status connect_ranks(struct mist_time_interference *state,
                                      struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int work = WORK_MESSAGE; work < WORK_LOAD && status == MIST_OK; work++) {
        struct job job = {.state = state, .work = (enum work)work};
        job.amount = 2 * state->piece_bytes;
        if (has_work(state, work) && !mist_workbench_is_on_host(state->bench))
            status = mist_workbench_run(state->bench, stream_of(work), run_job, &job,
                                        MIST_N_CHANNELS, err);
    }
    return status;
}

/* Time of a channel's work at ratio 1. */
static double choose_base_us(const struct mist_workbench *bench,
                             const struct mist_estimate *steps)
{
    double us = mist_grid_block_us(bench->grid, steps);

    return mist_workbench_is_on_host(bench)
               ? fmin(fmax(us, least_base_us), most_base_us)
               : fmin(fmax(us, least_gpu_base_us), most_gpu_base_us);
}

/* Amounts at ratio 1, as in an earlier session if there was one. */
static enum mist_status calibrate_all(struct mist_time_interference *state,
                                      const struct mist_estimate *steps,
                                      struct mist_err *err)
{
    struct mist_workbench *bench = state->bench;
    double base_us = choose_base_us(bench, steps);
    int64_t amounts[N_WORKS] = {0}, n_bytes;
    const char *bytes = mist_journal_take(bench->journal, MIST_JOURNAL_AMOUNTS, &n_bytes);
    bool is_known = bytes && n_bytes == (int64_t)sizeof amounts;
    enum mist_status status = MIST_OK;

    if (is_known)
        memcpy(amounts, bytes, sizeof amounts);
    set_piece(state);
    status = connect_ranks(state, err);
    for (int work = 0; work < N_WORKS && status == MIST_OK; work++) {
        for (int ratio = 0; ratio < N_RATIOS; ratio++)
            state->jobs[work][ratio] =
                (struct job){.state = state, .work = (enum work)work};
        if (is_known)
            state->jobs[work][0].amount = amounts[work];
        else if (work == WORK_COMPUTE)
            state->jobs[work][0].amount = count_steps(bench, steps, &base_us);
        else if (has_work(state, work))
            status = calibrate(state, work, base_us, err);
        state->jobs[work][1].amount = 2 * state->jobs[work][0].amount;
        amounts[work] = state->jobs[work][0].amount;
    }
    if (status != MIST_OK || is_known)
        return status;
    return mist_journal_add(bench->journal, MIST_JOURNAL_AMOUNTS, amounts, sizeof amounts,
                            err);
}

/* ----------------------------------------------------------------------------- rounds */

static enum mist_status run_alone_all(struct mist_time_interference *state,
                                      struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int work = 0; work < N_WORKS; work++)
        for (int ratio = 0; ratio < N_RATIOS && status == MIST_OK; ratio++) {
            struct job *jobs[MIST_N_CHANNELS] = {NULL};
            if (!has_work(state, work))
                continue;
            jobs[stream_of(work)] = &state->jobs[work][ratio];
            status = measure(state, &state->alone[work][ratio], jobs, err);
        }
    return status;
}

static enum mist_status run_round(struct mist_time_interference *state,
                                  struct mist_err *err)
{
    const struct mist_mixture *mixtures = state->mixtures;
    int32_t n = state->n_mixtures;
    enum mist_status status = MIST_OK;

    state->round.n = 0;
    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        struct job *jobs[MIST_N_CHANNELS] = {NULL};
        if (i % (n / 2 + 1) == 0) /* twice in a round */
            status = run_alone_all(state, err);
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if (mixtures[i].ratio[c] > 0)
                jobs[c] =
                    &state->jobs[work_of(&mixtures[i], c)][mixtures[i].ratio[c] - 1];
        if (status == MIST_OK)
            status = measure(state, &state->together[i], jobs, err);
        mist_workbench_show_progress(state->bench);
    }
    return status;
}

/* A round with its time, measured and noted or taken from the journal. */
static enum mist_status run_or_take_round(struct mist_time_interference *state,
                                          struct mist_err *err)
{
    struct mist_journal *journal = state->bench->journal;
    double begin_s = mist_clock_now_s(), time_s = 0;

    state->stored =
        mist_journal_take(journal, MIST_JOURNAL_MIXTURES, &state->n_stored_bytes);
    bool is_stored = state->stored != NULL;
    if (is_stored && state->n_stored_bytes >= (int64_t)sizeof time_s) {
        state->n_stored_bytes -= (int64_t)sizeof time_s; /* it is the last number */
        memcpy(&time_s, state->stored + state->n_stored_bytes, sizeof time_s);
    }
    enum mist_status status = run_round(state, err);
    if (!is_stored)
        time_s = mist_clock_now_s() - begin_s;
    state->spent_s += time_s;
    if (status != MIST_OK || is_stored)
        return status;
    if (!mist_samples_add(&state->round, time_s))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
    return mist_journal_add(journal, MIST_JOURNAL_MIXTURES, state->round.values,
                            (int64_t)(state->round.n * sizeof *state->round.values), err);
}

/* Rounds until share of the budget is gone. */
static enum mist_status run_rounds(struct mist_time_interference *state, double share,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    while (status == MIST_OK) {
        int32_t n = state->n_rounds;
        double round_s = n > 0 ? state->spent_s / n : 0;
        bool goes_on =
            n < ceil(share * LEAST_ROUNDS) ||
            (n < MOST_ROUNDS && state->spent_s + round_s < share * state->budget_s);
        status = mist_workbench_any(state->bench, &goes_on, err);
        if (status != MIST_OK || !goes_on)
            return status;
        status = run_or_take_round(state, err);
        state->n_rounds++;
    }
    return status;
}

static enum mist_status fill_results(struct mist_time_interference *state,
                                     struct mist_mixture *mixtures, int32_t n,
                                     struct mist_err *err)
{
    struct mist_estimate alone[N_WORKS * N_RATIOS];
    enum mist_status status = MIST_OK;

    for (int i = 0; i < N_WORKS * N_RATIOS; i++) {
        struct mist_samples *samples = &state->alone[i / N_RATIOS][i % N_RATIOS];
        alone[i] = mist_estimate_make(samples->values, samples->n);
    }
    status = mist_workbench_pool(state->bench, alone, N_WORKS * N_RATIOS, err);
    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        struct mist_mixture *mixture = &mixtures[i];
        mixture->together =
            mist_estimate_make(state->together[i].values, state->together[i].n);
        status = mist_workbench_pool(state->bench, &mixture->together, 1, err);
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if (mixture->ratio[c] > 0)
                mixture->alone_us[c] =
                    alone[(int)work_of(mixture, c) * N_RATIOS + mixture->ratio[c] - 1]
                        .median;
    }
    return status;
}

enum mist_status
mist_time_interference_open(struct mist_workbench *bench, double budget_s,
                            const struct mist_mixture *mixtures, int32_t n,
                            struct mist_time_interference **out, struct mist_err *err)
{
    struct mist_time_interference *at = *out = calloc(1, sizeof *at);

    if (!at || !MIST_CALLOC(at->together, n))
        return mist_err_memory(err, NULL);
    at->bench = bench;
    at->budget_s = budget_s;
    at->mixtures = mixtures;
    at->n_mixtures = n;
    return MIST_OK;
}

void mist_time_interference_close(struct mist_time_interference *at)
{
    if (!at)
        return;
    for (int32_t i = 0; i < at->n_mixtures && at->together; i++)
        mist_samples_fini(&at->together[i]);
    for (int i = 0; i < N_WORKS * N_RATIOS; i++)
        mist_samples_fini(&at->alone[i / N_RATIOS][i % N_RATIOS]);
    mist_samples_fini(&at->round);
    free(at->together);
    free(at);
}

enum mist_status mist_time_interference_run(struct mist_time_interference *at,
                                            const struct mist_estimate *steps,
                                            double share, struct mist_err *err)
{
    enum mist_status status = at->is_calibrated ? MIST_OK : calibrate_all(at, steps, err);

    at->is_calibrated = true;
    return status == MIST_OK ? run_rounds(at, share, err) : status;
}

enum mist_status mist_time_interference_find(struct mist_time_interference *at,
                                             struct mist_mixture *mixtures,
                                             int32_t *n_rounds, struct mist_err *err)
{
    *n_rounds = at->n_rounds;
    return fill_results(at, mixtures, at->n_mixtures, err);
}

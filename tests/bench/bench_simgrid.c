/*
 * The same job by Mist's event engine and by SimGrid: 512 ranks, 8 stages with groups of 8
 * tensor-parallel ranks and 8 replicas, in 1F1B. After every pass the ranks of a group sum
 * its output in a ring, message by message, then it goes to the next stage; at the end
 * replicas sum gradients in rings. No two ranks compute equally fast. Links are shared with
 * nobody, and a message takes its bytes over the bandwidth, as both can say; so the
 * iteration has to be the same.
 *
 * Each runs in a process of its own; printed are the processor's time from the list of
 * activities to the result, and the memory at its peak beyond that list.
 */
#include "sim/engine/event_engine.h"
#include "tests/bench/bench.h"
#include "tests/bench/simgrid_job.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STAGES = 8, TP = 8, DP = 8, N_RANKS = STAGES * TP * DP, N_MICRO = 2 };
enum { RING_STEPS = 2 * (TP - 1), PASSES = 2 * N_MICRO };
enum { MAX_ACTIVITIES = N_RANKS * (PASSES * (2 + RING_STEPS) + RING_STEPS) };

#define COMPUTE_S   0.01
#define MESSAGE_S   0.0001
#define BYTES_PER_S 100e9

/* ----------------------------------------------------------------------------- the job */

struct builder {
    struct activity *activities;
    int32_t n;
    int32_t input[N_RANKS];    /* what the next forward waits for; -1: nothing */
    int32_t gradient[N_RANKS]; /* the next backward */
    int32_t output[N_RANKS];   /* the last of a rank's pass */
    int32_t computed[N_RANKS]; /* its last computation */
};

static int32_t rank_of(int stage, int replica, int i)
{
    return (stage * DP + replica) * TP + i;
}

static int32_t add(struct builder *b, int kind, int32_t from, int32_t to, double time_s,
                   int32_t waits_for, int32_t waits_too)
{
    b->activities[b->n] =
        (struct activity){(int8_t)kind, from, to, {waits_for, waits_too}, time_s};
    return b->n++;
}

/* A sum over n ranks: each sends to the next what it got from the one before, one after
 * the other. last: the activity that each begins after, and then the one that it ends
 * with. */
static void add_ring(struct builder *b, int kind, const int32_t *ranks, int n,
                     int32_t *last)
{
    int32_t received[TP > DP ? TP : DP] = {0}, sent[TP > DP ? TP : DP] = {0};

    for (int step = 0; step < 2 * (n - 1); step++) {
        for (int i = 0; i < n; i++)
            sent[i] =
                add(b, kind, ranks[i], ranks[(i + 1) % n], MESSAGE_S,
                    step > 0 ? received[i] : last[ranks[i]], step > 0 ? sent[i] : -1);
        for (int i = 0; i < n; i++)
            received[(i + 1) % n] = sent[i];
    }
    for (int i = 0; i < n; i++)
        last[ranks[i]] = received[i];
}

/* A pass of a stage, all its replicas. */
static void add_pass(struct builder *b, int stage, bool is_forward)
{
    int32_t *inputs = is_forward ? b->input : b->gradient;
    int to = is_forward ? stage + 1 : stage - 1;

    for (int replica = 0; replica < DP; replica++) {
        int32_t ranks[TP];
        for (int i = 0; i < TP; i++) {
            int32_t rank = ranks[i] = rank_of(stage, replica, i);
            double factor = (is_forward ? 1 : 2) * (1 + 1e-3 * (rank * 7919 % 97) / 97);
            b->output[rank] = b->computed[rank] =
                add(b, COMPUTE, rank, rank, COMPUTE_S * factor, inputs[rank],
                    b->computed[rank]);
        }
        add_ring(b, TP_RING, ranks, TP, b->output);
        for (int i = 0; i < TP && to >= 0 && to < STAGES; i++) {
            int32_t peer = rank_of(to, replica, i);
            inputs[peer] = add(b, is_forward ? FORWARD : BACKWARD, ranks[i], peer,
                               MESSAGE_S, b->output[ranks[i]], -1);
        }
        for (int i = 0; i < TP && to == STAGES; i++)
            b->gradient[ranks[i]] = b->output[ranks[i]]; /* the loss */
    }
}

/* In the order of a clock: forward f of a stage at 2 f + stage, backward g at
 * 2 g + 2 STAGES - 1 - stage. */
static struct job make_job(struct builder *b)
{
    b->activities = must_alloc(MAX_ACTIVITIES * (int64_t)sizeof *b->activities);
    for (int i = 0; i < N_RANKS; i++)
        b->input[i] = b->gradient[i] = b->computed[i] = -1;
    for (int tick = 0; tick < 2 * N_MICRO + 2 * STAGES; tick++)
        for (int stage = 0; stage < STAGES; stage++) {
            int f = tick - stage, g = tick - (2 * STAGES - 1 - stage);
            if (f >= 0 && f % 2 == 0 && f / 2 < N_MICRO)
                add_pass(b, stage, true);
            if (g >= 0 && g % 2 == 0 && g / 2 < N_MICRO)
                add_pass(b, stage, false);
        }
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < TP; i++) {
            int32_t ranks[DP];
            for (int replica = 0; replica < DP; replica++)
                ranks[replica] = rank_of(stage, replica, i);
            add_ring(b, DP_RING, ranks, DP, b->output);
        }
    return (struct job){N_RANKS, b->n, b->activities};
}

/* -------------------------------------------------------------------------------- Mist */

/* A rank's tasks: computations, and both ends of messages. Streams are but queues here. */
enum { N_LANES = 2 * N_KINDS };
static const enum mist_stream streams[N_LANES] = {
    [2 * COMPUTE] = MIST_STREAM_COMPUTE,
    [2 * TP_RING] = MIST_STREAM_SEND,
    [2 * TP_RING + 1] = MIST_STREAM_RECEIVE,
    [2 * DP_RING] = MIST_STREAM_SEND,
    [2 * DP_RING + 1] = MIST_STREAM_RECEIVE,
    [2 * FORWARD] = MIST_STREAM_DEVICE_TO_HOST,
    [2 * FORWARD + 1] = MIST_STREAM_HOST_TO_DEVICE,
    [2 * BACKWARD] = MIST_STREAM_GPU_GPU,
    [2 * BACKWARD + 1] = MIST_STREAM_HOST,
};

struct rank {
    int32_t n;
    uint8_t *channel;
    int32_t *dep_offset, *dep, *lane, group[N_LANES];
    double *work_s;
};

struct placing {
    const struct job *job;
    struct rank ranks[N_RANKS];
    int32_t (*task)[2]; /* [job->n] of an activity: where it starts, and where it ends */
};

/* The task of a rank that ends with an activity. */
static int32_t end_on(const struct placing *at, int32_t i, int32_t i_rank)
{
    return at->task[i][at->job->activities[i].from != i_rank];
}

static int32_t place(struct placing *at, int32_t i, int32_t i_rank, bool is_end)
{
    const struct activity *activity = &at->job->activities[i];
    struct rank *rank = &at->ranks[i_rank];
    int32_t n = rank->n++, lane = 2 * activity->kind + is_end,
            n_deps = rank->dep_offset[n];

    rank->channel[n] = (uint8_t)streams[lane];
    rank->work_s[n] = activity->time_s;
    rank->lane[n] = activity->kind == COMPUTE ? -1 : lane;
    rank->group[lane] = activity->kind * N_RANKS + activity->from;
    for (int k = 0; k < 2 && !is_end; k++) {
        int32_t before = activity->waits_for[k];
        if (before >= 0)
            rank->dep[n_deps++] = end_on(at, before, i_rank);
    }
    rank->dep_offset[n + 1] = n_deps;
    return n;
}

static void place_all(struct placing *at)
{
    int64_t room = 2 * at->job->n / N_RANKS * 2;

    at->task = must_alloc(at->job->n * (int64_t)sizeof *at->task);
    for (int i = 0; i < N_RANKS; i++) {
        struct rank *rank = &at->ranks[i];
        rank->channel = must_alloc(room);
        rank->work_s = must_alloc(room * (int64_t)sizeof *rank->work_s);
        rank->lane = must_alloc(room * (int64_t)sizeof *rank->lane);
        rank->dep = must_alloc(2 * room * (int64_t)sizeof *rank->dep);
        rank->dep_offset = must_alloc((room + 1) * (int64_t)sizeof *rank->dep_offset);
        for (int lane = 0; lane < N_LANES;
             lane++) /* the ends of a pipeline meet nobody */
            rank->group[lane] = N_KINDS * N_RANKS;
    }
    for (int32_t i = 0; i < at->job->n; i++) {
        const struct activity *activity = &at->job->activities[i];
        at->task[i][0] = at->task[i][1] = place(at, i, activity->from, false);
        if (activity->from != activity->to)
            at->task[i][1] = place(at, i, activity->to, true);
    }
}

static double mist_replay(const struct job *job)
{
    static struct placing at;
    static struct mist_event_program programs[N_RANKS];
    static struct mist_event_device devices[N_RANKS];
    struct mist_arena arena;
    struct mist_event_engine *engine;
    struct mist_event_result result = {0};
    struct mist_err err = {0};

    at.job = job;
    place_all(&at);
    for (int i = 0; i < N_RANKS; i++) {
        const struct rank *rank = &at.ranks[i];
        programs[i] = (struct mist_event_program){.n_tasks = rank->n,
                                                  .n_lanes = N_LANES,
                                                  .channel = rank->channel,
                                                  .dep_offset = rank->dep_offset,
                                                  .dep = rank->dep,
                                                  .lane = rank->lane};
        devices[i] = (struct mist_event_device){
            .program = i, .work_s = rank->work_s, .group = rank->group};
    }
    const struct mist_event_graph graph = {.n_programs = N_RANKS,
                                           .n_devices = N_RANKS,
                                           .n_groups = N_KINDS * N_RANKS + 1,
                                           .n_iterations = 1,
                                           .program = programs,
                                           .device = devices};
    mist_arena_init(&arena);
    must(mist_event_engine_prepare(&engine, &graph, &arena, &err), &err);
    must(mist_event_engine_run(engine, &result, &err), &err);
    double iteration_s = result.makespan_s;
    mist_arena_fini(&arena);
    return iteration_s;
}

/* ---------------------------------------------------------------------------- the race */

struct finish {
    double iteration_s, time_s, bytes;
};

/* Of this process so far. */
static void measure(double *time_s, double *bytes)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    *time_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
              1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    *bytes = 1024.0 * (double)usage.ru_maxrss;
}

static double replay(const struct job *job, bool is_ours)
{
#ifdef MIST_HAS_SIMGRID
    if (!is_ours)
        return simgrid_replay(job, BYTES_PER_S);
#endif
    return is_ours ? mist_replay(job) : NAN;
}

/* In a process of its own. */
static struct finish race(const struct job *job, bool is_ours)
{
    struct finish finish;
    int pipes[2], how;

    if (pipe(pipes) != 0)
        fail("no pipe");
    pid_t child = fork();
    if (child == 0) {
        double start_s, before_bytes;
        measure(&start_s, &before_bytes);
        finish.iteration_s = replay(job, is_ours);
        measure(&finish.time_s, &finish.bytes);
        finish.time_s -= start_s;
        finish.bytes -= before_bytes;
        _exit(write(pipes[1], &finish, sizeof finish) != sizeof finish);
    }
    if (child < 0 || read(pipes[0], &finish, sizeof finish) != sizeof finish ||
        waitpid(child, &how, 0) != child || how != 0)
        fail("a simulator failed");
    close(pipes[0]);
    close(pipes[1]);
    printf("%-8s iteration %.9f s, simulated in %8.3f s, %8.1f MiB\n",
           is_ours ? "Mist" : "SimGrid", finish.iteration_s, finish.time_s,
           finish.bytes / 0x1p20);
    fflush(stdout);
    return finish;
}

int main(void)
{
    static struct builder builder;
    const struct job job = make_job(&builder);

    printf("%d ranks, %d computations and messages\n", N_RANKS, (int)job.n);
    fflush(stdout);
    struct finish ours = race(&job, true);
#ifdef MIST_HAS_SIMGRID
    struct finish theirs = race(&job, false);
    double difference = fabs(theirs.iteration_s / ours.iteration_s - 1);
    printf("iterations differ by %.1e; Mist is %.0f times as fast and takes %.3f of the "
           "memory\n",
           difference, theirs.time_s / ours.time_s, ours.bytes / theirs.bytes);
    if (difference > 1e-6)
        fail("the iterations are not the same");
#else
    (void)ours;
    printf("SimGrid is not here: skipped (apt install libsimgrid-dev)\n");
#endif
    free(builder.activities);
    return 0;
}

/*
 * Speed of the event engine: (i) independent chains on 1,024 devices, (ii) a 1F1B
 * pipeline of 8 stages with tensor-parallel groups of 8 and 16 data-parallel replicas on
 * 1,024 devices, with transfers, all-reduces, swapping and interference. Prints tasks and
 * rate changes per second of the replay alone, and the memory; the set-up is shown apart.
 * An argument scales the graphs.
 */
#include "sim/engine/event_engine.h"
#include "tests/bench/bench.h"

#define N_DEVICES 1024
#define N_STAGES  8
#define TP        8
#define DP        (N_DEVICES / N_STAGES / TP)
#define N_LAYERS  4 /* per stage; one all-reduce each */

enum { IN, OUT, BACK, RETURN, GROUP, N_LANES }; /* of a pipeline's stage */

/* A program that grows. */
struct builder {
    struct mist_event_program p;
    int32_t *dep_offset, *dep, *lane;
    uint8_t *channel;
    double *work_s;
};

static void builder_init(struct builder *b, size_t max_tasks)
{
    *b = (struct builder){.p.n_lanes = N_LANES};
    b->dep_offset = must_alloc((int64_t)((max_tasks + 1) * sizeof *b->dep_offset));
    b->dep = must_alloc((int64_t)(2 * max_tasks * sizeof *b->dep));
    b->lane = must_alloc((int64_t)(max_tasks * sizeof *b->lane));
    b->channel = must_alloc((int64_t)(max_tasks * sizeof *b->channel));
    b->work_s = must_alloc((int64_t)(max_tasks * sizeof *b->work_s));
}

static void builder_fini(struct builder *b)
{
    free(b->dep_offset);
    free(b->dep);
    free(b->lane);
    free(b->channel);
    free(b->work_s);
}

/* Adds a task; dep_a and dep_b are dependencies, -1: none. Returns its index. */
static int32_t add(struct builder *b, enum mist_stream channel, double work_s, int lane,
                   int32_t dep_a, int32_t dep_b)
{
    int32_t i = b->p.n_tasks++, n_deps = b->dep_offset[i];

    b->channel[i] = (uint8_t)channel;
    b->work_s[i] = work_s;
    b->lane[i] = lane;
    if (dep_a >= 0)
        b->dep[n_deps++] = dep_a;
    if (dep_b >= 0)
        b->dep[n_deps++] = dep_b;
    b->dep_offset[i + 1] = n_deps;
    return i;
}

static struct mist_event_program finish(const struct builder *b)
{
    struct mist_event_program p = b->p;

    p.channel = b->channel;
    p.dep_offset = b->dep_offset;
    p.dep = b->dep;
    p.lane = b->lane;
    return p;
}

/* One micro-batch of a stage: per layer compute, then an all-reduce over its tensor-
 * parallel group; a swap in and a swap out beside it. Returns the last task. */
static int32_t add_pass(struct builder *b, double scale, int32_t after)
{
    for (int layer = 0; layer < N_LAYERS; layer++) {
        int32_t in = add(b, MIST_STREAM_HOST_TO_DEVICE, 0.4 * scale, -1, -1, -1);
        int32_t computed = add(b, MIST_STREAM_COMPUTE, scale, -1, after, in);
        add(b, MIST_STREAM_DEVICE_TO_HOST, 0.5 * scale, -1, computed, -1);
        after = add(b, MIST_STREAM_GPU_GPU, 0.3 * scale, GROUP, computed, -1);
    }
    return after;
}

/* The programs of all stages in the order of a global 1F1B clock: stage s does forward f
 * at tick 2f + s and backward f at tick 2f + 2 * N_STAGES - 1 - s. A transfer stands in
 * both programs where it is sent, so that stages meet in order. */
static void build_stages(struct builder *b, int n_micro_batches)
{
    size_t per_pass = 4 * N_LAYERS + 2;
    int32_t act[N_STAGES + 1], grad[N_STAGES + 1]; /* received; -1: nothing to wait for */

    for (int s = 0; s < N_STAGES; s++)
        builder_init(&b[s], 2 * (size_t)n_micro_batches * per_pass);
    act[0] = -1;
    for (int tick = 0; tick < 2 * n_micro_batches + 2 * N_STAGES; tick++)
        for (int s = 0; s < N_STAGES; s++) {
            int f = tick - s, g = tick - (2 * N_STAGES - 1 - s);
            if (f >= 0 && f % 2 == 0 && f / 2 < n_micro_batches) {
                int32_t last = add_pass(&b[s], 1.0, act[s]);
                if (s + 1 < N_STAGES) {
                    add(&b[s], MIST_STREAM_GPU_GPU, 0.05, OUT, last, -1);
                    act[s + 1] = add(&b[s + 1], MIST_STREAM_GPU_GPU, 0.05, IN, -1, -1);
                } else {
                    grad[s] = last;
                }
            }
            if (g >= 0 && g % 2 == 0 && g / 2 < n_micro_batches) {
                int32_t last = add_pass(&b[s], 2.0, grad[s]);
                if (s > 0) {
                    add(&b[s], MIST_STREAM_GPU_GPU, 0.05, RETURN, last, -1);
                    grad[s - 1] = add(&b[s - 1], MIST_STREAM_GPU_GPU, 0.05, BACK, -1, -1);
                }
            }
        }
}

static void measure(const char *name, const struct mist_event_graph *g)
{
    struct mist_arena arena;
    struct mist_event_engine *engine;
    struct mist_event_result r = {0};
    struct mist_err err = {0};
    double best_s = 1e30, start_s = mist_clock_now_s();

    mist_arena_init(&arena);
    enum mist_status status = mist_event_engine_prepare(&engine, g, &arena, &err);
    double prepare_s = mist_clock_now_s() - start_s;
    for (int i = 0; i < 3 && status == MIST_OK; i++) {
        start_s = mist_clock_now_s();
        status = mist_event_engine_run(engine, &r, &err);
        double run_s = mist_clock_now_s() - start_s;
        best_s = run_s < best_s ? run_s : best_s;
    }
    must(status, &err);
    printf("%-9s %9lld tasks, prepare %.3f s, run %.3f s: %6.2f M tasks/s, %6.2f M rate "
           "changes/s, %.1f MiB (makespan %.6g)\n",
           name, (long long)r.n_tasks, prepare_s, best_s,
           1e-6 * (double)r.n_tasks / best_s, 1e-6 * (double)r.n_rate_changes / best_s,
           (double)arena.used_bytes / 0x1p20, r.makespan_s);
    mist_arena_fini(&arena);
}

static void measure_chains(int length)
{
    static struct mist_event_device devices[N_DEVICES];
    struct builder b;
    double *work_s = must_alloc(N_DEVICES * (int64_t)length * (int64_t)sizeof *work_s);

    builder_init(&b, (size_t)length);
    b.p.n_lanes = 0;
    for (int k = 0; k < length; k++)
        add(&b, MIST_STREAM_COMPUTE, 0, -1, -1, -1);
    const struct mist_event_program program = finish(&b);
    for (int d = 0; d < N_DEVICES; d++) {
        double *mine_s = work_s + (size_t)d * (size_t)length;
        devices[d] = (struct mist_event_device){.work_s = mine_s};
        for (int k = 0; k < length; k++) /* no two devices in step */
            mine_s[k] = 1.0 + 1e-3 * ((d * 7919 + k * 104729) % 1009);
    }
    measure("chains", &(struct mist_event_graph){.n_programs = 1,
                                                 .n_devices = N_DEVICES,
                                                 .n_iterations = 1,
                                                 .program = &program,
                                                 .device = devices});
    builder_fini(&b);
    free(work_s);
}

/* Device (replica * N_STAGES + s) * TP + r: it meets its tensor-parallel group, numbered
 * by replica and stage, and rank r of the stages beside its own. */
static void measure_pipeline(int n_micro_batches, const struct mist_interference *f)
{
    static struct mist_event_device devices[N_DEVICES];
    static int32_t groups[N_DEVICES][N_LANES];
    struct mist_event_program programs[N_STAGES];
    struct builder b[N_STAGES];
    double *work_s[N_DEVICES];

    build_stages(b, n_micro_batches);
    for (int s = 0; s < N_STAGES; s++)
        programs[s] = finish(&b[s]);
    for (int d = 0; d < N_DEVICES; d++) {
        int s = d / TP % N_STAGES, n = programs[s].n_tasks;
        devices[d] = (struct mist_event_device){
            .program = s, .group = groups[d], .interference = f};
        groups[d][GROUP] = d / TP;
        groups[d][IN] = N_DEVICES + d;
        groups[d][OUT] = N_DEVICES + (d + TP) % N_DEVICES;
        groups[d][RETURN] = 2 * N_DEVICES + d;
        groups[d][BACK] = 2 * N_DEVICES + (d + TP) % N_DEVICES;
        work_s[d] = must_alloc(n * (int64_t)sizeof **work_s);
        for (int i = 0; i < n; i++) /* ranks differ a little */
            work_s[d][i] =
                b[s].work_s[i] *
                (b[s].channel[i] == MIST_STREAM_COMPUTE ? 1.0 + 1e-4 * (d % 97) : 1.0);
        devices[d].work_s = work_s[d];
    }
    measure("pipeline", &(struct mist_event_graph){.n_programs = N_STAGES,
                                                   .n_devices = N_DEVICES,
                                                   .n_groups = 3 * N_DEVICES,
                                                   .n_iterations = 1,
                                                   .program = programs,
                                                   .device = devices});
    for (int s = 0; s < N_STAGES; s++)
        builder_fini(&b[s]);
    for (int d = 0; d < N_DEVICES; d++)
        free(work_s[d]);
}

int main(int argc, char **argv)
{
    double scale = argc > 1 ? strtod(argv[1], NULL) : 1.0;
    int n = scale * 32 >= 1 ? (int)(scale * 32) : 1;
    struct mist_interference f;

    mist_interference_init(&f);
    for (int set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if ((set & (set - 1)) && (set >> c & 1))
                f.slowdown[set][c] = 1.0 + 0.02 * set + 0.05 * c;
    measure_chains(32 * n);
    measure_pipeline(n, &f);
    return 0;
}

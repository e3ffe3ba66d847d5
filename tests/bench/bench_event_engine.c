/*
 * Speed of the event engine: (i) independent chains on 1,024 devices, (ii) a 1F1B
 * pipeline of 8 stages with tensor-parallel groups of 8 and 16 data-parallel replicas on
 * 1,024 devices, with transfers, all-reduces, swapping and interference. Prints tasks,
 * events (starts and ends of tasks) and rate changes per second of the replay alone; the
 * set-up is shown apart. An argument scales the graphs.
 */
#include "sim/event_engine.h"
#include "tests/bench/bench.h"

#define N_DEVICES 1024
#define N_STAGES  8
#define TP        8
#define DP        (N_DEVICES / N_STAGES / TP)
#define N_LAYERS  4 /* per stage; one all-reduce each */

/* A graph that grows. */
struct builder {
    struct mist_event_graph g;
    int32_t *device, *dep_offset, *dep, *rendezvous;
    uint8_t *channel;
    double *work_s;
    int32_t n_deps;
};

static void builder_init(struct builder *b, size_t max_tasks)
{
    *b = (struct builder){.g.n_devices = N_DEVICES};
    b->device = must_alloc((int64_t)(max_tasks * sizeof *b->device));
    b->dep_offset = must_alloc((int64_t)((max_tasks + 1) * sizeof *b->dep_offset));
    b->dep = must_alloc((int64_t)(2 * max_tasks * sizeof *b->dep));
    b->rendezvous = must_alloc((int64_t)(max_tasks * sizeof *b->rendezvous));
    b->channel = must_alloc((int64_t)(max_tasks * sizeof *b->channel));
    b->work_s = must_alloc((int64_t)(max_tasks * sizeof *b->work_s));
}

static void builder_fini(struct builder *b)
{
    free(b->device);
    free(b->dep_offset);
    free(b->dep);
    free(b->rendezvous);
    free(b->channel);
    free(b->work_s);
}

/* Adds a task; a and b are dependencies, -1: none. Returns its index. */
static int32_t add(struct builder *b, int device, enum mist_stream channel, double work_s,
                   int32_t rendezvous, int32_t dep_a, int32_t dep_b)
{
    int32_t i = b->g.n_tasks++;

    b->device[i] = device;
    b->channel[i] = (uint8_t)channel;
    b->work_s[i] = work_s;
    b->rendezvous[i] = rendezvous;
    if (dep_a >= 0)
        b->dep[b->n_deps++] = dep_a;
    if (dep_b >= 0)
        b->dep[b->n_deps++] = dep_b;
    b->dep_offset[i + 1] = b->n_deps;
    return i;
}

static void build_chains(struct builder *b, int length)
{
    builder_init(b, (size_t)length * N_DEVICES);
    for (int k = 0; k < length; k++)
        for (int d = 0; d < N_DEVICES; d++) { /* no two devices in step */
            double work_s = 1.0 + 1e-3 * ((d * 7919 + k * 104729) % 1009);
            add(b, d, MIST_STREAM_COMPUTE, work_s, -1, -1, -1);
        }
}

/* One micro-batch of one stage of one replica on its TP ranks: per layer compute, then an
 * all-reduce over the ranks; a swap in and a swap out beside it. Returns the last task of
 * each rank. */
static void add_pass(struct builder *b, int first_device, double scale,
                     const int32_t *after, int32_t *last)
{
    int32_t before[TP];

    memcpy(before, after, sizeof before);
    for (int layer = 0; layer < N_LAYERS; layer++) {
        int32_t rendezvous = b->g.n_rendezvous++, computed[TP];
        for (int r = 0; r < TP; r++) {
            int d = first_device + r;
            double work_s = scale * (1.0 + 1e-4 * (d % 97)); /* ranks differ a little */
            int32_t in = add(b, d, MIST_STREAM_HOST_TO_DEVICE, 0.4 * scale, -1, -1, -1);
            computed[r] = add(b, d, MIST_STREAM_COMPUTE, work_s, -1, before[r], in);
            add(b, d, MIST_STREAM_DEVICE_TO_HOST, 0.5 * scale, -1, computed[r], -1);
        }
        for (int r = 0; r < TP; r++)
            last[r] = add(b, first_device + r, MIST_STREAM_GPU_GPU, 0.3 * scale,
                          rendezvous, computed[r], -1);
        memcpy(before, last, sizeof before);
    }
}

/* Sends from the ranks of one stage to those of the next or previous one. */
static void add_transfer(struct builder *b, int from, int to, const int32_t *sent,
                         int32_t *received)
{
    for (int r = 0; r < TP; r++) {
        int32_t rendezvous = b->g.n_rendezvous++;
        add(b, from + r, MIST_STREAM_GPU_GPU, 0.05, rendezvous, sent[r], -1);
        received[r] = add(b, to + r, MIST_STREAM_GPU_GPU, 0.05, rendezvous, -1, -1);
    }
}

/* Tasks in the order of a global 1F1B clock: stage s does forward f at tick 2f + s and
 * backward f at tick 2f + 2 * N_STAGES - 1 - s, so that index order is a valid order for
 * every stream. */
static void build_pipeline(struct builder *b, int n_micro_batches)
{
    size_t per_pass = (size_t)TP * (4 * N_LAYERS + 2);
    int32_t none[TP], (*act)[TP] = must_alloc((N_STAGES + 1) * (int64_t)sizeof *act);
    int32_t(*grad)[TP] = must_alloc((N_STAGES + 1) * (int64_t)sizeof *grad);
    int n_ticks = 2 * n_micro_batches + 2 * N_STAGES;

    memset(none, 0xff, sizeof none);
    builder_init(b, 2 * (size_t)DP * N_STAGES * (size_t)n_micro_batches * per_pass);
    for (int replica = 0; replica < DP; replica++)
        for (int tick = 0; tick < n_ticks; tick++)
            for (int s = 0; s < N_STAGES; s++) {
                int device = (replica * N_STAGES + s) * TP;
                int f = tick - s, g = tick - (2 * N_STAGES - 1 - s);
                int32_t last[TP];
                if (f >= 0 && f % 2 == 0 && f / 2 < n_micro_batches) {
                    add_pass(b, device, 1.0, s ? act[s] : none, last);
                    memcpy(grad[N_STAGES], last, sizeof last);
                    if (s + 1 < N_STAGES)
                        add_transfer(b, device, device + TP, last, act[s + 1]);
                }
                if (g >= 0 && g % 2 == 0 && g / 2 < n_micro_batches) {
                    add_pass(b, device, 2.0, s + 1 < N_STAGES ? grad[s] : grad[N_STAGES],
                             last);
                    if (s > 0)
                        add_transfer(b, device, device - TP, last, grad[s - 1]);
                }
            }
    free(act);
    free(grad);
}

static void measure(const char *name, struct builder *b,
                    const struct mist_interference *f)
{
    struct mist_arena arena;
    struct mist_event_engine *engine;
    struct mist_event_result r = {0};
    struct mist_err err = {0};
    double best_s = 1e30, start_s = mist_clock_now_s();

    b->g.device = b->device;
    b->g.channel = b->channel;
    b->g.work_s = b->work_s;
    b->g.dep_offset = b->dep_offset;
    b->g.dep = b->dep;
    b->g.rendezvous = b->rendezvous;
    b->g.n_interference = f != NULL;
    b->g.interference = f;
    mist_arena_init(&arena);
    enum mist_status status = mist_event_engine_prepare(&engine, &b->g, &arena, &err);
    double prepare_s = mist_clock_now_s() - start_s;
    for (int i = 0; i < 3 && status == MIST_OK; i++) {
        start_s = mist_clock_now_s();
        status = mist_event_engine_run(engine, &r, &err);
        double run_s = mist_clock_now_s() - start_s;
        best_s = run_s < best_s ? run_s : best_s;
    }
    if (status != MIST_OK) {
        mist_err_print(&err, "bench_event_engine", stderr);
        exit(mist_exit_code(status));
    }
    printf(
        "%-9s %9d tasks, prepare %.3f s, run %.3f s: %6.2f M tasks/s, %6.2f M events/s, "
        "%6.2f M rate changes/s (makespan %.6g)\n",
        name, (int)b->g.n_tasks, prepare_s, best_s, 1e-6 * b->g.n_tasks / best_s,
        1e-6 * (double)r.n_events / best_s, 1e-6 * (double)r.n_rate_changes / best_s,
        r.makespan_s);
    mist_arena_fini(&arena);
    builder_fini(b);
}

int main(int argc, char **argv)
{
    double scale = argc > 1 ? strtod(argv[1], NULL) : 1.0;
    int n = scale * 32 >= 1 ? (int)(scale * 32) : 1;
    struct mist_interference f;
    struct builder b;

    mist_interference_init(&f);
    for (int set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if ((set & (set - 1)) && (set >> c & 1))
                f.slowdown[set][c] = 1.0 + 0.02 * set + 0.05 * c;
    build_chains(&b, 32 * n);
    measure("chains", &b, NULL);
    build_pipeline(&b, n);
    measure("pipeline", &b, &f);
    return 0;
}

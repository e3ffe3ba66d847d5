/* Fixed work whose time is the machine's level. See probe.h. */
#include "exec/runtime/probe.h"

#include "core/clock.h"
#include "core/memory.h"
#include "exec/operators/cpu_kernels.h" /* struct mist_draw */

#include <math.h>
#include <stdlib.h>

/* Timings in one mist_probe_run(), and those before them that don't count: the first time,
 * and behind other work. */
enum { MOST_TIMINGS = 1000, N_WARM_UPS = 10, N_TRIALS = 3, N_WARM_AGAIN = 2 };

/* Of all groups this one's messages have the highest tag that every MPI has. */
enum { TAG_SPACE = 32767 };

struct mist_probe {
    struct mist_comm *comm;
    struct mist_probe_work work;
    const struct mist_operators *operators;
    struct mist_device *device;           /* owned */
    struct mist_collectives *collectives; /* owned */
    struct mist_collective_group *all;    /* of all ranks; NULL: there is one */
    struct mist_step step;
    struct mist_step_args product; /* its backend is owned */
    char *sum, *addend;            /* [region_bytes] */
    char *message;                 /* [message_bytes] */
    int64_t i_turn;                /* probes so far: which part of the regions is next */
    double trial_s;                /* of one, the first time; 0: none has run */
};

struct mist_probe_work mist_probe_usual_work(int32_t n_threads)
{
    /* regions are beyond the last cache, all ranks of a processor taken together */
    if (n_threads > 0)
        return (struct mist_probe_work){.rows = 512,
                                        .width = 1024,
                                        .sum_bytes = 2 << 20,
                                        .region_bytes = 32 << 20,
                                        .message_bytes = 256 << 10,
                                        .n_at_once = 1};
    return (struct mist_probe_work){.rows = 2048,
                                    .width = 4096,
                                    .sum_bytes = 128 << 20,
                                    .region_bytes = 128 << 20,
                                    .message_bytes = 256 << 10,
                                    .n_at_once = 8};
}

/* ---------------------------------------------------------------------------- opening */

/* Bytes of the device arena; with a base also where everything is. */
static int64_t lay_out(struct mist_probe *probe, char *base)
{
    const struct mist_probe_work *work = &probe->work;
    int64_t element = mist_dtype_weight_bytes(probe->product.dtype);
    int64_t sizes[] = {work->rows * work->width * element,
                       work->rows * work->width * element,
                       work->width * work->width * element,
                       work->region_bytes,
                       work->region_bytes,
                       work->message_bytes};
    char *at[6] = {NULL};
    int64_t used = 0;

    for (int i = 0; i < 6; i++) {
        at[i] = base ? base + used : NULL;
        used += mist_align_up(sizes[i], 4096);
    }
    probe->product.operands[MIST_ARG_OUT] = at[0];
    probe->product.operands[MIST_ARG_LINEAR_X] = at[1];
    probe->product.params[0] = at[2];
    probe->sum = at[3];
    probe->addend = at[4];
    probe->message = at[5];
    return used;
}

static void draw(struct mist_probe *probe, void *x, int64_t n, uint64_t stream)
{
    const struct mist_draw draw = {.seed = 1,
                                   .stream = stream,
                                   .run_stride = n,
                                   .n_runs = 1,
                                   .run_length = n,
                                   .deviation = 0.02};

    probe->operators->draw(probe->product.backend, probe->product.dtype, x, &draw,
                           probe->product.n_threads);
}

/* A task: numbers of training's size; a GPU takes longer for them than for zeros. */
static void fill(void *arg)
{
    struct mist_probe *probe = arg;
    int64_t width = probe->work.width;

    draw(probe, probe->product.operands[MIST_ARG_LINEAR_X], probe->work.rows * width, 0);
    draw(probe, probe->product.params[0], width * width, 1);
}

static enum mist_status open_device(struct mist_probe *probe,
                                    const struct mist_probe_config *config,
                                    struct mist_err *err)
{
    struct mist_device_config device = {
        .arena_bytes = {[MIST_ARENA_DEVICE] = lay_out(probe, NULL)},
        .threads = config->n_threads,
        .streams_take_turns = config->n_threads > 0, /* nothing of it is to overlap */
        .i_device = config->i_device,
        .attention = MIST_ATTENTION_OWN}; /* none runs here */
    enum mist_status status = config->backend->open_device(&device, &probe->device, err);

    if (status != MIST_OK)
        return status;
    lay_out(probe, mist_device_arena(probe->device, MIST_ARENA_DEVICE));
    status = probe->operators->open(probe->device, config->dtype, config->n_threads,
                                    &probe->product.backend, err);
    if (status == MIST_OK && probe->operators->prepare)
        status = probe->operators->prepare(&probe->product, err);
    if (status == MIST_OK && probe->operators->tune)
        status = probe->operators->tune(probe->product.backend, err);
    if (status != MIST_OK)
        return status;
    mist_device_reset_events(probe->device, 0);
    mist_device_submit(probe->device, MIST_STREAM_COMPUTE, fill, probe);
    return mist_device_synchronize(probe->device, err);
}

static enum mist_status open_collectives(struct mist_probe *probe,
                                         const struct mist_probe_config *config,
                                         struct mist_err *err)
{
    int32_t n = mist_comm_n_ranks(probe->comm);
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);

    if (!ranks)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < n; i++)
        ranks[i] = i;
    enum mist_status status = mist_backend_open_collectives(
        config->backend, probe->comm, probe->device, config->has_own_device,
        config->deadline_s, &probe->collectives, err);
    if (status == MIST_OK)
        status = mist_collectives_group(probe->collectives, ranks, n, TAG_SPACE,
                                        probe->work.message_bytes, &probe->all, err);
    free(ranks);
    return status;
}

enum mist_status mist_probe_open(struct mist_comm *comm,
                                 const struct mist_probe_config *config,
                                 struct mist_probe **out, struct mist_err *err)
{
    struct mist_probe *probe = calloc(1, sizeof *probe);
    int32_t n_ranks = mist_comm_n_ranks(comm);

    *out = probe;
    if (!probe)
        return mist_err_memory(err, NULL);
    probe->comm = comm;
    probe->operators = config->backend->operators;
    probe->work = config->work;
    /* every rank adds up an equal part of the elements */
    probe->work.message_bytes -=
        probe->work.message_bytes % ((int64_t)sizeof(float) * n_ranks);
    probe->step = (struct mist_step){
        .op = MIST_OP_LINEAR,
        .phase = MIST_PHASE_FORWARD,
        .operands = {-1, -1, -1, -1, -1, -1},
        .params = {0, -1},
        .n_dims = 3,
        .dims = {config->work.rows, config->work.width, config->work.width}};
    probe->product = (struct mist_step_args){.step = &probe->step,
                                             .dtype = config->dtype,
                                             .tp = 1,
                                             .n_threads = config->n_threads};
    enum mist_status status = open_device(probe, config, err);
    if (status == MIST_OK && n_ranks > 1)
        status = open_collectives(probe, config, err);
    return status;
}

void mist_probe_close(struct mist_probe *probe)
{
    if (!probe)
        return;
    mist_collectives_close(probe->collectives);
    probe->operators->close(probe->product.backend);
    mist_device_close(probe->device);
    free(probe);
}

/* ---------------------------------------------------------------------------- running */

/* A task of the compute stream. */
static void compute(void *arg)
{
    struct mist_probe *probe = arg;
    int64_t bytes = probe->work.sum_bytes;
    int64_t at = probe->i_turn++ % (probe->work.region_bytes / bytes) * bytes;

    probe->operators->run_step(&probe->product);
    probe->operators->add(probe->product.backend, MIST_DTYPE_FP32, probe->sum + at,
                          probe->addend + at, bytes / (int64_t)sizeof(float),
                          probe->product.n_threads);
}

/* A task of the gpu_gpu stream. */
static void reduce(void *arg)
{
    struct mist_probe *probe = arg;
    struct mist_err err;
    enum mist_status status = mist_collective_all_reduce(
        probe->all, MIST_DTYPE_FP32, probe->message,
        probe->work.message_bytes / (int64_t)sizeof(float), &err);

    if (status != MIST_OK)
        mist_device_fail(probe->device, status, &err);
}

/* Probes from one look at the clock to the next, one part of them behind the other. */
static enum mist_status time_once(struct mist_probe *probe, double *time_s,
                                  struct mist_err *err)
{
    struct mist_device *device = probe->device;
    int32_t n = probe->work.n_at_once;

    mist_device_reset_events(device, probe->all ? 2 * n : 0);
    double start_s = mist_clock_now_s();
    for (int32_t i = 0; i < n; i++) {
        if (probe->all && i > 0)
            mist_device_wait(device, MIST_STREAM_COMPUTE, 2 * i - 1);
        mist_device_submit(device, MIST_STREAM_COMPUTE, compute, probe);
        if (!probe->all)
            continue;
        mist_device_record(device, MIST_STREAM_COMPUTE, 2 * i);
        mist_device_wait(device, MIST_STREAM_GPU_GPU, 2 * i);
        mist_device_submit(device, MIST_STREAM_GPU_GPU, reduce, probe);
        mist_device_record(device, MIST_STREAM_GPU_GPU, 2 * i + 1);
    }
    enum mist_status status = mist_device_synchronize(device, err);
    *time_s = (mist_clock_now_s() - start_s) / n;
    return status;
}

int32_t mist_probe_count(double duration_s, double trial_s)
{
    double n = trial_s > 0 ? duration_s / trial_s : 0;

    return n < MIST_PROBE_LEAST ? MIST_PROBE_LEAST
                                : (int32_t)fmin(n, (double)MOST_TIMINGS);
}

/* How many timings there will be; the same on all ranks. */
static enum mist_status agree(struct mist_probe *probe, double duration_s, int32_t *n,
                              struct mist_err *err)
{
    bool is_first = probe->trial_s <= 0;
    int n_warm = is_first ? N_WARM_UPS + N_TRIALS : N_WARM_AGAIN;
    double time_s = 0, trial_s = INFINITY;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < n_warm && status == MIST_OK; i++) {
        status = time_once(probe, &time_s, err);
        if (i >= N_WARM_UPS)
            trial_s = fmin(trial_s, time_s);
    }
    if (status != MIST_OK)
        return status;
    if (is_first)
        probe->trial_s = trial_s;
    *n = mist_probe_count(duration_s, probe->trial_s * probe->work.n_at_once);
    return mist_comm_broadcast_bytes(probe->comm, 0, n, sizeof *n, err);
}

enum mist_status mist_probe_run(struct mist_probe *probe, double duration_s,
                                struct mist_samples *times_us, struct mist_err *err)
{
    int32_t n = 0;
    double time_s = 0;

    mist_comm_set_pause(probe->comm, mist_device_pause, probe->device);
    enum mist_status status = agree(probe, duration_s, &n, err);
    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        status = time_once(probe, &time_s, err);
        if (status == MIST_OK && !mist_samples_add(times_us, time_s * 1e6))
            status = mist_err_memory(err, NULL);
    }
    mist_comm_set_pause(probe->comm, NULL, NULL);
    return status;
}

enum mist_status mist_probe_find_level(struct mist_comm *comm,
                                       struct mist_samples *times_us,
                                       struct mist_probe_level *out, struct mist_err *err)
{
    const double *sorted = times_us->values;
    size_t n = times_us->n;
    double sum_s = mist_middle_mean(times_us->values, n) * 1e-6, spread_frac = 0;

    if (n > 0)
        spread_frac = mist_quantile(sorted, n, 0.9) / mist_quantile(sorted, n, 0.1) - 1;
    enum mist_status status =
        mist_comm_all_reduce_f64(comm, MIST_COMM_SUM, &sum_s, 1, err);
    if (status == MIST_OK)
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, &spread_frac, 1, err);
    *out = (struct mist_probe_level){.time_s = sum_s / mist_comm_n_ranks(comm),
                                     .spread_frac = spread_frac};
    return status;
}

/* ---------------------------------------------------------------------------- verdict */

struct mist_probe_verdict mist_probe_judge(double measured_s, double probe_measured_s,
                                           double probe_predicted_s,
                                           const struct mist_prediction *predicted)
{
    struct mist_probe_verdict out = {0};

    if (probe_predicted_s <= 0 || probe_measured_s <= 0)
        return out;
    out.level = probe_measured_s / probe_predicted_s;
    out.longer = mist_prediction_longer(predicted, out.level);
    out.predicted_s = predicted->iteration_s * out.longer;
    if (predicted->iteration_s > 0)
        out.prediction_error_frac = out.predicted_s / measured_s - 1;
    return out;
}

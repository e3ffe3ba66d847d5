/* The runtime: life cycle and dispatch. The bodies of tasks are in runtime_task.c.
 * See runtime.h. */
#include "exec/runtime.h"

#include "core/clock.h"
#include "core/random.h" /* initial parameters */
#include "exec/bind.h"
#include "exec/cpu_kernels.h" /* the rotary table, values of sums */
#include "exec/runtime_internal.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- initial parameters */

static double deviation_of(enum mist_init init, const struct mist_model *model)
{
    double deviation = 0.02; /* GPT-2 */

    return init == MIST_INIT_NORMAL_RESIDUAL
               ? deviation / sqrt(2.0 * (double)model->n_layers)
               : deviation;
}

void mist_runtime_fill_parameter(const struct mist_model *model, enum mist_init init,
                                 int32_t layer, int32_t i_param, uint64_t seed,
                                 int64_t first, int64_t n, float *out)
{
    double deviation = deviation_of(init, model);
    uint64_t stream = (uint64_t)layer * MIST_MAX_PARAMS + (uint64_t)i_param;

    for (int64_t k = 0; k < n; k++) {
        if (init == MIST_INIT_ONES || init == MIST_INIT_ZEROS)
            out[k] = init == MIST_INIT_ONES;
        else
            out[k] = (float)(deviation *
                             mist_random_normal_at(seed, stream, (uint64_t)(first + k)));
    }
}

enum { FILL_BLOCK = 1024 };

/* Elements first .. first + n - 1 of a run of a piece. */
static void fill_block(const struct mist_runtime *runtime,
                       const struct mist_state_piece *piece, int64_t i_run, int64_t first,
                       int64_t n)
{
    float values[FILL_BLOCK];

    mist_runtime_fill_parameter(
        &runtime->plan->model, piece->init, piece->layer, piece->i_param,
        runtime->config.seed,
        piece->span.global_first + i_run * piece->span.global_stride + first, n, values);
    mist_state_write(piece, i_run * piece->span.length + first, values, n);
}

/* The share of a rank in the processors that it may use. */
static int32_t share_of_processors(const struct mist_comm *comm)
{
    int32_t n = omp_get_num_procs() / mist_comm_n_node_ranks(comm);

    return n > 1 ? n : 1;
}

int32_t mist_runtime_host_threads(const struct mist_comm *comm, int32_t n_threads)
{
    return n_threads > 0 ? n_threads : share_of_processors(comm);
}

/* Nothing else runs yet. */
static enum mist_status fill_piece(void *context, const struct mist_state_piece *piece,
                                   struct mist_err *err)
{
    const struct mist_runtime *runtime = context;
    int32_t n_threads = share_of_processors(runtime->comm);
    int64_t length = piece->span.length;
    int64_t n_blocks = (length + FILL_BLOCK - 1) / FILL_BLOCK;

    (void)err;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < piece->span.n_runs * n_blocks; i++) {
        int64_t first = i % n_blocks * FILL_BLOCK;
        fill_block(runtime, piece, i / n_blocks, first,
                   length - first < FILL_BLOCK ? length - first : FILL_BLOCK);
    }
    return MIST_OK;
}

/* The rotary table. */
static enum mist_status fill_constant(struct mist_runtime *runtime, void *at,
                                      int64_t size_bytes, struct mist_err *err)
{
    const struct mist_model *model = &runtime->plan->model;
    float *table = malloc((size_t)size_bytes);

    if (!table)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    mist_cpu_rope_fill(table, runtime->plan->job.seq_len, model->head_dim,
                       model->rope_theta);
    enum mist_status status =
        mist_device_write(runtime->device, at, table, size_bytes, err);
    free(table);
    return status;
}

static enum mist_status fill_persistent(struct mist_runtime *runtime,
                                        struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < schedule->n_buffers && status == MIST_OK; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        char *at = mist_runtime_address(runtime, i);
        if (!buffer->is_persistent)
            continue;
        status = buffer->role == MIST_ROLE_CONSTANT
                     ? fill_constant(runtime, at, buffer->size_bytes, err)
                     : mist_device_clear(runtime->device, at, buffer->size_bytes, err);
    }
    if (status == MIST_OK)
        status = mist_runtime_walk_state(runtime, MIST_STATE_WEIGHT, false, fill_piece,
                                         runtime, err);
    if (status == MIST_OK)
        status = mist_runtime_walk_state(runtime, MIST_STATE_COMPUTE_WEIGHT, false,
                                         fill_piece, runtime, err);
    return status;
}

enum mist_status mist_runtime_walk_state(const struct mist_runtime *runtime,
                                         enum mist_state_kind kind, bool is_owned_only,
                                         mist_state_fn *fn, void *context,
                                         struct mist_err *err)
{
    return mist_state_walk(runtime->plan, runtime->schedule, runtime->device, kind,
                           is_owned_only, fn, context, err);
}

/* ------------------------------------------------------------------------- life cycle */

/* Tag spaces of the groups of a rank. */
enum { TAGS_DP, TAGS_TP, TAGS_TIE };

/* The largest message of the tasks of a group. */
static int64_t largest_message(const struct mist_schedule *schedule,
                               enum mist_group group)
{
    int64_t largest = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].group == group && schedule->tasks[i].bytes > largest)
            largest = schedule->tasks[i].bytes;
    return largest;
}

static bool is_transfer(enum mist_task_kind kind)
{
    return kind == MIST_TASK_SEND_ACTIVATION || kind == MIST_TASK_RECV_ACTIVATION ||
           kind == MIST_TASK_SEND_GRADIENT || kind == MIST_TASK_RECV_GRADIENT;
}

static int64_t largest_transfer(const struct mist_schedule *schedule)
{
    int64_t largest = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (is_transfer(schedule->tasks[i].kind) && schedule->tasks[i].bytes > largest)
            largest = schedule->tasks[i].bytes;
    return largest;
}

/* A group of this rank's stage: n ranks from first on, step apart. */
static enum mist_status make_group(struct mist_runtime *runtime, enum mist_group kind,
                                   int32_t first, int32_t step, int32_t n,
                                   struct mist_collective_group **out,
                                   struct mist_err *err)
{
    if (n == 1)
        return MIST_OK;
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < n; i++)
        ranks[i] = first + i * step;
    enum mist_status status = mist_collectives_group(
        runtime->collectives, ranks, n, kind == MIST_GROUP_TP ? TAGS_TP : TAGS_DP,
        largest_message(runtime->schedule, kind), out, err);
    free(ranks);
    return status;
}

/* The two ranks that hold the ends of a tied weight, the embedding's first. */
static enum mist_status make_tie_group(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->kind != MIST_TASK_TIE_GRADIENT || task->group != MIST_GROUP_PEER)
            continue;
        bool is_first = schedule->rank < task->peer;
        int32_t ranks[2] = {is_first ? schedule->rank : task->peer,
                            is_first ? task->peer : schedule->rank};
        return mist_collectives_group(runtime->collectives, ranks, 2, TAGS_TIE,
                                      task->n_elements * (int64_t)sizeof(float),
                                      &runtime->tie_group, err);
    }
    return MIST_OK;
}

static enum mist_status make_groups(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_stage_plan *stage = &runtime->plan->stages[schedule->i_stage];
    int32_t first = mist_plan_first_rank(runtime->plan, schedule->i_stage);
    enum mist_status status = make_group(runtime, MIST_GROUP_DP, first + schedule->i_tp,
                                         stage->tp, stage->dp, &runtime->groups[0], err);

    if (status == MIST_OK)
        status = make_group(runtime, MIST_GROUP_TP, first + schedule->i_dp * stage->tp, 1,
                            stage->tp, &runtime->groups[1], err);
    if (status == MIST_OK)
        status = make_tie_group(runtime, err);
    if (status == MIST_OK)
        status = mist_collectives_reserve(runtime->collectives,
                                          largest_transfer(schedule), err);
    return status;
}

/* Which tasks somebody on another stream waits for, and the arguments of all bodies. */
static void prepare_bodies(struct mist_runtime *runtime)
{
    const struct mist_schedule *schedule = runtime->schedule;

    for (int32_t i = 0; i < schedule->n_deps; i++)
        runtime->is_awaited[schedule->deps[i]] = true;
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        runtime->bodies[i] = (struct mist_task_body){runtime, i};
}

int64_t mist_runtime_result_bytes(const struct mist_schedule *schedule)
{
    return schedule->n_tasks * (int64_t)sizeof(struct mist_tally);
}

enum mist_status mist_runtime_new(const struct mist_plan *plan,
                                  const struct mist_schedule *schedule,
                                  const struct mist_runtime_parts *parts,
                                  const struct mist_train_config *config,
                                  int32_t n_iterations, struct mist_runtime **out,
                                  struct mist_err *err)
{
    size_t n = (size_t)schedule->n_tasks;
    size_t n_kept = (size_t)config->n_timed_iterations;
    struct mist_runtime *runtime = calloc(1, sizeof *runtime);

    if (!runtime)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    runtime->plan = plan;
    runtime->schedule = schedule;
    runtime->device = parts->device;
    runtime->comm = parts->comm;
    runtime->collectives = parts->collectives;
    runtime->operators = parts->operators;
    runtime->config = *config;
    runtime->n_iterations = n_iterations;
    runtime->n_host_threads = mist_runtime_host_threads(parts->comm, config->n_threads);
    runtime->loss_scale =
        (float)(1.0 / ((double)plan->job.global_batch * (double)plan->job.seq_len));
    runtime->bodies = calloc(n + 1, sizeof *runtime->bodies);
    runtime->is_awaited = calloc(n + 1, sizeof *runtime->is_awaited);
    runtime->spans = calloc((size_t)n_iterations + 1, sizeof *runtime->spans);
    runtime->times = calloc(n * (n_kept + 1), sizeof *runtime->times);
    enum mist_status status = MIST_ERR_MEMORY;
    if (!runtime->bodies || !runtime->is_awaited || !runtime->spans || !runtime->times)
        mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    else
        status = make_groups(runtime, err);
    if (status == MIST_OK)
        status = parts->operators->open(parts->device, plan->job.dtype, config->n_threads,
                                        &runtime->backend, err);
    if (status == MIST_OK)
        status = mist_binding_prepare(schedule->layouts, MIST_N_LAYER_KINDS, &plan->model,
                                      parts->operators, runtime->backend, false, err);
    if (status == MIST_OK) {
        prepare_bodies(runtime);
        status = fill_persistent(runtime, err);
    }
    if (status != MIST_OK) {
        mist_runtime_free(runtime);
        return status;
    }
    mist_device_reset_events(parts->device, schedule->n_tasks);
    *out = runtime;
    return MIST_OK;
}

void mist_runtime_free(struct mist_runtime *runtime)
{
    if (!runtime)
        return;
    runtime->operators->close(runtime->backend);
    free(runtime->bodies);
    free(runtime->is_awaited);
    free(runtime->spans);
    free(runtime->times);
    free(runtime);
}

/* --------------------------------------------------------------------------- dispatch */

/* Whether a walk leaves a task out; it then only fires its event. */
static bool is_skipped(const struct mist_runtime *runtime, const struct mist_task *task)
{
    switch (runtime->walk) {
    case MIST_WALK_UPDATE:
        return !task->is_update && !task->feeds_update;
    case MIST_WALK_EVALUATION:
        return !task->is_forward;
    case MIST_WALK_ITERATION:
        break;
    }
    return task->is_update && !runtime->has_update;
}

/* Submits one task behind its dependencies. */
static enum mist_status dispatch(struct mist_runtime *runtime, int32_t i_task,
                                 struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_task *task = &schedule->tasks[i_task];

    for (int32_t i = 0; i < task->n_deps; i++)
        mist_device_wait(runtime->device, task->stream,
                         schedule->deps[task->dep_first + i]);
    if (!is_skipped(runtime, task))
        mist_device_submit(runtime->device, task->stream, mist_runtime_run_task,
                           &runtime->bodies[i_task]);
    if (runtime->is_awaited[i_task])
        mist_device_record(runtime->device, task->stream, i_task);
    return runtime->config.is_serial ? mist_device_synchronize(runtime->device, err)
                                     : MIST_OK;
}

bool mist_runtime_is_recorded(const struct mist_runtime *runtime)
{
    size_t n_kept = (size_t)runtime->config.n_timed_iterations;

    return mist_device_records(runtime->device) &&
           runtime->current_times <
               runtime->times + n_kept * (size_t)runtime->schedule->n_tasks;
}

/* Where the task times of the running iteration go. */
static struct mist_task_time *times_of(struct mist_runtime *runtime, int32_t i_iteration)
{
    int32_t first_kept = runtime->n_iterations - runtime->config.n_timed_iterations;
    size_t n = (size_t)runtime->schedule->n_tasks;

    /* the last row takes what is not kept */
    size_t row = i_iteration >= first_kept && i_iteration < runtime->n_iterations
                     ? (size_t)(i_iteration - first_kept)
                     : (size_t)runtime->config.n_timed_iterations;
    return runtime->times + row * n;
}

/* A span is a place in times. */
static void keep_span(void *context, int64_t id, double start_s, double end_s)
{
    struct mist_runtime *runtime = context;

    runtime->times[id] = (struct mist_task_time){start_s, end_s};
}

/* Dispatches the tasks of one walk and waits for them. */
static enum mist_status walk(struct mist_runtime *runtime, enum mist_walk kind,
                             struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    enum mist_status status = MIST_OK;

    runtime->walk = kind;
    runtime->current_times = times_of(
        runtime, kind == MIST_WALK_ITERATION ? runtime->n_done : runtime->n_iterations);
    runtime->where[0] = '\0';
    atomic_store(&runtime->n_faults, 0);
    mist_device_reset_events(runtime->device, schedule->n_tasks);
    for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++)
        status = dispatch(runtime, i, err);
    enum mist_status end = mist_device_synchronize(runtime->device, err);
    status = status == MIST_OK ? end : status;
    if (status == MIST_OK && mist_runtime_is_recorded(runtime))
        status = mist_device_collect_spans(runtime->device, keep_span, runtime, err);
    return status;
}

/* What the walk left for the host, all streams idle. */
static enum mist_status fetch_and_exchange(struct mist_runtime *runtime,
                                           struct mist_err *err)
{
    mist_device_fetch_results(runtime->device);
    enum mist_status status = mist_device_synchronize(runtime->device, err);
    return status == MIST_OK ? mist_runtime_exchange(runtime, err) : status;
}

void mist_runtime_set_update(struct mist_runtime *runtime,
                             const struct mist_adamw_args *args, bool is_skipped)
{
    runtime->update = *args;
    runtime->skips_update = is_skipped;
}

/* A plan of one rank has no exchange among its tasks. */
static enum mist_status exchange_alone(struct mist_runtime *runtime, struct mist_err *err)
{
    return mist_comm_n_ranks(runtime->comm) == 1 ? fetch_and_exchange(runtime, err)
                                                 : MIST_OK;
}

enum mist_status mist_runtime_step(struct mist_runtime *runtime, const int32_t *tokens,
                                   const int32_t *targets,
                                   struct mist_step_result *result, struct mist_err *err)
{
    int32_t i_iteration = runtime->n_done;

    runtime->tokens = tokens;
    runtime->targets = targets;
    if (i_iteration < runtime->n_iterations)
        runtime->spans[i_iteration].start_s = mist_clock_now_s();
    enum mist_status status = walk(runtime, MIST_WALK_ITERATION, err);
    if (status == MIST_OK)
        status = exchange_alone(runtime, err);
    if (i_iteration < runtime->n_iterations)
        runtime->spans[i_iteration].end_s = mist_clock_now_s();
    runtime->n_done++;
    runtime->has_update = true;
    *result = (struct mist_step_result){
        .loss_sum = runtime->loss_sum,
        .gradient_norm =
            sqrt(mist_cpu_sum_value(runtime->exchanged[0], runtime->exchanged[1])),
        .is_finite = runtime->exchanged[2] == 0,
    };
    memcpy(result->where, runtime->where, sizeof result->where);
    return status;
}

enum mist_status mist_runtime_apply(struct mist_runtime *runtime, struct mist_err *err)
{
    if (!runtime->has_update)
        return MIST_OK;
    runtime->has_update = false;
    return walk(runtime, MIST_WALK_UPDATE, err);
}

enum mist_status mist_runtime_evaluate(struct mist_runtime *runtime,
                                       const int32_t *tokens, const int32_t *targets,
                                       double *loss_sum, struct mist_err *err)
{
    runtime->tokens = tokens;
    runtime->targets = targets;
    enum mist_status status = walk(runtime, MIST_WALK_EVALUATION, err);
    if (status == MIST_OK)
        status = fetch_and_exchange(runtime, err);
    *loss_sum = runtime->loss_sum;
    return status;
}

/* ---------------------------------------------------------------------------- results */

void mist_runtime_span(const struct mist_runtime *runtime, int32_t i_iteration,
                       double *start_s, double *end_s)
{
    *start_s = runtime->spans[i_iteration].start_s;
    *end_s = runtime->spans[i_iteration].end_s;
}

enum mist_status mist_runtime_timeline(const struct mist_runtime *runtime,
                                       const int64_t *live_bytes,
                                       struct mist_timeline *out, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int32_t n_kept = runtime->config.n_timed_iterations;

    for (int32_t k = 0; k < n_kept; k++) {
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            const struct mist_task_time *time =
                &runtime->times[(size_t)k * (size_t)schedule->n_tasks + (size_t)i];
            if (time->end_s == 0) /* skipped: an update in the first iteration */
                continue;
            struct mist_timeline_row row = {
                .rank = schedule->rank,
                .stream = task->stream,
                .kind = task->kind,
                .layer = task->layer,
                .micro_batch = task->micro_batch,
                .iteration = runtime->n_iterations - n_kept + k,
                .task = i,
                .start_s = time->start_s,
                .end_s = time->end_s,
                .bytes = task->bytes,
                .device_live_bytes = live_bytes[i],
            };
            enum mist_status status = mist_timeline_add(out, &row, err);
            if (status != MIST_OK)
                return status;
        }
    }
    return MIST_OK;
}

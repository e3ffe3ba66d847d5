/* The bodies of tasks: what each kind does on its stream. See runtime.h. */
#include "core/clock.h"
#include "exec/bind.h"
#include "exec/runtime_internal.h"

char *mist_runtime_address(const struct mist_runtime *runtime, int32_t buffer)
{
    const struct mist_buffer *at = &runtime->schedule->buffers[buffer];

    return (char *)mist_device_arena(runtime->device, at->arena) + at->offset_bytes;
}

static char *role_address(const struct mist_runtime *runtime,
                          const struct mist_task *task, enum mist_role role)
{
    return task->buffers[role] < 0 ? NULL
                                   : mist_runtime_address(runtime, task->buffers[role]);
}

/* Sum of the losses that the head wrote, in token order. */
static void sum_losses(struct mist_runtime *runtime, const struct mist_task *task,
                       const struct mist_binding *binding)
{
    for (int32_t i = 0; i < binding->layout->n_forward; i++) {
        struct mist_step_args args;
        if (binding->layout->forward[i].op != MIST_OP_CROSS_ENTROPY)
            continue;
        mist_binding_resolve(binding, MIST_PROGRAM_FORWARD, i, &args);
        const float *losses = args.operands[MIST_ARG_LOSS_LOSSES];
        double sum = 0;
        for (int64_t k = 0; k < args.step->dims[0]; k++)
            sum += (double)losses[k];
        runtime->loss_sums[task->micro_batch] = sum;
    }
}

static void run_program(struct mist_runtime *runtime, const struct mist_task *task,
                        enum mist_program_kind program)
{
    enum mist_layer_kind kind =
        mist_schedule_layer_kind(&runtime->plan->model, task->layer);
    struct mist_binding binding = {
        .layout = &runtime->schedule->layouts[kind],
        .model = &runtime->plan->model,
        .micro_batch = task->micro_batch,
        .n_threads = runtime->config.n_threads,
        .loss_scale = runtime->loss_scale,
    };

    for (int i = 0; i < MIST_N_ROLES; i++)
        binding.base[i] = role_address(runtime, task, (enum mist_role)i);
    mist_binding_run(&binding, program, runtime->operators);
    if (kind == MIST_LAYER_HEAD && program == MIST_PROGRAM_FORWARD)
        sum_losses(runtime, task, &binding);
}

/*
 * AdamW on this rank's shard of the module, parameter by parameter (they differ in weight
 * decay), then zeroed gradients for the next accumulation.
 */
static void run_optimizer(struct mist_runtime *runtime, const struct mist_task *task)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_stage_plan *stage = &runtime->plan->stages[schedule->i_stage];
    const struct mist_layer_layout *layout =
        &schedule->layouts[mist_schedule_layer_kind(&runtime->plan->model, task->layer)];
    float *weights = (float *)(void *)role_address(runtime, task, MIST_ROLE_WEIGHTS);
    float *gradients = (float *)(void *)role_address(runtime, task, MIST_ROLE_GRADIENTS);
    float *state = (float *)(void *)role_address(runtime, task, MIST_ROLE_STATE);
    int64_t n_padded = schedule->buffers[task->buffers[MIST_ROLE_WEIGHTS]].size_bytes / 4;
    int64_t n_shard = stage->shards_optimizer ? n_padded / stage->dp : n_padded;
    int64_t first = stage->shards_optimizer ? n_shard * schedule->i_dp : 0;

    mist_binding_run_adamw(layout, weights, gradients, state, first, n_shard,
                           &runtime->config.adamw, runtime->config.n_threads,
                           runtime->operators);
    runtime->operators->zero(gradients, n_padded, runtime->config.n_threads);
}

/* This rank's token ids of the iteration, from the caller's memory to the device. */
static void run_load(struct mist_runtime *runtime, const struct mist_task *task)
{
    const int32_t *sources[2] = {runtime->tokens, runtime->targets};
    enum mist_role roles[2] = {MIST_ROLE_TOKENS, MIST_ROLE_TARGETS};

    for (int i = 0; i < 2; i++) {
        int32_t buffer = task->buffers[roles[i]];
        if (buffer >= 0 && sources[i])
            runtime->operators->copy(mist_runtime_address(runtime, buffer), sources[i],
                                     runtime->schedule->buffers[buffer].size_bytes);
    }
}

static enum mist_status run_transfer(struct mist_runtime *runtime,
                                     const struct mist_task *task, struct mist_err *err)
{
    bool is_send =
        task->kind == MIST_TASK_SEND_ACTIVATION || task->kind == MIST_TASK_SEND_GRADIENT;
    enum mist_role role = is_send ? MIST_ROLE_INPUT : MIST_ROLE_OUTPUT;
    char *at = role_address(runtime, task, role) + task->slice_offset_bytes;

    if (is_send)
        return mist_comm_send(runtime->comm, task->peer, task->tag, at, task->bytes, err);
    return mist_comm_recv(runtime->comm, task->peer, task->tag, at, task->bytes, err);
}

static enum mist_status run_collective(struct mist_runtime *runtime,
                                       const struct mist_task *task, struct mist_err *err)
{
    const struct mist_stage_plan *stage =
        &runtime->plan->stages[runtime->schedule->i_stage];

    if (task->kind == MIST_TASK_GATHER_PARAMETER)
        return mist_comm_all_gather(runtime->group,
                                    role_address(runtime, task, MIST_ROLE_WEIGHTS),
                                    task->bytes / stage->dp, err);
    float *gradients = (float *)(void *)role_address(runtime, task, MIST_ROLE_GRADIENTS);
    if (stage->shards_optimizer)
        return mist_comm_reduce_scatter_sum_f32(runtime->group, gradients,
                                                task->bytes / 4, err);
    return mist_comm_all_reduce_sum_f32(runtime->group, gradients, task->bytes / 4, err);
}

static enum mist_status run(struct mist_runtime *runtime, const struct mist_task *task,
                            struct mist_err *err)
{
    switch (task->kind) {
    case MIST_TASK_FORWARD:
        run_program(runtime, task, MIST_PROGRAM_FORWARD);
        return MIST_OK;
    case MIST_TASK_RECOMPUTE:
        run_program(runtime, task, MIST_PROGRAM_RECOMPUTE);
        return MIST_OK;
    case MIST_TASK_BACKWARD:
        run_program(runtime, task, MIST_PROGRAM_BACKWARD);
        return MIST_OK;
    case MIST_TASK_OPTIMIZER:
        run_optimizer(runtime, task);
        return MIST_OK;
    case MIST_TASK_LOAD_BATCH:
        run_load(runtime, task);
        return MIST_OK;
    case MIST_TASK_SEND_ACTIVATION:
    case MIST_TASK_RECV_ACTIVATION:
    case MIST_TASK_SEND_GRADIENT:
    case MIST_TASK_RECV_GRADIENT:
        return run_transfer(runtime, task, err);
    case MIST_TASK_REDUCE_GRADIENT:
    case MIST_TASK_GATHER_PARAMETER:
        return run_collective(runtime, task, err);
    default:
        return mist_err_set(err, MIST_ERR_RUN, "task %s is not executable",
                            mist_task_kind_name(task->kind));
    }
}

void mist_runtime_run_task(void *arg)
{
    const struct mist_task_body *body = arg;
    struct mist_runtime *runtime = body->runtime;
    struct mist_task_time *time = &runtime->current_times[body->i_task];
    struct mist_err err = {0};

    time->start_s = mist_clock_now_s();
    enum mist_status status = run(runtime, &runtime->schedule->tasks[body->i_task], &err);
    time->end_s = mist_clock_now_s();
    if (status != MIST_OK)
        mist_device_fail(runtime->device, status, &err);
}

/*
 * Where the time of a rank goes. See explain.h.
 *
 * Starts and ends of all tasks, sorted, cut the iteration into pieces in which nothing
 * changes; each goes to the task of the first stream that runs one. Tasks of a stream
 * follow each other, so that one number per stream says how far it has come. Computation
 * that stands still while others have their turn is not what goes on.
 */
#include "sim/explain/explain.h"

#include "core/statistics.h"

#include <math.h> /* fmin, fmax */
#include <stdlib.h>

enum { COMPUTATION = -1 }; /* of tasks that are divided among their operators */

static const struct {
    const char *label;
    enum mist_time_group group;
} classes[MIST_N_TIME_CLASSES] = {
    [MIST_TIME_PRODUCTS] = {"matrix products", MIST_TIME_GROUP_COMPUTATION},
    [MIST_TIME_ATTENTION] = {"attention", MIST_TIME_GROUP_COMPUTATION},
    [MIST_TIME_ELEMENTWISE] = {"norms and activations", MIST_TIME_GROUP_COMPUTATION},
    [MIST_TIME_LOSS] = {"embedding and loss", MIST_TIME_GROUP_COMPUTATION},
    [MIST_TIME_WAITING] = {"launches and host", MIST_TIME_GROUP_COMPUTATION},
    [MIST_TIME_RECOMPUTATION] = {"recomputation", MIST_TIME_GROUP_RECOMPUTATION},
    [MIST_TIME_OPTIMIZER] = {"optimizer step", MIST_TIME_GROUP_OPTIMIZER},
    [MIST_TIME_TENSOR] = {"tensor-parallel sums", MIST_TIME_GROUP_COMMUNICATION},
    [MIST_TIME_CONTEXT] = {"keys and values of others", MIST_TIME_GROUP_COMMUNICATION},
    [MIST_TIME_GRADIENTS] = {"sums of gradients", MIST_TIME_GROUP_COMMUNICATION},
    [MIST_TIME_PARAMETERS] = {"gathers of parameters", MIST_TIME_GROUP_COMMUNICATION},
    [MIST_TIME_TRANSFERS] = {"between stages", MIST_TIME_GROUP_COMMUNICATION},
    [MIST_TIME_COPIES_IN] = {"copies from the host", MIST_TIME_GROUP_COPIES},
    [MIST_TIME_COPIES_OUT] = {"copies to the host", MIST_TIME_GROUP_COPIES},
    [MIST_TIME_HOST] = {"updates on the host", MIST_TIME_GROUP_OPTIMIZER},
    [MIST_TIME_BUBBLE] = {"bubble", MIST_TIME_GROUP_BUBBLE},
};

const char *mist_time_class_label(enum mist_time_class time_class)
{
    return classes[time_class].label;
}

const char *mist_time_group_label(enum mist_time_group group)
{
    static const char *const labels[MIST_N_TIME_GROUPS] = {
        "computation",   "recomputation", "optimizer step",
        "communication", "copies",        "bubble"};

    return labels[group];
}

void mist_explanation_groups(const struct mist_explanation *explanation,
                             double out[MIST_N_TIME_GROUPS])
{
    for (int g = 0; g < MIST_N_TIME_GROUPS; g++)
        out[g] = 0;
    for (int c = 0; c < MIST_N_TIME_CLASSES; c++)
        out[classes[c].group] += explanation->mean_s[c];
}

/* ----------------------------------------------------------------------------- classes */

enum mist_time_class mist_time_class_of_op(enum mist_op op)
{
    switch (op) {
    case MIST_OP_LINEAR:
    case MIST_OP_LINEAR_BIAS:
    case MIST_OP_LINEAR_GELU:
    case MIST_OP_LINEAR_RESIDUAL:
        return MIST_TIME_PRODUCTS;
    case MIST_OP_ATTENTION:
    case MIST_OP_ATTENTION_PART:
        return MIST_TIME_ATTENTION;
    case MIST_OP_EMBEDDING:
    case MIST_OP_CROSS_ENTROPY:
    case MIST_OP_LINEAR_CROSS_ENTROPY:
    case MIST_OP_CROSS_ENTROPY_STATS:
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return MIST_TIME_LOSS;
    case MIST_OP_ADAMW:
    case MIST_OP_ADAMW_HOST:
    case MIST_OP_ZERO:
    case MIST_OP_GRADIENT_NORM:
        return MIST_TIME_OPTIMIZER;
    default:
        return MIST_TIME_ELEMENTWISE;
    }
}

/* COMPUTATION or a class. */
static int class_of_task(const struct mist_task *task)
{
    switch (task->stream) {
    case MIST_STREAM_COMPUTE:
        return COMPUTATION;
    case MIST_STREAM_HOST_TO_DEVICE:
        return MIST_TIME_COPIES_IN;
    case MIST_STREAM_DEVICE_TO_HOST:
        return MIST_TIME_COPIES_OUT;
    case MIST_STREAM_HOST:
        return MIST_TIME_HOST;
    default:
        break;
    }
    switch (task->kind) {
    case MIST_TASK_TP_ALL_REDUCE:
    case MIST_TASK_TP_REDUCE_SCATTER:
    case MIST_TASK_TP_ALL_GATHER:
        return MIST_TIME_TENSOR;
    case MIST_TASK_CP_ALL_GATHER:
    case MIST_TASK_CP_REDUCE_SCATTER:
        return MIST_TIME_CONTEXT;
    case MIST_TASK_GATHER_PARAMETER:
        return MIST_TIME_PARAMETERS;
    default:
        return mist_task_kind_sort(task->kind) == MIST_SORT_TRANSFER
                   ? MIST_TIME_TRANSFERS
                   : MIST_TIME_GRADIENTS;
    }
}

/* ------------------------------------------------------------------------------ shares */

/* Parts of a task's time, by class; they add up to 1. */
struct shares {
    bool is_known;
    double of[MIST_N_TIME_CLASSES];
};

struct splitter {
    const struct mist_plan *plan;
    const struct mist_cost_model *model;
    const struct mist_schedule *schedule;
    const struct mist_cost *costs;
    const struct mist_timeline_row *rows;
    const enum mist_stream *order; /* [MIST_N_STREAMS] who an instant goes to */
    struct shares *shares;         /* [n_costs] of computation */
    struct mist_err *err;
    double *out;
};

static enum mist_status find_shares(const struct splitter *at,
                                    const struct mist_task *task, struct shares *out)
{
    const struct mist_layer_layout *layouts = at->schedule->layouts;
    struct mist_cost_split split;
    enum mist_status status = mist_cost_split(at->model, at->plan, layouts, task,
                                              &at->costs[task->cost], &split, at->err);

    if (status != MIST_OK)
        return status;
    bool is_again = task->kind == MIST_TASK_RECOMPUTE ||
                    (task->part >= 0 && task->program == MIST_PROGRAM_REMAKE);
    *out = (struct shares){.is_known = true};
    out->of[MIST_TIME_OPTIMIZER] = split.gradients_s;
    out->of[MIST_TIME_RECOMPUTATION] = split.repeated_s;
    out->of[MIST_TIME_WAITING] = split.waiting_s;
    if (task->part >= 0) {
        const struct mist_layer_layout *layout =
            &layouts[mist_schedule_layer_kind(&at->plan->model, task->layer)];
        const struct mist_part *part = &layout->programs[task->program].parts[task->part];
        const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);
        for (int32_t i = part->first_step; i < part->first_step + part->n_steps; i++)
            out->of[is_again ? MIST_TIME_RECOMPUTATION
                             : mist_time_class_of_op(steps[i].op)] += split.step_s[i];
    }
    double sum = 0;
    for (int c = 0; c < MIST_N_TIME_CLASSES; c++)
        sum += out->of[c];
    for (int c = 0; c < MIST_N_TIME_CLASSES; c++)
        out->of[c] = sum > 0 ? out->of[c] / sum : c == MIST_TIME_WAITING;
    return MIST_OK;
}

static enum mist_status charge(struct splitter *at, int32_t i_task, double time_s)
{
    const struct mist_task *task = &at->schedule->tasks[i_task];
    int class = class_of_task(task);
    struct shares *shares = &at->shares[task->cost];
    enum mist_status status = MIST_OK;

    if (class != COMPUTATION) {
        at->out[class] += time_s;
        return MIST_OK;
    }
    if (!shares->is_known)
        status = find_shares(at, task, shares);
    for (int c = 0; c < MIST_N_TIME_CLASSES && status == MIST_OK; c++)
        at->out[c] += time_s * shares->of[c];
    return status;
}

/* ------------------------------------------------------------------------------- pieces */

/* As they are; where they take turns; where transfers alone make computation stand still. */
static const enum mist_stream *order_of(const struct mist_plan *plan,
                                        const struct mist_cost_model *model)
{
    static const enum mist_stream usual[MIST_N_STREAMS] = {
        MIST_STREAM_COMPUTE,        MIST_STREAM_GPU_GPU, MIST_STREAM_HOST_TO_DEVICE,
        MIST_STREAM_DEVICE_TO_HOST, MIST_STREAM_SEND,    MIST_STREAM_RECEIVE,
        MIST_STREAM_HOST,           MIST_STREAM_SHARDS};
    static const enum mist_stream turns[MIST_N_STREAMS] = {
        MIST_STREAM_GPU_GPU,        MIST_STREAM_SEND,
        MIST_STREAM_RECEIVE,        MIST_STREAM_SHARDS,
        MIST_STREAM_HOST_TO_DEVICE, MIST_STREAM_DEVICE_TO_HOST,
        MIST_STREAM_COMPUTE,        MIST_STREAM_HOST};
    static const enum mist_stream blocked[MIST_N_STREAMS] = {
        MIST_STREAM_SEND,    MIST_STREAM_RECEIVE,        MIST_STREAM_COMPUTE,
        MIST_STREAM_GPU_GPU, MIST_STREAM_HOST_TO_DEVICE, MIST_STREAM_DEVICE_TO_HOST,
        MIST_STREAM_HOST,    MIST_STREAM_SHARDS};
    struct mist_interference interference = mist_replay_interference(plan, model);

    return interference.takes_turns        ? turns
           : interference.blocks_transfers ? blocked
                                           : usual;
}

/* The tasks of each stream, one behind the other in order, from first[stream] on. */
static void list_streams(const struct splitter *at, int32_t first[MIST_N_STREAMS + 1],
                         int32_t *tasks)
{
    int32_t n = 0;

    for (int s = 0; s < MIST_N_STREAMS; s++) {
        first[s] = n;
        for (int32_t i = 0; i < at->schedule->n_tasks; i++)
            if ((int)at->schedule->tasks[i].stream == s)
                tasks[n++] = i;
    }
    first[MIST_N_STREAMS] = n;
}

/* The task of the first stream that runs one from this time on; -1 none. next: how far
 * each stream has come. */
static int32_t find_running(const struct splitter *at,
                            const int32_t first[MIST_N_STREAMS + 1], const int32_t *tasks,
                            int32_t next[MIST_N_STREAMS], double time_s)
{
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        int s = (int)at->order[i];
        while (next[s] < first[s + 1] && at->rows[tasks[next[s]]].end_s <= time_s)
            next[s]++;
        if (next[s] < first[s + 1] && at->rows[tasks[next[s]]].start_s <= time_s)
            return tasks[next[s]];
    }
    return -1;
}

static enum mist_status split_pieces(struct splitter *at, double *edges, int32_t n_edges,
                                     int32_t *tasks)
{
    int32_t first[MIST_N_STREAMS + 1], next[MIST_N_STREAMS];
    enum mist_status status = MIST_OK;

    list_streams(at, first, tasks);
    for (int s = 0; s < MIST_N_STREAMS; s++)
        next[s] = first[s];
    for (int32_t k = 0; k + 1 < n_edges && status == MIST_OK; k++) {
        double time_s = edges[k + 1] - edges[k];
        if (time_s <= 0)
            continue;
        int32_t i = find_running(at, first, tasks, next, edges[k]);
        if (i >= 0)
            status = charge(at, i, time_s);
        else
            at->out[MIST_TIME_BUBBLE] += time_s;
    }
    return status;
}

enum mist_status
mist_explain_time(const struct mist_plan *plan, const struct mist_cost_model *model,
                  const struct mist_schedule *schedule, const struct mist_cost *costs,
                  const struct mist_timeline_row *rows, double begin_s, double end_s,
                  double out[MIST_N_TIME_CLASSES], struct mist_err *err)
{
    size_t n = (size_t)schedule->n_tasks;
    double *edges = malloc((2 * n + 2) * sizeof *edges);
    int32_t *tasks = malloc((n + 1) * sizeof *tasks), n_edges = 0;
    struct splitter at = {
        .plan = plan,
        .model = model,
        .schedule = schedule,
        .costs = costs,
        .rows = rows,
        .order = order_of(plan, model),
        .shares = calloc((size_t)schedule->n_costs + 1, sizeof *at.shares),
        .err = err,
        .out = out,
    };
    enum mist_status status = MIST_OK;

    for (int c = 0; c < MIST_N_TIME_CLASSES; c++)
        out[c] = 0;
    if (edges && tasks && at.shares) {
        edges[n_edges++] = begin_s;
        edges[n_edges++] = end_s;
        for (size_t i = 0; i < n; i++) {
            edges[n_edges++] = fmin(fmax(rows[i].start_s, begin_s), end_s);
            edges[n_edges++] = fmin(fmax(rows[i].end_s, begin_s), end_s);
        }
        mist_sort_doubles(edges, (size_t)n_edges);
        status = split_pieces(&at, edges, n_edges, tasks);
    } else {
        status = mist_err_memory(err, NULL);
    }
    free(at.shares);
    free(tasks);
    free(edges);
    return status;
}

/* Prints the results of mist-sim. See sim_report.h. */
#include "sim/sim_report.h"

#include "sim/cost/cost_model.h" /* mist_cost_trace_dtype */
#include "sim/explain/explain.h"
#include "sim/model/framework.h"
#include "sim/sim_uneven.h"
#include "traces/preset_table.h"

#include <math.h> /* fmax */

static void emit_stages(struct mist_emit *emit, const struct mist_plan *plan,
                        const struct mist_replay_result *result)
{
    mist_emit_list_begin(emit, "stages", "Stages");
    for (int32_t i = 0; i < result->n_stages; i++) {
        const struct mist_replay_stage *stage = &result->stages[i];
        const struct mist_stage_plan *of = &plan->stages[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_integer(emit, "stage", "stage", i);
        mist_emit_integer(emit, "ranks", "ranks", mist_stage_n_ranks(of));
        mist_emit_integer(emit, "layers", "layers", of->n_layers);
        mist_emit_number(emit, "compute_s", "compute", stage->compute_s);
        mist_emit_number(emit, "exposed_s", "exposed", stage->exposed_s);
        mist_emit_number(emit, "bubble_s", "bubble", stage->bubble_s);
        mist_emit_integer(emit, "peak_bytes", "live peak", stage->peak_bytes);
        mist_emit_integer(emit, "arena_bytes", "arena",
                          stage->arena_bytes[MIST_ARENA_DEVICE]);
        mist_emit_integer(emit, "host_arena_bytes", "host arena",
                          stage->arena_bytes[MIST_ARENA_HOST]);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* What the prices of the busiest rank's tasks rest on, by kind of task. */
static void emit_prices(struct mist_emit *emit, const struct mist_replay_result *result)
{
    mist_emit_list_begin(emit, "prices", "What prices rest on");
    for (int i = 0; i < MIST_N_TASK_KINDS; i++) {
        const struct mist_cost *cost = &result->prices[i];
        if (cost->time_s <= 0)
            continue;
        double other_s = cost->extrapolated_s - cost->borrowed_s - cost->preset_s;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "task", "tasks",
                       mist_task_kind_name((enum mist_task_kind)i));
        mist_emit_number(emit, "time_s", "time", cost->time_s);
        mist_emit_number(emit, "measured_frac", "measured",
                         1 - cost->extrapolated_s / cost->time_s);
        mist_emit_number(emit, "borrowed_frac", "borrowed",
                         cost->borrowed_s / cost->time_s);
        mist_emit_number(emit, "extrapolated_frac", "extrapolated",
                         fmax(0, other_s / cost->time_s));
        mist_emit_number(emit, "preset_frac", "preset", cost->preset_s / cost->time_s);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

int64_t mist_sim_report_device_bytes(const struct mist_plan *plan,
                                     const struct mist_cluster *cluster,
                                     const struct mist_replay_result *result,
                                     int32_t i_stage)
{
    const struct mist_replay_stage *stage = &result->stages[i_stage];
    struct mist_beside_arena beside = mist_beside_arena_find(plan, cluster, stage);

    return stage->arena_bytes[MIST_ARENA_DEVICE] + beside.kept_bytes + beside.held_bytes +
           beside.runtime_bytes;
}

/* Of stages that fill their devices alike, for what allocators hold, that which needs most. */
static int32_t fullest_stage(const struct mist_plan *plan,
                             const struct mist_cluster *cluster,
                             const struct mist_replay_result *result)
{
    int32_t fullest = 0;
    int64_t most_bytes = -1;

    for (int32_t i = 0; i < result->n_stages; i++) {
        struct mist_beside_arena beside =
            mist_beside_arena_find(plan, cluster, &result->stages[i]);
        int64_t bytes =
            result->stages[i].arena_bytes[MIST_ARENA_DEVICE] + beside.kept_bytes;
        if (bytes > most_bytes) {
            most_bytes = bytes;
            fullest = i;
        }
    }
    return fullest;
}

/* What the devices of the fullest stage need, by what it is for. */
static void emit_memory(struct mist_emit *emit, const struct mist_plan *plan,
                        const struct mist_cluster *cluster,
                        const struct mist_replay_result *result)
{
    bool is_preset = cluster->backend == MIST_TRACE_DATASHEET;
    int32_t i = fullest_stage(plan, cluster, result);
    int64_t arena_bytes = result->stages[i].arena_bytes[MIST_ARENA_DEVICE];
    struct mist_beside_arena beside =
        mist_beside_arena_find(plan, cluster, &result->stages[i]);
    const struct {
        const char *what, *source;
        int64_t bytes;
    } rows[] = {
        {"arena", "buffers of the fullest stage", arena_bytes},
        {"kept beside it", mist_framework_get(plan->job.framework)->kept_source,
         beside.kept_bytes},
        {"held beyond it", mist_framework_get(plan->job.framework)->held_source,
         beside.held_bytes},
        {"context, libraries, NCCL", is_preset ? "mist-sim --presets" : "cluster.json",
         beside.runtime_bytes},
        {"all", "their sum", mist_sim_report_device_bytes(plan, cluster, result, i)},
        {"a device has", is_preset ? "mist-sim --presets" : "cluster.json",
         cluster->device_memory_bytes},
    };

    mist_emit_list_begin(emit, "memory", "Memory of a device");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (rows[k].bytes == 0)
            continue;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "what", "memory", rows[k].what);
        mist_emit_integer(emit, "bytes", "bytes", rows[k].bytes);
        mist_emit_text(emit, "source", "source", rows[k].source);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* A figure that something was made from. */
struct figure {
    const char *what;
    double value;
    enum mist_human_format format;
    const char *source;
};

/* Figures as rows: what, how much, source; 0: it has none. preset: whose; NULL: no column
 * says that. */
static void emit_figures(struct mist_emit *emit, const char *preset,
                         const struct figure *figures, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (figures[i].value == 0)
            continue;
        mist_emit_object_begin(emit, NULL, NULL);
        if (preset)
            mist_emit_text(emit, "preset", "preset", preset);
        mist_emit_text(emit, "figure", "figure", figures[i].what);
        mist_emit_double(emit, "value", "value", figures[i].value, figures[i].format);
        mist_emit_text(emit, "source", "source", figures[i].source);
        mist_emit_object_end(emit);
    }
}

/* The constants behind prices of a framework that is not ours. */
static void emit_framework(struct mist_emit *emit, const struct mist_job *job)
{
    const struct mist_framework *framework = mist_framework_get(job->framework);
    static const enum mist_human_format formats[] = {[MIST_IN_S] = MIST_HUMAN_TIME_S,
                                                     [MIST_IN_BYTES] = MIST_HUMAN_BYTES,
                                                     [MIST_AS_FRAC] = MIST_HUMAN_FRAC};
    struct mist_framework_constant of;

    if (job->framework == MIST_FRAMEWORK_OURS)
        return;
    mist_emit_list_begin(emit, "framework_constants", "What the framework adds");
    for (int i = 0; mist_framework_constant(framework, i, &of); i++) {
        struct figure figure = {of.what, of.value, formats[of.unit], of.source};
        emit_figures(emit, NULL, &figure, 1);
    }
    mist_emit_list_end(emit);
}

int64_t mist_sim_report_needed_bytes(const struct mist_plan *plan,
                                     const struct mist_cluster *cluster,
                                     const struct mist_replay_result *result)
{
    return mist_sim_report_device_bytes(plan, cluster, result,
                                        fullest_stage(plan, cluster, result));
}

struct mist_sim_host_need
mist_sim_report_host_need(const struct mist_plan *plan,
                          const struct mist_cluster *cluster,
                          const struct mist_replay_result *result)
{
    struct mist_sim_host_need need = {0};
    int32_t n_ranks = mist_plan_n_ranks(plan), per_node = cluster->devices_per_node;
    int64_t bytes = 0;

    for (int32_t rank = 0; rank < n_ranks; rank++) {
        int32_t i_stage = mist_plan_stage_of(plan, rank);
        bytes += result->stages[i_stage].arena_bytes[MIST_ARENA_HOST];
        if (rank < n_ranks - 1 && (rank + 1) % per_node != 0)
            continue;
        need.n_short += bytes > cluster->host_memory_bytes_per_node;
        if (bytes > need.bytes)
            need = (struct mist_sim_host_need){bytes, rank / per_node, need.n_short};
        bytes = 0;
    }
    return need;
}

/* Of the device that needs most, beside what it has, and of the node. */
static void emit_needed_memory(struct mist_emit *emit, const struct mist_plan *plan,
                               const struct mist_cluster *cluster,
                               const struct mist_replay_result *result, bool has_all)
{
    int64_t bytes = mist_sim_report_needed_bytes(plan, cluster, result);
    int64_t host_bytes = mist_sim_report_host_need(plan, cluster, result).bytes;

    mist_emit_integer(emit, "device_bytes", "memory of a device", bytes);
    mist_emit_integer(emit, "device_memory_bytes", "it has",
                      cluster->device_memory_bytes);
    if (!has_all && host_bytes == 0)
        return;
    mist_emit_integer(emit, "host_bytes", "host memory of a node", host_bytes);
    mist_emit_integer(emit, "host_memory_bytes", "it has",
                      cluster->host_memory_bytes_per_node);
}

void mist_sim_report_add_result(struct mist_emit *emit, const struct mist_plan *plan,
                                const struct mist_cluster *cluster,
                                const struct mist_replay_result *result,
                                const struct mist_loads *loads,
                                const struct mist_speed *speed, bool has_all)
{
    const struct mist_job *job = &plan->job;

    mist_emit_number(emit, "iteration_s", "iteration", result->iteration_s);
    mist_emit_number(emit, "error_s", "error bar, +-", result->error_s);
    mist_emit_number(emit, "extrapolated_frac", "of it not measured",
                     result->extrapolated_frac);
    mist_sim_uneven_add_iterations(emit, result);
    if (loads)
        mist_sim_uneven_add_loads(emit, loads);
    mist_speed_emit(emit, speed, has_all);
    emit_needed_memory(emit, plan, cluster, result, has_all);
    if (job->framework != MIST_FRAMEWORK_OURS) {
        mist_emit_text(emit, "framework", "framework",
                       mist_framework_words[job->framework]);
        mist_emit_text(emit, "attention", "attention",
                       mist_attention_ways[job->attention]);
    }
    if (!has_all)
        return;
    emit_stages(emit, plan, result);
    emit_memory(emit, plan, cluster, result);
    emit_prices(emit, result);
    emit_framework(emit, job);
}

/* One value on both sides, with the error where both are there. */
static void emit_pair(struct mist_emit *emit, const char *what, double predicted,
                      double measured, enum mist_human_format format)
{
    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "what", "", what);
    mist_emit_double(emit, "predicted", "predicted", predicted, format);
    mist_emit_double(emit, "measured", "measured", measured, format);
    mist_emit_number(emit, "error_frac", "error",
                     measured > 0 ? predicted / measured - 1 : 0);
    mist_emit_object_end(emit);
}

static void emit_stage_pairs(struct mist_emit *emit, const struct mist_compare_stage *a,
                             const struct mist_compare_stage *b, int32_t i)
{
    char what[64];

    snprintf(what, sizeof what, "stage %d compute", (int)i);
    emit_pair(emit, what, a->compute_s, b->compute_s, MIST_HUMAN_TIME_S);
    snprintf(what, sizeof what, "stage %d communication", (int)i);
    emit_pair(emit, what, a->communication_s, b->communication_s, MIST_HUMAN_TIME_S);
    snprintf(what, sizeof what, "stage %d peak memory", (int)i);
    emit_pair(emit, what, (double)a->peak_bytes, (double)b->peak_bytes, MIST_HUMAN_BYTES);
}

void mist_sim_report_add_comparison(struct mist_emit *emit, const struct mist_plan *plan,
                                    const struct mist_compare_side *predicted,
                                    const struct mist_compare_side *measured,
                                    double error_s)
{
    mist_emit_list_begin(emit, "compare", "Predicted and measured");
    emit_pair(emit, "iteration", predicted->iteration_s, measured->iteration_s,
              MIST_HUMAN_TIME_S);
    emit_pair(emit, "iteration, low end", fmax(0, predicted->iteration_s - error_s),
              measured->iteration_s, MIST_HUMAN_TIME_S);
    emit_pair(emit, "iteration, high end", predicted->iteration_s + error_s,
              measured->iteration_s, MIST_HUMAN_TIME_S);
    for (int32_t i = 0; i < plan->n_stages; i++)
        emit_stage_pairs(emit, &predicted->stages[i], &measured->stages[i], i);
    mist_emit_list_end(emit);
    mist_emit_list_begin(emit, "kinds", "Mean time of a task");
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        if (predicted->kinds[i].n_tasks > 0 || measured->kinds[i].n_tasks > 0)
            emit_pair(emit, mist_task_kind_name((enum mist_task_kind)i),
                      predicted->kinds[i].mean_s, measured->kinds[i].mean_s,
                      MIST_HUMAN_TIME_S);
    mist_emit_list_end(emit);
}

void mist_sim_report_add_differences(struct mist_emit *emit,
                                     const struct mist_compare_difference *differences,
                                     size_t n, enum mist_emit_kind kind)
{
    enum { MOST_FOR_PEOPLE = 10 };

    mist_emit_list_begin(emit, "differences", "Where they differ most, by kind and rank");
    for (size_t i = 0; i < n && (kind != MIST_EMIT_TABLE || i < MOST_FOR_PEOPLE); i++) {
        const struct mist_compare_difference *at = &differences[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "task", "tasks", mist_task_kind_name(at->kind));
        mist_emit_integer(emit, "stage", NULL, at->stage);
        mist_emit_integer(emit, "rank", NULL, at->rank);
        mist_emit_number(emit, "predicted_s", "predicted", at->predicted_s);
        mist_emit_number(emit, "measured_s", "measured", at->measured_s);
        mist_emit_number(emit, "difference_s", "difference",
                         at->predicted_s - at->measured_s);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

static void emit_device(struct mist_emit *emit, const struct mist_preset *of)
{
    const struct figure figures[] = {
        {"memory", (double)(of->memory_mib << 20), MIST_HUMAN_BYTES, "nvidia-smi"},
        {"rate of memory", of->memory_gb_per_s * 1e9, MIST_HUMAN_BYTES_PER_S, of->source},
        {"processors", of->processors, MIST_HUMAN_NUMBER, of->source},
        {"of the peak, by single products", of->product_frac, MIST_HUMAN_FRAC,
         of->product_source},
        {"of that, in training", of->sustained_frac, MIST_HUMAN_FRAC,
         of->sustained_source},
        {"limit of power, in W", of->power_w, MIST_HUMAN_NUMBER, of->source},
    };

    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++) {
        char what[64];
        snprintf(what, sizeof what, "peak in %s", mist_trace_dtype_words[i]);
        struct figure peak = {what, of->peak_tflop_per_s[i] * 1e12, MIST_HUMAN_FLOP_PER_S,
                              of->source};
        emit_figures(emit, of->name, &peak, 1);
    }
    emit_figures(emit, of->name, figures, sizeof figures / sizeof *figures);
}

static const char fit[] = "fit of public nccl-tests";

static void emit_node(struct mist_emit *emit, const struct mist_preset *of)
{
    const struct mist_preset_wiring_shares *wiring = &mist_preset_wirings[of->wiring];
    double adapter_rate = of->adapters > 0 ? of->adapter_gbit_per_s * 1e9 / 8 : 0;
    const struct figure figures[] = {
        {"devices of a node", of->devices_per_node, MIST_HUMAN_NUMBER, of->node},
        {wiring->name, of->link_gb_per_s * 1e9, MIST_HUMAN_BYTES_PER_S, of->source},
        {"of it, by sends", wiring->link_frac, MIST_HUMAN_FRAC, wiring->link_source},
        {"of it, by rings", wiring->ring_frac, MIST_HUMAN_FRAC, wiring->ring_source},
        {"of it, by sums in the switch", wiring->switch_frac, MIST_HUMAN_FRAC, fit},
        {"computing takes, beside messages", wiring->compute_slowdown, MIST_HUMAN_NUMBER,
         wiring->slowdown_source},
        {"messages take, beside computing", wiring->message_slowdown, MIST_HUMAN_NUMBER,
         wiring->slowdown_source},
        {"PCIe to the host", of->pcie_gb_per_s * 1e9, MIST_HUMAN_BYTES_PER_S, of->source},
        {"of all devices, to the host", of->host_gb_per_s * 1e9, MIST_HUMAN_BYTES_PER_S,
         of->node},
        {"doubt about messages", wiring->residual_frac, MIST_HUMAN_FRAC,
         wiring->residual_source},
        {"network adapters", of->adapters, MIST_HUMAN_NUMBER, of->node},
        {"rate of each", adapter_rate, MIST_HUMAN_BYTES_PER_S, of->node},
        {"host memory", (double)(of->host_memory_gib << 30), MIST_HUMAN_BYTES, of->node},
    };

    emit_figures(emit, of->name, figures, sizeof figures / sizeof *figures);
}

/* The same figures for all presets. */
static void emit_shares(struct mist_emit *emit)
{
    const struct mist_preset_shares *of = &mist_preset_shares;
    const struct figure figures[] = {
        {"of memory's rate", of->memory_frac, MIST_HUMAN_FRAC, "gpu-benches, stream"},
        {"of PCIe's rate, copies", of->host_frac, MIST_HUMAN_FRAC, "nvbandwidth results"},
        {"of adapters' rate", of->adapter_frac, MIST_HUMAN_FRAC, fit},
        {"latency between nodes", of->adapter_latency_us * 1e-6, MIST_HUMAN_TIME_S, fit},
        {"launch of a task", of->launch_us * 1e-6, MIST_HUMAN_TIME_S,
         "gpu-benches, small kernels"},
        {"memory: CUDA context, libraries", (double)of->context_memory_bytes,
         MIST_HUMAN_BYTES, "estimate: 0.4 to 0.6 GiB with cuBLAS and cuDNN"},
        {"memory: NCCL's buffers", (double)of->nccl_memory_bytes, MIST_HUMAN_BYTES,
         "24 channels of 9.2 MiB, 4 or 5 communicators"},
        {"doubt about operators", of->curve_residual_frac, MIST_HUMAN_FRAC,
         "residual of the fits"},
    };

    mist_emit_list_begin(emit, "shares", "Of all presets");
    emit_figures(emit, NULL, figures, sizeof figures / sizeof *figures);
    mist_emit_list_end(emit);
}

/* A row for each: the node that a name alone stands for. */
static void emit_overview(struct mist_emit *emit)
{
    const struct mist_preset *of;

    mist_emit_list_begin(emit, "nodes", "A node of each preset");
    for (int i = 0; (of = mist_preset_get(i)); i++) {
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "preset", "preset", of->name);
        if (of->alias)
            mist_emit_text(emit, "alias", "or", of->alias);
        mist_emit_integer(emit, "devices_per_node", "devices", of->devices_per_node);
        mist_emit_number(emit, "fp16_flop_per_s", "fp16",
                         of->peak_tflop_per_s[MIST_TRACE_FP16] * 1e12);
        mist_emit_integer(emit, "memory_bytes", "memory", of->memory_mib << 20);
        mist_emit_text(emit, "wiring", "wiring", mist_preset_wirings[of->wiring].name);
        mist_emit_number(emit, "link_bytes_per_s", "of a device",
                         of->link_gb_per_s * 1e9);
        if (of->adapters > 0) /* else they are to be declared */
            mist_emit_number(emit, "network_bytes_per_s", "network",
                             of->adapters * of->adapter_gbit_per_s * 1e9 / 8);
        mist_emit_integer(emit, "host_memory_bytes", "host memory",
                          of->host_memory_gib << 30);
        mist_emit_text(emit, "node", "node", of->node);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

void mist_sim_report_add_presets(struct mist_emit *emit)
{
    const struct mist_preset *preset;

    mist_emit_list_begin(emit, "presets", "Presets");
    for (int i = 0; (preset = mist_preset_get(i)); i++) {
        emit_device(emit, preset);
        emit_node(emit, preset);
    }
    mist_emit_list_end(emit);
    emit_shares(emit);
    emit_overview(emit); /* where people see it first */
}

/*
 * Iterations that are replayed: once captured, one launch does what a thousand did.
 *
 * A steady iteration launches what all of them do, on the same memory: one rank (what
 * ranks send one another goes through functions of the host), an update at its start, and
 * nothing recorded. What changes from one to the next lies in memory: samples, and the
 * numbers of AdamW (mist_operators_prepare_update).
 *
 * Whether that is faster depends on what the host does meanwhile. Results are the same
 * bits, so the clock may decide: by the medians of a few iterations of each way.
 */
#include "core/clock.h"
#include "core/statistics.h"
#include "exec/runtime/runtime_internal.h"

#include <stdio.h>
#include <string.h>

/* Steady iterations of a run that is worth timing: as many again have the use of it. */
enum { MIN_STEADY = 4 * MIST_GRAPH_SAMPLES };

const char *mist_runtime_graphs_obstacle(const struct mist_train_config *config,
                                         int32_t n_ranks)
{
    if (n_ranks > 1)
        return "more than one rank";
    if (config->is_serial)
        return "one task at a time";
    return config->delay_seed != 0 ? "delays between tasks" : NULL;
}

/* AdamW on the host gets its numbers with each of its tasks. */
static bool has_host_tasks(const struct mist_schedule *schedule)
{
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].stream == MIST_STREAM_HOST)
            return true;
    return false;
}

/* Up to where iterations are not recorded, nor warm the recorder up. */
static int32_t end_of_steady(const struct mist_runtime *runtime)
{
    return mist_device_records(runtime->device)
               ? runtime->n_iterations - runtime->config.n_timed_iterations - 1
               : runtime->n_iterations;
}

/* Nothing is left to be found out. */
static void choose(struct mist_runtime_graph *graph, bool replays, const char *text)
{
    graph->is_chosen = true;
    graph->is_possible = graph->replays = replays;
    snprintf(graph->text, sizeof graph->text, "%s", text);
}

enum mist_status mist_runtime_prepare_graph(struct mist_runtime *runtime,
                                            struct mist_err *err)
{
    struct mist_runtime_graph *graph = &runtime->graph;
    enum mist_graphs_choice choice = runtime->config.graphs;
    bool can_capture = mist_device_can_capture(runtime->device);
    const char *obstacle =
        mist_runtime_graphs_obstacle(&runtime->config, mist_comm_n_ranks(runtime->comm));
    char text[MIST_PATH_BYTES];

    if (!obstacle && has_host_tasks(runtime->schedule))
        obstacle = "updates on the host";
    if (!can_capture)
        obstacle = "no GPU";
    if (choice == MIST_GRAPHS_ON && obstacle)
        return mist_err_set(err, MIST_ERR_USAGE, "iterations can't be replayed: %s",
                            obstacle);
    graph->is_possible = !obstacle && choice != MIST_GRAPHS_OFF;
    snprintf(text, sizeof text, "not replayed: %s", obstacle ? obstacle : "--graphs off");
    if (!can_capture)
        return MIST_OK;
    if (!graph->is_possible)
        choose(graph, false, text);
    else if (choice == MIST_GRAPHS_ON)
        choose(graph, true, "replayed");
    else if (end_of_steady(runtime) - 1 < MIN_STEADY)
        choose(graph, false, "not replayed: too few steps to try both ways");
    else
        snprintf(graph->text, sizeof graph->text, "to be chosen by time");
    return MIST_OK;
}

bool mist_runtime_is_steady(const struct mist_runtime *runtime)
{
    const struct mist_runtime_graph *graph = &runtime->graph;

    return graph->is_possible && runtime->walk == MIST_WALK_ITERATION &&
           runtime->n_done < end_of_steady(runtime) &&
           (!graph->is_captured ||
            (graph->tokens == runtime->tokens && graph->targets == runtime->targets));
}

/* MIST_OK: the walk can be replayed. Nothing of it has run, whatever comes out. */
static enum mist_status capture(struct mist_runtime *runtime, struct mist_err *err)
{
    struct mist_runtime_graph *graph = &runtime->graph;
    struct mist_err cause = {0};

    if (graph->is_captured)
        return MIST_OK;
    enum mist_status status = mist_device_synchronize(runtime->device, err);
    if (status != MIST_OK)
        return status;
    mist_device_begin_capture(runtime->device);
    enum mist_status dispatched = mist_runtime_dispatch(runtime, err);
    status = mist_device_end_capture(runtime->device, &cause);
    if (status == MIST_OK)
        status = dispatched;
    else
        mist_err_set(err, status, "a step can't be captured: %.400s", cause.message);
    graph->is_captured = status == MIST_OK;
    graph->tokens = runtime->tokens;
    graph->targets = runtime->targets;
    return status;
}

/* Plain ones are timed, then replayed ones, then the faster way stays. */
static void note_time(struct mist_runtime *runtime, bool was_replayed, double time_s)
{
    struct mist_runtime_graph *graph = &runtime->graph;
    char text[MIST_PATH_BYTES];

    graph->times_s[was_replayed][graph->n_timed[was_replayed]++] = time_s;
    if (graph->n_timed[was_replayed] < MIST_GRAPH_SAMPLES)
        return;
    graph->replays = true;
    if (!was_replayed)
        return;
    double plain_s = mist_estimate_make(graph->times_s[0], MIST_GRAPH_SAMPLES).median;
    double replayed_s = mist_estimate_make(graph->times_s[1], MIST_GRAPH_SAMPLES).median;
    if (replayed_s <= plain_s) {
        snprintf(text, sizeof text, "replayed, %.1f %% faster",
                 100 * (1 - replayed_s / plain_s));
        choose(graph, true, text);
        return;
    }
    snprintf(text, sizeof text, "not replayed: %.1f %% slower",
             100 * (replayed_s / plain_s - 1));
    choose(graph, false, text);
    mist_device_drop_capture(runtime->device);
}

/* Goes on without, unless that was asked for. */
static enum mist_status give_up(struct mist_runtime *runtime, enum mist_status status,
                                const struct mist_err *cause, struct mist_err *err)
{
    char text[MIST_PATH_BYTES];

    if (runtime->config.graphs == MIST_GRAPHS_ON)
        return mist_err_set(err, status, "%.500s", cause->message);
    snprintf(text, sizeof text, "not replayed: %.200s", cause->message);
    choose(&runtime->graph, false, text);
    mist_device_reset_events(runtime->device, runtime->schedule->n_tasks);
    return MIST_OK;
}

enum mist_status mist_runtime_walk_steady(struct mist_runtime *runtime,
                                          struct mist_err *err)
{
    struct mist_runtime_graph *graph = &runtime->graph;
    struct mist_err cause;
    enum mist_status status = graph->replays ? capture(runtime, &cause) : MIST_OK;

    if (status != MIST_OK)
        status = give_up(runtime, status, &cause, err);
    if (status != MIST_OK)
        return status;
    bool replays = graph->replays;
    double start_s = mist_clock_now_s();
    if (replays)
        mist_device_replay(runtime->device);
    else
        status = mist_runtime_dispatch(runtime, err);
    enum mist_status end = mist_device_synchronize(runtime->device, err);
    status = status == MIST_OK ? end : status;
    if (status == MIST_OK && !graph->is_chosen)
        note_time(runtime, replays, mist_clock_now_s() - start_s);
    return status;
}

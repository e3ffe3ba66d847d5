/*
 * One run of a grid (training_grid.h), and a rank that makes it: it drives the runtime
 * itself, so that it can look at everything that is left when the run is over.
 */
#ifndef MIST_TESTS_PROP_TRAINING_RUN_H
#define MIST_TESTS_PROP_TRAINING_RUN_H

#include "core/random.h"
#include "exec/data/data.h"
#include "exec/runtime/runtime.h"
#include "tests/emulation/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRAINING_BATCH = 8,
    TRAINING_SEED = 7,
    TRAINING_MAX_STEPS = 20,
    TRAINING_MAX_RANKS = 8,
};
#define TRAINING_LEARNING_RATE 0.003

struct training_run {
    struct mist_plan plan;
    char text[400]; /* the plan, as it was asked for */
    int32_t n_steps;
    bool is_serial;
    int32_t evaluates_every; /* steps, which may not change anything; 0: never */
    int32_t skipped_step;    /* whose gradients are dropped, from 1; 0: none */
    enum mist_graphs_choice graphs;
    uint64_t delay_seed;
    double clip_norm; /* 0: never */
    int32_t i_like;   /* run with the same bits; -1: none */
    int32_t i_near;   /* run with nearly the same numbers; -1: none */
};

struct training_rank {
    int64_t arena_bytes[MIST_N_ARENAS]; /* that the device has */
    int64_t n_elements;                 /* of parameters that belong to this rank */
    uint64_t fingerprints[3];           /* of its weights, first and second moments */
};

/* What came out of it. */
struct training_outcome {
    double losses[TRAINING_MAX_STEPS], norms[TRAINING_MAX_STEPS];
    uint64_t fingerprints[3]; /* of all weights, first and second moments */
    int64_t n_elements;       /* of parameters: those of the model */
    int64_t n_replays;        /* of steps, on rank 0 */
    struct training_rank ranks[TRAINING_MAX_RANKS];
};

struct training_child {
    struct mist_comm *comm;
    struct mist_data *data;
    const struct training_run *run;
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_collectives *collectives;
    struct mist_runtime *runtime;
    int32_t *tokens, *targets; /* [G, b, s] of this rank */
    struct training_outcome outcome;
};

static inline struct mist_data *training_open_data(struct mist_err *err)
{
    char **paths = NULL;
    int32_t n = 0;
    struct mist_data *data = NULL;

    if (mist_data_default_paths(&paths, &n, err) == MIST_OK &&
        mist_data_open((const char *const *)paths, n, &data, err) == MIST_OK &&
        mist_data_check(data, 257, 96, err) != MIST_OK) {
        mist_data_close(data);
        data = NULL;
    }
    mist_data_free_paths(paths, n);
    return data;
}

static inline enum mist_status training_open_run(struct training_child *child,
                                                 struct mist_err *err)
{
    const struct mist_plan *plan = &child->run->plan;
    struct mist_train_config config = {.seed = TRAINING_SEED,
                                       .n_threads = mist_plan_n_threads(plan),
                                       .is_serial = child->run->is_serial,
                                       .delay_seed = child->run->delay_seed,
                                       .graphs = child->run->graphs};
    struct mist_device_config arenas = {.threads = 1,
                                        .attention = MIST_ATTENTION_OWN,
                                        .streams_take_turns =
                                            child->run->delay_seed % 2 == 0};
    int64_t bytes = plan->job.global_batch * plan->job.seq_len * (int64_t)sizeof(int32_t);
    void *memory[2] = {NULL, NULL};
    enum mist_status status =
        mist_schedule_build(plan, mist_comm_rank(child->comm), mist_plan_n_threads(plan),
                            &child->schedule, err);

    if (status != MIST_OK)
        return status;
    memcpy(arenas.arena_bytes, child->schedule->arena_bytes, sizeof arenas.arena_bytes);
    arenas.result_bytes = mist_runtime_result_bytes(child->schedule);
    bool is_gpu = plan->job.computes_on_gpu;
    status = is_gpu ? mist_emulated_backend()->open_device(&arenas, &child->device, err)
                    : mist_device_open_cpu(&arenas, &child->device, err);
    for (int i = 0; i < 2 && status == MIST_OK; i++)
        status = mist_device_alloc_host(child->device, bytes, &memory[i], err);
    child->tokens = memory[0];
    child->targets = memory[1];
    if (status == MIST_OK)
        status = mist_collectives_open_host(child->comm, is_gpu ? child->device : NULL,
                                            &child->collectives, err);
    if (status != MIST_OK)
        return status;
    mist_comm_set_pause(child->comm, mist_device_pause, child->device);
    struct mist_runtime_parts parts = {child->device, child->comm, child->collectives,
                                       is_gpu ? mist_emulated_backend()->operators
                                              : &mist_operators_cpu};
    return mist_runtime_new(plan, child->schedule, &parts, &config, child->run->n_steps,
                            &child->runtime, err);
}

static inline void training_close_run(struct training_child *child)
{
    mist_comm_set_pause(child->comm, NULL, NULL);
    mist_runtime_free(child->runtime);
    mist_collectives_close(child->collectives);
    mist_device_free_host(child->device, child->tokens);
    mist_device_free_host(child->device, child->targets);
    mist_device_close(child->device);
    mist_schedule_free(child->schedule);
    child->runtime = NULL;
    child->collectives = NULL;
    child->device = NULL;
    child->schedule = NULL;
    child->tokens = child->targets = NULL;
}

/* Of n samples the i-th and the i-th last of 2 cp equal pieces, in place. */
static inline void training_take_part(int32_t *ids, int64_t n, int64_t seq, int32_t cp,
                                      int32_t i)
{
    int64_t length = seq / (2 * cp), to = 0;

    for (int64_t k = 0; k < n * seq; k++) {
        int64_t piece = k % seq / length;
        if (piece == i || piece == 2 * cp - 1 - i)
            ids[to++] = ids[k];
    }
}

/* Samples of micro-batch k: the k-th share of the step's, and of that this rank's. */
static inline enum mist_status training_load(struct training_child *child, int32_t i_step,
                                             struct mist_err *err)
{
    const struct mist_plan *plan = &child->run->plan;
    const struct mist_stage_plan *stage = &plan->stages[child->schedule->i_stage];
    enum mist_status status = MIST_OK;
    int64_t b = stage->micro_batch, seq = plan->job.seq_len;

    for (int64_t k = 0; k < plan->n_micro_batches && status == MIST_OK; k++) {
        status = mist_data_batch(
            child->data, TRAINING_SEED,
            i_step * plan->job.global_batch +
                (k * stage->dp + child->schedule->at[MIST_AXIS_DP]) * b,
            seq, b, child->tokens + k * b * seq, child->targets + k * b * seq, err);
    }
    if (stage->cp > 1) { /* tokens of whole samples close up to those of this rank */
        training_take_part(child->tokens, plan->n_micro_batches * b, seq, stage->cp,
                           child->schedule->at[MIST_AXIS_CP]);
        training_take_part(child->targets, plan->n_micro_batches * b, seq, stage->cp,
                           child->schedule->at[MIST_AXIS_CP]);
    }
    return status;
}

static inline enum mist_status training_step(struct training_child *child, int32_t i_step,
                                             struct mist_err *err)
{
    const struct mist_plan *plan = &child->run->plan;
    bool is_first = child->schedule->i_stage == 0;
    bool is_last = child->schedule->i_stage == mist_plan_head_stage(plan);
    struct mist_step_result result;
    enum mist_status status = training_load(child, i_step, err);

    if (status == MIST_OK)
        status = mist_runtime_step(child->runtime, is_first ? child->tokens : NULL,
                                   is_last ? child->targets : NULL, &result, err);
    if (status != MIST_OK)
        return status;
    double clip = child->run->clip_norm, norm = result.gradient_norm;
    struct mist_adamw_args args = {
        .lr = (float)TRAINING_LEARNING_RATE,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .epsilon = 1e-8f,
        .weight_decay = 0.1f,
        .t = i_step + 1,
        .gradient_scale = clip > 0 && norm > clip ? (float)(clip / norm) : 1,
    };
    mist_runtime_set_update(child->runtime, &args,
                            i_step + 1 == child->run->skipped_step);
    child->outcome.losses[i_step] =
        result.loss_sum / (double)(plan->job.global_batch * plan->job.seq_len);
    child->outcome.norms[i_step] = norm;
    return MIST_OK;
}

/* The loss of the step's batch once more, behind the update: finite, and all it does. */
static inline enum mist_status training_evaluate(struct training_child *child,
                                                 int32_t i_step, struct mist_err *err)
{
    struct mist_step_result result = {.loss_sum = NAN};
    enum mist_status status = mist_runtime_apply(child->runtime, err);

    if (status == MIST_OK)
        status = mist_runtime_evaluate(child->runtime, child->tokens, child->targets,
                                       &result, err);
    if (status == MIST_OK && !isfinite(result.loss_sum))
        status = mist_err_set(err, MIST_ERR_RUN, "no loss after step %d", (int)i_step);
    return status;
}

/* Adds up what every element says of itself: neither order nor place matters. */
static inline enum mist_status training_add_piece(void *context,
                                                  const struct mist_state_piece *piece,
                                                  const void *data, struct mist_err *err)
{
    struct training_rank *rank = context;
    const struct mist_param_span *span = &piece->span;
    uint64_t stream = (uint64_t)piece->layer * MIST_MAX_PARAMS + (uint64_t)piece->i_param;
    const uint32_t *bits = data;

    (void)err;
    for (int64_t i = 0; i < span->n_runs; i++)
        for (int64_t k = 0; k < span->length; k++)
            rank->fingerprints[piece->kind] += mist_random_at(
                bits[i * span->length + k], stream,
                (uint64_t)(span->global_first + i * span->global_stride + k));
    if (piece->kind == MIST_STATE_WEIGHT)
        rank->n_elements += mist_state_piece_elements(piece);
    return MIST_OK;
}

static inline enum mist_status training_gather(struct training_child *child,
                                               struct mist_err *err)
{
    struct training_outcome *outcome = &child->outcome;
    struct training_rank mine = {0};
    int64_t sizes[TRAINING_MAX_RANKS];
    char *all = NULL;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < MIST_N_ARENAS; i++)
        mine.arena_bytes[i] =
            mist_device_arena_bytes(child->device, (enum mist_buffer_arena)i);
    for (int kind = 0; kind < 3 && status == MIST_OK; kind++) {
        struct mist_state_choice choice = {.kind = (enum mist_state_kind)kind,
                                           .is_owned_only = true};
        status = mist_runtime_read_state(child->runtime, &choice, training_add_piece,
                                         &mine, err);
    }
    if (status == MIST_OK)
        status =
            mist_comm_gather_bytes(child->comm, &mine, sizeof mine, &all, sizes, err);
    for (int32_t i = 0; all && i < mist_comm_n_ranks(child->comm); i++) {
        struct training_rank *rank = &outcome->ranks[i];
        memcpy(rank, all + (size_t)i * sizeof *rank, sizeof *rank);
        outcome->n_elements += rank->n_elements;
        for (int kind = 0; kind < 3; kind++)
            outcome->fingerprints[kind] += rank->fingerprints[kind];
    }
    free(all);
    return status;
}

static inline enum mist_status training_make_run(struct training_child *child,
                                                 struct mist_err *err)
{
    enum mist_status status = training_open_run(child, err);
    int n_replays = mist_emulated_n_replays();

    memset(&child->outcome, 0, sizeof child->outcome);
    for (int32_t i = 0; i < child->run->n_steps && status == MIST_OK; i++) {
        status = training_step(child, i, err);
        if (status == MIST_OK && child->run->evaluates_every > 0 &&
            (i + 1) % child->run->evaluates_every == 0)
            status = training_evaluate(child, i, err);
    }
    child->outcome.n_replays = mist_emulated_n_replays() - n_replays;
    if (status == MIST_OK)
        status = mist_runtime_apply(child->runtime, err);
    if (status == MIST_OK)
        status = training_gather(child, err);
    return status;
}

/* All runs of in, outcomes to out (rank 0; else NULL). */
static inline enum mist_status training_make_runs(struct training_child *child, FILE *in,
                                                  FILE *out, struct mist_err *err)
{
    static struct training_run run;

    child->run = &run;
    while (fread(&run, sizeof run, 1, in) == 1) {
        enum mist_status status = training_make_run(child, err);
        if (status != MIST_OK) {
            fprintf(stderr, "rank %d, \"%s\": %s\n", (int)mist_comm_rank(child->comm),
                    run.text, err->message);
            return status;
        }
        training_close_run(child);
        if (out && (fwrite(&child->outcome, sizeof child->outcome, 1, out) != 1 ||
                    fflush(out) != 0))
            return mist_err_set(err, MIST_ERR_IO, "can't write outcomes");
    }
    return MIST_OK;
}

/* main of a rank: folder/runs to folder/outcomes. Returns the exit code. */
static inline int training_child_main(const char *folder)
{
    struct mist_err err = {0};
    struct training_child child = {.data = training_open_data(&err)};
    char path[512];
    FILE *in, *out = NULL;

    snprintf(path, sizeof path, "%s/runs", folder);
    in = fopen(path, "rb");
    if (!in || !child.data || mist_comm_open(&child.comm, &err) != MIST_OK) {
        fprintf(stderr, "%s: %s\n", folder, err.message);
        return 1;
    }
    mist_comm_set_deadline(child.comm, 60);
    snprintf(path, sizeof path, "%s/outcomes", folder);
    bool is_first = mist_comm_rank(child.comm) == 0;
    if (is_first)
        out = fopen(path, "wb");
    if ((is_first && !out) || training_make_runs(&child, in, out, &err) != MIST_OK) {
        if (mist_comm_n_ranks(child.comm) > 1)
            mist_comm_abort(child.comm, 1);
        return 1;
    }
    fclose(in);
    if (out && fclose(out) != 0)
        return 1;
    mist_comm_close(child.comm);
    mist_data_close(child.data);
    return 0;
}

/* The main function of such a program. */
#define TRAINING_MAIN                                                                    \
    int main(int argc, char **argv)                                                      \
    {                                                                                    \
        if (argc == 3 && strcmp(argv[1], "child") == 0)                                  \
            return training_child_main(argv[2]);                                         \
        return run_listed_tests(NULL, NULL);                                             \
    }

#endif

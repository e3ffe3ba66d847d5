/* Prints explanations. See explain.h. */
#include "sim/explain/explain.h"

void mist_speed_emit(struct mist_emit *emit, const struct mist_speed *speed, bool has_all)
{
    mist_emit_int64(emit, "parameters", "parameters of the model", speed->n_parameters,
                    MIST_HUMAN_COUNT);
    if (has_all)
        mist_emit_double(emit, "tokens_per_s", "tokens/s", speed->tokens_per_s,
                         MIST_HUMAN_COUNT);
    mist_emit_double(emit, "tokens_per_s_per_device", "tokens/s of a device",
                     speed->tokens_per_s_per_device, MIST_HUMAN_COUNT);
    if (has_all)
        mist_emit_double(emit, "flop_per_s_per_device", "FLOP/s of a device",
                         speed->flop_per_s_per_device, MIST_HUMAN_FLOP_PER_S);
    if (speed->model_frac > 0)
        mist_emit_number(emit, "model_flop_utilisation_frac",
                         "model FLOP utilisation (MFU)", speed->model_frac);
    if (speed->hardware_frac > 0 && has_all)
        mist_emit_number(emit, "hardware_flop_utilisation_frac",
                         "with recomputation (HFU)", speed->hardware_frac);
}

static void emit_stage(struct mist_emit *emit, const struct mist_explanation *of,
                       int32_t i_stage)
{
    mist_emit_integer(emit, "stage", "stage", i_stage);
    mist_emit_integer(emit, "rank", "rank", of->stages[i_stage].rank);
}

/* i_stage -1: the mean of all. */
static void emit_times(struct mist_emit *emit, const struct mist_explanation *of,
                       int32_t i_stage)
{
    const double *time_s = i_stage < 0 ? of->mean_s : of->stages[i_stage].time_s;

    for (int c = 0; c < MIST_N_TIME_CLASSES; c++) {
        if (i_stage < 0 && time_s[c] <= 0)
            continue;
        mist_emit_object_begin(emit, NULL, NULL);
        if (i_stage >= 0) {
            emit_stage(emit, of, i_stage);
            mist_emit_text(emit, "of", "of", "time");
        }
        mist_emit_text(emit, "part", "time",
                       mist_time_class_label((enum mist_time_class)c));
        mist_emit_number(emit, "time_s", "of a device", time_s[c]);
        mist_emit_number(emit, "frac", "share", time_s[c] / of->iteration_s);
        mist_emit_object_end(emit);
    }
}

/* The sum of the rows above. */
static void emit_total(struct mist_emit *emit, double iteration_s)
{
    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "part", "time", "iteration");
    mist_emit_number(emit, "time_s", "of a device", iteration_s);
    mist_emit_number(emit, "frac", "share", 1);
    mist_emit_object_end(emit);
}

static void emit_memory_row(struct mist_emit *emit, const struct mist_explanation *of,
                            int32_t i_stage, const char *kind, const char *part,
                            const char *tensor, int64_t bytes, int64_t all_bytes,
                            bool is_human)
{
    mist_emit_object_begin(emit, NULL, NULL);
    if (!is_human) {
        emit_stage(emit, of, i_stage);
        mist_emit_text(emit, "of", "of", kind);
    }
    mist_emit_text(emit, "part", "memory", part);
    mist_emit_text(emit, "tensor", "tensor", tensor);
    mist_emit_integer(emit, "bytes", "bytes", bytes);
    mist_emit_number(emit, "frac", "share of the arena",
                     all_bytes > 0 ? (double)bytes / (double)all_bytes : 0);
    mist_emit_object_end(emit);
}

static void emit_memory(struct mist_emit *emit, const struct mist_explanation *of,
                        int32_t i_stage, enum mist_buffer_arena arena, bool is_human)
{
    const struct mist_explained_memory *memory = &of->stages[i_stage].memory[arena];
    const struct mist_beside_arena *beside = &of->stages[i_stage].beside;
    const struct {
        const char *part;
        int64_t bytes;
    } rows[] = {
        {"kept by the framework", beside->kept_bytes},
        {"held by the allocator", beside->held_bytes},
        {"runtime", beside->runtime_bytes},
    };
    const char *kind = arena == MIST_ARENA_DEVICE ? "device memory" : "host memory";

    for (int32_t i = 0; i < memory->n_parts; i++)
        emit_memory_row(emit, of, i_stage, kind,
                        mist_content_label(memory->parts[i].content),
                        memory->parts[i].tensor, memory->parts[i].bytes,
                        memory->arena_bytes, is_human);
    if (is_human)
        emit_memory_row(emit, of, i_stage, kind, "arena", "", memory->arena_bytes,
                        memory->arena_bytes, true);
    for (size_t k = 0; k < sizeof rows / sizeof *rows && arena == MIST_ARENA_DEVICE; k++)
        if (rows[k].bytes > 0)
            emit_memory_row(emit, of, i_stage, "beside the arena", rows[k].part, "",
                            rows[k].bytes, memory->arena_bytes, is_human);
}

static int32_t find_fullest(const struct mist_explanation *of,
                            enum mist_buffer_arena arena)
{
    int32_t best = 0;

    for (int32_t i = 1; i < of->n_stages; i++)
        if (of->stages[i].memory[arena].arena_bytes >
            of->stages[best].memory[arena].arena_bytes)
            best = i;
    return best;
}

static void emit_for_people(struct mist_emit *emit, const struct mist_explanation *of)
{
    static const char *const names[MIST_N_ARENAS] = {"device memory", "host memory"};
    char title[64];

    mist_emit_list_begin(
        emit, "explained_time",
        of->has_equal_ranks ? "Where the time goes, mean of all devices"
                            : "Where the time goes, mean of the stages' busiest devices");
    emit_times(emit, of, -1);
    emit_total(emit, of->iteration_s);
    mist_emit_list_end(emit);
    for (int k = 0; k < MIST_N_ARENAS; k++) {
        int32_t i_stage = find_fullest(of, (enum mist_buffer_arena)k);
        if (of->stages[i_stage].memory[k].n_parts == 0)
            continue;
        snprintf(title, sizeof title, "What is in %s at its peak, stage %d", names[k],
                 (int)i_stage);
        mist_emit_list_begin(emit, names[k], title);
        emit_memory(emit, of, i_stage, (enum mist_buffer_arena)k, true);
        mist_emit_list_end(emit);
    }
}

void mist_explanation_emit(struct mist_emit *emit, enum mist_emit_kind kind,
                           const struct mist_explanation *explanation)
{
    if (kind == MIST_EMIT_TABLE) {
        emit_for_people(emit, explanation);
        return;
    }
    mist_emit_list_begin(emit, "explained", NULL);
    for (int32_t i = 0; i < explanation->n_stages; i++) {
        emit_times(emit, explanation, i);
        for (int k = 0; k < MIST_N_ARENAS; k++)
            emit_memory(emit, explanation, i, (enum mist_buffer_arena)k, false);
    }
    mist_emit_list_end(emit);
}

/*
 * The pieces of a rank's state, under random plans: over all ranks every element of every
 * parameter is there exactly once where pieces are owned, at least once where they are
 * not; and what is written through the pieces lies where the storage of the module, an
 * obvious cut of the parameters over tensor-parallel ranks and equal shares of the slabs
 * over data-parallel ranks say, on the arena that the plan says; padding stays 0.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "exec/operators/cpu_bf16.h"
#include "exec/runtime/initial.h"
#include "exec/runtime/state.h"
#include "tests/unit/pick.h"
#include "tests/unit/remote_device.h"
#include "tests/unit/tiny_models.h"

#include <math.h>

enum { N_PLANS = 60, MAX_LAYERS = 6, N_SAMPLES = 12, SEED = 5 };

struct world {
    struct mist_plan plan;
    struct mist_layer_layout whole[MIST_N_LAYER_KINDS]; /* tp = 1 */
    int32_t *counts[MAX_LAYERS + 2][MIST_MAX_PARAMS];   /* by element; NULL: none */
    const struct mist_schedule *schedule;               /* of the rank that is walked */
    struct mist_device *device;
    enum mist_state_kind kind;
};

static double draw_fraction(struct mist_random *random)
{
    int which = pick(random, 0, 3);

    return which == 0 ? 0 : which == 1 ? 1 : mist_random_uniform(random);
}

/* ---------------------------------------------------------------------------- plans */

static struct mist_model draw_model(struct mist_random *random)
{
    static const enum mist_family families[] = {MIST_FAMILY_GPT, MIST_FAMILY_LLAMA,
                                                MIST_FAMILY_FALCON};
    enum mist_family family = families[pick(random, 0, 2)];
    struct mist_model model = mist_tiny_model(family, pick(random, 3, MAX_LAYERS));

    model.ffn = 40;
    if (family == MIST_FAMILY_FALCON) {
        model.n_kv_heads = pick(random, 1, 2);
        model.max_seq = 0;
        model.has_bias = pick(random, 0, 1);
        model.rope_theta = 10000;
    }
    model.ties_embeddings = pick(random, 0, 1);
    return model;
}

static void draw_stage(struct mist_random *random, const struct mist_model *model,
                       struct mist_stage_plan *stage)
{
    bool is_grouped = model->n_kv_heads == 2;
    int zero = pick(random, 0, 3);

    stage->dp = pick(random, 1, 4);
    stage->tp = 1 << pick(random, 0, is_grouped ? 1 : 2);
    stage->micro_batch = N_SAMPLES / stage->dp;
    stage->n_nodes = 1;
    stage->n_devices = stage->dp * stage->tp;
    stage->zero = zero;
    stage->is_sequence_parallel = stage->tp > 1 && pick(random, 0, 1);
    stage->offload_weights = draw_fraction(random);
    stage->offload_gradients = draw_fraction(random);
    stage->offload_optimizer = draw_fraction(random);
    stage->updates_on_host = stage->offload_optimizer > 0 && pick(random, 0, 1);
}

static void draw_plan(struct mist_random *random, struct mist_plan *plan)
{
    struct mist_err err = {0};
    int n = pick(random, 1, 3);

    *plan = (struct mist_plan){
        .model = draw_model(random),
        .job = {.global_batch = N_SAMPLES,
                .seq_len = 4,
                .dtype = pick(random, 0, 1) ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32},
        .n_micro_batches = 1,
        .n_stages = n,
    };
    int32_t n_left = plan->model.n_layers;
    for (int i = 0; i < n; i++) {
        draw_stage(random, &plan->model, &plan->stages[i]);
        plan->stages[i].n_layers =
            i == n - 1 ? n_left : pick(random, 1, n_left - n + i + 1);
        n_left -= plan->stages[i].n_layers;
    }
    if (plan->model.ties_embeddings && n > 1) {
        int32_t n_layers = plan->stages[n - 1].n_layers;
        plan->stages[n - 1] = plan->stages[0];
        plan->stages[n - 1].n_layers = n_layers;
    }
    if (n == 2 && plan->stages[0].n_layers % 2 == 0 &&
        plan->stages[1].n_layers % 2 == 0) {
        plan->pipeline =
            pick(random, 0, 1) ? MIST_PIPELINE_INTERLEAVED : MIST_PIPELINE_ZB_V;
        plan->n_chunks = 2;
        plan->n_micro_batches = 2;
        plan->job.global_batch = 2 * N_SAMPLES;
    }
    must(mist_plan_check(plan, &err), &err);
}

/* The whole parameters of the model, and room to count their elements. */
static void open_world(struct world *at)
{
    struct mist_layer_shape shape = {.micro_batch = 1, .seq = 4, .tp = 1, .threads = 1};
    struct mist_err err = {0};

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        assert_int_equal(mist_layer_layout_make(&at->plan.model,
                                                (enum mist_layer_kind)kind, shape,
                                                &at->whole[kind], &err),
                         MIST_OK);
    for (int32_t layer = 0; layer <= at->plan.model.n_layers + 1; layer++) {
        const struct mist_layer_layout *layout =
            &at->whole[mist_schedule_layer_kind(&at->plan.model, layer)];
        for (int32_t i = 0; i < layout->n_params; i++)
            if (!layout->params[i].is_tied) {
                at->counts[layer][i] = calloc((size_t)layout->params[i].n_elements,
                                              sizeof *at->counts[layer][i]);
                assert_non_null(at->counts[layer][i]);
            }
    }
}

static void close_world(struct world *at)
{
    for (int32_t layer = 0; layer < MAX_LAYERS + 2; layer++)
        for (int32_t i = 0; i < MIST_MAX_PARAMS; i++)
            free(at->counts[layer][i]);
}

static const struct mist_layer_layout *whole_of(const struct world *at, int32_t layer)
{
    return &at->whole[mist_schedule_layer_kind(&at->plan.model, layer)];
}

/* --------------------------------------------------------------------------- pieces */

/* What is written for an element: 1 .. 255, which bf16 holds, too. */
static float value_of(enum mist_state_kind kind, int32_t layer, int32_t i_param,
                      int64_t element)
{
    uint64_t stream = (uint64_t)(layer * MIST_MAX_PARAMS + i_param);

    return (float)(1 + mist_random_at((uint64_t)kind, stream, (uint64_t)element) % 255);
}

static enum mist_status count_piece(void *context, const struct mist_state_piece *piece,
                                    const void *data, struct mist_err *err)
{
    struct world *at = context;
    const struct mist_param_span *span = &piece->span;
    const struct mist_layer_layout *whole = whole_of(at, piece->layer);

    (void)data;
    (void)err;
    assert_string_equal(piece->param_name, whole->params[piece->i_param].name);
    assert_int_equal(piece->kind, at->kind);
    assert_true(span->length > 0 && span->n_runs > 0);
    for (int64_t i = 0; i < span->n_runs; i++)
        for (int64_t k = 0; k < span->length; k++) {
            int64_t element = span->global_first + i * span->global_stride + k;
            assert_in_range(element, 0, whole->params[piece->i_param].n_elements - 1);
            at->counts[piece->layer][piece->i_param][element]++;
        }
    return MIST_OK;
}

static enum mist_status write_piece(void *context, const struct mist_state_piece *piece,
                                    void *data, struct mist_err *err)
{
    const struct mist_param_span *span = &piece->span;

    (void)context;
    (void)err;
    for (int64_t i = 0; i < span->n_runs; i++)
        for (int64_t k = 0; k < span->length; k++) {
            float value = value_of(piece->kind, piece->layer, piece->i_param,
                                   span->global_first + i * span->global_stride + k);
            if (piece->kind == MIST_STATE_COMPUTE_WEIGHT)
                mist_cpu_bf16_from_float((mist_bf16 *)data + i * span->length + k, &value,
                                         1);
            else
                ((float *)data)[i * span->length + k] = value;
        }
    return MIST_OK;
}

static float read_element(const void *data, int64_t i, bool is_bf16)
{
    uint32_t bits;
    float value;

    if (!is_bf16)
        return ((const float *)data)[i];
    bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What was written through all pieces is read through the owned ones. */
static enum mist_status read_piece(void *context, const struct mist_state_piece *piece,
                                   const void *data, struct mist_err *err)
{
    const struct mist_param_span *span = &piece->span;
    bool is_bf16 = piece->kind == MIST_STATE_COMPUTE_WEIGHT;

    (void)context;
    (void)err;
    for (int64_t i = 0; i < span->n_runs; i++)
        for (int64_t k = 0; k < span->length; k++) {
            float expected = value_of(piece->kind, piece->layer, piece->i_param,
                                      span->global_first + i * span->global_stride + k);
            assert_true(read_element(data, i * span->length + k, is_bf16) == expected);
        }
    return MIST_OK;
}

/* -------------------------------------------------------------------------- places */

/* The whole parameter's element at element k of a rank's part; -1: padding. */
static int64_t whole_element(const struct mist_param_shape *shape, int32_t tp,
                             int32_t i_tp, int64_t k)
{
    int64_t columns = shape->columns, section_row = 0, local_row = 0;

    if (shape->split == MIST_SPLIT_NONE)
        return k;
    if (shape->split == MIST_SPLIT_COLUMNS) {
        int64_t part = columns / tp;
        return k / part * columns + i_tp * part + k % part;
    }
    for (int32_t i = 0; i < shape->n_sections; i++) {
        int64_t unit = shape->section_unit[i], n_units = shape->section_rows[i] / unit;
        int64_t n_here = (n_units + tp - 1) / tp, row = k / columns - local_row;
        if (row < n_here * unit) {
            bool is_shared = unit > 1 && n_units < tp; /* one head on several ranks */
            int64_t at = (is_shared ? i_tp * n_units / tp : i_tp * n_here) + row / unit;
            return at < n_units
                       ? (section_row + at * unit + row % unit) * columns + k % columns
                       : -1;
        }
        local_row += n_here * unit;
        section_row += shape->section_rows[i];
    }
    fail_msg("element %lld is beyond the parameter", (long long)k);
    return -1;
}

/* Where a kind of state of a slab is, and which elements of the slab. */
struct place {
    const char *data; /* NULL: not here */
    int64_t first, n;
    bool is_bf16;
};

static struct place find_place(const struct world *at, int32_t layer, int32_t i_slab)
{
    bool is_mixed = at->plan.job.dtype == MIST_DTYPE_BF16;
    bool is_state = at->kind == MIST_STATE_MOMENT1 || at->kind == MIST_STATE_MOMENT2 ||
                    (at->kind == MIST_STATE_WEIGHT && is_mixed);
    const struct mist_slab *slab =
        &mist_schedule_storage(at->schedule, layer)->slabs[i_slab];
    const struct mist_stage_plan *stage = &at->plan.stages[at->schedule->i_stage];
    int32_t id = mist_schedule_find_buffer(
        at->schedule, layer,
        (enum mist_role)(is_state ? MIST_ROLE_STATE : MIST_ROLE_WEIGHTS + (int)i_slab),
        i_slab);
    bool is_shard = stage->zero >= (is_state ? 1 : 3);
    struct place place = {.n = slab->n_elements / (is_shard ? stage->dp : 1)};

    if (id < 0 || (at->kind == MIST_STATE_COMPUTE_WEIGHT && !is_mixed))
        return (struct place){0};
    const struct mist_buffer *buffer = &at->schedule->buffers[id];
    bool is_host = is_state ? slab->offloads_state : slab->offloads_weights;
    assert_int_equal(buffer->arena, is_host ? MIST_ARENA_HOST : MIST_ARENA_DEVICE);
    place.data =
        (const char *)mist_device_arena(at->device, buffer->arena) + buffer->offset_bytes;
    place.first = is_shard ? place.n * at->schedule->i_replica : 0;
    place.is_bf16 = !is_state && is_mixed;
    if (is_state) /* first moments, second moments, master weights */
        place.data += place.n * (int64_t)sizeof(float) *
                      (at->kind == MIST_STATE_WEIGHT    ? 2
                       : at->kind == MIST_STATE_MOMENT2 ? 1
                                                        : 0);
    return place;
}

/* Every element of a module's parameters that lies here has the value of its place in the
 * whole parameter; padding has kept its 0. Returns how many were looked at. */
static int64_t check_module(const struct world *at, int32_t layer)
{
    const struct mist_layer_layout *layout =
        &at->schedule->layouts[mist_schedule_layer_kind(&at->plan.model, layer)];
    const struct mist_module_storage *storage =
        mist_schedule_storage(at->schedule, layer);
    int32_t tp = at->plan.stages[at->schedule->i_stage].tp;
    int64_t n_seen = 0;

    for (int32_t i = 0; i < layout->n_params; i++) {
        struct place place = find_place(at, layer, storage->param_slab[i]);
        bool is_tied = layout->params[i].is_tied;
        for (int64_t k = 0; place.data && k < layout->params[i].n_elements; k++) {
            int64_t in_slab = storage->param_offset[i] + k - place.first;
            int64_t element = whole_element(&layout->params[i].shape, tp,
                                            at->schedule->at[MIST_AXIS_TP], k);
            if (in_slab < 0 || in_slab >= place.n)
                continue;
            float expected = element < 0 ? 0
                                         : value_of(at->kind, is_tied ? 0 : layer,
                                                    is_tied ? 0 : i, element);
            assert_true(read_element(place.data, in_slab, place.is_bf16) == expected);
            n_seen++;
        }
    }
    return n_seen;
}

/* --------------------------------------------------------------------------- ranks */

/* Every element is the draw of its own number in the whole parameter. */
static enum mist_status check_drawn(void *context, const struct mist_state_piece *piece,
                                    const void *data, struct mist_err *err)
{
    const struct world *at = context;
    const struct mist_param_span *span = &piece->span;
    double deviation = piece->init == MIST_INIT_NORMAL_RESIDUAL
                           ? 0.02 / sqrt(2.0 * at->plan.model.n_layers)
                           : 0.02;
    uint64_t stream = (uint64_t)(piece->layer * MIST_MAX_PARAMS + piece->i_param);

    (void)err;
    for (int64_t i = 0; i < span->n_runs * span->length; i++) {
        int64_t element = span->global_first + i / span->length * span->global_stride +
                          i % span->length;
        float value =
            (float)(deviation * mist_random_normal_at(SEED, stream, (uint64_t)element));
        if (piece->init == MIST_INIT_ONES || piece->init == MIST_INIT_ZEROS)
            value = piece->init == MIST_INIT_ONES;
        mist_bf16 rounded;
        mist_cpu_bf16_from_float(&rounded, &value, 1);
        if (piece->kind == MIST_STATE_COMPUTE_WEIGHT)
            assert_int_equal(((const mist_bf16 *)data)[i], rounded);
        else
            assert_true(((const float *)data)[i] == value);
    }
    return MIST_OK;
}

/* Slabs of weights that updates on the host have there, too. */
static int n_host_copies(const struct mist_schedule *schedule)
{
    int n = 0;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        n += buffer->is_persistent && buffer->role >= MIST_ROLE_WEIGHTS &&
             buffer->role < MIST_ROLE_WEIGHTS + MIST_MAX_SLABS &&
             mist_schedule_find_host_copy(schedule, buffer->layer, buffer->role,
                                          buffer->slab) == i;
    }
    return n;
}

/* Draws the parameters of a rank where they lie; the host's copies follow them. */
static void draw_rank(struct world *at, struct remote_device *remote)
{
    static const enum mist_state_kind kinds[] = {MIST_STATE_WEIGHT,
                                                 MIST_STATE_COMPUTE_WEIGHT};
    struct mist_initial_parts parts = {at->device, &mist_operators_cpu, NULL, 2};
    struct mist_err err = {0};

    remote->n_reads = remote->n_writes = 0;
    must(mist_initial_fill(&at->plan, at->schedule, &parts, SEED, &err), &err);
    assert_int_equal(remote->n_writes, 0);
    assert_int_equal(remote->n_reads, remote_device ? n_host_copies(at->schedule) : 0);
    for (int i = 0; i < 2; i++) {
        struct mist_state_choice all = {.kind = kinds[i]};
        must(mist_state_read(&at->plan, at->schedule, at->device, &all, check_drawn, at,
                             &err),
             &err);
    }
}

/* Walks one rank, every other one with memory that is not the host's; returns the
 * elements whose places were looked at. */
static int64_t walk_rank(struct world *at, int32_t rank, bool is_owned_only)
{
    struct mist_schedule *schedule = NULL;
    struct mist_device *device = NULL;
    struct mist_device_config arenas = {.threads = 1};
    struct remote_device remote = {0};
    bool is_remote = (rank + is_owned_only) % 2 == 0;
    struct mist_state_choice counted = {.kind = at->kind, .is_owned_only = is_owned_only};
    struct mist_state_choice owned = {.kind = at->kind, .is_owned_only = true};
    struct mist_err err = {0};
    int64_t n_seen = 0;

    must(mist_schedule_build(&at->plan, rank, 1, &schedule, &err), &err);
    memcpy(arenas.arena_bytes, schedule->arena_bytes, sizeof arenas.arena_bytes);
    must(mist_device_open_cpu(&arenas, &device, &err), &err);
    at->schedule = schedule;
    at->device = device;
    if (is_remote)
        remote_device_set(&remote, device);
    must(mist_state_read(&at->plan, schedule, device, &counted, count_piece, at, &err),
         &err);
    must(mist_state_write(&at->plan, schedule, device, at->kind, false, write_piece, at,
                          &err),
         &err);
    must(mist_state_read(&at->plan, schedule, device, &owned, read_piece, at, &err),
         &err);
    for (int32_t m = 0; m < schedule->n_modules; m++)
        n_seen += check_module(at, schedule->modules[m]);
    draw_rank(at, &remote);
    if (is_remote)
        remote_device_unset(&remote);
    mist_device_close(device);
    mist_schedule_free(schedule);
    return n_seen;
}

/* All elements of all parameters; returns how many. */
static int64_t check_counts(const struct world *at, bool is_owned_only)
{
    int64_t n = 0;

    for (int32_t layer = 0; layer <= at->plan.model.n_layers + 1; layer++)
        for (int32_t i = 0; i < MIST_MAX_PARAMS; i++)
            for (int64_t k = 0;
                 at->counts[layer][i] && k < whole_of(at, layer)->params[i].n_elements;
                 k++) {
                int32_t count = at->counts[layer][i][k];
                if (is_owned_only ? count != 1 : count < 1)
                    fail_msg("%s of layer %d, element %lld: %d times",
                             whole_of(at, layer)->params[i].name, (int)layer,
                             (long long)k, (int)count);
                n++;
            }
    return n;
}

TEST(test_random_plans)
{
    static struct world at;
    struct mist_random random;
    int64_t n_elements = 0, n_places = 0;

    mist_random_init(&random, test_seed(20254));
    for (int i = 0; i < N_PLANS; i++) {
        bool is_owned_only = i % 2 == 0;
        memset(&at, 0, sizeof at);
        draw_plan(&random, &at.plan);
        at.kind = at.plan.job.dtype == MIST_DTYPE_BF16
                      ? (enum mist_state_kind)pick(&random, 0, 3)
                      : (enum mist_state_kind)pick(&random, 0, 2);
        open_world(&at);
        for (int32_t rank = 0; rank < mist_plan_n_ranks(&at.plan); rank++)
            n_places += walk_rank(&at, rank, is_owned_only);
        n_elements += check_counts(&at, is_owned_only);
        close_world(&at);
    }
    printf("# %d plans, %lld elements, %lld places\n", N_PLANS, (long long)n_elements,
           (long long)n_places);
    assert_true(n_places >= n_elements);
}

/* ------------------------------------------------------------------- one small plan */

static struct mist_plan small_plan;

struct small {
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct remote_device remote;
};

static void open_small(struct small *at)
{
    struct mist_device_config arenas = {.threads = 1};
    struct mist_err err = {0};

    *at = (struct small){0};
    small_plan = (struct mist_plan){
        .model = mist_tiny_model(MIST_FAMILY_GPT, 2),
        .job = {.global_batch = 1, .seq_len = 4},
        .n_micro_batches = 1,
        .n_stages = 1,
        .stages = {mist_tiny_stage(2, 1, 1, 1)},
    };
    must(mist_schedule_build(&small_plan, 0, 1, &at->schedule, &err), &err);
    memcpy(arenas.arena_bytes, at->schedule->arena_bytes, sizeof arenas.arena_bytes);
    must(mist_device_open_cpu(&arenas, &at->device, &err), &err);
}

static void close_small(struct small *at)
{
    mist_device_close(at->device);
    mist_schedule_free(at->schedule);
}

static enum mist_status refuse_to_read(void *context,
                                       const struct mist_state_piece *piece,
                                       const void *data, struct mist_err *err)
{
    (void)context, (void)piece, (void)data;
    return mist_err_set(err, MIST_ERR_RUN, "stop");
}

/* fp32 has no other weights to compute with. */
TEST(test_stops_and_empty)
{
    const struct mist_state_choice none = {.kind = MIST_STATE_COMPUTE_WEIGHT};
    const struct mist_state_choice all = {.kind = MIST_STATE_WEIGHT};
    struct small at;
    struct mist_err err = {0};

    open_small(&at);
    must(mist_state_read(&small_plan, at.schedule, at.device, &none, refuse_to_read, NULL,
                         &err),
         &err);
    assert_int_equal(mist_state_read(&small_plan, at.schedule, at.device, &all,
                                     refuse_to_read, NULL, &err),
                     MIST_ERR_RUN);
    assert_string_equal(err.message, "stop");
    close_small(&at);
}

struct seen {
    int n_pieces;
    const char *param_name; /* NULL: any */
    bool is_remote;
};

static enum mist_status see_piece(void *context, const struct mist_state_piece *piece,
                                  const void *data, struct mist_err *err)
{
    struct seen *at = context;

    (void)data, (void)err;
    at->n_pieces++;
    assert_int_equal(piece->is_remote, at->is_remote);
    if (at->param_name) {
        assert_string_equal(piece->param_name, at->param_name);
        assert_int_equal(piece->layer, 1);
    }
    return MIST_OK;
}

static enum mist_status set_piece(void *context, const struct mist_state_piece *piece,
                                  void *data, struct mist_err *err)
{
    for (int64_t i = 0; i < mist_state_piece_elements(piece) && !piece->is_remote; i++)
        ((float *)data)[i] = 1;
    return see_piece(context, piece, data, err);
}

/* What is read is not written, what is written not read, and what is not asked for is
 * not touched. */
TEST(test_remote_memory)
{
    struct mist_state_choice choice = {.kind = MIST_STATE_WEIGHT, .is_owned_only = true};
    struct small at;
    struct seen seen = {0};
    struct mist_err err = {0};

    open_small(&at);
    remote_device_set(&at.remote, at.device);
    at.remote.refuses_writes = true;
    must(mist_state_read(&small_plan, at.schedule, at.device, &choice, see_piece, &seen,
                         &err),
         &err);
    int n_reads = at.remote.n_reads;
    assert_true(seen.n_pieces > n_reads && n_reads > 2);
    assert_int_equal(at.remote.n_writes, 0);

    seen = (struct seen){0};
    assert_int_equal(mist_state_write(&small_plan, at.schedule, at.device,
                                      MIST_STATE_WEIGHT, false, set_piece, &seen, &err),
                     MIST_ERR_IO);
    at.remote = (struct remote_device){.device = at.device, .ops = at.remote.ops};
    must(mist_state_write(&small_plan, at.schedule, at.device, MIST_STATE_WEIGHT, false,
                          set_piece, &seen, &err),
         &err);
    assert_int_equal(at.remote.n_writes, n_reads); /* nothing is tied: slab by slab */
    assert_int_equal(at.remote.n_reads, 0);

    at.remote.n_reads = at.remote.n_writes = 0;
    seen = (struct seen){.param_name = "qkv.weight"};
    choice.layer = 1;
    choice.param_name = seen.param_name;
    must(mist_state_read(&small_plan, at.schedule, at.device, &choice, see_piece, &seen,
                         &err),
         &err);
    assert_true(seen.n_pieces > 0 && at.remote.n_reads == 1);

    at.remote.n_reads = 0;
    seen = (struct seen){.is_remote = true};
    must(mist_state_write(&small_plan, at.schedule, at.device, MIST_STATE_WEIGHT, true,
                          set_piece, &seen, &err),
         &err);
    assert_true(seen.n_pieces > 0);
    assert_int_equal(at.remote.n_reads + at.remote.n_writes, 0);
    remote_device_unset(&at.remote);
    close_small(&at);
}

TEST_MAIN(NULL, NULL)

/* Which messages a search space asks for, and between which ranks. See grid.h. */
#include "core/memory.h"
#include "profile/grid_internal.h"
#include "sim/schedule/module_storage.h"

static const int64_t smallest_message_bytes = 4096;
static const int64_t smallest_copy_bytes = 1024; /* token ids of a small batch */
/* The series of sizes reaches the model's largest message, but within these. */
static const int64_t least_largest_bytes = 4 << 20, most_largest_bytes = 32 << 20;
static const int64_t most_copy_bytes = 1 << 30; /* both arenas must have room for it */

enum { SMALL_GROUPS = 8, SMALL_GROUPS_QUICK = 4 };

/* ----------------------------------------------------------------------------- groups */

int32_t mist_grid_group_ranks(const struct mist_group_shape *shape)
{
    return shape->nodes * shape->ranks_per_node;
}

int32_t mist_grid_members(const struct mist_grid_config *config,
                          const struct mist_group_shape *shape, int32_t rank,
                          int32_t *out)
{
    int32_t n_here = config->n_ranks / config->n_nodes; /* on each node */
    int32_t node = rank / n_here, place = rank % n_here, k = shape->ranks_per_node;
    int32_t first_node = node / shape->nodes * shape->nodes;
    int32_t step = shape->nodes > 1 ? shape->concurrent_groups : 1;
    int32_t group = shape->nodes > 1 ? place % step : place / k;
    int32_t first = shape->nodes > 1 ? group : group * k;
    int32_t n = 0;

    if (place >= k * shape->concurrent_groups ||
        first_node + shape->nodes > config->n_nodes)
        return 0;
    for (int32_t i = 0; i < shape->nodes; i++)
        for (int32_t j = 0; j < k; j++)
            out[n++] = (first_node + i) * n_here + first + j * step;
    return n;
}

/* Index of a shape, added when it is new; -1: out of memory. */
static int32_t add_shape(struct mist_grid *grid, int32_t nodes, int32_t ranks_per_node,
                         int32_t concurrent_groups)
{
    for (int32_t i = 0; i < grid->n_shapes; i++)
        if (grid->shapes[i].nodes == nodes &&
            grid->shapes[i].ranks_per_node == ranks_per_node &&
            grid->shapes[i].concurrent_groups == concurrent_groups)
            return i;
    if (!MIST_RESERVE(grid->shapes, grid->shapes_capacity, grid->n_shapes + 1))
        return -1;
    grid->shapes[grid->n_shapes] =
        (struct mist_group_shape){nodes, ranks_per_node, concurrent_groups};
    return grid->n_shapes++;
}

/* --------------------------------------------------------------------------- messages */

static bool add_message(struct mist_grid *grid, struct mist_grid_message message)
{

    for (int32_t i = 0; i < grid->n_messages; i++)
        if (grid->messages[i].operation == message.operation &&
            grid->messages[i].i_shape == message.i_shape &&
            grid->messages[i].bytes == message.bytes)
            return true;
    return MIST_APPEND(grid->messages, grid->messages_capacity, grid->n_messages,
                       message);
}

/* Of a group: rounded up to whole floats of every rank. */
static bool add_collective(struct mist_grid *grid, enum mist_link_operation operation,
                           int32_t i_shape, enum mist_dtype dtype, int64_t bytes)
{
    int64_t unit = 4 * (int64_t)mist_grid_group_ranks(&grid->shapes[i_shape]);

    return add_message(
        grid, (struct mist_grid_message){.operation = operation,
                                         .i_shape = i_shape,
                                         .bytes = (bytes + unit - 1) / unit * unit,
                                         .dtype = dtype});
}

/* What the tensor-parallel ranks of a variant say to one another in its programs. */
static bool add_activations(struct mist_grid *grid, int32_t i_shape,
                            const struct mist_step *steps, int32_t n)
{
    static const struct {
        enum mist_op op;
        enum mist_link_operation operation;
    } words[] = {{MIST_OP_TP_ALL_REDUCE, MIST_LINK_ALL_REDUCE},
                 {MIST_OP_TP_REDUCE_SCATTER, MIST_LINK_REDUCE_SCATTER},
                 {MIST_OP_TP_ALL_GATHER, MIST_LINK_ALL_GATHER}};

    for (int32_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (steps[i].op == words[k].op &&
                !add_collective(grid, words[k].operation, i_shape, grid->config.dtype,
                                steps[i].dims[0]))
                return false;
    return true;
}

static bool add_tensor_parallel(struct mist_grid *grid, int32_t i_shape)
{
    int32_t tp = mist_grid_group_ranks(&grid->shapes[i_shape]);

    for (int32_t v = 1; v < grid->n_variants; v++)
        for (int32_t i = 0; i < grid->config.n_micro_batches; i++)
            for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
                const struct mist_layer_layout *layout =
                    mist_grid_layout(grid, v, i, (enum mist_layer_kind)k);
                int64_t n_partial = 0;
                if (grid->variants[v].tp != tp)
                    continue;
                for (int32_t p = 0; p < layout->n_params; p++)
                    n_partial += layout->params[p].partial_elements;
                if (!add_activations(grid, i_shape, layout->forward, layout->n_forward) ||
                    !add_activations(grid, i_shape, layout->backward,
                                     layout->n_backward) ||
                    (n_partial > 0 && !add_collective(grid, MIST_LINK_ALL_REDUCE, i_shape,
                                                      MIST_DTYPE_FP32, 4 * n_partial)))
                    return false;
            }
    return true;
}

static const enum mist_link_operation collectives[] = {
    MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER, MIST_LINK_REDUCE_SCATTER};

enum { N_COLLECTIVES = sizeof collectives / sizeof *collectives };

/* Gradients and parameters of every module over data-parallel ranks. */
static bool add_data_parallel(struct mist_grid *grid, int32_t i_shape,
                              struct mist_plan *plan)
{
    int32_t dp = mist_grid_group_ranks(&grid->shapes[i_shape]);
    enum mist_dtype dtype = grid->config.dtype;

    for (int32_t v = 0; v < grid->n_variants; v++)
        for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
            struct mist_module_storage storage;
            if (grid->variants[v].tp * dp > grid->config.n_ranks)
                continue;
            mist_grid_store(grid, v, (enum mist_layer_kind)k, dp, plan, &storage);
            for (int i = 0; i < storage.n_slabs * N_COLLECTIVES; i++) {
                enum mist_link_operation operation = collectives[i % N_COLLECTIVES];
                int32_t element_bytes = operation == MIST_LINK_ALL_GATHER
                                            ? mist_dtype_weight_bytes(dtype)
                                            : mist_dtype_gradient_bytes(MIST_DTYPE_FP32);
                if (!add_collective(grid, operation, i_shape, MIST_DTYPE_FP32,
                                    element_bytes *
                                        storage.slabs[i / N_COLLECTIVES].n_elements))
                    return false;
            }
        }
    return true;
}

static bool add_series(struct mist_grid *grid, enum mist_link_operation operation,
                       int32_t i_shape, int64_t first_bytes, int64_t last_bytes)
{
    int64_t bytes = first_bytes;

    for (; bytes < last_bytes; bytes *= grid->config.is_quick ? 4 : 2)
        if (!add_collective(grid, operation, i_shape, MIST_DTYPE_FP32, bytes))
            return false;
    return add_collective(grid, operation, i_shape, MIST_DTYPE_FP32, last_bytes);
}

/* ------------------------------------------------------------------- what is measured */

/* Group sizes 2 .. n that are measured: small ones, powers of two, and all. */
static bool is_measured(const struct mist_grid *grid, int32_t size, int32_t most)
{
    int32_t small = grid->config.is_quick ? SMALL_GROUPS_QUICK : SMALL_GROUPS;

    return size <= small || size == most || (size & (size - 1)) == 0;
}

/* Groups at once: alone, as many as fit, and what is between by powers of two. */
static int32_t next_concurrency(const struct mist_grid *grid, int32_t n, int32_t most)
{
    int32_t next = grid->config.is_quick ? most : 2 * n;

    return next < most || n == most ? next : most;
}

static bool add_group(struct mist_grid *grid, int32_t nodes, int32_t ranks_per_node,
                      int32_t concurrent_groups, int64_t last_bytes,
                      struct mist_plan *plan)
{
    int32_t i_shape = add_shape(grid, nodes, ranks_per_node, concurrent_groups);
    bool fits = i_shape >= 0 && add_tensor_parallel(grid, i_shape) &&
                add_data_parallel(grid, i_shape, plan);

    for (int k = 0; k < N_COLLECTIVES && fits; k++)
        fits =
            add_series(grid, collectives[k], i_shape, smallest_message_bytes, last_bytes);
    if (!fits || mist_grid_group_ranks(&grid->shapes[i_shape]) != 2 ||
        (concurrent_groups > 1 && nodes == 1))
        return fits;
    for (int32_t i = 0; i < grid->config.n_micro_batches && fits; i++)
        fits = add_message(
            grid,
            (struct mist_grid_message){
                .operation = MIST_LINK_SEND_RECV,
                .i_shape = i_shape,
                .bytes = mist_grid_layout(grid, 0, i, MIST_LAYER_BLOCK)->input_bytes,
                .dtype = grid->config.dtype});
    return fits && add_series(grid, MIST_LINK_SEND_RECV, i_shape, smallest_message_bytes,
                              last_bytes);
}

/* All groups over a number of nodes. */
static bool add_groups(struct mist_grid *grid, int32_t nodes, int64_t last_bytes,
                       struct mist_plan *plan)
{
    int32_t n_here = grid->config.n_ranks / grid->config.n_nodes;

    for (int32_t k = nodes > 1 ? 1 : 2; k <= n_here; k++) {
        int32_t most = n_here / k;
        if (!is_measured(grid, k, n_here))
            continue;
        for (int32_t c = 1; c <= most; c = next_concurrency(grid, c, most)) {
            if (!add_group(grid, nodes, k, c, last_bytes, plan))
                return false;
            if (c == most)
                break;
        }
    }
    return true;
}

/* The largest activation or gradient message that the model asks for. */
static int64_t largest_of_model(const struct mist_grid *grid)
{
    int32_t last = grid->config.n_micro_batches - 1;
    int64_t most = mist_grid_layout(grid, 0, last, MIST_LAYER_BLOCK)->input_bytes;

    for (int32_t i = 0; i < grid->n_shards; i++)
        if (4 * grid->shards[i].n_whole > most)
            most = 4 * grid->shards[i].n_whole;
    return most;
}

static int64_t within(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Copies: token ids to the largest slab's optimizer state, which is swapped whole. */
static bool add_copies(struct mist_grid *grid, int32_t i_shape)
{
    int64_t last = least_largest_bytes;
    int32_t state_bytes = mist_dtype_state_bytes(grid->config.dtype);

    for (int32_t i = 0; i < grid->n_shards; i++)
        if (state_bytes * grid->shards[i].n_whole > last)
            last = state_bytes * grid->shards[i].n_whole;
    if (last > most_copy_bytes)
        last = most_copy_bytes;
    return add_series(grid, MIST_LINK_HOST_TO_DEVICE, i_shape, smallest_copy_bytes,
                      last) &&
           add_series(grid, MIST_LINK_DEVICE_TO_HOST, i_shape, smallest_copy_bytes, last);
}

bool mist_grid_add_messages(struct mist_grid *grid, struct mist_plan *plan)
{
    const struct mist_grid_config *config = &grid->config;
    int64_t last_bytes =
        within(largest_of_model(grid), least_largest_bytes, most_largest_bytes);
    int32_t one = add_shape(grid, 1, 1, 1);

    if (one < 0)
        return false;
    for (int32_t nodes = 1; nodes <= config->n_nodes; nodes++)
        if (is_measured(grid, nodes, config->n_nodes) &&
            !add_groups(grid, nodes, last_bytes, plan))
            return false;
    if (config->n_ranks > 1) {
        int32_t all =
            add_shape(grid, config->n_nodes, config->n_ranks / config->n_nodes, 1);
        if (all < 0 || !add_message(grid, (struct mist_grid_message){
                                              .operation = MIST_LINK_ALL_REDUCE,
                                              .i_shape = all,
                                              .bytes = MIST_GRID_EXCHANGE_BYTES,
                                              .is_exchange = true}))
            return false;
    }
    return add_copies(grid, one);
}

int64_t mist_grid_largest_bytes(const struct mist_grid *grid, bool is_copy)
{
    int64_t largest = 0;

    for (int32_t i = 0; i < grid->n_messages; i++)
        if ((grid->messages[i].i_shape == 0) == is_copy &&
            grid->messages[i].bytes > largest)
            largest = grid->messages[i].bytes;
    return largest;
}

/*
 * Rows of a trace set and their exact-match indices. See trace_set.h; checks are in
 * trace_check.c, columns in trace_columns.c, files in trace_files.c.
 */
#include "traces/trace_set.h"

#include "traces/trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct mist_trace_slot {
    uint64_t hash;
    size_t i_row_1; /* row number + 1; 0: empty */
};

/* ---- index ---- */

/* The row whose first n columns are those of key; MIST_TRACE_NONE: there is none. */
static size_t index_find(const struct mist_trace_set *set,
                         const struct mist_trace_index *index,
                         enum mist_trace_table table, size_t n, const void *key)
{
    uint64_t hash = mist_trace_row_hash(table, n, key);
    size_t mask = index->n_slots - 1; /* a power of two, never full */

    for (size_t i = hash & mask; index->n_slots && index->slots[i].i_row_1;
         i = (i + 1) & mask) {
        size_t i_row = index->slots[i].i_row_1 - 1;
        if (index->slots[i].hash == hash &&
            mist_trace_row_has(table, n, mist_trace_table_row(table, set, i_row), key))
            return i_row;
    }
    return MIST_TRACE_NONE;
}

static void index_put(struct mist_trace_index *index, uint64_t hash, size_t i_row)
{
    size_t mask = index->n_slots - 1, i = hash & mask;

    while (index->slots[i].i_row_1)
        i = (i + 1) & mask;
    index->slots[i] = (struct mist_trace_slot){hash, i_row + 1};
    index->n_used++;
}

/* Makes room for one more; afterwards index_put can't fail. */
static bool index_reserve(struct mist_trace_index *index)
{
    struct mist_trace_index grown = {0};

    if (index->n_slots && index->n_used + 1 <= index->n_slots / 2)
        return true;
    grown.n_slots = index->n_slots ? index->n_slots * 2 : 64;
    if (!MIST_CALLOC(grown.slots, grown.n_slots))
        return false;
    for (size_t i = 0; i < index->n_slots; i++)
        if (index->slots[i].i_row_1)
            index_put(&grown, index->slots[i].hash, index->slots[i].i_row_1 - 1);
    free(index->slots);
    *index = grown;
    return true;
}

/* What the indices go by: a table and its columns, so many. */
#define BY_KEY(table)                                                                    \
    MIST_TRACE_TABLE_##table, mist_trace_forms[MIST_TRACE_TABLE_##table].n_key
#define BY_GROUP MIST_TRACE_TABLE_KERNELS, 3 /* op, dtype, phase */

/* ---- set ---- */

void mist_trace_set_init(struct mist_trace_set *set)
{
    *set = (struct mist_trace_set){0};
}

void mist_trace_set_fini(struct mist_trace_set *set)
{
    free(set->folder);
    free(set->kernels);
    free(set->links);
    free(set->interferences);
    free(set->by_kernel.slots);
    free(set->by_group.slots);
    free(set->by_link.slots);
    free(set->by_interference.slots);
    *set = (struct mist_trace_set){0};
}

static enum mist_status out_of_memory(struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_MEMORY,
                        "out of memory for the rows of a trace set");
}

/* Appends row i to the chain of its op, dtype and phase; by_group has room for
 * one more. */
static void chain_kernel(struct mist_trace_set *set, size_t i)
{
    const struct mist_kernel_row *row = &set->kernels[i];
    size_t i_first = index_find(set, &set->by_group, BY_GROUP, row);

    set->kernels[i].i_next = set->kernels[i].i_last = MIST_TRACE_NONE;
    if (i_first == MIST_TRACE_NONE) {
        index_put(&set->by_group, mist_trace_row_hash(BY_GROUP, row), i);
        set->kernels[i].i_last = i;
        return;
    }
    set->kernels[set->kernels[i_first].i_last].i_next = i;
    set->kernels[i_first].i_last = i;
}

enum mist_status mist_trace_set_add_kernel(struct mist_trace_set *set,
                                           const struct mist_kernel_row *row,
                                           struct mist_err *err)
{
    struct mist_kernel_row copy = *row; /* row may lie in the array that moves */
    enum mist_status status = mist_trace_check_row(MIST_TRACE_TABLE_KERNELS, &copy, err);

    if (status != MIST_OK)
        return status;
    if (index_find(set, &set->by_kernel, BY_KEY(KERNELS), &copy) != MIST_TRACE_NONE) {
        char text[MIST_SHAPE_TEXT_MAX];
        mist_shape_format(&copy.shape, text);
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s %s %s %s comes twice, expected one row per shape",
                            copy.op, mist_trace_dtype_words[copy.dtype],
                            mist_phase_words[copy.phase], text);
    }
    if (!MIST_RESERVE(set->kernels, set->kernels_capacity, set->n_kernels + 1) ||
        !index_reserve(&set->by_kernel) || !index_reserve(&set->by_group))
        return out_of_memory(err);
    set->kernels[set->n_kernels] = copy;
    chain_kernel(set, set->n_kernels);
    index_put(&set->by_kernel, mist_trace_row_hash(BY_KEY(KERNELS), &copy),
              set->n_kernels++);
    set->has_kernels = true;
    return MIST_OK;
}

enum mist_status mist_trace_set_add_link(struct mist_trace_set *set,
                                         const struct mist_link_row *row,
                                         struct mist_err *err)
{
    struct mist_link_row copy = *row;
    enum mist_status status = mist_trace_check_row(MIST_TRACE_TABLE_LINKS, &copy, err);

    if (status != MIST_OK)
        return status;
    if (index_find(set, &set->by_link, BY_KEY(LINKS), &copy) != MIST_TRACE_NONE)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s over %d x %d ranks, %d groups, %" PRId64
                            " bytes comes twice, expected one row per size",
                            mist_link_operation_words[copy.operation], copy.nodes,
                            copy.ranks_per_node, copy.concurrent_groups, copy.bytes);
    if (!MIST_RESERVE(set->links, set->links_capacity, set->n_links + 1) ||
        !index_reserve(&set->by_link))
        return out_of_memory(err);
    set->links[set->n_links] = copy;
    index_put(&set->by_link, mist_trace_row_hash(BY_KEY(LINKS), &copy), set->n_links++);
    return MIST_OK;
}

enum mist_status mist_trace_set_add_interference(struct mist_trace_set *set,
                                                 const struct mist_interference_row *row,
                                                 struct mist_err *err)
{
    struct mist_interference_row copy = *row;
    enum mist_status status =
        mist_trace_check_row(MIST_TRACE_TABLE_INTERFERENCE, &copy, err);

    if (status == MIST_OK)
        status = mist_trace_judge_interference(&copy, err);
    if (status != MIST_OK)
        return status;
    if (index_find(set, &set->by_interference, BY_KEY(INTERFERENCE), &copy) !=
        MIST_TRACE_NONE) {
        char text[MIST_CHANNELS_TEXT_MAX];
        mist_channels_to_text(copy.channels, text);
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s over %d x %d ranks comes twice with the same times alone",
                            text, copy.nodes, copy.ranks_per_node);
    }
    if (!MIST_RESERVE(set->interferences, set->interferences_capacity,
                      set->n_interferences + 1) ||
        !index_reserve(&set->by_interference))
        return out_of_memory(err);
    set->interferences[set->n_interferences] = copy;
    index_put(&set->by_interference, mist_trace_row_hash(BY_KEY(INTERFERENCE), &copy),
              set->n_interferences++);
    return MIST_OK;
}

enum mist_status mist_trace_set_add_check(struct mist_trace_set *set,
                                          const struct mist_check_row *row,
                                          struct mist_err *err)
{
    enum mist_status status = mist_trace_check_row(MIST_TRACE_TABLE_CHECKS, row, err);

    if (status == MIST_OK && mist_trace_set_find_check(set, row->mechanism))
        status = mist_err_set(err, MIST_ERR_INPUT,
                              "mechanism %s comes twice, expected one row for each",
                              mist_mechanism_words[row->mechanism]);
    if (status == MIST_OK)
        status = mist_trace_judge_check(row, err);
    if (status == MIST_OK)
        set->checks[set->n_checks++] = *row;
    return status;
}

/* ---- look-up ---- */

const struct mist_kernel_row *mist_trace_set_find_kernel(const struct mist_trace_set *set,
                                                         const char *op,
                                                         enum mist_trace_dtype dtype,
                                                         enum mist_phase phase,
                                                         const struct mist_shape *shape)
{
    struct mist_kernel_row key = {.dtype = dtype, .phase = phase, .shape = *shape};

    snprintf(key.op, sizeof key.op, "%s", op);
    size_t i = index_find(set, &set->by_kernel, BY_KEY(KERNELS), &key);

    return i == MIST_TRACE_NONE ? NULL : &set->kernels[i];
}

const struct mist_link_row *mist_trace_set_find_link(const struct mist_trace_set *set,
                                                     const struct mist_link_row *key)
{
    size_t i = index_find(set, &set->by_link, BY_KEY(LINKS), key);

    return i == MIST_TRACE_NONE ? NULL : &set->links[i];
}

const struct mist_check_row *mist_trace_set_find_check(const struct mist_trace_set *set,
                                                       enum mist_mechanism mechanism)
{
    for (size_t i = 0; i < set->n_checks; i++)
        if (set->checks[i].mechanism == mechanism)
            return &set->checks[i];
    return NULL;
}

const struct mist_kernel_row *
mist_trace_set_first_kernel(const struct mist_trace_set *set, const char *op,
                            enum mist_trace_dtype dtype, enum mist_phase phase)
{
    struct mist_kernel_row group = {.dtype = dtype, .phase = phase};

    snprintf(group.op, sizeof group.op, "%s", op);
    size_t i = index_find(set, &set->by_group, BY_GROUP, &group);

    return i == MIST_TRACE_NONE ? NULL : &set->kernels[i];
}

const struct mist_kernel_row *
mist_trace_set_next_kernel(const struct mist_trace_set *set,
                           const struct mist_kernel_row *row)
{
    return row->i_next == MIST_TRACE_NONE ? NULL : &set->kernels[row->i_next];
}

/* Messages and copies of PyTorch. See torch_links.h. */
#include "profile/torch_links.h"

#include "core/memory.h"
#include "traces/torch_events.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 17 };

/* What torch.distributed calls its collectives, and whose elements are the message. */
static const struct {
    const char *name;
    enum mist_link_operation operation;
    const char *elements;
} collectives[] = {
    {"allreduce", MIST_LINK_ALL_REDUCE, "In msg nelems"},
    {"_allgather_base", MIST_LINK_ALL_GATHER, "Out msg nelems"},
    {"all_gather", MIST_LINK_ALL_GATHER, "Out msg nelems"},
    {"_reduce_scatter_base", MIST_LINK_REDUCE_SCATTER, "In msg nelems"},
    {"reduce_scatter", MIST_LINK_REDUCE_SCATTER, "In msg nelems"},
    /* several tensors in one kernel, all of whose elements are counted */
    {"allreduce_coalesced", MIST_LINK_ALL_REDUCE, "In msg nelems"},
    {"allgather_into_tensor_coalesced", MIST_LINK_ALL_GATHER, "Out msg nelems"},
    {"reduce_scatter_tensor_coalesced", MIST_LINK_REDUCE_SCATTER, "In msg nelems"},
};

static const struct {
    const char *name;
    int bytes;
} types[] = {
    {"Float", 4}, {"BFloat16", 2},      {"Half", 2},        {"Double", 8},
    {"Byte", 1},  {"Char", 1},          {"Int", 4},         {"Long", 8},
    {"Bool", 1},  {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1},
};

/* 0: not said, or out of 1 .. max. */
static int64_t get_count(const struct mist_json *args, const char *key, int64_t max)
{
    int64_t n = 0;

    return mist_json_get_int64(args, key, MIST_JSON_REQUIRED, 1, max, &n, NULL) == MIST_OK
               ? n
               : 0;
}

/* -------------------------------------------------------------------------- messages */

/* Whether the args name a collective of links.csv; its elements go into *n. */
static bool read_collective(const struct mist_json *args, struct mist_link_row *row,
                            int64_t *n)
{
    const char *name = mist_torch_get_text(args, "Collective name");

    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
        if (strcmp(collectives[i].name, name) == 0) {
            row->operation = collectives[i].operation;
            *n = get_count(args, collectives[i].elements, INT64_MAX);
            return true;
        }
    return false;
}

/* Whether the args say what n elements are in bytes. */
static bool read_bytes(const struct mist_json *args, int64_t n, struct mist_link_row *row)
{
    const char *type = mist_torch_get_text(args, "dtype");
    int64_t bytes = 0;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0)
            bytes = types[i].bytes;
    return mist_size_mul(n, bytes, &row->bytes) && row->bytes > 0;
}

/*
 * "[0, 8, 16]", or of large groups "[0, 8, 16, ...]": then the others follow at the same
 * distance, if those that are listed do. Returns whether these are n different ranks >= 0.
 */
static bool read_ranks(const char *text, int64_t n, int64_t *ranks)
{
    int64_t n_read = 0;

    if (*text++ != '[')
        return false;
    while (n_read < n) {
        char *end;
        text += strspn(text, " ");
        if (strncmp(text, "...", 3) == 0 && n_read >= 2) {
            int64_t step = ranks[1] - ranks[0];
            for (int64_t i = 2; i < n_read; i++)
                if (ranks[i] - ranks[i - 1] != step)
                    return false;
            for (; n_read < n; n_read++)
                ranks[n_read] = ranks[n_read - 1] + step;
            return true;
        }
        if (*text < '0' || *text > '9')
            return false;
        ranks[n_read] = strtol(text, &end, 10);
        if (ranks[n_read] >= MAX_RANKS ||
            (n_read > 0 && ranks[n_read] <= ranks[n_read - 1]))
            return false;
        n_read++;
        text = end + strspn(end, " ");
        text += *text == ',';
    }
    return *text == ']';
}

/* Nodes of ascending ranks, and how many each has: equally many, or 0. */
static void place_ranks(const int64_t *ranks, int64_t n, int devices_per_node,
                        struct mist_link_row *row)
{
    int64_t n_nodes = 1;

    for (int64_t i = 1; i < n; i++)
        n_nodes += ranks[i] / devices_per_node != ranks[i - 1] / devices_per_node;
    row->nodes = (int)n_nodes;
    row->ranks_per_node = n % n_nodes == 0 ? (int)(n / n_nodes) : 0;
    for (int64_t i = 0; i < n && row->ranks_per_node > 0;
         i++) /* begin of a node's part */
        if (i % row->ranks_per_node == 0 &&
            ranks[i] / devices_per_node !=
                ranks[i + row->ranks_per_node - 1] / devices_per_node)
            row->ranks_per_node = 0;
}

enum mist_status mist_torch_read_message(const char *kernel, const struct mist_json *args,
                                         const struct mist_cluster *cluster,
                                         enum mist_torch_link *kind,
                                         struct mist_link_row *row, struct mist_err *err)
{
    int64_t n = get_count(args, "Group size", MAX_RANKS), n_elements = 0;
    int64_t n_places = (int64_t)cluster->nodes * cluster->devices_per_node, last;
    bool is_named = mist_torch_get_text(args, "Collective name")[0];

    *kind = MIST_TORCH_LINK_NONE;
    *row = (struct mist_link_row){.repetitions = 1};
    if (n == 1 || (!is_named && strncmp(kernel, "nccl", 4) != 0))
        return MIST_OK;
    *kind = is_named ? MIST_TORCH_LINK_OTHER : MIST_TORCH_LINK_NAMELESS;
    if (!read_collective(args, row, &n_elements))
        return MIST_OK;
    *kind = MIST_TORCH_LINK_NAMELESS;
    if (n == 0 || !read_bytes(args, n_elements, row))
        return MIST_OK;
    int64_t *ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group's ranks");
    bool has_ranks =
        read_ranks(mist_torch_get_text(args, "Process Group Ranks"), n, ranks);
    last = has_ranks ? ranks[n - 1] : 0;
    if (has_ranks && last < n_places)
        place_ranks(ranks, n, cluster->devices_per_node, row);
    free(ranks);
    if (last >= n_places)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "a group has rank %lld, the cluster has %d x %d devices; "
                            "--cluster names the one that the trace is of",
                            (long long)last, cluster->nodes, cluster->devices_per_node);
    *kind = has_ranks ? MIST_TORCH_LINK_OTHER : MIST_TORCH_LINK_NAMELESS;
    if (row->ranks_per_node == 0)
        return MIST_OK;
    row->concurrent_groups = cluster->devices_per_node / row->ranks_per_node;
    *kind = MIST_TORCH_LINK_ROW;
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- copies */

enum mist_torch_link mist_torch_read_copy(const char *name, const struct mist_json *args,
                                          struct mist_link_row *row)
{
    bool is_up = strstr(name, "HtoD") != NULL;

    *row = (struct mist_link_row){.operation = is_up ? MIST_LINK_HOST_TO_DEVICE
                                                     : MIST_LINK_DEVICE_TO_HOST,
                                  .nodes = 1,
                                  .ranks_per_node = 1,
                                  .concurrent_groups = 1,
                                  .bytes = get_count(args, "bytes", INT64_MAX),
                                  .repetitions = 1};
    return (is_up || strstr(name, "DtoH")) && strstr(name, "Pinned") && row->bytes > 0
               ? MIST_TORCH_LINK_ROW
               : MIST_TORCH_LINK_NONE;
}

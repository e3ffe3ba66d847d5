/*
 * Importer of nccl-tests logs. See import_nccl.h.
 *
 * The format (nccl-tests 2.x, src/common.cu), as far as it is used here; other lines are
 * ignored:
 *
 *   # Collective test starting: all_reduce_perf                       newer versions only
 *   # nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5
 * iters: 20 ... #  Rank  0 Group  0 Pid 8166 on node-1 device  0 [0x07] NVIDIA A100 one
 * line per rank #       size         count      type   redop    root     time   algbw
 * busbw #wrong  ... #        (B)    (elements)                               (us)  (GB/s)
 * (GB/s) 134217728      33554432     float     sum      -1    857.6  156.50  156.50 0 ...
 *
 * A table line begins with digits: size, count, type, redop, root (absent in old versions
 * of some programs, as redop is), then twice - out of place, in place - time, algbw,
 * busbw, #wrong (N/A when unchecked). So the eight last cells are counted from the end.
 * "size" is what links.csv calls bytes: the larger of the buffers of one rank, hence the
 * gathered output of all_gather and the full input of reduce_scatter. Left out: logs of
 * several runs in one file.
 */
#include "traces/import_nccl.h"

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/parse.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LOG_BYTES_MAX ((size_t)256 << 20)
#define MAX_CELLS     24
#define RESULT_CELLS  8 /* time algbw busbw #wrong, out of place and in place */

/* What the comment lines say. */
struct header {
    bool has_operation;
    enum mist_link_operation operation;
    int64_t repetitions; /* 0: not said */
    struct host {
        const char *name; /* in the log's text */
        int n_ranks;
    } * hosts; /* owned */
    size_t n_hosts, hosts_capacity;
};

struct import {
    struct mist_trace_set *set;
    const char *path;
    const struct mist_import_nccl *options;
    struct mist_err *err;
    struct header header;
    long line;
    size_t n_added;
};

static enum mist_status fail(struct import *import, const char *message)
{
    return mist_err_at(import->err, MIST_ERR_INPUT, import->path, import->line, 0, "%s",
                       message);
}

/* Cuts line at blanks, in place. Returns the number of cells, at most MAX_CELLS. */
static int split(char *line, char *cells[MAX_CELLS])
{
    char *state = NULL;
    int n = 0;

    for (char *cell = strtok_r(line, " \t\r", &state); cell && n < MAX_CELLS;
         cell = strtok_r(NULL, " \t\r", &state))
        cells[n++] = cell;
    return n;
}

/* ---- comment lines ---- */

/* "all_reduce_perf", and, of a file's name, the beginning of it behind the folders. */
static bool program_operation(const char *name, bool is_file,
                              enum mist_link_operation *out)
{
    static const struct {
        const char *program;
        enum mist_link_operation operation;
    } programs[] = {
        {"all_reduce_perf", MIST_LINK_ALL_REDUCE},
        {"all_gather_perf", MIST_LINK_ALL_GATHER},
        {"reduce_scatter_perf", MIST_LINK_REDUCE_SCATTER},
        {"sendrecv_perf", MIST_LINK_SEND_RECV},
    };
    const char *slash = strrchr(name, '/');

    name = is_file && slash ? slash + 1 : name;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        size_t n = strlen(programs[i].program) - (is_file ? strlen("_perf") : 0);
        if (strncmp(programs[i].program, name, n) == 0 && (is_file || !name[n])) {
            *out = programs[i].operation;
            return true;
        }
    }
    return false;
}

static enum mist_status add_rank(struct import *import, const char *host)
{
    struct header *header = &import->header;

    for (size_t i = 0; i < header->n_hosts; i++)
        if (strcmp(header->hosts[i].name, host) == 0) {
            header->hosts[i].n_ranks++;
            return MIST_OK;
        }
    if (!MIST_RESERVE(header->hosts, header->hosts_capacity, header->n_hosts + 1))
        return mist_err_set(import->err, MIST_ERR_MEMORY, "out of memory for host names");
    header->hosts[header->n_hosts++] = (struct host){host, 1};
    return MIST_OK;
}

/* cells[0] is "#". */
static enum mist_status read_comment(struct import *import, char **cells, int n)
{
    struct header *header = &import->header;

    if (n >= 5 && strcmp(cells[1], "Collective") == 0 &&
        strcmp(cells[3], "starting:") == 0) {
        if (!program_operation(cells[4], false, &header->operation))
            return fail(import,
                        "the log is of a program without a link operation, expected "
                        "all_reduce_perf, all_gather_perf, reduce_scatter_perf or "
                        "sendrecv_perf");
        header->has_operation = true;
    } else if (n >= 3 && strcmp(cells[1], "nThread") == 0) {
        for (int i = 2; i + 1 < n; i++)
            if (strcmp(cells[i], "iters:") == 0 && strcmp(cells[i - 1], "warmup") != 0 &&
                strcmp(cells[i - 1], "agg") != 0 &&
                (mist_parse_int64(cells[i + 1], &header->repetitions, NULL) != MIST_OK ||
                 header->repetitions < 1))
                return fail(import, "iters: is not followed by an integer above 0");
    } else if (n >= 3 && strcmp(cells[1], "Rank") == 0) {
        for (int i = 3; i + 1 < n; i++)
            if (strcmp(cells[i], "on") == 0)
                return add_rank(import, cells[i + 1]);
    }
    return MIST_OK;
}

/* ---- table lines ---- */

/* Operation and group shape of the rows: options first, then the log. */
static enum mist_status describe_row(struct import *import, struct mist_link_row *row)
{
    const struct mist_import_nccl *options = import->options;
    const struct header *header = &import->header;

    if (options->has_operation && header->has_operation &&
        options->operation != header->operation)
        return fail(import, "the log is of another operation than the one asked for");
    row->operation = options->has_operation ? options->operation : header->operation;
    if (!options->has_operation && !header->has_operation &&
        !program_operation(import->path, true, &row->operation))
        return fail(import, "the log does not name its program, as before version 2.17; "
                            "a name of the file such as all_reduce.log says it");
    row->concurrent_groups = options->concurrent_groups ? options->concurrent_groups : 1;
    row->repetitions = options->repetitions  ? options->repetitions
                       : header->repetitions ? header->repetitions
                                             : 1;
    row->nodes = options->nodes ? options->nodes : (int)header->n_hosts;
    if (row->nodes == 0)
        return fail(import, "the log lists no ranks, the number of nodes must be given");
    row->ranks_per_node = options->ranks_per_node;
    if (row->ranks_per_node)
        return MIST_OK;
    for (size_t i = 0; i < header->n_hosts; i++)
        if (header->hosts[i].n_ranks != header->hosts[0].n_ranks)
            return fail(import,
                        "the hosts have unequal numbers of ranks, expected equal ones");
    if (header->n_hosts == 0)
        return fail(import, "the log lists no ranks, the ranks per node must be given");
    row->ranks_per_node = header->hosts[0].n_ranks;
    return MIST_OK;
}

static enum mist_status read_row(struct import *import, char **cells, int n)
{
    struct mist_link_row row = {0};
    struct mist_err message = {0};
    enum mist_status status;

    if (n < 3 + RESULT_CELLS) /* size, count, type and the results */
        return fail(import,
                    "the row is cut off, expected size, count, type and two groups "
                    "of time, algbw, busbw, #wrong");
    char **results = cells + n - RESULT_CELLS + (import->options->in_place ? 4 : 0);
    if (mist_parse_int64(cells[0], &row.bytes, NULL) != MIST_OK || row.bytes < 0)
        return fail(import, "size is no integer of 0 or more");
    if (row.bytes == 0)
        return MIST_OK;
    if (mist_parse_double(results[0], &row.time_us, NULL) != MIST_OK)
        return fail(import, "time is no number");
    if (strcmp(results[3], "N/A") != 0 && strcmp(results[3], "0") != 0 &&
        strcmp(results[3], "0e+00") != 0)
        return fail(import, "#wrong is not 0: the collective gave wrong results");
    status = describe_row(import, &row);
    if (status != MIST_OK)
        return status;
    status = mist_trace_set_add_link(import->set, &row, &message);
    if (status == MIST_ERR_INPUT)
        return fail(import, message.message);
    if (status != MIST_OK && import->err)
        *import->err = message;
    import->n_added += status == MIST_OK;
    return status;
}

static enum mist_status read_line(struct import *import, char *line)
{
    char *cells[MAX_CELLS];
    int n = split(line, cells);

    if (n > 0 && strcmp(cells[0], "#") == 0)
        return read_comment(import, cells, n);
    if (n > 0 && cells[0][0] >= '0' && cells[0][0] <= '9')
        return read_row(import, cells, n);
    return MIST_OK; /* launcher and driver messages */
}

enum mist_status mist_import_nccl_log(struct mist_trace_set *set, const char *path,
                                      const struct mist_import_nccl *options,
                                      size_t *n_added, struct mist_err *err)
{
    struct import import = {.set = set, .path = path, .options = options, .err = err};
    char *text = NULL;
    size_t n = 0;
    enum mist_status status = mist_file_read_all(path, LOG_BYTES_MAX, &text, &n, err);

    for (char *line = text; status == MIST_OK && line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        import.line++;
        status = read_line(&import, line);
        line = end ? end + 1 : NULL;
    }
    import.line = 0;
    if (status == MIST_OK && import.n_added == 0)
        status = fail(&import, "has no rows, expected the output of nccl-tests");
    if (status == MIST_OK && n_added)
        *n_added = import.n_added;
    free(import.header.hosts);
    free(text);
    return status;
}

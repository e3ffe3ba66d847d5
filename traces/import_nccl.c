/*
 * Importer of nccl-tests logs. See import_nccl.h.
 *
 * The format (nccl-tests 2.x, src/common.cu and src/util.cu), as far as it is used here
 * and with fewer blanks; other lines are ignored:
 *
 * # Collective test starting: all_reduce_perf                       newer versions only
 * # nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 ... warmup iters: 5 iters: 20 ...
 * #  Rank  0 Group  0 Pid 8166 on node-1 device  0 [0x07] NVIDIA A100    one line a rank
 * #                                              out-of-place               in-place
 * #  size    count   type  redop  root   time  algbw  busbw #wrong   time  algbw ...
 * #   (B) (elements)                     (us) (GB/s) (GB/s)          (us) (GB/s) ...
 *    1024      256  float    sum    -1  857.6 156.50 156.50      0  840.1 ...
 *
 * The line that begins with "size" names the columns. Which there are depends on the
 * version and on options: redop and root are missing in old ones, error stands in place of
 * #wrong before 2.13, #bitdiff or i_min i_max i_p99 i_cv% follow it in new ones, a
 * timestamp of two words may come last. redop and root may be blank. So cells are found
 * by their names and counted from the end of a row. A table that lost its header is taken
 * to end in the eight results that all versions print by default.
 *
 * Launchers may put the rank before each line: "0: ", "[1,0]<stdout>:", "[0] ", a host's
 * name. That is what stands before the "#" of a comment, and then before a row.
 *
 * #wrong is N/A when unchecked. error is the largest deviation of an element.
 *
 * "size" is what links.csv calls bytes: the larger of the buffers of one rank, hence the
 * gathered output of all_gather and the full input of reduce_scatter. A line "nThread"
 * begins a run, of which a file may have several. A size that comes again, by another run,
 * format (-d all) or operator (-o all), is measured again.
 *
 * In sendrecv_perf each rank sends to the next one while it receives from the one before,
 * so between nodes a group has one message in each direction, and within one half as many
 * pairs as ranks. That is what its rows say.
 */
#include "traces/import_nccl.h"

#include "core/atomic_file.h"
#include "core/parse.h"
#include "traces/import_nccl_ranks.h"

#include <stdlib.h>
#include <string.h>

#define LOG_BYTES_MAX ((size_t)256 << 20)
#define MAX_CELLS     64
#define RESULT_CELLS  8 /* time algbw busbw #wrong, out of place and in place */

/* Where what is read of a row stands. */
struct columns {
    int n;           /* cells of a row */
    int n_optional;  /* of them, how many may be missing behind size, count, type */
    int time, check; /* cells from the end, 1 is the last one */
    bool is_guessed; /* no line named them */
    bool is_error;   /* check is a deviation, not a number of wrong elements */
};

/* What the comment lines say of a run. */
struct header {
    bool has_run; /* a line said that one begins */
    bool has_operation;
    enum mist_link_operation operation;
    int64_t repetitions;                 /* 0: not said */
    struct mist_import_nccl_ranks ranks; /* owned */
};

struct import {
    const struct mist_import_rows *rows;
    const char *path;
    const struct mist_import_nccl *options;
    struct mist_err *err;
    struct header header;
    struct columns columns;
    long line;
    size_t n_read;   /* rows */
    const char *tag; /* borrowed of the text: what a launcher puts before lines */
    size_t n_tag;
};

static enum mist_status fail(struct import *import, const char *message)
{
    return mist_err_at(import->err, MIST_ERR_INPUT, import->path, import->line, 0, "%s",
                       message);
}

/* Gives an error of another module the place in the log; returns status. */
static enum mist_status locate(struct import *import, enum mist_status status)
{
    if (status != MIST_OK)
        mist_err_locate(import->err, import->path, import->line);
    return status;
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

/* "all_reduce_perf", or with what the name of a build ends in, "all_reduce_perf_mpi"; and, of
 * a file's name, the beginning of it behind the folders. */
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
        if (strncmp(programs[i].program, name, n) == 0 &&
            (is_file || !name[n] || name[n] == '_')) {
            *out = programs[i].operation;
            return true;
        }
    }
    return false;
}

/* "# Rank 0 Group 0 Pid 8166 on node-1 ..."; old versions name no group. */
static enum mist_status read_rank(struct import *import, char **cells, int n)
{
    int64_t group = 0;

    for (int i = 3; i + 1 < n; i++) {
        if (strcmp(cells[i], "Group") == 0 &&
            mist_parse_int64(cells[i + 1], &group, NULL) != MIST_OK)
            return fail(import, "Group is not followed by an integer");
        if (strcmp(cells[i], "on") == 0)
            return mist_import_nccl_ranks_add(&import->header.ranks, cells[i + 1], group,
                                              import->err);
    }
    return MIST_OK;
}

/* The line of names; cells[0] is "#". */
static enum mist_status read_columns(struct import *import, char **cells, int n)
{
    int wanted = import->options->in_place ? 1 : 0; /* the second of a name */
    int n_times = 0, n_checks = 0, time = 0, check = 0;
    bool has_redop = n > 5 && strcmp(cells[4], "redop") == 0;
    struct columns columns = {.n = n - 1};

    for (int i = 1; i < n; i++) {
        if (strcmp(cells[i], "cputime") == 0)
            return fail(import, "the log has the time of the processor (cputime), "
                                "expected time: run the program without -C 1");
        bool is_error = strcmp(cells[i], "error") == 0;
        if (strcmp(cells[i], "time") == 0 && n_times++ == wanted)
            time = i;
        if ((is_error || strcmp(cells[i], "#wrong") == 0) && n_checks++ == wanted) {
            check = i;
            columns.is_error = is_error;
        }
        columns.n -= strcmp(cells[i], "timestamp") == 0; /* rows are read without it */
    }
    columns.n_optional = has_redop + (has_redop && strcmp(cells[5], "root") == 0);
    if (time == 0 || check < time)
        return fail(import,
                    "the table's header does not name the columns expected: time, "
                    "algbw, busbw and #wrong or error");
    columns.time = columns.n + 1 - time;
    columns.check = columns.n + 1 - check;
    import->columns = columns;
    return MIST_OK;
}

/* "# nThread 1 nGpus 8 ... iters: 20 ...": a run begins, whose ranks come next. */
static enum mist_status read_run(struct import *import, char **cells, int n)
{
    struct header *header = &import->header;

    if (header->has_run && !header->has_operation && !import->options->has_operation)
        return fail(import,
                    "another run begins, of a program that the log does not name, "
                    "as before version 2.17; expected a file of each run");
    header->has_run = true;
    header->repetitions = 0;
    mist_import_nccl_ranks_fini(&header->ranks);
    import->columns = (struct columns){0};
    for (int i = 2; i + 1 < n; i++)
        if (strcmp(cells[i], "iters:") == 0 && strcmp(cells[i - 1], "warmup") != 0 &&
            strcmp(cells[i - 1], "agg") != 0 &&
            (mist_parse_int64(cells[i + 1], &header->repetitions, NULL) != MIST_OK ||
             header->repetitions < 1))
            return fail(import, "iters: is not followed by an integer above 0");
    return MIST_OK;
}

/* cells[0] is "#". */
static enum mist_status read_comment(struct import *import, char **cells, int n)
{
    struct header *header = &import->header;

    if (n >= 2 && strcmp(cells[1], "size") == 0)
        return read_columns(import, cells, n);
    if (n >= 3 && strcmp(cells[1], "bytes") == 0 && strcmp(cells[2], "N") == 0)
        return fail(import, "the table is of the tests of NCCL 1, whose times are in "
                            "milliseconds; expected one of nccl-tests 2");
    if (n >= 5 && strcmp(cells[1], "Collective") == 0 &&
        strcmp(cells[3], "starting:") == 0) {
        if (!program_operation(cells[4], false, &header->operation))
            return fail(import,
                        "the log is of a program without a link operation, expected "
                        "all_reduce_perf, all_gather_perf, reduce_scatter_perf or "
                        "sendrecv_perf");
        header->has_operation = true;
    } else if (n >= 3 && strcmp(cells[1], "nThread") == 0) {
        return read_run(import, cells, n);
    } else if (n >= 3 && strcmp(cells[1], "Rank") == 0) {
        return read_rank(import, cells, n);
    }
    return MIST_OK;
}

/* ---- table lines ---- */

/* Nodes, ranks and groups: what options don't give is read of the lines of ranks. */
static enum mist_status describe_group(struct import *import, struct mist_link_row *row)
{
    const struct mist_import_nccl *options = import->options;
    struct mist_import_nccl_shape shape = {.concurrent_groups = 1};
    enum mist_status status = MIST_OK;

    if (!options->nodes || !options->ranks_per_node)
        status = mist_import_nccl_ranks_shape(&import->header.ranks, &shape, import->err);
    if (status != MIST_OK)
        return locate(import, status);
    row->nodes = options->nodes ? options->nodes : shape.nodes;
    row->ranks_per_node =
        options->ranks_per_node ? options->ranks_per_node : shape.ranks_per_node;
    row->concurrent_groups =
        options->concurrent_groups ? options->concurrent_groups : shape.concurrent_groups;
    return MIST_OK;
}

/* The messages of a group in which each rank sends to the next. */
static void describe_pairs(struct mist_link_row *row)
{
    if (row->nodes > 1) {
        row->nodes = 2;
        row->ranks_per_node = 1;
    } else if (row->ranks_per_node > 2) {
        row->concurrent_groups *= row->ranks_per_node / 2;
        row->ranks_per_node = 2;
    }
}

/* Operation and group shape of the rows: options first, then the log. */
static enum mist_status describe_row(struct import *import, struct mist_link_row *row,
                                     int *n_ranks)
{
    const struct mist_import_nccl *options = import->options;
    const struct mist_cluster *cluster = &import->rows->set->cluster;
    const struct header *header = &import->header;

    if (options->has_operation && header->has_operation &&
        options->operation != header->operation)
        return fail(import, "the log is of another operation than the one asked for");
    row->operation = options->has_operation ? options->operation : header->operation;
    if (!options->has_operation && !header->has_operation &&
        !program_operation(import->path, true, &row->operation))
        return fail(import, "the log does not name its program, as before version 2.17; "
                            "a name of the file such as all_reduce.log says it");
    row->repetitions = options->repetitions  ? options->repetitions
                       : header->repetitions ? header->repetitions
                                             : 1;
    enum mist_status status = describe_group(import, row);
    if (status != MIST_OK)
        return status;
    *n_ranks = row->nodes * row->ranks_per_node;
    if (cluster->devices_per_node / row->ranks_per_node < row->concurrent_groups)
        return mist_err_at(import->err, MIST_ERR_INPUT, import->path, import->line, 0,
                           "the log is of %d x %d ranks on a node, the cluster has %d "
                           "devices on each; --cluster names the one that it is of",
                           row->concurrent_groups, row->ranks_per_node,
                           cluster->devices_per_node);
    if (row->operation == MIST_LINK_SEND_RECV)
        describe_pairs(row);
    return MIST_OK;
}

/*
 * How large the deviation of an element may be: what nccl-tests before 2.13 allowed for
 * each addition, by format, times the additions. Copies and integers are exact.
 */
static double error_max(const char *type, int n_ranks)
{
    static const struct {
        const char *type;
        double error;
    } formats[] = {
        {"half", 1e-2}, {"bfloat16", 1e-2}, {"float", 1e-5}, {"double", 1e-12}};

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].type, type) == 0)
            return formats[i].error * (n_ranks - 1);
    return 0;
}

/* Whether the collective gave what it should have. */
static enum mist_status check_results(struct import *import, const char *cell,
                                      const char *type, int n_ranks)
{
    double value = 0, value_max;

    if (strcmp(cell, "N/A") == 0)
        return MIST_OK;
    if (mist_parse_double(cell, &value, NULL) != MIST_OK)
        return fail(import, "#wrong or error is no number");
    if (!import->columns.is_error)
        return value == 0
                   ? MIST_OK
                   : fail(import, "#wrong is not 0: the collective gave wrong results");
    value_max = error_max(type, n_ranks);
    if (value >= 0 && value <= value_max)
        return MIST_OK;
    return mist_err_at(import->err, MIST_ERR_INPUT, import->path, import->line, 0,
                       "error is %s, expected at most %.0e for %s on %d ranks: the "
                       "collective gave wrong results",
                       cell, value_max, type, n_ranks);
}

/* How many of n cells there are before the date and the time of day. */
static int before_timestamp(char **cells, int n)
{
    if (n < 2)
        return n;
    const char *date = cells[n - 2], *time = cells[n - 1];
    bool is_timestamp = strlen(date) == 10 && date[4] == '-' && date[7] == '-' &&
                        strlen(time) == 8 && time[2] == ':' && time[5] == ':';
    return is_timestamp ? n - 2 : n;
}

/* Whether a row of n cells is whole. */
static enum mist_status check_length(struct import *import, char **cells, int n)
{
    struct columns *columns = &import->columns;
    double number;

    if (columns->n == 0)
        *columns =
            (struct columns){.n = 5 + RESULT_CELLS, /* size count type redop root */
                             .n_optional = 2,
                             .time = import->options->in_place ? 4 : 8,
                             .check = import->options->in_place ? 1 : 5,
                             .is_guessed = true};
    int n_missing = columns->n - n;
    if (n_missing < 0)
        return fail(import,
                    columns->is_guessed
                        ? "the row has more cells than time, algbw, busbw, #wrong "
                          "twice, expected the table's header before it"
                        : "the row has more cells than the table's header names");
    /* where redop is blank, numbers follow the type at once */
    if (n_missing > columns->n_optional ||
        (n_missing > 0 && !columns->is_guessed &&
         mist_parse_double(cells[3], &number, NULL) != MIST_OK))
        return fail(import,
                    "the row is cut off, expected size, count, type and two groups "
                    "of time, algbw, busbw, #wrong");
    return MIST_OK;
}

static enum mist_status read_row(struct import *import, char **cells, int n)
{
    const struct columns *columns = &import->columns;
    struct mist_link_row row = {0};
    int n_ranks = 0;
    enum mist_status status = check_length(import, cells, n);

    if (status != MIST_OK)
        return status;
    if (mist_parse_int64(cells[0], &row.bytes, NULL) != MIST_OK || row.bytes < 0)
        return fail(import, "size is no integer of 0 or more");
    if (row.bytes == 0)
        return MIST_OK;
    if (mist_parse_double(cells[n - columns->time], &row.time_us, NULL) != MIST_OK)
        return fail(import, "time is no number");
    status = describe_row(import, &row, &n_ranks);
    if (status == MIST_OK)
        status = check_results(import, cells[n - columns->check], cells[2], n_ranks);
    if (status != MIST_OK)
        return status;
    status = mist_import_rows_add_link(import->rows, &row, MIST_IMPORT_MEAN, import->err);
    import->n_read += status == MIST_OK;
    return locate(import, status);
}

/* line without its launcher's tag: a word that ends in : or ], which comments tell. */
static char *skip_tag(struct import *import, char *line)
{
    size_t from = strspn(line, " "), comment = strcspn(line, "#"), to = comment;

    while (to > from && line[to - 1] == ' ')
        to--;
    if (line[comment] && to > from && strchr(":]", line[to - 1]) &&
        !memchr(line + from, ' ', to - from)) {
        import->tag = line;
        import->n_tag = to;
    }
    if (import->n_tag > 0 && strncmp(line, import->tag, import->n_tag) == 0)
        line += import->n_tag;
    return line;
}

static enum mist_status read_line(struct import *import, char *line)
{
    char *cells[MAX_CELLS];
    int n = split(skip_tag(import, line), cells);

    if (n > 0 && strcmp(cells[0], "#") == 0)
        return read_comment(import, cells, n);
    if (n > 0 && cells[0][0] >= '0' && cells[0][0] <= '9' && !strpbrk(cells[0], ":-"))
        return read_row(import, cells, before_timestamp(cells, n));
    return MIST_OK; /* of launcher and libraries, "3f2a9b:52:52 [0] NCCL INFO ..." */
}

enum mist_status mist_import_nccl_log(const struct mist_import_rows *rows,
                                      const char *path,
                                      const struct mist_import_nccl *options,
                                      struct mist_err *err)
{
    struct import import = {.rows = rows, .path = path, .options = options, .err = err};
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
    if (status == MIST_OK && import.n_read == 0)
        status = fail(&import, "has no rows, expected the output of nccl-tests");
    mist_import_nccl_ranks_fini(&import.header.ranks);
    free(text);
    return status;
}

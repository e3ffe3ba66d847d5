/* Tables of recorded operations. See operators_file.h. */
#include "sim/recorded/operators_file.h"

#include "core/csv.h"
#include "core/order.h"
#include "sim/recorded/edges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------ kinds */

enum kind {
    FORWARD,
    BACKWARD,
    FORWARD_SEND,
    FORWARD_RECV,
    BACKWARD_SEND,
    BACKWARD_RECV,
    GATHER,
    COLLECTION, /* of garbage */
    NORM_SUM,
    EMBEDDING_SUM,
    SEPARATE_SUM,
    REDUCE,
    CLIP,
    OPTIMIZER,
    N_KINDS = MIST_OPERATIONS_N_KINDS
};

/* Who passes a message together. */
enum meets { NOBODY, PEER, REPLICAS, ENDS, ALL };

const struct mist_recorded_kind mist_operations_kinds[N_KINDS] = {
    [FORWARD] = {.name = "forward-compute"},
    [BACKWARD] = {.name = "backward-compute"},
    [FORWARD_SEND] = {.name = "forward-send", .sort = MIST_RECORDED_MESSAGE},
    [FORWARD_RECV] = {.name = "forward-recv", .sort = MIST_RECORDED_MESSAGE},
    [BACKWARD_SEND] = {.name = "backward-send", .sort = MIST_RECORDED_MESSAGE},
    [BACKWARD_RECV] = {.name = "backward-recv", .sort = MIST_RECORDED_MESSAGE},
    [GATHER] = {.name = "params-all-gather", .sort = MIST_RECORDED_MESSAGE},
    [COLLECTION] = {.name = "gc"},
    [NORM_SUM] = {.name = "layernorm-grads-all-reduce", .sort = MIST_RECORDED_MESSAGE},
    [EMBEDDING_SUM] = {.name = "embedding-grads-all-reduce",
                       .sort = MIST_RECORDED_MESSAGE},
    [SEPARATE_SUM] = {.name = "separate-grads-all-reduce", .sort = MIST_RECORDED_MESSAGE},
    [REDUCE] = {.name = "grads-reduce-scatter", .sort = MIST_RECORDED_MESSAGE},
    [CLIP] = {.name = "optimizer-clip-main-grad", .sort = MIST_RECORDED_MESSAGE},
    [OPTIMIZER] = {.name = "optimizer"},
};

static const enum meets meets[N_KINDS] = {
    [FORWARD_SEND] = PEER,  [FORWARD_RECV] = PEER,     [BACKWARD_SEND] = PEER,
    [BACKWARD_RECV] = PEER, [GATHER] = REPLICAS,       [EMBEDDING_SUM] = ENDS,
    [REDUCE] = REPLICAS,    [SEPARATE_SUM] = REPLICAS, [CLIP] = ALL,
};

/* What comes behind the last computation, in this order. Where gradients are reduced
 * beside the backward, only what is summed apart is left for then. */
static const enum kind tail[] = {COLLECTION, NORM_SUM, EMBEDDING_SUM, SEPARATE_SUM,
                                 REDUCE,     CLIP,     OPTIMIZER};

/* ------------------------------------------------------------------------------- rows */

enum { STEP, DP_RANK, STAGE, OPTYPE, MB_ID, SEQ_ID, CHUNK, STREAM, START_US, DUR_US };

static const struct mist_csv_column columns[] = {
    [STEP] = {"step", MIST_CSV_OPTIONAL},
    [DP_RANK] = {"dp_rank", MIST_CSV_REQUIRED},
    [STAGE] = {"stage", MIST_CSV_REQUIRED},
    [OPTYPE] = {"optype", MIST_CSV_REQUIRED},
    [MB_ID] = {"mb_id", MIST_CSV_OPTIONAL},
    [SEQ_ID] = {"seq_id", MIST_CSV_REQUIRED},
    [CHUNK] = {"model_chunk", MIST_CSV_OPTIONAL},
    [STREAM] = {"stream", MIST_CSV_OPTIONAL},
    [START_US] = {"start_us", MIST_CSV_REQUIRED},
    [DUR_US] = {"dur_us", MIST_CSV_REQUIRED},
};

enum {
    N_COLUMNS = sizeof columns / sizeof *columns,
    WORKERS_MAX = 1 << 20,
    RUN_BYTES = 8 << 20 /* of rows in memory; the rest is on the disk */
};

static const double SAME_US = 50; /* times of a worker that differ by less are equal */

/* Rows of a worker in a step lie side by side, those of a kind too, in their order. */
MIST_COMPARATOR(compare_rows, struct mist_operation_row, step, dp_rank, stage, kind, seq,
                line)

static enum mist_status read_int32(const struct mist_csv *csv, size_t i_column,
                                   int64_t min, int32_t *out, struct mist_err *err)
{
    int64_t value;
    enum mist_status status = mist_csv_get_int64(
        csv, 0, i_column, min, i_column == SEQ_ID ? INT32_MAX : WORKERS_MAX, &value, err);

    if (status == MIST_OK)
        *out = (int32_t)value;
    return status;
}

static enum mist_status read_row(const struct mist_csv *csv,
                                 struct mist_operation_row *row, struct mist_err *err)
{
    const char *names[N_KINDS + 1] = {0};
    enum mist_status status = MIST_OK;

    if (mist_csv_has(csv, STEP))
        status = mist_csv_get_int64(csv, 0, STEP, 0, INT64_MAX, &row->step, err);
    for (int kind = 0; kind < N_KINDS; kind++)
        names[kind] = mist_operations_kinds[kind].name;
    row->line = mist_csv_line(csv, 0);
    if (status == MIST_OK)
        status = read_int32(csv, DP_RANK, 0, &row->dp_rank, err);
    if (status == MIST_OK)
        status = read_int32(csv, STAGE, 0, &row->stage, err);
    if (status == MIST_OK)
        status = read_int32(csv, SEQ_ID, 0, &row->seq, err);
    if (status == MIST_OK && *mist_csv_text(csv, 0, CHUNK))
        status = read_int32(csv, CHUNK, -1, &row->chunk, err);
    if (status == MIST_OK)
        status = mist_csv_get_choice(csv, 0, OPTYPE, names, &row->kind, err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, 0, START_US, -1e16, 1e16, &row->start_us, err);
    if (status == MIST_OK)
        status = /* clocks differ */
            mist_csv_get_double(csv, 0, DUR_US, -1e4, 1e15, &row->dur_us, err);
    return status;
}

/* ------------------------------------------------------------------------------ graph */

/* A step of the table becomes a job. */
struct reading {
    const struct mist_operations *table;
    struct mist_operation_row *rows; /* sorted: operation i is rows[i] */
    struct mist_recorded_edges edges;
    int64_t *of_chunk; /* [n_chunks] -1, but in link_chunks() */
    struct mist_recorded_job *job;
    struct mist_err *err;
    enum mist_status status; /* first failure */
};

static void fail_memory(struct reading *at)
{
    at->status = mist_err_memory(at->err, at->table->path);
}

/* A worker: its operations of a kind are first[kind] .. first[kind + 1] - 1. */
struct worker {
    int64_t first[N_KINDS + 1];
};

static int64_t n_of(const struct worker *worker, int kind)
{
    return worker->first[kind + 1] - worker->first[kind];
}

static void wait_for(struct reading *at, int64_t op, int64_t waits_for)
{
    if (at->status == MIST_OK && !mist_recorded_edges_add(&at->edges, op, waits_for))
        fail_memory(at);
}

/* Operations of some kinds of a worker by their start; the caller frees. */
struct in_time {
    double start_us;
    int64_t op;
};

MIST_COMPARATOR(compare_in_time, struct in_time, start_us, op)

/* One after the other, as they began; NULL: no memory, or there are none. */
static struct in_time *chain(struct reading *at, const struct worker *worker, int kind_a,
                             int kind_b)
{
    int kinds[] = {kind_a, kind_b};
    int64_t n = n_of(worker, kind_a) + n_of(worker, kind_b), used = 0;
    struct in_time *ops = n ? malloc((size_t)n * sizeof *ops) : NULL;

    if (n && !ops)
        fail_memory(at);
    if (!ops)
        return NULL;
    for (int k = 0; k < 2; k++)
        for (int64_t i = worker->first[kinds[k]]; i < worker->first[kinds[k] + 1]; i++)
            ops[used++] = (struct in_time){at->rows[i].start_us, i};
    qsort(ops, (size_t)n, sizeof *ops, compare_in_time);
    for (int64_t i = 1; i < n; i++)
        wait_for(at, ops[i].op, ops[i - 1].op);
    return ops;
}

/* Whether a computation of an interleaved pipeline is on the first chunk of all, or on the
 * last, from where nothing is passed on that way. */
static bool is_at_end(const struct reading *at, int64_t op, bool is_first)
{
    const struct mist_operation_row *row = &at->rows[op];

    return at->table->n_chunks > 1 &&
           row->stage == (is_first ? 0 : at->job->n_stages - 1) &&
           row->chunk == (is_first ? 0 : at->table->n_chunks - 1);
}

/* Transfers of a kind, and the computations of the worker that they are of. */
struct transfers {
    int kind;
    bool is_send;
    bool is_first;           /* computations at this end of the pipeline have none */
    int64_t compute, n;      /* the computations, one after the other */
    double begin_us, end_us; /* the first end, and the last start of these */
    int64_t next;            /* computation of the next transfer */
    bool skips_ends;         /* there are none for computations at the end */
};

/* Profilers write receives behind the last computation, and sends before the first has
 * ended, that nobody makes. */
static bool is_made(const struct reading *at, const struct transfers *of, int64_t i)
{
    const struct mist_operation_row *row = &at->rows[i];

    if (of->n == 0)
        return true;
    return of->is_send ? row->start_us + row->dur_us >= of->begin_us - SAME_US
                       : row->start_us <= of->end_us + SAME_US;
}

/* Without chunks each computation has a transfer, or none has. With chunks there may be one
 * for each computation, though nobody makes those at the ends, or all of these but the
 * first, or none of these. */
static struct transfers find_transfers(const struct reading *at,
                                       const struct worker *worker, int compute, int kind)
{
    struct transfers of = {.kind = kind,
                           .is_send = kind == FORWARD_SEND || kind == BACKWARD_SEND,
                           .compute = worker->first[compute],
                           .n = n_of(worker, compute),
                           .begin_us = INFINITY,
                           .end_us = -INFINITY};
    int64_t n_made = 0, n_ends = 0;

    of.is_first = of.is_send == (compute == BACKWARD);
    of.next = of.compute;
    for (int64_t i = of.compute; i < of.compute + of.n; i++) {
        const struct mist_operation_row *row = &at->rows[i];
        of.begin_us = fmin(of.begin_us, row->start_us + row->dur_us);
        of.end_us = fmax(of.end_us, row->start_us);
        n_ends += is_at_end(at, i, of.is_first);
    }
    for (int64_t i = worker->first[kind]; i < worker->first[kind + 1]; i++)
        n_made += is_made(at, &of, i);
    bool lacks_first = !of.is_send && n_ends > 1 && n_made + 1 == of.n;
    of.next += lacks_first;
    of.skips_ends = n_made != of.n && !lacks_first;
    return of;
}

/* What passes between stages, and the computations: transfers have the order of the
 * computations that have one. From then on seq counts those that are made, -1 stands for
 * the others. Returns the first that is of a computation, or -1. */
static int64_t link_transfers(struct reading *at, const struct worker *worker,
                              int compute, int kind)
{
    struct transfers of = find_transfers(at, worker, compute, kind);
    int64_t behind = of.compute + of.n, first = -1;
    int32_t n_made = 0;

    for (int64_t i = worker->first[kind]; i < worker->first[kind + 1]; i++) {
        bool is_real = is_made(at, &of, i);
        if (i > worker->first[kind])
            wait_for(at, i, i - 1);
        while (is_real && of.skips_ends && of.next < behind &&
               is_at_end(at, of.next, of.is_first))
            of.next++;
        int64_t op = of.next;
        of.next += is_real;
        first = first < 0 && is_real ? i : first;
        at->rows[i].seq =
            !is_real || (op < behind && is_at_end(at, op, of.is_first)) ? -1 : n_made++;
        if (is_real && !of.is_send && op > of.compute && op <= behind)
            wait_for(at, i, op - 1);
        if (is_real && op < behind)
            wait_for(at, of.is_send ? i : op, of.is_send ? op : i);
    }
    return first;
}

/* The first transfer of the backward, -1 none, waits for the forward before the last one
 * that goes before it. computations: of the worker, as they began. */
static void link_first_backward(struct reading *at, const struct worker *worker,
                                const struct in_time *computations, int64_t first)
{
    int64_t n = n_of(worker, FORWARD) + n_of(worker, BACKWARD), i = 0;

    while (i < n && computations[i].op < worker->first[BACKWARD])
        i++;
    if (i >= 2 && i < n && first >= 0)
        wait_for(at, first, computations[i - 2].op);
}

/* Whether row i passes parameters or gradients of a chunk that is computed. */
static bool has_chunk(const struct reading *at, int64_t i)
{
    return at->rows[i].chunk >= 0 && at->rows[i].chunk < at->table->n_chunks;
}

/* A chunk's parameters are gathered before its first forward; of several messages the last
 * counts. Where gradients are reduced beside the backward, those of a chunk wait for its
 * last one; there the first message counts. Messages of no chunk are of all. */
static void link_chunks(struct reading *at, const struct worker *worker, bool is_gather,
                        const struct in_time *computations)
{
    int kind = is_gather ? GATHER : REDUCE, compute = is_gather ? FORWARD : BACKWARD;
    int64_t first = worker->first[kind], n = worker->first[kind + 1] - first;
    int64_t n_computations = n_of(worker, FORWARD) + n_of(worker, BACKWARD);

    for (int64_t k = 0; k < n; k++) {
        int64_t i = is_gather ? first + k : first + n - 1 - k;
        if (has_chunk(at, i))
            at->of_chunk[at->rows[i].chunk] = i;
        else if (is_gather)
            wait_for(at, computations[0].op, i);
        else
            wait_for(at, i, computations[n_computations - 1].op);
    }
    for (int64_t k = 0; k < n_computations && n > 0; k++) {
        int64_t op = computations[is_gather ? k : n_computations - 1 - k].op;
        if (at->rows[op].kind != compute || !has_chunk(at, op))
            continue;
        int64_t *i = &at->of_chunk[at->rows[op].chunk];
        if (*i >= 0)
            wait_for(at, is_gather ? op : *i, is_gather ? *i : op);
        *i = -1;
    }
    for (int64_t k = 0; k < n; k++) /* chunks that the worker does not compute */
        if (has_chunk(at, first + k))
            at->of_chunk[at->rows[first + k].chunk] = -1;
}

static void link_tail(struct reading *at, const struct worker *worker, int64_t last)
{
    bool is_beside = at->table->n_of_kind[SEPARATE_SUM] > 0; /* the backward, reduced */

    for (size_t k = 0; k < sizeof tail / sizeof *tail; k++) {
        int64_t first = worker->first[tail[k]], behind = worker->first[tail[k] + 1];
        if (first == behind)
            continue;
        if (tail[k] == REDUCE && is_beside)
            continue;
        if (tail[k] == NORM_SUM && is_beside && n_of(worker, REDUCE) > 0)
            wait_for(at, first, worker->first[REDUCE + 1] - 1);
        if (last >= 0)
            wait_for(at, first, last);
        for (int64_t i = first + 1; i < behind; i++)
            wait_for(at, i, i - 1);
        last = behind - 1;
    }
}

static void link_worker(struct reading *at, const struct worker *worker)
{
    int64_t n = n_of(worker, FORWARD) + n_of(worker, BACKWARD);
    struct in_time *computations = chain(at, worker, FORWARD, BACKWARD);
    struct in_time *messages = chain(at, worker, GATHER, REDUCE);

    for (int kind = FORWARD_SEND; kind <= BACKWARD_RECV; kind++) {
        bool is_forward = kind <= FORWARD_RECV;
        int64_t first = link_transfers(at, worker, is_forward ? FORWARD : BACKWARD, kind);
        if (computations && !is_forward)
            link_first_backward(at, worker, computations, first);
    }
    if (computations) {
        link_chunks(at, worker, true, computations);
        if (at->table->n_of_kind[SEPARATE_SUM] > 0)
            link_chunks(at, worker, false, computations);
    }
    link_tail(at, worker, computations ? computations[n - 1].op : -1);
    free(computations);
    free(messages);
}

/* --------------------------------------------------------------------------- meetings */

/* The key of where row meets others: a kind, or the way of a transfer, two numbers, and seq; false: nowhere. A transfer at an end of the pipeline has no
 * peer: profilers write some that nobody makes. With chunks the last stage goes on with
 * the first. */
static bool find_place(const struct reading *at, const struct mist_operation_row *row,
                       int64_t key[4])
{
    int64_t n_stages = at->job->n_stages;
    bool is_down = row->kind == FORWARD_SEND || row->kind == BACKWARD_RECV;
    int64_t lower = is_down ? row->stage : row->stage - 1;

    key[0] = row->kind;
    key[1] = key[2] = 0;
    key[3] = row->seq;
    switch (meets[row->kind]) {
    case PEER:
        key[0] = row->kind <= FORWARD_RECV ? FORWARD : BACKWARD;
        key[1] = row->dp_rank;
        key[2] = at->table->n_chunks > 1 ? (lower + n_stages) % n_stages : lower;
        return row->seq >= 0 &&
               (at->table->n_chunks > 1 ? n_stages > 1
                                        : lower >= 0 && lower + 1 < n_stages);
    case REPLICAS:
        key[1] = row->stage;
        return true;
    case ENDS:
        key[1] = row->dp_rank;
        return row->stage == 0 || row->stage == n_stages - 1;
    case ALL:
        return true;
    default:
        return false;
    }
}

static void fail_alone(struct reading *at, const struct mist_operation_row *row)
{
    int peer = row->kind % 2 == 0 ? row->kind + 1 : row->kind - 1;

    at->status = mist_err_at(
        at->err, MIST_ERR_INPUT, at->table->path, row->line, 0,
        "optype: %s %d of dp_rank %d, stage %d has no %s on the stage next to it",
        mist_operations_kinds[row->kind].name, row->seq,
        row->dp_rank + at->table->first_replica, row->stage + at->table->first_stage,
        mist_operations_kinds[peer].name);
}

static void find_meetings(struct reading *at)
{
    struct mist_recorded_job *job = at->job;
    struct mist_recorded_place *places;
    int64_t n = 0;

    if (!MIST_MALLOC(places, job->n_ops)) {
        fail_memory(at);
        return;
    }
    for (int64_t i = 0; i < job->n_ops; i++) {
        job->ops[i].meeting = -1;
        if (find_place(at, &at->rows[i], places[n].key))
            places[n++].op = i;
    }
    mist_recorded_meet(job, places, n);
    for (int64_t i = 0; i < n && at->status == MIST_OK; i++) {
        const struct mist_operation_row *row = &at->rows[places[i].op];
        int32_t meeting = job->ops[places[i].op].meeting;
        bool is_first = i == 0 || job->ops[places[i - 1].op].meeting != meeting;
        bool is_last = i + 1 == n || job->ops[places[i + 1].op].meeting != meeting;
        if (is_first && is_last && meets[row->kind] == PEER)
            fail_alone(at, row);
    }
    free(places);
}

/* ---------------------------------------------------------------------------- reading */

/* Rows of a worker from i on; behind them. */
static int64_t find_worker(struct reading *at, int64_t i, struct worker *worker)
{
    const struct mist_operation_row *rows = at->rows, *begin = &rows[i];
    int64_t n = at->job->n_ops;

    for (int kind = 0; kind < N_KINDS; kind++) {
        worker->first[kind] = i;
        for (; i < n && rows[i].kind == kind && rows[i].dp_rank == begin->dp_rank &&
               rows[i].stage == begin->stage;
             i++)
            if (rows[i].seq != i - worker->first[kind] + at->table->first_seq &&
                at->status == MIST_OK)
                at->status = mist_err_at(
                    at->err, MIST_ERR_INPUT, at->table->path, rows[i].line, 0,
                    "seq_id: expected %lld: they count the %s of a worker in a step",
                    (long long)(i - worker->first[kind] + at->table->first_seq),
                    mist_operations_kinds[kind].name);
    }
    worker->first[N_KINDS] = i;
    return i;
}

/* The graph of what was read, sorted. */
static void link_all(struct reading *at, struct mist_arena *arena)
{
    struct mist_recorded_job *job = at->job;
    size_t n_bytes = ((size_t)at->table->n_chunks + 1) * sizeof *at->of_chunk;
    struct worker worker;

    at->of_chunk = mist_arena_alloc(arena, n_bytes);
    if (!at->of_chunk) {
        fail_memory(at);
        return;
    }
    memset(at->of_chunk, 0xFF, n_bytes); /* -1 */
    for (int64_t i = 0; i < job->n_ops && at->status == MIST_OK;) {
        i = find_worker(at, i, &worker);
        if (at->status == MIST_OK)
            link_worker(at, &worker);
    }
    if (at->status == MIST_OK && !mist_recorded_edges_end(&at->edges, job, arena))
        fail_memory(at);
}

/* Operations and their times from the sorted rows; false: no memory. */
static bool fill_job(struct reading *at, struct mist_arena *arena)
{
    struct mist_recorded_job *job = at->job;
    const struct mist_operation_row *rows = at->rows;
    double first_us = INFINITY;

    if (!mist_recorded_job_alloc(job, arena))
        return false;
    memcpy(job->kinds, mist_operations_kinds, sizeof mist_operations_kinds);
    for (int64_t i = 0; i < job->n_ops; i++)
        first_us = fmin(first_us, rows[i].start_us);
    for (int64_t i = 0; i < job->n_ops; i++) {
        job->ops[i] = (struct mist_recorded_op){
            .replica = rows[i].dp_rank, .stage = rows[i].stage, .kind = rows[i].kind};
        job->recorded.start_s[i] = 1e-6 * (rows[i].start_us - first_us);
        job->recorded.end_s[i] = 1e-6 * (rows[i].start_us - first_us + rows[i].dur_us);
    }
    return true;
}

/* The rows of the next step, table->n_rows; 0: there are no more. */
static enum mist_status read_step(struct mist_operations *table, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    table->n_rows = 0;
    while (status == MIST_OK && table->has_next &&
           (table->n_rows == 0 || table->next.step == table->rows[0].step)) {
        if (!MIST_RESERVE(table->rows, table->rows_capacity, table->n_rows + 1))
            return mist_err_memory(err, table->path);
        struct mist_operation_row *row = &table->rows[table->n_rows++];
        *row = table->next;
        row->dp_rank -= table->first_replica;
        row->stage -= table->first_stage;
        status = mist_sorter_next(&table->sorter, &table->next, &table->has_next, err);
    }
    return status;
}

enum mist_status mist_operations_begin(struct mist_operations *table,
                                       struct mist_err *err)
{
    enum mist_status status = mist_sorter_begin(&table->sorter, err);

    return status == MIST_OK
               ? mist_sorter_next(&table->sorter, &table->next, &table->has_next, err)
               : status;
}

enum mist_status mist_operations_next(struct mist_operations *table,
                                      struct mist_recorded_job *job,
                                      struct mist_arena *arena, struct mist_err *err)
{
    struct reading at = {.table = table, .job = job, .err = err};

    *job = (struct mist_recorded_job){
        .n_replicas = table->n_replicas, .n_stages = table->n_stages, .n_kinds = N_KINDS};
    at.status = read_step(table, err);
    if (at.status != MIST_OK || table->n_rows == 0)
        return at.status;
    at.rows = table->rows;
    job->n_ops = (int64_t)table->n_rows;
    job->step = table->rows[0].step;
    if (!fill_job(&at, arena))
        fail_memory(&at);
    if (at.status == MIST_OK)
        link_all(&at, arena);
    if (at.status == MIST_OK)
        find_meetings(&at);
    if (at.status == MIST_OK)
        at.status = mist_recorded_prepare(job, arena, err);
    mist_err_locate(err, table->path, 0);
    free(at.edges.items);
    return at.status;
}

/* ---------------------------------------------------------------------------- opening */

/* first .. first + n - 1 becomes long enough for i. */
static void include(int32_t i, int32_t *first, int32_t *n)
{
    int32_t behind = *n == 0 || i >= *first + *n ? i + 1 : *first + *n;

    *first = *n == 0 || i < *first ? i : *first;
    *n = behind - *first;
}

static enum mist_status add_row(const struct mist_csv *csv, void *context,
                                struct mist_err *err)
{
    struct mist_operations *table = context;
    struct mist_operation_row row = {0};
    enum mist_status status = read_row(csv, &row, err);

    if (status != MIST_OK)
        return status;
    table->n_ops++;
    table->n_of_kind[row.kind]++;
    if (row.seq == 0)
        table->first_seq = 0;
    include(row.dp_rank, &table->first_replica, &table->n_replicas);
    include(row.stage, &table->first_stage, &table->n_stages);
    if (row.kind <= BACKWARD && row.chunk >= table->n_chunks)
        table->n_chunks = row.chunk + 1;
    return mist_sorter_add(&table->sorter, &row, err);
}

enum mist_status mist_operations_open(struct mist_operations *table, const char *path,
                                      struct mist_progress *progress,
                                      struct mist_err *err)
{
    *table = (struct mist_operations){.path = path, .first_seq = 1};
    mist_sorter_init(&table->sorter, sizeof(struct mist_operation_row), RUN_BYTES,
                     compare_rows);
    enum mist_status status =
        mist_csv_visit(path, columns, N_COLUMNS, add_row, table, progress, err);
    if (status == MIST_OK && table->n_ops == 0)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 1, 0,
                             "expected operations below the header");
    if (status == MIST_OK && (int64_t)table->n_replicas * table->n_stages > table->n_ops)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %lld operations for %d dp_ranks and %d stages, "
                             "expected some of each worker",
                             (long long)table->n_ops, table->n_replicas, table->n_stages);
    if (status == MIST_OK)
        status = mist_operations_begin(table, err);
    if (status != MIST_OK)
        mist_operations_close(table);
    return status;
}

void mist_operations_close(struct mist_operations *table)
{
    mist_sorter_fini(&table->sorter);
    free(table->rows);
    *table = (struct mist_operations){0};
}

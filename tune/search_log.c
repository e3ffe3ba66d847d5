/* Writes the search log and the frontiers of the best plan. See search_log.h. */
#include "tune/search_log.h"

#include "core/csv.h"
#include "core/parse.h" /* mist_format_bytes */
#include "sim/schedule/pipeline_order.h"

#include <stdio.h>

/* Whether the row is of the kind and length of a stage of the plan. */
static bool is_of_stage(const struct mist_search_row *row, const struct mist_plan *plan,
                        int32_t i_stage)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];

    return row->kind.n_micro_batches == plan->n_micro_batches &&
           row->kind.role == mist_search_stage_role(plan->n_stages, i_stage) &&
           row->kind.in_flight == mist_pipeline_in_flight_1f1b(plan->n_stages, i_stage,
                                                               plan->n_micro_batches) &&
           row->kind.shape.dp == stage->dp && row->kind.shape.tp == stage->tp &&
           row->kind.shape.is_sequence_parallel == stage->is_sequence_parallel &&
           row->kind.micro_batch == stage->micro_batch &&
           row->n_layers == stage->n_layers;
}

static bool runs(const struct mist_search_row *row, const struct mist_plan *plan,
                 int32_t i_stage)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    bool is_same = is_of_stage(row, plan, i_stage) &&
                   row->n_checkpointed == stage->n_checkpointed &&
                   row->n_lean == stage->n_lean && row->zero == mist_zero_of(stage) &&
                   row->updates_on_host == stage->updates_on_host;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        is_same = is_same && row->offload[k] / (double)MIST_RATIO_ONE ==
                                 mist_offloads_of(stage).frac[k];
    return is_same;
}

static bool is_chosen(const struct mist_search_row *row, const struct mist_plan *best)
{
    for (int32_t i = 0; best && i < best->n_stages; i++)
        if (runs(row, best, i))
            return true;
    return false;
}

static const char *explain(const struct mist_search_row *row, int64_t limit_bytes,
                           char *text, size_t size)
{
    char bytes[MIST_FORMAT_BYTES];

    switch (row->fate) {
    case MIST_FATE_OVER_LIMIT:
        if (row->peak_bytes <= limit_bytes)
            return "over the host memory";
        snprintf(text, size, "%s over the memory limit",
                 mist_format_bytes(bytes, sizeof bytes, row->peak_bytes - limit_bytes));
        return text;
    case MIST_FATE_TOO_SLOW:
        return "too slow for the best plan";
    case MIST_FATE_DOMINATED:
        snprintf(text, size, "not faster than %d checkpointed with ZeRO-%d",
                 (int)row->better_checkpointed, (int)row->better_zero);
        return text;
    case MIST_FATE_THINNED:
        return "left out of a large frontier";
    case MIST_FATE_NO_PRICE:
        return "no price";
    case MIST_FATE_FRONTIER:
        break;
    }
    return "not in the best plan";
}

/* A table on its way to the disk. */
struct table {
    struct mist_csv_writer writer;
    const struct mist_plan *best;
    int64_t limit_bytes;
    int32_t i_stage;
};

/* Writes the rows that add() wants; closes the table's file. */
static enum mist_status save(struct table *to, struct mist_search_rows *rows,
                             void (*add)(void *to, const struct mist_search_row *row),
                             int32_t n_stages, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (to->i_stage = 0; to->i_stage < n_stages && status == MIST_OK; to->i_stage++)
        status = mist_search_rows_each(rows, add, to, err);
    if (status == MIST_OK)
        return mist_csv_writer_commit(&to->writer, err);
    mist_csv_writer_abort(&to->writer);
    return status;
}

static void add_row(void *context, const struct mist_search_row *row)
{
    struct table *to = context;
    struct mist_csv_writer *writer = &to->writer;
    char text[128];
    bool chosen = is_chosen(row, to->best);
    mist_csv_add_text(writer, mist_search_role_name(row->kind.role));
    mist_csv_add_int64(writer, row->kind.in_flight);
    mist_csv_add_int64(writer, row->kind.n_micro_batches);
    mist_csv_add_int64(writer, row->kind.micro_batch);
    mist_csv_add_int64(writer, row->kind.shape.dp);
    mist_csv_add_int64(writer, row->kind.shape.tp);
    mist_csv_add_int64(writer, row->kind.shape.is_sequence_parallel);
    mist_csv_add_int64(writer, row->n_layers);
    mist_csv_add_int64(writer, row->n_checkpointed);
    mist_csv_add_int64(writer, row->n_lean);
    mist_csv_add_int64(writer, row->zero);
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        mist_csv_add_double(writer, row->offload[k] / (double)MIST_RATIO_ONE);
    mist_csv_add_text(writer, row->updates_on_host ? "host" : "device");
    mist_csv_add_double(writer, row->t_s);
    mist_csv_add_double(writer, row->d_s);
    mist_csv_add_int64(writer, row->peak_bytes);
    mist_csv_add_int64(writer, row->host_bytes);
    mist_csv_add_int64(writer, row->fate == MIST_FATE_FRONTIER);
    mist_csv_add_int64(writer, chosen);
    mist_csv_add_text(writer,
                      chosen ? "" : explain(row, to->limit_bytes, text, sizeof text));
    mist_csv_end_row(writer);
}

enum mist_status mist_search_log_save(struct mist_search_rows *rows, int64_t limit_bytes,
                                      const struct mist_plan *best, const char *path,
                                      bool force, struct mist_err *err)
{
    static const char *const names[] = {"role",
                                        "in_flight",
                                        "micro_batches",
                                        "micro_batch",
                                        "dp",
                                        "tp",
                                        "sequence_parallel",
                                        "layers",
                                        "checkpointed_layers",
                                        "lean_layers",
                                        "zero",
                                        "offload_weights_frac",
                                        "offload_gradients_frac",
                                        "offload_optimizer_frac",
                                        "offload_activations_frac",
                                        "update_on",
                                        "stable_s",
                                        "extra_s",
                                        "peak_bytes",
                                        "host_bytes",
                                        "on_frontier",
                                        "chosen",
                                        "why"};
    struct table to = {.best = best, .limit_bytes = limit_bytes};
    enum mist_status status = mist_csv_writer_open(&to.writer, path, force, names,
                                                   sizeof names / sizeof *names, err);

    return status == MIST_OK ? save(&to, rows, add_row, 1, err) : status;
}

static void add_point(void *context, const struct mist_search_row *row)
{
    struct table *to = context;
    bool chosen = runs(row, to->best, to->i_stage);

    if (!is_of_stage(row, to->best, to->i_stage) ||
        (row->fate != MIST_FATE_FRONTIER && !chosen))
        return;
    mist_csv_add_int64(&to->writer, to->i_stage);
    mist_csv_add_double(&to->writer, row->t_s);
    mist_csv_add_double(&to->writer, row->d_s);
    mist_csv_add_int64(&to->writer, chosen);
    mist_csv_end_row(&to->writer);
}

enum mist_status mist_search_log_save_pareto(struct mist_search_rows *rows,
                                             const struct mist_plan *best,
                                             const char *path, bool force,
                                             struct mist_err *err)
{
    static const char *const names[] = {"stage", "t_s", "d_s", "chosen"};
    struct table to = {.best = best};
    enum mist_status status =
        mist_csv_writer_open(&to.writer, path, force, names, 4, err);

    return status == MIST_OK ? save(&to, rows, add_point, best->n_stages, err) : status;
}

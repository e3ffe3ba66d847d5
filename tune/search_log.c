/* Writes the search log and the frontiers of the best plan. See search_log.h. */
#include "tune/search_log.h"

#include "core/csv.h"
#include "core/parse.h" /* mist_format_bytes */
#include "tune/search_columns.h"
#include "tune/validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stage of the best plan. */
struct chosen {
    struct mist_search_kind kind;
    struct mist_search_choice choice; /* with its prices */
    bool has_row;
};

static bool is_kind(const struct mist_search_kind *a, const struct mist_search_kind *b)
{
    return a->n_micro_batches == b->n_micro_batches && a->role == b->role &&
           a->in_flight == b->in_flight && a->micro_batch == b->micro_batch;
}

/* Two stages of one kind, which are all alike. */
static bool is_alike(const struct mist_search_choice *a,
                     const struct mist_search_choice *b)
{
    return a->n_layers == b->n_layers &&
           mist_space_shapes_are_same(&a->shape, &b->shape) &&
           mist_search_pack_knobs(&a->knobs) == mist_search_pack_knobs(&b->knobs);
}

static enum mist_status find_chosen(const struct mist_search_config *search,
                                    const struct mist_plan *best, int32_t i_stage,
                                    struct chosen *out, struct mist_err *err)
{
    struct mist_search_choice choice = mist_validate_choice(&best->stages[i_stage]);

    *out = (struct chosen){
        .kind = mist_search_stage_kind(best->n_micro_batches, best->n_stages, i_stage,
                                       choice.micro_batch, choice.shape),
        .choice = choice};
    return mist_search_price_choice(search, &out->kind, &out->choice, err);
}

static const char *explain(const struct mist_search_row *row, int64_t limit_bytes,
                           char *text, size_t size)
{
    char bytes[MIST_FORMAT_BYTES];

    switch (row->fate) {
    case MIST_FATE_OVER_LIMIT:
        if (row->choice.peak_bytes <= limit_bytes)
            return "over the host memory";
        snprintf(
            text, size, "%s over the memory limit",
            mist_format_bytes(bytes, sizeof bytes, row->choice.peak_bytes - limit_bytes));
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

/* The log on its way to the disk. */
struct log {
    struct mist_csv_writer writer;
    struct chosen chosen[MIST_MAX_STAGES]; /* [n_stages] */
    int32_t n_stages;
    int64_t limit_bytes;
};

/* Whether the best plan runs it; notes that it has a row. */
static bool is_chosen(struct log *to, const struct mist_search_row *row)
{
    bool is_any = false;

    for (int32_t i = 0; i < to->n_stages; i++)
        if (is_kind(&row->kind, &to->chosen[i].kind) &&
            is_alike(&row->choice, &to->chosen[i].choice))
            is_any = to->chosen[i].has_row = true;
    return is_any;
}

static void add_row(void *context, const struct mist_search_row *row)
{
    struct log *to = context;
    const struct mist_search_choice *choice = &row->choice;
    struct mist_csv_writer *writer = &to->writer;
    char text[128];
    bool chosen = is_chosen(to, row);

    mist_csv_add_text(writer, mist_search_role_name(row->kind.role));
    mist_csv_add_int64(writer, row->kind.in_flight);
    mist_csv_add_int64(writer, row->kind.n_micro_batches);
    mist_csv_add_int64(writer, choice->micro_batch);
    mist_csv_add_int64(writer, choice->shape.dp);
    mist_csv_add_int64(writer, choice->shape.tp);
    mist_csv_add_int64(writer, mist_space_cp(&choice->shape));
    mist_csv_add_int64(writer, choice->shape.is_sequence_parallel);
    mist_csv_add_int64(writer, choice->n_layers);
    mist_csv_add_int64(writer, choice->knobs.n_checkpointed);
    mist_csv_add_int64(writer, choice->knobs.n_lean);
    mist_csv_add_int64(writer, choice->knobs.zero);
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        mist_csv_add_double(writer, choice->knobs.offload[k] / (double)MIST_RATIO_ONE);
    mist_csv_add_text(writer, choice->knobs.updates_on_host ? "host" : "device");
    mist_csv_add_double(writer, choice->t_s);
    mist_csv_add_double(writer, choice->d_s);
    mist_csv_add_int64(writer, choice->peak_bytes);
    mist_csv_add_int64(writer, choice->host_bytes);
    mist_csv_add_int64(writer, row->fate == MIST_FATE_FRONTIER);
    mist_csv_add_int64(writer, chosen);
    mist_csv_add_text(writer,
                      chosen ? "" : explain(row, to->limit_bytes, text, sizeof text));
    mist_csv_end_row(writer);
}

/* Rows of what the best plan runs and the search had not. */
static void add_missing(struct log *to)
{
    for (int32_t i = 0; i < to->n_stages; i++) {
        struct mist_search_row row = {to->chosen[i].kind, to->chosen[i].choice,
                                      MIST_FATE_TOO_SLOW, 0, 0};
        if (!to->chosen[i].has_row)
            add_row(to, &row);
    }
}

enum mist_status mist_search_log_save(struct mist_search_rows *rows,
                                      const struct mist_search_config *search,
                                      const struct mist_plan *best, const char *path,
                                      bool force, struct mist_err *err)
{
    static const char *const names[] = {"role",
                                        "in_flight",
                                        "micro_batches",
                                        "micro_batch",
                                        "dp",
                                        "tp",
                                        "cp",
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
    struct log to = {.n_stages = best->n_stages, .limit_bytes = search->limit_bytes};
    enum mist_status status = mist_csv_writer_open(&to.writer, path, force, names,
                                                   sizeof names / sizeof *names, err);

    if (status != MIST_OK)
        return status;
    for (int32_t i = 0; i < best->n_stages && status == MIST_OK; i++)
        status = find_chosen(search, best, i, &to.chosen[i], err);
    if (status == MIST_OK)
        status = mist_search_rows_each(rows, add_row, &to, err);
    if (status != MIST_OK) {
        mist_csv_writer_abort(&to.writer);
        return status;
    }
    add_missing(&to);
    return mist_csv_writer_commit(&to.writer, err);
}

/* --------------------------------------------------------------------------- frontiers */

static void add_point(struct mist_csv_writer *writer, int32_t i_stage,
                      const struct mist_search_choice *point, bool is_chosen)
{
    mist_csv_add_int64(writer, i_stage);
    mist_csv_add_double(writer, point->t_s);
    mist_csv_add_double(writer, point->d_s);
    mist_csv_add_int64(writer, is_chosen);
    mist_csv_end_row(writer);
}

/* By rising t: what the stage can choose from, and what is chosen if that is not among it. */
static enum mist_status add_frontier(const struct mist_space *space,
                                     const struct mist_search_config *search,
                                     const struct mist_plan *best, int32_t i_stage,
                                     struct mist_csv_writer *writer, struct mist_err *err)
{
    struct mist_search_choice *points = NULL;
    struct chosen chosen;
    size_t n = 0;
    enum mist_status status = find_chosen(search, best, i_stage, &chosen, err);

    if (status == MIST_OK)
        status = mist_search_frontier(space, search, &chosen.kind, chosen.choice.n_layers,
                                      &points, &n, err);
    for (size_t i = 0; i < n; i++)
        chosen.has_row |= is_alike(&points[i], &chosen.choice);
    for (size_t i = 0; i < n; i++) {
        if (!chosen.has_row && points[i].t_s > chosen.choice.t_s) {
            add_point(writer, i_stage, &chosen.choice, true);
            chosen.has_row = true;
        }
        add_point(writer, i_stage, &points[i], is_alike(&points[i], &chosen.choice));
    }
    if (status == MIST_OK && !chosen.has_row)
        add_point(writer, i_stage, &chosen.choice, true);
    free(points);
    return status;
}

enum mist_status mist_search_log_save_pareto(const struct mist_space *space,
                                             const struct mist_search_config *search,
                                             const struct mist_plan *best,
                                             const char *path, bool force,
                                             struct mist_err *err)
{
    static const char *const names[] = {"stage", "t_s", "d_s", "chosen"};
    struct mist_csv_writer writer;
    enum mist_status status = mist_csv_writer_open(&writer, path, force, names, 4, err);

    if (status != MIST_OK)
        return status;
    for (int32_t i = 0; i < best->n_stages && status == MIST_OK; i++)
        status = add_frontier(space, search, best, i, &writer, err);
    if (status == MIST_OK)
        return mist_csv_writer_commit(&writer, err);
    mist_csv_writer_abort(&writer);
    return status;
}

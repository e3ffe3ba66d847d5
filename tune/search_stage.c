/* Prices one kind of stage and keeps its frontiers. See search.h, steps 1 to 3. */
#include "tune/pareto.h"
#include "tune/search_internal.h"

#include <math.h>
#include <stdlib.h>

struct columns {
    int32_t *n_layers, *n_checkpointed, *zero;
    double *t_s, *d_s;
    int64_t *peak_bytes;
    size_t n;
};

static void free_columns(struct columns *columns)
{
    free(columns->n_layers);
    free(columns->n_checkpointed);
    free(columns->zero);
    free(columns->t_s);
    free(columns->d_s);
    free(columns->peak_bytes);
}

static bool alloc_columns(struct columns *columns, size_t n)
{
    *columns = (struct columns){
        .n_layers = malloc(n * sizeof *columns->n_layers),
        .n_checkpointed = malloc(n * sizeof *columns->n_checkpointed),
        .zero = malloc(n * sizeof *columns->zero),
        .t_s = malloc(n * sizeof *columns->t_s),
        .d_s = malloc(n * sizeof *columns->d_s),
        .peak_bytes = malloc(n * sizeof *columns->peak_bytes),
        .n = n,
    };
    return columns->n_layers && columns->n_checkpointed && columns->zero &&
           columns->t_s && columns->d_s && columns->peak_bytes;
}

static size_t count_configurations(const struct mist_space *space,
                                   const struct mist_search_work *work, int32_t n_layers)
{
    return (size_t)mist_space_n_checkpointed(space, n_layers) *
           (size_t)mist_space_n_zero(space, work->kind.dp);
}

/* All configurations, by layers, then checkpointed layers, then ZeRO. */
static void list_configurations(const struct mist_space *space,
                                const struct mist_search_work *work,
                                struct columns *columns)
{
    size_t i = 0;

    for (int32_t l = work->layers_min; l <= work->layers_max; l++)
        for (int32_t c = 0; c < mist_space_n_checkpointed(space, l); c++)
            for (int32_t z = 0; z < mist_space_n_zero(space, work->kind.dp); z++, i++) {
                columns->n_layers[i] = l;
                columns->n_checkpointed[i] = c;
                columns->zero[i] = z;
            }
}

static bool is_price(double t_s, double d_s, int64_t peak_bytes)
{
    return isfinite(t_s) && isfinite(d_s) && t_s >= 0 && peak_bytes >= 0;
}

/* What the solver is to see of a configuration. */
static struct mist_pareto_point make_point(const struct mist_space *space,
                                           const struct mist_search_work *work,
                                           const struct columns *columns, size_t i)
{
    struct mist_pareto_point point = {
        .t_s = columns->t_s[i],
        .d_s = columns->d_s[i],
        .memory_bytes = columns->peak_bytes[i],
        .payload = (int64_t)i,
    };

    if (!mist_space_has(space, MIST_SPACE_IMBALANCE)) {
        double folded = point.t_s + point.d_s / work->kind.n_micro_batches;
        point.t_s = folded > 0 ? folded : 0;
        point.d_s = 0;
    }
    return point;
}

static void add_options(struct mist_search_work *work, const struct columns *columns,
                        const struct mist_pareto_point *points, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        size_t i = (size_t)points[k].payload;
        work->choices[work->n_options] = (struct mist_search_choice){
            .n_layers = columns->n_layers[i],
            .n_checkpointed = columns->n_checkpointed[i],
            .zero = columns->zero[i],
            .dp = work->kind.dp,
            .micro_batch = work->kind.micro_batch,
            .t_s = columns->t_s[i],
            .d_s = columns->d_s[i],
            .peak_bytes = columns->peak_bytes[i],
        };
        work->options[work->n_options++] = (struct mist_stage_option){
            .n_layers = columns->n_layers[i],
            .n_devices = work->kind.dp,
            .t_s = points[k].t_s,
            .d_s = points[k].d_s,
        };
    }
}

/* Rows of the log for configurations first .. first + n; points: the exact frontier, and
 * kept: what is left of it. */
static void describe(const struct mist_space *space,
                     const struct mist_search_config *config,
                     struct mist_search_work *work, const struct columns *columns,
                     size_t first, size_t n, const struct mist_pareto_point *points,
                     size_t n_points, const struct mist_pareto_point *kept, size_t n_kept)
{
    for (size_t i = first; i < first + n; i++) {
        struct mist_search_row *row = &work->rows[i];
        *row = (struct mist_search_row){
            .kind = work->kind,
            .n_layers = columns->n_layers[i],
            .n_checkpointed = columns->n_checkpointed[i],
            .zero = columns->zero[i],
            .t_s = columns->t_s[i],
            .d_s = columns->d_s[i],
            .peak_bytes = columns->peak_bytes[i],
            .fate = MIST_FATE_DOMINATED,
        };
        struct mist_pareto_point point = make_point(space, work, columns, i);
        if (!is_price(row->t_s, row->d_s, row->peak_bytes)) {
            row->fate = MIST_FATE_NO_PRICE;
            row->t_s = row->d_s = 0;
        } else if (row->peak_bytes > config->limit_bytes) {
            row->fate = MIST_FATE_OVER_LIMIT;
        }
        for (size_t k = 0; k < n_points && row->fate == MIST_FATE_DOMINATED; k++) {
            size_t better = (size_t)points[k].payload;
            if (better == i)
                row->fate = MIST_FATE_THINNED;
            else if (points[k].t_s <= point.t_s && points[k].d_s <= point.d_s) {
                row->better_checkpointed = columns->n_checkpointed[better];
                row->better_zero = columns->zero[better];
                break;
            }
        }
    }
    for (size_t k = 0; k < n_kept; k++)
        work->rows[kept[k].payload].fate = MIST_FATE_FRONTIER;
}

/* The frontier of one number of layers: configurations first .. first + n. scratch: room
 * for 2 n points. */
static enum mist_status
keep_frontier(const struct mist_space *space, const struct mist_search_config *config,
              struct mist_search_work *work, const struct columns *columns, size_t first,
              size_t n, struct mist_pareto_point *scratch, struct mist_err *err)
{
    struct mist_pareto_point *points = scratch, *kept = scratch + n;
    int64_t *least = &work->least_bytes[columns->n_layers[first]];
    size_t n_points = 0, n_kept = 0;

    for (size_t i = first; i < first + n; i++) {
        int64_t bytes = columns->peak_bytes[i];
        if (!is_price(columns->t_s[i], columns->d_s[i], bytes))
            continue;
        *least = bytes < *least ? bytes : *least;
        if (bytes <= config->limit_bytes)
            points[n_points++] = make_point(space, work, columns, i);
    }
    work->n_fitting += (int64_t)n_points;
    n_points = mist_pareto_filter(points, n_points, false);
    enum mist_status status = mist_pareto_sample(
        points, n_points, config->max_points > 0 ? config->max_points : n_points,
        work->kind.n_micro_batches, kept, &n_kept, err);
    if (status != MIST_OK)
        return status;
    add_options(work, columns, kept, n_kept);
    if (work->rows)
        describe(space, config, work, columns, first, n, points, n_points, kept, n_kept);
    return MIST_OK;
}

static bool alloc_work(const struct mist_search_config *config,
                       struct mist_search_work *work, size_t n)
{
    work->choices = malloc(n * sizeof *work->choices);
    work->options = malloc(n * sizeof *work->options);
    work->least_bytes = malloc(((size_t)work->layers_max + 1) * sizeof(int64_t));
    work->rows = config->keeps_rows ? malloc(n * sizeof *work->rows) : NULL;
    if (!work->choices || !work->options || !work->least_bytes ||
        (config->keeps_rows && !work->rows))
        return false;
    for (int32_t l = 0; l <= work->layers_max; l++)
        work->least_bytes[l] = INT64_MAX;
    return true;
}

/* Gives back what the frontiers did not need. */
static void trim_work(struct mist_search_work *work)
{
    size_t n = work->n_options > 0 ? work->n_options : 1;
    void *shrunk = realloc(work->choices, n * sizeof *work->choices);

    if (shrunk)
        work->choices = shrunk;
    shrunk = realloc(work->options, n * sizeof *work->options);
    if (shrunk)
        work->options = shrunk;
}

enum mist_status mist_search_fill_work(const struct mist_space *space,
                                       const struct mist_search_config *config,
                                       struct mist_search_work *work,
                                       struct mist_err *err)
{
    struct columns columns = {0};
    struct mist_pareto_point *scratch = NULL;
    size_t n = 0, most = 0, first = 0;

    for (int32_t l = work->layers_min; l <= work->layers_max; l++) {
        size_t of_layers = count_configurations(space, work, l);
        n += of_layers;
        most = of_layers > most ? of_layers : most;
    }
    enum mist_status status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    scratch = malloc(2 * most * sizeof *scratch);
    if (!scratch || !alloc_columns(&columns, n) || !alloc_work(config, work, n))
        goto out;
    list_configurations(space, work, &columns);
    work->n_priced = (int64_t)n;
    struct mist_search_block block = {
        .n = n,
        .n_layers = columns.n_layers,
        .n_checkpointed = columns.n_checkpointed,
        .zero = columns.zero,
        .t_s = columns.t_s,
        .d_s = columns.d_s,
        .peak_bytes = columns.peak_bytes,
    };
    status = config->price(config->price_context, &work->kind, &block, err);
    for (int32_t l = work->layers_min; l <= work->layers_max && status == MIST_OK; l++) {
        size_t of_layers = count_configurations(space, work, l);
        status =
            keep_frontier(space, config, work, &columns, first, of_layers, scratch, err);
        first += of_layers;
    }
    trim_work(work);
out:
    free(scratch);
    free_columns(&columns);
    return status;
}

void mist_search_fini_work(struct mist_search_work *work)
{
    free(work->choices);
    free(work->options);
    free(work->least_bytes);
    free(work->rows);
    *work = (struct mist_search_work){0};
}

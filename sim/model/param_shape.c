/* Where a tensor-parallel rank's elements lie in the whole parameter.
 * See param_shape.h. */
#include "sim/model/param_shape.h"

#include <assert.h>

/* A section as ranks see it. */
struct cut {
    int64_t n_units, unit, local_units; /* unit: rows */
    bool is_replicated;
};

static struct cut cut_section(const struct mist_param_shape *shape, int32_t i, int32_t tp)
{
    struct cut cut = {
        .n_units = shape->section_rows[i] / shape->section_unit[i],
        .unit = shape->section_unit[i],
    };

    assert(shape->section_rows[i] % shape->section_unit[i] == 0);
    cut.local_units = (cut.n_units + tp - 1) / tp;
    cut.is_replicated = cut.unit > 1 && cut.n_units < tp;
    return cut;
}

int64_t mist_param_local_elements(const struct mist_param_shape *shape, int32_t tp)
{
    int64_t rows = 0;

    if (shape->split == MIST_SPLIT_NONE)
        return shape->rows * shape->columns;
    if (shape->split == MIST_SPLIT_COLUMNS) {
        assert(shape->columns % tp == 0);
        return shape->rows * (shape->columns / tp);
    }
    for (int32_t i = 0; i < shape->n_sections; i++) {
        struct cut cut = cut_section(shape, i, tp);
        rows += cut.local_units * cut.unit;
    }
    return rows * shape->columns;
}

static int32_t row_spans(const struct mist_param_shape *shape, int32_t tp, int32_t i_tp,
                         struct mist_param_span out[MIST_MAX_SECTIONS])
{
    int64_t local_row = 0, section_row = 0;
    int32_t n = 0;

    for (int32_t i = 0; i < shape->n_sections; i++) {
        struct cut cut = cut_section(shape, i, tp);
        int64_t first =
            cut.is_replicated ? i_tp * cut.n_units / tp : i_tp * cut.local_units;
        int64_t end = first + cut.local_units;
        end = end < cut.n_units ? end : cut.n_units;
        if (first < end)
            out[n++] = (struct mist_param_span){
                .local_first = local_row * shape->columns,
                .global_first = (section_row + first * cut.unit) * shape->columns,
                .length = (end - first) * cut.unit * shape->columns,
                .n_runs = 1,
                .is_owned = !cut.is_replicated || i_tp == 0 ||
                            (i_tp - 1) * cut.n_units / tp != first,
            };
        local_row += cut.local_units * cut.unit;
        section_row += shape->section_rows[i];
    }
    return n;
}

int32_t mist_param_spans(const struct mist_param_shape *shape, int32_t tp, int32_t i_tp,
                         struct mist_param_span out[MIST_MAX_SECTIONS])
{
    int64_t columns = shape->columns;

    assert(tp >= 1 && i_tp >= 0 && i_tp < tp);
    if (shape->split == MIST_SPLIT_ROWS)
        return row_spans(shape, tp, i_tp, out);
    if (shape->split == MIST_SPLIT_NONE) {
        out[0] = (struct mist_param_span){
            .length = shape->rows * columns, .n_runs = 1, .is_owned = i_tp == 0};
        return 1;
    }
    assert(columns % tp == 0);
    out[0] = (struct mist_param_span){
        .global_first = i_tp * (columns / tp),
        .length = columns / tp,
        .n_runs = shape->rows,
        .global_stride = columns,
        .is_owned = true,
    };
    return 1;
}

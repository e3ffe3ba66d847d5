/*
 * A parameter as a whole, and how it is cut over tensor-parallel ranks.
 *
 * The whole parameter (tp = 1) is a row-major matrix [rows, columns]; a vector has one
 * column. Column-parallel layers cut the rows (the outputs), row-parallel layers the
 * columns (the inputs). Rows that are several matrices in one (q, k and v; gate and up)
 * are cut section by section, so that a rank holds a part of each. The vocabulary need
 * not divide: ranks get equal numbers of rows, the last ones partly padding (zeros). With
 * more ranks than key-value heads (units of more than one row) every head is on several
 * ranks, rank i holds unit i * units / tp. Columns are cut only where tp divides them.
 *
 * Initial parameters, checkpoints and foreign formats speak of whole parameters and use
 * the spans below to find a rank's elements in them.
 */
#ifndef MIST_SIM_PARAM_SHAPE_H
#define MIST_SIM_PARAM_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

enum mist_split { MIST_SPLIT_NONE, MIST_SPLIT_ROWS, MIST_SPLIT_COLUMNS };

enum { MIST_MAX_SECTIONS = 3 };

struct mist_param_shape {
    int64_t rows, columns; /* of the whole parameter, without padding */
    enum mist_split split;
    int32_t n_sections;                      /* of the rows, >= 1 */
    int64_t section_rows[MIST_MAX_SECTIONS]; /* sum: rows */
    int64_t section_unit[MIST_MAX_SECTIONS]; /* rows that stay together: a head; 1 */
};

/*
 * n_runs runs of length elements each: run i is local_first + i * length .. in the rank's
 * parameter and global_first + i * global_stride .. in the whole one.
 */
struct mist_param_span {
    int64_t local_first, global_first, length, n_runs, global_stride;
    bool is_owned; /* no tensor-parallel rank before this one holds the elements, too; set
                      by mist_param_spans */
};

/* Elements of rank's part, padding included. tp >= 1. */
int64_t mist_param_local_elements(const struct mist_param_shape *shape, int32_t tp);

/* The spans of a rank's part, by local_first; what they leave out is padding. Returns how
 * many, at most MIST_MAX_SECTIONS. 0 <= i_tp < tp. */
int32_t mist_param_spans(const struct mist_param_shape *shape, int32_t tp, int32_t i_tp,
                         struct mist_param_span out[MIST_MAX_SECTIONS]);

#endif

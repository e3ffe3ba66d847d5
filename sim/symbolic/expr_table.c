/* Tables of expressions: piecewise linear functions and indexed values. See expr.h. */
#include "sim/symbolic/expr.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static int32_t fail(struct mist_expr_pool *pool, enum mist_status status)
{
    if (pool->status == MIST_OK)
        pool->status = status;
    return -1;
}

static bool knots_are_valid(const double *x, const double *y, size_t n)
{
    if (n == 0 || n > INT32_MAX / 2)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(y[i]) || (x && !isfinite(x[i])) ||
            (x && i > 0 && x[i] <= x[i - 1]) ||
            (x && i > 0 && !isfinite((y[i] - y[i - 1]) / (x[i] - x[i - 1]))))
            return false;
    return true;
}

static bool fill_table(struct mist_expr_pool *pool, struct mist_expr_table *table,
                       const double *x, const double *y, size_t n)
{
    table->n = (int32_t)n;
    table->n_padded = 1;
    while (table->n_padded < table->n)
        table->n_padded *= 2;
    size_t n_padded = (size_t)table->n_padded;
    table->v_max = x ? x[n - 1] : (double)(n - 1);
    table->y = mist_arena_alloc(&pool->arena, n * sizeof *y);
    if (!table->y)
        return false;
    memcpy(table->y, y, n * sizeof *y);
    if (!x)
        return true;
    table->x = mist_arena_alloc(&pool->arena, n_padded * sizeof *x);
    table->slope = mist_arena_alloc(&pool->arena, n * sizeof *table->slope);
    if (!table->x || !table->slope)
        return false;
    for (size_t i = 0; i < n_padded; i++)
        table->x[i] = i < n ? x[i] : INFINITY;
    for (size_t i = 0; i + 1 < n; i++)
        table->slope[i] = (y[i + 1] - y[i]) / (x[i + 1] - x[i]);
    table->slope[n - 1] = 0;
    return true;
}

static int32_t register_table(struct mist_expr_pool *pool, const double *x,
                              const double *y, size_t n)
{
    struct mist_expr_table table = {0};

    if (!knots_are_valid(x, y, n))
        return fail(pool, MIST_ERR_RANGE);
    struct mist_expr_table *tables = mist_grow(pool->tables, &pool->tables_capacity,
                                               pool->n_tables + 1, sizeof *tables);
    if (!tables)
        return fail(pool, MIST_ERR_MEMORY);
    pool->tables = tables;
    if (!fill_table(pool, &table, x, y, n))
        return fail(pool, MIST_ERR_MEMORY);
    tables[pool->n_tables] = table;
    return (int32_t)pool->n_tables++;
}

int32_t mist_expr_table_linear(struct mist_expr_pool *pool, const double *x,
                               const double *y, size_t n)
{
    assert(x);
    return register_table(pool, x, y, n);
}

int32_t mist_expr_table_index(struct mist_expr_pool *pool, const double *y, size_t n)
{
    return register_table(pool, NULL, y, n);
}

double mist_expr_table_value(const struct mist_expr_table *table, double v)
{
    double v_min = table->x ? table->x[0] : 0;
    int32_t at = 0;

    v = v > v_min ? v : v_min;
    v = v < table->v_max ? v : table->v_max;
    if (!table->x)
        return table->y[(int32_t)v];
    for (int32_t step = table->n_padded / 2; step > 0; step /= 2)
        at += table->x[at + step] <= v ? step : 0;
    return table->y[at] + (v - table->x[at]) * table->slope[at];
}

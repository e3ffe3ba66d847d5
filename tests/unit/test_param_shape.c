/*
 * Cuts of random parameters against a second, obvious description: which rank holds a row
 * or column, element by element.
 */
#include "tests/unit/test.h"

#include "sim/model/param_shape.h"

static uint64_t random_state;

static int64_t draw(int64_t low, int64_t high)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

static struct mist_param_shape draw_shape(int32_t tp)
{
    struct mist_param_shape shape = {
        .split = (enum mist_split)draw(0, 2),
        .columns = draw(0, 3) ? draw(1, 6) : 1,
        .n_sections = (int32_t)draw(1, MIST_MAX_SECTIONS),
    };

    if (shape.split == MIST_SPLIT_COLUMNS)
        shape.columns *= tp;
    for (int32_t i = 0; i < shape.n_sections; i++) {
        shape.section_unit[i] = draw(0, 1) ? 1 : draw(2, 4);
        shape.section_rows[i] = shape.section_unit[i] * draw(1, 9);
        shape.rows += shape.section_rows[i];
    }
    return shape;
}

/* Which unit of n is at place i of a rank with n_places; n or more: padding. */
static int64_t unit_at(int64_t n, int64_t unit, int32_t tp, int32_t i_tp, int64_t i)
{
    if (unit > 1 && n < tp) /* several ranks hold each */
        return i_tp * n / tp;
    return i_tp * ((n + tp - 1) / tp) + i;
}

/* to[k]: the whole parameter's element at a rank's element k, -1 padding. Returns their
 * number. */
static int64_t map_elements(const struct mist_param_shape *shape, int32_t tp,
                            int32_t i_tp, int64_t *to)
{
    int64_t n = 0, first_row = 0;

    for (int32_t section = 0; section < shape->n_sections; section++) {
        int64_t unit = shape->section_unit[section];
        int64_t n_units = shape->section_rows[section] / unit;
        int64_t n_places =
            shape->split == MIST_SPLIT_ROWS ? (n_units + tp - 1) / tp : n_units;
        for (int64_t place = 0; place < n_places * unit; place++) {
            int64_t u = place / unit;
            if (shape->split == MIST_SPLIT_ROWS)
                u = unit_at(n_units, unit, tp, i_tp, u);
            for (int64_t column = 0; column < shape->columns; column++) {
                if (shape->split == MIST_SPLIT_COLUMNS &&
                    column / (shape->columns / tp) != i_tp)
                    continue;
                int64_t row = first_row + u * unit + place % unit;
                to[n++] = u < n_units ? row * shape->columns + column : -1;
            }
        }
        first_row += shape->section_rows[section];
    }
    return n;
}

enum { MAX_ELEMENTS = 3 * 40 * 6 * 16 };

/* n_covered[element], n_owned[element]: ranks that hold it, that own it. */
static void check_rank(const struct mist_param_shape *shape, int32_t tp, int32_t i_tp,
                       int *n_covered, int *n_owned)
{
    static int64_t expected[MAX_ELEMENTS], got[MAX_ELEMENTS];
    struct mist_param_span spans[MIST_MAX_SECTIONS];
    int64_t n = map_elements(shape, tp, i_tp, expected), last = -1;
    int32_t n_spans = mist_param_spans(shape, tp, i_tp, spans);

    assert_int_equal(mist_param_local_elements(shape, tp), n);
    assert_in_range(n_spans, 0, MIST_MAX_SECTIONS);
    memset(got, -1, sizeof got);
    for (int32_t i = 0; i < n_spans; i++) {
        assert_true(spans[i].length > 0 && spans[i].n_runs > 0);
        assert_true(spans[i].local_first > last);
        last = spans[i].local_first;
        for (int64_t run = 0; run < spans[i].n_runs; run++) {
            for (int64_t k = 0; k < spans[i].length; k++) {
                int64_t local = spans[i].local_first + run * spans[i].length + k;
                int64_t global = spans[i].global_first + run * spans[i].global_stride + k;
                assert_true(local < n && got[local] == -1);
                assert_true(global >= 0 && global < shape->rows * shape->columns);
                got[local] = global;
                assert_int_equal(spans[i].is_owned, n_covered[global] == 0);
                n_covered[global]++;
                n_owned[global] += spans[i].is_owned;
            }
        }
    }
    assert_memory_equal(got, expected, (size_t)n * sizeof *got);
}

TEST(test_random)
{
    static int n_covered[MAX_ELEMENTS], n_owned[MAX_ELEMENTS];

    random_state = test_seed(1);
    for (int i = 0; i < 3000; i++) {
        int32_t tp = (int32_t)draw(1, 12);
        struct mist_param_shape shape = draw_shape(tp);
        memset(n_covered, 0, sizeof n_covered);
        memset(n_owned, 0, sizeof n_owned);
        for (int32_t i_tp = 0; i_tp < tp; i_tp++)
            check_rank(&shape, tp, i_tp, n_covered, n_owned);
        for (int64_t k = 0; k < shape.rows * shape.columns; k++)
            assert_int_equal(n_owned[k], 1);
        int64_t row = 0;
        for (int32_t k = 0; k < shape.n_sections; k++) {
            int64_t n_units = shape.section_rows[k] / shape.section_unit[k];
            bool is_shared = shape.split == MIST_SPLIT_ROWS &&
                             shape.section_unit[k] > 1 && n_units < tp;
            for (int64_t end = row + shape.section_rows[k]; row < end; row++) {
                for (int64_t column = 0; column < shape.columns; column++) {
                    int times = n_covered[row * shape.columns + column];
                    if (shape.split == MIST_SPLIT_NONE || (is_shared && n_units == 1))
                        assert_int_equal(times, tp);
                    else if (is_shared)
                        assert_in_range(times, tp / n_units, tp / n_units + 1);
                    else
                        assert_int_equal(times, 1);
                }
            }
        }
    }
}

/* Written out by hand: q of 4 heads, one k and one v head of 2 rows, on 2 ranks. */
TEST(test_shared_head)
{
    const struct mist_param_shape shape = {12, 5,         MIST_SPLIT_ROWS,
                                           3,  {8, 2, 2}, {2, 2, 2}};
    struct mist_param_span spans[MIST_MAX_SECTIONS];

    assert_int_equal(mist_param_local_elements(&shape, 2), (4 + 2 + 2) * 5);
    assert_int_equal(mist_param_spans(&shape, 2, 1, spans), 3);
    assert_int_equal(spans[0].global_first, 4 * 5);
    assert_int_equal(spans[0].length, 4 * 5);
    assert_int_equal(spans[1].local_first, 4 * 5);
    assert_int_equal(spans[1].global_first, 8 * 5);
    assert_int_equal(spans[2].local_first, 6 * 5);
    assert_int_equal(spans[2].global_first, 10 * 5);
    assert_true(spans[0].is_owned && !spans[1].is_owned && !spans[2].is_owned);
}

/* A section of padding alone, then one whose heads are on two ranks each: 3 heads of 1
 * row and 2 of 2 rows on 4 ranks. The last one has the second head again, the third one
 * has it first. */
TEST(test_owner)
{
    const struct mist_param_shape shape = {7, 2, MIST_SPLIT_ROWS, 2, {3, 4}, {1, 2}};
    struct mist_param_span spans[MIST_MAX_SECTIONS];

    assert_int_equal(mist_param_spans(&shape, 4, 2, spans), 2);
    assert_true(spans[0].is_owned && spans[1].is_owned);
    assert_int_equal(spans[1].global_first, 5 * 2);
    assert_int_equal(mist_param_spans(&shape, 4, 3, spans), 1);
    assert_int_equal(spans[0].global_first, 5 * 2);
    assert_false(spans[0].is_owned);
}

/* A vocabulary of 5 on 4 ranks: 2, 2, 1 and padding only. */
TEST(test_padding)
{
    const struct mist_param_shape shape = {5, 3, MIST_SPLIT_ROWS, 1, {5}, {1}};
    struct mist_param_span spans[MIST_MAX_SECTIONS];

    assert_int_equal(mist_param_local_elements(&shape, 4), 6);
    assert_int_equal(mist_param_spans(&shape, 4, 2, spans), 1);
    assert_int_equal(spans[0].global_first, 12);
    assert_int_equal(spans[0].length, 3);
    assert_int_equal(mist_param_spans(&shape, 4, 3, spans), 0);
}

TEST_MAIN(NULL, NULL)

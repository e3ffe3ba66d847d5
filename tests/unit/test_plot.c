/* Plots: ranks, formats, text timelines, pictures of timelines and their data, running
 * gnuplot. */
#include "tests/unit/test.h"

#include "plots/internal.h"
#include "plots/plot.h"

#include <unistd.h>

static void add(struct mist_timeline *timeline, int rank, enum mist_stream stream,
                enum mist_task_kind kind, int micro_batch, double start_s, double end_s)
{
    struct mist_timeline_row row = {.rank = rank,
                                    .stream = stream,
                                    .kind = kind,
                                    .layer = -1,
                                    .micro_batch = micro_batch,
                                    .task = (int64_t)timeline->n_rows,
                                    .start_s = 5 + start_s, /* not at the origin */
                                    .end_s = 5 + end_s,
                                    .device_live_bytes = ((int64_t)timeline->n_rows + 1)
                                                         << 30};

    assert_int_equal(mist_timeline_add(timeline, &row, NULL), MIST_OK);
}

/* Two ranks, 40 s: a cell of 1 s where the text is 40 cells wide. */
static void fill(struct mist_timeline *timeline)
{
    mist_timeline_init(timeline);
    add(timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 0, 4);
    add(timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 1, 4, 8);
    add(timeline, 0, MIST_STREAM_GPU_GPU, MIST_TASK_SEND_ACTIVATION, 0, 4, 5);
    add(timeline, 1, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 5, 9);
    add(timeline, 1, MIST_STREAM_COMPUTE, MIST_TASK_RECOMPUTE, 0, 9, 11);
    add(timeline, 1, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, 0, 11, 19);
    add(timeline, 1, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD_WEIGHT, 0, 19, 20);
    add(timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, 10, 20, 28);
    add(timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_OPTIMIZER, -1, 28.2, 28.4);
    add(timeline, 0, MIST_STREAM_GPU_GPU, MIST_TASK_REDUCE_GRADIENT, -1, 30, 40);
}

static enum mist_status draw(const char *kind, FILE *stream,
                             const struct mist_plot_input *inputs, int n_inputs,
                             const struct mist_plot_options *options,
                             enum mist_plot_format format, struct mist_err *err)
{
    return mist_plot_write_timelines(stream, mist_plot_find_kind(kind), inputs, n_inputs,
                                     options, format, err);
}

/* Every stream has a lane of its own name. */
TEST(test_lanes)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {0};
    char *text = NULL, *at;
    size_t n = 0;

    mist_timeline_init(&timeline);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        add(&timeline, 0, (enum mist_stream)i, MIST_TASK_OPTIMIZER, -1, i, i + 1);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(draw("timeline", stream, &input, 1, &options, MIST_PLOT_PNG, NULL),
                     MIST_OK);
    fclose(stream);
    at = strstr(text, "set ytics");
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "%s'", mist_stream_name((enum mist_stream)i));
        at = at ? strstr(at, quoted) : NULL;
        if (!at)
            fail_msg("no lane is called %s:\n%s", quoted, text);
        at++;
    }
    free(text);
    mist_timeline_fini(&timeline);
}

TEST(test_ranks)
{
    static const char *const bad[] = {"",     "a",  "1-",  "-1", "3-1",
                                      "1,,2", "1,", "1 2", "0x1"};
    struct mist_plot_ranks ranks;

    assert_int_equal(mist_plot_parse_ranks("0-3,5", &ranks, NULL), MIST_OK);
    assert_int_equal(ranks.n_ranges, 2);
    assert_true(ranks.low[0] == 0 && ranks.high[0] == 3);
    assert_true(ranks.low[1] == 5 && ranks.high[1] == 5);
    assert_int_equal(mist_plot_parse_ranks("all", &ranks, NULL), MIST_OK);
    assert_int_equal(ranks.n_ranges, 0);
    assert_int_equal(mist_plot_parse_ranks(NULL, &ranks, NULL), MIST_OK);
    assert_int_equal(ranks.n_ranges, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (mist_plot_parse_ranks(bad[i], &ranks, NULL) != MIST_ERR_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
}

TEST(test_format)
{
    enum mist_plot_format format;

    assert_int_equal(mist_plot_format_from_path("a/b.svg", &format, NULL), MIST_OK);
    assert_int_equal(format, MIST_PLOT_SVG);
    assert_int_equal(mist_plot_format_from_path("-", &format, NULL), MIST_OK);
    assert_int_equal(format, MIST_PLOT_TEXT);
    assert_int_equal(mist_plot_format_from_path(".png", &format, NULL), MIST_ERR_USAGE);
    assert_int_equal(mist_plot_format_from_path("a.PNG", &format, NULL), MIST_ERR_USAGE);
    assert_int_equal(mist_plot_format_from_path("png", &format, NULL), MIST_ERR_USAGE);
}

/* The text timeline, letter by letter. */
TEST(test_gantt)
{
    static const char expected[] =
        "a.csv: 40.0 s\n"
        "rank 0     compute        0fff1fff............10bbbbbbo...........\n"
        "           gpu_gpu        ....s.........................cccccccccc\n"
        "rank 1     compute        .....0fff0rbbbbbbbbw....................\n"
        "                          |0s                 |20\n"
        "f forward  r recompute  b backward  w backward_weight  o optimizer  s send/recv "
        " "
        "c collective  . idle  (numbers: micro-batches)\n";
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a.csv"};
    struct mist_plot_options options = {.n_text_columns = 66};
    struct mist_err err = {0};
    char *text = NULL;
    size_t n = 0;

    fill(&timeline);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(mist_plot_print_gantt(stream, &input, 1, &options, &err), MIST_OK);
    fclose(stream);
    assert_string_equal(text, expected);
    free(text);

    stream = open_memstream(&text, &n);
    assert_int_equal(mist_plot_parse_ranks("1", &options.ranks, &err), MIST_OK);
    options.from_s = 10;
    options.to_s = 20;
    options.has_colors = true;
    assert_int_equal(mist_plot_print_gantt(stream, &input, 1, &options, &err), MIST_OK);
    fclose(stream);
    assert_null(strstr(text, "rank 0"));
    assert_null(strstr(text, "gpu_gpu"));
    assert_non_null(strstr(text, "\033[48;2;230;159;0m\033[30mbbb"));
    free(text);

    stream = open_memstream(&text, &n);
    options.from_s = 25; /* rank 1 has ended */
    options.to_s = 0;
    assert_int_equal(mist_plot_print_gantt(stream, &input, 1, &options, &err),
                     MIST_ERR_INPUT);
    fclose(stream);
    free(text);
    mist_timeline_fini(&timeline);
}

/* A cell that a task only grazes is idle, unless the task shows nowhere else. */
TEST(test_gantt_cells)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {.n_text_columns = 46};
    char *text = NULL;
    size_t n = 0;

    mist_timeline_init(&timeline);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, -1, 0, 2.3);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, -1, 4, 6.7);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_OPTIMIZER, -1, 10.1, 10.2);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, -1, 12.8, 13.1);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, -1, 15.9, 16.2);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_LOAD_BATCH, -1, 19, 20);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(mist_plot_print_gantt(stream, &input, 1, &options, NULL), MIST_OK);
    fclose(stream);
    assert_non_null(strstr(text, " ff..fff...o.b...b..l\n"));
    free(text);
    mist_timeline_fini(&timeline);
}

static int count_lines(const char *text, const char *begin)
{
    const char *line = strstr(text, begin);
    int n = -1;

    assert_non_null(line);
    for (; strncmp(line, "END\n", 4) != 0; line = strchr(line, '\n') + 1)
        n++;
    return n;
}

TEST(test_timeline_program)
{
    struct mist_timeline timeline;
    struct mist_plot_input inputs[2] = {{&timeline, "a'`id`\n.csv"},
                                        {&timeline, "b.csv"}};
    struct mist_plot_options options = {.title = "it's `id`"};
    struct mist_err err = {0};
    char *text = NULL, *again = NULL;
    size_t n = 0;

    fill(&timeline);
    for (int i = 0; i < 2; i++) {
        FILE *stream = open_memstream(i ? &again : &text, &n);
        assert_int_equal(
            draw("timeline", stream, inputs, 2, &options, MIST_PLOT_SVG, &err), MIST_OK);
        fclose(stream);
    }
    assert_string_equal(text, again);
    assert_non_null(strstr(text, "set terminal svg"));
    assert_null(strstr(text, "set output"));
    assert_non_null(strstr(text, "title_text = 'it''s `id`'\n"));
    assert_non_null(
        strstr(text, "panel_titles[1] = 'a''`id`\\n.csv: 40.0 s, compute busy "));
    assert_non_null(strstr(text, "n_panels = 2\n"));
    /* two bubbles, ten tasks, a hair between two of one colour, and one that is not seen */
    assert_int_equal(count_lines(text, "$boxes << END\n"), 2 * 14);
    /* 0 and 1 forward and 10 of rank 0, 0 forward and 0 backward of rank 1, one dummy. */
    assert_int_equal(count_lines(text, "$labels << END\n"), 2 * 5 + 2);
    assert_non_null(strstr(text, "x_min = 0\nx_max = 40\n"));
    free(text);
    free(again);
    mist_timeline_fini(&timeline);
}

/* Each of two timelines has its share up to its own end. */
TEST(test_busy)
{
    struct mist_timeline timelines[2];
    struct mist_plot_input inputs[2] = {{&timelines[0], "a"}, {&timelines[1], "b"}};
    struct mist_plot_options options = {.from_s = 1};
    char *text = NULL;
    size_t n = 0;

    for (int i = 0; i < 2; i++)
        mist_timeline_init(&timelines[i]);
    add(&timelines[0], 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 0, 9);
    add(&timelines[1], 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 0, 2);
    add(&timelines[1], 0, MIST_STREAM_GPU_GPU, MIST_TASK_REDUCE_GRADIENT, -1, 2, 3);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(draw("timeline", stream, inputs, 2, &options, MIST_PLOT_SVG, NULL),
                     MIST_OK);
    fclose(stream);
    assert_non_null(strstr(text, "'a: 9.00 s, compute busy 100.0 % of the time shown'"));
    assert_non_null(strstr(text, "'b: 3.00 s, compute busy 50.0 % of the time shown'"));
    free(text);
    for (int i = 0; i < 2; i++)
        mist_timeline_fini(&timelines[i]);
}

/* A thousand short tasks of one micro-batch, and gaps that show:
 * boxes are as few as can be. */
TEST(test_merging)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {0};
    char *text = NULL;
    size_t n = 0;

    mist_timeline_init(&timeline);
    for (int i = 0; i < 1000; i++)
        add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, i * 1e-3,
            i * 1e-3 + 0.99e-3);
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 1.1, 1.2);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(draw("timeline", stream, &input, 1, &options, MIST_PLOT_PNG, NULL),
                     MIST_OK);
    fclose(stream);
    assert_int_equal(count_lines(text, "$boxes << END\n"), 1 + 2 + 1);
    free(text);
    mist_timeline_fini(&timeline);
}

/* The program of a timeline's picture. */
static char *timeline_program(const struct mist_plot_input *inputs, int n_inputs)
{
    struct mist_plot_options options = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);

    assert_int_equal(
        draw("timeline", stream, inputs, n_inputs, &options, MIST_PLOT_PNG, NULL),
        MIST_OK);
    fclose(stream);
    return text;
}

/* Ranks that do the same are one row, as are those that a replay left out; another timeline
 * that has them takes them apart. */
TEST(test_equal_ranks)
{
    struct mist_timeline timeline, other;
    struct mist_plot_input inputs[2] = {{&timeline, "a"}, {&other, "b"}};
    struct mist_plot_options options = {.n_text_columns = 40};
    char *text = NULL;
    size_t n = 0;

    mist_timeline_init(&timeline);
    mist_timeline_init(&other);
    for (int rank = 0; rank < 4; rank++) /* 1 is later than 0, 2 and 3 */
        add(&timeline, rank, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, rank == 1, 9);
    add(&timeline, 4, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, 0, 9, 10);
    timeline.rows[4].n_ranks = 3; /* 4, 5, 6 */
    add(&timeline, 7, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 0,
        9); /* as 0, and more */
    add(&timeline, 7, MIST_STREAM_COMPUTE, MIST_TASK_OPTIMIZER, 0, 9, 10);
    for (int rank = 4; rank < 6; rank++)
        add(&other, rank, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, 0, rank - 4, 10);

    text = timeline_program(inputs, 1);
    assert_non_null(strstr(text, "('rank 0, of 3  compute' "));
    assert_non_null(strstr(text, ", 'rank 1  compute' "));
    assert_non_null(strstr(text, ", 'rank 4, of 3  compute' "));
    assert_non_null(strstr(text, ", 'rank 7  compute' "));
    assert_null(strstr(text, "rank 2"));
    free(text);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(mist_plot_parse_ranks("1,6", &options.ranks, NULL), MIST_OK);
    assert_int_equal(mist_plot_print_gantt(stream, inputs, 1, &options, NULL), MIST_OK);
    fclose(stream);
    assert_null(strstr(text, "rank 0"));
    assert_non_null(strstr(text, "\nrank 1       compute        .."));
    assert_non_null(strstr(text, "\nrank 4, of 3 compute        .."));
    free(text);
    text = timeline_program(inputs, 2);
    assert_non_null(strstr(text, "'rank 4, of 2  compute' "));
    assert_non_null(strstr(text, "'rank 5  compute' "));
    free(text);
    mist_timeline_fini(&timeline);
    mist_timeline_fini(&other);
}

/* Recomputation that takes turns with its backward pass within a pixel or two is part of it;
 * where it is longer it is told apart. */
TEST(test_recomputation)
{
    static const struct {
        int n_layers, n_boxes;
    } cases[] = {{1000, 1}, {100, 2 * 100}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_timeline timeline;
        struct mist_plot_input input = {&timeline, "a"};
        mist_timeline_init(&timeline);
        for (int k = 0; k < cases[i].n_layers; k++) {
            add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_RECOMPUTE, 0, 3 * k,
                3 * k + 1);
            add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_BACKWARD, 0, 3 * k + 1,
                3 * k + 3);
        }
        char *text = timeline_program(&input, 1);
        assert_int_equal(count_lines(text, "$boxes << END\n"), 1 + cases[i].n_boxes + 1);
        assert_int_equal(count_lines(text, "$labels << END\n"), 1 + (i == 0));
        free(text);
        mist_timeline_fini(&timeline);
    }
}

/* Updates of the optimizer interrupt the first forward pass: its number stands in it once, in
 * the widest box, and in the next iteration again. */
TEST(test_interrupted_pass)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};

    mist_timeline_init(&timeline);
    for (int i = 0; i < 12; i++) {
        bool is_forward = i % 2;
        add(&timeline, 0, MIST_STREAM_COMPUTE,
            is_forward ? MIST_TASK_FORWARD : MIST_TASK_OPTIMIZER, is_forward - 1,
            10 * i - (i == 3), 10 * (i + 1) - (i == 2));
        timeline.rows[i].iteration = i / 10;
    }
    char *text = timeline_program(&input, 1);
    assert_int_equal(count_lines(text, "$labels << END\n"), 2 + 1);
    assert_non_null(strstr(text, "$labels << END\n1 34."));
    assert_non_null(strstr(text, "\n1 115 "));
    free(text);
    mist_timeline_fini(&timeline);
}

/* However many ranks differ, a picture has room for them: compute streams alone, one pixel
 * each, and then one in so many. */
TEST(test_many_ranks)
{
    static const struct {
        int n_ranks, n_boxes;
        const char *note;
    } cases[] = {
        {20, 20 * 3 + 1, ""},
        {300, 300 * 2 + 1, "; of 300 ranks that differ, the compute streams alone'"},
        {4000, 1334 * 2 + 1,
         "; of 4000 ranks that differ, one in 3, the compute streams alone'"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_timeline timeline;
        struct mist_plot_input input = {&timeline, "a"};
        int height = 0;
        mist_timeline_init(&timeline);
        for (int rank = 0; rank < cases[i].n_ranks; rank++) {
            double start_s = 1 + rank * 1e-3;
            add(&timeline, rank, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, start_s, 9);
            add(&timeline, rank, MIST_STREAM_SEND, MIST_TASK_SEND_GRADIENT, 0, 9, 10);
        }
        char *text = timeline_program(&input, 1);
        assert_int_equal(count_lines(text, "$boxes << END\n"), cases[i].n_boxes);
        const char *size = strstr(text, " size 1500,");
        assert_true(size && sscanf(size, " size 1500,%d", &height) == 1);
        assert_true(height < 2000);
        assert_non_null(strstr(text, cases[i].note));
        free(text);
        mist_timeline_fini(&timeline);
    }
}

/* A pixel shows one thing: tasks and gaps that are shorter than pixels are boxes of whole
 * pixels, those of the kind that covers most or none, by an independent count. */
TEST(test_pixels)
{
    enum { N_PIXELS = 1500 - 150 - 30, N_TASKS = 4000 };
    static char expected[N_PIXELS], drawn[N_PIXELS];
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    double busy[N_PIXELS][2] = {{0}}, end_s = 0, x_low, x_high, y_low, y_high;
    unsigned color;
    uint32_t random = 1;
    int panel;

    mist_timeline_init(&timeline);
    for (int i = 0; i < N_TASKS; i++) {
        random = random * 1664525 + 1013904223;
        double start_s = end_s + (random >> 8) % 1000 * 1e-3 * (i > 0);
        double length_s = 0.2 + (random >> 18) % 1000 * 1e-3;
        end_s = start_s + length_s;
        add(&timeline, 0, MIST_STREAM_COMPUTE,
            i % 2 ? MIST_TASK_FORWARD : MIST_TASK_BACKWARD, i, start_s, end_s);
    }
    for (size_t i = 0; i < timeline.n_rows; i++)
        for (int at = 0; at < N_PIXELS; at++) {
            double left_s = at * end_s / N_PIXELS, right_s = (at + 1) * end_s / N_PIXELS;
            double from_s = timeline.rows[i].start_s - 5,
                   to_s = timeline.rows[i].end_s - 5;
            from_s = from_s > left_s ? from_s : left_s;
            to_s = to_s < right_s ? to_s : right_s;
            busy[at][i % 2] += to_s > from_s ? to_s - from_s : 0;
        }
    for (int at = 0; at < N_PIXELS; at++)
        expected[at] = busy[at][0] + busy[at][1] < 0.5 * end_s / N_PIXELS ? '.'
                       : busy[at][0] > busy[at][1]                        ? 'b'
                                                                          : 'f';
    char *text = timeline_program(&input, 1);
    memset(drawn, '.', sizeof drawn);
    for (const char *line = strchr(strstr(text, "$boxes"), '\n') + 1;
         sscanf(line, "%d %lf %lf %lf %lf %u", &panel, &x_low, &x_high, &y_low, &y_high,
                &color) == 6;
         line = strchr(line, '\n') + 1) {
        int first = (int)(x_low / end_s * N_PIXELS + 0.5);
        int last = (int)(x_high / end_s * N_PIXELS + 0.5);
        for (int at = first; at < last && y_high > 0; at++)
            drawn[at] = color == 0x0072B2   ? 'f'
                        : color == 0xE69F00 ? 'b'
                        : color == 0xE6E6E6 ? '.'
                                            : drawn[at];
    }
    int n_wrong = 0; /* where a task shows in one pixel alone, it is not hidden */
    for (int at = 0; at < N_PIXELS; at++)
        n_wrong += drawn[at] != expected[at] && expected[at] != '.';
    assert_int_equal(n_wrong, 0);
    free(text);
    mist_timeline_fini(&timeline);
}

TEST(test_memory_program)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {.limit_bytes = (int64_t)24 << 30};
    struct mist_err err = {0};
    char *text = NULL;
    size_t n = 0;

    fill(&timeline);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(draw("memory", stream, &input, 1, &options, MIST_PLOT_PNG, &err),
                     MIST_OK);
    fclose(stream);
    assert_non_null(strstr(text, "$memory << END\n1 1 0 1\n1 1 4 2\n1 1 4 3\n"));
    assert_non_null(strstr(text, "1 2 5 4\n1 2 9 5\n"));
    assert_non_null(strstr(text, "limit_gib = 24\n"));
    assert_non_null(strstr(text, "rank_names[2] = 'rank 1'\n"));
    free(text);
    for (size_t i = 0; i < timeline.n_rows; i++)
        timeline.rows[i].device_live_bytes = 0;
    stream = open_memstream(&text, &n);
    assert_int_equal(draw("memory", stream, &input, 1, &options, MIST_PLOT_PNG, &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "device_live_bytes"));
    fclose(stream);
    free(text);
    mist_timeline_fini(&timeline);
}

/* Of 40 ranks that differ the 16 fullest are drawn; their legend and the limit's, five in a
 * row of 14 pixels, ends above the panel. */
TEST(test_memory_legend)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {.limit_bytes = (int64_t)24 << 30};
    char *text = NULL;
    size_t n = 0;
    int width = 0, height = 0;
    double top = 0;

    mist_timeline_init(&timeline);
    for (int rank = 0; rank < 40; rank++)
        add(&timeline, rank, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 0, 1);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(draw("memory", stream, &input, 1, &options, MIST_PLOT_PNG, NULL),
                     MIST_OK);
    fclose(stream);
    const char *size = strstr(text, " size "), *panel = strstr(text, "panel_tops[1] = ");
    assert_true(size && sscanf(size, " size %d,%d", &width, &height) == 2);
    assert_true(panel && sscanf(panel, "panel_tops[1] = %lf", &top) == 1);
    assert_true((1 - top) * height > 30 + 4 * 14 + 20);
    assert_non_null(strstr(text, "of 40 ranks that differ the fullest"));
    assert_non_null(strstr(text, "rank_names[1] = 'rank 24'\n"));
    assert_non_null(strstr(text, "rank_names[16] = 'rank 39'\n"));
    free(text);
    mist_timeline_fini(&timeline);
}

/* Both ends stay, with quotes that gnuplot reads and whole characters. */
TEST(test_fitted)
{
    static const struct {
        const char *text;
        double em;
        const char *expected;
    } cases[] = {
        {"short", 4, "'short'"},
        {"WWWWWWWWWWWWWWWWWWWW", 10, "'WWW…WWW'"},
        {"it's ääääääääääääääääää's", 8, "'it''s…ä''s'"},
        {"\n\n\n\n\n\n\n\n\n\n\n\n", 8, "'\\n…\\n'"},
        {"WWWW", 0, "'…'"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        size_t n = 0;
        FILE *stream = open_memstream(&text, &n);
        mist_plot_write_fitted(stream, cases[i].text, cases[i].em);
        fclose(stream);
        assert_string_equal(text, cases[i].expected);
        free(text);
    }
    char small[10];
    assert_string_equal(mist_plot_fit("WWWWWWWWWWWWWWWWWWWW", 10, small, sizeof small),
                        "WWW…WWW");
    assert_string_equal(mist_plot_fit("it's", 9, small, sizeof small), "it's");
    assert_string_equal(mist_plot_fit("ääää ö", 9, small, sizeof small), "ääää ");
}

/* What DejaVu Sans lacks would cover the picture; SVG and the terminal have other fonts. */
TEST(test_letters)
{
    static const struct {
        enum mist_plot_format format;
        const char *expected;
    } cases[] = {
        {MIST_PLOT_PNG, "title_text = 'Größe é α ж → ≤ … ??.csv ? ?'\n"},
        {MIST_PLOT_PDF, "title_text = 'Größe é α ж → ≤ … ??.csv ? ?'\n"},
        {MIST_PLOT_SVG, "title_text = 'Größe é α ж → ≤ … 模型.csv 🚀 \u200b'\n"},
        {MIST_PLOT_TEXT, "title_text = 'Größe é α ж → ≤ … 模型.csv 🚀 \u200b'\n"}};
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "模.csv"};
    struct mist_plot_options options = {.title = "Größe é α ж → ≤ … 模型.csv 🚀 \u200b",
                                        .n_text_columns = 200,
                                        .n_text_rows = 24};

    fill(&timeline);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool has_all =
            cases[i].format == MIST_PLOT_SVG || cases[i].format == MIST_PLOT_TEXT;
        char *text = NULL;
        size_t n = 0;
        FILE *stream = open_memstream(&text, &n);
        assert_int_equal(
            draw("memory", stream, &input, 1, &options, cases[i].format, NULL), MIST_OK);
        fclose(stream);
        if (!strstr(text, cases[i].expected))
            fail_msg("no %s in\n%.400s", cases[i].expected, text);
        assert_non_null(strstr(text, has_all ? "panel_titles[1] = '模.csv: "
                                             : "panel_titles[1] = '?.csv: "));
        free(text);
    }
    mist_timeline_fini(&timeline);
}

/* ---- running gnuplot ---- */

/* Runs a program into path. */
static enum mist_status run_program(const char *path, enum mist_plot_format format,
                                    const char *program, struct mist_err *err)
{
    struct mist_plot_run run;
    enum mist_status status = mist_plot_begin(&run, path, format, true, err);

    if (status != MIST_OK)
        return status;
    fputs(program, run.program);
    return mist_plot_finish(&run, err);
}

TEST(test_run)
{
    struct mist_plot_run run;
    struct mist_err err = {0};
    char folder[] = "/tmp/mist_test_XXXXXX", path[64], begin[4] = "";

    assert_non_null(mkdtemp(folder));
    /* A name that gnuplot would take for a command to pipe into, were it told. */
    snprintf(path, sizeof path, "%s/|touch x\n.svg", folder);
    enum mist_status status =
        run_program(path, MIST_PLOT_SVG, "set terminal svg\nplot x\n", &err);
    if (status == MIST_ERR_RUN && strstr(err.message, "not installed")) {
        assert_int_equal(rmdir(folder), 0);
        print_message("gnuplot is not installed\n");
        skip();
    }
    assert_int_equal(status, MIST_OK);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    assert_int_equal(fread(begin, 1, 3, stream), 3);
    assert_string_equal(begin, "<?x");
    fclose(stream);

    /* Not overwritten; a failing program leaves the old picture and nothing else. */
    assert_int_equal(mist_plot_begin(&run, path, MIST_PLOT_SVG, false, &err),
                     MIST_ERR_USAGE);
    assert_int_equal(run_program(path, MIST_PLOT_SVG, "nonsense\n", &err), MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "gnuplot failed: "));
    assert_int_equal(mist_plot_begin(&run, path, MIST_PLOT_SVG, true, &err), MIST_OK);
    mist_plot_abort(&run);
    mist_plot_abort(&run);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* What gnuplot calls success without a whole picture of the format is refused. */
TEST(test_not_whole)
{
    static const char *const programs[] = {"", "print 1\n",
                                           "set print '-'\nprint '</svg> and then'\n",
                                           "set terminal dumb\nplot x\n"};
    struct mist_err err = {0};
    char folder[] = "/tmp/mist_test_XXXXXX", path[64];

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a", folder);
    for (int format = MIST_PLOT_PNG; format <= MIST_PLOT_PDF; format++)
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
            enum mist_status status =
                run_program(path, (enum mist_plot_format)format, programs[i], &err);
            if (status == MIST_ERR_RUN && strstr(err.message, "not installed"))
                break;
            assert_int_equal(status, MIST_ERR_IO);
            assert_non_null(strstr(err.message, "not whole"));
            assert_int_not_equal(access(path, F_OK), 0);
        }
    assert_int_equal(rmdir(folder), 0);
}

TEST_MAIN(NULL, NULL)

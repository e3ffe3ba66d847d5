/* Plots: ranks, formats, text timelines, gnuplot programs and their data,
 * malformed tables. */
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

/* Every stream has a lane of its own name. */
static void test_lanes(void **state)
{
    static const char *const names[MIST_N_STREAMS] = {
        "compute", "gpu-gpu", "host→dev", "dev→host", "send", "receive", "host"};
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {0};
    char *text = NULL, *at;
    size_t n = 0;

    mist_timeline_init(&timeline);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        add(&timeline, 0, (enum mist_stream)i, MIST_TASK_OPTIMIZER, -1, i, i + 1);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(
        mist_plot_write_timeline(stream, &input, 1, &options, MIST_PLOT_PNG, NULL),
        MIST_OK);
    fclose(stream);
    at = strstr(text, "set ytics");
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "%s'", names[i]);
        at = at ? strstr(at, quoted) : NULL;
        if (!at)
            fail_msg("no lane is called %s:\n%s", names[i], text);
        at++;
    }
    free(text);
    mist_timeline_fini(&timeline);
}

static void test_ranks(void **state)
{
    static const char *const bad[] = {"",     "a",  "1-",  "-1", "3-1",
                                      "1,,2", "1,", "1 2", "0x1"};
    struct mist_plot_ranks ranks;

    assert_int_equal(mist_plot_parse_ranks("0-3,5", &ranks, NULL), MIST_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(mist_plot_has_rank(&ranks, i), i <= 3 || i == 5);
    assert_int_equal(mist_plot_parse_ranks("all", &ranks, NULL), MIST_OK);
    assert_true(mist_plot_has_rank(&ranks, 12345));
    assert_int_equal(mist_plot_parse_ranks(NULL, &ranks, NULL), MIST_OK);
    assert_true(mist_plot_has_rank(&ranks, 0));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (mist_plot_parse_ranks(bad[i], &ranks, NULL) != MIST_ERR_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
}

static void test_format(void **state)
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
static void test_gantt(void **state)
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
static void test_gantt_cells(void **state)
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
    add(&timeline, 0, MIST_STREAM_COMPUTE, MIST_TASK_LOAD_BATCH, -1, 19, 20);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(mist_plot_print_gantt(stream, &input, 1, &options, NULL), MIST_OK);
    fclose(stream);
    assert_non_null(strstr(text, " ff..fff...o........l\n"));
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

static void test_timeline_program(void **state)
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
            mist_plot_write_timeline(stream, inputs, 2, &options, MIST_PLOT_SVG, &err),
            MIST_OK);
        fclose(stream);
    }
    assert_string_equal(text, again);
    assert_non_null(strstr(text, "set terminal svg"));
    assert_null(strstr(text, "set output"));
    assert_non_null(strstr(text, "title_text = 'it''s `id`'\n"));
    assert_non_null(
        strstr(text, "panel_titles[1] = 'a''`id`\\n.csv: 40.0 s, compute busy "));
    assert_non_null(strstr(text, "n_panels = 2\n"));
    assert_int_equal(count_lines(text, "$boxes << END\n"), 20);
    /* 0 and 1 forward and 10 of rank 0, 0 forward and 0 backward of rank 1, one dummy. */
    assert_int_equal(count_lines(text, "$labels << END\n"), 2 * 5 + 2);
    assert_non_null(strstr(text, "x_min = 0\nx_max = 40\n"));
    free(text);
    free(again);
    mist_timeline_fini(&timeline);
}

/* A thousand short tasks of one micro-batch, and gaps that show:
 * boxes are as few as can be. */
static void test_merging(void **state)
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
    assert_int_equal(
        mist_plot_write_timeline(stream, &input, 1, &options, MIST_PLOT_PNG, NULL),
        MIST_OK);
    fclose(stream);
    assert_int_equal(count_lines(text, "$boxes << END\n"), 2);
    free(text);
    mist_timeline_fini(&timeline);
}

static void test_memory_program(void **state)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {.limit_bytes = (int64_t)24 << 30};
    struct mist_err err = {0};
    char *text = NULL;
    size_t n = 0;

    fill(&timeline);
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(
        mist_plot_write_memory(stream, &input, 1, &options, MIST_PLOT_PNG, &err),
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
    assert_int_equal(
        mist_plot_write_memory(stream, &input, 1, &options, MIST_PLOT_PNG, &err),
        MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "device_live_bytes"));
    fclose(stream);
    free(text);
    mist_timeline_fini(&timeline);
}

/* The legend of 32 ranks and a limit, seven in a row of 14 pixels, ends above
 * the panel. */
static void test_memory_legend(void **state)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "a"};
    struct mist_plot_options options = {.limit_bytes = (int64_t)24 << 30};
    char *text = NULL;
    size_t n = 0;
    int width = 0, height = 0;
    double top = 0;

    mist_timeline_init(&timeline);
    for (int rank = 0; rank < 40; rank++) {
        add(&timeline, rank, MIST_STREAM_COMPUTE, MIST_TASK_FORWARD, 0, 0, 1);
        timeline.rows[rank].device_live_bytes = 1;
    }
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(
        mist_plot_write_memory(stream, &input, 1, &options, MIST_PLOT_PNG, NULL),
        MIST_OK);
    fclose(stream);
    const char *size = strstr(text, " size "), *panel = strstr(text, "panel_tops[1] = ");
    assert_true(size && sscanf(size, " size %d,%d", &width, &height) == 2);
    assert_true(panel && sscanf(panel, "panel_tops[1] = %lf", &top) == 1);
    assert_true((1 - top) * height > 30 + 5 * 14 + 20);
    free(text);
    mist_timeline_fini(&timeline);
}

/* Both ends stay, with quotes that gnuplot reads and whole characters. */
static void test_fitted(void **state)
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
}

/* ---- tables ---- */

typedef enum mist_status table_function(FILE *stream, const char *path,
                                        const struct mist_plot_options *options,
                                        enum mist_plot_format format,
                                        struct mist_err *err);

/* The program of a table given as text; NULL (status in *status) when it is refused. */
static char *table_program(table_function *write_table, const char *table,
                           enum mist_status *status, struct mist_err *err)
{
    struct mist_plot_options options = {.n_text_columns = 80, .n_text_rows = 24};
    char path[] = "/tmp/mist_test_XXXXXX", *text = NULL;
    size_t n = 0;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, table, strlen(table)), (ssize_t)strlen(table));
    close(fd);
    FILE *stream = open_memstream(&text, &n);
    *status = write_table(stream, path, &options, MIST_PLOT_PNG, err);
    fclose(stream);
    unlink(path);
    if (*status != MIST_OK) {
        free(text);
        text = NULL;
    }
    return text;
}

static void test_tables(void **state)
{
    enum mist_status status;
    struct mist_err err = {0};

    char *text = table_program(mist_plot_write_compare,
                               "plan,predicted_s,measured_s,error_bar_s\n"
                               "a,1.1,1,0.05\n\"b \"\"x\"\"\",1.9,2,\n",
                               &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(
        strstr(text, "summary = '2 plans: error 7.50 % in the mean, 10.00 % at worst'"));
    assert_non_null(strstr(text, "1 1.1 0.05 \"a\" 1\n2 1.9 0 \"b  x \" 1\n"));
    free(text);

    text = table_program(mist_plot_write_errors,
                         "plan,predicted_s,measured_s,error_bar_s,note\n"
                         "a,1.1,1,0.05,it's\n\"b \"\"x\"\"\",1.5,2,,\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "off by 17.5 % in the mean, 25.0 % at worst, 1 of 2 "
                                 "within 15 %'"));
    assert_non_null(strstr(text, "set ytics ('a' 1, 'b \"x\"' 2)"));
    assert_non_null(strstr(text, "set label 1 '+10 %  it''s' at"));
    assert_non_null(strstr(text, "1 10 5 1\n2 -25 0 0\nEND\n"));
    free(text);

    text = table_program(mist_plot_write_breakdown,
                         "stage,rank,of,part,time_s,frac,tensor,bytes\n"
                         "0,0,time,products,2,0.5,,\n0,0,time,bubble,1,0.5,,\n"
                         "0,0,device memory,kept,,1,a,1048576\n"
                         "0,0,device memory,kept,,1,b,1048576\n"
                         "0,0,host memory,kept,,1,b,4096\n"
                         "1,1,time,products,0.5,1,,\n1,1,time,none,0,0,,\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "time_names[1] = 'products'\ntime_names[2] = 'bubble'\n"
                                 "$time << END\n0 2 3\n1 0.5 0.5\nEND\n"));
    assert_non_null(strstr(text, "memory_unit = 'MiB'\n"));
    assert_non_null(strstr(text, "$memory << END\n0 2\n1 0\nEND\n"));
    free(text);

    /* of ten parts the three smallest become one */
    text = table_program(mist_plot_write_breakdown,
                         "stage,of,part,time_s,bytes\n"
                         "0,time,a,10,\n0,time,b,1,\n0,time,c,9,\n0,time,d,8,\n"
                         "0,time,e,2,\n0,time,f,7,\n0,time,g,6,\n0,time,h,3,\n"
                         "0,time,i,5,\n0,time,j,4,\n0,device memory,x,,8589934592\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "time_names[7] = 'j'\ntime_names[8] = 'other'\n$time << "
                                 "END\n0 10 19 27 34 40 45 49 55\nEND\n"));
    assert_non_null(strstr(text, "$memory << END\n0 8\nEND\n"));
    free(text);

    text = table_program(mist_plot_write_ablation,
                         "added,iteration_s,error_s,speedup,search_s\n"
                         "3d,,,,0.5\nzero,2,0.5,1.5,3\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "set xtics ('3d' 1, '+ zero' 2)"));
    assert_non_null(strstr(text, "set label 1 'none fits, 500 ms' at 1, 0 "));
    assert_non_null(strstr(text, "set label 2 '1.50x, 3.00 s' at 2, 2.5 "));
    assert_non_null(strstr(text, "$points << END\n2 2 0.5\n-9 0 0\nEND\n"));
    free(text);

    text = table_program(mist_plot_write_sweep,
                         "change,iteration_s,error_s\nbaseline,2,0\n"
                         "\"launch=1x,device=a\",2,0.5\n\"launch=2x,device=a\",1,0\n"
                         "\"launch=2x,device=b\",3,0\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "baseline = 2\n"));
    assert_non_null(strstr(text, "set xlabel 'launch'\nset xtics ('1x' 1, '2x' 2)"));
    assert_non_null(strstr(text, "curve_names[2] = 'device=b'\n$points << END\n"
                                 "1 2 0.5\n2 1 0\n\n\n2 3 0\n\n\nEND\n"));
    free(text);

    text = table_program(mist_plot_write_sweep,
                         "change,iteration_s,error_s\nbaseline,,\nlaunch=2x,2,0\n"
                         "device=a,1,0\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "has_baseline = 0\n"));
    assert_non_null(strstr(text, "set xtics ('launch=2x' 1, 'device=a' 2)"));
    free(text);

    text = table_program(mist_plot_write_sensitivity,
                         "change,more_change_frac,less_change_frac\na,-0.25,0.5\n"
                         "b,0,0\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "set ytics ('a' 1, 'b' 2)"));
    assert_non_null(strstr(text, "set label '-25.0 %' at -25, 1 right"));
    assert_non_null(strstr(text, "set label '+50.0 %' at 50, 1 left"));
    assert_non_null(strstr(text, "$points << END\n1 -25 50\n2 0 0\nEND\n"));
    free(text);

    text = table_program(mist_plot_write_rent,
                         "nodes,batch,is_best,devices,iteration_s,error_s,"
                         "tokens_per_s_per_device,model_flop_utilisation_frac,"
                         "device_hours,cost,why\n"
                         "1,8,false,8,2,0.5,100,0.25,3,4,\n2,8,true,16,1,0,90,,3.5,5,\n"
                         "4,8,false,32,,,,,,,it's too much\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "point_name = 'nodes, batch'\n"));
    assert_non_null(strstr(text, "('1, 8' 1, '2, 8' 2, '4, 8' 3)"));
    assert_non_null(strstr(text, "'cost of the training'"));
    assert_non_null(strstr(text, "set label 3 'no plan' at first 3"));
    assert_non_null(strstr(text, "1 2 100 25 4 0.5 0\n2 1 90 NaN 5 0 1\n"
                                 "3 NaN NaN NaN NaN 0 0\n"));
    free(text);

    text = table_program(mist_plot_write_pareto,
                         "stage,t_s,d_s,chosen\n1,0.3,0.1,0\n0,0.2,0.1,1\n1,0.1,0.2,1\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "1 100 200 1\n1 300 100 0\n2 200 100 1\nEND\n"));
    assert_non_null(
        strstr(text, "stage_names[1] = 'stage 1'\nstage_names[2] = 'stage 0'\n"));
    free(text);

    text = table_program(mist_plot_write_links,
                         "bytes,measured_us,fitted_us,name\n2048,10,12,x\n1024,8,8,x\n",
                         &status, &err);
    assert_int_equal(status, MIST_OK);
    assert_non_null(strstr(text, "1 1024 8 8\n1 2048 10 12\nEND\n"));
    assert_non_null(strstr(text, "residual_max = 22\n"));
    assert_non_null(strstr(text, "'1 KiB' 1024, '2 KiB' 2048"));
    free(text);
}

static void test_bad_tables(void **state)
{
    static const struct {
        table_function *write_table;
        const char *table;
        long line;
    } cases[] = {
        {mist_plot_write_compare, "plan,predicted_s,measured_s\n", 0},
        {mist_plot_write_compare, "plan,predicted_s,measured_s\na,0,1\n", 2},
        {mist_plot_write_compare, "plan,predicted_s,measured_s\na,1,-1\n", 2},
        {mist_plot_write_compare, "plan,predicted_s,measured_s\n,1,1\n", 2},
        {mist_plot_write_compare, "plan,predicted_s,measured_s,error_bar_s\na,1,1,-1\n",
         2},
        {mist_plot_write_compare, "plan,predicted_ms,measured_s\na,1,1\n", 1},
        {mist_plot_write_errors, "plan,predicted_s,measured_s\n", 0},
        {mist_plot_write_errors, "plan,predicted_s,measured_s\na,0,1\n", 2},
        {mist_plot_write_errors, "plan,predicted_s,measured_s\na,1,0\n", 2},
        {mist_plot_write_ablation, "added,iteration_s,error_s,speedup,search_s\n", 0},
        {mist_plot_write_ablation,
         "added,iteration_s,error_s,speedup,search_s\n3d,-1,0,1,0\n", 2},
        {mist_plot_write_rent, "iteration_s,tokens_per_s_per_device,device_hours\n", 0},
        {mist_plot_write_rent,
         "iteration_s,tokens_per_s_per_device,device_hours\n-1,1,1\n", 2},
        {mist_plot_write_breakdown, "stage,of,part,time_s,bytes\n", 0},
        {mist_plot_write_breakdown, "stage,of,part,time_s,bytes\n512,time,a,1,\n", 2},
        {mist_plot_write_breakdown, "stage,of,part,time_s,bytes\n0,time,a,-1,\n", 2},
        {mist_plot_write_sweep, "change,iteration_s,error_s\n", 0},
        {mist_plot_write_sweep, "change,iteration_s,error_s\nbaseline,1,0\n", 0},
        {mist_plot_write_sweep, "change,iteration_s,error_s\na=2x,0,0\n", 2},
        {mist_plot_write_sweep, "change,iteration_s,error_s\na=2x,,0\n", 2},
        {mist_plot_write_sweep, "change,iteration_s,error_s\na=2x,1,0\n,1,0\n", 3},
        {mist_plot_write_sensitivity, "change,more_change_frac,less_change_frac\n", 0},
        {mist_plot_write_sensitivity, "change,more_change_frac,less_change_frac\n,0,0\n",
         2},
        {mist_plot_write_sensitivity,
         "change,more_change_frac,less_change_frac\na,-2,0\n", 2},
        {mist_plot_write_pareto, "stage,t_s,d_s,chosen\n0,1,1,2\n", 2},
        {mist_plot_write_pareto, "stage,t_s,d_s,chosen\n-1,1,1,0\n", 2},
        {mist_plot_write_pareto, "stage,t_s,d_s,chosen\n0,1,1,0\n0,x,1,0\n", 3},
        {mist_plot_write_links, "bytes,measured_us,fitted_us,name\n0,1,1,x\n", 2},
        {mist_plot_write_links, "bytes,measured_us,fitted_us,name\n8,0,1,x\n", 2},
        {mist_plot_write_links, "bytes,measured_us,fitted_us,name\n8,1,1,\n", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum mist_status status;
        struct mist_err err = {0};
        char *text = table_program(cases[i].write_table, cases[i].table, &status, &err);
        free(text);
        if (status != MIST_ERR_INPUT || err.line != cases[i].line || !err.path[0])
            fail_msg("case %zu: %d, line %ld: %s", i, (int)status, err.line, err.message);
    }
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

static void test_run(void **state)
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
static void test_not_whole(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),         cmocka_unit_test(test_format),
        cmocka_unit_test(test_gantt),         cmocka_unit_test(test_gantt_cells),
        cmocka_unit_test(test_lanes),         cmocka_unit_test(test_timeline_program),
        cmocka_unit_test(test_merging),       cmocka_unit_test(test_memory_program),
        cmocka_unit_test(test_memory_legend), cmocka_unit_test(test_fitted),
        cmocka_unit_test(test_tables),        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_run),           cmocka_unit_test(test_not_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

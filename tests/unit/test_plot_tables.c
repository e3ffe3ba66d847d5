/* Pictures of tables: their gnuplot programs and data, malformed tables. */
#include "tests/unit/test.h"

#include "plots/internal.h" /* colours of the timeline */
#include "sim/explain/explain.h"
#include "tests/unit/scratch.h"

/* The program of a table given as text; NULL (status in *status) when it is refused. */
static char *table_program(const char *kind, const char *table,
                           enum mist_plot_format format, enum mist_status *status,
                           struct mist_err *err)
{
    struct mist_plot_options options = {.n_text_columns = 80, .n_text_rows = 24};
    struct scratch scratch;
    char *text = NULL;
    size_t n = 0;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "table.csv"); /* the title names it */
    scratch_write(path, table);
    FILE *stream = open_memstream(&text, &n);
    *status = mist_plot_write_table(stream, mist_plot_find_kind(kind), path, &options,
                                    format, err);
    fclose(stream);
    scratch_fini(&scratch);
    if (*status != MIST_OK) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Of a table that is right. */
static char *good_program(const char *kind, const char *table,
                          enum mist_plot_format format)
{
    enum mist_status status;
    struct mist_err err = {0};
    char *text = table_program(kind, table, format, &status, &err);

    must(status, &err);
    return text;
}

static const struct {
    const char *kind;
    const char *table;
    const char *parts[6]; /* of the program */
} pictures[] = {
    {"compare",
     "plan,predicted_s,measured_s,error_bar_s\n"
     "it's,1.1,1,0.05\n\"b \"\"x\"\" \\n\",1.9,2,\n",
     {"summary = '2 plans: error 7.50 % in the mean, 10.00 % at worst'",
      "set label 1 'it''s' at 1, 1.1 left offset",
      "set label 2 'b \"x\" \\n' at 2, 1.9 left",
      "$points << END\n1 1.1 0.05\n2 1.9 0\nEND\n"}},
    /* of two ranks: forward 1 s too slow and 0.5 s too fast, backward of one 3 s too slow */
    {"differences",
     "task,stage,rank,predicted_s,measured_s,iteration_s,"
     "measured_iteration_s\n"
     "forward,0,0,2,1,5,4\nforward,0,1,1,1.5,5,4\n"
     "backward,0,1,5,2,5,4\n",
     {": 5.00 s predicted, 4.00 s measured'", "set ytics ('backward' 1, 'forward' 2)",
      "'+1.50 s:  2.50 s predicted, 1.00 s measured'",
      "set ytics ('rank 1' 1, 'rank 0' 2)",
      "$bars << END\n1 1 0 1.5 15113984\n1 2 0 0.25 29362\n2 1 0 0.25 29362\n",
      "2 1 0.25 1.75 15113984\n3 1 -0.5 0 29362\n3 1 0 3 15113984\n3 2 0 1 29362\n"}},
    {"errors",
     "plan,predicted_s,measured_s,error_bar_s,note\n"
     "a,1.1,1,0.05,it's\n\"b \"\"x\"\"\",1.5,2,,\n",
     {"off by 17.5 % in the mean, 25.0 % at worst, 1 of 2 within 15 %'",
      "set ytics ('a' 1, 'b \"x\"' 2)", "set label 1 '+10 %  it''s' at",
      "1 10 5 1\n2 -25 0 0\nEND\n"}},
    {"errors", /* bars that leave the page on both sides, on the right, and not */
     "plan,predicted_s,measured_s,error_bar_s,note\n"
     "a,1.1,1,5,x\nb,1.6,1,0.9,\nc,1.4,1,0.5,\n",
     {"limit = 105\n", "set label 1 '+10 %, bar 500 %  x' at", "set label 3 '+40 %  ' at",
      "set arrow from -103.95, 1 to -105, 1 ", "set arrow from 103.95, 1 to 105, 1 ",
      "to 105, 2 "}},
    {"breakdown",
     "stage,rank,of,part,time_s,frac,tensor,bytes\n"
     "0,0,time,products,2,0.5,,\n0,0,time,bubble,1,0.5,,\n"
     "0,0,device memory,kept,,1,a,1048576\n"
     "0,0,device memory,kept,,1,b,1048576\n"
     "0,0,host memory,kept,,1,b,4096\n"
     "1,1,time,products,0.5,1,,\n1,1,time,none,0,0,,\n",
     {"time_names[1] = 'products'\ntime_names[2] = 'bubble'\n"
      "$time << END\n0 2 3\n1 0.5 0.5\nEND\n",
      "memory_unit = 'MiB'\n", "$memory << END\n0 2\n1 0\nEND\n"}},
    {"ablation",
     "added,iteration_s,error_s,speedup,search_s\n"
     "3d,,,,0.5\nzero,2,0.5,1.5,3\n",
     {"set xtics ('3d' 1, '+ zero' 2)", "set label 1 'none fits, 500 ms' at 1, 0 ",
      "set label 2 '1.50x, 3.00 s' at 2, 2.5 ",
      "$points << END\n1 NaN NaN\n2 2 0.5\n-9 0 0\nEND\n"}},
    {"sweep",
     "change,iteration_s,error_s\nbaseline,2,0\n"
     "\"launch=1x,device=a\",2,0.5\n\"launch=2x,device=a\",1,0\n"
     "\"launch=2x,device=b\",3,0\n",
     {"baseline = 2\n", "place_name = 'launch'\n", "set xtics ('1x' 1, '2x' 2)",
      "curve_names[2] = 'device=b'\n$points << END\n"
      "0.97 2 0.5\n1.97 1 0\n\n\n2.03 3 0\n\n\nEND\n"}},
    {"sweep",
     "change,iteration_s,error_s\nbaseline,,\nlaunch=2x,2,0\n"
     "device=a,1,0\n",
     {"has_baseline = 0\n", "set xtics ('launch=2x' 1, 'device=a' 2)"}},
    {"sweep", /* a value that can't be: a gap, which is said */
     "change,iteration_s,error_s\nbaseline,2,0\nnodes=1,,\nnodes=2,2,0\nnodes=4,1,0\n",
     {"set xtics ('1' 1, '2' 2, '4' 3)\nset label 1 \"can't run\" at 1, 0 ",
      "$points << END\n1 NaN 0\n2 2 0\n3 1 0\n"}},
    {"sensitivity",
     "change,more_change_frac,less_change_frac\na,-0.25,0.5\n"
     "b,0,0\n",
     {"set ytics ('a' 1, 'b' 2)", "set label '-25.0 %' at -25, 1 right",
      "set label '+50.0 %' at 50, 1 left", "has_best = 0\n",
      "$points << END\n1 -25 50 0\n2 0 0 0\nEND\n"}},
    {"sensitivity",
     "change,more_change_frac,less_change_frac,retuned_change_frac\n"
     "a,-0.25,0.5,-0.375\nb,0,0,-0.0001\n",
     {"has_best = 1\n", "set label '-37.5 %' at -37.5, 1.18 right",
      "set label '0.0 %' at -0.01, 2.18 right",
      "$points << END\n1 -25 50 -37.5\n2 0 0 -0.01\nEND\n"}},
    {"rent",
     "nodes,batch,is_best,devices,iteration_s,error_s,"
     "tokens_per_s_per_device,model_flop_utilisation_frac,"
     "device_hours,cost,why\n"
     "1,8,false,8,2,0.5,100,0.25,3,4,\n2,8,true,16,1,0,90,,3.5,5,\n"
     "4,8,false,32,,,,,,,it's too much\n",
     {"point_name = 'nodes, batch'\n", "('1, 8' 1, '2, 8' 2, '4, 8' 3)",
      "'cost of the training'", "set label 3 'no plan' at first 3",
      "1 2 100 25 4 0.5 0\n2 1 90 NaN 5 0 1\n3 NaN NaN NaN NaN 0 0\n"}},
    {"pareto",
     "stage,t_s,d_s,chosen\n1,0.3,0.1,0\n0,0.2,0.1,1\n1,0.1,0.2,1\n",
     {"1 100 200 1\n1 300 100 0\n2 200 100 1\nEND\n",
      "curve_names[1] = 'stage 1'\ncurve_names[2] = 'stage 0'\n"}},
    {"pareto", /* the second point of stage 0 is off its frontier, that of stage 1 on it */
     "stage,t_s,d_s,chosen\n0,0.1,0.3,0\n0,0.2,0.4,1\n0,0.3,0.1,0\n"
     "1,0.1,0.3,0\n1,0.2,0.2,1\n",
     {"1 100 300 0\n1 300 100 0\n2 100 300 0\n2 200 200 1\n\n1 200 400 1\nEND\n",
      "curve_names[1] = 'stage 0'\ncurve_names[2] = 'stage 1'\n"}},
    {"links",
     "bytes,measured_us,fitted_us,name\n2048,10,12,x\n1024,8,8,x\n",
     {"1 1024 8 8\n1 2048 10 12\nEND\n", "residual_max = 22\n",
      "'1 KiB' 1024, '2 KiB' 2048"}},
};

TEST(test_tables)
{
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        char *text = good_program(pictures[i].kind, pictures[i].table, MIST_PLOT_PNG);
        for (int k = 0; k < 6 && pictures[i].parts[k]; k++)
            if (!strstr(text, pictures[i].parts[k]))
                fail_msg("picture %zu lacks\n%s\nof\n%s", i, pictures[i].parts[k], text);
        free(text);
    }
}

/* The terminal has letters for seven parts: of ten the four smallest become one. */
TEST(test_few_letters)
{
    static const char table[] =
        "stage,of,part,time_s,bytes\n"
        "0,time,a,10,\n0,time,b,1,\n0,time,c,9,\n0,time,d,8,\n"
        "0,time,e,2,\n0,time,f,7,\n0,time,g,6,\n0,time,h,3,\n"
        "0,time,i,5,\n0,time,j,4,\n0,device memory,x,,8589934592\n";
    char *text = good_program("breakdown", table, MIST_PLOT_TEXT);

    assert_non_null(strstr(text, "time_names[6] = 'i'\ntime_names[7] = 'other'\n$time << "
                                 "END\n0 10 19 27 34 40 45 55\nEND\n"));
    assert_non_null(strstr(text, "$memory << END\n0 8\nEND\n"));
    free(text);
    text = good_program("breakdown", table, MIST_PLOT_PNG);
    assert_non_null(strstr(text, "time_names[10] = 'j'\n"));
    free(text);
}

/* The colour of part i of $time or $memory in a program. */
static unsigned color_of(const char *text, const char *list, int i)
{
    char start[32];
    unsigned color = 0;

    snprintf(start, sizeof start, "%s_colors[%d] = '#", list, i + 1);
    const char *at = strstr(text, start);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(start), "%6X", &color), 1);
    return color;
}

/* The i-th of n, or of those turned round. */
static unsigned pick(bool is_turned, unsigned n, unsigned i)
{
    return is_turned ? n - 1 - i : i;
}

/* The colours of all that --explain prints, in one order or the other. */
static void find_colors(bool is_turned, unsigned times[MIST_N_TIME_CLASSES],
                        unsigned contents[MIST_N_CONTENTS])
{
    char *table = NULL, *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&table, &n);

    fputs("stage,of,part,time_s,bytes\n", stream);
    for (unsigned i = 0; i < MIST_N_TIME_CLASSES; i++)
        fprintf(stream, "0,time,%s,1,\n",
                mist_time_class_label(pick(is_turned, MIST_N_TIME_CLASSES, i)));
    for (unsigned i = 0; i < MIST_N_CONTENTS; i++)
        fprintf(stream, "0,device memory,%s,,1\n",
                mist_content_label(pick(is_turned, MIST_N_CONTENTS, i)));
    fclose(stream);
    text = good_program("breakdown", table, MIST_PLOT_PNG);
    for (int i = 0; i < MIST_N_TIME_CLASSES; i++)
        times[pick(is_turned, MIST_N_TIME_CLASSES, (unsigned)i)] =
            color_of(text, "time", i);
    for (int i = 0; i < MIST_N_CONTENTS; i++)
        contents[pick(is_turned, MIST_N_CONTENTS, (unsigned)i)] =
            color_of(text, "memory", i);
    free(text);
    free(table);
}

/* Each part has its colour, and where it is tasks of the timeline, their colour there. */
TEST(test_part_colors)
{
    unsigned times[2][MIST_N_TIME_CLASSES], contents[2][MIST_N_CONTENTS];

    for (int k = 0; k < 2; k++)
        find_colors(k, times[k], contents[k]);
    assert_memory_equal(times[0], times[1], sizeof times[0]);
    assert_memory_equal(contents[0], contents[1], sizeof contents[0]);
    for (int i = 0; i < MIST_N_TIME_CLASSES; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(times[0][i], times[0][k]);
    assert_int_equal(times[0][MIST_TIME_RECOMPUTATION],
                     mist_plot_groups[MIST_GROUP_RECOMPUTE].color);
    assert_int_equal(times[0][MIST_TIME_OPTIMIZER],
                     mist_plot_groups[MIST_GROUP_OPTIMIZER].color);
    assert_int_equal(times[0][MIST_TIME_TENSOR],
                     mist_plot_groups[MIST_GROUP_COLLECTIVE].color);
    assert_int_equal(times[0][MIST_TIME_TRANSFERS],
                     mist_plot_groups[MIST_GROUP_PIPELINE].color);
    assert_int_equal(times[0][MIST_TIME_COPIES_IN],
                     mist_plot_groups[MIST_GROUP_SWAP].color);
    assert_int_equal(times[0][MIST_TIME_BUBBLE], MIST_PLOT_IDLE_COLOR);
}

/* A tic is a format to gnuplot; the file's name is in the title. */
TEST(test_percent)
{
    char *text =
        good_program("errors", "plan,predicted_s,measured_s\n5 %s,1,1\n", MIST_PLOT_PNG);

    assert_non_null(strstr(text, "set ytics ('5 %%s' 1)"));
    assert_non_null(
        strstr(text, "title_text = 'How far predictions are off: table.csv'\n"));
    free(text);
}

/* Both pictures of one table take the same names; the middle of a long one is left out. */
TEST(test_long_names)
{
    static const char table[] = "plan,predicted_s,measured_s\n"
                                "Megatron-LM on 1,1,1\n"
                                "a name of a plan that does not end at all for "
                                "Megatron-LM on 1024 devices with tp=8 "
                                "pp=16 and zero=3 and more,1,1\n";
    char *text = good_program("errors", table, MIST_PLOT_PNG);

    free(text);
    text = good_program("compare", table, MIST_PLOT_PNG);
    assert_non_null(strstr(text, "set label 2 'a name of a plan"));
    assert_non_null(strstr(text, "…"));
    assert_non_null(strstr(text, "zero=3 and more' at "));
    free(text);
}

TEST(test_bad_tables)
{
    static const struct {
        const char *kind;
        const char *table;
        long line;
    } cases[] = {
        {"compare", "plan,predicted_s,measured_s\n", 0},
        {"compare", "plan,predicted_s,measured_s\na,0,1\n", 2},
        {"compare", "plan,predicted_s,measured_s\na,1,-1\n", 2},
        {"compare", "plan,predicted_s,measured_s\n,1,1\n", 2},
        {"compare", "plan,predicted_s,measured_s,error_bar_s\na,1,1,-1\n", 2},
        {"compare", "plan,predicted_ms,measured_s\na,1,1\n", 1},
        {"errors", "plan,predicted_s,measured_s\n", 0},
        {"errors", "plan,predicted_s,measured_s\na,0,1\n", 2},
        {"errors", "plan,predicted_s,measured_s\na,1,0\n", 2},
        {"differences", "task,stage,rank,predicted_s,measured_s\n", 0},
        {"differences", "task,stage,rank,predicted_s,measured_s\nfoo,0,0,1,1\n", 2},
        {"differences", "task,stage,rank,predicted_s,measured_s\nforward,0,-1,1,1\n", 2},
        {"ablation", "added,iteration_s,error_s,speedup,search_s\n", 0},
        {"ablation", "added,iteration_s,error_s,speedup,search_s\n3d,-1,0,1,0\n", 2},
        {"rent", "iteration_s,tokens_per_s_per_device,device_hours\n", 0},
        {"rent", "iteration_s,tokens_per_s_per_device,device_hours\n-1,1,1\n", 2},
        {"breakdown", "stage,of,part,time_s,bytes\n", 0},
        {"breakdown", "stage,of,part,time_s,bytes\n0,time,a,0,\n0,device memory,b,,0\n",
         0},
        {"breakdown", "stage,of,part,time_s,bytes\n512,time,a,1,\n", 2},
        {"breakdown", "stage,of,part,time_s,bytes\n0,time,a,-1,\n", 2},
        {"sweep", "change,iteration_s,error_s\n", 0},
        {"sweep", "change,iteration_s,error_s\nbaseline,1,0\n", 0},
        {"sweep", "change,iteration_s,error_s\na=2x,0,0\n", 2},
        {"sweep", "change,iteration_s,error_s\na=2x,,0\n", 0}, /* nothing to draw */
        {"sweep", "change,iteration_s,error_s\nbaseline,1,0\nlink.host,1,0\n", 3},
        {"sweep", "change,iteration_s,error_s\na=2x,1,0\n,1,0\n", 3},
        {"sensitivity", "change,more_change_frac,less_change_frac\n", 0},
        {"sensitivity", "change,more_change_frac,less_change_frac\n,0,0\n", 2},
        {"sensitivity", "change,more_change_frac,less_change_frac\na,-2,0\n", 2},
        {"pareto", "stage,t_s,d_s,chosen\n0,1,1,2\n", 2},
        {"pareto", "stage,t_s,d_s,chosen\n-1,1,1,0\n", 2},
        {"pareto", "stage,t_s,d_s,chosen\n0,1,1,0\n0,x,1,0\n", 3},
        {"links", "bytes,measured_us,fitted_us,name\n0,1,1,x\n", 2},
        {"links", "bytes,measured_us,fitted_us,name\n8,0,1,x\n", 2},
        {"links", "bytes,measured_us,fitted_us,name\n8,1,1,\n", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum mist_status status;
        struct mist_err err = {0};
        char *text =
            table_program(cases[i].kind, cases[i].table, MIST_PLOT_PNG, &status, &err);
        free(text);
        if (status != MIST_ERR_INPUT || err.line != cases[i].line || !err.path[0])
            fail_msg("case %zu: %d, line %ld: %s", i, (int)status, err.line, err.message);
    }
}

TEST_MAIN(NULL, NULL)

/*
 * mist-plot's inputs: the first byte says which picture. A table that is accepted becomes
 * a gnuplot program without control characters, of bounded size.
 */
#include "core/json.h"
#include "plots/plot.h"
#include "tests/fuzz/fuzz.h"
#include "traces/chrome_trace.h"

static const struct mist_plot_options plain = {.n_text_columns = 80, .n_text_rows = 24};
static const struct mist_plot_options narrow = {.title = "it's",
                                                .ranks = {1, {0}, {1}},
                                                .from_s = 0.001,
                                                .to_s = 0.01,
                                                .limit_bytes = 1000,
                                                .n_text_columns = 40,
                                                .n_text_rows = 10};

static void check_text(const char *text, size_t n)
{
    FUZZ_CHECK(n > 0 && n < 4 << 20, "%zu bytes", n);
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK((unsigned char)text[i] >= ' ' || strchr("\n\t\f\x1b", text[i]),
                   "control character %d at %zu", text[i], i);
}

/* Closes the stream of *text [*n], which then is a program, or was refused. */
static void end_program(FILE *stream, enum mist_status status, const struct mist_err *err,
                        char **text, const size_t *n)
{
    fclose(stream);
    if (status == MIST_OK)
        check_text(*text, *n);
    else
        fuzz_check_refusal(status, err, false);
    free(*text);
}

/* A table by its path, or a timeline; in each format. */
static void draw(const char *kind, const char *table, const struct mist_plot_input *input,
                 const struct mist_plot_options *options)
{
    for (int format = MIST_PLOT_PNG; format <= MIST_PLOT_TEXT; format++) {
        char *text = NULL;
        size_t n = 0;
        struct mist_err err = {0};
        FILE *stream = open_memstream(&text, &n);
        FUZZ_CHECK(stream, "out of memory");
        enum mist_status status =
            input
                ? mist_plot_write_timelines(stream, mist_plot_find_kind(kind), input, 1,
                                            options, (enum mist_plot_format)format, &err)
                : mist_plot_write_table(stream, mist_plot_find_kind(kind), table, options,
                                        (enum mist_plot_format)format, &err);
        end_program(stream, status, &err, &text, &n);
    }
}

static void print(const struct mist_plot_input *input,
                  const struct mist_plot_options *options)
{
    char *text = NULL;
    size_t n = 0;
    struct mist_err err = {0};
    FILE *stream = open_memstream(&text, &n);

    FUZZ_CHECK(stream, "out of memory");
    enum mist_status status = mist_plot_print_gantt(stream, input, 1, options, &err);
    end_program(stream, status, &err, &text, &n);
}

/* Valid JSON, whatever the timeline. */
static void check_chrome(const struct mist_timeline *timeline)
{
    char path[FUZZ_PATH_BYTES];
    struct mist_json_doc doc;
    struct mist_err err = {0};

    fuzz_must(
        mist_chrome_trace_save(timeline, fuzz_path(path, "chrome.json"), true, &err),
        &err);
    fuzz_must(mist_json_load(&doc, path, MIST_JSON_FOREIGN, &err), &err);
    mist_json_fini(&doc);
}

static void draw_timeline(const char *kind, const char *path)
{
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "in"};
    struct mist_err err = {0};

    if (mist_timeline_load(&timeline, path, &err) == MIST_OK) {
        for (int i = 0; i < 2 && strcmp(kind, "chrome") != 0; i++) {
            draw(kind, NULL, &input, i ? &narrow : &plain);
            print(&input, i ? &narrow : &plain);
        }
        check_chrome(&timeline);
    }
    mist_timeline_fini(&timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    unsigned n_kinds = 0;
    char path[FUZZ_PATH_BYTES];

    while (mist_plot_kind_names[n_kinds])
        n_kinds++;
    const char *kind = mist_plot_kind_names[fuzz_take(&input) % n_kinds];
    if (input.n == 0)
        return 0;
    fuzz_write(fuzz_path(path, "in.csv"), input);
    if (mist_plot_family_of(mist_plot_find_kind(kind)) == MIST_PLOT_TABLE)
        draw(kind, path, NULL, &plain);
    else
        draw_timeline(kind, path);
    return 0;
}

/* A file of tests/data/cli, or a table itself. */
static const struct {
    const char *kind, *table;
} seeds[] = {
    {"timeline", "timeline.csv"},
    {"memory", "timeline.csv"},
    {"compare", "compare.csv"},
    {"pareto", "pareto.csv"},
    {"links", "links_fit.csv"},
    {"errors", "plan,predicted_s,measured_s,note\na,1.1,1,it's\n"},
    {"breakdown", "stage,of,part,time_s,bytes\n0,time,bubble,1,\n"
                  "1,device memory,kept,,1048576\n"},
    {"differences", "task,stage,rank,predicted_s,measured_s\nforward,0,0,2,1\n"},
    {"ablation", "added,iteration_s,error_s,speedup,search_s\n3d,,,,0.5\nz,2,0,1,3\n"},
    {"sweep", "change,iteration_s,error_s\nbaseline,2,0\n\"a=1x,b=2x\",2,0.5\n"
              "\"a=2x,b=2x\",2,0\n"},
    {"sensitivity", "change,more_change_frac,less_change_frac\na,-0.25,0.5\n"},
    {"rent", "nodes,is_best,iteration_s,tokens_per_s_per_device,device_hours\n"
             "1,true,1,2,3\n2,false,,,\n"},
};

void fuzz_write_seeds(void)
{
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct fuzz_buffer buffer = {0};
        char path[64], name[64];
        uint8_t kind = 0;
        while (strcmp(mist_plot_kind_names[kind], seeds[i].kind) != 0)
            kind++;
        fuzz_add(&buffer, &kind, 1);
        snprintf(path, sizeof path, "tests/data/cli/%s", seeds[i].table);
        if (strchr(seeds[i].table, '\n'))
            fuzz_add(&buffer, seeds[i].table, strlen(seeds[i].table));
        else
            fuzz_add_file(&buffer, path);
        snprintf(name, sizeof name, "%s.csv", seeds[i].kind);
        fuzz_seed(name, &buffer);
    }
}

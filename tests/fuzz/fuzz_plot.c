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

typedef enum mist_status write_fn(FILE *stream, const void *input,
                                  const struct mist_plot_options *options,
                                  struct mist_err *err);

static void draw(write_fn *write, const void *input,
                 const struct mist_plot_options *options)
{
    char *text = NULL;
    size_t n = 0;
    struct mist_err err = {0};
    FILE *stream = open_memstream(&text, &n);

    FUZZ_CHECK(stream, "out of memory");
    enum mist_status status = write(stream, input, options, &err);
    fclose(stream);
    if (status == MIST_OK)
        check_text(text, n);
    else
        fuzz_check_refusal(status, &err, false);
    free(text);
}

/* ---- tables ---- */

static enum mist_status write_compare(FILE *stream, const void *path,
                                      const struct mist_plot_options *options,
                                      struct mist_err *err)
{
    return mist_plot_write_compare(stream, path, options, MIST_PLOT_SVG, err);
}

static enum mist_status write_pareto(FILE *stream, const void *path,
                                     const struct mist_plot_options *options,
                                     struct mist_err *err)
{
    return mist_plot_write_pareto(stream, path, options, MIST_PLOT_PNG, err);
}

static enum mist_status write_links(FILE *stream, const void *path,
                                    const struct mist_plot_options *options,
                                    struct mist_err *err)
{
    return mist_plot_write_links(stream, path, options, MIST_PLOT_TEXT, err);
}

/* ---- timelines ---- */

static enum mist_status write_timeline(FILE *stream, const void *input,
                                       const struct mist_plot_options *options,
                                       struct mist_err *err)
{
    return mist_plot_write_timeline(stream, input, 1, options, MIST_PLOT_PDF, err);
}

static enum mist_status write_memory(FILE *stream, const void *input,
                                     const struct mist_plot_options *options,
                                     struct mist_err *err)
{
    return mist_plot_write_memory(stream, input, 1, options, MIST_PLOT_PNG, err);
}

static enum mist_status print_gantt(FILE *stream, const void *input,
                                    const struct mist_plot_options *options,
                                    struct mist_err *err)
{
    return mist_plot_print_gantt(stream, input, 1, options, err);
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

static void draw_timeline(const char *path)
{
    static write_fn *const writers[] = {write_timeline, write_memory, print_gantt};
    struct mist_timeline timeline;
    struct mist_plot_input input = {&timeline, "in"};
    struct mist_err err = {0};

    if (mist_timeline_load(&timeline, path, &err) == MIST_OK) {
        for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
            draw(writers[i], &input, &plain);
            draw(writers[i], &input, &narrow);
        }
        check_chrome(&timeline);
    }
    mist_timeline_fini(&timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static write_fn *const writers[] = {write_compare, write_pareto, write_links};
    struct fuzz_bytes input = {bytes, n};
    unsigned kind = fuzz_take(&input) % 4;
    char path[FUZZ_PATH_BYTES];

    if (input.n == 0)
        return 0;
    fuzz_write(fuzz_path(path, "in.csv"), input);
    if (kind < 3)
        draw(writers[kind], path, &plain);
    else
        draw_timeline(path);
    return 0;
}

void fuzz_write_seeds(void)
{
    static const char *const names[] = {"0compare.csv", "1pareto.csv", "2links_fit.csv",
                                        "3timeline.csv"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fuzz_buffer buffer = {0};
        char path[64];
        snprintf(path, sizeof path, "tests/data/cli/%s", names[i] + 1);
        fuzz_add(&buffer, names[i], 1);
        fuzz_add_file(&buffer, path);
        fuzz_seed(names[i] + 1, &buffer);
    }
}

/* core/options: each line is an argument, for a tool that has an option of every kind. */
#include "core/options.h"
#include "tests/fuzz/fuzz.h"

struct options {
    struct mist_common_options common;
    bool is_fast;
    int64_t n_steps, memory_bytes;
    double fraction, time_s;
    const char *model;
    int order;
    struct mist_option_list inputs;
};

static const char *const orders[] = {"first", "second", NULL};
static const struct mist_option rows[] = {
    {.name = "fast",
     .letter = 'a',
     .kind = MIST_OPTION_FLAG,
     .group = "Own",
     .help = "a flag",
     .offset = offsetof(struct options, is_fast)},
    {.name = "steps",
     .letter = 's',
     .kind = MIST_OPTION_INT64,
     .group = "Own",
     .value_name = "N",
     .help = "a number",
     .default_text = "10",
     .min = 1,
     .max = 100,
     .offset = offsetof(struct options, n_steps)},
    MIST_OPTION_ROW(struct options, "memory", MIST_OPTION_BYTES, memory_bytes, "Own",
                    "SIZE", NULL, 0, 0, "a size"),
    MIST_OPTION_ROW(struct options, "fraction", MIST_OPTION_DOUBLE, fraction, "Own", "X",
                    NULL, 0, 1, "a fraction"),
    MIST_OPTION_ROW_BUT(struct options, "fast", "time", MIST_OPTION_TIME_S, time_s, "Own",
                        "TIME", NULL, 0, 0, "a time"),
    {.name = "model",
     .letter = 'm',
     .kind = MIST_OPTION_STRING,
     .group = "Own",
     .value_name = "NAME",
     .help = "a text",
     .is_required = true,
     .offset = offsetof(struct options, model)},
    MIST_OPTION_ROW_CHOICE(struct options, "order", order, "Own", "WHICH", NULL, orders,
                           "a choice"),
    {.name = "input",
     .letter = 'i',
     .kind = MIST_OPTION_LIST,
     .group = "Own",
     .value_name = "FILE",
     .help = "a list",
     .offset = offsetof(struct options, inputs)},
    MIST_OPTION_ROW_QUIET(struct options),
    MIST_OPTION_ROW_JOBS(struct options),
    MIST_OPTION_ROW_OUTPUT(struct options, "a file", "-"),
    MIST_OPTION_ROW_PROGRESS(struct options),
};
static const char *const examples[] = {"mist-fuzz --model x", NULL};
static const struct mist_tool tool = {.name = "mist-fuzz",
                                      .purpose = "is made for this test",
                                      .examples = examples,
                                      .options = rows,
                                      .n_options = sizeof rows / sizeof *rows,
                                      .positional_name = "PLAN",
                                      .positional_help = "files",
                                      .positional_min = 0,
                                      .positional_max = 3};
enum { MAX_ARGUMENTS = 40 };

static void check_values(const struct options *options,
                         const struct mist_positionals *positionals)
{
    FUZZ_CHECK(options->n_steps >= 1 && options->n_steps <= 100, "%lld",
               (long long)options->n_steps);
    FUZZ_CHECK(options->memory_bytes >= 0 && options->time_s >= 0, "below 0");
    FUZZ_CHECK(options->fraction >= 0 && options->fraction <= 1, "%g", options->fraction);
    FUZZ_CHECK(options->order == 0 || options->order == 1, "%d", options->order);
    FUZZ_CHECK(options->model, "a required option is missing");
    FUZZ_CHECK(options->inputs.n >= 0 && options->inputs.n <= MIST_OPTION_LIST_MAX, "%d",
               options->inputs.n);
    for (int i = 0; i < options->inputs.n; i++)
        FUZZ_CHECK(strlen(options->inputs.items[i]) < sizeof options->inputs.texts,
                   "item %d", i);
    FUZZ_CHECK(positionals->n >= 0 && positionals->n <= 3, "%d", positionals->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static FILE *nowhere;
    char name[] = "mist-fuzz", *argv[MAX_ARGUMENTS + 2] = {name};
    char *text = fuzz_text((struct fuzz_bytes){bytes, n}), *rest = text;
    struct options options;
    struct mist_positionals positionals = {0};
    struct mist_err err = {0};
    bool is_done = false;
    int argc = 1;

    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    for (char *next; rest && argc <= MAX_ARGUMENTS; rest = next) {
        next = strchr(rest, '\n');
        if (next)
            *next++ = '\0';
        argv[argc++] = rest;
    }
    memset(&options, 0xa5, sizeof options);
    enum mist_status status = mist_options_parse(&tool, argc, argv, &options,
                                                 &positionals, nowhere, &is_done, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, false);
        FUZZ_CHECK(status == MIST_ERR_USAGE, "status %d", (int)status);
    } else if (!is_done) {
        check_values(&options, &positionals);
    }
    free(text);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("long", "--model=x\n--steps\n7\n--memory=8GiB\n--no-fast\nplan.json");
    fuzz_seed_text("short", "-mx\n-qa\n-i\na,b\n-ic\n-j2\n--\n-\n--x");
    fuzz_seed_text("more", "-m\nx\n--fraction=0.5\n--time=3ms\n--order=second\n"
                           "--progress=never\n--output=o");
    fuzz_seed_text("help", "--help");
    fuzz_seed_text("completion", "--completion");
}

/* core/options: every spelling, every refusal, and the printed texts. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#define _DEFAULT_SOURCE
#include "tests/unit/test.h"

#include "core/options.h"
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <math.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct tool_options {
    struct mist_common_options common;
    const char *model;
    int64_t memory_bytes;
    double alpha;
    double timeout_s;
    int backend;
    struct mist_option_list space, inputs;
    int64_t n_tries;
};

static const char *const backends[] = {"cpu", "cuda", NULL};

static const struct mist_option options[] = {
    {.name = "model",
     .letter = 'm',
     .kind = MIST_OPTION_STRING,
     .group = "Model",
     .value_name = "NAME",
     .help = "preset or config.json",
     .is_required = true,
     .unless = "timeout",
     .offset = offsetof(struct tool_options, model)},
    MIST_OPTION_ROW_WITH(struct tool_options, "timeout space", "tries", MIST_OPTION_INT64,
                         n_tries, "Search", "N", "1", 1, 9, "how often"),
    MIST_OPTION_ROW(struct tool_options, "memory", MIST_OPTION_BYTES, memory_bytes,
                    "Model", "SIZE", "80GiB", 1, (double)INFINITY, "device memory"),
    MIST_OPTION_ROW_QUIET(struct tool_options),
    MIST_OPTION_ROW(struct tool_options, "alpha", MIST_OPTION_DOUBLE, alpha, "Search",
                    "X", "0.5", 0, 1, "weight"),
    MIST_OPTION_ROW(struct tool_options, "timeout", MIST_OPTION_TIME_S, timeout_s,
                    "Search", "TIME", NULL, 0, 0, "stop after"),
    MIST_OPTION_ROW_CHOICE(struct tool_options, "backend", backend, "Search", "B", "cuda",
                           backends, "device"),
    MIST_OPTION_ROW(struct tool_options, "space", MIST_OPTION_LIST, space, "Search",
                    "KNOBS", "3d,zero", 0, 0, "what is searched"),
    MIST_OPTION_ROW_FILES(struct tool_options, "input", inputs, "Search", "FILE",
                          "what is read"),
    MIST_OPTION_ROW_VERBOSE(struct tool_options),
    MIST_OPTION_ROW_JOBS(struct tool_options),
    MIST_OPTION_ROW_JSON(struct tool_options),
    MIST_OPTION_ROW_CSV(struct tool_options),
    MIST_OPTION_ROW_DRY_RUN(struct tool_options),
    MIST_OPTION_ROW_FORCE(struct tool_options),
    MIST_OPTION_ROW_SEED(struct tool_options),
    MIST_OPTION_ROW_PROGRESS(struct tool_options),
    MIST_OPTION_ROW_NO_COLOR(struct tool_options),
    MIST_OPTION_ROW_OUTPUT(struct tool_options, "where the plan goes", NULL),
};

static const char *const examples[] = {"mist-test -m llama-7b a.json", NULL};

static const struct mist_tool tool = {
    .name = "mist-test",
    .purpose = "tests the options",
    .examples = examples,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .positional_name = "PLAN",
    .positional_help = "a plan",
    .positional_max = 2,
    .exit_texts = {[4] = "no plan fits"},
    .signal_text = "stopped by signal n",
};

struct call {
    struct tool_options out;
    struct mist_positionals positionals;
    struct mist_err err;
    bool is_done;
    char *argv[40];
    char words[256];
    char text[16384]; /* what was printed */
};

/* Parses a line of words that are split at blanks. */
static enum mist_status parse(struct call *call, const char *line)
{
    int argc = 1;
    FILE *stream;

    memset(call, 0x55, sizeof *call);
    memset(call->text, 0, sizeof call->text);
    stream = fmemopen(call->text, sizeof call->text, "w");
    snprintf(call->words, sizeof call->words, "%s", line);
    call->argv[0] = call->words; /* unused */
    for (char *word = strtok(call->words, " "); word; word = strtok(NULL, " "))
        call->argv[argc++] = word;
    enum mist_status status =
        mist_options_parse(&tool, argc, call->argv, &call->out, &call->positionals,
                           stream, &call->is_done, &call->err);
    fclose(stream);
    return status;
}

TEST(test_defaults)
{
    struct call call;

    assert_int_equal(parse(&call, "--model=x"), MIST_OK);
    assert_false(call.is_done);
    assert_string_equal(call.out.model, "x");
    assert_true(call.out.memory_bytes == INT64_C(80) << 30);
    assert_true(call.out.alpha == 0.5);
    assert_true(call.out.timeout_s == 0);
    assert_int_equal(call.out.backend, 1);
    assert_int_equal(call.out.space.n, 2);
    assert_string_equal(call.out.space.items[1], "zero");
    assert_false(call.out.common.is_quiet);
    assert_false(call.out.common.no_color);
    assert_null(call.out.common.output);
    assert_int_equal(call.out.common.n_jobs, 0);
    assert_int_equal(call.out.common.seed, 1);
    assert_int_equal(call.out.common.progress, 0);
    assert_int_equal(call.positionals.n, 0);
}

TEST(test_spellings)
{
    struct call call;

    assert_int_equal(
        parse(&call, "a -qvj4 -m x --alpha 1 - --memory=1GiB --space a,b --no-quiet "
                     "--space=c --no-color --timeout 3ms -o f"),
        MIST_OK);
    assert_int_equal(call.positionals.n, 2);
    assert_string_equal(call.positionals.items[0], "a");
    assert_string_equal(call.positionals.items[1], "-");
    assert_false(call.out.common.is_quiet);
    assert_true(call.out.common.is_verbose);
    assert_int_equal(call.out.common.n_jobs, 4);
    assert_true(call.out.common.no_color);
    assert_true(call.out.alpha == 1);
    assert_true(call.out.timeout_s == 3 * 1e-3);
    assert_true(call.out.memory_bytes == 1 << 30);
    assert_int_equal(call.out.space.n, 3);
    assert_string_equal(call.out.space.items[0], "a");
    assert_string_equal(call.out.space.items[2], "c");
    assert_string_equal(call.out.common.output, "f");
    assert_int_equal(call.out.inputs.n, 0);
    assert_int_equal(parse(&call, "-m x --input a,b --input=c"), MIST_OK);
    assert_int_equal(call.out.inputs.n, 2);
    assert_string_equal(call.out.inputs.items[0], "a,b");
    assert_string_equal(call.out.inputs.items[1], "c");
    assert_int_equal(parse(&call, "-m a -m b --seed -5 -- --quiet -x"), MIST_OK);
    assert_string_equal(call.out.model, "b");
    assert_int_equal(call.out.common.seed, -5);
    assert_int_equal(call.positionals.n, 2);
    assert_string_equal(call.positionals.items[0], "--quiet");
    assert_string_equal(call.positionals.items[1], "-x");
}

TEST(test_refusals)
{
    static const struct {
        const char *line, *part;
    } bad[] = {
        {"-m x --qiet", "did you mean --quiet?"},
        {"-m x --hlep", "did you mean --help?"},
        {"-m x --zzzzzz", "--help lists"},
        {"-m x -z", "unknown option -z"},
        {"-m x --no-alpha", "unknown option"},
        {"-m x --quiet=1", "takes no value"},
        {"-m x --alpha=1.5", "not within 0 .. 1"},
        {"-m x --alpha=0x1", "decimal number"},
        {"-m x --memory=0", "less than 1"},
        {"-m x --memory=8gb", "'8gb'"},
        {"-m x --backend=tpu", "none of cpu, cuda"},
        {"-m x --space=a,,b", "empty"},
        {"-m x --input=", "empty"},
        {"--model=", "--model: the value is empty, expected NAME"},
        {"-m x -j", "expected a value (N)"},
        {"-m x -j 4097", "not within"},
        {"--model --quiet", "write --model=--quiet"},
        {"--quiet", "--model NAME is required"},
        {"-m x --json --csv", "--csv and --json"},
        {"-m x --tries 2", "--tries needs --timeout TIME or --space KNOBS"},
        {"-m x a b c", "unexpected argument 'c': expected at most 2"},
        {"-m x a b --input c d",
         "'d': expected at most 2; several values of --input have"},
        {"--completion", "expected a value (SHELL)"},
        {"--completion=tcsh", "none of bash, zsh, fish"},
        {"--help=all", "takes no value"},
    };
    struct call call;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(&call, bad[i].line), MIST_ERR_USAGE);
        assert_non_null(strstr(call.err.message, bad[i].part));
    }
}

/* An option that may stand in for a required one, and a value given behind all others. */
TEST(test_set)
{
    struct call call;
    struct mist_err err;

    assert_int_equal(parse(&call, "--timeout 3s --alpha 0.25 --tries 2"), MIST_OK);
    assert_null(call.out.model);
    must(mist_options_set(&tool, "model", "x", &call.out, &err), &err);
    must(mist_options_set(&tool, "alpha", "0.75", &call.out, &err), &err);
    assert_string_equal(call.out.model, "x");
    assert_true(call.out.alpha == 0.75);
    assert_int_equal(mist_options_set(&tool, "alpha", "1.5", &call.out, &err),
                     MIST_ERR_USAGE);
    assert_true(call.out.alpha == 0.75);
}

/* Every option appears in the help, in the man page and in the completion. */
TEST(test_texts)
{
    struct call call;
    char name[64];

    assert_int_equal(parse(&call, "--alpha 1 --help --nonsense"), MIST_OK);
    assert_true(call.is_done);
    assert_true(strncmp(call.text, "mist-test: tests the options\n\nExamples:\n", 40) ==
                0);
    assert_non_null(strstr(
        call.text, "  -m, --model=NAME            preset or config.json [required]\n"));
    assert_non_null(strstr(call.text, "[0 .. 1; default: 0.5]"));
    assert_non_null(strstr(call.text, "[cpu, cuda; default: cuda]"));
    assert_non_null(strstr(call.text, "  4      no plan fits\n  5      a file"));
    for (size_t i = 0; i < tool.n_options; i++) {
        snprintf(name, sizeof name, "--%s", options[i].name);
        assert_non_null(strstr(call.text, name));
    }
    assert_int_equal(parse(&call, "--version"), MIST_OK);
    assert_true(call.is_done);
    assert_true(strncmp(call.text, "mist-test ", 10) == 0);
    assert_int_equal(parse(&call, "--man"), MIST_OK);
    assert_non_null(strstr(call.text, ".TH MIST-TEST 1"));
    assert_non_null(strstr(call.text, "\\fB\\-\\-dry\\-run\\fR"));
    assert_int_equal(parse(&call, "--completion=bash"), MIST_OK);
    assert_non_null(strstr(call.text, "complete -o filenames -F _mist_test mist-test\n"));
    assert_non_null(strstr(
        call.text, "    --backend) mapfile -t COMPREPLY < <(compgen -W \"cpu cuda\""));
    assert_int_equal(parse(&call, "--completion zsh"), MIST_OK);
    assert_non_null(strstr(
        call.text, "'(-m --model)'{-m+,--model=}'[preset or config.json]:NAME:_files'"));
    assert_non_null(strstr(call.text, "'(--json)--csv[print results as CSV]'"));
    assert_non_null(strstr(call.text, "'*--space=[what is searched]:KNOBS: '"));
    assert_non_null(strstr(call.text, "'*--input=[what is read]:FILE:_files'"));
    assert_int_equal(parse(&call, "--completion fish"), MIST_OK);
    assert_non_null(strstr(
        call.text, "complete -c mist-test -l backend -x -a 'cpu cuda' -d 'device'\n"));
    assert_non_null(strstr(
        call.text, "complete -c mist-test -l quiet -s q -d 'print errors only'\n"));
}

/* On a terminal lines end before its right edge, and begin where the first one did. */
TEST(test_narrow)
{
    const struct winsize size = {.ws_col = 64, .ws_row = 24};
    char *argv[] = {(char[]){"mist-test"}, (char[]){"--help"}, NULL};
    char text[8192], name[64];
    struct tool_options out;
    struct mist_positionals positionals;
    struct mist_err err;
    bool is_done;
    size_t n = 0;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);

    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        skip();
    snprintf(name, sizeof name, "%s", ptsname(terminal));
    FILE *stream = fopen(name, "w");
    assert_non_null(stream);
    assert_int_equal(ioctl(fileno(stream), TIOCSWINSZ, &size), 0);
    must(mist_options_parse(&tool, 2, argv, &out, &positionals, stream, &is_done, &err),
         &err);
    fclose(stream);
    for (ssize_t got; n < sizeof text - 1; n += (size_t)got)
        if ((got = read(terminal, text + n, sizeof text - 1 - n)) <= 0)
            break;
    text[n] = '\0';
    close(terminal);
    assert_non_null(strstr(text, "print a script by which that shell\r\n"
                                 "                              completes options"));
    for (char *line = strtok(strstr(text, "Usage:"), "\r\n"); line;
         line = strtok(NULL, "\r\n"))
        if (strlen(line) > size.ws_col)
            fail_msg("%zu columns: %s", strlen(line), line);
}

TEST(test_full_disk)
{
    char *argv[] = {(char[]){"mist-test"}, (char[]){"--help"}, NULL};
    struct tool_options out;
    struct mist_positionals positionals;
    struct mist_err err;
    bool is_done;
    FILE *stream = fopen("/dev/full", "w");

    assert_non_null(stream);
    assert_int_equal(
        mist_options_parse(&tool, 2, argv, &out, &positionals, stream, &is_done, &err),
        MIST_ERR_IO);
    fclose(stream);
}

TEST_MAIN(NULL, NULL)

/*
 * core/parse and the other readers of a word: what is accepted means what strtod says,
 * spells its value again, and what is refused leaves out untouched.
 */
#include "core/parse.h"
#include "plots/plot.h"
#include "tests/fuzz/fuzz.h"
#include "traces/trace_set.h"

#include <math.h>

static void check_whole(const char *text)
{
    struct mist_err err = {0};
    char *end, again[32];
    int64_t value = -77, second;
    enum mist_status status = mist_parse_int64(text, &value, &err);

    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, false);
        FUZZ_CHECK(value == -77, "out was touched");
        return;
    }
    FUZZ_CHECK(value == strtoll(text, &end, 10) && !*end, "'%s'", text);
    snprintf(again, sizeof again, "%lld", (long long)value);
    fuzz_must(mist_parse_int64(again, &second, &err), &err);
    FUZZ_CHECK(second == value, "'%s'", text);
}

static void check_real(const char *text)
{
    struct mist_err err = {0};
    char *end, again[MIST_FORMAT_BYTES];
    double value = -77, second;
    enum mist_status status = mist_parse_double(text, &value, &err);

    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, false);
        FUZZ_CHECK(value == -77, "out was touched");
        return;
    }
    FUZZ_CHECK(isfinite(value) && value == strtod(text, &end) && !*end, "'%s'", text);
    fuzz_must(
        mist_parse_double(mist_format_double(again, sizeof again, value), &second, &err),
        &err);
    FUZZ_CHECK(second == value, "'%s' becomes %s", text, again);
}

/* What people see of a value fits its buffer. */
static void check_formats(double value)
{
    char out[200];
    int64_t bytes = value >= 0 && value < 0x1p62 ? (int64_t)value : INT64_MIN;

    FUZZ_CHECK(strlen(mist_format_bytes(out, sizeof out, bytes)) < MIST_FORMAT_BYTES,
               "%s", out);
    FUZZ_CHECK(strlen(mist_format_time_s(out, sizeof out, value)) < MIST_FORMAT_BYTES,
               "%s", out);
    FUZZ_CHECK(strlen(mist_format_count(out, sizeof out, value)) < MIST_FORMAT_BYTES,
               "%s", out);
    FUZZ_CHECK(strlen(mist_format_count(out, sizeof out, -value)) < MIST_FORMAT_BYTES,
               "%s", out);
}

typedef enum mist_status quantity_fn(const char *text, double *out, struct mist_err *err);

static void check_quantities(const char *text)
{
    static quantity_fn *const readers[] = {mist_parse_time_s,
                                           mist_parse_rate_bytes_per_s};
    struct mist_err err = {0};
    int64_t bytes = -77;
    enum mist_status status = mist_parse_bytes(text, &bytes, &err);

    if (status == MIST_OK)
        FUZZ_CHECK(bytes >= 0, "'%s'", text);
    else
        FUZZ_CHECK(bytes == -77, "out was touched");
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        double value = -77;
        status = readers[i](text, &value, &err);
        if (status != MIST_OK) {
            fuzz_check_refusal(status, &err, false);
            FUZZ_CHECK(value == -77, "out was touched");
            continue;
        }
        FUZZ_CHECK(isfinite(value) && value >= 0, "'%s'", text);
        check_formats(value);
    }
}

static void check_words(const char *text)
{
    char again[MIST_SHAPE_TEXT_MAX], channels_text[MIST_CHANNELS_TEXT_MAX];
    struct mist_shape shape;
    struct mist_plot_ranks ranks;
    struct mist_err err = {0};
    unsigned channels;
    enum mist_status status = mist_shape_parse(text, &shape, &err);

    if (status == MIST_OK) {
        mist_shape_format(&shape, again);
        FUZZ_CHECK(strcmp(again, text) == 0, "'%s' becomes '%s'", text, again);
    } else {
        fuzz_check_refusal(status, &err, false);
    }
    if (mist_channels_from_text(text, &channels)) {
        mist_channels_to_text(channels, channels_text);
        FUZZ_CHECK(strcmp(channels_text, text) == 0, "'%s' becomes '%s'", text,
                   channels_text);
    }
    status = mist_plot_parse_ranks(text, &ranks, &err);
    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, false);
    else
        for (int i = 0; i < ranks.n_ranges; i++)
            FUZZ_CHECK(0 <= ranks.low[i] && ranks.low[i] <= ranks.high[i], "'%s'", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = fuzz_text((struct fuzz_bytes){bytes, n});

    check_whole(text);
    check_real(text);
    check_quantities(text);
    check_words(text);
    free(text);
    return 0;
}

void fuzz_write_seeds(void)
{
    static const char *const seeds[] = {
        "42",          "-7",         "-0.5",     "2e-3",    "9223372036854775807",
        "1.5GB",       "80 GiB",     "512MiB",   "3ms",     "5min",
        "2h",          "400Gb/s",    "8GiB/s",   "25GB/s",  "312TFLOP/s",
        "19.5 TFLOPS", "0-3,5",      "all",      "1e308",   "rows=512;n_in=256;n_out=768",
        "4.9e-324",    "elements=1", "1e400TiB", "100000h", "compute+gpu_gpu"};

    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char name[16];
        snprintf(name, sizeof name, "%02zu", i);
        fuzz_seed_text(name, seeds[i]);
    }
}

/* Distributions of lengths. See lengths.h. */
#include "sim/replay/lengths.h"

#include "core/atomic_file.h" /* mist_file_read_all */
#include "core/memory.h"
#include "core/order.h"
#include "core/parse.h"
#include "core/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM = 2 }; /* of random numbers; jitter has the two before */

static const size_t MAX_FILE_BYTES = (size_t)1 << 30;
static const int64_t MAX_COUNT = INT64_C(1) << 40;

/* ------------------------------------------------------------------------ distributions */

static enum mist_status bad_distribution(const char *text, struct mist_err *err)
{
    return mist_err_set(
        err, MIST_ERR_USAGE,
        "lengths %.200s: expected a file or lognormal:median=N,sigma=X, N "
        "from 1 to %d, X from 0 to 10",
        text, INT32_MAX);
}

/* The number behind "NAME=" up to a comma or the end; false: there is none. */
static bool read_parameter(const char *text, const char *name, double *out)
{
    size_t n = strlen(name), length;
    char value[64];

    for (;; text++) {
        length = strcspn(text, ",");
        if (strncmp(text, name, n) == 0 && text[n] == '=')
            break;
        text += length;
        if (!*text)
            return false;
    }
    if (length - n - 1 >= sizeof value)
        return false;
    snprintf(value, sizeof value, "%.*s", (int)(length - n - 1), text + n + 1);
    return mist_parse_double(value, out, NULL) == MIST_OK;
}

static enum mist_status read_lognormal(const char *text, const char *parameters,
                                       struct mist_lengths *out, struct mist_err *err)
{
    const char *comma = strchr(parameters, ',');

    if (!comma || strchr(comma + 1, ',') ||
        !read_parameter(parameters, "median", &out->median) ||
        !read_parameter(parameters, "sigma", &out->sigma) ||
        !(out->median >= 1 && out->median <= INT32_MAX) ||
        !(out->sigma >= 0 && out->sigma <= 10))
        return bad_distribution(text, err);
    return MIST_OK;
}

/* -------------------------------------------------------------------------------- files */

struct reading {
    const char *path;
    long line;
    size_t lengths_capacity, counts_capacity;
    struct mist_lengths *out;
    struct mist_err *err;
};

static enum mist_status bad_line(const struct reading *at, const char *line)
{
    return mist_err_at(at->err, MIST_ERR_INPUT, at->path, at->line, 0,
                       "'%.60s' is no length in tokens (1 to %d), alone or with a count "
                       "behind a comma",
                       line, INT32_MAX);
}

static enum mist_status add(struct reading *at, int64_t length, int64_t count)
{
    struct mist_lengths *out = at->out;

    if (!MIST_RESERVE(out->lengths, at->lengths_capacity, out->n + 1) ||
        !MIST_RESERVE(out->counts, at->counts_capacity, out->n + 1))
        return mist_err_memory(at->err, at->path);
    int64_t before = out->n > 0 ? out->counts[out->n - 1] : 0;
    if (count > MAX_COUNT - before)
        return mist_err_at(at->err, MIST_ERR_INPUT, at->path, at->line, 0,
                           "more than 2^40 sequences up to here");
    out->lengths[out->n] = (int32_t)length;
    out->counts[out->n++] = before + count;
    return MIST_OK;
}

static enum mist_status read_line(struct reading *at, char *line)
{
    size_t n = strlen(line);
    int64_t length, count = 1;

    if (n > 0 && line[n - 1] == '\r')
        line[n - 1] = '\0';
    if (at->line == 1 &&
        (strcmp(line, "length") == 0 || strcmp(line, "length,count") == 0))
        return MIST_OK;
    char *comma = strchr(line, ',');
    if (comma)
        *comma = '\0';
    bool is_good =
        mist_parse_int64(line, &length, NULL) == MIST_OK && length >= 1 &&
        length <= INT32_MAX &&
        (!comma || (mist_parse_int64(comma + 1, &count, NULL) == MIST_OK && count >= 0));
    if (comma)
        *comma = ',';
    if (!is_good)
        return bad_line(at, line);
    return count > 0 ? add(at, length, count) : MIST_OK;
}

static enum mist_status read_file(const char *path, struct mist_lengths *out,
                                  struct mist_err *err)
{
    struct reading at = {.path = path, .out = out, .err = err};
    char *text = NULL;
    size_t n = 0;
    enum mist_status status = mist_file_read_all(path, MAX_FILE_BYTES, &text, &n, err);

    for (size_t i = 0; status == MIST_OK && i < n;) {
        char *line = text + i, *end = memchr(line, '\n', n - i);
        i = end ? (size_t)(end - text) + 1 : n;
        text[end ? i - 1 : n] = '\0';
        at.line++;
        if (strlen(line) < (size_t)(text + i - line) - (end != NULL))
            status = bad_line(&at, line); /* a zero byte */
        else
            status = read_line(&at, line);
    }
    free(text);
    if (status == MIST_OK && out->n == 0)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "no length, expected one a line, or length,count");
    return status;
}

/* ------------------------------------------------------------------------------ public */

enum mist_status mist_lengths_read(const char *text, struct mist_lengths *out,
                                   struct mist_err *err)
{
    static const char lognormal[] = "lognormal";
    size_t n = strlen(lognormal);
    bool is_lognormal = strcmp(text, lognormal) == 0 ||
                        (strncmp(text, lognormal, n) == 0 && text[n] == ':');
    struct mist_lengths lengths = {0};
    enum mist_status status =
        is_lognormal ? read_lognormal(text, text + n + (text[n] == ':'), &lengths, err)
                     : read_file(text, &lengths, err);

    if (status == MIST_OK)
        *out = lengths;
    else
        mist_lengths_fini(&lengths);
    return status;
}

void mist_lengths_fini(struct mist_lengths *lengths)
{
    free(lengths->lengths);
    free(lengths->counts);
    *lengths = (struct mist_lengths){0};
}

int32_t mist_lengths_draw(const struct mist_lengths *lengths, uint64_t seed, uint64_t i)
{
    if (lengths->median > 0) {
        double length = lengths->median *
                        exp(lengths->sigma * mist_random_normal_at(seed, STREAM, i));
        return (int32_t)fmin(fmax(1, floor(length + 0.5)), INT32_MAX);
    }
    int64_t n = lengths->counts[lengths->n - 1];
    int64_t number = (int64_t)(mist_random_uniform_at(seed, STREAM, i) * (double)n);
    MIST_BISECT(drawn, 0, lengths->n - 1, k, lengths->counts[k] <= number);
    return lengths->lengths[drawn];
}

/* Strict numbers and units in text. See parse.h. */
#include "core/parse.h"

#include "core/memory.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 64 /* longest spelling of a number that is looked at */

struct unit {
    const char *name;
    double factor;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t count_digits(const char *text)
{
    size_t n = 0;

    while (is_digit(text[n]))
        n++;
    return n;
}

/* Length of the decimal number at the start of text (-1.5e+3), 0 when there is none. */
static size_t number_length(const char *text)
{
    size_t n = text[0] == '-';
    size_t digits = count_digits(text + n);

    if (digits == 0)
        return 0;
    n += digits;
    if (text[n] == '.') {
        digits = count_digits(text + n + 1);
        if (digits == 0)
            return n; /* the point stays behind and is refused as a unit */
        n += 1 + digits;
    }
    if (text[n] == 'e' || text[n] == 'E') {
        size_t sign = text[n + 1] == '-' || text[n + 1] == '+';
        digits = count_digits(text + n + 1 + sign);
        if (digits > 0)
            n += 1 + sign + digits;
    }
    return n;
}

static enum mist_status refuse(struct mist_err *err, const char *text,
                               const char *expected)
{
    return mist_err_set(err, MIST_ERR_INPUT, "'%.80s': expected %s", text, expected);
}

/* The number in the first n bytes of text; false when it is no finite double. */
static bool read_double(const char *text, size_t n, double *out)
{
    char copy[NUMBER_BYTES];

    if (n == 0 || n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    errno = 0;
    double value = strtod(copy, NULL);
    if (!isfinite(value) || (errno == ERANGE && value == 0))
        return false;
    *out = value;
    return true;
}

enum mist_status mist_parse_int64(const char *text, int64_t *out, struct mist_err *err)
{
    size_t sign = text[0] == '-';
    size_t digits = count_digits(text + sign);

    if (digits == 0 || text[sign + digits])
        return refuse(err, text, "a whole number");
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE)
        return refuse(err, text, "a whole number that fits 64 bits");
    *out = value;
    return MIST_OK;
}

enum mist_status mist_parse_double(const char *text, double *out, struct mist_err *err)
{
    size_t n = number_length(text);

    if (n == 0 || text[n] || !read_double(text, n, out))
        return refuse(err, text, "a finite decimal number");
    return MIST_OK;
}

/* Splits "1.5 GB" into its number (>= 0) and the factor of its unit. */
static bool read_quantity(const char *text, const struct unit *units, double *number,
                          double *factor)
{
    size_t n = number_length(text);

    if (text[0] == '-' || !read_double(text, n, number))
        return false;
    const char *name = text + n + (text[n] == ' ' && text[n + 1]);
    for (const struct unit *unit = units; unit->name; unit++) {
        if (strcmp(unit->name, name) == 0) {
            *factor = unit->factor;
            return true;
        }
    }
    return false;
}

static enum mist_status parse_quantity(const char *text, const struct unit *units,
                                       const char *expected, double *out,
                                       struct mist_err *err)
{
    double number = 0;
    double factor = 0;

    if (!read_quantity(text, units, &number, &factor) || !isfinite(number * factor))
        return refuse(err, text, expected);
    *out = number * factor;
    return MIST_OK;
}

enum mist_status mist_parse_bytes(const char *text, int64_t *out_bytes,
                                  struct mist_err *err)
{
    static const struct unit units[] = {
        {"", 1},         {"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
        {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},     {"kB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {NULL, 0},
    };
    static const char expected[] = "a size such as 64, 512MiB, 8GiB or 1.5GB";
    double number = 0;
    double factor = 0;

    if (!read_quantity(text, units, &number, &factor))
        return refuse(err, text, expected);
    size_t digits = count_digits(text);
    if (digits == number_length(text)) { /* exact beyond 2^53 */
        errno = 0;
        int64_t whole = strtoll(text, NULL, 10);
        if (errno == ERANGE || !mist_size_mul(whole, (int64_t)factor, out_bytes))
            return refuse(err, text, "a size that fits 63 bits");
        return MIST_OK;
    }
    if (number * factor >= 0x1p63)
        return refuse(err, text, "a size that fits 63 bits");
    *out_bytes = (int64_t)(number * factor);
    return MIST_OK;
}

enum mist_status mist_check_memory_bytes(const char *what, int64_t bytes,
                                         enum mist_status refusal, struct mist_err *err)
{
    if (bytes >= 1 << 20)
        return MIST_OK;
    return mist_err_set(err, refusal,
                        "%s is %lld bytes, which can't be meant; a unit stands behind "
                        "the number: %lldGiB",
                        what, (long long)bytes, (long long)bytes);
}

enum mist_status mist_parse_time_s(const char *text, double *out_s, struct mist_err *err)
{
    static const struct unit units[] = {{"s", 1},     {"ms", 1e-3}, {"us", 1e-6},
                                        {"ns", 1e-9}, {"min", 60},  {"h", 3600},
                                        {NULL, 0}};

    return parse_quantity(text, units, "a time such as 1.5s, 3ms or 2us", out_s, err);
}

enum mist_status mist_parse_rate_bytes_per_s(const char *text, double *out_bytes_per_s,
                                             struct mist_err *err)
{
    static const struct unit units[] = {
        {"b/s", 1.0 / 8},   {"Kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8},
        {"Tb/s", 1e12 / 8}, {"B/s", 1},        {"KB/s", 1e3},     {"MB/s", 1e6},
        {"GB/s", 1e9},      {"TB/s", 1e12},    {"KiB/s", 0x1p10}, {"MiB/s", 0x1p20},
        {"GiB/s", 0x1p30},  {"TiB/s", 0x1p40}, {NULL, 0},
    };

    return parse_quantity(text, units, "a rate such as 400Gb/s (bits) or 25GB/s (bytes)",
                          out_bytes_per_s, err);
}

enum mist_status mist_parse_factor(const char *text, double *out, struct mist_err *err)
{
    static const struct unit units[] = {{"x", 1}, {NULL, 0}};

    return parse_quantity(text, units, "a factor such as 2x or 0.7x", out, err);
}

enum mist_status mist_parse_frac(const char *text, double *out, struct mist_err *err)
{
    static const struct unit divisors[] = {{"", 1}, {"%", 100}, {NULL, 0}};
    double number, divisor;

    if (!read_quantity(text, divisors, &number, &divisor))
        return refuse(err, text, "a part such as 2% or 0.02");
    *out = number / divisor;
    return MIST_OK;
}

/* 3 significant digits without an exponent for 0 <= value < 1e4. */
static int decimals(double value)
{
    if (value < 9.995)
        return 2;
    return value < 99.95 ? 1 : 0;
}

bool mist_text_begins(const char *text, const char *with, const char **rest)
{
    size_t n = strlen(with);

    *rest = text + n;
    return strncmp(text, with, n) == 0;
}

int mist_word_find(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

char *mist_text_add(char *text, size_t size, const char *separator, const char *format,
                    ...)
{
    size_t n = strlen(text);
    va_list args;

    if (n > 0)
        n += (size_t)snprintf(text + n, size - n, "%s", separator);
    if (n >= size)
        return text;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
    return text;
}

char *mist_words_list(const char *const *words, char *buffer, size_t size)
{
    buffer[0] = '\0';
    for (int i = 0; words[i]; i++)
        mist_text_add(buffer, size, ", ", "%s", words[i]);
    return buffer;
}

char *mist_format_bytes(char *buffer, size_t size, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = fabs((double)bytes);
    int i = 0;

    while (value >= 1023.5 && i < 6) {
        value /= 1024;
        i++;
    }
    snprintf(buffer, size, "%s%.*f %s", bytes < 0 ? "-" : "",
             i == 0 ? 0 : decimals(value), value, units[i]);
    return buffer;
}

char *mist_format_count(char *buffer, size_t size, double count)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
    double value = fabs(count);
    const char *sign = count < 0 ? "-" : "";
    int i = 0;

    if (!isfinite(count)) {
        snprintf(buffer, size, "-");
        return buffer;
    }
    while (value >= 999.5 && i < 6) {
        value /= 1000;
        i++;
    }
    if (i == 0 || value >= 999.5) /* without a unit, also what is beyond them */
        snprintf(buffer, size, "%.3g", count);
    else
        snprintf(buffer, size, "%s%.*f%s", sign, decimals(value), value, units[i]);
    return buffer;
}

char *mist_format_percent(char *buffer, size_t size, double percent, int n_decimals,
                          bool has_sign)
{
    snprintf(buffer, size, has_sign ? "%+.*f %%" : "%.*f %%", n_decimals, percent);
    if ((buffer[0] == '-' || buffer[0] == '+') &&
        buffer[1 + strspn(buffer + 1, "0.")] == ' ')
        memmove(buffer, buffer + 1, strlen(buffer));
    return buffer;
}

static void format_long_time(char *buffer, size_t size, const char *sign, double time_s)
{
    if (time_s < 3599.5) {
        int whole_s = (int)(time_s + 0.5);
        snprintf(buffer, size, "%s%d min %02d s", sign, whole_s / 60, whole_s % 60);
        return;
    }
    double whole_min = floor(time_s / 60 + 0.5);
    double hours = floor(whole_min / 60);
    if (hours < 1e6)
        snprintf(buffer, size, "%s%.0f h %02.0f min", sign, hours,
                 whole_min - 60 * hours);
    else
        snprintf(buffer, size, "%s%.3g h", sign, hours);
}

char *mist_format_time_s(char *buffer, size_t size, double time_s)
{
    static const struct unit units[] = {
        {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    double value = fabs(time_s);
    const char *sign = time_s < 0 ? "-" : "";

    if (!isfinite(time_s)) {
        snprintf(buffer, size, "-");
        return buffer;
    }
    if (value >= 119.5) {
        format_long_time(buffer, size, sign, value);
        return buffer;
    }
    int i = 0;
    while (i < 3 && value != 0 && value / units[i].factor < 0.9995)
        i++;
    double scaled = value / units[i].factor;
    snprintf(buffer, size, "%s%.*f %s", sign, value == 0 ? 0 : decimals(scaled), scaled,
             units[i].name);
    return buffer;
}

char *mist_format_double(char *buffer, size_t size, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    return buffer;
}

/* Formats, ranks and the text of gnuplot programs. See plot.h. */
#include "plots/plot.h"

#include "core/escape.h"
#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- options ---- */

enum mist_status mist_plot_format_from_path(const char *path, enum mist_plot_format *out,
                                            struct mist_err *err)
{
    static const char *const suffixes[] = {".png", ".svg", ".pdf"};
    size_t n = strlen(path);

    if (strcmp(path, "-") == 0) {
        *out = MIST_PLOT_TEXT;
        return MIST_OK;
    }
    for (int i = 0; i < 3; i++)
        if (n > 4 && strcmp(path + n - 4, suffixes[i]) == 0) {
            *out = (enum mist_plot_format)i;
            return MIST_OK;
        }
    return mist_err_set(
        err, MIST_ERR_USAGE,
        "--output %s: expected a name that ends in .png, .svg or .pdf, or - "
        "for the terminal",
        path);
}

/* Reads "3" or "0-3" of n characters. */
static bool parse_range(const char *text, size_t n, int *low, int *high)
{
    char part[32];
    int64_t a, b;

    if (n == 0 || n >= sizeof part)
        return false;
    memcpy(part, text, n);
    part[n] = '\0';
    char *dash = strchr(part, '-');
    if (dash)
        *dash = '\0';
    if (mist_parse_int64(part, &a, NULL) != MIST_OK ||
        mist_parse_int64(dash ? dash + 1 : part, &b, NULL) != MIST_OK)
        return false;
    if (a < 0 || b < a || b > INT_MAX)
        return false;
    *low = (int)a;
    *high = (int)b;
    return true;
}

enum mist_status mist_plot_parse_ranks(const char *text, struct mist_plot_ranks *out,
                                       struct mist_err *err)
{
    struct mist_plot_ranks ranks = {0};

    for (const char *part = text; part && strcmp(text, "all") != 0;) {
        size_t n = strcspn(part, ",");
        if (ranks.n_ranges == MIST_PLOT_MAX_RANGES)
            return mist_err_set(err, MIST_ERR_USAGE, "--ranks: more than %d ranges",
                                MIST_PLOT_MAX_RANGES);
        if (!parse_range(part, n, &ranks.low[ranks.n_ranges],
                         &ranks.high[ranks.n_ranges]))
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--ranks %s: expected numbers and ranges such as 0-3,5",
                                text);
        ranks.n_ranges++;
        part = part[n] ? part + n + 1 : NULL;
    }
    *out = ranks;
    return MIST_OK;
}

bool mist_plot_has_rank(const struct mist_plot_ranks *ranks, int rank)
{
    for (int i = 0; i < ranks->n_ranges; i++)
        if (rank >= ranks->low[i] && rank <= ranks->high[i])
            return true;
    return ranks->n_ranges == 0;
}

/* ---- program text ---- */

void mist_plot_write_quoted(FILE *stream, const char *text)
{
    mist_plot_write_fitted(stream, text, HUGE_VAL);
}

/* The widest letters of DejaVu Sans of each kind, on whole pixels. */
static double letter_em(unsigned char first)
{
    bool is_small = (first >= 'a' && first <= 'z') || (first >= '0' && first <= '9') ||
                    (first < 0x80 && strchr(" !'(),-./:;[]_|", first));

    return is_small && first != 'm' && first != 'w' ? 0.7 : 1.05;
}

/* One character, or the letters that stand for it. */
static double piece_em(const char *piece)
{
    double em = 0;

    for (; *piece; piece++)
        if (((unsigned char)*piece & 0xc0) != 0x80) /* not inside a character */
            em += letter_em((unsigned char)*piece);
    return em;
}

double mist_plot_text_em(const char *text)
{
    double em = 0;

    for (char piece[MIST_ESCAPED_FIRST_BYTES]; *text;) {
        text += mist_escape_first(text, piece);
        em += piece_em(piece);
    }
    return em;
}

double mist_plot_em_pixels(double points)
{
    return points * 96 / 72; /* of a PNG, whose inch has 96 pixels */
}

void mist_plot_write_fitted(FILE *stream, const char *text, double em)
{
    double whole = mist_plot_text_em(text), at = 0;
    double cut_from = whole, cut_to = whole; /* what is left out begins and ends there */

    if (whole > em) {
        cut_from = fmax(0, em / 2 - 1);
        cut_to = whole - cut_from;
    }
    fputc('\'', stream);
    for (char piece[MIST_ESCAPED_FIRST_BYTES]; *text;) {
        double begin = at;
        text += mist_escape_first(text, piece);
        at += piece_em(piece);
        if (at <= cut_from || begin >= cut_to)
            fputs(piece[0] == '\'' ? "''" : piece, stream);
        else if (begin <= cut_from)
            fputs("…", stream);
    }
    fputc('\'', stream);
}

void mist_plot_write_title(FILE *stream, enum mist_plot_format format,
                           const struct mist_plot_options *options, const char *fallback,
                           int n_pixels, double points)
{
    fputs("title_text = ", stream);
    mist_plot_write_fitted(stream, options->title ? options->title : fallback,
                           format == MIST_PLOT_TEXT
                               ? options->n_text_columns * letter_em(' ')
                               : n_pixels / mist_plot_em_pixels(points));
    fputc('\n', stream);
}

void mist_plot_write_head(FILE *stream, enum mist_plot_format format,
                          const struct mist_plot_options *options, int width, int height)
{
    switch (format) {
    case MIST_PLOT_PNG:
        fprintf(stream, "set terminal pngcairo size %d,%d font 'DejaVu Sans,10'\n", width,
                height);
        break;
    case MIST_PLOT_SVG:
        fprintf(stream,
                "set terminal svg size %d,%d font 'DejaVu Sans,10' fontscale 1.3333 "
                "background rgb 'white'\n",
                width, height);
        break;
    case MIST_PLOT_PDF:
        fprintf(stream,
                "set terminal pdfcairo size %.3fin,%.3fin font 'DejaVu Sans,10'\n",
                width / 100.0, height / 100.0);
        break;
    case MIST_PLOT_TEXT:
        fprintf(stream, "set terminal dumb size %d,%d noenhanced\n",
                options->n_text_columns, options->n_text_rows);
        break;
    }
    fputs(mist_script_style, stream);
    if (format == MIST_PLOT_TEXT) /* grid lines would look like data */
        fputs("unset grid\n", stream);
}

/* Formats, ranks and the text of gnuplot programs. See plot.h. */
#include "plots/plot.h"

#include "core/escape.h"
#include "core/parse.h"
#include "core/path.h"
#include "plots/internal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

enum mist_status mist_plot_format_from_path(const char *path, enum mist_plot_format *out,
                                            struct mist_err *err)
{
    static const char *const suffixes[] = {".png", ".svg", ".pdf"};

    if (strcmp(path, "-") == 0) {
        *out = MIST_PLOT_TEXT;
        return MIST_OK;
    }
    for (int i = 0; i < 3; i++)
        if (mist_path_ends(path, suffixes[i])) {
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

/* ---- program text ---- */

#define TITLE_POINTS 12
#define KEY_BOTTOM   5 /* pixels from the lower edge of the page */

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

/* What is left out of a text begins and ends there, in em; at: how far it has been read. */
struct cut {
    double from, to, at;
};

static struct cut find_cut(const char *text, double em)
{
    double whole = mist_plot_text_em(text);
    double from = whole > em ? fmax(0, em / 2 - 1) : whole;

    return (struct cut){from, whole - (whole > em ? from : 0), 0};
}

/* The next character of the text, the dots that stand for the middle, or "". */
static const char *next_kept(struct cut *cut, const char *piece)
{
    double begin = cut->at;

    cut->at += piece_em(piece);
    if (cut->at <= cut->from || begin >= cut->to)
        return piece;
    return begin <= cut->from ? "…" : "";
}

void mist_plot_write_fitted(FILE *stream, const char *text, double em)
{
    struct cut cut = find_cut(text, em);

    fputc('\'', stream);
    for (char piece[MIST_ESCAPED_FIRST_BYTES]; *text;) {
        text += mist_escape_first(text, piece);
        const char *kept = next_kept(&cut, piece);
        fputs(kept[0] == '\'' ? "''" : kept, stream);
    }
    fputc('\'', stream);
}

const char *mist_plot_fit(const char *text, double em, char *out, size_t size)
{
    struct cut cut = find_cut(text, em);
    size_t n = 0;

    for (char piece[MIST_ESCAPED_FIRST_BYTES]; *text;) {
        text += mist_escape_first(text, piece);
        const char *kept = next_kept(&cut, piece);
        if (n + strlen(kept) < size)
            n += (size_t)snprintf(out + n, size - n, "%s", kept);
    }
    out[n] = '\0';
    return out;
}

/* gnuplot's coordinate of an edge between pixels, or of a column or row of text. */
static double screen(enum mist_plot_format format, double at, int n)
{
    switch (format) {
    case MIST_PLOT_PNG: /* 0 and 1 are the middles of the first and the last pixel */
        return (at - 0.5) / (n - 1);
    case MIST_PLOT_TEXT: /* the tenth is for numbers that are rounded down */
        return (at + 0.1) / (n - 1);
    default:
        return at / n;
    }
}

static void write_terminal(const struct mist_plot_picture *at, int width, int height)
{
    switch (at->format) {
    case MIST_PLOT_PNG:
        fprintf(at->stream, "set terminal pngcairo size %d,%d font 'DejaVu Sans,10'\n",
                width, height);
        break;
    case MIST_PLOT_SVG:
        fprintf(at->stream,
                "set terminal svg size %d,%d font 'DejaVu Sans,10' fontscale 1.3333 "
                "background rgb 'white'\n",
                width, height);
        break;
    case MIST_PLOT_PDF:
        fprintf(at->stream,
                "set terminal pdfcairo size %.3fin,%.3fin font 'DejaVu Sans,10'\n",
                width / 100.0, height / 100.0);
        break;
    case MIST_PLOT_TEXT:
        fprintf(at->stream, "set terminal dumb size %d,%d noenhanced\n", width, height);
        break;
    }
}

void mist_plot_write_page(const struct mist_plot_picture *at,
                          const struct mist_plot_page *page)
{
    int width = at->is_text ? at->options->n_text_columns : page->width;
    int height = page->height;
    const char *title = at->options->title ? at->options->title : at->title;

    write_terminal(at, width, height);
    fprintf(at->stream, "is_text = %d\n%stitle_text = ", at->is_text, mist_script_style);
    mist_plot_write_fitted(at->stream, title,
                           at->is_text ? width * letter_em(' ')
                                       : width / mist_plot_em_pixels(TITLE_POINTS));
    fprintf(at->stream,
            "\nleft_edge = %.7f\nright_edge = %.7f\ntop_edge = %.7f\nbottom_edge = %.7f\n"
            "keys_top = %.7f\nkey_y = %.7f\n", /* of keys above and below the axes */
            screen(at->format, page->left, width),
            screen(at->format, width - page->right, width),
            screen(at->format, height - page->top, height),
            screen(at->format, page->bottom, height),
            screen(at->format, height - (at->is_text ? 2 : 30), height),
            at->is_text ? 0 : screen(at->format, KEY_BOTTOM, height));
    fputs("set lmargin at screen left_edge\nset rmargin at screen right_edge\n"
          "set tmargin at screen top_edge\nset bmargin at screen bottom_edge\n",
          at->stream);
}

void mist_plot_write_panels(const struct mist_plot_picture *at,
                            const struct mist_plot_page *page, int n, const int *tops,
                            const int *bottoms)
{
    int height = page->height;

    fprintf(at->stream, "n_panels = %d\narray panel_tops[%d]\narray panel_bottoms[%d]\n",
            n, n, n);
    for (int i = 0; i < n; i++)
        fprintf(at->stream, "panel_tops[%d] = %.7f\npanel_bottoms[%d] = %.7f\n", i + 1,
                screen(at->format, height - tops[i], height), i + 1,
                screen(at->format, height - bottoms[i], height));
}

/* ---- kinds ---- */

static const struct mist_plot_kind mist_plot_kind_chrome = {0};

#define KIND_ROW(name)    &mist_plot_kind_##name,
#define KIND_SCRIPT(name) mist_script_##name,
#define KIND_NAME(name)   #name,
static const struct mist_plot_kind *const kinds[] = {MIST_PLOT_KINDS(KIND_ROW)
                                                         KIND_ROW(chrome)};
static const char *const scripts[] = {MIST_PLOT_KINDS(KIND_SCRIPT)};
const char *const mist_plot_kind_names[] = {MIST_PLOT_KINDS(KIND_NAME) "chrome", NULL};

static const char *script_of(const struct mist_plot_kind *kind)
{
    int i = 0;

    while (kinds[i] != kind)
        i++;
    return scripts[i];
}

const struct mist_plot_kind *mist_plot_find_kind(const char *name)
{
    int i = mist_word_find(mist_plot_kind_names, name);

    return i < 0 ? NULL : kinds[i];
}

enum mist_plot_family mist_plot_family_of(const struct mist_plot_kind *kind)
{
    return kind->write_timelines ? MIST_PLOT_TIMELINES
           : kind->write_table   ? MIST_PLOT_TABLE
                                 : MIST_PLOT_CHROME;
}

/* The fonts of SVG and of terminals are the reader's. */
static bool is_font_known(enum mist_plot_format format)
{
    return format == MIST_PLOT_PNG || format == MIST_PLOT_PDF;
}

/* given->stream is not used yet. */
static enum mist_status write_program(FILE *stream, const struct mist_plot_kind *kind,
                                      const struct mist_plot_picture *given,
                                      struct mist_err *err)
{
    struct mist_plot_picture at = *given;
    char *program = NULL;
    size_t n = 0;

    at.stream = open_memstream(&program, &n);
    if (!at.stream)
        return mist_err_memory(err, NULL);
    enum mist_status status =
        at.table ? kind->write_table(&at, err) : kind->write_timelines(&at, err);
    fputs(script_of(kind), at.stream);
    bool is_short = ferror(at.stream);
    if ((fclose(at.stream) != 0 || !program || is_short) && status == MIST_OK)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK && is_font_known(at.format))
        mist_plot_write_letters(stream, program);
    else if (status == MIST_OK)
        fputs(program, stream);
    free(program);
    return status;
}

enum mist_status
mist_plot_write_timelines(FILE *stream, const struct mist_plot_kind *kind,
                          const struct mist_plot_input *inputs, int n_inputs,
                          const struct mist_plot_options *options,
                          enum mist_plot_format format, struct mist_err *err)
{
    const struct mist_plot_picture at = {.options = options,
                                         .format = format,
                                         .is_text = format == MIST_PLOT_TEXT,
                                         .title = kind->title,
                                         .inputs = inputs,
                                         .n_inputs = n_inputs};

    return write_program(stream, kind, &at, err);
}

enum mist_status mist_plot_write_table(FILE *stream, const struct mist_plot_kind *kind,
                                       const char *path,
                                       const struct mist_plot_options *options,
                                       enum mist_plot_format format, struct mist_err *err)
{
    struct mist_plot_table table;
    char title[PATH_MAX];
    const struct mist_plot_picture at = {.options = options,
                                         .format = format,
                                         .is_text = format == MIST_PLOT_TEXT,
                                         .title = title,
                                         .table = &table};
    enum mist_status status = mist_plot_table_load(&table, path, kind, err);

    snprintf(title, sizeof title, "%s: %s", kind->title, mist_path_name(path));
    if (status == MIST_OK)
        status = write_program(stream, kind, &at, err);
    mist_plot_table_fini(&table);
    return status;
}

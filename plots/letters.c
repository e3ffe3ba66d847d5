/*
 * Letters that a picture's font lacks are question marks. See internal.h.
 *
 * Where DejaVu Sans has no glyph for a character, gnuplot's cairo terminals draw the box that
 * stands for it as large as the page, over all else. What other fonts a machine has isn't
 * known here, so that only blocks of DejaVu Sans (2.30 of 2009, and later) pass.
 */
#include "core/escape.h"
#include "plots/internal.h"

#include <stdint.h>

/* Blocks without holes in the font, by its file's character map. */
static const struct block {
    uint32_t first, last;
} blocks[] = {
    {0x20, 0x7e},     {0xa0, 0x2e9}, /* Latin, phonetic letters */
    {0x300, 0x34f},                  /* marks above and below letters */
    {0x370, 0x377},   {0x37a, 0x37e},   {0x384, 0x38a},
    {0x38c, 0x38c},   {0x38e, 0x3a1}, /* Greek */
    {0x3a3, 0x525},                   /* Greek, Cyrillic */
    {0x531, 0x556},   {0x561, 0x587}, /* Armenian */
    {0x5d0, 0x5ea},                   /* Hebrew */
    {0x621, 0x63a},   {0x640, 0x655},   {0x660, 0x66d},
    {0x679, 0x6bf},   {0x6f0, 0x6f9},   /* Arabic */
    {0x10d0, 0x10fa},                   /* Georgian */
    {0x1e00, 0x1ef9},                   /* Latin with marks, as in Vietnamese */
    {0x2010, 0x2027}, {0x202f, 0x205e}, /* punctuation */
    {0x2070, 0x2071}, {0x2074, 0x208e}, /* small digits */
    {0x20a0, 0x20b5},                   /* currencies */
    {0x210b, 0x2149}, {0x2153, 0x2184}, /* letters and fractions as symbols */
    {0x2190, 0x2311},                   /* arrows, mathematics */
    {0x2500, 0x2690},                   /* lines, shapes, symbols */
};

/* The length of what the text begins with: a character that is to be replaced, if *is_absent,
 * or one that passes. Bytes that are no UTF-8 pass. */
static size_t read_letter(const char *text, bool *is_absent)
{
    char shown[MIST_ESCAPED_FIRST_BYTES];
    size_t n = mist_escape_first(text, shown);
    uint32_t letter = (unsigned char)text[0] & (0xffu >> (n + 1));

    *is_absent = n > 1;
    for (size_t i = 1; i < n; i++)
        letter = letter << 6 | ((unsigned char)text[i] & 0x3f);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (letter >= blocks[i].first && letter <= blocks[i].last)
            *is_absent = false;
    return n;
}

void mist_plot_write_letters(FILE *stream, const char *program)
{
    const char *from = program, *at = program;
    bool is_absent;

    while (*at) {
        size_t n = (unsigned char)*at < 0x80 ? 1 : read_letter(at, &is_absent);
        if (n > 1 && is_absent) {
            fwrite(from, 1, (size_t)(at - from), stream);
            fputc('?', stream);
            from = at + n;
        }
        at += n;
    }
    fputs(from, stream);
}

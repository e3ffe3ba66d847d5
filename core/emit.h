/*
 * One set of calls writes a result either for people (aligned tables and key lists), as
 * CSV or as one JSON document, so that they can't disagree.
 *
 *     mist_emit_begin(&emit, MIST_EMIT_TABLE, stdout, err);
 *     mist_emit_number(emit, "iteration_time_s", "iteration", time_s);
 *     mist_emit_list_begin(emit, "stages", "Stages");
 *     for (...) {
 *         mist_emit_object_begin(emit, NULL, NULL);
 *         mist_emit_integer(emit, "layers", "layers", n);
 *         mist_emit_object_end(emit);
 *     }
 *     mist_emit_list_end(emit);
 *     status = mist_emit_end(&emit, err);
 *
 * The document is an object. Keys carry units and are for machines; labels and human
 * formats are for people. JSON: everything. People: key lists, and every list of objects
 * as a table. CSV: the first list of objects as a table, in whose rows the values outside
 * of lists come first; without one, these as a header and one row; objects inside are
 * flattened to "outer.inner", lists of plain values joined with ";". Everything is printed at the end, from memory. Numbers for
 * machines read back as the same double; what is not finite is null in JSON, empty in CSV
 * and "-" for people.
 */
#ifndef MIST_CORE_EMIT_H
#define MIST_CORE_EMIT_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_emit_kind { MIST_EMIT_TABLE, MIST_EMIT_CSV, MIST_EMIT_JSON };

/* By what the options --json and --csv say. */
static inline enum mist_emit_kind mist_emit_kind_of(bool as_json, bool as_csv)
{
    return as_json ? MIST_EMIT_JSON : as_csv ? MIST_EMIT_CSV : MIST_EMIT_TABLE;
}

/* Where results go: NULL, nowhere, for what only people read and --quiet leaves out. */
static inline FILE *mist_emit_stream(enum mist_emit_kind kind, bool is_quiet)
{
    return is_quiet && kind == MIST_EMIT_TABLE ? NULL : stdout;
}

/* How people see a number, which is in the unit that is named. */
enum mist_human_format {
    MIST_HUMAN_NUMBER,      /* as it is: four digits, or all before the point */
    MIST_HUMAN_COUNT,       /* "6.74 G" */
    MIST_HUMAN_BYTES,       /* bytes: "91.2 GiB" */
    MIST_HUMAN_BYTES_PER_S, /* bytes/s: "25.0 GB/s" */
    MIST_HUMAN_FLOP_PER_S,  /* FLOP/s: "312 TFLOP/s" */
    MIST_HUMAN_TIME_S,      /* s: "3.20 ms" */
    MIST_HUMAN_TIME_US,     /* us: "3.20 ms" */
    MIST_HUMAN_FRAC,        /* 0 .. 1: "41.3 %" */
};

struct mist_emit;

/* stream is borrowed until the end; NULL: nothing is printed.
 * *out is owned; mist_emit_end or mist_emit_free frees it. */
enum mist_status mist_emit_begin(struct mist_emit **out, enum mist_emit_kind kind,
                                 FILE *stream, struct mist_err *err) MIST_MUST_CHECK;

/*
 * Containers. key is NULL inside a list. title heads the table or key list for people
 * (NULL: none). All texts are copied. Failures (memory) are kept and reported by
 * mist_emit_end.
 */
void mist_emit_object_begin(struct mist_emit *emit, const char *key, const char *title);
void mist_emit_object_end(struct mist_emit *emit);
void mist_emit_list_begin(struct mist_emit *emit, const char *key, const char *title);
void mist_emit_list_end(struct mist_emit *emit);

/* Values. label NULL: the key. People see a number in the unit that its key ends in: _s,
 * _us, _bytes, _bytes_per_s, _flop_per_s or _frac, else as it is. */
void mist_emit_integer(struct mist_emit *emit, const char *key, const char *label,
                       int64_t value);
void mist_emit_number(struct mist_emit *emit, const char *key, const char *label,
                      double value);
void mist_emit_bool(struct mist_emit *emit, const char *key, const char *label,
                    bool value);
void mist_emit_text(struct mist_emit *emit, const char *key, const char *label,
                    const char *text); /* NULL: null, empty, "-" */

/* Numbers that people see in a format which the key does not say. */
void mist_emit_int64(struct mist_emit *emit, const char *key, const char *label,
                     int64_t value, enum mist_human_format format);
void mist_emit_double(struct mist_emit *emit, const char *key, const char *label,
                      double value, enum mist_human_format format);

/*
 * Prints the document, flushes the stream, frees *emit and sets it to NULL. MIST_ERR_IO
 * when the stream can't be written (also when an earlier write to it failed),
 * MIST_ERR_MEMORY.
 */
enum mist_status mist_emit_end(struct mist_emit **handle,
                               struct mist_err *err) MIST_MUST_CHECK;

/* Gives up without printing. NULL allowed. */
void mist_emit_free(struct mist_emit *emit);

#endif

/*
 * Rows of option tables (core/options.h) for tools that run operators: mist-exec and
 * mist-profile. T is the tool's options struct, with the members that the rows name.
 */
#ifndef MIST_EXEC_OPTION_ROWS_H
#define MIST_EXEC_OPTION_ROWS_H

#include "core/options.h"
#include "exec/comm/affinity.h"
#include "exec/runtime/backend.h"

/* int backend: enum mist_backend_choice */
#define MIST_OPTION_ROW_BACKEND(T, i_group)                                              \
    MIST_OPTION_ROW_CHOICE(T, "backend", backend, i_group, "WHERE", "auto",              \
                           mist_backend_words,                                           \
                           "cpu, cuda, or auto: cuda where there is a GPU")

/* int bind: 0 auto, 1 none */
#define MIST_OPTION_ROW_BIND(T, i_group)                                                 \
    MIST_OPTION_ROW_CHOICE(                                                              \
        T, "bind", bind, i_group, "HOW", "auto", mist_affinity_words,                    \
        "auto: a rank that the launcher bound to fewer processors than it has threads "  \
        "gets its share of the node's; none: as launched")

/* int attention: enum mist_attention_choice */
#define MIST_OPTION_ROW_ATTENTION(T, i_group)                                            \
    MIST_OPTION_ROW_CHOICE(T, "attention", attention, i_group, "WHO", "auto",            \
                           mist_attention_words,                                         \
                           "who computes attention on a GPU: cudnn, own (slower), or "   \
                           "auto: cudnn in bf16, else own")

/* Two rows: bool prints_kernels, const char *kernels_csv. i_when: of what the table is */
#define MIST_OPTION_ROWS_KERNELS(T, i_group, i_when)                                     \
    MIST_OPTION_ROW_FLAG(T, "kernels", prints_kernels, i_group,                          \
                         "print what operators and their kernels took" i_when),          \
        MIST_OPTION_ROW_TEXT(T, "kernels-csv", kernels_csv, i_group, "FILE",             \
                             "write that table as CSV")

#endif

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
    MIST_OPTION_ROW_CHOICE(T, "backend", i_group, "WHERE",                               \
                           "cpu, cuda, or auto: cuda where there is a GPU", "auto",      \
                           mist_backend_words, backend)

/* int bind: 0 auto, 1 none */
#define MIST_OPTION_ROW_BIND(T, i_group)                                                 \
    MIST_OPTION_ROW_CHOICE(                                                              \
        T, "bind", i_group, "HOW",                                                       \
        "auto: a rank that the launcher bound to fewer processors than it has threads "  \
        "gets its share of the node's; none: as launched",                               \
        "auto", mist_affinity_words, bind)

/* int attention: enum mist_attention_choice */
#define MIST_OPTION_ROW_ATTENTION(T, i_group)                                            \
    MIST_OPTION_ROW_CHOICE(                                                              \
        T, "attention", i_group, "WHO",                                                  \
        "who computes attention on a GPU: cudnn, own (slower), or auto: cudnn in bf16, " \
        "else own",                                                                      \
        "auto", mist_attention_words, attention)

/* Two rows: bool prints_kernels, const char *kernels_csv. i_when: of what the table is */
#define MIST_OPTION_ROWS_KERNELS(T, i_group, i_when)                                     \
    MIST_OPTION_ROW(T, "kernels", MIST_OPTION_FLAG, i_group, NULL,                       \
                    "print what operators and their kernels took" i_when, NULL, 0, 0,    \
                    prints_kernels),                                                     \
        MIST_OPTION_ROW(T, "kernels-csv", MIST_OPTION_STRING, i_group, "FILE",           \
                        "write that table as CSV", NULL, 0, 0, kernels_csv)

#endif

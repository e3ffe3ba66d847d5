/*
 * The command line of mist-exec: its one table, and what of it can be checked without
 * plan and data.
 */
#ifndef MIST_EXEC_TRAIN_OPTIONS_H
#define MIST_EXEC_TRAIN_OPTIONS_H

#include "core/options.h"
#include "exec/train/train_settings.h"

#include <stdbool.h>
#include <stdint.h>

struct mist_exec_options {
    struct mist_common_options common;
    struct mist_train_settings settings;
    bool is_given[MIST_TRAIN_N_SETTINGS]; /* which settings the command line names */
    struct mist_option_list data, validation_data;
    double validation_frac;
    int64_t validate_every, n_validation_batches; /* 0: not said */
    int on_nan;                                   /* 0 abort, 1 skip */
    int64_t delay_seed;
    const char *checkpoint, *resume, *import, *export; /* NULL: none */
    const char *verify; /* a folder to look through instead of training; NULL: none */
    int64_t save_every, keep;
    int export_dtype; /* enum mist_dtype */
    int backend;      /* enum mist_backend_choice */
    int bind;         /* 0 auto, 1 none */
    bool allows_atomics;
    int attention; /* enum mist_attention_choice */
    int graphs;    /* enum mist_graphs_choice */
    int64_t log_every, n_timed, n_threads;
    double deadline_s;
    bool is_serial;
    const char *timeline, *log, *tensorboard, *kernels_csv;
    bool prints_kernels;
    bool probes;
};

extern const struct mist_tool mist_exec_tool;

/* mist_options_parse() of mist_exec_tool, which settings were given, and that what was
 * given goes together: MIST_ERR_USAGE. */
MIST_MUST_CHECK enum mist_status
mist_exec_options_parse(int argc, char **argv, struct mist_exec_options *out,
                        struct mist_positionals *positionals, bool *is_done,
                        struct mist_err *err);

#endif

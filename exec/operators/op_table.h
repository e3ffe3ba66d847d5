/*
 * The table of operators: what each took, the kernels that it consists of, and what rate
 * it reached.
 *
 *     operator                                calls     mean   share          rate ...
 *     linear_bias forward 4096x768x3072          36  41.2 us  12.1 %   469 TFLOP/s
 *       sm90_xmma_gemm_bf16bf16_bf..tn_n          36  40.1 us  97.3 %
 *
 * A row is an operator of the catalogue in a phase and at a shape, or a sort of task that
 * is none, such as a copy. Its FLOP and bytes are the catalogue's, so a rate beyond the
 * peak says that bytes came from a cache. Where a device records (exec/device/device.h), times
 * are those of its kernels; a CPU has times, and no kernels.
 */
#ifndef MIST_EXEC_OP_TABLE_H
#define MIST_EXEC_OP_TABLE_H

#include "core/emit.h"
#include "exec/comm/comm.h"
#include "sim/model/catalog.h"

#include <pthread.h>

enum { MIST_KERNEL_NAME_BYTES = 192 };

struct mist_op_row {
    char op[40], phase[24], shape[104]; /* "rows=512;n_in=256;n_out=768" */
    double flop, bytes;                 /* of a call; 0: not known */
    bool is_link;                       /* bytes are not of the device's memory */
    int64_t n_calls;
    double time_s; /* of all calls */
};

struct mist_op_kernel {
    int32_t i_row;
    char name[MIST_KERNEL_NAME_BYTES]; /* shortened */
    const char *from; /* as it was given; borrowed while kernels are added */
    int64_t n_launches;
    double time_s;
};

struct mist_op_table {
    struct mist_op_row *rows;       /* owned */
    struct mist_op_kernel *kernels; /* owned */
    size_t n_rows, n_kernels, rows_capacity, kernels_capacity;
    bool is_out_of_memory; /* something is missing */
    pthread_mutex_t mutex; /* guards all that adds to calls and kernels */
};

/* What a device can do at most; 0: not known. */
struct mist_op_peak {
    double flop_per_s, bytes_per_s;
};

void mist_op_table_init(struct mist_op_table *table);
void mist_op_table_fini(struct mist_op_table *table);

/* Index of the row with these texts, made if there is none; -1: out of memory. */
int32_t mist_op_table_row(struct mist_op_table *table, const struct mist_op_row *key);

/* The same of an operator of the catalogue. */
int32_t mist_op_table_op(struct mist_op_table *table, enum mist_op op,
                         enum mist_phase phase, const int64_t dims[MIST_MAX_DIMS],
                         double flop, double bytes);

/* n_calls of a row took time_s; a launch of a kernel, which is part of that. Row -1:
 * nothing. From any thread. */
void mist_op_table_add_calls(struct mist_op_table *table, int32_t row, int64_t n_calls,
                             double time_s);
void mist_op_table_add_kernel(struct mist_op_table *table, int32_t row, const char *name,
                              double time_s);

/* Adds all ranks' tables to rank 0's. MIST_OK, MIST_ERR_MEMORY (also if a table was out
 * of it before) or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_op_table_gather(struct mist_op_table *table,
                                                      struct mist_comm *comm,
                                                      struct mist_err *err);

/* Adds the list "operators" (title for people) to a document of that kind, longest first,
 * each operator before its kernels. MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_op_table_emit(const struct mist_op_table *table, const struct mist_op_peak *peak,
                   const char *title, struct mist_emit *emit, enum mist_emit_kind kind,
                   struct mist_err *err);

/* The same as a CSV file. MIST_ERR_USAGE (it exists), MIST_ERR_IO, MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_op_table_save(const struct mist_op_table *table,
                                                    const struct mist_op_peak *peak,
                                                    const char *path, bool force,
                                                    struct mist_err *err);

/* A C++ symbol as its name without arguments, and the first template argument that is a
 * name: "cutlass::Kernel2<cutlass_80_tensorop_...>"; what is no symbol, or a strange one,
 * as it is. */
void mist_op_table_kernel_name(const char *symbol, char out[MIST_KERNEL_NAME_BYTES]);

#endif

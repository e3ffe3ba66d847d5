/*
 * Trace sets: what a cluster was measured to do. A folder of files that a person can read
 * and edit (formats and units: traces/README.md):
 *
 *   cluster.json       the machine: devices, memory, peak rates, versions
 *   kernels.csv        times of operators by dtype, phase and shape     (optional)
 *   links.csv          times of collectives and copies by size          (optional)
 *   interference.csv   times of channels running together               (optional)
 *   checks.csv         short real runs, as predicted and as measured    (optional)
 *
 * The raw measurements are kept as they are; fits are made from them by whoever needs
 * one. Everything is checked before any of it is returned. Without kernels.csv
 * (has_kernels false) the cluster is known by its data sheet only and operators are
 * priced by it (struct mist_trace_curve).
 */
#ifndef MIST_TRACES_TRACE_SET_H
#define MIST_TRACES_TRACE_SET_H

#include "core/memory.h"
#include "core/status.h"
#include "traces/timeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum mist_trace_backend {
    MIST_TRACE_CPU,
    MIST_TRACE_CUDA,
    MIST_TRACE_DATASHEET, /* nothing measured */
    MIST_N_TRACE_BACKENDS
};

enum mist_trace_dtype {
    MIST_TRACE_FP32,
    MIST_TRACE_TF32,
    MIST_TRACE_FP16,
    MIST_TRACE_BF16,
    MIST_TRACE_FP8,
    MIST_N_TRACE_DTYPES
};

enum mist_phase {
    MIST_PHASE_FORWARD,
    MIST_PHASE_BACKWARD_INPUT,  /* gradients of inputs (and of norm parameters) */
    MIST_PHASE_BACKWARD_WEIGHT, /* gradients of weights and biases of linear layers */
    MIST_PHASE_OPTIMIZER,
    MIST_N_PHASES
};

enum mist_link_operation {
    MIST_LINK_ALL_REDUCE,
    MIST_LINK_ALL_GATHER,
    MIST_LINK_REDUCE_SCATTER,
    MIST_LINK_SEND_RECV,
    MIST_LINK_HOST_TO_DEVICE,
    MIST_LINK_DEVICE_TO_HOST,
    MIST_N_LINK_OPERATIONS
};

/* What a plan does beyond computing; COMPUTE: nothing. */
enum mist_mechanism {
    MIST_MECHANISM_COMPUTE,
    MIST_MECHANISM_PIPELINE,
    MIST_MECHANISM_DATA_PARALLEL, /* without ZeRO-3 */
    MIST_MECHANISM_ZERO3,
    MIST_MECHANISM_TENSOR_PARALLEL, /* without sequence parallelism */
    MIST_MECHANISM_SEQUENCE_PARALLEL,
    MIST_MECHANISM_OFFLOAD,
    MIST_N_MECHANISMS
};

/* The words of the files, in the order of their values, then NULL. */
extern const char *const mist_trace_backend_words[], *const mist_trace_dtype_words[];
extern const char *const mist_phase_words[], *const mist_link_operation_words[];
extern const char *const mist_mechanism_words[];

/*
 * A set of streams as a bit mask (bit = enum mist_stream) and as text ("compute+gpu_gpu",
 * the names in the enum's order, none twice, one at least). from_text: false (out
 * untouched) for other text.
 */
#define MIST_CHANNELS_TEXT_MAX 64
void mist_channels_to_text(unsigned channels, char text[MIST_CHANNELS_TEXT_MAX]);
bool mist_channels_from_text(const char *text, unsigned *out);

/* ---- shapes ---- */

#define MIST_SHAPE_MAX_DIMS   8
#define MIST_SHAPE_NAME_BYTES 24  /* with the end mark */
#define MIST_SHAPE_TEXT_MAX   384 /* with the end mark; every shape fits */

/* The shape an operator was timed at: named integers, in the order the operator fixes. */
struct mist_shape {
    int n_dims;
    struct {
        char name[MIST_SHAPE_NAME_BYTES];
        int64_t value; /* > 0 */
    } dims[MIST_SHAPE_MAX_DIMS];
};

/*
 * Reads "rows=512;n_in=256;n_out=768": 1 .. 8 names [a-z][a-z0-9_]*, none twice, integers
 * > 0 in plain decimal digits (no sign, no leading zero), so that equal shapes have equal
 * text. out is filled on MIST_OK, untouched otherwise. MIST_ERR_INPUT says what is wrong.
 */
MIST_MUST_CHECK enum mist_status
mist_shape_parse(const char *text, struct mist_shape *out, struct mist_err *err);

/* The canonical text of a shape; the inverse of mist_shape_parse(). */
void mist_shape_format(const struct mist_shape *shape, char text[MIST_SHAPE_TEXT_MAX]);

/* The value of a named dimension, or 0 when the shape has none of that name. */
int64_t mist_shape_get(const struct mist_shape *shape, const char *name);

/* ---- rows ---- */

#define MIST_TRACE_NAME_MAX                                                              \
    64 /* with the end mark: names of clusters, operators, libraries */
#define MIST_TRACE_MAX_LIBRARIES 32

/* How much longer computing takes than its kernel rows say, relative: unusual runs are
 * left out of rows, and ranks wait for the slowest. 0: not known. */
struct mist_trace_skew {
    double alone_frac; /* of a rank that waits for none */
    double pass_frac;  /* of ranks that wait for one another once in a micro-batch */
    double step_frac;  /* and after every few operators, as in tensor parallelism */
};

/*
 * How far a device that nobody measured stays below its data sheet: what operators without
 * rows are priced by (sim/cost/cost_curve.c). All 0: not said.
 */
struct mist_trace_curve {
    int processors;       /* that share a product's tiles, "SMs" */
    double product_frac;  /* of peak_flop_per_s that large products reach */
    double memory_frac;   /* of memory_bytes_per_s that passes over arrays reach */
    double residual_frac; /* standard deviation of such a price, relative */
    /* Parameters with fp32 gradients that AdamW updates on the processors of a node, which
     * its devices share; 0: not said, and then such an update has no price. */
    double host_adamw_elements_per_s;
};

/* A way for messages that nobody measured. */
struct mist_declared_link {
    double bytes_per_s; /* that one device, or all of a node, sends at; 0: not declared */
    double latency_us;  /* of one step */
};

/* What messages without rows are priced by (sim/cost/cost_declared.c). */
struct mist_trace_declared {
    struct mist_declared_link device; /* from a device to another of its node */
    struct mist_declared_link node;   /* from a node to another, all its adapters */
    struct mist_declared_link host;   /* between a device and its host, each direction */
    /* From a device to another of its node while it receives, too, as in collectives; 0:
     * device.bytes_per_s. */
    double ring_bytes_per_s;
    /* Of all devices of a node together, in copies in one direction; 0: each has its own
     * way. */
    double host_node_bytes_per_s;
    int adapters;              /* of a node; with node.bytes_per_s */
    double switch_bytes_per_s; /* at which a switch of the node sums a message that all
                                  devices have; 0: it can't */
    /* How much longer computing and messages take while both go on, where interference.csv
     * has no row; 0: no longer. */
    double compute_slowdown, message_slowdown;
    double residual_frac; /* standard deviation of such a price, relative */
};

struct mist_cluster {
    char name[MIST_TRACE_NAME_MAX];     /* required */
    enum mist_trace_backend backend;    /* required */
    char date[MIST_TRACE_NAME_MAX];     /* "": not said */
    char how_measured[512];             /* "": not said */
    int nodes;                          /* required, > 0 */
    int devices_per_node;               /* required, > 0 */
    int64_t device_memory_bytes;        /* required, > 0 */
    int64_t host_memory_bytes_per_node; /* 0: none, nothing can be offloaded */
    int device_threads; /* CPU threads of one device; 0: not a CPU device */
    /* One at least; 0: dtype not supported. */
    double peak_flop_per_s[MIST_N_TRACE_DTYPES];
    double memory_bytes_per_s;    /* required, > 0: of one device's own memory */
    double launch_us;             /* cost of launching one task; 0: not known */
    int64_t runtime_memory_bytes; /* measured constant per process beside the arena */
    bool streams_take_turns; /* of a device: they share one thread, so that what they do
                                adds up */
    double drift_frac; /* standard deviation of the machine's own speed, which no number
                          of repetitions averages out; 0: not known */
    struct mist_trace_skew skew; /* of all devices at once */
    double probe_us; /* mean time of a probe (exec/runtime/probe.h) on all devices at once
                          while they were measured; 0: not known */
    struct mist_trace_curve curve;       /* for operators that were not measured */
    struct mist_trace_declared declared; /* for messages that were not measured */
    int n_libraries;
    struct {
        char name[MIST_TRACE_NAME_MAX];
        char version[MIST_TRACE_NAME_MAX];
    } libraries[MIST_TRACE_MAX_LIBRARIES]; /* in any order, none twice */
};

struct mist_kernel_row {
    char op[MIST_TRACE_NAME_MAX]; /* [a-z][a-z0-9_]* */
    enum mist_trace_dtype dtype;
    enum mist_phase phase;
    struct mist_shape shape;
    double time_us;      /* of one launch; > 0 */
    double deviation_us; /* standard deviation; 0: not known */
    int64_t repetitions; /* > 0 */
    double flop;         /* of one launch */
    double bytes;        /* of device memory read and written by it */
    long line;           /* of the file it was read from; 0: from none */
    size_t i_next;       /* set by the trace set: next row of the same op, dtype, phase */
    size_t i_last; /* set by the trace set, in the first of these rows: the last one */
};

/* A collective or copy. bytes is the full message: all_gather the output, reduce_scatter
 * the input. */
struct mist_link_row {
    enum mist_link_operation operation;
    int nodes;             /* nodes one group spans, > 0 */
    int ranks_per_node;    /* of one group, > 0 */
    int concurrent_groups; /* such groups running at once on the same nodes, > 0 */
    int64_t bytes;         /* > 0 */
    double time_us;        /* > 0 */
    double deviation_us;   /* standard deviation; 0: not known */
    int64_t repetitions;   /* > 0 */
};

/* Channels running together, all started at once. */
struct mist_interference_row {
    unsigned channels;  /* bit mask over enum mist_stream, two channels or more */
    int nodes;          /* of the gpu_gpu group, > 0 */
    int ranks_per_node; /* of the gpu_gpu group, > 0 */
    double alone_us[MIST_N_CHANNELS]; /* each by itself: > 0 in channels, 0 elsewhere */
    double together_us;               /* until the last one ended; > 0 */
    double deviation_us;              /* of together_us; 0: not known */
    int64_t repetitions;              /* > 0 */
};

/* A plan that was run after everything else was measured: all its ranks use one mechanism
 * and, where that does not need them all, data parallelism. */
struct mist_check_row {
    enum mist_mechanism mechanism;
    double predicted_us; /* of an iteration, from the other tables, at the level of the
                            machine that probes around the run found; > 0 */
    double bar_us;       /* half width of its error bar without checks.csv; >= 0 */
    double measured_us;  /* of an iteration, median; > 0 */
    double deviation_us; /* standard deviation; 0: not known */
    int64_t repetitions; /* > 0 */
};

/* ---- trace set ---- */

#define MIST_TRACE_NONE ((size_t)-1) /* no such row */

/* Open addressing from a hash to row numbers; used by trace_set.c only. */
struct mist_trace_index {
    struct mist_trace_slot *slots;
    size_t n_slots;
    size_t n_used;
};

struct mist_trace_set {
    char *folder; /* owned; where it was loaded from, NULL: nowhere */
    struct mist_cluster cluster;
    bool has_kernels;                /* kernels.csv exists (even with no row) */
    struct mist_kernel_row *kernels; /* owned; in the order they were added */
    size_t n_kernels;
    struct mist_link_row *links; /* owned; in the order they were added */
    size_t n_links;
    struct mist_interference_row *interferences; /* owned; in the order they were added */
    size_t n_interferences;
    struct mist_check_row checks[MIST_N_MECHANISMS]; /* in the order they were added */
    size_t n_checks;
    size_t kernels_capacity, links_capacity, interferences_capacity;
    struct mist_trace_index by_kernel, by_group, by_link, by_interference;
};

/* Names of the files of a trace set, "kernels.csv", by their number 0, 1, ...; NULL:
 * there are no more. */
const char *mist_trace_set_file_name(int file);

void mist_trace_set_init(struct mist_trace_set *set);
void mist_trace_set_fini(struct mist_trace_set *set);

/*
 * Reads and checks a folder. set is initialised by this call whatever the result, and
 * empty unless MIST_OK. MIST_ERR_INPUT with file:line (also: a table that was cut, a time
 * that can't be true), MIST_ERR_IO (cluster.json is missing, a file is unreadable) or
 * MIST_ERR_MEMORY. O(rows).
 */
MIST_MUST_CHECK enum mist_status
mist_trace_set_load(struct mist_trace_set *set, const char *folder, struct mist_err *err);

/*
 * Writes cluster.json and every table that has rows (kernels.csv also when has_kernels)
 * into folder, which is made when absent. With overwrite the set in the folder is
 * replaced: tables that this set lacks are removed. Without, any of the files being there
 * is MIST_ERR_USAGE. Numbers are written so that loading gives the same bits.
 *
 * The set appears as a whole or not at all: all files are written and flushed under a
 * temporary name first. After a failure folder is as it was (not there, or with the old
 * set). Should the process be killed while files change places, which takes five renames,
 * folder has no cluster.json and so is no trace set; never does it hold files of two.
 */
MIST_MUST_CHECK enum mist_status mist_trace_set_save(const struct mist_trace_set *set,
                                                     const char *folder, bool overwrite,
                                                     struct mist_err *err);

/* Checks what a cluster must have. MIST_OK or MIST_ERR_INPUT. */
MIST_MUST_CHECK enum mist_status mist_cluster_check(const struct mist_cluster *cluster,
                                                    struct mist_err *err);

/* Whether any way for messages is declared. */
bool mist_cluster_declares_links(const struct mist_cluster *cluster);

/*
 * Check a row and add a copy of it. A second row of the same key (see the find functions;
 * for interference all columns but together_us, deviation_us and repetitions; for checks
 * the mechanism) is MIST_ERR_INPUT, as is a check that is off beyond reason. Pointers to
 * rows are valid until the next row is added. add_kernel sets has_kernels.
 */
MIST_MUST_CHECK enum mist_status
mist_trace_set_add_kernel(struct mist_trace_set *set, const struct mist_kernel_row *row,
                          struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_trace_set_add_link(struct mist_trace_set *set,
                                                         const struct mist_link_row *row,
                                                         struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_trace_set_add_interference(struct mist_trace_set *set,
                                const struct mist_interference_row *row,
                                struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_trace_set_add_check(struct mist_trace_set *set, const struct mist_check_row *row,
                         struct mist_err *err);

/* The row of exactly this key, borrowed from the set, or NULL. O(1). Of a link the key is
 * what a row says but its times and repetitions. */
const struct mist_kernel_row *mist_trace_set_find_kernel(const struct mist_trace_set *set,
                                                         const char *op,
                                                         enum mist_trace_dtype dtype,
                                                         enum mist_phase phase,
                                                         const struct mist_shape *shape);
const struct mist_link_row *mist_trace_set_find_link(const struct mist_trace_set *set,
                                                     const struct mist_link_row *key);
const struct mist_check_row *mist_trace_set_find_check(const struct mist_trace_set *set,
                                                       enum mist_mechanism mechanism);

/*
 * All rows of one op, dtype and phase, in the order they were added; borrowed, NULL at
 * the end: for (row = mist_trace_set_first_kernel(set, "gemm", dtype, phase); row; row =
 * mist_trace_set_next_kernel(set, row))
 */
const struct mist_kernel_row *
mist_trace_set_first_kernel(const struct mist_trace_set *set, const char *op,
                            enum mist_trace_dtype dtype, enum mist_phase phase);
const struct mist_kernel_row *
mist_trace_set_next_kernel(const struct mist_trace_set *set,
                           const struct mist_kernel_row *row);

/*
 * A number for the content: equal for sets that hold the same cluster and the same rows
 * in any order, whatever the files' layout. FNV-1a per row, summed over rows.
 */
uint64_t mist_trace_set_fingerprint(const struct mist_trace_set *set);

#endif

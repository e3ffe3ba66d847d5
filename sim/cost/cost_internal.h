/*
 * What the files of the cost model share: the measured rows, sorted for look-up. See
 * cost_model.h.
 */
#ifndef MIST_SIM_COST_INTERNAL_H
#define MIST_SIM_COST_INTERNAL_H

#include "sim/cost/cost_model.h"

/* One measured operator, in seconds. */
struct mist_kernel_point {
    int32_t key;                    /* operator, dtype and phase; ascending */
    int64_t dims[MIST_MAX_DIMS];    /* as mist_op_dims; 1 beyond them */
    double log_dims[MIST_MAX_DIMS]; /* natural logarithms of dims */
    double time_s;
    double deviation_s; /* standard error of time_s */
    double flop, bytes;
    double bound_s; /* mist_cost_bound_s(); 0 when flop and bytes are not known */
    double ratio;   /* time_s over what the group expects; 0 without bound_s */
};

enum { MIST_N_KERNEL_KEYS = MIST_N_OPS * MIST_N_TRACE_DTYPES * MIST_N_PHASES };

/* All rows of one operator, dtype and phase. */
struct mist_kernel_group {
    size_t first, n;       /* in points */
    bool knows_bytes;      /* every row says how many bytes it moves */
    double start_s, slope; /* rows are expected to take start_s + slope * bound_s */
    double line_frac;      /* residual of interpolation along dims[0]; -1 unknown */
    double near_frac;      /* residual of interpolation over the other dims; -1 unknown */
    double far_frac;       /* the same from rows a good way off; -1 unknown */
    int64_t min[MIST_MAX_DIMS], max[MIST_MAX_DIMS]; /* of each dim */
};

struct mist_link_point {
    int64_t bytes;
    double time_s;
    double deviation_s; /* standard error of time_s */
};

/* All sizes of one operation and group shape. */
struct mist_link_table {
    enum mist_link_operation operation;
    struct mist_group_shape shape;
    int32_t n_points;               /* 1 or more */
    double residual_frac;           /* of interpolation between sizes; -1 unknown */
    struct mist_link_point *points; /* owned; ascending bytes */
};

struct mist_cost_model {
    const struct mist_trace_set *traces; /* borrowed */
    struct mist_cost_speeds speeds;
    /* The trace set's, with these speeds: what data sheets are read of; rows are judged
     * by the trace set's own. */
    struct mist_cluster cluster;
    double launch_s;
    struct mist_interference interference;
    double interference_residual_frac; /* mean over the mixtures measured */
    struct mist_kernel_point *kernels; /* owned; by key, dims[1 ..], dims[0] */
    size_t n_kernels;
    struct mist_trace_curve curve; /* of bounds: cluster.json's, or fitted to the rows;
                                      processors 0: none, they are the roofline */
    struct mist_kernel_group groups[MIST_N_KERNEL_KEYS]; /* n 0: nothing measured */
    struct mist_link_table *tables; /* owned; in the order of the trace set */
    int32_t n_tables;
};

/* Standard error of a row's mean, in seconds. */
double mist_cost_standard_error_s(double deviation_us, int64_t repetitions);

/* The operator of a name; MIST_N_OPS for a word that is none of the catalogue, or one of
 * its communication, which no kernel does. */
int mist_cost_find_op(const char *name);

/* The format whose rows price operators that have none of dtype: bf16 and fp16 for each
 * other where the device is as fast in both; dtype itself: none. */
enum mist_trace_dtype mist_cost_stand_in(const struct mist_cluster *cluster,
                                         enum mist_trace_dtype dtype);

/*
 * Adds one pass over an array of gradients: AdamW, zeroing, a norm, a sum
 * (MIST_OP_RESIDUAL); nothing for no elements. They were measured on fp32 gradients, at
 * the speed of memory: bf16 ones cost what as many bytes of fp32 ones cost.
 */
MIST_MUST_CHECK enum mist_status
mist_cost_add_elements(const struct mist_cost_model *model, enum mist_op op,
                       enum mist_dtype dtype, enum mist_dtype gradient_dtype,
                       int64_t elements, struct mist_cost *sum, struct mist_err *err);

/*
 * A computing part of a program as the framework of a job that is not ours does it
 * (cost_framework.c).
 */
MIST_MUST_CHECK enum mist_status
mist_cost_framework_part(const struct mist_cost_model *model, const struct mist_job *job,
                         const struct mist_layer_layout *layout,
                         enum mist_program_kind program, int32_t i_part,
                         struct mist_cost *out, struct mist_err *err);

/* Its steps, each by itself, and what the backward computes again for it; the rest of its
 * price is the host's. */
MIST_MUST_CHECK enum mist_status
mist_cost_framework_split(const struct mist_cost_model *model, const struct mist_job *job,
                          const struct mist_layer_layout *layout,
                          enum mist_program_kind program, int32_t i_part,
                          struct mist_cost_split *out, struct mist_err *err);

/* Parameters that an optimizer step of ours would read and write as many bytes for. */
int64_t mist_cost_framework_update_elements(const struct mist_cost_model *model,
                                            const struct mist_job *job,
                                            int64_t n_elements);

/* mist_cost_op() for what is a part of another operator: without that one's speed. */
MIST_MUST_CHECK enum mist_status
mist_cost_op_part(const struct mist_cost_model *model, enum mist_op op,
                  enum mist_phase phase, enum mist_dtype dtype,
                  const int64_t dims[MIST_MAX_DIMS], double flop, double bytes,
                  struct mist_cost *out, struct mist_err *err);

/* The least time that the data sheet allows; a peak that is not known bounds nothing. */
double mist_cost_roofline_s(const struct mist_cluster *cluster,
                            enum mist_trace_dtype dtype, double flop, double bytes);

/*
 * Time that goes with the work of an operator, up to a constant and a factor: by the
 * curve's tiles, waves and shares where it has processors, else the roofline. 0: neither
 * FLOP nor bytes are known.
 */
double mist_cost_bound_s(const struct mist_cluster *cluster,
                         const struct mist_trace_curve *curve, enum mist_op op,
                         enum mist_phase phase, enum mist_trace_dtype dtype,
                         const int64_t dims[MIST_MAX_DIMS], double flop, double bytes);

/* How much longer another framework's attention of one kernel takes than ours. */
double mist_cost_attention_factor(const struct mist_cluster *cluster,
                                  enum mist_attention attention, enum mist_phase phase,
                                  enum mist_trace_dtype dtype,
                                  const int64_t dims[MIST_MAX_DIMS]);

/* The curve of a model whose rows are filled and sorted: cluster.json's, or, of measured
 * GPUs without one, with as many processors as fit its products best. */
struct mist_trace_curve mist_cost_fit_curve(const struct mist_cost_model *model);

/* From the launch of a kernel by the curve until it works, and from its end to the next. */
#define MIST_COST_START_S 5e-6

/* What a key consists of. */
enum mist_op mist_cost_key_op(int32_t key);
enum mist_trace_dtype mist_cost_key_dtype(int32_t key);
enum mist_phase mist_cost_key_phase(int32_t key);

/*
 * An operator by the data sheet alone, where nothing of its kind was measured
 * (cost_curve.c). MIST_ERR_INPUT: the device does not compute in this format.
 */
MIST_MUST_CHECK enum mist_status
mist_cost_datasheet(const struct mist_cluster *cluster, enum mist_op op,
                    enum mist_phase phase, enum mist_trace_dtype dtype,
                    const int64_t dims[MIST_MAX_DIMS], double flop, double bytes,
                    struct mist_cost *out, struct mist_err *err);

/*
 * A message by what is declared of the way it takes (cost_declared.c); false, out
 * untouched: nothing is. in_rings: no switch sums.
 */
bool mist_cost_declared(const struct mist_cluster *cluster,
                        enum mist_link_operation operation, struct mist_group_shape group,
                        int64_t bytes, bool in_rings, struct mist_cost *out);

/* Fill the model's tables from its trace set; fini also after a failed init. */
MIST_MUST_CHECK enum mist_status mist_cost_kernels_init(struct mist_cost_model *model,
                                                        struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_cost_link_init(struct mist_cost_model *model,
                                                     struct mist_err *err);
void mist_cost_link_fini(struct mist_cost_model *model);

#endif

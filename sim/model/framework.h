/*
 * Framework profiles: how other frameworks run what the catalogue declares, as data, so
 * that jobs of theirs can be predicted, too. Ours is what the catalogue says.
 *
 * A profile says of each operator how many kernels a framework launches for it and how
 * many bytes these move beside the matrix products; how long its host takes for a launch;
 * how its attention works; what its optimizer step reads and writes. sim/cost prices a
 * task by it (cost_framework.c), the catalogue declares what it keeps. Sources are said,
 * and every constant can be printed (mist_framework_constant()).
 *
 * Left out: what a plan can say by itself (ZeRO, pipeline, sequence parallelism);
 * gradients that are reduced in one bucket.
 */
#ifndef MIST_SIM_FRAMEWORK_H
#define MIST_SIM_FRAMEWORK_H

#include "sim/model/catalog.h"

/* What an operator is in a framework. */
struct mist_framework_op {
    int8_t launches; /* kernels; 0: the framework does what we do */
    double bytes;    /* moved per element of its result beside matrix products, with
                        activations of two bytes */
};

/* What casts move per element of a product's operands, for products of floats of 8 bits. */
struct mist_framework_casts {
    double input, weight, gradient;
};

struct mist_framework {
    enum mist_attention attention; /* unless the job says another */
    bool takes_turns;              /* communication and computation never overlap */
    bool blocks_transfers;     /* nothing is computed while a stage sends or receives */
    bool overlaps_interleaved; /* but in interleaved pipelines, unless the job says no */
    bool overlaps_zero3;   /* and with ZeRO-3 in spite of takes_turns, unless it does */
    bool fuses_gradients;  /* products of weights' gradients add to those of an iteration,
                             in fp32 or in two bytes, themselves */
    bool has_dropout;      /* keeps masks of a byte per element: one of what is embedded,
                                 two of a block's input */
    bool keeps_gradients;  /* and copy_bytes, of an iteration until the next one's */
    bool keeps_two_bytes;  /* gradients of two bytes, of a micro-batch until the next
                             one's, beside those in fp32, unless these are sharded */
    bool repeats_all;      /* a checkpointed block runs again as a whole, sums over ranks
                                 included, not up to what its backward reads */
    bool is_eager;         /* RMS norms and SwiGLU are single operators, which keep what
                              they give each other; where there are alone_ops, by these */
    double selective_frac; /* of a block's forward but for attention that selective
                                 recomputation repeats; 0: it repeats attention instead */
    int8_t sum_bytes; /* > 0: queries, keys, values, gate and up are products of their own
                         (of Llama's family); moved per element by each sum of two of
                         their inputs' gradients */
    bool scatters_transfers;    /* each tensor-parallel rank sends its part to the next
                                stage, where they are gathered */
    bool sends_whole_gradients; /* and scatters activations alone */
    bool can_fuse_loss;    /* its loss is Transformer Engine's, where the job says so */
    bool can_step_apart;   /* sums and steps behind and before all passes, where the job
                               says so */
    bool can_cut_products; /* products of blocks, where the job says so, to send and
                               receive parts of them beside the others */
    bool hides_keys; /* context-parallel ranks pass keys and values on in a ring, beside
                               the attention of those that came before */
    bool sums_in_rings;      /* in a fixed order, which switches of a node don't keep */
    bool separates_groups;   /* collectives of data-parallel ranks go on beside those of
                               tensor-parallel ones */
    double dispatch_us;      /* of the host, for a launch */
    double optimizer_bytes;  /* read and written per parameter in an optimizer step */
    double scaling_bytes;    /* the same in fp16: gradients are looked through and scaled
                               back before it */
    double accumulate_bytes; /* per element of a weight, to add the gradient of a
                                micro-batch */
    double fp32_sum_factor;  /* of them, where sums of gradients are fp32; 0: 1 */
    struct mist_framework_casts casts[MIST_N_PHASES]; /* none: it has no such products */
    double logit_bytes;       /* moved per logit by losses of a whole vocabulary, products
                                 apart */
    int32_t logit_held_bytes; /* per logit, at the most; 0: rows pass one after another */
    int32_t sliced_held_bytes; /* the same where tensor-parallel ranks share a vocabulary;
                                  0: no other */
    bool casts_logits;  /* to fp32 and back, of two bytes, unless the job says no */
    int32_t copy_bytes; /* per parameter, of an fp32 copy that it makes of gradients
                                  of two bytes for its optimizer step */
    int32_t flat_bytes; /* per parameter that a rank of ZeRO updates with gradients of two
                           bytes, asked of the allocator in one piece; what activations
                           leave is in smaller ones */
    int64_t sub_group_elements; /* updated at once with ZeRO-3, unless the job says; 0:
                                   all */
    int64_t bucket_elements;    /* of gradients on their way, of two bytes, with ZeRO,
                                   unless the job says; two where they overlap with ZeRO-1
                                   and 2. 0: none */
    double fragmentation_frac;  /* what its allocator of device memory can't use, of what
                                  is allocated */
    double held_frac;           /* what the allocator of device memory holds beyond what
                                  is allocated, relative */
    double residual_frac;       /* how far predictions of public runs were off */
    const struct mist_framework_op (*ops)[MIST_N_PHASES]; /* [MIST_N_OPS]; NULL: ours */
    const struct mist_framework_op (*alone_ops)[MIST_N_PHASES]; /* without tensor
                                parallelism and pipeline, which another program does;
                                sum_bytes are of this one alone; NULL: ops */
    const char *source, *dispatch_source, *optimizer_source, *scaling_source,
        *copy_source, *logit_source, *sliced_source, *cast_source, *kept_source,
        *flat_source, *fragmentation_source, *held_source, *residual_source;
};

const struct mist_framework *mist_framework_get(enum mist_framework_name name);

/* Of bytes that a loss moves per logit with n_casts of its casts of logits: all, or without
 * the casts and half, where it works on logits in two bytes. */
double mist_framework_loss_bytes(double bytes, int n_casts, bool has_fp16_loss);

/* Bytes per logit that a loss holds at the most, of a vocabulary that is whole or shared by
 * tensor-parallel ranks; 0: rows pass one after another. */
int32_t mist_framework_logit_held_bytes(const struct mist_framework *framework,
                                        bool is_sliced, bool has_fp16_loss,
                                        bool has_fused_loss);

/* Kernels of a fused loss, products included, and bytes that they move per logit beside these,
 * by the operator that it is. */
struct mist_framework_op mist_framework_fused_loss(enum mist_op op);

/* Whether it overlaps communication and computation, unless the job says no, in spite of
 * takes_turns and blocks_transfers. */
bool mist_framework_overlaps(const struct mist_framework *framework, bool is_interleaved,
                             bool shards_weights);

/* Attention that is no single kernel: its matrix products, and what moves beside them. */
struct mist_framework_attention {
    int32_t n_products;       /* of [seq, seq] scores with [seq, head_dim] */
    int32_t n_writing_scores; /* of these; the others read them */
    int32_t launches;         /* of other kernels: softmax, mask, dropout, copies */
    double softmax_bytes;     /* moved by a fused softmax, per score; 0: there is none */
    double score_bytes;       /* and by the others */
    double result_bytes;      /* and per element of the result */
};

/* The way that a job's attention takes at a shape: Megatron's fused softmax has rows of 17
 * to 4,096 scores, in fours, and falls back to single kernels otherwise. */
enum mist_attention mist_framework_attention_at(enum mist_attention attention,
                                                int64_t seq, int64_t n_heads_of_batch);

/* Of attention that is more than one kernel; NULL: it is one. */
const struct mist_framework_attention *
mist_framework_attention(enum mist_attention attention, enum mist_phase phase);

/* What an optimizer step holds per parameter beside Adam's state, with two-byte gradients. */
int32_t mist_framework_copy_bytes(enum mist_framework_name name,
                                  enum mist_dtype gradient_dtype);

/* What lies there per parameter for the whole of an iteration, of the one before, or of the
 * micro-batch before. shards_gradients: ZeRO-2 or 3. */
int32_t mist_framework_kept_bytes(enum mist_framework_name name, enum mist_dtype dtype,
                                  enum mist_dtype gradient_dtype, bool shards_gradients);

/* Read and written per parameter in an optimizer step of a job, which begins with what is
 * copied of gradients of two bytes. */
double mist_framework_optimizer_bytes(const struct mist_framework *framework,
                                      enum mist_dtype dtype,
                                      enum mist_dtype gradient_dtype);

/* A constant of a profile. */
enum mist_framework_unit { MIST_IN_S, MIST_IN_BYTES, MIST_AS_FRAC };
struct mist_framework_constant {
    const char *what;
    double value;
    enum mist_framework_unit unit;
    const char *source; /* never NULL */
};

/* Number i = 0, 1, .. of those that are not 0; false: there are no more. */
bool mist_framework_constant(const struct mist_framework *framework, int i,
                             struct mist_framework_constant *out);

#endif

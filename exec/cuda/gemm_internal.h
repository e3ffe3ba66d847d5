/* What the sources of the products share: the context and its plans. Private to
 * exec/cuda/gemm*.c. */
#ifndef MIST_EXEC_CUDA_GEMM_INTERNAL_H
#define MIST_EXEC_CUDA_GEMM_INTERNAL_H

#include "exec/cuda/gemm.h"

#include "core/memory.h"

#include <cublasLt.h>

enum { MIST_GEMM_ALIGNMENT = 16, MIST_GEMM_N_SETTINGS = 9 };

/* What a product is made of. */
struct mist_gemm_kind {
    cublasOperation_t op_a, op_b;
    cublasLtEpilogue_t epilogue;
    const char *epilogue_name;         /* NULL: none */
    enum mist_cuda_gemm_product inner; /* without (the last part of) its epilogue */
    bool has_vector, has_aux;          /* operands of the epilogue */
};
extern const struct mist_gemm_kind mist_gemm_kinds[MIST_CUDA_N_GEMM_PRODUCTS];
extern const char *const mist_gemm_names[MIST_CUDA_N_GEMM_PRODUCTS + 1];

/* Two products with the same key have one plan. No padding: compared as bytes. */
struct mist_gemm_key {
    int64_t product, dtype, gradient_dtype; /* fp32 where it has no gradient */
    int64_t rows, n_in, n_out;
    int64_t alignment_bytes; /* of all operands, at most MIST_GEMM_ALIGNMENT */
};

/* A product's operands as cuBLASLt sees them: d = op(a) op(b). */
struct mist_gemm_operands {
    const void *a, *b;
    void *d, *vector, *aux; /* vector, aux: NULL where the product has none */
};

enum mist_gemm_way { MIST_GEMM_FUSED, MIST_GEMM_REFUSED, MIST_GEMM_SLOWER };

/* What was decided about a product: the heuristics' first algorithm, as they give it; one
 * that is made of settings; or that it is slower fused than not, or not launched so. */
enum mist_gemm_pick {
    MIST_GEMM_FIRST,
    MIST_GEMM_OTHER,
    MIST_GEMM_UNFUSED,
    MIST_GEMM_UNLAUNCHED
};
struct mist_gemm_choice {
    struct mist_gemm_key key;
    int64_t pick;                           /* enum mist_gemm_pick */
    int64_t time_ns;                        /* 0: there was no time to find out */
    int64_t settings[MIST_GEMM_N_SETTINGS]; /* CUBLASLT_ALGO_CONFIG_*; of OTHER */
};

struct mist_gemm_plan {
    struct mist_gemm_plan *next;
    struct mist_gemm_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo; /* where it is fused */
    enum mist_gemm_way way;
    bool is_asked;   /* not only as part of another product */
    bool is_decided; /* there is a choice of it, */
    bool is_timed;   /* by time */
};

struct mist_cuda_gemm {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    int64_t workspace_bytes;
    struct mist_arena arena;          /* of plans */
    struct mist_gemm_plan *plans;     /* the last made first */
    struct mist_gemm_choice *choices; /* malloc'd; from the file, then new ones */
    size_t n_choices, choices_capacity;
    int64_t n_fallbacks;
    char note[256];          /* what became of the file of choices; "": nothing to say */
    enum mist_status status; /* of the first failure */
    struct mist_err err;
};

/* The key of operands at these addresses; x NULL: of well aligned ones. gemm_plan.c */
struct mist_gemm_key mist_gemm_key_make(const struct mist_cuda_linear *at,
                                        enum mist_cuda_gemm_product product,
                                        const struct mist_gemm_operands *x);

/* Bytes at the workspace's end for column sums; 0 where there are none. */
int64_t mist_gemm_sums_bytes(const struct mist_gemm_key *key);

/* The plan of a key, made if need be; NULL: it failed, and gemm->status says so. */
struct mist_gemm_plan *mist_gemm_plan_find(struct mist_cuda_gemm *gemm,
                                           const struct mist_gemm_key *key);
void mist_gemm_plans_fini(struct mist_cuda_gemm *gemm);

/* The heuristics' first algorithms, at most n_wanted; 0: none. */
int mist_gemm_plan_candidates(struct mist_cuda_gemm *gemm,
                              const struct mist_gemm_plan *plan, int n_wanted,
                              cublasLtMatmulHeuristicResult_t *out);

/* An algorithm's settings, and the algorithm of settings for a plan; false: cuBLASLt has
 * none such. */
bool mist_gemm_settings_get(const cublasLtMatmulAlgo_t *algo, int64_t *settings);
bool mist_gemm_settings_apply(const struct mist_cuda_gemm *gemm,
                              const struct mist_gemm_plan *plan, const int64_t *settings,
                              cublasLtMatmulAlgo_t *out);

/* Makes a plan as the last choice with its key says; without one as the heuristics do. */
void mist_gemm_plan_decide(struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan);

/* Launches a plan's product. gemm.c */
cublasStatus_t mist_gemm_launch(const struct mist_cuda_gemm *gemm,
                                const struct mist_gemm_plan *plan,
                                const struct mist_cuda_linear *at,
                                const struct mist_gemm_operands *x);

/* Operands of a product's inner one, and the kernel behind that. */
struct mist_gemm_operands mist_gemm_inner(enum mist_cuda_gemm_product product,
                                          const struct mist_gemm_operands *x);
void mist_gemm_finish(enum mist_cuda_gemm_product product,
                      const struct mist_cuda_linear *at,
                      const struct mist_gemm_operands *x);

/* Keeps the first failure: what a call of cuBLASLt said about a product. */
void mist_gemm_fail(struct mist_cuda_gemm *gemm, const struct mist_gemm_key *key,
                    const char *what, cublasStatus_t status);

/*
 * The file of choices, open and locked while other processes wait; NULL where it can't be
 * used, with gemm->note saying why. gemm_file.c
 *
 * open: reads the choices of this GPU and version into gemm->choices. close: appends
 * those that were added since, and lets the others go on.
 */
struct mist_gemm_file;
struct mist_gemm_file *mist_gemm_file_open(struct mist_cuda_gemm *gemm, const char *path,
                                           const char *device_name);
bool mist_gemm_file_is_writable(const struct mist_gemm_file *file);
void mist_gemm_file_close(struct mist_gemm_file *file, struct mist_cuda_gemm *gemm);
/* A new choice, or NULL: out of memory. */
struct mist_gemm_choice *mist_gemm_choice_add(struct mist_cuda_gemm *gemm);
/* The last of choices[first ..] with the key, or NULL. */
const struct mist_gemm_choice *mist_gemm_choice_find(const struct mist_cuda_gemm *gemm,
                                                     const struct mist_gemm_key *key,
                                                     size_t first);

#endif

/*
 * The file of tuned algorithms:
 *
 *     {
 *       "format": 1,
 *       "gpu": "NVIDIA H200",
 *       "cublaslt": 130100,
 *       "products": [
 *         {"product": "forward", "dtype": "bf16", "epilogue": "bias", "rows": 8192,
 *          "n_in": 2048, "n_out": 6144, "alignments": 2340, "algorithm": "0123..."}
 *       ]
 *     }
 *
 * An algorithm is what cuBLASLt says may be stored and used again with the same version:
 * eight 64-bit numbers, in hexadecimal; "" says that the product is better not fused. A
 * file of another GPU or version counts as absent. alignments: struct mist_gemm_key.
 */
#include "exec/cuda/gemm.h"

#include "core/json.h"
#include "exec/cuda/gemm_internal.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { N_WORDS = 8, WORD_DIGITS = 16, MAX_ALIGNMENTS = 0x7FFF };

static const char *const product_names[] = {"forward", "backward_input",
                                            "backward_weight", NULL};
static const char *const dtype_names[] = {"fp32", "bf16", NULL};
static const char *const epilogue_names[] = {"plain", "bias", "gelu", "gelu_bias",
                                             "dgelu", "sum",  NULL};

/* False: not 128 hexadecimal digits. */
static bool parse_algorithm(const char *text, cublasLtMatmulAlgo_t *out)
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(text) != N_WORDS * WORD_DIGITS)
        return false;
    for (int i = 0; i < N_WORDS; i++) {
        out->data[i] = 0;
        for (int j = 0; j < WORD_DIGITS; j++) {
            const char *digit = strchr(digits, text[i * WORD_DIGITS + j]);

            if (!digit)
                return false;
            out->data[i] = out->data[i] << 4 | (uint64_t)(digit - digits);
        }
    }
    return true;
}

static enum mist_status read_key(const struct mist_json *entry, struct mist_gemm_key *key,
                                 struct mist_err *err)
{
    const struct {
        const char *name;
        int64_t min, max;
        int64_t *out;
    } sizes[] = {{"rows", 1, INT32_MAX, &key->rows},
                 {"n_in", 1, INT32_MAX, &key->n_in},
                 {"n_out", 1, INT32_MAX, &key->n_out}};
    const struct {
        const char *name;
        const char *const *choices;
        int32_t *out;
    } words[] = {{"product", product_names, &key->kind},
                 {"dtype", dtype_names, &key->dtype},
                 {"epilogue", epilogue_names, &key->epilogue}};
    int64_t alignments = 0;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 3 && status == MIST_OK; i++) {
        int choice = 0;

        status = mist_json_get_choice(entry, words[i].name, MIST_JSON_REQUIRED,
                                      words[i].choices, &choice, err);
        *words[i].out = choice;
        if (status == MIST_OK)
            status = mist_json_get_int64(entry, sizes[i].name, MIST_JSON_REQUIRED,
                                         sizes[i].min, sizes[i].max, sizes[i].out, err);
    }
    if (status == MIST_OK)
        status = mist_json_get_int64(entry, "alignments", MIST_JSON_REQUIRED, 0,
                                     MAX_ALIGNMENTS, &alignments, err);
    key->alignments = (int32_t)alignments;
    return status;
}

static enum mist_status read_product(struct mist_cuda_gemm *gemm,
                                     const struct mist_json *entry, struct mist_err *err)
{
    static const char *const keys[] = {"product",    "dtype",     "epilogue",
                                       "rows",       "n_in",      "n_out",
                                       "alignments", "algorithm", NULL};
    struct mist_gemm_key key = {0};
    cublasLtMatmulAlgo_t algo = {0};
    struct mist_gemm_plan *plan;
    const char *text = "";
    enum mist_status status = mist_json_as_object(entry, err);

    if (status == MIST_OK)
        status = mist_json_check_keys(entry, keys, err);
    if (status == MIST_OK)
        status = read_key(entry, &key, err);
    if (status == MIST_OK)
        status = mist_json_get_string(entry, "algorithm", MIST_JSON_REQUIRED, &text, err);
    if (status != MIST_OK)
        return status;
    if (*text && !parse_algorithm(text, &algo))
        return mist_json_fail_key(entry, "algorithm", MIST_ERR_INPUT, err,
                                  "an algorithm is 128 hexadecimal digits or nothing");
    plan = mist_gemm_plan_append(gemm, &key);
    if (!plan)
        return MIST_ERR_MEMORY;
    plan->algo = algo;
    plan->is_usable = *text != '\0';
    plan->is_tuned = true;
    return MIST_OK;
}

static enum mist_status read_products(struct mist_cuda_gemm *gemm,
                                      const struct mist_json *root, struct mist_err *err)
{
    static const char *const keys[] = {"gpu", "cublaslt", "products", NULL};
    struct mist_json products = {0};
    const char *gpu = "";
    int64_t version = 0;
    enum mist_status status = mist_json_check_keys(root, keys, err);

    if (status == MIST_OK)
        status = mist_json_get_string(root, "gpu", MIST_JSON_REQUIRED, &gpu, err);
    if (status == MIST_OK)
        status = mist_json_get_int64(root, "cublaslt", MIST_JSON_REQUIRED, 0, INT32_MAX,
                                     &version, err);
    if (status == MIST_OK)
        status =
            mist_json_get_array(root, "products", MIST_JSON_REQUIRED, &products, err);
    if (status != MIST_OK || strcmp(gpu, gemm->device_name) != 0 ||
        version != (int64_t)cublasLtGetVersion())
        return status;
    for (size_t i = 0; i < mist_json_size(&products) && status == MIST_OK; i++) {
        struct mist_json entry = mist_json_element(&products, i);

        status = read_product(gemm, &entry, err);
    }
    return status;
}

enum mist_status mist_gemm_file_load(struct mist_cuda_gemm *gemm, struct mist_err *err)
{
    struct mist_json_doc doc = {0};
    struct mist_json root;
    enum mist_status status;

    if (access(gemm->path, F_OK) != 0)
        return MIST_OK;
    status = mist_json_load(&doc, gemm->path, MIST_JSON_OWN, err);
    if (status == MIST_OK) {
        root = mist_json_root(&doc);
        status = read_products(gemm, &root, err);
    }
    mist_json_fini(&doc);
    return status;
}

/* A new object, or NULL: out of memory. */
static json_t *write_product(const struct mist_gemm_plan *plan)
{
    const struct mist_gemm_key *key = &plan->key;
    char text[N_WORDS * WORD_DIGITS + 1] = "";

    for (int i = 0; i < N_WORDS && plan->is_usable; i++)
        snprintf(text + i * WORD_DIGITS, WORD_DIGITS + 1, "%016" PRIx64,
                 plan->algo.data[i]);
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:s}", "product", product_names[key->kind],
        "dtype", dtype_names[key->dtype], "epilogue", epilogue_names[key->epilogue],
        "rows", (json_int_t)key->rows, "n_in", (json_int_t)key->n_in, "n_out",
        (json_int_t)key->n_out, "alignments", (int)key->alignments, "algorithm", text);
}

enum mist_status mist_cuda_gemm_save(const struct mist_cuda_gemm *gemm,
                                     struct mist_err *err)
{
    json_t *products, *root;
    enum mist_status status = MIST_ERR_MEMORY;

    if (!gemm->path)
        return MIST_OK;
    products = json_array();
    root = json_pack("{s:i, s:s, s:I, s:O}", "format", 1, "gpu", gemm->device_name,
                     "cublaslt", (json_int_t)cublasLtGetVersion(), "products", products);
    if (!root)
        goto out;
    for (size_t i = 0; i < gemm->n_plans; i++)
        if (gemm->plans[i].is_tuned &&
            json_array_append_new(products, write_product(&gemm->plans[i])) != 0)
            goto out;
    status = mist_json_write_file(root, gemm->path, true, err);
out:
    json_decref(root);
    json_decref(products);
    return status == MIST_ERR_MEMORY
               ? mist_err_set(err, status, "no memory to write %s", gemm->path)
               : status;
}

/*
 * exec/hf_names: weights of a tiny model of each kind (first byte), read from a
 * safetensors file. What is accepted is read, saved, and read as the same bits.
 */
#include "exec/huggingface/hf_names.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

enum { N_MODELS = 4, MAX_ELEMENTS = 256 };

static struct mist_model model_of(unsigned kind)
{
    bool is_gpt = kind < 2;

    return (struct mist_model){.name = "tiny",
                               .family = is_gpt ? MIST_FAMILY_GPT : MIST_FAMILY_LLAMA,
                               .n_layers = 1,
                               .hidden = 4,
                               .n_heads = 2,
                               .n_kv_heads = is_gpt ? 2 : 1,
                               .head_dim = 2,
                               .ffn = 6,
                               .vocab = 5,
                               .max_seq = is_gpt ? 8 : 0,
                               .has_bias = kind == 0,
                               .ties_embeddings = kind % 2 == 0,
                               .norm_epsilon = 1e-5,
                               .rope_theta = is_gpt ? 0 : 1e4};
}

/* Elements first .. first + n - 1 of a whole parameter. */
static enum mist_status whole_param(const struct mist_hf *hf, int32_t module,
                                    const char *param, int64_t first, int64_t n,
                                    float *out, struct mist_err *err)
{
    const struct mist_param_span span = {.global_first = first, .length = n, .n_runs = 1};

    return mist_hf_read_spans(hf, module, param, &span, 1, out, err);
}

/* A parameter from a file that is open; without one, numbers. */
static enum mist_status source(void *context, int32_t module, const char *param,
                               int64_t n, float *out, struct mist_err *err)
{
    if (context)
        return whole_param(context, module, param, 0, n, out, err);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(module + 1) + 0.125f * (float)i;
    return MIST_OK;
}

static void compare(const struct mist_hf *a, const struct mist_hf *b,
                    const struct mist_model *model)
{
    for (int32_t module = 0; module <= model->n_layers + 1; module++) {
        struct mist_hf_param params[MIST_HF_MAX_PARAMS];
        int32_t n_params = mist_hf_params(model, module, params);
        for (int32_t i = 0; i < n_params; i++) {
            float x[MAX_ELEMENTS], y[MAX_ELEMENTS];
            int64_t n = params[i].rows * params[i].columns;
            struct mist_err err = {0};
            FUZZ_CHECK(n <= MAX_ELEMENTS, "%s", params[i].name);
            fuzz_must(whole_param(a, module, params[i].name, 0, n, x, &err), &err);
            fuzz_must(whole_param(b, module, params[i].name, 0, n, y, &err), &err);
            FUZZ_CHECK(memcmp(x, y, (size_t)n * sizeof *x) == 0, "%s has other bits",
                       params[i].name);
        }
    }
}

/* Reading refuses values that are not finite; false: it did. */
static bool can_be_read(const struct mist_hf *hf, const struct mist_model *model)
{
    for (int32_t module = 0; module <= model->n_layers + 1; module++) {
        struct mist_hf_param params[MIST_HF_MAX_PARAMS];
        int32_t n_params = mist_hf_params(model, module, params);
        for (int32_t i = 0; i < n_params; i++) {
            float values[MAX_ELEMENTS];
            int64_t n = params[i].rows * params[i].columns;
            struct mist_err err = {0};
            enum mist_status status =
                whole_param(hf, module, params[i].name, 0, n, values, &err);
            if (status != MIST_OK) {
                fuzz_check_refusal(status, &err, true);
                return false;
            }
            for (int64_t k = 0; k < n; k++)
                FUZZ_CHECK(isfinite(values[k]), "%s has %g", params[i].name, values[k]);
        }
    }
    return true;
}

static void check_round_trip(struct mist_hf *hf, const struct mist_model *model)
{
    char folder[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];
    struct mist_model again_model;
    struct mist_hf *again;
    struct mist_err err = {0};

    fuzz_path(folder, "out");
    enum mist_status status =
        mist_hf_save(folder, model, 0, MIST_DTYPE_FP32, true, source, hf, &err);
    if (status == MIST_ERR_INPUT) { /* values that are not finite */
        fuzz_check_refusal(status, &err, true);
        return;
    }
    fuzz_must(status, &err);
    fuzz_must(
        mist_model_load_config(fuzz_path(path, "out/config.json"), &again_model, &err),
        &err);
    FUZZ_CHECK(again_model.hidden == model->hidden && again_model.vocab == model->vocab,
               "another model");
    fuzz_must(mist_hf_load(folder, model, &again, &err), &err);
    compare(hf, again, model);
    mist_hf_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    struct mist_model model = model_of(fuzz_take(&input) % N_MODELS);
    char path[FUZZ_PATH_BYTES];
    struct mist_hf *hf = NULL;
    struct mist_err err = {0};

    if (input.n == 0)
        return 0;
    fuzz_write(fuzz_path(path, "in.safetensors"), input);
    enum mist_status status = mist_hf_load(path, &model, &hf, &err);
    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    else if (can_be_read(hf, &model))
        check_round_trip(hf, &model);
    mist_hf_close(hf);
    return 0;
}

void fuzz_write_seeds(void)
{
    for (unsigned kind = 0; kind < N_MODELS; kind++) {
        struct mist_model model = model_of(kind);
        struct fuzz_buffer buffer = {0};
        struct mist_err err = {0};
        char name[2] = {(char)('0' + kind), '\0'};
        char folder[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];
        fuzz_must(mist_hf_save(fuzz_path(folder, "seed"), &model, 0,
                               kind == 3 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32, true,
                               source, NULL, &err),
                  &err);
        fuzz_add_text(&buffer, name);
        fuzz_add_file(&buffer, fuzz_path(path, "seed/model.safetensors"));
        fuzz_seed(name, &buffer);
    }
}

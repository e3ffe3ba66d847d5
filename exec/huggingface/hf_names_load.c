/*
 * Loading weights: everything is checked when a model is opened, so that
 * reading can't fail for the file's sake. See hf_names.h.
 */
#include "exec/huggingface/hf_names.h"

#include "core/parse.h"
#include "exec/huggingface/hf_names_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 12, TILE_ROWS = 16 };

struct mist_hf {
    struct mist_model model;
    struct mist_safetensors *tensors;
    const char *prefix; /* static */
    char *path;
};

static enum mist_status fail(const struct mist_hf *hf, const char *what, const char *name,
                             struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_INPUT, hf->path, 0, 0, "%s tensor %s", what, name);
}

static void format_shape(const struct mist_safetensors_info *info, char *out, size_t size)
{
    snprintf(out, size, "[");
    for (int32_t i = 0; i < info->n_dims; i++)
        mist_text_add(out, size, i > 0 ? ", " : "", "%" PRId64, info->shape[i]);
    mist_text_add(out, size, "", "]");
}

static enum mist_status check_source(const struct mist_hf *hf,
                                     const struct hf_param *param, int32_t i_source,
                                     int32_t i_tensor, struct mist_err *err)
{
    struct mist_safetensors_info want = hf_source_info(param, i_source);
    const struct mist_safetensors_info *have =
        mist_safetensors_info(hf->tensors, i_tensor);
    char want_shape[64], have_shape[200];
    const char *path = mist_safetensors_path(hf->tensors, i_tensor);

    if (have->n_dims != want.n_dims || have->shape[0] != want.shape[0] ||
        (want.n_dims > 1 && have->shape[1] != want.shape[1])) {
        format_shape(&want, want_shape, sizeof want_shape);
        format_shape(have, have_shape, sizeof have_shape);
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "tensor %s is %s, expected %s", want.name, have_shape,
                           want_shape);
    }
    if (!mist_safetensors_is_float(hf->tensors, i_tensor))
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "tensor %s has dtype %s, expected F32, F16 or BF16", want.name,
                           have->dtype);
    return MIST_OK;
}

/* A bias that our model has not may be there when it adds nothing. */
static enum mist_status check_zero(const struct mist_hf *hf, int32_t i_tensor,
                                   struct mist_err *err)
{
    const struct mist_safetensors_info *info =
        mist_safetensors_info(hf->tensors, i_tensor);
    float values[CHUNK_ELEMENTS];

    for (int64_t first = 0; first < info->n_elements; first += CHUNK_ELEMENTS) {
        int64_t left = info->n_elements - first;
        int64_t n = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
        mist_safetensors_read(hf->tensors, i_tensor, first, n, values);
        for (int64_t i = 0; i < n; i++)
            if (values[i] != 0)
                return fail(hf, "the model has no biases, but there is", info->name, err);
    }
    return MIST_OK;
}

static enum mist_status check_param(const struct mist_hf *hf,
                                    const struct hf_param *param, bool *is_used,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < param->n_sources && !status; i++) {
        int32_t found = mist_safetensors_find(hf->tensors, param->sources[i].name);
        if (found < 0 && param->is_absent)
            continue;
        if (found < 0)
            return fail(hf, "has no", param->sources[i].name, err);
        is_used[found] = true;
        status = check_source(hf, param, i, found, err);
        if (!status && param->is_absent)
            status = check_zero(hf, found, err);
    }
    return status;
}

/* The head of a tied model may be there once more, with the same values. */
static enum mist_status check_tied_head(const struct mist_hf *hf, bool *is_used,
                                        struct mist_err *err)
{
    const char *name = hf_head_name(&hf->model);
    int32_t head = mist_safetensors_find(hf->tensors, name);
    struct hf_param params[MIST_HF_MAX_PARAMS];
    float a[CHUNK_ELEMENTS], b[CHUNK_ELEMENTS];

    if (head < 0 || !hf->model.ties_embeddings)
        return MIST_OK;
    hf_describe_module(&hf->model, 0, hf->prefix, params);
    int32_t embedding = mist_safetensors_find(hf->tensors, params[0].sources[0].name);
    int64_t n_all = params[0].param.rows * params[0].param.columns;
    enum mist_status status = check_source(hf, &params[0], 0, head, err);
    for (int64_t first = 0; first < n_all && !status; first += CHUNK_ELEMENTS) {
        int64_t n = n_all - first < CHUNK_ELEMENTS ? n_all - first : CHUNK_ELEMENTS;
        mist_safetensors_read(hf->tensors, embedding, first, n, a);
        mist_safetensors_read(hf->tensors, head, first, n, b);
        if (memcmp(a, b, (size_t)n * sizeof *a) != 0)
            status =
                fail(hf, "the model ties its head to its embedding, from which differs",
                     name, err);
    }
    is_used[head] = true;
    return status;
}

/* Constants that older versions saved along. */
static bool is_buffer(const char *name)
{
    static const char *const endings[] = {".attn.bias", ".attn.masked_bias",
                                          ".attention.bias", ".attention.masked_bias",
                                          ".rotary_emb.inv_freq"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n_ending = strlen(endings[i]);
        if (n >= n_ending && strcmp(name + n - n_ending, endings[i]) == 0)
            return true;
    }
    return false;
}

static enum mist_status check_surplus(const struct mist_hf *hf, const bool *is_used,
                                      struct mist_err *err)
{
    char list[300] = "";
    int32_t n = 0;

    for (int32_t i = 0; i < mist_safetensors_n(hf->tensors); i++) {
        const char *name = mist_safetensors_info(hf->tensors, i)->name;
        if (is_used[i] || is_buffer(name))
            continue;
        if (n++ < 3)
            mist_text_add(list, sizeof list, ", ", "%.80s", name);
    }
    if (n == 0)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, hf->path, 0, 0,
                       "has %d tensor%s that the model has no place for: %s%s", n,
                       n > 1 ? "s" : "", list, n > 3 ? ", ..." : "");
}

static enum mist_status check_tensors(const struct mist_hf *hf, struct mist_err *err)
{
    struct hf_param params[MIST_HF_MAX_PARAMS];
    size_t n = (size_t)mist_safetensors_n(hf->tensors);
    bool *is_used = calloc(n + 1, sizeof *is_used);
    enum mist_status status = MIST_OK;

    if (!is_used)
        return mist_err_memory(err, hf->path);
    for (int32_t module = 0; module <= hf->model.n_layers + 1 && !status; module++) {
        int32_t n_params = hf_describe_module(&hf->model, module, hf->prefix, params);
        for (int32_t i = 0; i < n_params && !status; i++)
            status = check_param(hf, &params[i], is_used, err);
    }
    if (!status)
        status = check_tied_head(hf, is_used, err);
    if (!status)
        status = check_surplus(hf, is_used, err);
    free(is_used);
    return status;
}

/* GPT-2 is published without one, too. */
static const char *choose_prefix(const struct mist_hf *hf)
{
    bool is_bare = hf->model.family == MIST_FAMILY_GPT &&
                   mist_safetensors_find(hf->tensors, "transformer.wte.weight") < 0;

    return is_bare ? "" : hf_prefix(&hf->model);
}

enum mist_status mist_hf_load(const char *path, const struct mist_model *model,
                              struct mist_hf **out, struct mist_err *err)
{
    struct mist_hf *hf = calloc(1, sizeof *hf);
    enum mist_status status = MIST_OK;

    *out = NULL;
    if (hf)
        hf->path = strdup(path);
    if (!hf || !hf->path) {
        status = mist_err_memory(err, path);
        goto out;
    }
    hf->model = *model;
    if (status || (status = mist_safetensors_open(path, &hf->tensors, err)))
        goto out;
    hf->prefix = choose_prefix(hf);
    status = check_tensors(hf, err);
out:
    if (status)
        mist_hf_close(hf);
    else
        *out = hf;
    return status;
}

void mist_hf_close(struct mist_hf *hf)
{
    if (!hf)
        return;
    mist_safetensors_close(hf->tensors);
    free(hf->path);
    free(hf);
}

/* -------------------------------------------------------------------------- reading */

static enum mist_status find_param(const struct mist_hf *hf, int32_t module,
                                   const char *name, struct hf_param *out,
                                   struct mist_err *err)
{
    struct hf_param params[MIST_HF_MAX_PARAMS] = {0};
    int32_t n = 0;

    if (hf->model.ties_embeddings && module == hf->model.n_layers + 1 &&
        strcmp(name, "head.weight") == 0) {
        module = 0;
        name = "wte";
    }
    if (module >= 0 && module <= hf->model.n_layers + 1)
        n = hf_describe_module(&hf->model, module, hf->prefix, params);
    for (int32_t i = 0; i < n; i++)
        if (!params[i].is_absent && strcmp(params[i].param.name, name) == 0) {
            *out = params[i];
            return MIST_OK;
        }
    return mist_err_at(err, MIST_ERR_INPUT, hf->path, 0, 0,
                       "module %d of the model has no parameter %s", module, name);
}

/*
 * Elements first .. first + n - 1 of a matrix with this many columns that is stored as
 * [columns, rows]: within a row one by one, else by groups of rows, so that a line of the
 * cache is read once.
 */
static void read_transposed(const struct mist_safetensors *tensors, int32_t i_tensor,
                            int64_t rows, int64_t columns, int64_t first, int64_t n,
                            float *out)
{
    float values[TILE_ROWS];
    int64_t end = first + n, row = first / columns, last_row = (end - 1) / columns;
    int64_t first_column = row == last_row ? first % columns : 0;
    int64_t end_column = row == last_row ? first_column + n : columns;

    for (; row <= last_row; row += TILE_ROWS) {
        int64_t n_rows = last_row + 1 - row < TILE_ROWS ? last_row + 1 - row : TILE_ROWS;
        for (int64_t column = first_column; column < end_column; column++) {
            mist_safetensors_read(tensors, i_tensor, column * rows + row, n_rows, values);
            for (int64_t k = 0; k < n_rows; k++) {
                int64_t at = (row + k) * columns + column;
                if (at >= first && at < end)
                    out[at - first] = values[k];
            }
        }
    }
}

/* The same of rows that are elsewhere there. */
/* first: of a tensor, which has the parameter's rows from first_row on. */
static void read_rows(const struct mist_safetensors *tensors, int32_t i_tensor,
                      const struct hf_param *param, int64_t first_row, int64_t first,
                      int64_t n, float *out)
{
    int64_t columns = param->param.columns;

    for (int64_t i = first, n_read; i < first + n; i += n_read) {
        int64_t row = i / columns, column = i % columns;
        n_read = columns - column < first + n - i ? columns - column : first + n - i;
        row = hf_source_row(param, first_row + row) - first_row;
        mist_safetensors_read(tensors, i_tensor, row * columns + column, n_read,
                              out + (i - first));
    }
}

static enum mist_status check_finite(const struct mist_hf *hf, int32_t i_tensor,
                                     const float *values, int64_t n, struct mist_err *err)
{
    int64_t n_bad = 0;

    for (int64_t i = 0; i < n; i++)
        n_bad += !isfinite(values[i]);
    if (n_bad == 0)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, mist_safetensors_path(hf->tensors, i_tensor),
                       0, 0, "tensor %s has values that are not finite",
                       mist_safetensors_info(hf->tensors, i_tensor)->name);
}

/* A range within the parameter. */
static enum mist_status read_range(const struct mist_hf *hf, const struct hf_param *param,
                                   int64_t first, int64_t n, float *out,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int64_t columns = param->param.columns, start = 0;

    for (int32_t i = 0; i < param->n_sources && status == MIST_OK; i++) {
        int64_t rows = param->sources[i].rows;
        int64_t begin = first > start ? first : start;
        int64_t end = start + rows * columns;
        int32_t i_tensor = mist_safetensors_find(hf->tensors, param->sources[i].name);
        if (end > first + n)
            end = first + n;
        if (begin < end && param->is_transposed)
            read_transposed(hf->tensors, i_tensor, rows, columns, begin - start,
                            end - begin, out + (begin - first));
        else if (begin < end && param->of_heads)
            read_rows(hf->tensors, i_tensor, param, start / columns, begin - start,
                      end - begin, out + (begin - first));
        else if (begin < end)
            mist_safetensors_read(hf->tensors, i_tensor, begin - start, end - begin,
                                  out + (begin - first));
        if (begin < end)
            status = check_finite(hf, i_tensor, out + (begin - first), end - begin, err);
        start += rows * columns;
    }
    return status;
}

static enum mist_status check_range(const struct mist_hf *hf,
                                    const struct hf_param *param, int64_t first,
                                    int64_t n, struct mist_err *err)
{
    int64_t n_all = param->param.rows * param->param.columns;

    if (first >= 0 && n >= 0 && n <= n_all && first <= n_all - n)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, hf->path, 0, 0,
                       "%s has %" PRId64 " elements, asked for %" PRId64 " from %" PRId64
                       " on",
                       param->param.name, n_all, n, first);
}

enum mist_status mist_hf_read_spans(const struct mist_hf *hf, int32_t module,
                                    const char *param,
                                    const struct mist_param_span *spans, int32_t n_spans,
                                    float *local, struct mist_err *err)
{
    struct hf_param found;
    enum mist_status status = find_param(hf, module, param, &found, err);

    for (int32_t i = 0; i < n_spans && !status; i++) {
        const struct mist_param_span *span = &spans[i];
        for (int64_t run = 0; run < span->n_runs && !status; run++) {
            int64_t first = span->global_first + run * span->global_stride;
            status = check_range(hf, &found, first, span->length, err);
            if (!status)
                status = read_range(hf, &found, first, span->length,
                                    local + span->local_first + run * span->length, err);
        }
    }
    return status;
}

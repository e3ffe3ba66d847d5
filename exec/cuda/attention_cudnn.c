#include "exec/cuda/attention_cudnn.h"

#include "core/memory.h" /* mist_grow */
#include "exec/cuda/attention_graph.h"
#include "exec/cuda/cudnn_graph.h"

#include <math.h>   /* sqrt, INFINITY */
#include <stdlib.h> /* calloc, free */
#include <string.h> /* memcmp */

/* Before it: a wrong backward (9.10.0, 9.10.1), and a mask of the lowest finite float.
 * From 9.6 on, also, the fp32 sum of dQ is cleared by cuDNN itself. */
enum { MIN_VERSION = 91002 };

/* A plan, what it was built for, and the graph that it refers to. */
struct entry {
    struct mist_cpu_attention shape;
    enum mist_cuda_sdpa_direction direction;
    enum mist_cuda_sdpa_form form;
    struct mist_cuda_sdpa_plan info;
    cudnnBackendDescriptor_t plan;
    struct mist_cudnn_graph graph;
};

struct mist_cuda_sdpa {
    struct mist_cudnn_api api;
    struct mist_cudnn_graph owner; /* of target.device */
    struct mist_cudnn_target target;
    mist_cuda_stream stream; /* that the handle was given last */
    struct entry **entries;
    size_t n_entries, capacity;
};

bool mist_cuda_sdpa_is_trusted(const struct mist_cpu_attention *shape)
{
    int64_t d = shape->head_dim, elements = 0;

    if (shape->b < 1 || shape->s < 1 || shape->heads < 1 || shape->kv_heads < 1 ||
        shape->heads % shape->kv_heads != 0)
        return false;
    if (shape->s % 128 != 0 || shape->b >= 128)
        return false;
    if (d != 64 && d != 80 && d != 96 && d != 128)
        return false;
    return mist_size_mul(shape->b * d, shape->s, &elements) &&
           mist_size_mul(elements, shape->heads, &elements) &&
           elements / shape->heads * (shape->heads + 2 * shape->kv_heads) <= INT32_MAX;
}

/* ------------------------------------------------------------------------ the context */

static enum mist_status open_target(struct mist_cuda_sdpa *sdpa, const char *device_json,
                                    struct mist_err *err)
{
    int64_t version = mist_cuda_sdpa_version(sdpa);

    if (version < MIN_VERSION)
        return mist_err_set(err, MIST_ERR_RUN, "cuDNN %lld is too old: 9.10.2 at least",
                            (long long)version);
    if (device_json) {
        sdpa->target.device = mist_cudnn_device(&sdpa->owner, device_json);
        if (sdpa->owner.status != MIST_OK && err)
            *err = sdpa->owner.err;
        return sdpa->owner.status == MIST_OK ? MIST_OK : MIST_ERR_RUN;
    }
    cudnnStatus_t status = sdpa->api.cudnnCreate(&sdpa->target.handle);
    if (status == CUDNN_STATUS_SUCCESS)
        return MIST_OK;
    sdpa->target.handle = NULL;
    (void)mist_cudnn_fail(&sdpa->api, status, "cuDNN can't use the device", err);
    return MIST_ERR_RUN;
}

enum mist_status mist_cuda_sdpa_open(const char *library, const char *device_json,
                                     struct mist_cuda_sdpa **out, struct mist_err *err)
{
    struct mist_cuda_sdpa *sdpa = calloc(1, sizeof *sdpa);
    if (!sdpa)
        return mist_err_memory(err, NULL);
    enum mist_status status = mist_cudnn_load(library, &sdpa->api, err);
    mist_cudnn_graph_init(&sdpa->owner, &sdpa->api, 0);
    if (status == MIST_OK)
        status = open_target(sdpa, device_json, err);
    if (status != MIST_OK) {
        mist_cuda_sdpa_close(sdpa);
        return status;
    }
    *out = sdpa;
    return MIST_OK;
}

static void free_entry(struct entry *entry)
{
    mist_cudnn_graph_fini(&entry->graph);
    free(entry);
}

void mist_cuda_sdpa_close(struct mist_cuda_sdpa *sdpa)
{
    if (!sdpa)
        return;
    for (size_t i = 0; i < sdpa->n_entries; i++)
        free_entry(sdpa->entries[i]);
    free(sdpa->entries);
    mist_cudnn_graph_fini(&sdpa->owner);
    if (sdpa->target.handle)
        sdpa->api.cudnnDestroy(sdpa->target.handle);
    free(sdpa);
}

int64_t mist_cuda_sdpa_version(const struct mist_cuda_sdpa *sdpa)
{
    return (int64_t)sdpa->api.cudnnGetVersion();
}

int64_t mist_cuda_sdpa_library_version(const char *library)
{
    struct mist_cudnn_api api;

    return mist_cudnn_load(library, &api, NULL) == MIST_OK
               ? (int64_t)api.cudnnGetVersion()
               : 0;
}

/* ------------------------------------------------------------------------------ plans */

/* NULL: there is none within the limit. */
static const struct entry *find(const struct mist_cuda_sdpa *sdpa,
                                const struct mist_cpu_attention *shape,
                                enum mist_cuda_sdpa_direction direction,
                                enum mist_cuda_sdpa_form form, int64_t limit_bytes)
{
    for (size_t i = 0; i < sdpa->n_entries; i++) {
        const struct entry *e = sdpa->entries[i];
        if (memcmp(&e->shape, shape, sizeof *shape) == 0 && e->direction == direction &&
            (e->form == form || direction == MIST_CUDA_SDPA_FORWARD) &&
            e->info.workspace_bytes <= limit_bytes)
            return e;
    }
    return NULL;
}

/* Where our own buffers lie in the workspace of a chunk; cuDNN's comes behind them. */
struct buffers {
    int64_t delta, dq_sum, engine; /* offsets in bytes */
};

static struct buffers buffers_of(const struct mist_sdpa_chunk *chunk,
                                 enum mist_cuda_sdpa_direction direction,
                                 enum mist_cuda_sdpa_form form)
{
    int64_t rows = chunk->b * chunk->heads * chunk->whole.s;
    struct buffers at = {0, 0, 0};

    if (direction == MIST_CUDA_SDPA_FORWARD)
        return at;
    at.dq_sum = at.engine = rows * (int64_t)sizeof(float);
    if (form == MIST_CUDA_SDPA_FAST)
        at.engine += rows * chunk->whole.head_dim * (int64_t)sizeof(float);
    return at;
}

/* Builds the plan of a chunk and keeps it. */
static enum mist_status build(struct mist_cuda_sdpa *sdpa,
                              const struct mist_sdpa_chunk *chunk,
                              enum mist_cuda_sdpa_direction direction,
                              enum mist_cuda_sdpa_form form, int64_t limit_bytes,
                              struct mist_err *err)
{
    if (!MIST_RESERVE(sdpa->entries, sdpa->capacity, sdpa->n_entries + 1))
        return mist_err_memory(err, NULL);
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return mist_err_memory(err, NULL);

    *entry = (struct entry){
        .shape = chunk->whole,
        .direction = direction,
        .form = form,
        .info = {.chunk_b = chunk->b,
                 .chunk_heads = chunk->heads,
                 .chunk_kv_heads = chunk->kv_heads},
    };
    mist_cudnn_graph_init(&entry->graph, &sdpa->api, MIST_SDPA_N);
    if (direction == MIST_CUDA_SDPA_FORWARD)
        mist_sdpa_graph_forward(&entry->graph, chunk);
    else
        mist_sdpa_graph_backward(&entry->graph, chunk, form);

    int64_t own_bytes = buffers_of(chunk, direction, form).engine;
    enum mist_status status = mist_cudnn_graph_plan(
        &entry->graph, &sdpa->target, limit_bytes - own_bytes, &entry->plan,
        &entry->info.engine_bytes, &entry->info.engine, err);
    if (status != MIST_OK) {
        free_entry(entry);
        return status;
    }
    entry->info.workspace_bytes = own_bytes + entry->info.engine_bytes;
    sdpa->entries[sdpa->n_entries++] = entry;
    return MIST_OK;
}

/* What a form needs at least: our own buffers, and as was seen of the deterministic one dS
 * in bf16, with grouped queries dK and dV of every query head in bf16, and 256 bytes. */
static int64_t estimate_bytes(const struct mist_sdpa_chunk *chunk,
                              enum mist_cuda_sdpa_form form)
{
    int64_t s = chunk->whole.s, heads = chunk->b * chunk->heads;
    int64_t own = buffers_of(chunk, MIST_CUDA_SDPA_BACKWARD, form).engine;
    int64_t grouped = chunk->heads > chunk->kv_heads ? 4 * chunk->whole.head_dim : 0;

    return form == MIST_CUDA_SDPA_FAST ? own : own + heads * s * (2 * s + grouped) + 256;
}

/* The next smaller chunk of equal parts: fewer samples, then fewer groups of heads of one
 * sample. False: there is none. */
static bool shrink(struct mist_sdpa_chunk *chunk)
{
    const struct mist_cpu_attention *whole = &chunk->whole;
    int64_t *n = chunk->b > 1 ? &chunk->b : &chunk->kv_heads;
    int64_t total = chunk->b > 1 ? whole->b : whole->kv_heads;

    if (*n == 1)
        return false;
    do
        --*n;
    while (total % *n != 0);
    chunk->heads = chunk->kv_heads * (whole->heads / whole->kv_heads);
    return true;
}

/* Builds the backward with the largest chunk that fits. */
static enum mist_status build_chunked(struct mist_cuda_sdpa *sdpa,
                                      struct mist_sdpa_chunk chunk,
                                      enum mist_cuda_sdpa_form form, int64_t limit_bytes,
                                      struct mist_err *err)
{
    enum mist_status status = MIST_ERR_NO_PLAN;
    bool is_tried = false, is_left;

    do {
        if (estimate_bytes(&chunk, form) <= limit_bytes) {
            is_tried = true;
            status = build(sdpa, &chunk, MIST_CUDA_SDPA_BACKWARD, form, limit_bytes, err);
        }
        is_left = shrink(&chunk);
    } while (status == MIST_ERR_NO_PLAN && is_left);
    if (!is_tried)
        return mist_err_set(err, MIST_ERR_NO_PLAN,
                            "one group of heads wants %lld bytes of workspace, has %lld",
                            (long long)estimate_bytes(&chunk, form),
                            (long long)limit_bytes);
    return status;
}

enum mist_status mist_cuda_sdpa_plan(struct mist_cuda_sdpa *sdpa,
                                     const struct mist_cpu_attention *shape,
                                     enum mist_cuda_sdpa_direction direction,
                                     enum mist_cuda_sdpa_form form, int64_t limit_bytes,
                                     struct mist_cuda_sdpa_plan *out,
                                     struct mist_err *err)
{
    const struct entry *entry = find(sdpa, shape, direction, form, limit_bytes);
    struct mist_sdpa_chunk whole = {*shape, shape->b, shape->heads, shape->kv_heads};
    enum mist_status status = MIST_OK;

    if (!mist_cuda_sdpa_is_trusted(shape))
        return mist_err_set(err, MIST_ERR_NO_PLAN,
                            "it is trusted with fewer than 128 samples of a multiple of "
                            "128 tokens, heads of 64, 80, 96 or 128, and less than 2^31 "
                            "elements");
    if (!entry) {
        if (direction == MIST_CUDA_SDPA_BACKWARD)
            status = build_chunked(sdpa, whole, form, limit_bytes, err);
        else
            status = build(sdpa, &whole, direction, form, limit_bytes, err);
    }
    if (status != MIST_OK)
        return status;
    if (!entry)
        entry = sdpa->entries[sdpa->n_entries - 1];
    if (out)
        *out = entry->info;
    return MIST_OK;
}

/* -------------------------------------------------------------------------- execution */

/* Addresses of the whole tensors by id; NULL what a direction does not have. */
struct tensors {
    const char *qkv, *out, *d_out;
    char *dqkv;
    const char *lse;
    char *workspace;
};

/* cuDNN takes all addresses as void *. */
static void *at(const char *base, int64_t offset_bytes)
{
    return (void *)(uintptr_t)(base + offset_bytes);
}

/* Addresses of the chunk that begins at a sample and a key and value head, by id. */
static void locate(const struct entry *entry, const struct tensors *tensors,
                   int64_t sample, int64_t kv_head, void *pointers[MIST_SDPA_N])
{
    const struct mist_cpu_attention *shape = &entry->shape;
    int64_t head = kv_head * (shape->heads / shape->kv_heads);
    int64_t width = shape->head_dim * 2, token = width * shape->heads; /* bytes */
    int64_t sequence = (token + 2 * width * shape->kv_heads) * shape->s;
    int64_t q = sample * sequence + head * width;
    int64_t k = sample * sequence + token + kv_head * width;
    int64_t v = k + width * shape->kv_heads;
    int64_t out = sample * token * shape->s + head * width;
    const struct mist_sdpa_chunk chunk = {
        *shape, entry->info.chunk_b, entry->info.chunk_heads, entry->info.chunk_kv_heads};
    struct buffers buffers = buffers_of(&chunk, entry->direction, entry->form);

    pointers[MIST_SDPA_Q] = at(tensors->qkv, q);
    pointers[MIST_SDPA_K] = at(tensors->qkv, k);
    pointers[MIST_SDPA_V] = at(tensors->qkv, v);
    pointers[MIST_SDPA_OUT] = at(tensors->out, out);
    pointers[MIST_SDPA_LSE] =
        at(tensors->lse, (sample * shape->heads + head) * shape->s * 4);
    if (entry->direction == MIST_CUDA_SDPA_FORWARD)
        return;
    pointers[MIST_SDPA_D_OUT] = at(tensors->d_out, out);
    pointers[MIST_SDPA_DQ] = at(tensors->dqkv, q);
    pointers[MIST_SDPA_DK] = at(tensors->dqkv, k);
    pointers[MIST_SDPA_DV] = at(tensors->dqkv, v);
    pointers[MIST_SDPA_DELTA] = at(tensors->workspace, buffers.delta);
    pointers[MIST_SDPA_DQ_SUM] = at(tensors->workspace, buffers.dq_sum);
}

/* One execution. A finalized variant pack can't be changed, so each has a new one: a few
 * hundred bytes of the host's memory for as long as the launch takes. */
static cudnnStatus_t execute(struct mist_cuda_sdpa *sdpa, const struct entry *entry,
                             int64_t n, void *pointers[MIST_SDPA_N], void *workspace)
{
    const struct mist_cudnn_api *api = &sdpa->api;
    cudnnBackendDescriptor_t pack = NULL;
    int64_t ids[MIST_SDPA_N];

    for (int64_t i = 0; i < n; i++)
        ids[i] = i;
    cudnnStatus_t status =
        api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                           CUDNN_TYPE_INT64, n, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, n, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                               CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = api->cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = api->cudnnBackendExecute(sdpa->target.handle, entry->plan, pack);
    api->cudnnBackendDestroyDescriptor(pack);
    return status;
}

static cudnnStatus_t execute_chunks(struct mist_cuda_sdpa *sdpa,
                                    const struct entry *entry,
                                    const struct tensors *tensors)
{
    float scale = (float)(1.0 / sqrt((double)entry->shape.head_dim));
    float masked = -INFINITY, one = 1.0f;
    void *pointers[MIST_SDPA_N] = {
        [MIST_SDPA_SCALE] = &scale, [MIST_SDPA_MASKED] = &masked, [MIST_SDPA_ONE] = &one};
    const struct mist_cuda_sdpa_plan *info = &entry->info;
    int64_t n = entry->direction == MIST_CUDA_SDPA_FORWARD ? MIST_SDPA_N_FORWARD
                : entry->form == MIST_CUDA_SDPA_FAST       ? MIST_SDPA_N
                                                           : MIST_SDPA_DQ_SUM;
    void *workspace = at(tensors->workspace, info->workspace_bytes - info->engine_bytes);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    for (int64_t i = 0; i < entry->shape.b; i += info->chunk_b)
        for (int64_t j = 0; j < entry->shape.kv_heads; j += info->chunk_kv_heads) {
            locate(entry, tensors, i, j, pointers);
            if (status == CUDNN_STATUS_SUCCESS)
                status = execute(sdpa, entry, n, pointers, workspace);
        }
    return status;
}

static enum mist_status run(struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream,
                            const struct entry *entry, const struct tensors *tensors,
                            struct mist_err *err)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    if (!entry)
        return mist_err_set(err, MIST_ERR_RUN, "attention of a shape without a plan");
    if (!sdpa->target.handle)
        return mist_err_set(err, MIST_ERR_RUN, "cuDNN was opened for planning only");
    if (stream != sdpa->stream) /* a new handle has the default stream, NULL */
        status = sdpa->api.cudnnSetStream(sdpa->target.handle, stream);
    if (status == CUDNN_STATUS_SUCCESS) {
        sdpa->stream = stream;
        status = execute_chunks(sdpa, entry, tensors);
    }
    if (status == CUDNN_STATUS_SUCCESS)
        return MIST_OK;
    (void)mist_cudnn_fail(&sdpa->api, status, "launching attention", err);
    return MIST_ERR_RUN;
}

enum mist_status mist_cuda_sdpa_forward(struct mist_cuda_sdpa *sdpa,
                                        mist_cuda_stream stream, void *out, float *lse,
                                        const void *qkv,
                                        const struct mist_cpu_attention *shape,
                                        void *workspace, int64_t workspace_bytes,
                                        struct mist_err *err)
{
    const struct tensors tensors = {
        .qkv = qkv, .out = out, .lse = (char *)lse, .workspace = workspace};
    return run(
        sdpa, stream,
        find(sdpa, shape, MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST, workspace_bytes),
        &tensors, err);
}

enum mist_status mist_cuda_sdpa_backward(struct mist_cuda_sdpa *sdpa,
                                         mist_cuda_stream stream, void *dqkv,
                                         const void *d_out, const void *qkv,
                                         const void *out, const float *lse,
                                         const struct mist_cpu_attention *shape,
                                         enum mist_cuda_sdpa_form form, void *workspace,
                                         int64_t workspace_bytes, struct mist_err *err)
{
    const struct tensors tensors = {.qkv = qkv,
                                    .out = out,
                                    .d_out = d_out,
                                    .dqkv = dqkv,
                                    .lse = (const char *)lse,
                                    .workspace = workspace};
    return run(sdpa, stream,
               find(sdpa, shape, MIST_CUDA_SDPA_BACKWARD, form, workspace_bytes),
               &tensors, err);
}

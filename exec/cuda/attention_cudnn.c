#include "exec/cuda/attention_cudnn.h"

#include "core/memory.h" /* mist_grow */
#include "exec/cuda/attention_graph.h"
#include "exec/cuda/cudnn_graph.h"

#include <assert.h>
#include <math.h>   /* sqrt, INFINITY */
#include <stdlib.h> /* calloc, free */
#include <string.h> /* memcmp */

/* Before it: a wrong backward (9.10.0, 9.10.1), and a mask of the lowest finite float.
 * From 9.6 on, also, the fp32 sum of dQ is cleared by cuDNN itself. */
enum { MIN_VERSION = 91002 };

/* A plan, what it was built for, and the graph that it refers to. */
struct entry {
    struct mist_sdpa_shape shape;
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

/* ----------------------------------------------------------------------------- shapes */

static struct mist_sdpa_shape whole_of(const struct mist_cpu_attention *whole)
{
    return (struct mist_sdpa_shape){.b = whole->b,
                                    .heads = whole->heads,
                                    .kv_heads = whole->kv_heads,
                                    .head_dim = whole->head_dim,
                                    .queries = whole->s,
                                    .keys = whole->s,
                                    .query_tokens = whole->s,
                                    .key_tokens = whole->s,
                                    .gradient_tokens = whole->s,
                                    .key_heads = whole->heads + 2 * whole->kv_heads};
}

int64_t mist_cuda_sdpa_part_keys(const struct mist_cpu_attention_part *part, int i_chunk)
{
    const struct mist_chunks chunks = mist_chunks_of(part->whole.s, part->n, part->i);

    return chunks.first[i_chunk] + chunks.length;
}

static struct mist_sdpa_shape part_of(const struct mist_cpu_attention_part *part,
                                      int i_chunk)
{
    const struct mist_cpu_attention *whole = &part->whole;
    int64_t keys = mist_cuda_sdpa_part_keys(part, i_chunk);

    assert(part->n > 1);
    return (struct mist_sdpa_shape){.b = whole->b,
                                    .heads = whole->heads,
                                    .kv_heads = whole->kv_heads,
                                    .head_dim = whole->head_dim,
                                    .queries = whole->s / (2 * part->n),
                                    .keys = keys,
                                    .query_tokens = whole->s / part->n,
                                    .key_tokens = whole->s,
                                    .gradient_tokens = i_chunk == 0 ? keys : whole->s,
                                    .key_heads = 2 * whole->kv_heads};
}

/* Whether a tensor has less than 2^31 elements. */
static bool is_small(int64_t b, int64_t tokens, int64_t heads, int64_t d)
{
    int64_t elements = d;

    return mist_size_mul(elements, b, &elements) &&
           mist_size_mul(elements, tokens, &elements) &&
           mist_size_mul(elements, heads, &elements) && elements <= INT32_MAX;
}

static bool is_trusted(const struct mist_sdpa_shape *shape)
{
    int64_t b = shape->b, heads = shape->heads, d = shape->head_dim;

    if (b < 1 || shape->queries < 1 || heads < 1 || shape->kv_heads < 1 ||
        heads % shape->kv_heads != 0)
        return false;
    if (shape->queries % 128 != 0 || shape->keys % 128 != 0 || b >= 128)
        return false;
    if (d != 64 && d != 80 && d != 96 && d != 128)
        return false;
    return is_small(b, shape->query_tokens, heads, d) &&
           is_small(b, shape->query_tokens, heads + 2 * shape->kv_heads, d) &&
           is_small(b, shape->key_tokens, shape->key_heads, d);
}

bool mist_cuda_sdpa_is_trusted(const struct mist_cpu_attention *shape)
{
    const struct mist_sdpa_shape whole = whole_of(shape);

    return is_trusted(&whole);
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
                                const struct mist_sdpa_shape *shape,
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
    int64_t rows = chunk->b * chunk->heads * chunk->whole.queries;
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

/* What a form needs at least: our own buffers, and as was seen of the deterministic
 * one dS in bf16, with grouped queries dK and dV of every query head in bf16, and 256
 * bytes. */
static int64_t estimate_bytes(const struct mist_sdpa_chunk *chunk,
                              enum mist_cuda_sdpa_form form)
{
    int64_t n = chunk->whole.queries, heads = chunk->b * chunk->heads;
    int64_t own = buffers_of(chunk, MIST_CUDA_SDPA_BACKWARD, form).engine;
    int64_t grouped = chunk->heads > chunk->kv_heads ? 4 * chunk->whole.head_dim : 0;

    return form == MIST_CUDA_SDPA_FAST
               ? own
               : own + heads * chunk->whole.keys * (2 * n + grouped) + 256;
}

/* The next smaller chunk of equal parts: fewer samples, then fewer groups of heads of one
 * sample. False: there is none. */
static bool shrink(struct mist_sdpa_chunk *chunk)
{
    const struct mist_sdpa_shape *whole = &chunk->whole;
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

static enum mist_status plan(struct mist_cuda_sdpa *sdpa,
                             const struct mist_sdpa_shape *shape,
                             enum mist_cuda_sdpa_direction direction,
                             enum mist_cuda_sdpa_form form, int64_t limit_bytes,
                             struct mist_cuda_sdpa_plan *out, struct mist_err *err)
{
    const struct entry *entry = find(sdpa, shape, direction, form, limit_bytes);
    struct mist_sdpa_chunk whole = {*shape, shape->b, shape->heads, shape->kv_heads};
    enum mist_status status = MIST_OK;

    if (!is_trusted(shape))
        return mist_err_set(
            err, MIST_ERR_NO_PLAN,
            "it is trusted with fewer than 128 samples of %sa multiple of "
            "128 tokens, heads of 64, 80, 96 or 128, and less than 2^31 "
            "elements",
            shape->queries < shape->key_tokens ? "chunks of " : "");
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

enum mist_status mist_cuda_sdpa_plan(struct mist_cuda_sdpa *sdpa,
                                     const struct mist_cpu_attention *shape,
                                     enum mist_cuda_sdpa_direction direction,
                                     enum mist_cuda_sdpa_form form, int64_t limit_bytes,
                                     struct mist_cuda_sdpa_plan *out,
                                     struct mist_err *err)
{
    const struct mist_sdpa_shape whole = whole_of(shape);

    return plan(sdpa, &whole, direction, form, limit_bytes, out, err);
}

enum mist_status mist_cuda_sdpa_plan_part(
    struct mist_cuda_sdpa *sdpa, const struct mist_cpu_attention_part *part, int i_chunk,
    enum mist_cuda_sdpa_direction direction, enum mist_cuda_sdpa_form form,
    int64_t limit_bytes, struct mist_cuda_sdpa_plan *out, struct mist_err *err)
{
    const struct mist_sdpa_shape shape = part_of(part, i_chunk);

    return plan(sdpa, &shape, direction, form, limit_bytes, out, err);
}

/* -------------------------------------------------------------------------- execution */

/* Where what is executed begins, in all samples and heads; NULL what a direction does not
 * have. */
struct tensors {
    const char *q, *k, *out, *d_out;
    char *dq, *dk;
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
    const struct mist_sdpa_shape *shape = &entry->shape;
    int64_t head = kv_head * (shape->heads / shape->kv_heads);
    int64_t width = shape->head_dim * 2, values = width * shape->kv_heads; /* bytes */
    int64_t first_query = sample * shape->query_tokens, q_head = width * head;
    int64_t q = first_query * (shape->heads + 2 * shape->kv_heads) * width + q_head;
    int64_t out = first_query * shape->heads * width + q_head;
    int64_t key_token = shape->key_heads * width, k_head = width * kv_head;
    int64_t k = sample * shape->key_tokens * key_token + k_head;
    int64_t dk = sample * shape->gradient_tokens * key_token + k_head;
    const struct mist_sdpa_chunk chunk = {
        *shape, entry->info.chunk_b, entry->info.chunk_heads, entry->info.chunk_kv_heads};
    struct buffers buffers = buffers_of(&chunk, entry->direction, entry->form);

    pointers[MIST_SDPA_Q] = at(tensors->q, q);
    pointers[MIST_SDPA_K] = at(tensors->k, k);
    pointers[MIST_SDPA_V] = at(tensors->k, k + values);
    pointers[MIST_SDPA_OUT] = at(tensors->out, out);
    pointers[MIST_SDPA_LSE] =
        at(tensors->lse, (sample * shape->heads + head) * shape->queries * 4);
    if (entry->direction == MIST_CUDA_SDPA_FORWARD)
        return;
    pointers[MIST_SDPA_D_OUT] = at(tensors->d_out, out);
    pointers[MIST_SDPA_DQ] = at(tensors->dq, q);
    pointers[MIST_SDPA_DK] = at(tensors->dk, dk);
    pointers[MIST_SDPA_DV] = at(tensors->dk, dk + values);
    pointers[MIST_SDPA_DELTA] = at(tensors->workspace, buffers.delta);
    if (entry->form == MIST_CUDA_SDPA_FAST)
        pointers[MIST_SDPA_DQ_SUM] = at(tensors->workspace, buffers.dq_sum);
}

/* One execution, with the tensors that have an address. A finalized variant pack can't
 * be changed, so each has a new one: a few hundred bytes of the host's memory for as
 * long as the launch takes. */
static cudnnStatus_t execute(struct mist_cuda_sdpa *sdpa, const struct entry *entry,
                             void *const addresses[MIST_SDPA_N], void *workspace)
{
    const struct mist_cudnn_api *api = &sdpa->api;
    cudnnBackendDescriptor_t pack = NULL;
    int64_t ids[MIST_SDPA_N], n = 0;
    void *pointers[MIST_SDPA_N];

    for (int64_t i = 0; i < MIST_SDPA_N; i++)
        if (addresses[i]) {
            ids[n] = i;
            pointers[n++] = addresses[i];
        }
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
    const struct mist_sdpa_shape *shape = &entry->shape;
    float scale = (float)(1.0 / sqrt((double)shape->head_dim));
    float masked = -INFINITY, one = 1.0f;
    float n_keys = (float)shape->keys, n_queries = (float)shape->queries;
    bool is_backward = entry->direction == MIST_CUDA_SDPA_BACKWARD;
    bool has_shift = shape->keys > shape->queries;
    void *pointers[MIST_SDPA_N] = {[MIST_SDPA_SCALE] = &scale,
                                   [MIST_SDPA_MASKED] = &masked,
                                   [MIST_SDPA_ONE] = is_backward ? &one : NULL,
                                   [MIST_SDPA_N_KEYS] = has_shift ? &n_keys : NULL,
                                   [MIST_SDPA_N_QUERIES] = has_shift ? &n_queries : NULL};
    const struct mist_cuda_sdpa_plan *info = &entry->info;
    void *workspace = at(tensors->workspace, info->workspace_bytes - info->engine_bytes);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    for (int64_t i = 0; i < shape->b; i += info->chunk_b)
        for (int64_t j = 0; j < shape->kv_heads; j += info->chunk_kv_heads) {
            locate(entry, tensors, i, j, pointers);
            if (status == CUDNN_STATUS_SUCCESS)
                status = execute(sdpa, entry, pointers, workspace);
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

/* Bytes of so many heads in bf16. */
static int64_t heads_bytes(int64_t heads, const struct mist_cpu_attention *shape)
{
    return 2 * heads * shape->head_dim;
}

enum mist_status mist_cuda_sdpa_forward(struct mist_cuda_sdpa *sdpa,
                                        mist_cuda_stream stream, void *out, float *lse,
                                        const void *qkv,
                                        const struct mist_cpu_attention *shape,
                                        void *workspace, int64_t workspace_bytes,
                                        struct mist_err *err)
{
    const struct mist_sdpa_shape whole = whole_of(shape);
    const struct tensors tensors = {.q = qkv,
                                    .k = at(qkv, heads_bytes(shape->heads, shape)),
                                    .out = out,
                                    .lse = (char *)lse,
                                    .workspace = workspace};
    return run(
        sdpa, stream,
        find(sdpa, &whole, MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST, workspace_bytes),
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
    const struct mist_sdpa_shape whole = whole_of(shape);
    int64_t first_key = heads_bytes(shape->heads, shape);
    const struct tensors tensors = {.q = qkv,
                                    .k = at(qkv, first_key),
                                    .out = out,
                                    .d_out = d_out,
                                    .dq = dqkv,
                                    .dk = at(dqkv, first_key),
                                    .lse = (const char *)lse,
                                    .workspace = workspace};
    return run(sdpa, stream,
               find(sdpa, &whole, MIST_CUDA_SDPA_BACKWARD, form, workspace_bytes),
               &tensors, err);
}

/* Where a chunk's queries begin, in bytes. */
struct offsets {
    int64_t qkv, out, lse;
};

static struct offsets offsets_of(const struct mist_cpu_attention_part *part, int i_chunk)
{
    const struct mist_cpu_attention *whole = &part->whole;
    int64_t first = i_chunk * (whole->s / (2 * part->n));

    return (struct offsets){
        first * heads_bytes(whole->heads + 2 * whole->kv_heads, whole),
        first * heads_bytes(whole->heads, whole), first * whole->b * whole->heads * 4};
}

enum mist_status mist_cuda_sdpa_forward_part(
    struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream, void *out, float *lse,
    const void *qkv, const void *kv, const struct mist_cpu_attention_part *part,
    int i_chunk, void *workspace, int64_t workspace_bytes, struct mist_err *err)
{
    const struct mist_sdpa_shape shape = part_of(part, i_chunk);
    const struct offsets offsets = offsets_of(part, i_chunk);
    const struct tensors tensors = {.q = at(qkv, offsets.qkv),
                                    .k = kv,
                                    .out = at(out, offsets.out),
                                    .lse = at((char *)lse, offsets.lse),
                                    .workspace = workspace};
    return run(
        sdpa, stream,
        find(sdpa, &shape, MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST, workspace_bytes),
        &tensors, err);
}

enum mist_status
mist_cuda_sdpa_backward_part(struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream,
                             void *dqkv, void *dkv, const void *d_out, const void *qkv,
                             const void *kv, const void *out, const float *lse,
                             const struct mist_cpu_attention_part *part, int i_chunk,
                             enum mist_cuda_sdpa_form form, void *workspace,
                             int64_t workspace_bytes, struct mist_err *err)
{
    const struct mist_sdpa_shape shape = part_of(part, i_chunk);
    const struct offsets offsets = offsets_of(part, i_chunk);
    const struct tensors tensors = {.q = at(qkv, offsets.qkv),
                                    .k = kv,
                                    .out = at(out, offsets.out),
                                    .d_out = at(d_out, offsets.out),
                                    .dq = at(dqkv, offsets.qkv),
                                    .dk = dkv,
                                    .lse = at((const char *)lse, offsets.lse),
                                    .workspace = workspace};
    return run(sdpa, stream,
               find(sdpa, &shape, MIST_CUDA_SDPA_BACKWARD, form, workspace_bytes),
               &tensors, err);
}

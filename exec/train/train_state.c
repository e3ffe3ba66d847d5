/* State out of ranks and into them. See train_state.h. */
#include "exec/train/train_state.h"

#include "core/memory.h"
#include "exec/operators/cpu_bf16.h" /* weights as computed with */

#include <stdlib.h>
#include <string.h>

/* What is stored: weights, of which those that are computed with follow, and moments. */
static const enum mist_state_kind stored_kinds[] = {MIST_STATE_WEIGHT, MIST_STATE_MOMENT1,
                                                    MIST_STATE_MOMENT2};
enum { N_STORED_KINDS = sizeof stored_kinds / sizeof *stored_kinds };

static const char *name_of(char name[MIST_CHECKPOINT_NAME_BYTES],
                           const struct mist_state_piece *piece)
{
    enum mist_checkpoint_kind kind =
        piece->kind == MIST_STATE_MOMENT1   ? MIST_CHECKPOINT_MOMENT1
        : piece->kind == MIST_STATE_MOMENT2 ? MIST_CHECKPOINT_MOMENT2
                                            : MIST_CHECKPOINT_WEIGHT;

    return mist_checkpoint_name(name, piece->layer, piece->param_name, kind);
}

/* ----------------------------------------------------------------------------- saving */

static enum mist_status save_piece(void *writer, const struct mist_state_piece *piece,
                                   const void *data, struct mist_err *err)
{
    char name[MIST_CHECKPOINT_NAME_BYTES];

    return mist_checkpoint_add_piece(writer, name_of(name, piece),
                                     piece->shape->rows * piece->shape->columns,
                                     &piece->span, 1, data, err);
}

static enum mist_status save_rank(const struct mist_runtime *runtime, int32_t rank,
                                  const struct mist_checkpoint_save *save,
                                  struct mist_err *err)
{
    struct mist_checkpoint_writer *writer;
    enum mist_status status = mist_checkpoint_writer_open(save, rank, &writer, err);

    if (status != MIST_OK)
        return status;
    for (int i = 0; i < N_STORED_KINDS && status == MIST_OK; i++) {
        struct mist_state_choice all = {.kind = stored_kinds[i], .is_owned_only = true};
        status = mist_runtime_read_state(runtime, &all, save_piece, writer, err);
    }
    if (status == MIST_OK)
        return mist_checkpoint_writer_close(writer, err);
    mist_checkpoint_writer_abort(writer);
    return status;
}

struct saving {
    const struct mist_checkpoint_save *save;
    const struct mist_runtime *runtime;
    int32_t rank;
    const struct mist_model *model;
    const json_t *training;
    int32_t keep;
    const struct mist_checkpoint_lock *lock;
    struct mist_err *warning;
    enum mist_status failure; /* what saving came to, with why */
    struct mist_err why;
};

/* Before anything is written: a folder that is gone would be made again, and be nobody's.
 */
static enum mist_status check_lock(void *context, struct mist_err *err)
{
    const struct saving *at = context;

    return at->lock ? mist_checkpoint_check_lock(at->lock, err) : MIST_OK;
}

static enum mist_status write_part(void *context, struct mist_err *err)
{
    const struct saving *at = context;

    return save_rank(at->runtime, at->rank, at->save, err);
}

static enum mist_status commit(void *context, struct mist_err *err)
{
    const struct saving *at = context;
    enum mist_status status = check_lock(context, err); /* writing may take long */

    if (status != MIST_OK || at->rank != 0)
        return status;
    return mist_checkpoint_commit(at->save, at->model, at->training, at->keep,
                                  at->warning, err);
}

/* A disk's failure, the same on all ranks, or what it comes from: a folder that went away
 * meanwhile. */
static enum mist_status explain(void *context, struct mist_err *err)
{
    const struct saving *at = context;
    enum mist_status status = check_lock(context, err);

    if (status != MIST_OK)
        return status;
    *err = at->why;
    return at->failure;
}

enum mist_status mist_train_save(const struct mist_runtime *runtime,
                                 struct mist_comm *comm,
                                 const struct mist_train_saving *saving, int64_t step,
                                 const struct mist_model *model, const json_t *training,
                                 struct mist_err *warning, struct mist_err *err)
{
    const struct mist_checkpoint_save save = {saving->dir, saving->run_id, step,
                                              mist_comm_n_ranks(comm)};
    struct saving at = {.save = &save,
                        .runtime = runtime,
                        .rank = mist_comm_rank(comm),
                        .model = model,
                        .training = training,
                        .keep = saving->keep,
                        .lock = saving->lock,
                        .warning = warning};

    *warning = (struct mist_err){0};
    enum mist_status status = mist_comm_work_together(comm, check_lock, &at, err);
    if (status != MIST_OK)
        return status;
    status = mist_comm_work_together(comm, write_part, &at, err);
    if (status == MIST_OK)
        status = mist_comm_work_together(comm, commit, &at, err);
    if (status != MIST_OK && at.rank == 0)
        mist_checkpoint_discard(&save);
    if (status != MIST_ERR_IO && status != MIST_ERR_INPUT)
        return status;
    at.failure = status;
    at.why = *err;
    return mist_comm_work_together(comm, explain, &at, err);
}

/* ---------------------------------------------------------------------------- loading */

/* Reads spans of a whole parameter: span s to out + s.local_first. */
typedef enum mist_status read_fn(void *source, const struct mist_state_piece *piece,
                                 float *out, struct mist_err *err);

struct load {
    read_fn *read;
    void *source;
};

static enum mist_status read_checkpoint(void *source,
                                        const struct mist_state_piece *piece, float *out,
                                        struct mist_err *err)
{
    char name[MIST_CHECKPOINT_NAME_BYTES];

    return mist_checkpoint_read_spans(source, name_of(name, piece), &piece->span, 1, out,
                                      err);
}

static enum mist_status read_hf(void *source, const struct mist_state_piece *piece,
                                float *out, struct mist_err *err)
{
    return mist_hf_read_spans(source, piece->layer, piece->param_name, &piece->span, 1,
                              out, err);
}

static enum mist_status load_piece(void *context, const struct mist_state_piece *piece,
                                   void *data, struct mist_err *err)
{
    const struct load *at = context;

    if (piece->kind != MIST_STATE_COMPUTE_WEIGHT)
        return at->read(at->source, piece, data, err);
    /* bf16: rounded from what the master gets, as the optimizer does */
    int64_t n = mist_state_piece_elements(piece);
    float *exact = malloc((size_t)n * sizeof *exact);
    if (!exact)
        return mist_err_memory(err, NULL);
    enum mist_status status = at->read(at->source, piece, exact, err);
    if (status == MIST_OK)
        mist_cpu_bf16_from_float(data, exact, n);
    free(exact);
    return status;
}

static enum mist_status load_weights(const struct mist_runtime *runtime, struct load *at,
                                     struct mist_err *err)
{
    enum mist_status status =
        mist_runtime_write_state(runtime, MIST_STATE_WEIGHT, load_piece, at, err);
    if (status == MIST_OK)
        status = mist_runtime_write_state(runtime, MIST_STATE_COMPUTE_WEIGHT, load_piece,
                                          at, err);
    return status;
}

enum mist_status mist_train_load(const struct mist_runtime *runtime,
                                 struct mist_checkpoint *checkpoint, struct mist_err *err)
{
    struct load at = {.read = read_checkpoint, .source = checkpoint};
    enum mist_status status = load_weights(runtime, &at, err);

    for (int i = 1; i < N_STORED_KINDS && status == MIST_OK; i++)
        status = mist_runtime_write_state(runtime, stored_kinds[i], load_piece, &at, err);
    return status;
}

enum mist_status mist_train_import(const struct mist_runtime *runtime,
                                   const struct mist_hf *hf, struct mist_err *err)
{
    struct load at = {.read = read_hf, .source = (void *)hf}; /* only read */

    return load_weights(runtime, &at, err);
}

/* -------------------------------------------------------------------------- exporting */

/* What a rank has of one parameter: for every piece a span, then its elements. */
struct parcel {
    char *bytes; /* owned */
    size_t n, capacity;
};

static enum mist_status pack_piece(void *context, const struct mist_state_piece *piece,
                                   const void *data, struct mist_err *err)
{
    struct parcel *at = context;
    size_t size = (size_t)mist_state_piece_elements(piece) * sizeof(float);

    if (!MIST_RESERVE(at->bytes, at->capacity, at->n + sizeof piece->span + size))
        return mist_err_memory(err, NULL);
    memcpy(at->bytes + at->n, &piece->span, sizeof piece->span);
    memcpy(at->bytes + at->n + sizeof piece->span, data, size);
    at->n += sizeof piece->span + size;
    return MIST_OK;
}

/* Puts the pieces of all ranks into out[n]; false unless they fill it. */
static bool unpack(const char *bytes, int64_t n_bytes, float *out, int64_t n)
{
    int64_t n_filled = 0;

    while (n_bytes > 0) {
        struct mist_param_span span;
        memcpy(&span, bytes, sizeof span);
        bytes += sizeof span;
        for (int64_t i = 0; i < span.n_runs; i++) {
            memcpy(out + span.global_first + i * span.global_stride, bytes,
                   (size_t)span.length * sizeof *out);
            bytes += (size_t)span.length * sizeof *out;
        }
        n_filled += span.n_runs * span.length;
        n_bytes -=
            (int64_t)sizeof span + span.n_runs * span.length * (int64_t)sizeof(float);
    }
    return n_filled == n;
}

struct export
{
    const struct mist_runtime *runtime;
    struct mist_comm *comm;
    int64_t *sizes; /* owned; [n_ranks] */
};

/* A whole parameter to rank 0; out: [n] there. */
static enum mist_status bring(void *context, int32_t module, const char *param, int64_t n,
                              float *out, struct mist_err *err)
{
    struct export *at = context;
    struct mist_state_choice choice = {.kind = MIST_STATE_WEIGHT,
                                       .is_owned_only = true,
                                       .layer = module,
                                       .param_name = param};
    struct parcel parcel = {0};
    char *all = NULL;
    int64_t n_bytes = 0;
    enum mist_status status =
        mist_runtime_read_state(at->runtime, &choice, pack_piece, &parcel, err);

    if (status == MIST_OK)
        status = mist_comm_gather_bytes(at->comm, parcel.bytes, (int64_t)parcel.n, &all,
                                        at->sizes, err);
    if (status == MIST_OK && all) {
        for (int32_t i = 0; i < mist_comm_n_ranks(at->comm); i++)
            n_bytes += at->sizes[i];
        if (!unpack(all, n_bytes, out, n))
            status = mist_err_set(err, MIST_ERR_RUN,
                                  "the ranks do not have all of %s of module %d", param,
                                  (int)module);
    }
    free(parcel.bytes);
    free(all);
    return status;
}

enum mist_status mist_train_export(const struct mist_runtime *runtime,
                                   struct mist_comm *comm, const struct mist_model *model,
                                   int32_t n_positions, const char *folder,
                                   enum mist_dtype dtype, bool force,
                                   struct mist_err *err)
{
    struct mist_hf_param params[MIST_HF_MAX_PARAMS];
    struct export at = {.runtime = runtime,
                        .comm = comm,
                        .sizes =
                            calloc((size_t)mist_comm_n_ranks(comm), sizeof *at.sizes)};
    enum mist_status status = MIST_OK;

    if (!at.sizes)
        return mist_err_memory(err, NULL);
    if (mist_comm_rank(comm) == 0) {
        status = mist_hf_save(folder, model, n_positions, dtype, force, bring, &at, err);
    } else { /* in the order that mist_hf_save() asks for them */
        for (int32_t module = 0; module <= model->n_layers + 1; module++) {
            int32_t n = mist_hf_params(model, module, params);
            for (int32_t i = 0; i < n && status == MIST_OK; i++)
                status = bring(&at, module, params[i].name, 0, NULL, err);
        }
    }
    free(at.sizes);
    return status;
}

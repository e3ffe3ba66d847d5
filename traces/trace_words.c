/* Words and shapes of trace sets. See trace_set.h. */
#include "core/parse.h"
#include "traces/trace_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

const char *const mist_trace_backend_words[] = {"cpu", "cuda", "datasheet", NULL};
const char *const mist_trace_dtype_words[] = {"fp32", "tf32", "fp16",
                                              "bf16", "fp8",  NULL};
const char *const mist_phase_words[] = {"forward", "backward_input", "backward_weight",
                                        "optimizer", NULL};
const char *const mist_link_operation_words[] = {
    "all_reduce",     "all_gather", "reduce_scatter", "send_recv", "host_to_device",
    "device_to_host", NULL,
};
const char *const mist_mechanism_words[] = {
    "compute",         "pipeline",          "data_parallel", "zero3",
    "tensor_parallel", "sequence_parallel", "offload",       NULL,
};

#define N_WORDS(words) (sizeof(words) / sizeof *(words)-1)
_Static_assert(N_WORDS(mist_trace_backend_words) == MIST_N_TRACE_BACKENDS,
               "one word per backend");
_Static_assert(N_WORDS(mist_trace_dtype_words) == MIST_N_TRACE_DTYPES,
               "one word per dtype");
_Static_assert(N_WORDS(mist_phase_words) == MIST_N_PHASES, "one word per phase");
_Static_assert(N_WORDS(mist_link_operation_words) == MIST_N_LINK_OPERATIONS,
               "one word per operation");
_Static_assert(N_WORDS(mist_mechanism_words) == MIST_N_MECHANISMS,
               "one word per mechanism");

/* ---- channels ---- */

void mist_channels_to_text(unsigned channels, char text[MIST_CHANNELS_TEXT_MAX])
{
    text[0] = '\0';
    for (int i = 0; i < MIST_N_CHANNELS; i++)
        if (channels & 1u << i)
            mist_text_add(text, MIST_CHANNELS_TEXT_MAX, "+", "%s",
                          mist_stream_name((enum mist_stream)i));
}

bool mist_channels_from_text(const char *text, unsigned *out)
{
    char canonical[MIST_CHANNELS_TEXT_MAX];

    /* Fifteen sets: trying each is shorter than a parser and
     * accepts the canonical text only. */
    for (unsigned channels = 1; channels < 1u << MIST_N_CHANNELS; channels++) {
        mist_channels_to_text(channels, canonical);
        if (strcmp(canonical, text) == 0) {
            *out = channels;
            return true;
        }
    }
    return false;
}

/* ---- shapes ---- */

/* Reads the n characters "name=value" into the next dimension of shape. */
static enum mist_status parse_dim(const char *text, size_t n, struct mist_shape *shape,
                                  struct mist_err *err)
{
    char name[MIST_SHAPE_NAME_BYTES] = "", value[24] = "";
    const char *equals = memchr(text, '=', n);
    size_t n_name = equals ? (size_t)(equals - text) : 0;
    size_t n_value = equals ? n - n_name - 1 : 0;

    if (shape->n_dims == MIST_SHAPE_MAX_DIMS)
        return mist_err_set(err, MIST_ERR_INPUT, "shape has more than %d dimensions",
                            MIST_SHAPE_MAX_DIMS);
    if (n_name < sizeof name)
        memcpy(name, text, n_name);
    if (!mist_words_is_name(name, sizeof name))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "shape has '%.*s', expected name=integer with a name of a-z, "
                            "0-9 and _ of fewer than %d characters",
                            (int)(n < 64 ? n : 64), text, MIST_SHAPE_NAME_BYTES);
    if (mist_shape_get(shape, name))
        return mist_err_set(err, MIST_ERR_INPUT, "shape has %s twice", name);
    if (n_value < sizeof value)
        memcpy(value, equals + 1, n_value);

    int64_t number = 0;
    if (value[0] < '1' || value[0] > '9' ||
        mist_parse_int64(value, &number, NULL) != MIST_OK)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "shape has %s=%.*s, expected an integer above 0 in plain digits", name,
            (int)(n_value < 64 ? n_value : 64), equals + 1);
    memcpy(shape->dims[shape->n_dims].name, name, sizeof name);
    shape->dims[shape->n_dims++].value = number;
    return MIST_OK;
}

enum mist_status mist_shape_parse(const char *text, struct mist_shape *out,
                                  struct mist_err *err)
{
    struct mist_shape shape = {0};

    for (const char *dim = text;;) {
        size_t n = strcspn(dim, ";");
        enum mist_status status = parse_dim(dim, n, &shape, err);
        if (status != MIST_OK)
            return status;
        if (!dim[n])
            break;
        dim += n + 1;
    }
    *out = shape;
    return MIST_OK;
}

void mist_shape_format(const struct mist_shape *shape, char text[MIST_SHAPE_TEXT_MAX])
{
    assert(shape->n_dims >= 0 && shape->n_dims <= MIST_SHAPE_MAX_DIMS);
    text[0] = '\0';
    for (int i = 0; i < shape->n_dims; i++)
        mist_text_add(text, MIST_SHAPE_TEXT_MAX, ";", "%s=%" PRId64, shape->dims[i].name,
                      shape->dims[i].value);
}

int64_t mist_shape_get(const struct mist_shape *shape, const char *name)
{
    for (int i = 0; i < shape->n_dims; i++)
        if (strcmp(shape->dims[i].name, name) == 0)
            return shape->dims[i].value;
    return 0;
}

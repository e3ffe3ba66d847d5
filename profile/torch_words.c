/* Operators of PyTorch. See torch_words.h. */
#include "profile/torch_words.h"

#include "core/memory.h"
#include "core/parse.h"

#include <string.h>

enum { MAX_TENSOR_DIMS = 8 };
#define SIZE_LIMIT ((int64_t)1 << 40) /* beyond any device */

enum inputs {
    PRODUCT,     /* a [m, k], b [k, n] */
    ROWS,        /* x [.., hidden] */
    ELEMENTS,    /* x [..] */
    HEADS_FIRST, /* q, k, v [batch, heads, seq, head_dim] */
    HEADS_LAST /* q, k, v [batch, seq, heads, head_dim]; behind `causal`: how far back */
};

/* clang-format off */
#define FORWARD  MIST_PHASE_FORWARD
#define BACKWARD MIST_PHASE_BACKWARD_INPUT
#define SDPA(what) "aten::_scaled_dot_product_" what

static const struct word {
    const char *name;
    enum inputs inputs;
    int8_t first;  /* input that these begin with */
    int8_t causal; /* input that says whether attention is; 0: it is no attention */
    enum mist_op op;
    enum mist_phase phase;
} words[] = {
    {"aten::mm", PRODUCT, 0, 0, MIST_OP_LINEAR, FORWARD},
    {"aten::addmm", PRODUCT, 1, 0, MIST_OP_LINEAR, FORWARD}, /* bias first */
    {"aten::native_layer_norm", ROWS, 0, 0, MIST_OP_LAYER_NORM, FORWARD},
    {"aten::native_layer_norm_backward", ROWS, 0, 0, MIST_OP_LAYER_NORM, BACKWARD},
    {"FusedLayerNormAffineFunction", ROWS, 0, 0, MIST_OP_LAYER_NORM, FORWARD}, /* Apex */
    {"FusedLayerNormAffineFunctionBackward", ROWS, 0, 0, MIST_OP_LAYER_NORM, BACKWARD},
    {"aten::_fused_rms_norm", ROWS, 0, 0, MIST_OP_RMS_NORM, FORWARD},
    {"aten::_fused_rms_norm_backward", ROWS, 0, 0, MIST_OP_RMS_NORM, BACKWARD},
    {"aten::gelu", ELEMENTS, 0, 0, MIST_OP_GELU, FORWARD},
    {"aten::gelu_backward", ELEMENTS, 0, 0, MIST_OP_GELU, BACKWARD},
    {SDPA("flash_attention"), HEADS_FIRST, 0, 4, MIST_OP_ATTENTION, FORWARD},
    {SDPA("flash_attention_backward"), HEADS_FIRST, 1, 11, MIST_OP_ATTENTION, BACKWARD},
    {SDPA("cudnn_attention"), HEADS_FIRST, 0, 6, MIST_OP_ATTENTION, FORWARD},
    {SDPA("cudnn_attention_backward"), HEADS_FIRST, 1, 14, MIST_OP_ATTENTION, BACKWARD},
    {SDPA("efficient_attention"), HEADS_FIRST, 0, 6, MIST_OP_ATTENTION, FORWARD},
    {SDPA("efficient_attention_backward"), HEADS_FIRST, 1, 11, MIST_OP_ATTENTION, BACKWARD},
    {"flash_attn::_flash_attn_forward", HEADS_LAST, 0, 5, MIST_OP_ATTENTION, FORWARD},
    {"flash_attn::_flash_attn_backward", HEADS_LAST, 1, 11, MIST_OP_ATTENTION, BACKWARD},
    {"flash_attn_3::fwd", HEADS_LAST, 0, 24, MIST_OP_ATTENTION, FORWARD},
    {"flash_attn_3::bwd", HEADS_LAST, 1, 16, MIST_OP_ATTENTION, BACKWARD},
};
/* clang-format on */

/* Element i of a list of args, "Input Dims" for one; value NULL: there is none. */
static struct mist_json input(const struct mist_json *list, int i)
{
    return mist_json_element(list, (size_t)i);
}

static bool get_list(const struct mist_json *args, const char *key, struct mist_json *out)
{
    return mist_json_get_array(args, key, MIST_JSON_REQUIRED, out, NULL) == MIST_OK;
}

/* Dimensions of input i; 0: it is no tensor. */
static int read_dims(const struct mist_json *args, int i, int64_t dims[MAX_TENSOR_DIMS])
{
    struct mist_json list, tensor;

    if (!get_list(args, "Input Dims", &list))
        return 0;
    tensor = input(&list, i);
    size_t n = tensor.value ? mist_json_size(&tensor) : 0;
    if (n == 0 || n > MAX_TENSOR_DIMS)
        return 0;
    for (size_t k = 0; k < n; k++) {
        struct mist_json dim = mist_json_element(&tensor, k);
        if (mist_json_as_int64(&dim, 1, SIZE_LIMIT, &dims[k], NULL) != MIST_OK)
            return 0;
    }
    return (int)n;
}

static bool read_dtype(const struct mist_json *args, int i, enum mist_trace_dtype *out)
{
    static const struct {
        const char *name;
        enum mist_trace_dtype dtype;
    } types[] = {{"float", MIST_TRACE_FP32},
                 {"c10::Half", MIST_TRACE_FP16},
                 {"c10::BFloat16", MIST_TRACE_BF16}};
    struct mist_json list, type;
    const char *name;

    if (!get_list(args, "Input type", &list))
        return false;
    type = input(&list, i);
    if (!type.value || mist_json_as_string(&type, &name, NULL) != MIST_OK)
        return false;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (strcmp(types[k].name, name) == 0) {
            *out = types[k].dtype;
            return true;
        }
    return false;
}

/* The value of input i; "": the trace does not say. */
static const char *concrete(const struct mist_json *args, int i)
{
    struct mist_json list, value;
    const char *text = "";

    if (!get_list(args, "Concrete Inputs", &list))
        return "";
    value = input(&list, i);
    return value.value && mist_json_as_string(&value, &text, NULL) == MIST_OK ? text : "";
}

/* Whether attention is causal, over all of seq tokens. The trace may not say, and then it is
 * taken to be. */
static bool is_causal(const struct word *word, const struct mist_json *args, int64_t seq)
{
    int64_t window; /* -1: no bound */
    bool is_bounded =
        word->inputs == HEADS_LAST &&
        mist_parse_int64(concrete(args, word->causal + 1), &window, NULL) == MIST_OK &&
        window >= 0 && window < seq - 1;

    return strcmp(concrete(args, word->causal), "False") != 0 && !is_bounded;
}

static bool read_product(const struct mist_json *args, int first, int64_t mnk[3])
{
    int64_t a[MAX_TENSOR_DIMS], b[MAX_TENSOR_DIMS];

    if (read_dims(args, first, a) != 2 || read_dims(args, first + 1, b) != 2 ||
        a[1] != b[0])
        return false;
    mnk[0] = a[0];
    mnk[1] = b[1];
    mnk[2] = a[1];
    return true;
}

/* Product of n sizes; false: beyond any device. */
static bool multiply(const int64_t *sizes, int n, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < n; i++)
        if (!mist_size_mul(*out, sizes[i], out) || *out > SIZE_LIMIT)
            return false;
    return true;
}

/* out: batch, seq, heads, kv_heads, head_dim. */
static bool read_heads(const struct mist_json *args, int first, bool is_last,
                       int64_t out[5])
{
    int heads = is_last ? 2 : 1, seq = is_last ? 1 : 2;
    int64_t q[MAX_TENSOR_DIMS], k[MAX_TENSOR_DIMS], v[MAX_TENSOR_DIMS];

    if (read_dims(args, first, q) != 4 || read_dims(args, first + 1, k) != 4 ||
        read_dims(args, first + 2, v) != 4)
        return false;
    if (memcmp(k, v, 4 * sizeof *k) != 0 || q[0] != k[0] || q[seq] != k[seq] ||
        q[3] != k[3] || q[heads] % k[heads] != 0)
        return false;
    out[0] = q[0];
    out[1] = q[seq];
    out[2] = q[heads];
    out[3] = k[heads];
    out[4] = q[3];
    return true;
}

static bool read_shape(const struct word *word, const struct mist_json *args,
                       int64_t dims[MIST_MAX_DIMS])
{
    int64_t x[MAX_TENSOR_DIMS];
    int n;

    switch (word->inputs) {
    case PRODUCT:
        return read_product(args, word->first, dims);
    case ROWS:
        n = read_dims(args, word->first, x);
        dims[1] = n > 0 ? x[n - 1] : 0;
        return n > 0 && multiply(x, n - 1, &dims[0]);
    case ELEMENTS:
        n = read_dims(args, word->first, x);
        return n > 0 && multiply(x, n, &dims[0]);
    case HEADS_FIRST:
    case HEADS_LAST:
        break;
    }
    return read_heads(args, word->first, word->inputs == HEADS_LAST, dims) &&
           is_causal(word, args, dims[1]);
}

bool mist_torch_read_use(const char *name, const struct mist_json *args,
                         struct mist_torch_use *out)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const struct word *word = &words[i];
        struct mist_torch_use use = {
            .is_product = word->inputs == PRODUCT, .op = word->op, .phase = word->phase};
        if (strcmp(word->name, name) != 0)
            continue;
        if (!read_dtype(args, word->first, &use.dtype) ||
            !read_shape(word, args, use.dims))
            return false;
        *out = use;
        return true;
    }
    return false;
}

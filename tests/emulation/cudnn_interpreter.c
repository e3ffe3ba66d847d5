/*
 * cuDNN's backend interface, interpreted on the CPU: for tests of graphs without a GPU.
 *
 * A library with the few functions that exec/cuda loads of cuDNN. It keeps what is set in
 * descriptors, and executes a plan by computing one operation after another, each result
 * as a whole in memory of its own, rounded to the tensor's number format. "Device" memory
 * is the host's. What the real library checks of a graph is not checked; but every tensor
 * in memory has to be in the variant pack and aligned, and a reshape has to be a
 * transpose that its strides really describe.
 *
 * What a graph means is NVIDIA's documentation of the backend interface. A plan asks for
 * 256 bytes of workspace, which are filled with a pattern when it is executed.
 *
 * Its name is cuDNN's: loaded before, it is what a program finds as libcudnn.so.9. With
 * MIST_CUDNN_INTERPRETER=refuses it gives no handles.
 */
#include <cudnn.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ATTRIBUTES = 12, WORKSPACE_BYTES = 256, ALIGNMENT = 16 };

struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t n;
    void *values;
};

struct thing {
    cudnnBackendDescriptorType_t type;
    struct attribute attributes[MAX_ATTRIBUTES];
    int n_attributes;
    bool is_final;
    double *values; /* of a tensor, dense, while a plan is executed */
};

/* ------------------------------------------------------------------------- attributes */

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return sizeof(cudnnDataType_t); /* the enumerations */
    }
}

static const struct attribute *find(const struct thing *thing,
                                    cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < thing->n_attributes; i++)
        if (thing->attributes[i].name == name)
            return &thing->attributes[i];
    return NULL;
}

static const int64_t *numbers(const struct thing *thing, cudnnBackendAttributeName_t name)
{
    return find(thing, name)->values;
}

static bool flag(const struct thing *thing, cudnnBackendAttributeName_t name)
{
    return *(const bool *)find(thing, name)->values;
}

/* The enumerations of cuDNN are unsigned. */
static unsigned word(const struct thing *thing, cudnnBackendAttributeName_t name)
{
    unsigned out;
    memcpy(&out, find(thing, name)->values, sizeof out);
    return out;
}

/* NULL: not set. */
static struct thing *child(const struct thing *thing, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = find(thing, name);
    return a ? *(struct thing **)a->values : NULL;
}

/* ---------------------------------------------------------------------------- tensors */

static const int64_t *dims_of(const struct thing *tensor)
{
    return numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
}

static const int64_t *strides_of(const struct thing *tensor)
{
    return numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES);
}

static int64_t size(const struct thing *tensor)
{
    const int64_t *n = dims_of(tensor);
    return n[0] * n[1] * n[2] * n[3];
}

static void split(const struct thing *tensor, int64_t i, int64_t at[4])
{
    const int64_t *n = dims_of(tensor);
    for (int d = 3; d >= 0; i /= n[d], d--)
        at[d] = i % n[d];
}

static int64_t offset(const struct thing *tensor, int64_t i)
{
    const int64_t *stride = strides_of(tensor);
    int64_t at[4];
    split(tensor, i, at);
    return at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3];
}

/* Value at a position of another tensor, of which this one may be a smaller one: dims of
 * 1 are repeated, fewer heads are shared out. */
static double value_at(const struct thing *tensor, const int64_t at[4], int64_t n_heads)
{
    const int64_t *n = dims_of(tensor);
    int64_t i0 = n[0] == 1 ? 0 : at[0], i2 = n[2] == 1 ? 0 : at[2];
    int64_t i1 = at[1] / (n_heads / n[1]), i3 = n[3] == 1 ? 0 : at[3];
    return tensor->values[((i0 * n[1] + i1) * n[2] + i2) * n[3] + i3];
}

static float bf16_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float out;
    memcpy(&out, &wide, sizeof out);
    return out;
}

static uint16_t bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static double round_to(double x, unsigned type)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return (double)bf16_to_float(bf16_from_float((float)x));
    return (double)(float)x;
}

/* Address from the variant pack; NULL: not there, or not aligned. */
static char *address_of(const struct thing *tensor, const struct thing *pack)
{
    const struct attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *pointers = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t id = *numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    bool is_value = flag(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE);

    for (int64_t i = 0; i < ids->n && i < pointers->n; i++) {
        char *address = ((char **)pointers->values)[i];
        if (((int64_t *)ids->values)[i] == id)
            return is_value || (uintptr_t)address % ALIGNMENT == 0 ? address : NULL;
    }
    return NULL;
}

/* Fills the values of a tensor in memory; those of a virtual one are there already. */
static bool load(struct thing *tensor, const struct thing *pack)
{
    if (tensor->values)
        return true;
    char *from = address_of(tensor, pack);
    if (!from || flag(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL))
        return false;
    tensor->values = malloc((size_t)size(tensor) * sizeof *tensor->values);
    if (!tensor->values)
        return false;
    for (int64_t i = 0; i < size(tensor); i++) {
        int64_t at = offset(tensor, i);
        if (word(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16)
            tensor->values[i] = (double)bf16_to_float(((uint16_t *)(void *)from)[at]);
        else
            tensor->values[i] = (double)((float *)(void *)from)[at];
    }
    return true;
}

/* Rounds what was computed and writes it where the tensor is in memory. */
static bool store(struct thing *tensor, const struct thing *pack)
{
    unsigned type = word(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
    bool is_virtual = flag(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    char *to = is_virtual ? NULL : address_of(tensor, pack);

    for (int64_t i = 0; i < size(tensor); i++) {
        tensor->values[i] = round_to(tensor->values[i], type);
        if (to && type == CUDNN_DATA_BFLOAT16)
            ((uint16_t *)(void *)to)[offset(tensor, i)] =
                bf16_from_float((float)tensor->values[i]);
        else if (to)
            ((float *)(void *)to)[offset(tensor, i)] = (float)tensor->values[i];
    }
    return is_virtual || to;
}

/* ------------------------------------------------------------------------- operations */

static double apply(unsigned mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0.0 ? x : b;
    default:
        return (double)NAN;
    }
}

static void run_pointwise(const struct thing *op, const struct thing *x, struct thing *y)
{
    const struct thing *kind = child(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const struct thing *b = child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const struct thing *t = child(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    unsigned mode = word(kind, CUDNN_ATTR_POINTWISE_MODE);
    int64_t at[4], n_heads = dims_of(y)[1];

    for (int64_t i = 0; i < size(y); i++) {
        split(y, i, at);
        if (mode == CUDNN_POINTWISE_GEN_INDEX)
            y->values[i] = (double)at[*numbers(kind, CUDNN_ATTR_POINTWISE_AXIS)];
        else
            y->values[i] =
                apply(mode, value_at(x, at, n_heads), b ? value_at(b, at, n_heads) : 0.0,
                      t ? value_at(t, at, n_heads) : 0.0);
    }
}

static void run_matmul(const struct thing *a, const struct thing *b, struct thing *y)
{
    const int64_t *na = dims_of(a), *nb = dims_of(b), *ny = dims_of(y);

    for (int64_t i = 0; i < size(y); i++) {
        int64_t at[4];
        split(y, i, at);
        int64_t head = at[1] / (ny[1] / nb[1]); /* fewer heads of b are shared out */
        const double *row = a->values + ((at[0] * na[1] + at[1]) * na[2] + at[2]) * na[3];
        const double *column = b->values + (at[0] * nb[1] + head) * nb[2] * nb[3] + at[3];
        y->values[i] = 0.0;
        for (int64_t k = 0; k < na[3]; k++)
            y->values[i] += row[k] * column[k * nb[3]];
    }
}

static void run_reduction(const struct thing *op, const struct thing *x, struct thing *y)
{
    const struct thing *kind = child(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    bool is_max = word(kind, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    const int64_t *n = dims_of(y), *from = dims_of(x);

    for (int64_t i = 0; i < size(y); i++)
        y->values[i] = is_max ? (double)-INFINITY : 0.0;
    for (int64_t i = 0; i < size(x); i++) {
        int64_t at[4];
        split(x, i, at);
        for (int d = 0; d < 4; d++)
            at[d] = at[d] / (from[d] / n[d]);
        double *to = &y->values[((at[0] * n[1] + at[1]) * n[2] + at[2]) * n[3] + at[3]];
        *to = is_max ? fmax(*to, x->values[i]) : *to + x->values[i];
    }
}

/* The same memory with the last two dims exchanged; false: another reshape. */
static bool run_reshape(const struct thing *x, struct thing *y)
{
    static const int from[4] = {0, 1, 3, 2};

    for (int d = 0; d < 4; d++)
        if (dims_of(y)[d] != dims_of(x)[from[d]] ||
            strides_of(y)[d] != strides_of(x)[from[d]])
            return false;
    for (int64_t i = 0; i < size(y); i++) {
        int64_t at[4];
        split(y, i, at);
        y->values[i] =
            value_at(x, (int64_t[]){at[0], at[1], at[3], at[2]}, dims_of(x)[1]);
    }
    return true;
}

/* Where each kind of operation keeps its tensors; b and t may be 0 or unset. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, b, t, y;
} kinds[] = {
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
     CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
     CUDNN_ATTR_OPERATION_MATMUL_CDESC},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
     CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};

static bool run_operation(const struct thing *op, const struct thing *pack)
{
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && kinds[i].type != op->type)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return false;
    struct thing *x = child(op, kinds[i].x), *b = child(op, kinds[i].b);
    struct thing *t = child(op, kinds[i].t), *y = child(op, kinds[i].y);
    if (!load(x, pack) || (b && !load(b, pack)) || (t && !load(t, pack)))
        return false;
    y->values = malloc((size_t)size(y) * sizeof *y->values);
    if (!y->values)
        return false;
    if (op->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        run_pointwise(op, x, y);
    else if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        run_matmul(x, b, y);
    else if (op->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        run_reduction(op, x, y);
    else if (!run_reshape(x, y))
        return false;
    return store(y, pack);
}

static void forget_values(const struct thing *op)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cudnnBackendAttributeName_t names[] = {kinds[i].x, kinds[i].b, kinds[i].t,
                                               kinds[i].y};
        for (int j = 0; j < 4 && kinds[i].type == op->type; j++) {
            struct thing *tensor = child(op, names[j]);
            if (tensor) {
                free(tensor->values);
                tensor->values = NULL;
            }
        }
    }
}

/* ------------------------------------------------------------------ cuDNN's functions */

size_t cudnnGetVersion(void)
{
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "success" : "failure of the interpreter";
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (max_size > 0)
        message[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    static char thing;
    const char *wish = getenv("MIST_CUDNN_INTERPRETER");
    if (wish && strcmp(wish, "refuses") == 0)
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = (cudnnHandle_t)(void *)&thing;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    struct thing *thing = calloc(1, sizeof *thing);
    if (!thing)
        return CUDNN_STATUS_ALLOC_FAILED;
    thing->type = type;
    *descriptor = thing;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    struct thing *thing = descriptor;
    for (int i = 0; i < thing->n_attributes; i++)
        free(thing->attributes[i].values);
    free(thing);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t elementCount, const void *arrayOfElements)
{
    struct thing *thing = descriptor;
    size_t bytes = (size_t)elementCount * size_of(attributeType);

    if (thing->is_final || thing->n_attributes == MAX_ATTRIBUTES ||
        find(thing, attributeName))
        return CUDNN_STATUS_BAD_PARAM;
    struct attribute *a = &thing->attributes[thing->n_attributes];
    *a = (struct attribute){attributeName, elementCount, malloc(bytes)};
    if (!a->values)
        return CUDNN_STATUS_ALLOC_FAILED;
    memcpy(a->values, arrayOfElements, bytes);
    thing->n_attributes++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct thing *thing = descriptor;
    if (thing->is_final)
        return CUDNN_STATUS_BAD_PARAM;
    thing->is_final = true;
    return CUDNN_STATUS_SUCCESS;
}

/* One config, which remembers the graph in place of an engine. */
static cudnnStatus_t give_config(const struct thing *heuristics, struct thing *config)
{
    const struct thing *graph = child(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    return cudnnBackendSetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t requestedElementCount,
                                       int64_t *elementCount, void *arrayOfElements)
{
    int64_t number = attributeName == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
                         ? (int64_t)WORKSPACE_BYTES
                         : 0;

    (void)attributeType;
    if (requestedElementCount < 1)
        return CUDNN_STATUS_BAD_PARAM;
    *elementCount = 1;
    if (attributeName == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return give_config(descriptor, *(struct thing **)arrayOfElements);
    if (attributeName != CUDNN_ATTR_ENGINECFG_ENGINE)
        memcpy(arrayOfElements, &number, sizeof number);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                  cudnnBackendDescriptor_t executionPlan,
                                  cudnnBackendDescriptor_t variantPack)
{
    const struct thing *pack = variantPack;
    const struct thing *config =
        child(executionPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct thing *graph = child(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    const struct attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    bool is_well = handle && pack->is_final;

    memset(*(void **)find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values, 0xFF,
           WORKSPACE_BYTES);
    for (int64_t i = 0; is_well && i < operations->n; i++)
        is_well = run_operation(((struct thing **)operations->values)[i], pack);
    for (int64_t i = 0; i < operations->n; i++)
        forget_values(((struct thing **)operations->values)[i]);
    return is_well ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

#include "exec/cuda/cudnn_graph.h"

#include <dlfcn.h> /* dlopen, dlsym, dlerror */
#include <stdbool.h>
#include <stddef.h> /* offsetof */
#include <string.h> /* memcpy, memset, strlen */

typedef cudnnBackendDescriptor_t descriptor;

/* ------------------------------------------------------------------------ the library */

static const struct {
    const char *name;
    size_t offset; /* in struct mist_cudnn_api */
} functions[] = {
#define ENTRY(function) {#function, offsetof(struct mist_cudnn_api, function)},
    MIST_CUDNN_FUNCTIONS(ENTRY)
#undef ENTRY
};

enum mist_status mist_cudnn_load(const char *path, struct mist_cudnn_api *api,
                                 struct mist_err *err)
{
    void *library =
        dlopen(path ? path : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    *api = (struct mist_cudnn_api){0};
    if (!library)
        return mist_err_set(err, MIST_ERR_RUN,
                            "cuDNN can't be loaded from LD_LIBRARY_PATH, the plugin's "
                            "folder, where CUDA was when the plugin was built, or the "
                            "system's folders: %.200s",
                            dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(library, functions[i].name);
        if (!address)
            return mist_err_set(err, MIST_ERR_RUN, "cuDNN has no %s", functions[i].name);
        memcpy((char *)api + functions[i].offset, &address, sizeof address);
    }
    return MIST_OK;
}

enum mist_status mist_cudnn_fail(const struct mist_cudnn_api *api, cudnnStatus_t status,
                                 const char *what, struct mist_err *err)
{
    char detail[256] = "";

    api->cudnnGetLastErrorString(detail, sizeof detail);
    for (char *c = detail; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return mist_err_set(err,
                        CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED
                            ? MIST_ERR_NO_PLAN
                            : MIST_ERR_RUN,
                        "%s: %s%s%s", what, api->cudnnGetErrorString(status),
                        detail[0] ? ": " : "", detail);
}

/* ------------------------------------------------------------------------ descriptors */

void mist_cudnn_graph_init(struct mist_cudnn_graph *graph,
                           const struct mist_cudnn_api *api, int64_t first_id)
{
    memset(graph, 0, sizeof *graph);
    graph->api = api;
    graph->next_id = first_id;
}

void mist_cudnn_graph_fini(struct mist_cudnn_graph *graph)
{
    while (graph->n_owned > 0)
        graph->api->cudnnBackendDestroyDescriptor(graph->owned[--graph->n_owned]);
}

/* Notes the first failure; true while there is none. */
static bool check(struct mist_cudnn_graph *graph, cudnnStatus_t status, const char *what)
{
    if (graph->status == MIST_OK && status != CUDNN_STATUS_SUCCESS)
        graph->status = mist_cudnn_fail(graph->api, status, what, &graph->err);
    return graph->status == MIST_OK;
}

static descriptor create(struct mist_cudnn_graph *graph,
                         cudnnBackendDescriptorType_t type)
{
    descriptor d = NULL;

    if (graph->status != MIST_OK)
        return NULL;
    if (graph->n_owned == MIST_CUDNN_MAX_DESCRIPTORS) {
        graph->status = mist_err_set(&graph->err, MIST_ERR_RANGE,
                                     "a graph of more than %d descriptors",
                                     MIST_CUDNN_MAX_DESCRIPTORS);
        return NULL;
    }
    if (!check(graph, graph->api->cudnnBackendCreateDescriptor(type, &d),
               "making a cuDNN descriptor"))
        return NULL;
    graph->owned[graph->n_owned++] = d;
    return d;
}

static void set(struct mist_cudnn_graph *graph, descriptor d,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *values)
{
    if (graph->status == MIST_OK)
        check(graph, graph->api->cudnnBackendSetAttribute(d, name, type, n, values),
              "describing a cuDNN graph");
}

static void set_child(struct mist_cudnn_graph *graph, descriptor d,
                      cudnnBackendAttributeName_t name, descriptor child)
{
    set(graph, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
}

static void finalize(struct mist_cudnn_graph *graph, descriptor d)
{
    if (graph->status == MIST_OK)
        check(graph, graph->api->cudnnBackendFinalize(d), "describing a cuDNN graph");
}

descriptor mist_cudnn_device(struct mist_cudnn_graph *graph, const char *json)
{
    descriptor d = create(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);

    set(graph, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(json) + 1, json);
    finalize(graph, d);
    return d;
}

descriptor mist_cudnn_tensor(struct mist_cudnn_graph *graph,
                             const struct mist_cudnn_tensor *tensor)
{
    descriptor d = create(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool is_virtual = tensor->place == MIST_CUDNN_VIRTUAL;
    bool is_by_value = tensor->place == MIST_CUDNN_BY_VALUE;
    int64_t alignment = 16, id = is_virtual ? graph->next_id++ : tensor->id;

    set(graph, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor->type);
    set(graph, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor->dims);
    set(graph, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor->strides);
    set(graph, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(graph, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(graph, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(graph, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
    finalize(graph, d);
    return d;
}

/* ------------------------------------------------------------------------- operations */

static void add_operation(struct mist_cudnn_graph *graph, descriptor operation)
{
    finalize(graph, operation);
    if (graph->status != MIST_OK)
        return;
    if (graph->n_operations == MIST_CUDNN_MAX_OPERATIONS)
        graph->status =
            mist_err_set(&graph->err, MIST_ERR_RANGE,
                         "a graph of more than %d operations", MIST_CUDNN_MAX_OPERATIONS);
    else
        graph->operations[graph->n_operations++] = operation;
}

/* axis < 0: none. */
static descriptor add_pointwise(struct mist_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                                int64_t axis, descriptor x, descriptor b, descriptor t,
                                descriptor y)
{
    cudnnDataType_t precision =
        mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    descriptor kind = create(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(graph, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(graph, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0)
        set(graph, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(graph, kind);

    descriptor op = create(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_child(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_child(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_child(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_child(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_child(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(graph, op);
    return y;
}

descriptor mist_cudnn_pointwise(struct mist_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                                descriptor x, descriptor b, descriptor t, descriptor y)
{
    return add_pointwise(graph, mode, -1, x, b, t, y);
}

descriptor mist_cudnn_index(struct mist_cudnn_graph *graph, int64_t axis, descriptor x,
                            descriptor y)
{
    return add_pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, axis, x, NULL, NULL, y);
}

descriptor mist_cudnn_matmul(struct mist_cudnn_graph *graph, descriptor a, descriptor b,
                             descriptor y)
{
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    descriptor kind = create(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(graph, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finalize(graph, kind);

    descriptor op = create(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_child(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    set_child(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_child(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_child(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    add_operation(graph, op);
    return y;
}

descriptor mist_cudnn_reduce(struct mist_cudnn_graph *graph,
                             cudnnReduceTensorOp_t operation, descriptor x, descriptor y)
{
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    descriptor kind = create(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(graph, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
        &operation);
    set(graph, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finalize(graph, kind);

    descriptor op = create(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_child(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    set_child(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_child(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(graph, op);
    return y;
}

descriptor mist_cudnn_reshape(struct mist_cudnn_graph *graph, descriptor x, descriptor y)
{
    descriptor op = create(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_child(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_child(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, op);
    return y;
}

/* ------------------------------------------------------------------------------ plans */

enum { MAX_CONFIGS = 16 }; /* more than the heuristics list for one graph */

static void set_target(struct mist_cudnn_graph *graph, descriptor d,
                       cudnnBackendAttributeName_t handle_name,
                       cudnnBackendAttributeName_t device_name,
                       const struct mist_cudnn_target *target)
{
    if (target->device)
        set_child(graph, d, device_name, target->device);
    else
        set(graph, d, handle_name, CUDNN_TYPE_HANDLE, 1, &target->handle);
}

/* The operations as one descriptor. */
static descriptor close_graph(struct mist_cudnn_graph *graph,
                              const struct mist_cudnn_target *target)
{
    descriptor d = create(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        graph->n_operations, graph->operations);
    if (target->handle)
        set(graph, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &target->handle);
    finalize(graph, d);
    return d;
}

/* Engines with their settings, the fastest by cuDNN's estimate first; their number. */
static int64_t find_configs(struct mist_cudnn_graph *graph, descriptor closed,
                            const struct mist_cudnn_target *target,
                            descriptor configs[MAX_CONFIGS])
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;

    descriptor heuristics = create(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_child(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, closed);
    set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->device)
        set_child(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->device);
    finalize(graph, heuristics);
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = create(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->status == MIST_OK &&
        !check(graph,
               graph->api->cudnnBackendGetAttribute(
                   heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, configs),
               "asking cuDNN for engines"))
        return 0;
    return n;
}

/* The number of the engine behind a config, -1 unknown: it is only for messages. */
static int64_t engine_of(struct mist_cudnn_graph *graph, descriptor config)
{
    int64_t n = 0, number = -1;
    descriptor engine = create(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

    if (engine && graph->api->cudnnBackendGetAttribute(
                      config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      1, &n, &engine) == CUDNN_STATUS_SUCCESS)
        graph->api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                             CUDNN_TYPE_INT64, 1, &n, &number);
    return number;
}

/*
 * The plan of one config, or NULL: an engine may refuse what the heuristics proposed,
 * which is no error of the graph's. err then says why.
 */
static descriptor build_plan(struct mist_cudnn_graph *graph, descriptor config,
                             const struct mist_cudnn_target *target,
                             int64_t *workspace_bytes, struct mist_err *err)
{
    int64_t n = 0;
    descriptor plan = create(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    set_child(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set_target(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
               CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target);
    if (graph->status != MIST_OK)
        return NULL;
    cudnnStatus_t status = graph->api->cudnnBackendFinalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = graph->api->cudnnBackendGetAttribute(
            plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
            workspace_bytes);
    if (status == CUDNN_STATUS_SUCCESS)
        return plan;
    (void)mist_cudnn_fail(graph->api, status, "cuDNN refuses an engine", err);
    return NULL;
}

enum mist_status mist_cudnn_graph_plan(struct mist_cudnn_graph *graph,
                                       const struct mist_cudnn_target *target,
                                       int64_t limit_bytes, descriptor *plan,
                                       int64_t *workspace_bytes, int64_t *engine,
                                       struct mist_err *err)
{
    descriptor configs[MAX_CONFIGS];
    descriptor closed = close_graph(graph, target);
    int64_t n = find_configs(graph, closed, target, configs), bytes = 0;

    (void)mist_err_set(err, MIST_ERR_NO_PLAN, "cuDNN has no engine for it");
    for (int64_t i = 0; i < n && graph->status == MIST_OK; i++) {
        descriptor built = build_plan(graph, configs[i], target, &bytes, err);
        if (built && bytes <= limit_bytes) {
            *plan = built;
            *workspace_bytes = bytes;
            *engine = engine_of(graph, configs[i]);
            return MIST_OK;
        }
        if (built)
            (void)mist_err_set(err, MIST_ERR_NO_PLAN,
                               "cuDNN wants %lld bytes of workspace, has %lld",
                               (long long)bytes, (long long)limit_bytes);
    }
    if (graph->status != MIST_OK && err)
        *err = graph->err;
    return graph->status != MIST_OK ? graph->status : MIST_ERR_NO_PLAN;
}

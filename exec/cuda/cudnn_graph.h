/*
 * Graphs of cuDNN's backend interface without its ceremony.
 *
 * A graph is described by calls that each add a tensor or an operation and hand back
 * cuDNN's descriptor of it. The first call that fails is kept, with cuDNN's message;
 * those after it do nothing, so that only the end has to look: mist_cudnn_graph_plan(),
 * which asks the heuristics for engines and builds the plan of the first that is within a
 * limit of workspace.
 *
 * For the files of exec/cuda that build such graphs. Needs cuDNN's header, not its
 * library.
 */
#ifndef MIST_EXEC_CUDA_CUDNN_GRAPH_H
#define MIST_EXEC_CUDA_CUDNN_GRAPH_H

#include "core/status.h"

#include <cudnn.h>
#include <stdint.h>

/* What is used of cuDNN, with the types of its header. */
#define MIST_CUDNN_FUNCTIONS(X)                                                          \
    X(cudnnGetVersion)                                                                   \
    X(cudnnGetErrorString)                                                               \
    X(cudnnGetLastErrorString)                                                           \
    X(cudnnCreate)                                                                       \
    X(cudnnDestroy)                                                                      \
    X(cudnnSetStream)                                                                    \
    X(cudnnBackendCreateDescriptor)                                                      \
    X(cudnnBackendDestroyDescriptor)                                                     \
    X(cudnnBackendSetAttribute)                                                          \
    X(cudnnBackendGetAttribute)                                                          \
    X(cudnnBackendFinalize)                                                              \
    X(cudnnBackendExecute)

struct mist_cudnn_api {
#define MIST_CUDNN_MEMBER(name) __typeof__(name) *name;
    MIST_CUDNN_FUNCTIONS(MIST_CUDNN_MEMBER)
#undef MIST_CUDNN_MEMBER
};

/* path NULL: "libcudnn.so.9". Loaded for good: it has threads and exit handlers of its
 * own. MIST_OK or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status
mist_cudnn_load(const char *path, struct mist_cudnn_api *api, struct mist_err *err);

/* Sets err to "what: cuDNN's message"; MIST_ERR_NO_PLAN if that is "not supported", else
 * MIST_ERR_RUN. */
enum mist_status mist_cudnn_fail(const struct mist_cudnn_api *api, cudnnStatus_t status,
                                 const char *what, struct mist_err *err);

enum { MIST_CUDNN_MAX_OPERATIONS = 32, MIST_CUDNN_MAX_DESCRIPTORS = 160 };

/* Everything that was described; a plan refers to it, so it lives as long as that. */
struct mist_cudnn_graph {
    const struct mist_cudnn_api *api;
    cudnnBackendDescriptor_t owned[MIST_CUDNN_MAX_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[MIST_CUDNN_MAX_OPERATIONS];
    int n_owned, n_operations;
    int64_t next_id;         /* of virtual tensors */
    enum mist_status status; /* of the first call that failed */
    struct mist_err err;
};

/* first_id: ids below it are the caller's, for tensors in memory. */
void mist_cudnn_graph_init(struct mist_cudnn_graph *graph,
                           const struct mist_cudnn_api *api, int64_t first_id);
void mist_cudnn_graph_fini(struct mist_cudnn_graph *graph);

/* The description of a device (struct mist_cudnn_target) from text in cuDNN's
 * own keys. */
cudnnBackendDescriptor_t mist_cudnn_device(struct mist_cudnn_graph *graph,
                                           const char *json);

enum mist_cudnn_place {
    MIST_CUDNN_IN_MEMORY, /* the variant pack has its address */
    MIST_CUDNN_BY_VALUE,  /* one element; the variant pack has its address on the host */
    MIST_CUDNN_VIRTUAL,   /* between two operations, never stored; gets an id by itself */
};

struct mist_cudnn_tensor {
    enum mist_cudnn_place place;
    cudnnDataType_t type;
    int64_t id;
    int64_t dims[4], strides[4]; /* in elements */
};

cudnnBackendDescriptor_t mist_cudnn_tensor(struct mist_cudnn_graph *graph,
                                           const struct mist_cudnn_tensor *tensor);

/*
 * Operations; each returns y. Those computed in fp32 but comparisons, which are boolean.
 * b and t are NULL where the mode takes fewer inputs; BINARY_SELECT is t ? x : b. Smaller
 * dims of b are broadcast.
 */
cudnnBackendDescriptor_t
mist_cudnn_pointwise(struct mist_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                     cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y);
/* y = position along an axis, of the shape of x. */
cudnnBackendDescriptor_t mist_cudnn_index(struct mist_cudnn_graph *graph, int64_t axis,
                                          cudnnBackendDescriptor_t x,
                                          cudnnBackendDescriptor_t y);
/* y = a b over the last two dims; heads of b are shared out where it has fewer. */
cudnnBackendDescriptor_t mist_cudnn_matmul(struct mist_cudnn_graph *graph,
                                           cudnnBackendDescriptor_t a,
                                           cudnnBackendDescriptor_t b,
                                           cudnnBackendDescriptor_t y);
/* Over the dims in which y is smaller than x. */
cudnnBackendDescriptor_t mist_cudnn_reduce(struct mist_cudnn_graph *graph,
                                           cudnnReduceTensorOp_t operation,
                                           cudnnBackendDescriptor_t x,
                                           cudnnBackendDescriptor_t y);
/* y is x with other dims and strides: here always its transpose. */
cudnnBackendDescriptor_t mist_cudnn_reshape(struct mist_cudnn_graph *graph,
                                            cudnnBackendDescriptor_t x,
                                            cudnnBackendDescriptor_t y);

/* Where plans are for: one of the two is NULL. */
struct mist_cudnn_target {
    cudnnHandle_t handle;            /* the device of a handle */
    cudnnBackendDescriptor_t device; /* a description of one */
};

/*
 * *plan: what cudnnBackendExecute() takes, owned by the graph. MIST_OK; MIST_ERR_NO_PLAN:
 * no engine within the limit; or what went wrong in describing the graph.
 */
MIST_MUST_CHECK enum mist_status
mist_cudnn_graph_plan(struct mist_cudnn_graph *graph,
                      const struct mist_cudnn_target *target, int64_t limit_bytes,
                      cudnnBackendDescriptor_t *plan, int64_t *workspace_bytes,
                      int64_t *engine, struct mist_err *err);

#endif

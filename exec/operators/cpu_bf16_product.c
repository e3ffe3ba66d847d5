/*
 * bf16: matrix products as compiled oneDNN primitives, kept per shape.
 *
 * oneDNN multiplies bf16 by a primitive alone, which is made for one shape. A context
 * keeps those it has met (a layer needs a few dozen) in a table that is searched from its
 * beginning, and what each thread needs to run them: handles, a stream, scratch.
 * Primitives are made for one thread. Where oneDNN cannot, a product is its shape and
 * scratch for widened operands.
 *
 * Written for oneDNN 2; its C interface changed in 3, which counts as one that cannot.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include "core/memory.h"

#include <assert.h>
#include <dnnl.h>
#include <omp.h>
#include <stdlib.h> /* aligned_alloc, calloc, free */

enum { ARG_A, ARG_B, ARG_C, ARG_SCRATCH, ARG_BIAS, N_ARGS };

enum {
    TILE_BYTES = MIST_CPU_BF16_TILE_ROWS * MIST_CPU_BF16_TILE_COLUMNS * (int)sizeof(float)
};

/* A thread's handles; their addresses are set before each execution. */
struct handles {
    dnnl_memory_t memory[N_ARGS]; /* NULL: not needed */
};

struct product {
    struct mist_cpu_product shape;
    dnnl_primitive_t primitive; /* NULL: widened */
    struct handles *handles;    /* [n_threads] */
};

struct mist_cpu_bf16 {
    dnnl_engine_t engine;
    bool is_widened;
    int n_threads;
    struct thread {
        dnnl_stream_t stream;
        void *scratch; /* scratch_bytes */
        void *tile;
    } * threads;
    size_t scratch_bytes;
    struct product *products;
    size_t n_products, capacity;
};

static bool reserve_scratch(struct mist_cpu_bf16 *context, size_t n_bytes)
{
    if (n_bytes <= context->scratch_bytes)
        return true;
    n_bytes = (n_bytes + 4095) / 4096 * 4096;
    for (int t = 0; t < context->n_threads; t++) {
        void *scratch = aligned_alloc(4096, n_bytes);
        if (scratch == NULL)
            return false; /* those replaced are only larger than they need be */
        free(context->threads[t].scratch);
        context->threads[t].scratch = scratch;
    }
    context->scratch_bytes = n_bytes;
    return true;
}

#if DNNL_VERSION_MAJOR == 2

static dnnl_data_type_t c_type(const struct mist_cpu_product *shape)
{
    return shape->is_float ? dnnl_f32 : dnnl_bf16;
}

static dnnl_status_t describe(dnnl_memory_desc_t desc[N_ARGS],
                              const struct mist_cpu_product *shape)
{
    const dnnl_dims_t a = {shape->m, shape->k}, b = {shape->k, shape->n},
                      c = {shape->m, shape->n};
    const dnnl_dims_t bias = {1, shape->n}, bias_strides = {shape->n, 1};
    const dnnl_dims_t a_strides = {shape->a_strides[0], shape->a_strides[1]};
    const dnnl_dims_t b_strides = {shape->b_strides[0], shape->b_strides[1]};
    const dnnl_dims_t c_strides = {shape->c_stride, 1};
    dnnl_status_t status =
        dnnl_memory_desc_init_by_strides(&desc[ARG_A], 2, a, dnnl_bf16, a_strides);
    if (status == dnnl_success)
        status =
            dnnl_memory_desc_init_by_strides(&desc[ARG_B], 2, b, dnnl_bf16, b_strides);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&desc[ARG_C], 2, c, c_type(shape),
                                                  c_strides);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&desc[ARG_BIAS], 2, bias, dnnl_bf16,
                                                  bias_strides);
    return status;
}

/* Scratch from us: oneDNN's own belongs to the thread that made the primitive. */
static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attr,
                                     const struct mist_cpu_product *shape)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status == dnnl_success)
        status =
            dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !shape->adds)
        return status;
    dnnl_post_ops_t post_ops = NULL;
    status = dnnl_post_ops_create(&post_ops);
    if (status == dnnl_success)
        status = dnnl_post_ops_append_sum(post_ops, 1.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, post_ops);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

/* The compiled product, and in desc[ARG_SCRATCH] the scratch it needs. */
static dnnl_status_t compile(dnnl_primitive_t *primitive, dnnl_memory_desc_t desc[N_ARGS],
                             dnnl_engine_t engine, const struct mist_cpu_product *shape)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t primitive_desc = NULL;
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = describe(desc, shape);
    if (status == dnnl_success)
        status =
            dnnl_matmul_desc_init(&matmul, &desc[ARG_A], &desc[ARG_B],
                                  shape->has_bias ? &desc[ARG_BIAS] : NULL, &desc[ARG_C]);
    if (status == dnnl_success)
        status = make_attributes(&attr, shape);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&primitive_desc, &matmul, attr, engine, NULL);
    if (status == dnnl_success) {
        desc[ARG_SCRATCH] =
            *dnnl_primitive_desc_query_md(primitive_desc, dnnl_query_scratchpad_md, 0);
        status = dnnl_primitive_create(primitive, primitive_desc);
    }
    dnnl_primitive_desc_destroy(primitive_desc);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static bool can_multiply(dnnl_engine_t engine)
{
    const struct mist_cpu_product shape = {.m = 16,
                                           .n = 16,
                                           .k = 16,
                                           .a_strides = {16, 1},
                                           .b_strides = {1, 16},
                                           .c_stride = 16};
    dnnl_memory_desc_t desc[N_ARGS];
    dnnl_primitive_t primitive = NULL;
    bool can = compile(&primitive, desc, engine, &shape) == dnnl_success;
    dnnl_primitive_destroy(primitive);
    return can;
}

static bool make_handles(struct product *p, const struct mist_cpu_bf16 *context,
                         const dnnl_memory_desc_t desc[N_ARGS])
{
    p->handles = calloc((size_t)context->n_threads, sizeof *p->handles);
    if (p->handles == NULL)
        return false;
    for (int t = 0; t < context->n_threads; t++)
        for (int i = 0; i < N_ARGS; i++)
            if ((i != ARG_BIAS || p->shape.has_bias) &&
                dnnl_memory_create(&p->handles[t].memory[i], &desc[i], context->engine,
                                   DNNL_MEMORY_NONE) != dnnl_success)
                return false;
    return true;
}

/* What running a product takes. */
static bool compile_product(struct mist_cpu_bf16 *context, struct product *p)
{
    dnnl_memory_desc_t desc[N_ARGS];
    int n_threads_before = omp_get_max_threads();

    omp_set_num_threads(1); /* oneDNN plans for as many as the caller may use */
    bool is_ok = compile(&p->primitive, desc, context->engine, &p->shape) == dnnl_success;
    omp_set_num_threads(n_threads_before);
    return is_ok && make_handles(p, context, desc) &&
           reserve_scratch(context, dnnl_memory_desc_get_size(&desc[ARG_SCRATCH]));
}

#else

static bool can_multiply(dnnl_engine_t engine)
{
    return (void)engine, false;
}

static bool compile_product(struct mist_cpu_bf16 *context, struct product *p)
{
    return (void)context, (void)p, false;
}

#endif

/* ---------------------------------------------------------------------------- context */

static void free_product(struct product *p, int n_threads)
{
    for (int t = 0; p->handles != NULL && t < n_threads; t++)
        for (int i = 0; i < N_ARGS; i++)
            dnnl_memory_destroy(p->handles[t].memory[i]);
    free(p->handles);
    dnnl_primitive_destroy(p->primitive);
}

void mist_cpu_bf16_free(struct mist_cpu_bf16 *context)
{
    if (context == NULL)
        return;
    for (size_t i = 0; i < context->n_products; i++)
        free_product(&context->products[i], context->n_threads);
    free(context->products);
    for (int t = 0; context->threads != NULL && t < context->n_threads; t++) {
        dnnl_stream_destroy(context->threads[t].stream);
        free(context->threads[t].scratch);
        free(context->threads[t].tile);
    }
    free(context->threads);
    dnnl_engine_destroy(context->engine);
    free(context);
}

enum mist_status mist_cpu_bf16_new(struct mist_cpu_bf16 **out, int n_threads,
                                   struct mist_err *err)
{
    *out = NULL;
    struct mist_cpu_bf16 *context = calloc(1, sizeof *context);
    if (context == NULL)
        return mist_err_set(err, MIST_ERR_MEMORY, "bf16: out of memory");
    context->n_threads = n_threads;
    context->threads = calloc((size_t)n_threads, sizeof *context->threads);
    bool is_ok = context->threads != NULL &&
                 dnnl_engine_create(&context->engine, dnnl_cpu, 0) == dnnl_success;
    for (int t = 0; is_ok && t < n_threads; t++) {
        struct thread *own = &context->threads[t];
        own->tile = aligned_alloc(4096, TILE_BYTES);
        is_ok = own->tile != NULL &&
                dnnl_stream_create(&own->stream, context->engine,
                                   dnnl_stream_default_flags) == dnnl_success;
    }
    if (!is_ok) {
        mist_cpu_bf16_free(context);
        return mist_err_set(err, MIST_ERR_MEMORY, "bf16: out of memory");
    }
    context->is_widened = !can_multiply(context->engine);
    *out = context;
    return MIST_OK;
}

bool mist_cpu_bf16_is_widened(const struct mist_cpu_bf16 *context)
{
    return context->is_widened;
}

void *mist_cpu_bf16_tile(const struct mist_cpu_bf16 *context, int t)
{
    return context->threads[t].tile;
}

bool mist_cpu_bf16_find_product(struct mist_cpu_bf16 *context,
                                const struct mist_cpu_product *shape, size_t *i_product)
{
    for (*i_product = 0; *i_product < context->n_products; ++*i_product)
        if (memcmp(&context->products[*i_product].shape, shape, sizeof *shape) == 0)
            return true;
    if (!MIST_APPEND(context->products, context->capacity, context->n_products,
                     (struct product){.shape = *shape}))
        return false;
    struct product *p = &context->products[context->n_products - 1];
    bool is_ok = context->is_widened
                     ? reserve_scratch(context, mist_cpu_packed_bytes(shape))
                     : compile_product(context, p);
    if (!is_ok) {
        free_product(p, context->n_threads);
        context->n_products--;
    }
    return is_ok;
}

bool mist_cpu_bf16_execute(const struct mist_cpu_bf16 *context, size_t i_product, int t,
                           const mist_bf16 *a, const mist_bf16 *b, void *c,
                           const mist_bf16 *bias)
{
    static const int args[N_ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                     DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    const struct product *p = &context->products[i_product];
    const void *const data[N_ARGS] = {a, b, c, context->threads[t].scratch, bias};
    dnnl_exec_arg_t exec_args[N_ARGS];
    assert(t < context->n_threads);
    if (context->is_widened) {
        mist_cpu_multiply_packed(&p->shape, true, a, b, c, bias,
                                 context->threads[t].scratch);
        return true;
    }
    int n_args = p->shape.has_bias ? N_ARGS : N_ARGS - 1;
    for (int i = 0; i < n_args; i++) {
        dnnl_memory_t memory = p->handles[t].memory[i];
        exec_args[i] = (dnnl_exec_arg_t){args[i], memory};
        /* oneDNN reads the inputs alone, but takes all addresses as void *. */
        if (dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data[i]) !=
            dnnl_success)
            return false;
    }
    return dnnl_primitive_execute(p->primitive, context->threads[t].stream, n_args,
                                  exec_args) == dnnl_success;
}

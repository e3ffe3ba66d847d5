/* What the bf16 kernels share: pieces of either format as fp32, and products. */
#ifndef MIST_EXEC_CPU_BF16_INTERNAL_H
#define MIST_EXEC_CPU_BF16_INTERNAL_H

#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_internal.h"

/* Of an element of either format. */
static inline int64_t mist_cpu_element_bytes(bool is_bf16)
{
    return is_bf16 ? (int64_t)sizeof(mist_bf16) : (int64_t)sizeof(float);
}

/*
 * Kernels of both formats work on fp32, on the calling thread, a piece or row at a time:
 * on elements first .. first + n - 1 of x where they lie or, bf16, in room[n].
 *
 * from    converts what is read
 * to      is where results go
 * done    rounds them
 */
static inline const float *mist_cpu_from(bool is_bf16, float *room, const void *x,
                                         int64_t first, int64_t n)
{
    if (!is_bf16)
        return (const float *)x + first;
    mist_cpu_bf16_to_float(room, (const mist_bf16 *)x + first, n);
    return room;
}
static inline float *mist_cpu_to(bool is_bf16, float *room, void *x, int64_t first)
{
    return is_bf16 ? room : (float *)x + first;
}
static inline void mist_cpu_done(bool is_bf16, void *x, int64_t first, const float *room,
                                 int64_t n)
{
    if (is_bf16)
        mist_cpu_bf16_from_float((mist_bf16 *)x + first, room, n);
}

/* The number of the product of this shape, compiled at its first use; false: out of
 * memory. By the thread that owns the context. */
bool mist_cpu_bf16_find_product(struct mist_cpu_bf16 *context,
                                const struct mist_cpu_product *shape, size_t *i_product);

/* Runs it as thread t < the context's n_threads; bias NULL unless has_bias. False: oneDNN
 * failed. */
bool mist_cpu_bf16_execute(const struct mist_cpu_bf16 *context, size_t i_product, int t,
                           const mist_bf16 *a, const mist_bf16 *b, void *c,
                           const mist_bf16 *bias);

/*
 * c = a b + bias as of says, on the calling thread: operands and bias of bf16, or all of
 * fp32. room: mist_cpu_packed_bytes(of); of fp32 [m + n, MIST_CPU_PACKED_K] are enough.
 * Should oneDNN run out of memory, c becomes NaN.
 */
enum { MIST_CPU_PACKED_K = 256 };
size_t mist_cpu_packed_bytes(const struct mist_cpu_product *of);
void mist_cpu_multiply_packed(const struct mist_cpu_product *of, bool is_bf16,
                              const void *a, const void *b, void *c, const void *bias,
                              float *room);

/* Room of thread t for a tile of bf16 or fp32, where its results stay until they are copied. */
enum { MIST_CPU_BF16_TILE_ROWS = 256, MIST_CPU_BF16_TILE_COLUMNS = 768 };
void *mist_cpu_bf16_tile(const struct mist_cpu_bf16 *context, int t);

#endif

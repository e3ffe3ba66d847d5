/*
 * Products whose operands are packed first, block by block of k, since oneDNN's product of
 * fp32 takes them otherwise slowly or not at all:
 *
 *   - bf16, on processors that oneDNN multiplies none on: widened to fp32, which is exact,
 *     and multiplied there; the sum is rounded as it is stored.
 *   - fp32 whose elements along k lie on a page each, on processors without AVX-512: its
 *     kernel for AVX2 then waits for the addresses (Zen 3: 35 GFLOP/s of GPT-2's weight
 *     gradients, packed 65; that for AVX-512 reaches the peak as it is).
 *
 * Blocks have a fixed size, so that bits depend on a product's shape alone.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include <dnnl.h>

enum { BLOCK_K = MIST_CPU_PACKED_K, PAGE_BYTES = 4096 };

/* An operand of the block of a product; both strides as in struct mist_cpu_product. */
struct operand {
    const void *x;
    int64_t rows, columns;
    int64_t *strides;
    bool is_packed;
};

static bool is_far(int64_t k_stride)
{
    return k_stride * (int64_t)sizeof(float) >= PAGE_BYTES &&
           (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) !=
               dnnl_cpu_isa_avx512_core;
}

size_t mist_cpu_packed_bytes(const struct mist_cpu_product *of)
{
    int64_t k = mist_cpu_min(of->k, BLOCK_K);

    return (size_t)(of->m * k + k * of->n + of->m * of->n) * sizeof(float);
}

/* Copies o's block from element first on to room, dense, turned as it lies. Returns where
 * it is read then, its strides those of there, and moves room behind it. */
static const float *pack(const struct operand *o, bool is_bf16, int64_t first,
                         float **room)
{
    if (!o->is_packed)
        return (const float *)o->x + first;
    bool is_turned = mist_cpu_is_turned(o->strides, o->columns);
    int64_t n_lines = is_turned ? o->columns : o->rows;
    int64_t length = is_turned ? o->rows : o->columns;
    float *packed = *room;

    for (int64_t i = 0; i < n_lines; i++) {
        float *to = packed + i * length;
        const float *line =
            mist_cpu_from(is_bf16, to, o->x, first + i * o->strides[is_turned], length);
        if (line != to)
            memcpy(to, line, (size_t)length * sizeof *to);
    }
    o->strides[is_turned] = length;
    o->strides[!is_turned] = 1;
    *room += n_lines * length;
    return packed;
}

/* c += a b or, unless of adds, = a b. */
static void multiply(const struct mist_cpu_product *of, bool is_bf16, const void *a,
                     const void *b, float *c, float *room)
{
    bool packs_a = is_bf16 || is_far(of->a_strides[1]);
    bool packs_b = is_bf16 || is_far(of->b_strides[0]);
    int64_t n_k = packs_a || packs_b ? BLOCK_K : of->k;

    for (int64_t k = 0; k < of->k; k += n_k) {
        struct mist_cpu_product block = *of;
        float *left = room;
        block.k = mist_cpu_min(of->k - k, n_k);
        block.adds = of->adds || k > 0;
        const struct operand first = {a, of->m, block.k, block.a_strides, packs_a};
        const struct operand second = {b, block.k, of->n, block.b_strides, packs_b};
        const float *packed_a = pack(&first, is_bf16, k * of->a_strides[1], &left);
        const float *packed_b = pack(&second, is_bf16, k * of->b_strides[0], &left);
        mist_cpu_sgemm(&block, packed_a, packed_b, c);
    }
}

void mist_cpu_multiply_packed(const struct mist_cpu_product *of, bool is_bf16,
                              const void *a, const void *b, void *c, const void *bias,
                              float *room)
{
    enum { PIECE = 256 };
    struct mist_cpu_product sums = *of;
    float line[PIECE], *sum = c;
    mist_bf16 *rounded = of->is_float ? NULL : c;

    if (rounded) {
        sum = room;
        room += of->m * of->n;
        sums.c_stride = of->n;
    }
    for (int64_t i = 0; rounded && of->adds && i < of->m; i++)
        mist_cpu_bf16_to_float(sum + i * of->n, rounded + i * of->c_stride, of->n);
    multiply(&sums, is_bf16, a, b, sum, room);
    for (int64_t i = 0; i < of->m; i++) {
        float *row = sum + i * sums.c_stride;
        for (int64_t j = 0; bias && j < of->n; j += PIECE) {
            int64_t n = mist_cpu_min(of->n - j, PIECE);
            mist_cpu_add_chunk(false, row + j, row + j,
                               mist_cpu_from(is_bf16, line, bias, j, n), n);
        }
        if (rounded)
            mist_cpu_bf16_from_float(rounded + i * of->c_stride, row, of->n);
    }
}

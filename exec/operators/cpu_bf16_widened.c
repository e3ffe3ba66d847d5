/*
 * bf16 products on processors that oneDNN cannot multiply it on: operands are widened to
 * fp32, which is exact, and multiplied there; the sum is rounded as it is stored. k is cut
 * into blocks of a fixed size, so that what is widened stays in the cache.
 */
#include "exec/operators/cpu_bf16_internal.h"

enum { BLOCK_K = 1024 };

/* Of float. */
struct rooms {
    float *a, *b; /* [m, BLOCK_K], [BLOCK_K, n], or as transposes */
    float *c;     /* [m, n] */
};

static int64_t n_of(const struct mist_cpu_product *of, struct rooms *rooms, float *room)
{
    int64_t k = mist_cpu_min(of->k, BLOCK_K), n_a = of->m * k, n_b = k * of->n;

    if (rooms)
        *rooms = (struct rooms){room, room + n_a, room + n_a + n_b};
    return n_a + n_b + (of->is_float ? 0 : of->m * of->n);
}

size_t mist_cpu_bf16_widened_bytes(const struct mist_cpu_product *of)
{
    return (size_t)n_of(of, NULL, NULL) * sizeof(float);
}

/* x [rows, columns] with these strides, dense in room, turned as it lies; strides become
 * those of room. */
static void widen(float *room, const mist_bf16 *x, int64_t rows, int64_t columns,
                  int64_t strides[2])
{
    bool is_turned = mist_cpu_is_turned(strides, columns);
    int64_t n_lines = is_turned ? columns : rows, length = is_turned ? rows : columns;

    for (int64_t i = 0; i < n_lines; i++)
        mist_cpu_bf16_to_float(room + i * length, x + i * strides[is_turned], length);
    strides[is_turned] = length;
    strides[!is_turned] = 1;
}

void mist_cpu_bf16_multiply_widened(const struct mist_cpu_product *of, const mist_bf16 *a,
                                    const mist_bf16 *b, void *c, const mist_bf16 *bias,
                                    float *room)
{
    struct rooms rooms;
    n_of(of, &rooms, room);
    float *sum = of->is_float ? c : rooms.c, line[MIST_CPU_BF16_TILE_COLUMNS];
    int64_t stride = of->is_float ? of->c_stride : of->n;
    mist_bf16 *rounded = of->is_float ? NULL : c;

    for (int64_t i = 0; rounded && of->adds && i < of->m; i++)
        mist_cpu_bf16_to_float(sum + i * stride, rounded + i * of->c_stride, of->n);
    for (int64_t k = 0; k < of->k; k += BLOCK_K) {
        struct mist_cpu_product block = *of;
        block.k = mist_cpu_min(of->k - k, BLOCK_K);
        block.c_stride = stride;
        block.adds = of->adds || k > 0;
        widen(rooms.a, a + k * of->a_strides[1], of->m, block.k, block.a_strides);
        widen(rooms.b, b + k * of->b_strides[0], block.k, of->n, block.b_strides);
        mist_cpu_sgemm(&block, rooms.a, rooms.b, sum);
    }
    for (int64_t i = 0; i < of->m; i++) {
        float *row = sum + i * stride;
        for (int64_t j = 0; bias && j < of->n; j += MIST_CPU_BF16_TILE_COLUMNS) {
            int64_t n = mist_cpu_min(of->n - j, MIST_CPU_BF16_TILE_COLUMNS);
            mist_cpu_bf16_to_float(line, bias + j, n);
            mist_cpu_add_chunk(false, row + j, row + j, line, n);
        }
        if (rounded)
            mist_cpu_bf16_from_float(rounded + i * of->c_stride, row, of->n);
    }
}

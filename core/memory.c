/* Memory helpers: checked sizes, doubling arrays, arenas. See memory.h. */
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGNMENT   64
#define ARENA_BLOCK_BYTES ((size_t)64 * 1024)

struct mist_arena_block {
    struct mist_arena_block *older; /* the block filled before this one */
    size_t size_bytes;              /* of data */
    size_t used_bytes;              /* of data */
    char *data;                     /* aligned, behind the header */
};

bool mist_size_add(int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0 || a > INT64_MAX - b)
        return false;
    *out = a + b;
    return true;
}

bool mist_size_mul(int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0 || (b != 0 && a > INT64_MAX / b))
        return false;
    *out = a * b;
    return true;
}

void *mist_grow(void *array, size_t *capacity, size_t need, size_t element_bytes)
{
    size_t n = *capacity ? *capacity : 8;

    if (array && need <= *capacity)
        return array;
    while (n < need) {
        if (n > SIZE_MAX / 2)
            return NULL;
        n *= 2;
    }
    if (n > SIZE_MAX / element_bytes)
        return NULL;
    void *grown = realloc(array, n * element_bytes);
    if (grown)
        *capacity = n;
    return grown;
}

double mist_grown(double n)
{
    return n > 8 ? exp2(ceil(log2(n))) : 8;
}

void mist_arena_init(struct mist_arena *arena)
{
    *arena = (struct mist_arena){0};
}

void mist_arena_fini(struct mist_arena *arena)
{
    struct mist_arena_block *block = arena->block;

    while (block) {
        struct mist_arena_block *older = block->older;
        free(block);
        block = older;
    }
    *arena = (struct mist_arena){0};
}

static struct mist_arena_block *new_block(struct mist_arena_block *older,
                                          size_t need_bytes)
{
    size_t size = need_bytes > ARENA_BLOCK_BYTES ? need_bytes : ARENA_BLOCK_BYTES;

    if (size > SIZE_MAX - sizeof(struct mist_arena_block) - ARENA_ALIGNMENT)
        return NULL;
    struct mist_arena_block *block = calloc(1, sizeof *block + ARENA_ALIGNMENT + size);
    if (!block)
        return NULL;
    uintptr_t start = (uintptr_t)(block + 1);
    block->data =
        (char *)((start + ARENA_ALIGNMENT - 1) & ~(uintptr_t)(ARENA_ALIGNMENT - 1));
    block->size_bytes = size;
    block->older = older;
    return block;
}

void *mist_arena_alloc(struct mist_arena *arena, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX - ARENA_ALIGNMENT)
        return NULL;
    size_t rounded = (size_bytes + ARENA_ALIGNMENT - 1) & ~(size_t)(ARENA_ALIGNMENT - 1);
    if (!arena->block || arena->block->size_bytes - arena->block->used_bytes < rounded) {
        struct mist_arena_block *block = new_block(arena->block, rounded);
        if (!block)
            return NULL;
        arena->block = block;
    }
    void *chunk = arena->block->data + arena->block->used_bytes;
    arena->block->used_bytes += rounded;
    arena->used_bytes += rounded;
    return chunk;
}

char *mist_arena_strdup(struct mist_arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = mist_arena_alloc(arena, size);

    if (copy)
        memcpy(copy, text, size);
    return copy;
}

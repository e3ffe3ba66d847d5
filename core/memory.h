/*
 * Memory helpers: overflow-checked size arithmetic, arrays that double, and an arena for
 * data that lives and dies together. All allocation of Mist outside these and plain
 * malloc is a mistake.
 */
#ifndef MIST_CORE_MEMORY_H
#define MIST_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* a + b and a * b, both >= 0; false (out untouched) when the result does not fit. */
bool mist_size_add(int64_t a, int64_t b, int64_t *out);
bool mist_size_mul(int64_t a, int64_t b, int64_t *out);

/* Rounds up to a multiple of a power-of-two alignment. */
static inline int64_t mist_align_up(int64_t value, int64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Points the pointer to room for n elements, CALLOC's zeroed; false: out of memory, and NULL
 * is there. The pointer is evaluated twice. */
#define MIST_MALLOC(pointer, n)                                                          \
    (((pointer) = malloc((size_t)(n) * sizeof *(pointer))) != NULL)
#define MIST_CALLOC(pointer, n)                                                          \
    (((pointer) = calloc((size_t)(n), sizeof *(pointer))) != NULL)

/*
 * Makes array (malloc'd or NULL, elements of element_bytes) hold at least need elements;
 * capacity doubles. Returns the array's new address, or NULL when out of memory (the old
 * array and capacity stay valid).
 */
void *mist_grow(void *array, size_t *capacity, size_t need, size_t element_bytes)
    __attribute__((warn_unused_result));

/* The same, but the array as it was when out of memory. */
static inline void *mist_grow_or_keep(void *array, size_t *capacity, size_t need,
                                      size_t element_bytes)
{
    void *grown = mist_grow(array, capacity, need, element_bytes);

    return grown ? grown : array;
}

/*
 * Makes an array hold at least need elements, need > 0; false: out of memory, all is as it
 * was. Arguments are evaluated more than once:
 *
 *     if (!MIST_RESERVE(a->items, a->capacity, a->n + 1))
 *         return false;
 *     a->items[a->n++] = item;
 */
#define MIST_RESERVE(array, capacity, need)                                              \
    ((array) = mist_grow_or_keep(array, &(capacity), (size_t)(need), sizeof *(array)),   \
     (array) != NULL && (size_t)(need) <= (capacity))

/* The same for one more than n elements, which is appended, and counted; its value is taken
 * when there is room, so it must not lie in the array. */
#define MIST_APPEND(array, capacity, n, ...)                                             \
    (MIST_RESERVE(array, capacity, (n) + 1) && ((array)[(n)++] = (__VA_ARGS__), true))

/* Elements that there is room for in what mist_grow() makes of n. */
double mist_grown(double n);

/* Zeroed, 64-byte-aligned chunks that are freed all at once. Not thread-safe. */
struct mist_arena {
    struct mist_arena_block *block; /* newest block, linked to older ones */
    size_t used_bytes;              /* handed out from all blocks */
};

void mist_arena_init(struct mist_arena *arena);
void mist_arena_fini(struct mist_arena *arena);

/* NULL: out of memory. The arena owns what is returned. */
void *mist_arena_alloc(struct mist_arena *arena, size_t size_bytes);
#define MIST_ARENA_ALLOC(arena, pointer, n)                                              \
    (((pointer) = mist_arena_alloc(arena, (size_t)(n) * sizeof *(pointer))) != NULL)
char *mist_arena_strdup(struct mist_arena *arena, const char *text);

#endif

/* core/memory: sizes, growing arrays and arenas, also when memory runs out. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/memory.h"

TEST(test_sizes)
{
    int64_t out = -1;

    assert_true(mist_size_add(INT64_MAX - 1, 1, &out));
    assert_true(out == INT64_MAX);
    assert_false(mist_size_add(INT64_MAX, 1, &out));
    assert_false(mist_size_add(-1, 1, &out));
    assert_true(mist_size_mul(INT64_C(1) << 31, INT64_C(1) << 31, &out));
    assert_true(out == INT64_C(1) << 62);
    assert_false(mist_size_mul(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_true(mist_size_mul(0, INT64_MAX, &out));
    assert_true(out == 0);
    assert_int_equal(mist_align_up(513, 512), 1024);
    assert_int_equal(mist_align_up(512, 512), 512);
}

TEST(test_growing)
{
    int *array = NULL;
    size_t capacity = 0;

    for (size_t i = 0; i < 1000; i++) {
        bool has_room = MIST_RESERVE(array, capacity, i + 1);
        assert_true(has_room);
        assert_true(capacity > i);
        array[i] = (int)i;
    }
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(array[i], i);
    const size_t had = capacity;
    assert_null(mist_grow(array, &capacity, SIZE_MAX / 2, sizeof *array));
    bool is_larger = MIST_RESERVE(array, capacity, SIZE_MAX / 2);
    assert_false(is_larger);
    assert_int_equal(capacity, had);
    assert_int_equal(array[999], 999);
    free(array);
}

TEST(test_arena)
{
    struct mist_arena arena;

    mist_arena_init(&arena);
    for (size_t n = 0; n < 3000; n += 7) {
        unsigned char *chunk = mist_arena_alloc(&arena, n);
        assert_int_equal((uintptr_t)chunk % 64, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(chunk[i], 0);
        memset(chunk, 0xff, n);
    }
    assert_string_equal(mist_arena_strdup(&arena, "text"), "text");
    assert_null(mist_arena_alloc(&arena, SIZE_MAX - 3));
    mist_arena_fini(&arena);
}

TEST(test_out_of_memory)
{
    struct mist_arena arena;
    long n_live = fault_n_live();

    mist_arena_init(&arena);
    fault_arm(FAULT_MALLOC, 1);
    assert_null(mist_arena_alloc(&arena, 10));
    assert_true(fault_disarm());
    assert_non_null(mist_arena_alloc(&arena, 10));
    mist_arena_fini(&arena);
    assert_int_equal(fault_n_live(), n_live);
}

TEST_MAIN(NULL, NULL)

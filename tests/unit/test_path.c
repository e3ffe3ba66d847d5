/* core/path: joined names, also when memory runs out. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/path.h"

static void check_join(struct mist_arena *arena, const char *folder, const char *name,
                       const char *expected)
{
    char *path = mist_path_join(folder, name);

    assert_string_equal(path, expected);
    free(path);
    assert_string_equal(mist_path_join_in(arena, folder, name), expected);
}

TEST(test_names)
{
    struct mist_arena arena;

    mist_arena_init(&arena);
    check_join(&arena, "runs", "plan.json", "runs/plan.json");
    check_join(&arena, "/a/b", "..", "/a/b/..");
    check_join(&arena, "runs", "", "runs/");
    check_join(&arena, "", "tmp", "/tmp");
    assert_string_equal(mist_path_beside_in(&arena, "x/y/index.json", "z"), "x/y/z");
    assert_string_equal(mist_path_beside_in(&arena, "/index.json", "z.bin"), "/z.bin");
    assert_string_equal(mist_path_beside_in(&arena, "index.json", "z.bin"), "z.bin");
    mist_arena_fini(&arena);
}

TEST(test_parts)
{
    assert_string_equal(mist_path_name("a/b.c"), "b.c");
    assert_string_equal(mist_path_name("b.c"), "b.c");
    assert_string_equal(mist_path_name("a/b/"), "a/b/");
    assert_true(mist_path_ends("a/b.json", ".json"));
    assert_false(mist_path_ends("a/b.jsonl", ".json"));
    assert_false(mist_path_ends(".json", ".json"));
    assert_false(mist_path_ends("n", ".json"));
}

TEST(test_no_memory)
{
    struct mist_arena arena;

    fault_arm(FAULT_MALLOC, 1);
    assert_null(mist_path_join("a", "b"));
    assert_true(fault_disarm());
    mist_arena_init(&arena);
    fault_arm(FAULT_MALLOC, 1);
    assert_null(mist_path_join_in(&arena, "a", "b"));
    assert_true(fault_disarm());
    fault_arm(FAULT_MALLOC, 1);
    assert_null(mist_path_beside_in(&arena, "a/b", "c"));
    assert_true(fault_disarm());
    mist_arena_fini(&arena);
}

TEST_MAIN(NULL, NULL)

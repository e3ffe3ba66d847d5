/* What is said of ranks that go the same way, and of those that don't. */
#include "exec/operators/paths.h"

#include "tests/unit/test.h"

static const struct mist_paths same = {"cuDNN 9.19.0", "cuBLASLt 13.1.0", "NCCL 2.28.9",
                                       0, "replayed"};

TEST(test_same)
{
    const struct mist_paths all[] = {same, same, same};
    struct mist_paths joined;

    for (int n = 1; n <= 3; n++) {
        mist_paths_join(all, n, &joined);
        assert_string_equal(joined.attention, same.attention);
        assert_string_equal(joined.products, same.products);
        assert_string_equal(joined.collectives, same.collectives);
        assert_string_equal(joined.graphs, same.graphs);
        assert_int_equal(joined.n_fallbacks, 0);
    }
}

TEST(test_different)
{
    struct mist_paths all[] = {same, same, same, same};
    struct mist_paths joined;

    strcpy(all[0].attention, "own kernels");
    strcpy(all[2].products, "cuBLASLt 13.0.0");
    all[1].n_fallbacks = 3;
    all[3].n_fallbacks = 4;
    mist_paths_join(all, 4, &joined);
    assert_string_equal(joined.attention, "rank 0: own kernels; ranks 1-3: cuDNN 9.19.0");
    assert_string_equal(joined.products,
                        "ranks 0-1: cuBLASLt 13.1.0; rank 2: cuBLASLt 13.0.0; rank 3: "
                        "cuBLASLt 13.1.0");
    assert_string_equal(joined.collectives, "NCCL 2.28.9");
    assert_int_equal(joined.n_fallbacks, 7);
}

/* Longer than there is room: cut, and ended. */
TEST(test_long)
{
    enum { N = 64 };
    struct mist_paths *all = calloc(N, sizeof *all), joined;

    assert_non_null(all);
    for (int i = 0; i < N; i++) {
        memset(all[i].attention, 'a' + i % 2, MIST_PATH_BYTES - 1);
        memset(all[i].products, 'a' + i % 2, 7);
    }
    memset(&joined, 'x', sizeof joined);
    mist_paths_join(all, N, &joined);
    assert_int_equal(strlen(joined.attention), MIST_PATH_BYTES - 1);
    assert_int_equal(strlen(joined.products), MIST_PATH_BYTES - 1);
    assert_int_equal(strncmp(joined.products, "rank 0: aaaaaaa; rank 1: bbbbbbb", 32), 0);
    free(all);
}

TEST_MAIN(NULL, NULL)

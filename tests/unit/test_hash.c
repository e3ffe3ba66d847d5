/* core/hash: published FNV-1a values, and pieces that can't be confused. */
#include "tests/unit/test.h"

#include "core/hash.h"

static uint64_t hash_of(const char *text, size_t n)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_bytes(&hash, text, n);
    return hash.value;
}

/* Test vectors of draft-eastlake-fnv. */
TEST(test_vectors)
{
    struct mist_hash hash;
    char text[MIST_HASH_TEXT_BYTES];

    assert_true(hash_of("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(hash_of("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(hash_of("foobar", 6) == UINT64_C(0x85944171f73967e8));
    mist_hash_init(&hash);
    mist_hash_add_bytes(&hash, "foo", 3);
    mist_hash_add_bytes(&hash, "bar", 3);
    assert_string_equal(mist_hash_format(&hash, text), "85944171f73967e8");
}

TEST(test_pieces)
{
    struct mist_hash a, b;

    mist_hash_init(&a);
    b = a;
    mist_hash_add_text(&a, "ab");
    mist_hash_add_text(&a, "c");
    mist_hash_add_text(&b, "a");
    mist_hash_add_text(&b, "bc");
    assert_true(a.value != b.value);
    mist_hash_init(&a);
    b = a;
    mist_hash_add_double(&a, 0.0);
    mist_hash_add_double(&b, -0.0);
    assert_true(a.value == b.value);
    mist_hash_init(&a);
    mist_hash_add_int64(&a, -2);
    assert_true(a.value == hash_of("\xfe\xff\xff\xff\xff\xff\xff\xff", 8));
}

TEST_MAIN(NULL, NULL)

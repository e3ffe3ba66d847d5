/* FNV-1a, 64 bits. See hash.h. */
#include "core/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

void mist_hash_init(struct mist_hash *hash)
{
    hash->value = FNV_OFFSET;
}

void mist_hash_add_bytes(struct mist_hash *hash, const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < n; i++)
        hash->value = (hash->value ^ byte[i]) * FNV_PRIME;
}

void mist_hash_add_int64(struct mist_hash *hash, int64_t value)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    mist_hash_add_bytes(hash, bytes, sizeof bytes);
}

void mist_hash_add_double(struct mist_hash *hash, double value)
{
    int64_t bits;

    if (value == 0)
        value = 0; /* -0 */
    memcpy(&bits, &value, sizeof bits);
    mist_hash_add_int64(hash, bits);
}

void mist_hash_add_int64s(struct mist_hash *hash, const int64_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mist_hash_add_int64(hash, values[i]);
}

void mist_hash_add_doubles(struct mist_hash *hash, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mist_hash_add_double(hash, values[i]);
}

void mist_hash_add_text(struct mist_hash *hash, const char *text)
{
    size_t n = strlen(text);

    mist_hash_add_int64(hash, (int64_t)n);
    mist_hash_add_bytes(hash, text, n);
}

char *mist_hash_format(const struct mist_hash *hash, char out[MIST_HASH_TEXT_BYTES])
{
    snprintf(out, MIST_HASH_TEXT_BYTES, "%016" PRIx64, hash->value);
    return out;
}

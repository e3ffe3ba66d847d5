/*
 * FNV-1a, 64 bits: fingerprints of models, jobs and trace sets. Not for hostile input.
 * Source: Fowler, Noll, Vo; draft-eastlake-fnv. Numbers are added little-endian, texts
 * with their length in front, so that the fingerprint is the same on every machine and no
 * two sequences of calls with different pieces feed the same bytes.
 */
#ifndef MIST_CORE_HASH_H
#define MIST_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct mist_hash {
    uint64_t value; /* the hash of everything added so far */
};

void mist_hash_init(struct mist_hash *hash);
void mist_hash_add_bytes(struct mist_hash *hash, const void *bytes, size_t n); /* raw */
void mist_hash_add_int64(struct mist_hash *hash, int64_t value);
void mist_hash_add_double(struct mist_hash *hash, double value); /* -0 counts as 0 */
void mist_hash_add_text(struct mist_hash *hash, const char *text);

/* Several numbers, one after the other; n of an array. */
void mist_hash_add_int64s(struct mist_hash *hash, const int64_t *values, size_t n);
void mist_hash_add_doubles(struct mist_hash *hash, const double *values, size_t n);
#define MIST_HASH_INT64(hash, ...)                                                       \
    mist_hash_add_int64s(hash, (const int64_t[]){__VA_ARGS__},                           \
                         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define MIST_HASH_DOUBLE(hash, ...)                                                      \
    mist_hash_add_doubles(hash, (const double[]){__VA_ARGS__},                           \
                          sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

#define MIST_HASH_TEXT_BYTES 17

/* 16 hexadecimal digits; returns out. */
char *mist_hash_format(const struct mist_hash *hash, char out[MIST_HASH_TEXT_BYTES]);

#endif

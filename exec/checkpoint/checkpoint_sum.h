/*
 * XXH64: the checksum of checkpoints, near the speed of memory (core/hash.h goes byte by
 * byte). Against damage, not against forgery. Source: Collet, "xxHash fast digest
 * algorithm", specification 0.1.1. Texts of checksums are 16 lower-case hexadecimal
 * digits.
 */
#ifndef MIST_EXEC_CHECKPOINT_SUM_H
#define MIST_EXEC_CHECKPOINT_SUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed);

#endif

/*
 * What fuzz targets share: a scratch folder, inputs that hold several files, checks of
 * refusals, and seeds. A target is one file that defines the two functions below; it is
 * linked with libFuzzer (fuzz.mk) and, for the ordinary tests, with replay.c.
 */
#ifndef MIST_TESTS_FUZZ_FUZZ_H
#define MIST_TESTS_FUZZ_FUZZ_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ what a target defines */

/* One input; ends the program when a property does not hold. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Calls fuzz_seed() for each input that the search starts from. The current folder is the
 * root of the project. */
void fuzz_write_seeds(void);

/* --------------------------------------------------------------------------- checks */

/* A property of the reader; the message ends the program. */
#define FUZZ_CHECK(condition, ...)                                                       \
    ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
_Noreturn void fuzz_fail(const char *file, int line, const char *condition,
                         const char *format, ...) MIST_PRINTF(4, 5);

/* Ends the program unless status is MIST_OK. */
void fuzz_must(enum mist_status status, const struct mist_err *err);

/*
 * What every refusal of an input must be: status says that the input is wrong (not memory
 * or the disk), there is a message that a terminal can be shown (core/escape.h), and with
 * has_path it names a file.
 */
void fuzz_check_refusal(enum mist_status status, const struct mist_err *err,
                        bool has_path);

/* --------------------------------------------------------------------------- inputs */

struct fuzz_bytes {
    const uint8_t *bytes;
    size_t n;
};

/* The first byte of input, which gets shorter; 0 where there is none. */
unsigned fuzz_take(struct fuzz_bytes *input);

/*
 * An input of several files has them one behind the other with FUZZ_NEXT between. Fills
 * parts[n]; those that are not there are empty. A part "-" stands for a file that is not
 * there, either. Returns how many are there.
 */
#define FUZZ_NEXT "--8<--\n"
int fuzz_split(struct fuzz_bytes input, struct fuzz_bytes *parts, int n);

/* A copy with '\0' behind it, to be freed; zero bytes within are left out. */
char *fuzz_text(struct fuzz_bytes input);

/* ---------------------------------------------------------------------------- files */

#define FUZZ_PATH_BYTES 256

/* A folder in memory (/dev/shm), made at the first call, that goes when the program
 * ends. */
const char *fuzz_folder(void);

/* out: FUZZ_PATH_BYTES; fuzz_folder()/name. Returns out. */
char *fuzz_path(char *out, const char *name);

/* Writes, or for a part that is not there removes, a file; path as fuzz_path()
 * gives it. */
void fuzz_write(const char *path, struct fuzz_bytes bytes);

/* Files of at most that size are mapped, for targets that are linked with FUZZ_WRAP_MMAP:
 * as a copy on the heap, with nothing behind it, so that reading too far is noticed. */
#define FUZZ_MAP_MAX (1 << 24)

/* Whether two files hold the same bytes; both absent counts as the same. */
bool fuzz_same_files(const char *path_a, const char *path_b);

/* ---------------------------------------------------------------------------- seeds */

/* An input that grows; zero-initialise. */
struct fuzz_buffer {
    uint8_t *bytes;
    size_t n, capacity;
};
void fuzz_add(struct fuzz_buffer *buffer, const void *bytes, size_t n);
void fuzz_add_text(struct fuzz_buffer *buffer, const char *text);
void fuzz_add_file(struct fuzz_buffer *buffer, const char *path); /* must be there */

/* Keeps the buffer as a seed of that name and empties it. */
void fuzz_seed(const char *name, struct fuzz_buffer *buffer);
void fuzz_seed_text(const char *name, const char *text);

/* fuzz_write_seeds() into a folder. */
void fuzz_make_seeds(const char *into);

#endif

/* See fuzz.h. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/fuzz/fuzz.h"

#include "core/escape.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --------------------------------------------------------------------------- checks */

void fuzz_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: not so: %s: ", file, line, condition);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void fuzz_must(enum mist_status status, const struct mist_err *err)
{
    FUZZ_CHECK(status == MIST_OK, "status %d, %s: %s", (int)status, err->path,
               err->message);
}

/* No control character, of ASCII or beyond, and none that turns the direction. */
static bool is_shown_safely(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == 127 || (c[0] == 0xc2 && c[1] < 0xa0) ||
            (c[0] == 0xe2 && c[1] == 0x80 && c[2] >= 0xaa && c[2] <= 0xae) ||
            (c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9))
            return false;
    return mist_text_is_utf8(text);
}

static void check_shown(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789 !\"#$%&'()*+,-./:;<=>?@[]^_`{|}~";
    char shown[MIST_ESCAPED_BYTES(sizeof(((struct mist_err *)NULL)->message)) + 1];
    char twice[MIST_ESCAPED_BYTES(sizeof shown) + 1];

    if (text[strspn(text, plain)] == '\0')
        return;
    mist_escape(text, shown);
    FUZZ_CHECK(is_shown_safely(shown), "message: %s", shown);
    FUZZ_CHECK(strcmp(mist_escape(shown, twice), shown) == 0, "%s becomes %s", shown,
               twice);
}

void fuzz_check_refusal(enum mist_status status, const struct mist_err *err,
                        bool has_path)
{
    FUZZ_CHECK(status == MIST_ERR_INPUT || status == MIST_ERR_RANGE ||
                   status == MIST_ERR_USAGE,
               "status %d, %s: %s", (int)status, err->path, err->message);
    FUZZ_CHECK(err->message[0], "status %d without a message", (int)status);
    check_shown(err->message);
    check_shown(err->path);
    FUZZ_CHECK(err->line >= 0 && err->column >= 0, "%ld:%ld", err->line, err->column);
    if (has_path)
        FUZZ_CHECK(err->path[0], "no path with: %s", err->message);
}

/* --------------------------------------------------------------------------- inputs */

unsigned fuzz_take(struct fuzz_bytes *input)
{
    if (input->n == 0)
        return 0;
    input->n--;
    return *input->bytes++;
}

static const uint8_t *find_next(struct fuzz_bytes input)
{
    size_t n = strlen(FUZZ_NEXT);

    for (size_t i = 0; i + n <= input.n; i++) {
        const uint8_t *at = memchr(input.bytes + i, FUZZ_NEXT[0], input.n - i - n + 1);
        if (!at || memcmp(at, FUZZ_NEXT, n) == 0)
            return at;
        i = (size_t)(at - input.bytes);
    }
    return NULL;
}

int fuzz_split(struct fuzz_bytes input, struct fuzz_bytes *parts, int n)
{
    int n_found = 0;

    for (int i = 0; i < n; i++) {
        const uint8_t *next = i + 1 < n ? find_next(input) : NULL;
        size_t length = next ? (size_t)(next - input.bytes) : input.n;
        parts[i] = (struct fuzz_bytes){input.bytes, length};
        if (length == 1 && input.bytes[0] == '-')
            parts[i] = (struct fuzz_bytes){NULL, 0};
        n_found += parts[i].bytes != NULL;
        input = next ? (struct fuzz_bytes){next + strlen(FUZZ_NEXT),
                                           input.n - length - strlen(FUZZ_NEXT)}
                     : (struct fuzz_bytes){NULL, 0};
    }
    return n_found;
}

char *fuzz_text(struct fuzz_bytes input)
{
    char *text = malloc(input.n + 1);
    size_t n = 0;

    FUZZ_CHECK(text, "out of memory");
    for (size_t i = 0; i < input.n; i++)
        if (input.bytes[i])
            text[n++] = (char)input.bytes[i];
    text[n] = '\0';
    return text;
}

/* ---------------------------------------------------------------------------- files */

static char folder[128];
static pid_t owner; /* of folder: a child that ends leaves it alone */

static int remove_entry(const char *path, const struct stat *info, int kind,
                        struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    if (folder[0] && owner == getpid())
        nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    if (!folder[0]) {
        const char *base = getenv("FUZZ_SCRATCH");
        if (!base)
            base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof folder, "%s/mist_fuzz_XXXXXX", base);
        FUZZ_CHECK(mkdtemp(folder), "%s: %s", folder, strerror(errno));
        owner = getpid();
        atexit(remove_folder);
    }
    return folder;
}

char *fuzz_path(char *out, const char *name)
{
    snprintf(out, FUZZ_PATH_BYTES, "%s/%s", fuzz_folder(), name);
    return out;
}

static void write_file(const char *path, const uint8_t *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    FUZZ_CHECK(fd >= 0, "%s: %s", path, strerror(errno));
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        FUZZ_CHECK(written > 0, "%s: %s", path, strerror(errno));
        bytes += written;
        n -= (size_t)written;
    }
    close(fd);
}

void fuzz_write(const char *path, struct fuzz_bytes bytes)
{
    if (bytes.bytes)
        write_file(path, bytes.bytes, bytes.n);
    else
        FUZZ_CHECK(unlink(path) == 0 || errno == ENOENT, "%s: %s", path, strerror(errno));
}

/* false: not there. */
static bool read_file(const char *path, struct fuzz_buffer *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t piece[1 << 14];
    ssize_t n;

    if (fd < 0)
        return false;
    while ((n = read(fd, piece, sizeof piece)) > 0)
        fuzz_add(out, piece, (size_t)n);
    FUZZ_CHECK(n == 0, "%s: %s", path, strerror(errno));
    close(fd);
    return true;
}

bool fuzz_same_files(const char *path_a, const char *path_b)
{
    struct fuzz_buffer a = {0}, b = {0};
    bool has_a = read_file(path_a, &a), has_b = read_file(path_b, &b);
    bool is_same =
        has_a == has_b && a.n == b.n && (a.n == 0 || memcmp(a.bytes, b.bytes, a.n) == 0);

    free(a.bytes);
    free(b.bytes);
    return is_same;
}

void *__wrap_mmap(void *address, size_t n, int protection, int flags, int fd,
                  off_t offset);
void *__wrap_mmap(void *address, size_t n, int protection, int flags, int fd,
                  off_t offset)
{
    uint8_t *copy = n <= FUZZ_MAP_MAX ? malloc(n) : NULL;

    FUZZ_CHECK(!address && protection == PROT_READ && flags == MAP_PRIVATE && copy,
               "%zu bytes are mapped in another way", n);
    for (size_t at = 0; at < n;) {
        ssize_t n_read = pread(fd, copy + at, n - at, offset + (off_t)at);
        FUZZ_CHECK(n_read > 0, "%zu of %zu bytes: %s", at, n, strerror(errno));
        at += (size_t)n_read;
    }
    return copy;
}

int __wrap_munmap(void *map, size_t n);
int __wrap_munmap(void *map, size_t n)
{
    (void)n;
    free(map);
    return 0;
}

/* ---------------------------------------------------------------------------- seeds */

static const char *seed_folder; /* NULL: seeds go nowhere */

void fuzz_make_seeds(const char *into)
{
    seed_folder = into;
    fuzz_write_seeds();
    seed_folder = NULL;
}

/* The fuzzer's hook at the start: "--seeds FOLDER" writes the seeds and does nothing
 * else. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (*argc == 3 && strcmp((*argv)[1], "--seeds") == 0) {
        fuzz_make_seeds((*argv)[2]);
        exit(0);
    }
    return 0;
}

void fuzz_add(struct fuzz_buffer *buffer, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    if (buffer->n + n > buffer->capacity) {
        buffer->capacity = 2 * (buffer->n + n);
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        FUZZ_CHECK(buffer->bytes, "out of memory");
    }
    memcpy(buffer->bytes + buffer->n, bytes, n);
    buffer->n += n;
}

void fuzz_add_text(struct fuzz_buffer *buffer, const char *text)
{
    fuzz_add(buffer, text, strlen(text));
}

void fuzz_add_file(struct fuzz_buffer *buffer, const char *path)
{
    FUZZ_CHECK(read_file(path, buffer), "%s: %s", path, strerror(errno));
}

void fuzz_seed(const char *name, struct fuzz_buffer *buffer)
{
    char path[512];

    if (seed_folder) {
        snprintf(path, sizeof path, "%s/%s", seed_folder, name);
        write_file(path, buffer->bytes, buffer->n);
    }
    free(buffer->bytes);
    *buffer = (struct fuzz_buffer){0};
}

void fuzz_seed_text(const char *name, const char *text)
{
    struct fuzz_buffer buffer = {0};

    fuzz_add_text(&buffer, text);
    fuzz_seed(name, &buffer);
}

/*
 * Reads one source of training data and tells its format. See data_file.h.
 *
 * llm.c's token files begin with 256 int32: magic, version, number of tokens, zeros. The
 * magic says the type: 20240520 with version 1 is uint16 (GPT-2), 20240801 with version 7
 * is uint32 (Llama 3). Source: llm.c, dev/data/data_common.py, write_datafile; the size
 * of the file must be exactly what the header says, as in llmc/dataloader.h.
 *
 * Flat files say nothing about themselves, so a .bin without a header is refused rather
 * than guessed: read as the wrong type, ids would still look like ids.
 */
#include "exec/data/data_file.h"

#include "core/path.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LLMC_HEADER_BYTES (256 * 4)
#define BLOCK_TOKENS      4096 /* read at once */

enum format { TEXT, FLAT_UINT16, FLAT_UINT32, LLMC, MEGATRON, N_FORMATS };

static const struct {
    const char *prefix; /* of a name: the format whatever the path looks like */
    const char *suffix; /* of a path; NULL: none of its own */
} formats[N_FORMATS] = {
    [TEXT] = {"text:", NULL},
    [FLAT_UINT16] = {"uint16:", ".u16"},
    [FLAT_UINT32] = {"uint32:", ".u32"},
    [LLMC] = {"llmc:", NULL},
    [MEGATRON] = {"megatron:", ".idx"},
};

static const struct {
    uint32_t magic, version;
    enum mist_token_type type;
} llmc_headers[] = {
    {20240520, 1, MIST_TOKEN_UINT16},
    {20240801, 7, MIST_TOKEN_UINT32},
};
enum { N_LLMC_HEADERS = sizeof llmc_headers / sizeof *llmc_headers };

/* ---------------------------------------------------------------------------- reading */

/* Data sets come in thousands of files, more than a process may open before it asks. */
static int open_one(const char *path)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* no wait for a pipe */
    int fd = open(path, flags);
    struct rlimit limit;

    if (fd >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return fd;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return open(path, flags);
}

enum mist_status mist_data_source_open(struct mist_data_source *source, const char *path,
                                       struct mist_err *err)
{
    struct stat info;
    enum mist_status status = MIST_OK;

    *source = (struct mist_data_source){.path = path, .fd = open_one(path)};
    if (source->fd < 0 || fstat(source->fd, &info) != 0)
        status = mist_err_io(err, path, "open", errno);
    else if (S_ISDIR(info.st_mode))
        status =
            mist_err_at(err, MIST_ERR_IO, path, 0, 0,
                        "is a folder, expected a file, or a pattern for those in it");
    else if (!S_ISREG(info.st_mode))
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0,
                             "is no regular file; data is read here and there");
    if (status == MIST_OK)
        source->size_bytes = (size_t)info.st_size;
    else
        mist_data_source_close(source);
    return status;
}

void mist_data_source_close(struct mist_data_source *source)
{
    if (source->path && source->fd >= 0)
        close(source->fd);
    *source = (struct mist_data_source){0};
}

enum mist_status mist_data_source_read(const struct mist_data_source *source,
                                       size_t first, size_t n, uint8_t *bytes,
                                       struct mist_err *err)
{
    while (n > 0) {
        ssize_t done = pread(source->fd, bytes, n, (off_t)first);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mist_err_io(err, source->path, "read", errno);
        if (done == 0)
            return mist_err_at(err, MIST_ERR_IO, source->path, 0, 0,
                               "has shrunk: it had %zu bytes, now it ends at byte %zu",
                               source->size_bytes, first);
        bytes += done;
        first += (size_t)done;
        n -= (size_t)done;
    }
    return MIST_OK;
}

/* Files are marked as read at random: a read of a sample brings in the sample and not as
 * much as the system is set to read ahead, 8 MiB on some machines. Advice that is not
 * taken does no harm. */
void mist_data_file_advise(const struct mist_data_file *file, int64_t first, int64_t n,
                           enum mist_data_access access)
{
    static const int advice[] = {
        [MIST_ACCESS_ONCE] = POSIX_FADV_SEQUENTIAL,
        [MIST_ACCESS_HERE_THERE] = POSIX_FADV_RANDOM,
    };
    int64_t token_bytes = mist_data_type_bytes(file->type);

    (void)posix_fadvise(file->source.fd,
                        (off_t)file->header_bytes + (off_t)(first * token_bytes),
                        (off_t)(n * token_bytes), advice[access]);
}

/* ---------------------------------------------------------------------------- formats */

/* Whether path with its last n_cut bytes replaced by suffix exists. A name too long for
 * the buffer is one that open() refuses, too (PATH_MAX). */
static bool exists(const char *path, size_t n_cut, const char *suffix)
{
    char sibling[4096 + 8];
    struct stat info;
    int n = snprintf(sibling, sizeof sibling, "%.*s%s", (int)(strlen(path) - n_cut), path,
                     suffix);

    return n > 0 && (size_t)n < sizeof sibling && stat(sibling, &info) == 0;
}

/* The format that a name asks for; *path is where its path starts. -1: what the file
 * itself tells. */
static int named_format(const char *name, const char **path)
{
    for (int i = 0; i < N_FORMATS; i++) {
        size_t n = strlen(formats[i].prefix);
        *path = name + n;
        if (strncmp(name, formats[i].prefix, n) == 0)
            return i;
    }
    *path = name;
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i].suffix && mist_path_ends(name, formats[i].suffix))
            return i;
    if (mist_path_ends(name, ".bin") && exists(name, 4, ".idx"))
        return MEGATRON;
    if (!exists(name, 0, "") && (exists(name, 0, ".idx") || exists(name, 0, ".bin")))
        return MEGATRON;
    return -1;
}

bool mist_data_file_is_pattern(const char *name, size_t *n_prefix)
{
    const char *path;

    (void)named_format(name, &path);
    *n_prefix = (size_t)(path - name);
    return strpbrk(path, "*?[") && !exists(path, 0, "");
}

/* The llm.c header with this magic; -1: none. */
static int find_llmc_magic(uint32_t magic)
{
    for (int i = 0; i < N_LLMC_HEADERS; i++)
        if (llmc_headers[i].magic == magic)
            return i;
    return -1;
}

/* The first four bytes, 0 where there are fewer. */
static enum mist_status read_magic(const struct mist_data_file *file, uint32_t *magic,
                                   struct mist_err *err)
{
    uint8_t bytes[4] = {0};
    enum mist_status status = MIST_OK;

    if (file->source.size_bytes >= sizeof bytes)
        status = mist_data_source_read(&file->source, 0, sizeof bytes, bytes, err);
    *magic = mist_data_load_uint32(bytes);
    return status;
}

static uint32_t swapped(uint32_t magic)
{
    return magic >> 24 | (magic >> 8 & 0xff00) | (magic << 8 & 0xff0000) | magic << 24;
}

static enum mist_status refuse_bin(const struct mist_data_file *file, uint32_t magic,
                                   struct mist_err *err)
{
    if (find_llmc_magic(swapped(magic)) >= 0)
        return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                           "has the header of llm.c in big-endian order, expected "
                           "little-endian");
    return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                       "has no header of llm.c and no Megatron .idx beside it; say what "
                       "it is by a prefix: uint16:, uint32: or text: and the path");
}

/* What the content says where the name did not. A text never begins with a magic of
 * llm.c: their first bytes are no characters in ASCII or UTF-8. */
static enum mist_status guess_format(const struct mist_data_file *file, int *format,
                                     struct mist_err *err)
{
    uint32_t magic;
    enum mist_status status = read_magic(file, &magic, err);

    if (status != MIST_OK)
        return status;
    *format = find_llmc_magic(magic) >= 0 ? LLMC : TEXT;
    if (*format == TEXT && mist_path_ends(file->path, ".bin"))
        return refuse_bin(file, magic, err);
    return *format == TEXT ? mist_data_file_refuse_foreign(file, true, err) : MIST_OK;
}

static enum mist_status read_llmc_header(struct mist_data_file *file,
                                         struct mist_err *err)
{
    uint8_t bytes[12];
    uint32_t magic;
    enum mist_status status = read_magic(file, &magic, err);
    int i = find_llmc_magic(magic);

    if (status != MIST_OK)
        return status;
    if (i < 0)
        return refuse_bin(file, magic, err);
    if (file->source.size_bytes < LLMC_HEADER_BYTES)
        return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                           "has %zu bytes, the header of llm.c has %d",
                           file->source.size_bytes, LLMC_HEADER_BYTES);
    status = mist_data_source_read(&file->source, 0, sizeof bytes, bytes, err);
    if (status != MIST_OK)
        return status;
    uint32_t version = mist_data_load_uint32(bytes + 4);
    uint32_t n_tokens = mist_data_load_uint32(bytes + 8);
    if (version != llmc_headers[i].version)
        return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                           "has version %" PRIu32 " of the llm.c header %" PRIu32
                           ", expected %" PRIu32,
                           version, llmc_headers[i].magic, llmc_headers[i].version);
    file->type = llmc_headers[i].type;
    file->header_bytes = LLMC_HEADER_BYTES;
    file->n_tokens = n_tokens;
    uint64_t size_bytes =
        LLMC_HEADER_BYTES + n_tokens * (uint64_t)mist_data_type_bytes(file->type);
    if (n_tokens > INT32_MAX || size_bytes != file->source.size_bytes)
        return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                           "the header says %" PRId32 " tokens, which is no file of %zu "
                           "bytes",
                           (int32_t)n_tokens, file->source.size_bytes);
    return MIST_OK;
}

static enum mist_status read_flat(struct mist_data_file *file, enum mist_token_type type,
                                  struct mist_err *err)
{
    size_t token_bytes = (size_t)mist_data_type_bytes(type);

    file->type = type;
    file->n_tokens = (int64_t)(file->source.size_bytes / token_bytes);
    if (file->source.size_bytes % token_bytes == 0)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                       "has %zu bytes, which is no multiple of the %zu of a token",
                       file->source.size_bytes, token_bytes);
}

static enum mist_status open_format(struct mist_data_file *file, const char *name,
                                    struct mist_err *err)
{
    const char *path;
    int format = named_format(name, &path);

    if (format == MEGATRON) {
        bool has_end = mist_path_ends(path, ".idx") || mist_path_ends(path, ".bin");
        return mist_data_megatron_open(file, path, strlen(path) - (has_end ? 4 : 0), err);
    }
    *file = (struct mist_data_file){.path = strdup(path)};
    if (!file->path)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for file names");
    enum mist_status status = mist_data_source_open(&file->source, file->path, err);
    if (status == MIST_OK && format < 0)
        status = guess_format(file, &format, err);
    else if (status == MIST_OK && (format == FLAT_UINT16 || format == FLAT_UINT32))
        status = mist_data_file_refuse_foreign(file, false, err);
    if (status != MIST_OK)
        return status;
    if (format == LLMC)
        return read_llmc_header(file, err);
    file->is_text = format == TEXT;
    return read_flat(file,
                     format == TEXT          ? MIST_TOKEN_UINT8
                     : format == FLAT_UINT16 ? MIST_TOKEN_UINT16
                                             : MIST_TOKEN_UINT32,
                     err);
}

void mist_data_file_close(struct mist_data_file *file)
{
    mist_data_source_close(&file->source);
    free(file->path);
    *file = (struct mist_data_file){0};
}

enum mist_status mist_data_file_open(struct mist_data_file *file, const char *name,
                                     struct mist_err *err)
{
    enum mist_status status = open_format(file, name, err);

    if (status == MIST_OK)
        mist_data_file_advise(file, 0, file->n_tokens, MIST_ACCESS_HERE_THERE);
    return status;
}

/* ---------------------------------------------------------------------------- tokens */

int64_t mist_data_type_bytes(enum mist_token_type type)
{
    static const uint8_t bytes[MIST_N_TOKEN_TYPES] = {1, 1, 2, 2, 4, 4, 8};

    return bytes[type];
}

int64_t mist_data_type_max(enum mist_token_type type)
{
    static const int64_t max[MIST_N_TOKEN_TYPES] = {
        UINT8_MAX, INT8_MAX, UINT16_MAX, INT16_MAX, UINT32_MAX, INT32_MAX, INT64_MAX};

    return max[type];
}

static inline uint16_t load_uint16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline int64_t load_token(const uint8_t *tokens, enum mist_token_type type,
                                 int64_t i)
{
    switch (type) {
    case MIST_TOKEN_UINT8:
        return tokens[i];
    case MIST_TOKEN_INT8:
        return (int8_t)tokens[i];
    case MIST_TOKEN_UINT16:
        return load_uint16(tokens + 2 * i);
    case MIST_TOKEN_INT16:
        return (int16_t)load_uint16(tokens + 2 * i);
    case MIST_TOKEN_UINT32:
        return mist_data_load_uint32(tokens + 4 * i);
    case MIST_TOKEN_INT32:
        return (int32_t)mist_data_load_uint32(tokens + 4 * i);
    default:
        return (int64_t)mist_data_load_uint64(tokens + 8 * i);
    }
}

/* Returns how many ids are out of bounds. Inlined with a constant type it has no branch
 * in the loop. */
static inline int64_t copy_tokens(const uint8_t *tokens, enum mist_token_type type,
                                  int64_t n, int64_t bound, int32_t *ids)
{
    int64_t n_bad = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t id = load_token(tokens, type, i);
        ids[i] = (int32_t)id;
        n_bad += (uint64_t)id >= (uint64_t)bound;
    }
    return n_bad;
}

/* Ids of one type; how many are out of bounds. */
static int64_t convert(const uint8_t *tokens, enum mist_token_type type, int64_t n,
                       int64_t bound, int32_t *ids)
{
    switch (type) {
    case MIST_TOKEN_UINT8:
        return copy_tokens(tokens, MIST_TOKEN_UINT8, n, bound, ids);
    case MIST_TOKEN_UINT16:
        return copy_tokens(tokens, MIST_TOKEN_UINT16, n, bound, ids);
    case MIST_TOKEN_UINT32:
        return copy_tokens(tokens, MIST_TOKEN_UINT32, n, bound, ids);
    case MIST_TOKEN_INT32:
        return copy_tokens(tokens, MIST_TOKEN_INT32, n, bound, ids);
    default:
        return copy_tokens(tokens, type, n, bound, ids);
    }
}

/* Tokens first .. first + n - 1 as they are stored. */
static enum mist_status read_raw(const struct mist_data_file *file, int64_t first,
                                 int64_t n, uint8_t *tokens, struct mist_err *err)
{
    size_t token_bytes = (size_t)mist_data_type_bytes(file->type);

    return mist_data_source_read(&file->source,
                                 file->header_bytes + (size_t)first * token_bytes,
                                 (size_t)n * token_bytes, tokens, err);
}

enum mist_status mist_data_file_stored(const struct mist_data_file *file, int64_t first,
                                       int64_t n, int64_t *values, struct mist_err *err)
{
    /* from the end of values: a number is converted before it is overwritten */
    uint8_t *tokens = (uint8_t *)(values + n) - n * mist_data_type_bytes(file->type);
    enum mist_status status = read_raw(file, first, n, tokens, err);

    for (int64_t i = 0; i < n && status == MIST_OK; i++)
        values[i] = load_token(tokens, file->type, i);
    return status;
}

enum mist_status mist_data_file_read(const struct mist_data_file *file, int64_t first,
                                     int64_t n, int64_t bound, int32_t *ids,
                                     struct mist_err *err)
{
    uint8_t tokens[BLOCK_TOKENS * 8];
    enum mist_status status = MIST_OK;

    for (int64_t n_here; n > 0 && status == MIST_OK; n -= n_here) {
        n_here = n < BLOCK_TOKENS ? n : BLOCK_TOKENS;
        status = read_raw(file, first, n_here, tokens, err);
        if (status == MIST_OK && convert(tokens, file->type, n_here, bound, ids) > 0) {
            int64_t i = 0;
            while ((uint64_t)load_token(tokens, file->type, i) < (uint64_t)bound)
                i++;
            status = mist_err_at(
                err, MIST_ERR_INPUT, file->path, 0, 0,
                "token %lld (from 0) is %lld, expected 0 to %lld", (long long)(first + i),
                (long long)load_token(tokens, file->type, i), (long long)bound - 1);
        }
        first += n_here;
        ids += n_here;
    }
    return status;
}

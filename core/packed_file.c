/* Files that may be packed. See packed_file.h. */
#include "core/packed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum mist_status mist_packed_file_open(struct mist_packed_file *file, const char *path,
                                       struct mist_err *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gzFile stream = fd >= 0 ? gzdopen(fd, "rb") : NULL;

    *file = (struct mist_packed_file){.path = path, .stream = stream};
    if (!stream) {
        enum mist_status status =
            mist_err_io(err, path, "open", fd >= 0 ? ENOMEM : errno);
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        file->n_bytes = (int64_t)info.st_size;
    return MIST_OK;
}

enum mist_status mist_packed_file_read(struct mist_packed_file *file, char *buffer,
                                       size_t n, size_t *got, struct mist_err *err)
{
    int code, n_read = gzread(file->stream, buffer, (unsigned)n);

    *got = n_read > 0 ? (size_t)n_read : 0;
    if (*got == n)
        return MIST_OK;
    gzerror(file->stream, &code);
    if (code == Z_OK || code == Z_STREAM_END)
        return MIST_OK;
    *got = 0;
    if (code == Z_ERRNO)
        return mist_err_io(err, file->path, "read", errno ? errno : EIO);
    if (code == Z_MEM_ERROR)
        return mist_err_memory(err, file->path);
    return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                       "begins like a gzip file, but is damaged or cut off");
}

int64_t mist_packed_file_done(const struct mist_packed_file *file)
{
    return (int64_t)gzoffset(file->stream);
}

void mist_packed_file_close(struct mist_packed_file *file)
{
    if (file->stream)
        gzclose_r(file->stream);
    file->stream = NULL;
}

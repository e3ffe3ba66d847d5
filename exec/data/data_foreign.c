/*
 * Files in which training data comes and that we don't read, told by their first bytes:
 * read as text or as ids they would train a model on noise without a word.
 *
 * Sources: numpy/lib/format.py; Apache Parquet, "File Format"; Apache Arrow, "IPC File
 * Format"; HDF5 File Format Specification, "Superblock"; PKWARE, APPNOTE.TXT, "Local file
 * header"; RFC 8878, "Zstandard Frames"; The .xz File Format; RFC 1952, "Member header".
 */
#include "exec/data/data_file.h"

#include "core/path.h"

#include <string.h>

#define HEAD_BYTES 4096 /* looked at */

static const struct {
    const char *bytes;
    size_t n;
    const char *what;
} magics[] = {
    {"\x93NUMPY", 6,
     "a NumPy array with a header, as save() writes it (tofile() writes ids)"},
    {"PAR1", 4, "a Parquet table"},
    {"ARROW1", 6, "an Arrow table"},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file"},
    {"PK\x03\x04", 4, "a zip archive"},
    {"\x28\xb5\x2f\xfd", 4, "compressed (zstd)"},
    {"\xfd\x37zXZ", 5, "compressed (xz)"},
    {"\x1f\x8b\x08", 3, "compressed (gzip)"},
};

static const char *find_magic(const uint8_t *head, size_t n)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (n >= magics[i].n && memcmp(head, magics[i].bytes, magics[i].n) == 0)
            return magics[i].what;
    return NULL;
}

enum mist_status mist_data_file_refuse_foreign(const struct mist_data_file *file,
                                               bool is_text, struct mist_err *err)
{
    uint8_t head[HEAD_BYTES];
    size_t size_bytes = file->source.size_bytes;
    size_t n = size_bytes < sizeof head ? size_bytes : sizeof head;
    enum mist_status status = mist_data_source_read(&file->source, 0, n, head, err);

    if (status != MIST_OK)
        return status;
    const char *what = find_magic(head, n);
    if (!what && is_text && mist_path_ends(file->path, ".jsonl"))
        what = "JSON lines";
    if (!what && is_text && memchr(head, 0, n))
        what = "no text (it has bytes of 0)";
    if (!what)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                       "is %s, expected plain text or a token file (README.md, \"Token "
                       "files\"); text: in front of the path takes its bytes as they are",
                       what);
}

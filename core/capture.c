/* Programs that are run for what they print. See capture.h. */
#include "core/capture.h"

#include "core/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RESULT_BYTES = 16 << 20 };

enum mist_status mist_capture_open(struct mist_capture *out, struct mist_err *err)
{
    out->output = tmpfile();
    out->errors = tmpfile();
    out->nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return out->output && out->errors && out->nothing >= 0
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_IO, "no temporary file: %s", strerror(errno));
}

void mist_capture_close(struct mist_capture *capture)
{
    if (capture->nothing >= 0)
        close(capture->nothing);
    if (capture->output)
        fclose(capture->output);
    if (capture->errors)
        fclose(capture->errors);
}

struct mist_process_result mist_capture_run(const struct mist_capture *capture,
                                            char *const *words, double limit_s,
                                            const atomic_int *stop)
{
    const struct mist_process process = {.words = words,
                                         .input = capture->nothing,
                                         .output = fileno(capture->output),
                                         .errors = fileno(capture->errors),
                                         .limit_s = limit_s,
                                         .stop = stop};

    return mist_process_run(&process);
}

/* All of a file; malloc'd. What is longer than any result is cut. */
static enum mist_status read_all(FILE *file, char **text, size_t *n, struct mist_err *err)
{
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    size_t size = length < MAX_RESULT_BYTES ? (size_t)length : MAX_RESULT_BYTES;

    *text = NULL;
    if (length >= 0) {
        rewind(file);
        *text = malloc(size + 1);
        if (!*text)
            return mist_err_memory(err, NULL);
        *n = fread(*text, 1, size, file);
    }
    return length < 0 || ferror(file)
               ? mist_err_set(err, MIST_ERR_IO, "a temporary file can't be read: %s",
                              strerror(errno))
               : MIST_OK;
}

enum mist_status mist_capture_read(const struct mist_capture *capture, const char *object,
                                   const char *key, double min, double max, double *out,
                                   struct mist_err *err)
{
    struct mist_json_doc doc = {0};
    char *text;
    size_t n = 0;
    enum mist_status status = read_all(capture->output, &text, &n, err);

    if (status == MIST_OK)
        status = mist_json_load_text(&doc, "", text, n, MIST_JSON_FOREIGN, err);
    struct mist_json root = mist_json_root(&doc), at = root;
    if (status == MIST_OK && object)
        status = mist_json_get_object(&root, object, MIST_JSON_REQUIRED, &at, err);
    if (status == MIST_OK)
        status = mist_json_get_double(&at, key, MIST_JSON_REQUIRED, min, max, out, err);
    mist_json_fini(&doc);
    free(text);
    return status;
}

char *mist_capture_describe(const struct mist_process_result *result, double limit_s,
                            char *text, size_t size)
{
    char time[MIST_FORMAT_BYTES];

    if (result->end == MIST_PROCESS_NOT_STARTED)
        snprintf(text, size, "can't be started (%s)", strerror(result->number));
    else if (result->end == MIST_PROCESS_LOST)
        snprintf(text, size, "was lost (%s)", strerror(result->number));
    else if (result->end == MIST_PROCESS_SIGNALED)
        snprintf(text, size, "was ended by signal %d", result->number);
    else if (result->end == MIST_PROCESS_OVER_LIMIT)
        snprintf(text, size, "took longer than %s",
                 mist_format_time_s(time, sizeof time, limit_s));
    else
        snprintf(text, size, "failed with exit code %d", result->number);
    return text;
}

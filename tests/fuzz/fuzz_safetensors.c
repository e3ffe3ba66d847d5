/*
 * exec/safetensors: one file, or an index and two files beside it (first byte). Every
 * value of what is accepted can be read, and what is written reads back as the same bits.
 */
#include "exec/huggingface/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <sys/stat.h>

enum { MAX_ELEMENTS = 1 << 14 };

/* The writer's names need no escapes in JSON; readers take any. */
static bool is_plain(const char *name)
{
    for (const char *p = name; *p; p++)
        if (*p < ' ' || *p > '~' || strchr("\"\\", *p))
            return false;
    return name[0] && strlen(name) < 200;
}

/* Written as fp32: names, shapes and bits of all tensors that are floats. */
static void write_again(const struct mist_safetensors *set, const char *path)
{
    static float values[MAX_ELEMENTS];
    int32_t n = 0, n_all = mist_safetensors_n(set);
    struct mist_safetensors_info *infos = calloc((size_t)n_all + 1, sizeof *infos);
    struct mist_safetensors_writer *writer;
    struct mist_err err = {0};

    FUZZ_CHECK(infos, "out of memory");
    for (int32_t i = 0; i < n_all; i++)
        if (mist_safetensors_is_float(set, i))
            infos[n++] = *mist_safetensors_info(set, i);
    fuzz_must(mist_safetensors_writer_open(path, true, MIST_DTYPE_FP32, infos, n, &writer,
                                           &err),
              &err);
    for (int32_t i = 0; i < n_all; i++)
        if (mist_safetensors_is_float(set, i)) {
            int64_t n_elements = mist_safetensors_info(set, i)->n_elements;
            mist_safetensors_read(set, i, 0, n_elements, values);
            mist_safetensors_write(writer, values, n_elements);
        }
    fuzz_must(mist_safetensors_writer_commit(writer, &err), &err);
    free(infos);
}

static void compare(const struct mist_safetensors *set,
                    const struct mist_safetensors *again)
{
    static float a[MAX_ELEMENTS], b[MAX_ELEMENTS];

    for (int32_t i = 0; i < mist_safetensors_n(set); i++) {
        const struct mist_safetensors_info *info = mist_safetensors_info(set, i);
        if (!mist_safetensors_is_float(set, i))
            continue;
        int32_t k = mist_safetensors_find(again, info->name);
        FUZZ_CHECK(k >= 0, "%s is gone", info->name);
        FUZZ_CHECK(mist_safetensors_info(again, k)->n_elements == info->n_elements,
                   "%s has another shape", info->name);
        mist_safetensors_read(set, i, 0, info->n_elements, a);
        mist_safetensors_read(again, k, 0, info->n_elements, b);
        FUZZ_CHECK(memcmp(a, b, (size_t)info->n_elements * sizeof *a) == 0,
                   "%s has other bits", info->name);
    }
}

static void look(const struct mist_safetensors *set)
{
    char path[FUZZ_PATH_BYTES];
    struct mist_safetensors *again;
    struct mist_err err = {0};

    for (int32_t i = 0; i < mist_safetensors_n(set); i++) {
        const struct mist_safetensors_info *info = mist_safetensors_info(set, i);
        FUZZ_CHECK(mist_safetensors_find(set, info->name) == i, "%s", info->name);
        FUZZ_CHECK(mist_safetensors_path(set, i)[0], "no path of %s", info->name);
        if (mist_safetensors_is_float(set, i) &&
            (info->n_elements > MAX_ELEMENTS || !is_plain(info->name)))
            return;
    }
    write_again(set, fuzz_path(path, "out.safetensors"));
    fuzz_must(mist_safetensors_open(path, &again, &err), &err);
    compare(set, again);
    mist_safetensors_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const single[] = {"one/model.safetensors"};
    static const char *const several[] = {"many/model.safetensors.index.json",
                                          "many/a.safetensors", "many/b.safetensors"};
    struct fuzz_bytes input = {bytes, n}, parts[3];
    bool is_single = fuzz_take(&input) % 2 == 0;
    int n_files = is_single ? 1 : 3;
    struct mist_safetensors *set = NULL;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    mkdir(fuzz_path(path, "one"), 0777);
    mkdir(fuzz_path(path, "many"), 0777);
    fuzz_split(input, parts, n_files);
    for (int i = 0; i < n_files; i++) {
        if (!parts[i].bytes)
            parts[i] = (struct fuzz_bytes){bytes, 0};
        fuzz_write(fuzz_path(path, is_single ? single[i] : several[i]), parts[i]);
    }
    enum mist_status status =
        mist_safetensors_open(fuzz_path(path, is_single ? "one" : "many"), &set, &err);
    if (status == MIST_OK) {
        look(set);
    } else if (status == MIST_ERR_IO) { /* the index names another file */
        FUZZ_CHECK(!is_single && err.path[0] && err.message[0], "%s", err.message);
    } else {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!set, "out was touched");
    }
    mist_safetensors_close(set);
    return 0;
}

/* ---- seeds ---- */

static void add_tensors(struct fuzz_buffer *buffer, const char *header, const void *data,
                        size_t n)
{
    size_t length = strlen(header);

    for (int i = 0; i < 8; i++) {
        uint8_t byte = (uint8_t)(length >> (8 * i) & 255);
        fuzz_add(buffer, &byte, 1);
    }
    fuzz_add_text(buffer, header);
    fuzz_add(buffer, data, n);
}

void fuzz_write_seeds(void)
{
    static const char zeros[32] = {0};
    static const char halves[] = "\0\x3c\1\0\0\xfc\xff\x7f";
    struct fuzz_buffer buffer = {0};

    fuzz_add_text(&buffer, "0");
    add_tensors(&buffer,
                "{\"__metadata__\":{\"format\":\"pt\"},"
                "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[8,12]},"
                "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                "\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}",
                zeros, 20);
    fuzz_seed("one", &buffer);
    fuzz_add_text(&buffer, "1{\"weight_map\": {\"x\": \"a.safetensors\", "
                           "\"y\": \"b.safetensors\"}}" FUZZ_NEXT);
    add_tensors(&buffer,
                "{\"x\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
                halves, 8);
    fuzz_add_text(&buffer, FUZZ_NEXT);
    add_tensors(&buffer,
                "{\"y\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}",
                zeros, 8);
    fuzz_seed("index", &buffer);
}

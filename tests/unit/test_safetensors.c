/*
 * exec/safetensors and exec/hf_names: files made by hand byte by byte, files that lie,
 * and models that go out and come back with the same bits.
 */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/random.h"
#include "exec/huggingface/hf_names.h"
#include "exec/huggingface/safetensors.h"
#include "tests/unit/parameter_counts.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"

#include <math.h>
#include <sys/stat.h>

/* A file of a header's text (n_claimed bytes, it says) and data. */
static void store(const char *path, uint64_t n_claimed, const char *header,
                  const void *data, size_t n_data)
{
    FILE *stream = fopen(path, "w");

    assert_non_null(stream);
    for (int i = 0; i < 8; i++)
        fputc((int)(n_claimed >> (8 * i) & 255), stream);
    fputs(header, stream);
    fwrite(data, 1, n_data, stream);
    assert_int_equal(fclose(stream), 0);
}

/* -------------------------------------------------------------------------- reading */

TEST(test_by_hand)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[8,12]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
        "\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[18,26]},"
        "\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[12,18]}}  ";
    static const unsigned char data[] = {
        0,    0,    0x80, 0x3f, 0, 0,    0x20, 0xc1, /* 1, -10 */
        0x40, 0x40, 0xc0, 0xff,                      /* 3, a NaN */
        0,    0x3c, 1,    0,    0, 0xfc,             /* 1, 2^-24, -infinity */
        7,    0,    0,    0,    0, 0,    0,    0};
    struct scratch scratch;
    struct mist_safetensors *set;
    struct mist_err err = {0};
    float out[3];

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "x.safetensors");
    store(path, strlen(header), header, data, sizeof data);
    enum mist_status status = mist_safetensors_open(path, &set, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, MIST_OK);
    assert_int_equal(mist_safetensors_n(set), 5);
    assert_int_equal(mist_safetensors_find(set, "c"), -1);
    assert_string_equal(mist_safetensors_info(set, 1)->name, "b");
    assert_int_equal(mist_safetensors_info(set, 1)->n_dims, 2);
    assert_int_equal(mist_safetensors_info(set, 1)->n_elements, 2);
    assert_int_equal(mist_safetensors_info(set, 2)->n_elements, 0);
    assert_int_equal(mist_safetensors_info(set, 4)->n_elements, 1);
    assert_string_equal(mist_safetensors_info(set, 4)->dtype, "I64");
    assert_false(mist_safetensors_is_float(set, 4));
    mist_safetensors_read(set, 0, 0, 2, out);
    assert_true(out[0] == 1 && out[1] == -10);
    mist_safetensors_read(set, 0, 1, 1, out);
    assert_true(out[0] == -10);
    mist_safetensors_read(set, 1, 0, 2, out);
    assert_true(out[0] == 3 && isnan(out[1]));
    mist_safetensors_read(set, 3, 0, 3, out);
    assert_true(out[0] == 1 && out[1] == 0x1p-24f && out[2] == -INFINITY);
    mist_safetensors_close(set);
    scratch_fini(&scratch);
}

/* All halves against the definition: (-1)^s 2^(e - 15) (1 + f / 1024). */
TEST(test_every_half)
{
    static const char header[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],"
                                 "\"data_offsets\":[0,131072]}}";
    struct scratch scratch;
    struct mist_safetensors *set;
    struct mist_err err;
    uint16_t *halves = malloc(65536 * sizeof *halves);
    float *out = malloc(65536 * sizeof *out);

    scratch_init(&scratch);
    for (int i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    const char *path = scratch_path(&scratch, "h.safetensors");
    store(path, strlen(header), header, halves, 131072);
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_OK);
    mist_safetensors_read(set, 0, 0, 65536, out);
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, fraction = i & 1023;
        double want = exponent == 0 ? ldexp(fraction, -24)
                                    : ldexp(1 + fraction / 1024.0, exponent - 15);
        if (exponent == 31)
            want = fraction ? NAN : INFINITY;
        assert_true(isnan(want) ? isnan(out[i]) : (double)fabsf(out[i]) == want);
        assert_int_equal(signbit(out[i]) != 0, i >> 15);
    }
    mist_safetensors_close(set);
    free(halves);
    free(out);
    scratch_fini(&scratch);
}

#define T(offsets) "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" offsets "]}"

TEST(test_files_that_lie)
{
    static const struct {
        const char *header, *message;
    } cases[] = {
        /* the data has 8 bytes */
        {"{\"a\":" T("0,4") ",\"b\":" T("0,4") "}", "overlaps another's"},
        {"{\"a\":" T("0,4") ",\"b\":" T("2,6") "}", "overlaps another's"},
        {"{\"a\":" T("4,8") "}", "leaves a hole"},
        {"{\"a\":" T("0,4") "}", "data of no tensor"},
        {"{}", "data of no tensor"},
        {"{\"a\":" T("0,4") ",\"b\":" T("8,12") "}", "is not within 0 .. 8"},
        {"{\"a\":" T("0,4") ",\"b\":" T("4,9223372036854775807") "}", "is not within"},
        {"{\"a\":" T("0,4") ",\"b\":" T("4,99999999999999999999") "}", "too big"},
        {"{\"a\":" T("0,8") "}", "do not fit its shape"},
        {"{\"a\":" T("4,0") "}", "do not fit its shape"},
        {"{\"a\":" T("0,4,8") "}", "expected a begin and an end"},
        {"{\"a\":" T("-4,0") "}", "is not within"},
        {"{\"a\":" T("0,4") ",\"a\":" T("4,8") "}", "duplicate"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", "F33"},
        {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", "a string"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
         "less than"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "whole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,2],"
         "\"data_offsets\":[0,8]}}",
         "does not fit"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,1],"
         "\"data_offsets\":[0,8]}}",
         "do not fit its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],"
         "\"data_offsets\":[0,8]}}",
         "9 dimensions"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets"},
        {"{\"a\":[1]}", "an object"},
        {"{\"__metadata__\":[1]}", "an object"},
        {" {}", "does not begin with {"},
        {"[1, 2]", "does not begin with {"},
        {"{\"a\":" T("0,8") "", "'}'"},
    };
    struct scratch scratch;
    struct mist_safetensors *set;
    struct mist_err err;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "x.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        store(path, strlen(cases[i].header), cases[i].header, "12345678", 8);
        err = (struct mist_err){0};
        assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_ERR_INPUT);
        assert_null(set);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].header, err.message);
        assert_string_equal(err.path, path);
    }
    store(path, 100000001, "{}", "", 0);
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "longer than 100000000"));
    store(path, UINT64_MAX, "{}", "", 0);
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_ERR_INPUT);
    store(path, 3, "{}", "", 0);
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "ends within its header"));
    scratch_write(path, "1234567");
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_ERR_INPUT);
    scratch_write(path, "");
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_ERR_INPUT);
    assert_int_equal(mist_safetensors_open("/nowhere/x", &set, &err), MIST_ERR_IO);
    assert_int_equal(mist_safetensors_open(scratch.folder, &set, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "neither model.safetensors nor"));
    scratch_fini(&scratch);
}

/* Damage and truncation anywhere: an error or a set that can be read, never more. */
TEST(test_random_damage)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,24]}}";
    struct scratch scratch;
    struct mist_random random;
    struct mist_err err;
    char data[24] = {0}, text[sizeof header];
    int n_refused = 0;

    mist_random_init(&random, test_seed(1));
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "x.safetensors");
    for (int round = 0; round < 3000; round++) {
        struct mist_safetensors *set;
        float out[64];
        memcpy(text, header, sizeof header);
        for (int64_t k = mist_random_below(&random, 3); k >= 0; k--)
            text[mist_random_below(&random, (int64_t)sizeof header - 1)] =
                "0123456789abF{}[]\",:-"[mist_random_below(&random, 21)];
        store(path, strlen(header) + (uint64_t)mist_random_below(&random, 50) / 49, text,
              data, (size_t)(24 - mist_random_below(&random, 30) / 29));
        if (mist_safetensors_open(path, &set, &err)) {
            n_refused++;
            continue;
        }
        for (int32_t i = 0; i < mist_safetensors_n(set); i++)
            if (mist_safetensors_is_float(set, i) &&
                mist_safetensors_info(set, i)->n_elements <= 64)
                mist_safetensors_read(set, i, 0,
                                      mist_safetensors_info(set, i)->n_elements, out);
        mist_safetensors_close(set);
    }
    assert_in_range(n_refused, 1500, 2999);
    scratch_fini(&scratch);
}

TEST(test_sharded)
{
    static const char head[] = "{\"metadata\":{\"total_size\":12},\"weight_map\":{";
    static const struct {
        const char *map, *message;
    } cases[] = {
        {"\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", "tensor c is not in"},
        {"\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"1.safetensors\"}}",
         "tensor c is not in 1.safetensors"},
        {"\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"2.safetensors\","
         "\"d\":\"2.safetensors\"}}",
         "tensor d is not in 2.safetensors"},
        {"\"a\":\"../1.safetensors\"}}", "not the name of a file"},
        {"\"a\":3}}", "a string"},
        {"\"a\":\"1.safetensors\",\"a2\":\"3.safetensors\"}}", "in another file, too"},
    };
    struct scratch scratch;
    struct mist_safetensors *set;
    struct mist_err err = {0};
    char text[512], index[128];
    float value = 0;

    scratch_init(&scratch);
    const char *one = "{\"a\":" T("0,4") "}",
               *two = "{\"b\":" T("0,4") ",\"c\":" T("4,8") "}";
    store(scratch_path(&scratch, "1.safetensors"), strlen(one), one, "\0\0\x80\x3f", 4);
    store(scratch_path(&scratch, "2.safetensors"), strlen(two), two,
          "\0\0\0\x40\0\0\x40\x40", 8);
    store(scratch_path(&scratch, "3.safetensors"), strlen(one), one, "\0\0\0\0", 4);
    snprintf(index, sizeof index, "%s",
             scratch_path(&scratch, "model.safetensors.index.json"));
    snprintf(
        text, sizeof text,
        "%s\"c\":\"2.safetensors\",\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}",
        head);
    scratch_write(index, text);
    assert_int_equal(mist_safetensors_open(scratch.folder, &set, &err), MIST_OK);
    assert_int_equal(mist_safetensors_n(set), 3);
    for (int32_t i = 0; i < 3; i++) {
        mist_safetensors_read(set, i, 0, 1, &value);
        assert_true(value == (float)(i + 1));
    }
    mist_safetensors_close(set);
    assert_int_equal(mist_safetensors_open(index, &set, &err), MIST_OK);
    mist_safetensors_close(set);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "%s%s", head, cases[i].map);
        scratch_write(index, text);
        assert_int_equal(mist_safetensors_open(index, &set, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].map, err.message);
    }
    scratch_fini(&scratch);
}

/* ---------------------------------------------------------------------------- writing */

TEST(test_written_bytes)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]}}";
    struct mist_safetensors_info infos[2] = {{.name = "b", .n_dims = 2, .shape = {1, 2}},
                                             {.name = "a"}};
    const float values[3] = {1, 2, -0.5f};
    struct scratch scratch;
    struct mist_safetensors_writer *writer;
    struct mist_err err = {0};
    unsigned char want[256] = {0}, have[256];
    size_t n = (strlen(header) + 7) / 8 * 8;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "x.safetensors");
    want[0] = (unsigned char)n;
    memset(want + 8, ' ', n);
    memcpy(want + 8, header, strlen(header));
    memcpy(want + 8 + n, values, sizeof values);
    assert_int_equal(mist_safetensors_writer_open(path, false, MIST_DTYPE_FP32, infos, 2,
                                                  &writer, &err),
                     MIST_OK);
    mist_safetensors_write(writer, values, 1);
    mist_safetensors_write(writer, values + 1, 2);
    assert_int_equal(mist_safetensors_writer_commit(writer, &err), MIST_OK);
    FILE *stream = fopen(path, "r");
    assert_int_equal(fread(have, 1, sizeof have, stream), 8 + n + sizeof values);
    fclose(stream);
    assert_memory_equal(have, want, 8 + n + sizeof values);
    assert_int_equal(mist_safetensors_writer_open(path, false, MIST_DTYPE_FP32, infos, 2,
                                                  &writer, &err),
                     MIST_ERR_USAGE);
    /* too few elements, two of one name, a name that needs escapes, a size too large */
    assert_int_equal(mist_safetensors_writer_open(path, true, MIST_DTYPE_FP32, infos, 2,
                                                  &writer, &err),
                     MIST_OK);
    mist_safetensors_write(writer, values, 2);
    assert_int_equal(mist_safetensors_writer_commit(writer, &err), MIST_ERR_RANGE);
    infos[1].name = "b";
    assert_int_equal(mist_safetensors_writer_open(path, true, MIST_DTYPE_FP32, infos, 2,
                                                  &writer, &err),
                     MIST_ERR_INPUT);
    infos[1].name = "\"";
    assert_int_equal(mist_safetensors_writer_open(path, true, MIST_DTYPE_FP32, infos, 2,
                                                  &writer, &err),
                     MIST_ERR_INPUT);
    infos[1] = (struct mist_safetensors_info){
        .name = "c", .n_dims = 2, .shape = {INT64_MAX / 2, 3}};
    assert_int_equal(mist_safetensors_writer_open(path, true, MIST_DTYPE_FP32, infos, 2,
                                                  &writer, &err),
                     MIST_ERR_RANGE);
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_fini(&scratch);
}

/* bf16 against the definition: the nearer of the two neighbours, the even one
 * if equal. */
TEST(test_bf16_rounding)
{
    enum { N = 20000 };
    struct mist_safetensors_info info = {.name = "a", .n_dims = 1, .shape = {N}};
    struct scratch scratch;
    struct mist_random random;
    struct mist_safetensors_writer *writer;
    struct mist_safetensors *set;
    struct mist_err err;
    static float values[N], out[N];

    mist_random_init(&random, test_seed(1));
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "x.safetensors");
    for (int i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)mist_random_next(&random);
        if (i % 3 == 0)
            bits = (bits & 0xffff0000) | 0x8000; /* a tie */
        memcpy(&values[i], &bits, sizeof bits);
    }
    values[0] = INFINITY;
    values[1] = NAN;
    values[2] = -0.0f;
    assert_int_equal(mist_safetensors_writer_open(path, false, MIST_DTYPE_BF16, &info, 1,
                                                  &writer, &err),
                     MIST_OK);
    mist_safetensors_write(writer, values, N);
    assert_int_equal(mist_safetensors_writer_commit(writer, &err), MIST_OK);
    assert_int_equal(mist_safetensors_open(path, &set, &err), MIST_OK);
    mist_safetensors_read(set, 0, 0, N, out);
    mist_safetensors_close(set);
    for (int i = 0; i < N; i++) {
        uint32_t bits, low_bits, high_bits;
        float low, high;
        assert_int_equal(signbit(out[i]) != 0, signbit(values[i]) != 0);
        if (!isfinite(values[i])) {
            assert_true(isnan(values[i]) ? isnan(out[i]) : out[i] == values[i]);
            continue;
        }
        memcpy(&bits, &values[i], sizeof bits);
        low_bits = bits & 0xffff0000;
        high_bits = low_bits + 0x10000;
        memcpy(&low, &low_bits, sizeof low);
        memcpy(&high, &high_bits, sizeof high);
        double below = fabs((double)values[i] - (double)low);
        double above = isfinite(high) ? fabs((double)high - (double)values[i])
                                      : fabs(0x1p128 - fabs((double)values[i]));
        bool is_up = above < below || (above == below && (low_bits >> 16 & 1));
        assert_true(out[i] == (is_up ? high : low));
    }
    scratch_fini(&scratch);
}

/* ----------------------------------------------------------------------------- models */

/* Element i of a parameter: any bits but those of NaNs, which a source may not keep. */
static float element(int32_t module, const char *param, int64_t i)
{
    uint64_t stream = (uint64_t)module;

    for (const char *p = param; *p; p++)
        stream = 131 * stream + (unsigned char)*p;
    uint64_t bits = mist_random_at(9, stream, (uint64_t)i);
    return (float)(int32_t)(uint32_t)bits * 0x1p-30f;
}

static enum mist_status fill(void *context, int32_t module, const char *param, int64_t n,
                             float *out, struct mist_err *err)
{
    int *n_left = context;

    if (n_left && (*n_left)-- == 0)
        return mist_err_set(err, MIST_ERR_RUN, "no more");
    for (int64_t i = 0; i < n; i++)
        out[i] = element(module, param, i);
    return MIST_OK;
}

/* Elements first .. first + n - 1 of a whole parameter. */
static enum mist_status whole_param(const struct mist_hf *hf, int32_t module,
                                    const char *param, int64_t first, int64_t n,
                                    float *out, struct mist_err *err)
{
    const struct mist_param_span span = {.global_first = first, .length = n, .n_runs = 1};

    return mist_hf_read_spans(hf, module, param, &span, 1, out, err);
}

static void expect_model(const char *path, const struct mist_model *model)
{
    struct mist_hf_param params[MIST_HF_MAX_PARAMS];
    struct mist_random random;
    struct mist_hf *hf;
    struct mist_err err = {0};
    static float out[1 << 14], local[1 << 14];

    mist_random_init(&random, 5);
    enum mist_status status = mist_hf_load(path, model, &hf, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, MIST_OK);
    int64_t n_all = 0;
    for (int32_t module = 0; module <= model->n_layers + 1; module++) {
        int32_t n_params = mist_hf_params(model, module, params);
        for (int32_t p = 0; p < n_params; p++) {
            const char *name = params[p].name;
            int64_t rows = params[p].rows, columns = params[p].columns;
            int64_t n = rows * columns;
            n_all += n;
            assert_int_equal(whole_param(hf, module, name, 0, n, out, &err), MIST_OK);
            for (int64_t i = 0; i < n; i++)
                assert_true(out[i] == element(module, name, i));
            int64_t first = mist_random_below(&random, n);
            n = mist_random_below(&random, n - first + 1);
            assert_int_equal(whole_param(hf, module, name, first, n, out, &err), MIST_OK);
            for (int64_t i = 0; i < n; i++)
                assert_true(out[i] == element(module, name, first + i));
            /* a column of it */
            struct mist_param_span span = {.local_first = 3,
                                           .global_first = columns / 2,
                                           .length = 1,
                                           .n_runs = rows,
                                           .global_stride = columns};
            assert_int_equal(mist_hf_read_spans(hf, module, name, &span, 1, local, &err),
                             MIST_OK);
            for (int64_t i = 0; i < rows; i++)
                assert_true(local[3 + i] ==
                            element(module, name, i * columns + columns / 2));
        }
    }
    assert_int_equal(n_all, count_parameters(model));
    assert_int_equal(whole_param(hf, 1, "nope", 0, 0, out, &err), MIST_ERR_INPUT);
    assert_int_equal(whole_param(hf, 99, "wte", 0, 0, out, &err), MIST_ERR_INPUT);
    assert_int_equal(whole_param(hf, 0, "wte", 0, 61 * 24 + 1, out, &err),
                     MIST_ERR_INPUT);
    if (model->ties_embeddings) {
        assert_int_equal(
            whole_param(hf, model->n_layers + 1, "head.weight", 5, 9, out, &err),
            MIST_OK);
        assert_true(out[0] == element(0, "wte", 5));
    }
    mist_hf_close(hf);
}

static void expect_config(struct scratch *scratch, const struct mist_model *model)
{
    struct mist_model loaded, want = *model;
    struct mist_err err;

    assert_int_equal(
        mist_model_load_config(scratch_path(scratch, "config.json"), &loaded, &err),
        MIST_OK);
    if (want.family == MIST_FAMILY_GPT)
        want.has_bias = true;
    memcpy(want.name, loaded.name, sizeof want.name);
    assert_int_equal(loaded.family, want.family);
    assert_int_equal(loaded.n_layers, want.n_layers);
    assert_int_equal(loaded.hidden, want.hidden);
    assert_int_equal(loaded.n_heads, want.n_heads);
    assert_int_equal(loaded.n_kv_heads, want.n_kv_heads);
    assert_int_equal(loaded.head_dim, want.head_dim);
    assert_int_equal(loaded.ffn, want.ffn);
    assert_int_equal(loaded.vocab, want.vocab);
    assert_int_equal(loaded.max_seq, want.max_seq);
    assert_int_equal(loaded.has_bias, want.has_bias);
    assert_int_equal(loaded.ties_embeddings, want.ties_embeddings);
    assert_true(loaded.norm_epsilon == want.norm_epsilon);
    assert_true(loaded.rope_theta == want.rope_theta);
}

TEST(test_models_come_back)
{
    for (int i = 0; i < 5; i++) {
        struct mist_model model =
            mist_tiny_model(i < 3 ? MIST_FAMILY_GPT : MIST_FAMILY_LLAMA, 2 + i % 2);
        struct scratch scratch;
        struct mist_err err = {0};
        model.ties_embeddings = i == 1 || i == 4;
        model.has_bias = i < 2;
        scratch_init(&scratch);
        assert_int_equal(mist_hf_save(scratch.folder, &model, 0, MIST_DTYPE_FP32, false,
                                      fill, NULL, &err),
                         MIST_OK);
        expect_model(scratch.folder, &model);
        expect_model(scratch_path(&scratch, "model.safetensors"), &model);
        expect_config(&scratch, &model);
        assert_int_equal(mist_hf_save(scratch.folder, &model, 0, MIST_DTYPE_FP32, false,
                                      fill, NULL, &err),
                         MIST_ERR_USAGE);
        assert_int_equal(mist_hf_save(scratch.folder, &model, 0, MIST_DTYPE_BF16, true,
                                      fill, NULL, &err),
                         MIST_OK);
        assert_int_equal(scratch_count(&scratch), 2);
        scratch_fini(&scratch);
    }
}

static float at(const struct mist_safetensors *set, const char *name, int64_t i)
{
    int32_t found = mist_safetensors_find(set, name);
    float value;

    assert_true(found >= 0);
    mist_safetensors_read(set, found, i, 1, &value);
    return value;
}

/* Where single elements of ours are in the file, by the meaning of the layers. */
TEST(test_places)
{
    struct mist_model gpt = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_model llama = mist_tiny_model(MIST_FAMILY_LLAMA, 2);
    struct scratch scratch;
    struct mist_safetensors *set;
    struct mist_err err;

    scratch_init(&scratch);
    assert_int_equal(
        mist_hf_save(scratch.folder, &gpt, 0, MIST_DTYPE_FP32, false, fill, NULL, &err),
        MIST_OK);
    assert_int_equal(mist_safetensors_open(scratch.folder, &set, &err), MIST_OK);
    assert_int_equal(mist_safetensors_n(set), 2 + 2 * 12 + 2 + 1);
    /* x @ W: row 5 (in), column 50 (out: key 2) of [24, 72]; ours is row 50, column 5 */
    assert_true(at(set, "transformer.h.1.attn.c_attn.weight", 5 * 72 + 50) ==
                element(2, "qkv.weight", 50 * 24 + 5));
    assert_true(at(set, "transformer.h.1.attn.c_attn.bias", 50) ==
                element(2, "qkv.bias", 50));
    assert_true(at(set, "transformer.h.0.mlp.c_proj.weight", 37 * 24 + 3) ==
                element(1, "down.weight", 3 * 38 + 37));
    assert_true(at(set, "transformer.h.0.ln_2.bias", 7) == element(1, "norm2.bias", 7));
    assert_true(at(set, "transformer.wpe.weight", 100) == element(0, "wpe", 100));
    assert_true(at(set, "transformer.ln_f.weight", 1) == element(3, "norm.weight", 1));
    assert_true(at(set, "lm_head.weight", 60 * 24) == element(3, "head.weight", 60 * 24));
    mist_safetensors_close(set);
    assert_int_equal(
        mist_hf_save(scratch.folder, &llama, 0, MIST_DTYPE_FP32, true, fill, NULL, &err),
        MIST_OK);
    assert_int_equal(mist_safetensors_open(scratch.folder, &set, &err), MIST_OK);
    assert_int_equal(mist_safetensors_n(set), 1 + 2 * 9 + 1 + 1);
    /* 24 query rows, 12 key rows, 12 value rows of 24 */
    assert_true(at(set, "model.layers.0.self_attn.q_proj.weight", 23 * 24 + 1) ==
                element(1, "qkv.weight", 23 * 24 + 1));
    assert_true(at(set, "model.layers.0.self_attn.k_proj.weight", 2 * 24 + 1) ==
                element(1, "qkv.weight", (24 + 2) * 24 + 1));
    assert_true(at(set, "model.layers.0.self_attn.v_proj.weight", 11 * 24) ==
                element(1, "qkv.weight", (36 + 11) * 24));
    assert_true(at(set, "model.layers.1.mlp.gate_proj.weight", 30) ==
                element(2, "up.weight", 30));
    assert_true(at(set, "model.layers.1.mlp.up_proj.weight", 30) ==
                element(2, "up.weight", 38 * 24 + 30));
    assert_true(at(set, "model.norm.weight", 2) == element(3, "norm.weight", 2));
    mist_safetensors_close(set);
    scratch_fini(&scratch);
}

/* A file of zeros with the tensors of a model, one of them changed. */
enum change {
    AS_IS,
    MISSING,
    SURPLUS,
    SHAPE,
    DTYPE,
    BUFFERS,
    TIED_HEAD,
    OTHER_HEAD,
    BIAS
};

struct maker {
    char text[16384];
    size_t n;
    int64_t n_bytes;
};

static void add(struct maker *maker, const char *name, const char *dtype, int64_t rows,
                int64_t columns)
{
    int64_t n = rows * (columns ? columns : 1) * 4;

    maker->n += (size_t)snprintf(
        maker->text + maker->n, sizeof maker->text - maker->n,
        "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld%s%.0lld],\"data_offsets\":[%lld,%lld]"
        "}",
        maker->n ? ',' : '{', name, dtype, (long long)rows, columns ? "," : "",
        (long long)columns, (long long)maker->n_bytes, (long long)(maker->n_bytes + n));
    maker->n_bytes += n;
}

/* GPT-2 of one layer as it is published: no prefix. */
static void make_gpt2(const char *path, enum change change)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } tensors[] = {
        {"wte.weight", 61, 24},
        {"wpe.weight", 96, 24},
        {"h.0.ln_1.weight", 24, 0},
        {"h.0.ln_1.bias", 24, 0},
        {"h.0.attn.c_attn.weight", 24, 72},
        {"h.0.attn.c_attn.bias", 72, 0},
        {"h.0.attn.c_proj.weight", 24, 24},
        {"h.0.attn.c_proj.bias", 24, 0},
        {"h.0.ln_2.weight", 24, 0},
        {"h.0.ln_2.bias", 24, 0},
        {"h.0.mlp.c_fc.weight", 24, 38},
        {"h.0.mlp.c_fc.bias", 38, 0},
        {"h.0.mlp.c_proj.weight", 38, 24},
        {"h.0.mlp.c_proj.bias", 24, 0},
        {"ln_f.weight", 24, 0},
        {"ln_f.bias", 24, 0},
    };
    static struct maker maker;

    maker = (struct maker){0};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (i == 6 && change == MISSING)
            continue;
        if (i == 6 && change == SHAPE) /* the transposed one */
            add(&maker, tensors[10].name, "F32", 38, 24);
        if (i != 10 || change != SHAPE)
            add(&maker, tensors[i].name, i == 4 && change == DTYPE ? "I32" : "F32",
                tensors[i].rows, tensors[i].columns);
    }
    if (change == SURPLUS)
        for (int i = 0; i < 5; i++)
            add(&maker, (const char *[]){"x0", "x1", "x2", "x3", "x4"}[i], "F32", 1, 0);
    if (change == BUFFERS) {
        add(&maker, "h.0.attn.bias", "F32", 96, 96);
        add(&maker, "h.0.attn.masked_bias", "F32", 1, 0);
    }
    if (change == TIED_HEAD || change == OTHER_HEAD)
        add(&maker, "lm_head.weight", "F32", 61, 24);
    strcat(maker.text, "}");
    char *data = calloc(1, (size_t)maker.n_bytes);
    if (change == OTHER_HEAD)
        data[maker.n_bytes - 1] = 1;
    if (change == BIAS) /* the last of mlp.c_proj.bias */
        data[maker.n_bytes - 2 * 24 * 4 - 1] = 1;
    store(path, strlen(maker.text), maker.text, data, (size_t)maker.n_bytes);
    free(data);
}

TEST(test_models_that_do_not_fit)
{
    static const struct {
        enum change change;
        bool is_untied, has_no_bias;
        const char *message; /* NULL: accepted */
    } cases[] = {
        {AS_IS, false, false, NULL},
        {BUFFERS, false, false, NULL},
        {TIED_HEAD, false, false, NULL},
        {TIED_HEAD, true, false, NULL},
        {OTHER_HEAD, true, false, NULL},
        {AS_IS, false, true, NULL}, /* biases of zero */
        {AS_IS, true, false, "has no tensor lm_head.weight"},
        {OTHER_HEAD, false, false, "from which differs tensor lm_head.weight"},
        {MISSING, false, false, "has no tensor h.0.attn.c_proj.weight"},
        {SHAPE, false, false,
         "tensor h.0.mlp.c_fc.weight is [38, 24], expected [24, 38]"},
        {DTYPE, false, false, "tensor h.0.attn.c_attn.weight has dtype I32"},
        {SURPLUS, false, false,
         "has 5 tensors that the model has no place for: x0, x1, x2"},
        {BIAS, false, true, "has no biases, but there is tensor h.0.mlp.c_proj.bias"},
    };
    struct scratch scratch;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "gpt2.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 1);
        struct mist_hf *hf;
        struct mist_err err = {0};
        model.ties_embeddings = !cases[i].is_untied;
        model.has_bias = !cases[i].has_no_bias;
        make_gpt2(path, cases[i].change);
        enum mist_status status = mist_hf_load(path, &model, &hf, &err);
        if (cases[i].message ? !strstr(err.message, cases[i].message) : err.message[0])
            fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(status, cases[i].message ? MIST_ERR_INPUT : MIST_OK);
        mist_hf_close(hf);
    }
    scratch_fini(&scratch);
}

/* ----------------------------------------------------------------------------- faults */

TEST(test_failed_saves)
{
    struct mist_model model = mist_tiny_model(MIST_FAMILY_LLAMA, 1);
    struct scratch scratch;
    struct mist_err err = {0};

    scratch_init(&scratch);
    for (int n = 0;; n++) {
        int n_left = n;
        enum mist_status status = mist_hf_save(scratch.folder, &model, 0, MIST_DTYPE_BF16,
                                               false, fill, &n_left, &err);
        if (!status)
            break;
        assert_int_equal(status, MIST_ERR_RUN);
        assert_int_equal(scratch_count(&scratch), 0);
    }
    for (int fault = FAULT_FFLUSH; fault <= FAULT_RENAME; fault++)
        for (long n = 1;; n++) {
            fault_arm((enum fault)fault, n);
            enum mist_status status = mist_hf_save(
                scratch.folder, &model, 0, MIST_DTYPE_FP32, true, fill, NULL, &err);
            bool has_failed = fault_disarm();
            assert_int_equal(status, has_failed ? MIST_ERR_IO : MIST_OK);
            assert_int_equal(scratch_count(&scratch), 2); /* nothing half-written */
            if (!has_failed)
                break;
        }
    expect_model(scratch.folder, &model);
    scratch_fini(&scratch);
}

TEST(test_faults_of_malloc)
{
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 1);
    struct scratch scratch;
    struct mist_err err = {0};

    scratch_init(&scratch);
    assert_int_equal(
        mist_hf_save(scratch.folder, &model, 0, MIST_DTYPE_FP32, false, fill, NULL, &err),
        MIST_OK);
    long n_live = fault_n_live();
    for (long n = 1;; n++) {
        struct mist_hf *hf;
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = mist_hf_load(scratch.folder, &model, &hf, &err);
        bool has_failed = fault_disarm();
        mist_hf_close(hf);
        /* Jansson, out of memory, may lose a part of a name: then it is not found */
        if (has_failed ? status != MIST_ERR_MEMORY && status != MIST_ERR_INPUT : status)
            fail_msg("allocation %ld: %s", n, err.message);
        assert_int_equal(fault_n_live(), n_live);
        if (!has_failed)
            break;
    }
    for (long n = 1;; n++) {
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = mist_hf_save(scratch.folder, &model, 0, MIST_DTYPE_FP32,
                                               true, fill, NULL, &err);
        bool has_failed = fault_disarm();
        assert_true(status == MIST_OK ||
                    (has_failed && (status == MIST_ERR_MEMORY || status == MIST_ERR_IO)));
        assert_int_equal(fault_n_live(), n_live);
        assert_int_equal(scratch_count(&scratch), 2);
        if (!has_failed)
            break;
    }
    scratch_fini(&scratch);
}

TEST_MAIN(NULL, NULL)

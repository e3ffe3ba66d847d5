/*
 * exec/safetensors: which places of tensors make a file, and what their values are.
 *
 * fuzz_safetensors.c mutates files, which seldom leaves offsets in order. Here the input
 * is a recipe of small numbers from which a file is made: the file must open just when
 * its tensors can be laid end to end from the first byte to the last, and every value
 * must be what the format's definition says.
 *
 *     number of tensors; for each its type, number of dimensions, sizes, and how far its
 *     begin and its end are from where they belong (4: not at all); bytes behind the last
 */
#include "exec/huggingface/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

enum { MAX_TENSORS = 6, MAX_DIMS = 9, MAX_DATA = 2048 };

struct type {
    const char *name;
    int64_t bytes;
    int exponent_bits, fraction_bits; /* 0: no float that we read */
};

static const struct type types[] = {{"F32", 4, 8, 23}, {"BF16", 2, 8, 7},
                                    {"F16", 2, 5, 10}, {"I64", 8, 0, 0},
                                    {"BOOL", 1, 0, 0}, {"F31", 4, 0, 0}};
enum { N_TYPES = sizeof types / sizeof *types, N_KNOWN = N_TYPES - 1 };

struct tensor {
    const struct type *type;
    int n_dims;
    int64_t shape[MAX_DIMS], n_elements, begin, end;
};

struct recipe {
    int n;
    struct tensor tensors[MAX_TENSORS];
    int64_t n_data;
};

/* ---------------------------------------------------------------------------- recipe */

/* Mostly 0. */
static int64_t take_shift(struct fuzz_bytes *input)
{
    unsigned byte = fuzz_take(input);

    return byte < 9 ? (int64_t)byte - 4 : 0;
}

static void take_recipe(struct fuzz_bytes input, struct recipe *out)
{
    int64_t at = 0;

    *out = (struct recipe){.n = (int)(fuzz_take(&input) % (MAX_TENSORS + 1))};
    for (int i = 0; i < out->n; i++) {
        struct tensor *tensor = &out->tensors[i];
        tensor->type = &types[fuzz_take(&input) % N_TYPES];
        tensor->n_dims = (int)(fuzz_take(&input) % (MAX_DIMS + 1));
        tensor->n_elements = 1;
        for (int k = 0; k < tensor->n_dims; k++) {
            tensor->shape[k] = fuzz_take(&input) % 4;
            if (tensor->n_elements > 32)
                tensor->shape[k] = 1;
            tensor->n_elements *= tensor->shape[k];
        }
        tensor->begin = at + take_shift(&input);
        tensor->end = at + tensor->n_elements * tensor->type->bytes + take_shift(&input);
        if (tensor->begin < 0)
            tensor->begin = 0;
        at = tensor->end > at ? tensor->end : at;
    }
    out->n_data = at + take_shift(&input);
    if (out->n_data < 0)
        out->n_data = 0;
}

/* Lays tensors end to end, empty ones first. */
static bool can_be_laid(const struct recipe *recipe)
{
    bool is_laid[MAX_TENSORS] = {false};
    int64_t at = 0;

    for (int n = 0; n < recipe->n; n++) {
        int next = -1;
        for (int i = 0; i < recipe->n; i++) {
            const struct tensor *tensor = &recipe->tensors[i];
            if (!is_laid[i] && tensor->begin == at &&
                (next < 0 || tensor->end < recipe->tensors[next].end))
                next = i;
        }
        if (next < 0)
            return false;
        is_laid[next] = true;
        at = recipe->tensors[next].end;
    }
    return at == recipe->n_data;
}

static bool is_valid(const struct recipe *recipe)
{
    for (int i = 0; i < recipe->n; i++) {
        const struct tensor *tensor = &recipe->tensors[i];
        if (tensor->type == &types[N_KNOWN] ||
            tensor->n_dims > MIST_SAFETENSORS_MAX_DIMS ||
            tensor->end - tensor->begin != tensor->n_elements * tensor->type->bytes)
            return false;
    }
    return can_be_laid(recipe);
}

/* ------------------------------------------------------------------------------ file */

static uint8_t data_byte(int64_t i)
{
    return (uint8_t)(i * 37 + i / 7 * 91 + 11);
}

static void add_byte(struct fuzz_buffer *buffer, uint8_t byte)
{
    fuzz_add(buffer, &byte, 1);
}

static void write_recipe(const struct recipe *recipe, const char *path)
{
    struct fuzz_buffer header = {0}, file = {0};
    char text[128];

    fuzz_add_text(&header, "{");
    for (int i = 0; i < recipe->n; i++) {
        const struct tensor *tensor = &recipe->tensors[i];
        snprintf(text, sizeof text, "%s\"%c\":{\"dtype\":\"%s\",\"shape\":[",
                 i > 0 ? "," : "", 'a' + i, tensor->type->name);
        fuzz_add_text(&header, text);
        for (int k = 0; k < tensor->n_dims; k++) {
            snprintf(text, sizeof text, "%s%d", k > 0 ? "," : "", (int)tensor->shape[k]);
            fuzz_add_text(&header, text);
        }
        snprintf(text, sizeof text, "],\"data_offsets\":[%d,%d]}", (int)tensor->begin,
                 (int)tensor->end);
        fuzz_add_text(&header, text);
    }
    fuzz_add_text(&header, "}");
    for (int i = 0; i < 8; i++)
        add_byte(&file, (uint8_t)((uint64_t)header.n >> (8 * i)));
    fuzz_add(&file, header.bytes, header.n);
    for (int64_t i = 0; i < recipe->n_data; i++)
        add_byte(&file, data_byte(i));
    fuzz_write(path, (struct fuzz_bytes){file.bytes, file.n});
    free(header.bytes);
    free(file.bytes);
}

/* Sign, exponent and fraction of IEEE 754. */
static double value_at(const struct type *type, int64_t at)
{
    uint32_t bits = 0;
    int bias = (1 << (type->exponent_bits - 1)) - 1;

    for (int64_t i = type->bytes - 1; i >= 0; i--)
        bits = bits << 8 | data_byte(at + i);
    int exponent = (int)(bits >> type->fraction_bits) & (2 * bias + 1);
    uint32_t whole = UINT32_C(1) << type->fraction_bits, fraction = bits & (whole - 1);
    double sign = bits >> (type->exponent_bits + type->fraction_bits) ? -1 : 1;
    if (exponent == 2 * bias + 1)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - type->fraction_bits);
    return sign * ldexp(whole + fraction, exponent - bias - type->fraction_bits);
}

/* ---------------------------------------------------------------------------- checks */

static void check_tensor(const struct mist_safetensors *set, int i,
                         const struct tensor *tensor)
{
    char name[] = {(char)('a' + i), '\0'};
    int32_t found = mist_safetensors_find(set, name);
    float values[MAX_DATA];

    FUZZ_CHECK(found >= 0, "no %s", name);
    const struct mist_safetensors_info *info = mist_safetensors_info(set, found);
    FUZZ_CHECK(info->n_dims == tensor->n_dims && info->n_elements == tensor->n_elements &&
                   strcmp(info->dtype, tensor->type->name) == 0,
               "%s is another tensor", name);
    FUZZ_CHECK(mist_safetensors_is_float(set, found) == (tensor->type->exponent_bits > 0),
               "%s", name);
    if (!mist_safetensors_is_float(set, found))
        return;
    for (int64_t first = 0; first < tensor->n_elements; first = 2 * first + 1) {
        int64_t n = tensor->n_elements - first;
        mist_safetensors_read(set, found, first, n, values);
        for (int64_t k = 0; k < n; k++) {
            double value =
                value_at(tensor->type, tensor->begin + (first + k) * tensor->type->bytes);
            FUZZ_CHECK((isnan(value) && isnan(values[k])) ||
                           ((double)values[k] == value &&
                            !signbit(value) == !signbit(values[k])),
                       "%s[%lld] is %g, expected %g", name, (long long)(first + k),
                       values[k], value);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct recipe recipe;
    struct mist_safetensors *set = NULL;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    take_recipe((struct fuzz_bytes){bytes, n}, &recipe);
    bool valid = is_valid(&recipe);
    write_recipe(&recipe, fuzz_path(path, "x.safetensors"));
    enum mist_status status = mist_safetensors_open(path, &set, &err);
    FUZZ_CHECK((status == MIST_OK) == valid, "valid %d, but %s", valid,
               status == MIST_OK ? "it opens" : err.message);
    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    for (int i = 0; i < recipe.n && valid; i++)
        check_tensor(set, i, &recipe.tensors[i]);
    mist_safetensors_close(set);
    return 0;
}

void fuzz_write_seeds(void)
{
    /* Two matrices and a bool; half a scalar, nothing, and integers. */
    static const uint8_t three[] = {3, 0, 2,  3,  2, 99, 99, 1,  2,
                                    2, 3, 99, 99, 4, 0,  99, 99, 99};
    static const uint8_t odd[] = {3, 2, 0, 99, 99, 0, 2, 0, 3, 99, 99, 3, 1, 2, 99, 99};
    struct fuzz_buffer buffer = {0};

    fuzz_add(&buffer, three, sizeof three);
    fuzz_seed("three", &buffer);
    fuzz_add(&buffer, odd, sizeof odd);
    fuzz_seed("odd", &buffer);
}

/*
 * exec/checkpoint: how tensors are cut into pieces, against a list of all elements.
 *
 * fuzz_checkpoint.c mutates files, which seldom leaves their tables in order. Here the
 * input is a recipe of small numbers from which two ranks' files are made, sound but for
 * what the recipe says of pieces: spans of any length, runs and stride, that overlap,
 * leave elements out or hold other bits. What opens, verifies and reads must be what a
 * list of who holds each element says. Checksums are left out, as there.
 *
 *     number of tensors, elements of each;
 *     then for each piece: bit 0 the rank, bit 1 other bits, the rest the tensor;
 *     number of spans; per span length, runs, first, stride
 */
#include "exec/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/whole_tensors.h"

#include <sys/stat.h>

enum { N_RANKS = 2, MAX_TENSORS = 3, MAX_WHOLE = 32, MAX_PIECES = 12, MAX_SPANS = 3 };
enum { MAX_PAYLOAD = 64 }; /* elements of a piece */

uint64_t __wrap_mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed);
uint64_t __wrap_mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed)
{
    (void)bytes, (void)n, (void)seed;
    return 0;
}

struct piece {
    int rank, tensor, n_spans;
    bool is_other; /* holds other bits than it should */
    struct mist_param_span spans[MAX_SPANS];
    int64_t n; /* elements */
    float values[MAX_PAYLOAD];
};

struct recipe {
    int n_tensors, n_pieces;
    int64_t whole[MAX_TENSORS];
    struct piece pieces[MAX_PIECES];
};

/* What holds an element: nothing, one value, or several. */
struct held {
    bool is_held, is_disputed;
    float value;
};

struct truth {
    bool is_valid, is_whole, is_disputed;
    struct held held[MAX_TENSORS][MAX_WHOLE];
};

/* ---------------------------------------------------------------------------- recipe */

static struct mist_param_span take_span(struct fuzz_bytes *input)
{
    struct mist_param_span span = {0};

    span.length = fuzz_take(input) % 20;
    span.n_runs = fuzz_take(input) % 12;
    span.global_first = fuzz_take(input) % (MAX_WHOLE + 4);
    span.global_stride = fuzz_take(input) % 20;
    return span;
}

/* The value that element k of the piece ought to have, by its place in the tensor. */
static float value_of(const struct piece *piece, int64_t global)
{
    return (float)(100 * piece->tensor + global) + (piece->is_other ? 0.5f : 0);
}

/* False: more than there is room for; the recipe ends before it. */
static bool take_piece(struct fuzz_bytes *input, const struct recipe *recipe,
                       struct piece *out)
{
    unsigned head = fuzz_take(input);

    *out = (struct piece){.rank = head & 1, .is_other = head & 2};
    out->tensor = (int)(head >> 2) % recipe->n_tensors;
    out->n_spans = 1 + (int)(fuzz_take(input) % MAX_SPANS);
    for (int s = 0; s < out->n_spans; s++) {
        out->spans[s] = take_span(input);
        const struct mist_param_span *span = &out->spans[s];
        for (int64_t run = 0; run < span->n_runs; run++)
            for (int64_t k = 0; k < span->length; k++) {
                if (out->n == MAX_PAYLOAD)
                    return false;
                out->values[out->n++] =
                    value_of(out, span->global_first + run * span->global_stride + k);
            }
    }
    return true;
}

static void take_recipe(struct fuzz_bytes input, struct recipe *out)
{
    *out = (struct recipe){.n_tensors = 1 + (int)(fuzz_take(&input) % MAX_TENSORS)};
    for (int t = 0; t < out->n_tensors; t++)
        out->whole[t] = 1 + fuzz_take(&input) % MAX_WHOLE;
    while (input.n > 0 && out->n_pieces < MAX_PIECES &&
           take_piece(&input, out, &out->pieces[out->n_pieces]))
        out->n_pieces++;
}

/* ----------------------------------------------------------------------------- truth */

/* One element; false: outside the tensor. */
static bool hold(struct truth *truth, const struct recipe *recipe,
                 const struct piece *piece, int64_t global)
{
    if (global >= recipe->whole[piece->tensor])
        return false;
    struct held *held = &truth->held[piece->tensor][global];
    float value = value_of(piece, global);
    held->is_disputed |= held->is_held && held->value != value;
    held->is_held = true;
    held->value = value;
    return true;
}

static bool hold_span(struct truth *truth, const struct recipe *recipe,
                      const struct piece *piece, const struct mist_param_span *span)
{
    bool is_valid = span->length >= 1 && span->n_runs >= 1 &&
                    (span->n_runs == 1 || span->global_stride >= span->length);

    for (int64_t run = 0; run < span->n_runs && is_valid; run++)
        for (int64_t k = 0; k < span->length && is_valid; k++)
            is_valid = hold(truth, recipe, piece,
                            span->global_first + run * span->global_stride + k);
    return is_valid;
}

static void find_truth(const struct recipe *recipe, struct truth *out)
{
    *out = (struct truth){.is_valid = true, .is_whole = true};
    for (int i = 0; i < recipe->n_pieces; i++)
        for (int s = 0; s < recipe->pieces[i].n_spans; s++)
            out->is_valid &=
                hold_span(out, recipe, &recipe->pieces[i], &recipe->pieces[i].spans[s]);
    for (int t = 0; t < recipe->n_tensors; t++)
        for (int64_t k = 0; k < recipe->whole[t]; k++) {
            out->is_whole &= out->held[t][k].is_held;
            out->is_disputed |= out->held[t][k].is_disputed;
        }
}

/* ----------------------------------------------------------------------------- files */

static void add_32(struct fuzz_buffer *buffer, int64_t value)
{
    uint32_t number = (uint32_t)value;

    fuzz_add(buffer, &number, sizeof number);
}

static void add_64(struct fuzz_buffer *buffer, int64_t value)
{
    fuzz_add(buffer, &value, sizeof value);
}

static void add_piece(struct fuzz_buffer *table, const struct piece *piece, int64_t at)
{
    add_32(table, piece->tensor);
    add_32(table, piece->n_spans);
    add_64(table, at);
    add_64(table, piece->n);
    for (int s = 0; s < piece->n_spans; s++) {
        add_64(table, piece->spans[s].length);
        add_64(table, piece->spans[s].n_runs);
        add_64(table, piece->spans[s].global_first);
        add_64(table, piece->spans[s].global_stride);
    }
    add_64(table, 0); /* sum of the one block */
}

/* Format 1, see checkpoint_internal.h. Returns the size in bytes. */
static size_t write_rank(const struct recipe *recipe, int rank, const char *path)
{
    struct fuzz_buffer file = {0}, table = {0};
    int n_pieces = 0;

    for (int i = 0; i < recipe->n_pieces; i++)
        n_pieces += recipe->pieces[i].rank == rank;
    fuzz_add_text(&file, "MISTCKPT");
    add_32(&file, 1);
    add_32(&file, rank);
    add_32(&file, N_RANKS);
    add_32(&file, 0);
    add_64(&file, 7);
    for (int i = 0; i < 4; i++)
        add_64(&file, 0);
    add_32(&table, recipe->n_tensors);
    add_32(&table, n_pieces);
    for (int t = 0; t < recipe->n_tensors; t++) {
        char name[] = {(char)('a' + t), '\0'};
        add_64(&table, recipe->whole[t]);
        add_32(&table, 1);
        fuzz_add_text(&table, name);
    }
    for (int i = 0; i < recipe->n_pieces; i++) {
        const struct piece *piece = &recipe->pieces[i];
        if (piece->rank != rank)
            continue;
        add_piece(&table, piece, (int64_t)file.n);
        fuzz_add(&file, piece->values, (size_t)piece->n * sizeof *piece->values);
    }
    int64_t table_at = (int64_t)file.n;
    fuzz_add(&file, table.bytes, table.n);
    add_64(&file, table_at);
    add_64(&file, (int64_t)table.n);
    add_64(&file, 0);
    fuzz_add_text(&file, "MISTCEND");
    size_t n = file.n;
    fuzz_write(path, (struct fuzz_bytes){file.bytes, file.n});
    free(file.bytes);
    free(table.bytes);
    return n;
}

static void write_manifest(const struct recipe *recipe, const size_t *sizes,
                           const char *path)
{
    struct fuzz_buffer text = {0};
    char line[160];

    fuzz_add_text(&text, "{\n  \"format\": 1,\n  \"checksum\": \"0000000000000000\",\n"
                         "  \"step\": 7, \"model\": {}, \"training\": {}, \"files\": [");
    for (int rank = 0; rank < N_RANKS; rank++) {
        snprintf(line, sizeof line,
                 "%s{\"name\": \"rank-%05d.bin\", \"bytes\": %zu, "
                 "\"table_checksum\": \"0000000000000000\"}",
                 rank > 0 ? ", " : "", rank, sizes[rank]);
        fuzz_add_text(&text, line);
    }
    fuzz_add_text(&text, "], \"tensors\": [");
    for (int t = 0; t < recipe->n_tensors; t++) {
        snprintf(line, sizeof line, "%s{\"name\": \"%c\", \"elements\": %lld}",
                 t > 0 ? ", " : "", 'a' + t, (long long)recipe->whole[t]);
        fuzz_add_text(&text, line);
    }
    fuzz_add_text(&text, "]}\n");
    fuzz_write(path, (struct fuzz_bytes){text.bytes, text.n});
    free(text.bytes);
}

/* ---------------------------------------------------------------------------- checks */

/* Every part of every tensor; what is in dispute may have any of its values. */
static void read_all(struct mist_checkpoint *checkpoint, const struct recipe *recipe,
                     const struct truth *truth)
{
    float values[MAX_WHOLE];
    struct mist_err err = {0};

    for (int t = 0; t < recipe->n_tensors; t++) {
        char name[] = {(char)('a' + t), '\0'};
        FUZZ_CHECK(whole_n_elements(checkpoint, name) == recipe->whole[t], "%s", name);
        for (int64_t first = recipe->whole[t] - 1; first >= 0;
             first = first * 2 / 3 - 1) {
            int64_t n = recipe->whole[t] - first;
            fuzz_must(whole_read(checkpoint, name, first, n, values, &err), &err);
            for (int64_t k = 0; k < n; k++) {
                const struct held *held = &truth->held[t][first + k];
                FUZZ_CHECK(held->is_disputed || values[k] == held->value,
                           "%s[%lld] is %g, expected %g", name, (long long)(first + k),
                           values[k], held->value);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct recipe recipe;
    static struct truth truth;
    char folder[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];
    size_t sizes[N_RANKS];
    struct mist_checkpoint *checkpoint = NULL;
    struct mist_err err = {0};

    take_recipe((struct fuzz_bytes){bytes, n}, &recipe);
    find_truth(&recipe, &truth);
    mkdir(fuzz_path(folder, "in"), 0777);
    sizes[0] = write_rank(&recipe, 0, fuzz_path(path, "in/rank-00000.bin"));
    sizes[1] = write_rank(&recipe, 1, fuzz_path(path, "in/rank-00001.bin"));
    write_manifest(&recipe, sizes, fuzz_path(path, "in/manifest.json"));
    enum mist_status status = mist_checkpoint_open(folder, &checkpoint, &err);
    FUZZ_CHECK((status == MIST_OK) == (truth.is_valid && truth.is_whole),
               "valid %d, whole %d, but %s", truth.is_valid, truth.is_whole,
               status == MIST_OK ? "it opens" : err.message);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
        return 0;
    }
    read_all(checkpoint, &recipe, &truth);
    mist_checkpoint_close(checkpoint);
    status = mist_checkpoint_verify(folder, &err);
    FUZZ_CHECK((status == MIST_OK) == !truth.is_disputed, "disputed %d, but %s",
               truth.is_disputed, status == MIST_OK ? "it verifies" : err.message);
    return 0;
}

void fuzz_write_seeds(void)
{
    /* Whole tensors; rows of two ranks; columns of two ranks, with a copy. */
    static const uint8_t whole[] = {0, 9, 0, 0, 10, 1, 0, 0};
    static const uint8_t rows[] = {0, 15, 0, 0, 8, 1, 0, 0, 1, 0, 8, 1, 8, 0};
    static const uint8_t columns[] = {1, 15, 3, 0, 0, 2, 4, 0, 4, 1, 0, 2, 4, 2,
                                      4, 4,  0, 4, 1, 0, 0, 5, 0, 4, 1, 0, 0};
    static const struct {
        const char *name;
        const uint8_t *bytes;
        size_t n;
    } seeds[] = {{"whole", whole, sizeof whole},
                 {"rows", rows, sizeof rows},
                 {"columns", columns, sizeof columns}};

    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct fuzz_buffer buffer = {0};
        fuzz_add(&buffer, seeds[i].bytes, seeds[i].n);
        fuzz_seed(seeds[i].name, &buffer);
    }
}

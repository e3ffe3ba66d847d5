/*
 * exec/checkpoint: what was written under one layout is read under any other, bit by bit;
 * what is damaged, unfinished or half-written is never taken for a checkpoint.
 *
 * Layouts are made twice: a rank's elements by a naive map from local to global indices,
 * its spans by the closed form that callers use.
 */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/random.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_internal.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"
#include "tests/unit/whole_tensors.h"

#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { N_TENSORS = 7, MAX_LOCAL = 1 << 15 };

/* The run that writes, unless a test says otherwise. */
#define RUN            UINT64_C(0x00c0ffee12345678)
#define RUN_TEXT       "00c0ffee12345678"
#define OTHER_RUN      UINT64_C(0xfeedfacecafebeef)
#define OTHER_RUN_TEXT "feedfacecafebeef"
static uint64_t run_id = RUN;

/* A whole tensor and how it is cut: rows in sections, columns, or not at all. */
struct tensor {
    const char *name;
    int64_t rows, columns;
    enum mist_split split;
    int32_t n_sections;
    int64_t section_rows[MIST_MAX_SECTIONS];
};

/* Sorted by name. */
static const struct tensor tensors[N_TENSORS] = {
    {"0/wpe/moment1", 96, 24, MIST_SPLIT_NONE, 1, {96}},
    {"0/wte/weight", 61, 24, MIST_SPLIT_ROWS, 1, {61}}, /* does not divide: padding */
    {"1/down.weight/weight", 24, 48, MIST_SPLIT_COLUMNS, 1, {24}},
    {"1/qkv.bias/moment2", 48, 1, MIST_SPLIT_ROWS, 3, {24, 12, 12}},
    {"1/qkv.weight/weight", 48, 24, MIST_SPLIT_ROWS, 3, {24, 12, 12}},
    {"2/up.weight/moment1", 96, 24, MIST_SPLIT_ROWS, 2, {48, 48}},
    {"3/norm.weight/weight", 24, 1, MIST_SPLIT_NONE, 1, {24}},
};

struct layout {
    int32_t tp, dp;
    bool is_sharded; /* over dp; else every replica writes, or the first one alone */
    bool writes_all;
};

struct whole {
    float *values[N_TENSORS];
};

/* --------------------------------------------------------------------------- layouts */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t n_elements(const struct tensor *t)
{
    return t->rows * t->columns;
}

static int64_t n_local(const struct tensor *t, int32_t tp)
{
    int64_t rows = 0;

    if (t->split == MIST_SPLIT_NONE)
        return n_elements(t);
    if (t->split == MIST_SPLIT_COLUMNS)
        return t->rows * (t->columns / tp);
    for (int32_t s = 0; s < t->n_sections; s++)
        rows += ceil_div(t->section_rows[s], tp);
    return rows * t->columns;
}

/* Global index of a rank's element; -1: padding. */
static int64_t global_of(const struct tensor *t, int32_t tp, int32_t i_tp, int64_t local)
{
    int64_t columns = t->split == MIST_SPLIT_COLUMNS ? t->columns / tp : t->columns;
    int64_t row = local / columns, column = local % columns, first = 0;

    if (t->split == MIST_SPLIT_NONE)
        return local;
    if (t->split == MIST_SPLIT_COLUMNS)
        return row * t->columns + i_tp * columns + column;
    for (int32_t s = 0; s < t->n_sections; s++) {
        int64_t part = ceil_div(t->section_rows[s], tp);
        if (row < part) {
            row += i_tp * part;
            return row < t->section_rows[s] ? (first + row) * t->columns + column : -1;
        }
        row -= part;
        first += t->section_rows[s];
    }
    return -1;
}

static int32_t spans_of(const struct tensor *t, int32_t tp, int32_t i_tp,
                        struct mist_param_span out[MIST_MAX_SECTIONS])
{
    int64_t local = 0, first = 0;
    int32_t n = 0;

    if (t->split == MIST_SPLIT_NONE) {
        out[0] = (struct mist_param_span){.length = n_elements(t), .n_runs = 1};
        return 1;
    }
    if (t->split == MIST_SPLIT_COLUMNS) {
        int64_t width = t->columns / tp;
        out[0] = (struct mist_param_span){.global_first = i_tp * width,
                                          .length = width,
                                          .n_runs = t->rows,
                                          .global_stride = t->columns};
        return 1;
    }
    for (int32_t s = 0; s < t->n_sections; s++) {
        int64_t part = ceil_div(t->section_rows[s], tp), row = i_tp * part;
        int64_t rows = t->section_rows[s] - row < part ? t->section_rows[s] - row : part;
        if (rows > 0)
            out[n++] =
                (struct mist_param_span){.local_first = local,
                                         .global_first = (first + row) * t->columns,
                                         .length = rows * t->columns,
                                         .n_runs = 1};
        local += part * t->columns;
        first += t->section_rows[s];
    }
    return n;
}

static struct whole make_whole(uint64_t seed)
{
    struct whole whole;

    for (int i = 0; i < N_TENSORS; i++) {
        whole.values[i] = malloc((size_t)n_elements(&tensors[i]) * sizeof(float));
        assert_non_null(whole.values[i]);
        for (int64_t k = 0; k < n_elements(&tensors[i]); k++) {
            /* all bit patterns, NaNs included */
            uint32_t bits = (uint32_t)mist_random_at(seed, (uint64_t)i, (uint64_t)k);
            memcpy(&whole.values[i][k], &bits, sizeof bits);
        }
    }
    return whole;
}

static void free_whole(struct whole *whole)
{
    for (int i = 0; i < N_TENSORS; i++)
        free(whole->values[i]);
}

static struct layout random_layout(struct mist_random *random)
{
    static const int32_t tps[] = {1, 2, 3, 4, 6};

    return (struct layout){.tp = tps[mist_random_below(random, 5)],
                           .dp = 1 + (int32_t)mist_random_below(random, 5),
                           .is_sharded = mist_random_below(random, 3) > 0,
                           .writes_all = mist_random_below(random, 2) > 0};
}

/* Runs first_run .. of a span, from offset on in the first one, length elements
 * of each. */
static struct mist_param_span sub_span(const struct mist_param_span *span,
                                       int64_t first_run, int64_t offset, int64_t length,
                                       int64_t n_runs)
{
    return (struct mist_param_span){
        .local_first = span->local_first + first_run * span->length + offset,
        .global_first = span->global_first + first_run * span->global_stride + offset,
        .length = length,
        .n_runs = n_runs,
        .global_stride = span->global_stride};
}

/* Elements begin .. end - 1 of a span, begin < end: the rest of a run, whole runs, the
 * start of a run. */
static int32_t cut_span(const struct mist_param_span *span, int64_t begin, int64_t end,
                        struct mist_param_span *out)
{
    int64_t length = span->length;
    int64_t run = begin / length, offset = begin % length;
    int64_t last_run = end / length, rest = end % length;
    int32_t n = 0;

    if (run == last_run) {
        out[0] = sub_span(span, run, offset, end - begin, 1);
        return 1;
    }
    if (offset > 0) {
        out[n++] = sub_span(span, run, offset, length - offset, 1);
        run++;
    }
    if (last_run > run)
        out[n++] = sub_span(span, run, 0, length, last_run - run);
    if (rest > 0)
        out[n++] = sub_span(span, last_run, 0, rest, 1);
    return n;
}

/*
 * The part of spans (sorted by local_first) within elements first .. first + n - 1 of the
 * rank's parameter, as spans whose local_first counts from first: what a ZeRO shard, with
 * a buffer of its own, holds of the whole parameter. out has room for n_spans + 2;
 * returns how many were filled (0: the shard is all padding).
 */
static int32_t cut_spans(const struct mist_param_span *spans, int32_t n_spans,
                         int64_t first, int64_t n, struct mist_param_span *out)
{
    int32_t n_out = 0;

    for (int32_t i = 0; i < n_spans; i++) {
        int64_t start = spans[i].local_first;
        int64_t begin = first > start ? first - start : 0;
        int64_t end = first + n - start;
        int64_t size = spans[i].length * spans[i].n_runs;
        if (end > size)
            end = size;
        if (begin >= end)
            continue;
        int32_t n_new = cut_span(&spans[i], begin, end, out + n_out);
        for (int32_t k = 0; k < n_new; k++)
            out[n_out + k].local_first -= first;
        n_out += n_new;
    }
    return n_out;
}

/* ------------------------------------------------------------------- writing, reading */

static enum mist_status add_tensor(struct mist_checkpoint_writer *writer,
                                   const struct layout *layout, int32_t i_dp,
                                   int32_t i_tp, int i_tensor, const struct whole *whole,
                                   struct mist_err *err)
{
    static float local[MAX_LOCAL];
    const struct tensor *t = &tensors[i_tensor];
    struct mist_param_span spans[MIST_MAX_SECTIONS], cut[MIST_MAX_SECTIONS + 2];
    int32_t n_spans = spans_of(t, layout->tp, i_tp, spans);
    int64_t n = n_local(t, layout->tp), first = 0, part = n;

    if (layout->is_sharded) {
        part = ceil_div(n, layout->dp);
        first = i_dp * part;
    } else if (i_dp > 0 && !layout->writes_all) {
        return MIST_OK;
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t global = global_of(t, layout->tp, i_tp, k);
        if (global >= 0)
            memcpy(&local[k], &whole->values[i_tensor][global], sizeof *local);
        else
            local[k] = 12345;
    }
    int32_t n_cut = cut_spans(spans, n_spans, first, part, cut);
    assert_true(n_cut <= n_spans + 2);
    return mist_checkpoint_add_piece(writer, t->name, n_elements(t), cut, n_cut,
                                     local + first, err);
}

static enum mist_status write_rank(const char *dir, int64_t step,
                                   const struct layout *layout, int32_t rank,
                                   const struct whole *whole, struct mist_err *err)
{
    const struct mist_checkpoint_save save = {dir, run_id, step, layout->tp * layout->dp};
    struct mist_checkpoint_writer *writer;
    enum mist_status status = mist_checkpoint_writer_open(&save, rank, &writer, err);

    if (status)
        return status;
    for (int i = 0; i < N_TENSORS && !status; i++)
        status = add_tensor(writer, layout, rank / layout->tp, rank % layout->tp, i,
                            whole, err);
    if (status) {
        mist_checkpoint_writer_abort(writer);
        return status;
    }
    return mist_checkpoint_writer_close(writer, err);
}

/* training must have been made before faults are armed. */
static enum mist_status commit(const char *dir, int64_t step, int32_t n_ranks,
                               const struct mist_model *model, const json_t *training,
                               int32_t keep, struct mist_err *err)
{
    const struct mist_checkpoint_save at = {dir, run_id, step, n_ranks};
    struct mist_err warning;
    enum mist_status status =
        mist_checkpoint_commit(&at, model, training, keep, &warning, err);

    if (!status && warning.message[0])
        print_message("%s: %s\n", warning.path, warning.message);
    return status;
}

static enum mist_status save(const char *dir, int64_t step, const struct layout *layout,
                             const struct whole *whole, const json_t *training,
                             int32_t keep, struct mist_err *err)
{
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    int32_t n_ranks = layout->tp * layout->dp;
    enum mist_status status = MIST_OK;

    for (int32_t rank = 0; rank < n_ranks && !status; rank++)
        status = write_rank(dir, step, layout, rank, whole, err);
    if (status)
        return status;
    return commit(dir, step, n_ranks, &model, training, keep, err);
}

static void save_ok(const char *dir, int64_t step, const struct layout *layout,
                    const struct whole *whole, int32_t keep)
{
    struct mist_err err = {0};
    json_t *training =
        json_pack("{s:i, s:f, s:{s:s}}", "seed", 7, "rate", 0.1, "data", "print", "ab");
    enum mist_status status = save(dir, step, layout, whole, training, keep, &err);

    if (status)
        fail_msg("%s: %s", err.path, err.message);
    json_decref(training);
}

/* Every rank of a layout reads its part, one shard after the other. */
static void check_layout(struct mist_checkpoint *checkpoint, const struct layout *layout,
                         const struct whole *whole)
{
    static float local[MAX_LOCAL];
    struct mist_err err = {0};

    for (int32_t rank = 0; rank < layout->tp * layout->dp; rank++)
        for (int i = 0; i < N_TENSORS; i++) {
            const struct tensor *t = &tensors[i];
            int32_t i_tp = rank % layout->tp;
            struct mist_param_span spans[MIST_MAX_SECTIONS], cut[MIST_MAX_SECTIONS + 2];
            int64_t part = ceil_div(n_local(t, layout->tp), layout->dp);
            int64_t first = rank / layout->tp * part;
            int32_t n = spans_of(t, layout->tp, i_tp, spans);
            n = cut_spans(spans, n, first, part, cut);
            for (int64_t k = 0; k < part; k++)
                local[k] = -1;
            assert_int_equal(
                mist_checkpoint_read_spans(checkpoint, t->name, cut, n, local, &err),
                MIST_OK);
            for (int64_t k = 0; k < part && first + k < n_local(t, layout->tp); k++) {
                int64_t global = global_of(t, layout->tp, i_tp, first + k);
                float padding = -1;
                const float *want = global < 0 ? &padding : &whole->values[i][global];
                assert_memory_equal(&local[k], want, sizeof *want);
            }
        }
}

/* Random ranges of whole tensors. */
static void check_ranges(struct mist_checkpoint *checkpoint, struct mist_random *random,
                         const struct whole *whole)
{
    static float out[MAX_LOCAL];
    struct mist_err err;

    for (int round = 0; round < 50; round++) {
        int i = (int)mist_random_below(random, N_TENSORS);
        int64_t first = mist_random_below(random, n_elements(&tensors[i]) + 1);
        int64_t n = mist_random_below(random, n_elements(&tensors[i]) - first + 1);
        assert_int_equal(whole_read(checkpoint, tensors[i].name, first, n, out, &err),
                         MIST_OK);
        assert_memory_equal(out, whole->values[i] + first, (size_t)n * sizeof *out);
    }
}

/* -------------------------------------------------------------------------- folders */

static int remove_entry(const char *path, const struct stat *info, int type,
                        struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static void remove_tree(const char *path)
{
    assert_int_equal(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static bool exists(struct scratch *scratch, const char *name)
{
    return access(scratch_path(scratch, name), F_OK) == 0;
}

/* ---------------------------------------------------------------------------- tests */

/* Published values of XXH64. */
TEST(test_sum)
{
    static const char text[] =
        "Call me Ishmael. Some years ago--never mind how long precisely-";

    assert_true(mist_checkpoint_sum("", 0, 0) == UINT64_C(0xef46db3751d8e999));
    assert_true(mist_checkpoint_sum("a", 1, 0) == UINT64_C(0xd24ec4f1a98c6e5b));
    assert_true(mist_checkpoint_sum("abc", 3, 0) == UINT64_C(0x44bc2cf5ad770999));
    assert_true(mist_checkpoint_sum("asdf", 4, 0) == UINT64_C(0x415872f599cea71e));
    assert_true(mist_checkpoint_sum(text, 63, 0) == UINT64_C(0x02a2e85470d6fd96));
    assert_true(mist_checkpoint_sum(text, 63, 1) != mist_checkpoint_sum(text, 63, 0));
}

TEST(test_names)
{
    char name[MIST_CHECKPOINT_NAME_BYTES];

    assert_string_equal(
        mist_checkpoint_name(name, 3, "qkv.weight", MIST_CHECKPOINT_MOMENT1),
        "3/qkv.weight/moment1");
    assert_string_equal(mist_checkpoint_name(name, 0, "wte", MIST_CHECKPOINT_WEIGHT),
                        "0/wte/weight");
    assert_string_equal(mist_checkpoint_name(name, 9, "b", MIST_CHECKPOINT_MOMENT2),
                        "9/b/moment2");
}

TEST(test_any_layout_to_any_other)
{
    struct scratch scratch;
    struct mist_random random;
    struct mist_err err = {0};

    mist_random_init(&random, test_seed(1));
    scratch_init(&scratch);
    for (int round = 0; round < 25; round++) {
        struct whole whole = make_whole(mist_random_next(&random));
        struct layout layout = random_layout(&random);
        struct mist_checkpoint *checkpoint;
        char *path;
        save_ok(scratch.folder, round, &layout, &whole, 2);
        assert_int_equal(mist_checkpoint_find(scratch.folder, NULL, &path, NULL, &err),
                         MIST_OK);
        assert_int_equal(mist_checkpoint_verify(path, &err), MIST_OK);
        assert_int_equal(mist_checkpoint_open(path, &checkpoint, &err), MIST_OK);
        assert_int_equal(mist_checkpoint_step(checkpoint), round);
        assert_int_equal(checkpoint->n_files, layout.tp * layout.dp);
        assert_int_equal(whole_n_tensors(checkpoint), N_TENSORS);
        for (int i = 0; i < N_TENSORS; i++) {
            const char *name = whole_name(checkpoint, i);
            assert_string_equal(name, tensors[i].name);
            assert_int_equal(whole_n_elements(checkpoint, name), n_elements(&tensors[i]));
        }
        for (int k = 0; k < 4; k++) {
            struct layout other = random_layout(&random);
            check_layout(checkpoint, &other, &whole);
        }
        check_ranges(checkpoint, &random, &whole);
        mist_checkpoint_close(checkpoint);
        free(path);
        free_whole(&whole);
    }
    remove_tree(scratch.folder);
}

/* Payloads of several blocks, with damage in one of them only. */
TEST(test_blocks)
{
    enum { N = 700001, BLOCK = 1 << 18 };
    struct scratch scratch;
    struct mist_err err = {0};
    struct mist_checkpoint_writer *writer;
    struct mist_checkpoint *checkpoint;
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_param_span span = {.length = N, .n_runs = 1};
    float *values = malloc(N * sizeof *values), *out = malloc(N * sizeof *out);
    json_t *training = json_object();

    scratch_init(&scratch);
    const struct mist_checkpoint_save at = {scratch.folder, RUN, 5, 1};
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    assert_int_equal(mist_checkpoint_writer_open(&at, 0, &writer, &err), MIST_OK);
    assert_int_equal(mist_checkpoint_add_piece(writer, "a", N, &span, 1, values, &err),
                     MIST_OK);
    assert_int_equal(mist_checkpoint_writer_close(writer, &err), MIST_OK);
    assert_int_equal(commit(scratch.folder, 5, 1, &model, training, 1, &err), MIST_OK);
    FILE *file = fopen(scratch_path(&scratch, "step-00000005/rank-00000.bin"), "r+");
    fseek(file, 64 + 4L * (BLOCK + 10), SEEK_SET);
    fputc(77, file);
    fclose(file);
    const char *path = scratch_path(&scratch, "step-00000005");
    assert_int_equal(mist_checkpoint_open(path, &checkpoint, &err), MIST_OK);
    assert_int_equal(whole_read(checkpoint, "a", 0, BLOCK, out, &err), MIST_OK);
    assert_int_equal(
        whole_read(checkpoint, "a", 2 * BLOCK, N - 2 * BLOCK, out + 2 * BLOCK, &err),
        MIST_OK);
    assert_memory_equal(out, values, BLOCK * sizeof *out);
    assert_memory_equal(out + 2 * BLOCK, values + 2 * BLOCK,
                        (N - 2 * BLOCK) * sizeof *out);
    assert_int_equal(whole_read(checkpoint, "a", 2 * BLOCK - 1, 2, out, &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "block 1 of a"));
    /* wherever in what is read the block is */
    static const int reads[][2] = {
        {0, N}, {0, BLOCK + 1}, {BLOCK - 1, 2}, {BLOCK, 1}, {BLOCK + 100, 1}};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        assert_int_equal(whole_read(checkpoint, "a", reads[i][0], reads[i][1], out, &err),
                         MIST_ERR_INPUT);
    mist_checkpoint_close(checkpoint);
    assert_int_equal(mist_checkpoint_verify(path, &err), MIST_ERR_INPUT);
    free(values);
    free(out);
    json_decref(training);
    remove_tree(scratch.folder);
}

TEST(test_training_and_model)
{
    struct scratch scratch;
    struct mist_err err = {0};
    struct mist_checkpoint *checkpoint;
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct layout layout = {.tp = 2, .dp = 1};
    struct whole whole = make_whole(3);
    int64_t seed = 0;
    double rate = 0;
    float one;

    scratch_init(&scratch);
    save_ok(scratch.folder, 123456789, &layout, &whole, 0);
    assert_int_equal(
        mist_checkpoint_open(scratch_path(&scratch, "step-123456789"), &checkpoint, &err),
        MIST_OK);
    struct mist_json training = mist_checkpoint_training(checkpoint);
    assert_int_equal(
        mist_json_get_int64(&training, "seed", MIST_JSON_REQUIRED, 0, 9, &seed, &err),
        MIST_OK);
    assert_int_equal(
        mist_json_get_double(&training, "rate", MIST_JSON_REQUIRED, 0, 1, &rate, &err),
        MIST_OK);
    assert_true(seed == 7 && rate == 0.1);
    snprintf(model.name, sizeof model.name, "another name");
    assert_int_equal(mist_checkpoint_check_model(checkpoint, &model, &err), MIST_OK);
    model.ffn++;
    assert_int_equal(mist_checkpoint_check_model(checkpoint, &model, &err),
                     MIST_ERR_INPUT);
    assert_string_equal(err.message, "is of another model: its ffn is 38, expected 39");
    model.ffn--;
    model.norm_epsilon = 1e-6;
    assert_int_equal(mist_checkpoint_check_model(checkpoint, &model, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(whole_read(checkpoint, "nope", 0, 1, &one, &err), MIST_ERR_INPUT);
    assert_string_equal(err.message, "has no tensor nope");
    assert_int_equal(whole_n_elements(checkpoint, "nope"), -1);
    assert_int_equal(whole_read(checkpoint, "0/wte/weight", 61 * 24, 1, &one, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(whole_read(checkpoint, "0/wte/weight", -1, 1, &one, &err),
                     MIST_ERR_INPUT);
    mist_checkpoint_close(checkpoint);
    free_whole(&whole);
    remove_tree(scratch.folder);
}

/* What the writer and the commit refuse. */
TEST(test_refusals)
{
    struct scratch scratch;
    struct mist_err err = {0};
    struct mist_checkpoint_writer *writer;
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_param_span span = {.length = 4, .n_runs = 2, .global_stride = 5};
    float data[9] = {0};
    json_t *training = json_object();

    scratch_init(&scratch);
    const char *dir = scratch.folder;
    const struct mist_checkpoint_save at = {dir, RUN, 1, 2};
    assert_int_equal(mist_checkpoint_writer_open(&at, 0, &writer, &err), MIST_OK);
    assert_int_equal(mist_checkpoint_add_piece(writer, "a", 8, &span, 1, data, &err),
                     MIST_ERR_RANGE);
    span.global_stride = 3; /* runs overlap */
    assert_int_equal(mist_checkpoint_add_piece(writer, "a", 99, &span, 1, data, &err),
                     MIST_ERR_RANGE);
    span.global_stride = 5;
    assert_int_equal(mist_checkpoint_add_piece(writer, "\n", 9, &span, 1, data, &err),
                     MIST_ERR_RANGE);
    assert_int_equal(mist_checkpoint_add_piece(writer, "a", 9, &span, 1, data, &err),
                     MIST_OK);
    assert_int_equal(mist_checkpoint_add_piece(writer, "a", 10, &span, 1, data, &err),
                     MIST_ERR_RANGE);
    assert_int_equal(mist_checkpoint_writer_close(writer, &err), MIST_OK);
    /* a rank is missing */
    assert_int_equal(commit(dir, 1, 2, &model, training, 1, &err), MIST_ERR_INPUT);
    assert_string_equal(err.message, "is missing");
    /* a part of a tensor is missing */
    assert_int_equal(mist_checkpoint_writer_open(&at, 1, &writer, &err), MIST_OK);
    assert_int_equal(mist_checkpoint_writer_close(writer, &err), MIST_OK);
    assert_int_equal(commit(dir, 1, 2, &model, training, 1, &err), MIST_ERR_INPUT);
    assert_string_equal(err.message, "element 4 of tensor a is in no rank's file");
    /* ranks of another number of ranks */
    assert_int_equal(commit(dir, 1, 1, &model, training, 1, &err), MIST_ERR_INPUT);
    assert_false(exists(&scratch, "step-00000001"));
    json_decref(training);
    remove_tree(dir);
}

TEST(test_keep)
{
    struct scratch scratch;
    struct layout large = {.tp = 2, .dp = 2, .writes_all = true},
                  small = {.tp = 1, .dp = 1};
    struct whole whole = make_whole(4);
    struct mist_err err = {0}, warning;
    char *path;

    scratch_init(&scratch);
    const char *dir = scratch.folder;
    for (int step = 1; step <= 4; step++)
        save_ok(dir, step, &large, &whole, 2);
    assert_int_equal(scratch_count(&scratch), 2);
    assert_true(exists(&scratch, "step-00000003") && exists(&scratch, "step-00000004"));
    /* leftovers of killed saves and deletions go, files that are not ours stay */
    assert_int_equal(write_rank(dir, 5, &large, 3, &whole, &err), MIST_OK);
    assert_int_equal(mkdir(scratch_path(&scratch, "step-00000002"), 0777), 0);
    scratch_write(scratch_path(&scratch, "step-00000002/rank-00001.bin"), "x");
    scratch_write(scratch_path(&scratch, "step-00000003/notes.txt"), "mine");
    scratch_write(scratch_path(&scratch, "step-6"), "mine");
    /* a stale file of an attempt with more ranks is not taken along */
    save_ok(dir, 5, &small, &whole, 2);
    assert_false(exists(&scratch, "step-00000005/rank-00003.bin"));
    assert_false(exists(&scratch, "step-00000002"));
    assert_true(exists(&scratch, "step-00000003.old/notes.txt"));
    assert_false(exists(&scratch, "step-00000003.old/manifest.json") ||
                 exists(&scratch, "step-00000003"));
    assert_true(exists(&scratch, "step-00000004/manifest.json"));
    assert_true(exists(&scratch, "step-6"));
    /* keep 0: all stay; an older step is never the victim of its own commit */
    save_ok(dir, 6, &small, &whole, 0);
    save_ok(dir, 2, &small, &whole, 1);
    assert_true(exists(&scratch, "step-00000002"));
    assert_false(exists(&scratch, "step-00000004") || exists(&scratch, "step-00000005") ||
                 exists(&scratch, "step-00000006"));
    assert_int_equal(mist_checkpoint_find(dir, NULL, &path, &warning, &err), MIST_OK);
    assert_non_null(strstr(path, "step-00000002"));
    free(path);
    free_whole(&whole);
    remove_tree(dir);
}

/* The same step again, and a kill between the two renames. */
TEST(test_replacing)
{
    struct scratch scratch;
    struct layout layout = {.tp = 2, .dp = 1};
    struct whole first = make_whole(5), second = make_whole(6);
    struct mist_checkpoint *checkpoint;
    struct mist_err err = {0}, warning;
    char *path, from[128];

    scratch_init(&scratch);
    const char *dir = scratch.folder;
    save_ok(dir, 1, &layout, &first, 1);
    save_ok(dir, 1, &layout, &second, 2);
    assert_int_equal(scratch_count(&scratch), 1);
    snprintf(from, sizeof from, "%s", scratch_path(&scratch, "step-00000001"));
    assert_int_equal(rename(from, scratch_path(&scratch, "step-00000001.old")), 0);
    assert_int_equal(write_rank(dir, 1, &layout, 0, &first, &err), MIST_OK);
    assert_int_equal(mist_checkpoint_find(dir, NULL, &path, &warning, &err), MIST_OK);
    assert_non_null(strstr(path, "step-00000001.old"));
    assert_int_equal(mist_checkpoint_open(path, &checkpoint, &err), MIST_OK);
    check_layout(checkpoint, &layout, &second);
    mist_checkpoint_close(checkpoint);
    /* the checkpoint itself may be named, too */
    char *again;
    assert_int_equal(mist_checkpoint_find(path, NULL, &again, &warning, &err), MIST_OK);
    assert_string_equal(again, path);
    free(again);
    free(path);
    save_ok(dir, 1, &layout, &first, 1);
    assert_int_equal(scratch_count(&scratch), 1);
    free_whole(&first);
    free_whole(&second);
    remove_tree(dir);
}

/* -------------------------------------------------------------------------- damage */

static char *load_file(const char *path, size_t *n)
{
    struct stat info;
    FILE *stream = fopen(path, "r");

    assert_non_null(stream);
    assert_int_equal(fstat(fileno(stream), &info), 0);
    char *bytes = malloc((size_t)info.st_size + 1);
    *n = fread(bytes, 1, (size_t)info.st_size, stream);
    assert_int_equal(*n, info.st_size);
    fclose(stream);
    return bytes;
}

static void store_file(const char *path, const char *bytes, size_t n)
{
    FILE *stream = fopen(path, "w");

    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

/* Whatever can still be read of a damaged checkpoint has the right bits. */
static void expect_refused(const char *path, const struct whole *whole)
{
    static float out[MAX_LOCAL];
    struct mist_checkpoint *checkpoint;
    struct mist_err err = {0};
    int n_refused = 0;

    assert_int_equal(mist_checkpoint_verify(path, &err), MIST_ERR_INPUT);
    assert_true(err.message[0] != '\0' && err.path[0] != '\0');
    if (mist_checkpoint_open(path, &checkpoint, &err) != MIST_OK)
        return;
    for (int i = 0; i < N_TENSORS; i++) {
        int64_t n = n_elements(&tensors[i]);
        if (whole_read(checkpoint, tensors[i].name, 0, n, out, &err) == MIST_OK)
            assert_memory_equal(out, whole->values[i], (size_t)n * sizeof *out);
        else
            n_refused++;
    }
    assert_true(n_refused > 0);
    mist_checkpoint_close(checkpoint);
}

TEST(test_damage)
{
    static const char *const names[] = {"step-00000002/manifest.json",
                                        "step-00000002/rank-00000.bin",
                                        "step-00000002/rank-00001.bin"};
    struct scratch scratch;
    struct layout layout = {.tp = 1, .dp = 2, .is_sharded = true};
    struct whole whole = make_whole(7);
    struct mist_random random;
    char folder[128], file[128];

    mist_random_init(&random, test_seed(1));
    scratch_init(&scratch);
    save_ok(scratch.folder, 2, &layout, &whole, 2);
    snprintf(folder, sizeof folder, "%s", scratch_path(&scratch, "step-00000002"));
    for (int round = 0; round < 900; round++) {
        size_t n;
        snprintf(file, sizeof file, "%s", scratch_path(&scratch, names[round % 3]));
        char *bytes = load_file(file, &n);
        /* half of the places near an end: header, table, footer */
        size_t at = (size_t)mist_random_below(&random, (int64_t)n);
        if (round % 2)
            at = round % 4 == 1 ? at % 64 : n - 1 - at % 900 % n;
        char saved = bytes[at];
        if (round < 600) {
            bytes[at] ^= (char)(1 + mist_random_below(&random, 255));
            store_file(file, bytes, n);
        } else if (round < 750) {
            store_file(file, bytes, at); /* truncated */
        } else {
            for (size_t k = at; k < n && k < at + 40; k++)
                bytes[k] = (char)mist_random_next(&random);
            store_file(file, bytes, n);
            free(bytes);
            bytes = NULL;
        }
        expect_refused(folder, &whole);
        if (bytes) {
            bytes[at] = saved;
            store_file(file, bytes, n);
            free(bytes);
        } else {
            remove_tree(folder);
            save_ok(scratch.folder, 2, &layout, &whole, 2);
        }
    }
    free_whole(&whole);
    remove_tree(scratch.folder);
}

/* Tables with sound checksums that lie: a reader must not be led outside the file. */
TEST(test_forged_tables)
{
    struct scratch scratch;
    struct layout layout = {.tp = 1, .dp = 1};
    struct whole whole = make_whole(8);
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_random random;
    struct mist_err err = {0};
    json_t *training = json_object();
    static const uint64_t extremes[] = {0,         1,          UINT64_MAX,
                                        INT64_MAX, UINT32_MAX, 1u << 31};
    int n_refused = 0;

    mist_random_init(&random, test_seed(1));
    scratch_init(&scratch);
    assert_int_equal(write_rank(scratch.folder, 2, &layout, 0, &whole, &err), MIST_OK);
    const char *file =
        scratch_path(&scratch, "step-00000002." RUN_TEXT ".partial/rank-00000.bin");
    size_t n;
    char *good = load_file(file, &n), *bytes = malloc(n);
    for (int round = 0; round < 2000; round++) {
        uint64_t first, size, value = extremes[mist_random_below(&random, 6)];
        memcpy(bytes, good, n);
        memcpy(&first, bytes + n - 32, 8);
        memcpy(&size, bytes + n - 24, 8);
        size_t width = mist_random_below(&random, 2) ? 8 : 4;
        size_t at = first + (size_t)mist_random_below(&random, (int64_t)(size - 8));
        memcpy(bytes + at, &value, width);
        uint64_t sum =
            mist_checkpoint_sum(bytes + first, size, mist_checkpoint_sum(bytes, 64, 0));
        memcpy(bytes + n - 16, &sum, 8);
        store_file(file, bytes, n);
        /* sums of blocks are part of the table and not looked at here */
        n_refused +=
            commit(scratch.folder, 2, 1, &model, training, 0, &err) == MIST_ERR_INPUT;
        if (access(file, F_OK) != 0) { /* it went through: nothing to see in the table */
            remove_tree(scratch.folder);
            assert_int_equal(mkdir(scratch.folder, 0700), 0);
            assert_int_equal(write_rank(scratch.folder, 2, &layout, 0, &whole, &err),
                             MIST_OK);
        }
    }
    assert_true(n_refused > 1000);
    free(good);
    free(bytes);
    json_decref(training);
    free_whole(&whole);
    remove_tree(scratch.folder);
}

/* Replaces text of a manifest and makes its checksum right. */
static void forge_manifest(const char *path, const char *from, const char *to)
{
    static const char before[] = "\"checksum\": \"";
    char sum[17];
    size_t n;
    char *text = load_file(path, &n);

    text[n] = '\0';
    char *at = strstr(text, from), *forged = malloc(n + strlen(to) + 1);
    assert_non_null(at);
    n = (size_t)sprintf(forged, "%.*s%s%s", (int)(at - text), text, to,
                        at + strlen(from));
    char *digits = strstr(forged, before) + strlen(before);
    memset(digits, '0', 16);
    snprintf(sum, sizeof sum, "%016" PRIx64, mist_checkpoint_sum(forged, n, 0));
    memcpy(digits, sum, 16);
    store_file(path, forged, n);
    free(forged);
    free(text);
}

/* Manifests with a sound checksum that say something else than the ranks' files. */
TEST(test_forged_manifests)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"step\": 2", "\"step\": 2 ", NULL}, /* forging alone does no harm */
        {"\"step\": 2", "\"step\": -2", "step"},
        {"\"step\": 2", "\"step\": 2, \"colour\": 2", "colour"},
        {"\"run\": \"", "\"run\": \"x", "hexadecimal"},
        {"\"files\": [", "\"files\": [], \"x\": [", "unknown key"},
        {"rank-00000.bin", "rank-00001.bin", "file 0 has the name of another"},
        {"\"elements\": ", "\"elements\": 1", "lists other tensors"},
        {"\"table_checksum\": \"", "\"table_checksum\": \"0", "not the file"},
    };
    struct scratch scratch;
    struct layout layout = {.tp = 1, .dp = 2, .is_sharded = true};
    struct whole whole = make_whole(9);
    char folder[128], file[160];

    scratch_init(&scratch);
    snprintf(folder, sizeof folder, "%s", scratch_path(&scratch, "step-00000002"));
    snprintf(file, sizeof file, "%s/manifest.json", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_checkpoint *checkpoint = NULL;
        struct mist_err err = {0};
        save_ok(scratch.folder, 2, &layout, &whole, 2);
        forge_manifest(file, cases[i].from, cases[i].to);
        enum mist_status status = mist_checkpoint_open(folder, &checkpoint, &err);
        if (status != (cases[i].message ? MIST_ERR_INPUT : MIST_OK) ||
            (cases[i].message && !strstr(err.message, cases[i].message)))
            fail_msg("case %zu: status %d, %s", i, status, err.message);
        mist_checkpoint_close(checkpoint);
        remove_tree(folder);
    }
    free_whole(&whole);
    remove_tree(scratch.folder);
}

/* A replica with other bits: each alone is sound, together they are not. */
TEST(test_replicas_that_differ)
{
    struct scratch scratch;
    struct layout layout = {.tp = 1, .dp = 2, .writes_all = true};
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct whole a = make_whole(9), b = make_whole(9);
    struct mist_err err = {0};
    json_t *training = json_object();

    scratch_init(&scratch);
    b.values[2][100] = 3;
    assert_int_equal(write_rank(scratch.folder, 1, &layout, 0, &a, &err), MIST_OK);
    assert_int_equal(write_rank(scratch.folder, 1, &layout, 1, &b, &err), MIST_OK);
    assert_int_equal(commit(scratch.folder, 1, 2, &model, training, 0, &err), MIST_OK);
    assert_int_equal(
        mist_checkpoint_verify(scratch_path(&scratch, "step-00000001"), &err),
        MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "other bits of tensor 1/down.weight/weight"));
    json_decref(training);
    free_whole(&a);
    free_whole(&b);
    remove_tree(scratch.folder);
}

/* The newest is damaged: the one before is taken, and the reason is told. */
TEST(test_fallback)
{
    struct scratch scratch;
    struct layout layout = {.tp = 2, .dp = 1};
    struct whole whole = make_whole(10);
    struct mist_err err = {0}, warning = {0};
    char *path;

    scratch_init(&scratch);
    const char *dir = scratch.folder;
    assert_int_equal(mist_checkpoint_find(dir, NULL, &path, &warning, &err),
                     MIST_ERR_INPUT);
    assert_null(path);
    assert_int_equal(mist_checkpoint_find("/nowhere/at/all", NULL, &path, &warning, &err),
                     MIST_ERR_IO);
    for (int step = 1; step <= 3; step++)
        save_ok(dir, step, &layout, &whole, 0);
    assert_int_equal(write_rank(dir, 4, &layout, 0, &whole, &err), MIST_OK);
    assert_int_equal(mist_checkpoint_find(dir, NULL, &path, &warning, &err), MIST_OK);
    assert_non_null(strstr(path, "step-00000003"));
    assert_string_equal(warning.message, "");
    free(path);
    assert_int_equal(
        truncate(scratch_path(&scratch, "step-00000003/rank-00001.bin"), 100), 0);
    assert_int_equal(remove(scratch_path(&scratch, "step-00000002/manifest.json")), 0);
    assert_int_equal(mist_checkpoint_find(dir, NULL, &path, &warning, &err), MIST_OK);
    assert_non_null(strstr(path, "step-00000001"));
    assert_non_null(strstr(warning.path, "step-00000003/rank-00001.bin"));
    assert_non_null(strstr(warning.message, "has 100 bytes"));
    free(path);
    assert_int_equal(remove(scratch_path(&scratch, "step-00000001/rank-00000.bin")), 0);
    assert_int_equal(mist_checkpoint_find(dir, NULL, &path, &warning, &err),
                     MIST_ERR_INPUT);
    free_whole(&whole);
    remove_tree(dir);
}

/* --------------------------------------------------------------- two jobs, one folder */

/* Ranks of different runs: no commit makes them one checkpoint, no reader takes them for
 * one. */
TEST(test_mixed_runs)
{
    struct scratch scratch;
    struct layout layout = {.tp = 2, .dp = 1};
    struct whole mine = make_whole(20), theirs = make_whole(21);
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_err err = {0};
    json_t *training = json_object();
    char mixed[128], other[128];

    scratch_init(&scratch);
    const char *dir = scratch.folder;
    /* both are at step 1 at the same time: each has files of its own */
    assert_int_equal(write_rank(dir, 1, &layout, 0, &mine, &err), MIST_OK);
    run_id = OTHER_RUN;
    for (int32_t rank = 0; rank < 2; rank++)
        assert_int_equal(write_rank(dir, 1, &layout, rank, &theirs, &err), MIST_OK);
    run_id = RUN;
    assert_int_equal(commit(dir, 1, 2, &model, training, 0, &err), MIST_ERR_INPUT);
    assert_string_equal(err.message, "is missing");
    /* a file of the other that was brought into the folder */
    snprintf(mixed, sizeof mixed, "%s",
             scratch_path(&scratch, "step-00000001." RUN_TEXT ".partial/rank-00001.bin"));
    snprintf(other, sizeof other, "%s",
             scratch_path(&scratch,
                          "step-00000001." OTHER_RUN_TEXT ".partial/rank-00001.bin"));
    assert_int_equal(rename(other, mixed), 0);
    assert_int_equal(commit(dir, 1, 2, &model, training, 0, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, mixed);
    assert_non_null(
        strstr(err.message, "is of run " OTHER_RUN_TEXT ", expected run " RUN_TEXT));
    assert_false(exists(&scratch, "step-00000001"));
    /* the same under a whole checkpoint */
    save_ok(dir, 1, &layout, &mine, 0);
    run_id = OTHER_RUN;
    save_ok(dir, 2, &layout, &theirs, 0);
    run_id = RUN;
    snprintf(mixed, sizeof mixed, "%s",
             scratch_path(&scratch, "step-00000001/rank-00001.bin"));
    assert_int_equal(write_rank(dir, 1, &layout, 1, &theirs, &err), MIST_OK);
    snprintf(other, sizeof other, "%s",
             scratch_path(&scratch, "step-00000001." RUN_TEXT ".partial/rank-00001.bin"));
    size_t n;
    char *bytes = load_file(other, &n);
    uint64_t forged = OTHER_RUN, first, size;
    memcpy(bytes + 32, &forged, sizeof forged);
    memcpy(&first, bytes + n - 32, 8);
    memcpy(&size, bytes + n - 24, 8);
    uint64_t sum =
        mist_checkpoint_sum(bytes + first, size, mist_checkpoint_sum(bytes, 64, 0));
    memcpy(bytes + n - 16, &sum, 8);
    store_file(mixed, bytes, n);
    free(bytes);
    assert_int_equal(
        mist_checkpoint_verify(scratch_path(&scratch, "step-00000001"), &err),
        MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "is of run " OTHER_RUN_TEXT));
    json_decref(training);
    free_whole(&mine);
    free_whole(&theirs);
    remove_tree(dir);
}

/* What lies in the way of a rank's file is removed; what it points to is not touched. */
TEST(test_links)
{
    struct scratch scratch;
    struct layout layout = {.tp = 1, .dp = 1};
    struct whole whole = make_whole(22);
    char precious[128], folder[128], text[32];

    scratch_init(&scratch);
    const char *dir = scratch.folder;
    snprintf(folder, sizeof folder, "%s", scratch_path(&scratch, "elsewhere"));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(precious, sizeof precious, "%s",
             scratch_path(&scratch, "elsewhere/rank-00000.bin"));
    scratch_write(precious, "precious");
    assert_int_equal(
        mkdir(scratch_path(&scratch, "step-00000001." RUN_TEXT ".partial"), 0700), 0);
    assert_int_equal(symlink(precious, scratch_path(&scratch, "step-00000001." RUN_TEXT
                                                              ".partial/rank-00000.bin")),
                     0);
    assert_int_equal(symlink(precious, scratch_path(&scratch, "step-00000001." RUN_TEXT
                                                              ".partial/manifest.json")),
                     0);
    /* folders to clean up that are links, and a file with the name of one */
    assert_int_equal(symlink(folder, scratch_path(&scratch, "step-00000007.partial")), 0);
    scratch_write(scratch_path(&scratch, "step-00000008.partial"), "mine");
    save_ok(dir, 1, &layout, &whole, 1);
    scratch_read(precious, text, sizeof text);
    assert_string_equal(text, "precious");
    assert_false(exists(&scratch, "step-00000007.partial"));
    assert_true(exists(&scratch, "step-00000008.partial"));
    free_whole(&whole);
    remove_tree(dir);
}

TEST(test_lock)
{
    struct scratch scratch;
    struct mist_checkpoint_lock *lock, *second;
    struct mist_err err = {0}, warning;
    char folder[128], file[128], text[256], process[32];
    int ends[2];

    scratch_init(&scratch);
    snprintf(folder, sizeof folder, "%s", scratch_path(&scratch, "run"));
    snprintf(file, sizeof file, "%s", scratch_path(&scratch, "run/lock"));
    snprintf(process, sizeof process, "process %ld on ", (long)getpid());
    assert_int_equal(mist_checkpoint_lock(folder, 0, NULL, NULL, &lock, &warning, &err),
                     MIST_OK);
    assert_string_equal(warning.message, "");
    uint64_t run = mist_checkpoint_lock_run_id(lock);
    assert_true(run != 0 && mist_checkpoint_sees_lock(folder, run));
    assert_false(mist_checkpoint_sees_lock(folder, run + 1));
    assert_false(mist_checkpoint_sees_lock(scratch.folder, run));
    /* held, also against this process */
    assert_int_equal(
        mist_checkpoint_lock(folder, 0.1, NULL, NULL, &second, &warning, &err),
        MIST_ERR_IO);
    assert_null(second);
    assert_string_equal(err.path, file);
    assert_non_null(strstr(err.message, process));
    assert_non_null(strstr(err.message, ", since 20"));
    /* the folder was made for it and is empty */
    mist_checkpoint_unlock(lock);
    assert_false(exists(&scratch, "run"));
    /* a process that is killed holds nothing, its file is no obstacle */
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        bool ok = mist_checkpoint_lock(folder, 0, NULL, NULL, &lock, NULL, NULL) == 0;
        if (write(ends[1], &ok, sizeof ok) == sizeof ok)
            pause();
        _exit(1);
    }
    bool is_locked = false;
    assert_int_equal(read(ends[0], &is_locked, sizeof is_locked), sizeof is_locked);
    assert_true(is_locked);
    assert_int_equal(mist_checkpoint_lock(folder, 0, NULL, NULL, &second, &warning, &err),
                     MIST_ERR_IO);
    kill(child, SIGKILL);
    assert_int_equal(
        mist_checkpoint_lock(folder, 30, NULL, NULL, &second, &warning, &err), MIST_OK);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(exists(&scratch, "run/lock"));
    scratch_read(file, text, sizeof text);
    assert_non_null(strstr(text, process));
    mist_checkpoint_unlock(second);
    assert_true(exists(&scratch, "run") && !exists(&scratch, "run/lock"));
    /* a folder that is moved away, and one in its place, which is left alone */
    assert_int_equal(mist_checkpoint_lock(folder, 0, NULL, NULL, &lock, &warning, &err),
                     MIST_OK);
    must(mist_checkpoint_check_lock(lock, &err), &err);
    assert_int_equal(rename(folder, scratch_path(&scratch, "moved")), 0);
    assert_int_equal(mist_checkpoint_check_lock(lock, &err), MIST_ERR_IO);
    assert_int_equal(mist_checkpoint_lock(folder, 0, NULL, NULL, &second, &warning, &err),
                     MIST_OK);
    assert_int_equal(mist_checkpoint_check_lock(lock, &err), MIST_ERR_IO);
    assert_string_equal(err.path, file);
    assert_non_null(strstr(err.message, "removed or replaced under the run"));
    mist_checkpoint_unlock(lock);
    must(mist_checkpoint_check_lock(second, &err), &err);
    mist_checkpoint_unlock(second);
    assert_false(exists(&scratch, "run"));
    assert_int_equal(mkdir(folder, 0777), 0);
    /* a link is not followed */
    assert_int_equal(symlink("../victim", file), 0);
    assert_int_equal(mist_checkpoint_lock(folder, 0, NULL, NULL, &second, &warning, &err),
                     MIST_ERR_IO);
    assert_false(exists(&scratch, "victim"));
    close(ends[0]);
    close(ends[1]);
    remove_tree(scratch.folder);
}

/* ---------------------------------------------------------------------------- faults */

/* After a save of step 2 that failed there is step 1 or a whole step 2. */
static void expect_whole(struct scratch *scratch, const struct layout *layout,
                         const struct whole *first, const struct whole *second,
                         const json_t *training)
{
    struct mist_checkpoint *checkpoint;
    struct mist_err err = {0}, warning = {0};
    char *path;

    assert_int_equal(mist_checkpoint_find(scratch->folder, NULL, &path, &warning, &err),
                     MIST_OK);
    assert_string_equal(warning.message, "");
    assert_int_equal(mist_checkpoint_verify(path, &err), MIST_OK);
    assert_int_equal(mist_checkpoint_open(path, &checkpoint, &err), MIST_OK);
    bool is_second = mist_checkpoint_step(checkpoint) == 2;
    if (training && is_second)
        assert_true(json_equal(mist_checkpoint_training(checkpoint).value, training));
    check_layout(checkpoint, layout, is_second ? second : first);
    mist_checkpoint_close(checkpoint);
    free(path);
}

/* Returns how many calls of a save can fail. */
static long run_fault_loop(enum fault fault, enum mist_status expected)
{
    struct layout layout = {.tp = 2, .dp = 1};
    struct whole first = make_whole(11), second = make_whole(12);
    json_t *training =
        json_pack("{s:i, s:[f, i, s]}", "seed", 7, "list", 0.1, 2, "three");

    long n = 1;

    for (;; n++) {
        struct scratch scratch;
        struct mist_err err = {0};
        scratch_init(&scratch);
        save_ok(scratch.folder, 1, &layout, &first, 1);
        long n_live = fault_n_live();
        fault_arm(fault, n);
        enum mist_status status =
            save(scratch.folder, 2, &layout, &second, training, 1, &err);
        bool has_failed = fault_disarm();
        assert_int_equal(fault_n_live(), n_live);
        /* stdio goes on when it gets no buffer, a commit when it can't delete */
        if (!has_failed || status || fault == FAULT_FSYNC)
            assert_int_equal(status, has_failed ? expected : MIST_OK);
        expect_whole(&scratch, &layout, &first, &second, training);
        /* and the next attempt succeeds */
        save_ok(scratch.folder, 2, &layout, &second, 1);
        assert_int_equal(scratch_count(&scratch), 1);
        expect_whole(&scratch, &layout, &first, &second, NULL);
        remove_tree(scratch.folder);
        if (!has_failed)
            break;
    }
    json_decref(training);
    free_whole(&first);
    free_whole(&second);
    return n - 1;
}

TEST(test_faults_of_fsync)
{
    /* two rank files, the manifest, their folder, the one above, the one above that */
    assert_int_equal(run_fault_loop(FAULT_FSYNC, MIST_ERR_IO), 6);
}

TEST(test_faults_of_rename)
{
    /* of the checkpoint, and of the one that is deleted */
    assert_int_equal(run_fault_loop(FAULT_RENAME, MIST_ERR_IO), 2);
}

TEST(test_faults_of_malloc)
{
    assert_true(run_fault_loop(FAULT_MALLOC, MIST_ERR_MEMORY) > 20);
}

/* The same for the second rename of a checkpoint that replaces one of its step. */
TEST(test_faults_of_replacing)
{
    struct layout layout = {.tp = 1, .dp = 1};
    struct whole first = make_whole(13), second = make_whole(14);
    json_t *training = json_object();

    for (long n = 1; n <= 2; n++) {
        struct scratch scratch;
        struct mist_err err = {0};
        scratch_init(&scratch);
        save_ok(scratch.folder, 1, &layout, &first, 1);
        fault_arm(FAULT_RENAME, n);
        assert_int_equal(save(scratch.folder, 1, &layout, &second, training, 1, &err),
                         MIST_ERR_IO);
        assert_true(fault_disarm());
        assert_true(exists(&scratch, "step-00000001"));
        expect_whole(&scratch, &layout, &first, &second, training);
        remove_tree(scratch.folder);
    }
    json_decref(training);
    free_whole(&first);
    free_whole(&second);
}

/* A disk that is full after n bytes of a file. */
TEST(test_full_disk)
{
    struct scratch scratch;
    struct layout layout = {.tp = 2, .dp = 1};
    struct whole first = make_whole(15), second = make_whole(16);
    struct mist_err err = {0};
    struct rlimit limit, whole_limit;
    json_t *training = json_object();
    enum mist_status status = MIST_ERR_IO;
    int n_failed = 0;

    scratch_init(&scratch);
    save_ok(scratch.folder, 1, &layout, &first, 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole_limit), 0);
    for (rlim_t n = 0; status; n += 1009) {
        limit = whole_limit;
        limit.rlim_cur = n;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        status = save(scratch.folder, 2, &layout, &second, training, 0, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole_limit), 0);
        assert_true(status == MIST_OK || status == MIST_ERR_IO);
        assert_int_equal(exists(&scratch, "step-00000002"), status == MIST_OK);
        expect_whole(&scratch, &layout, &first, &second, training);
        n_failed += status != MIST_OK;
    }
    assert_true(n_failed > 5);
    json_decref(training);
    free_whole(&first);
    free_whole(&second);
    remove_tree(scratch.folder);
}

TEST(test_faults_of_reading)
{
    struct scratch scratch;
    struct layout layout = {.tp = 2, .dp = 2, .is_sharded = true};
    struct whole whole;

    whole = make_whole(17);
    scratch_init(&scratch);
    save_ok(scratch.folder, 1, &layout, &whole, 1);
    long n_live = fault_n_live();
    for (long n = 1;; n++) {
        struct mist_checkpoint *checkpoint = NULL;
        struct mist_err err = {0}, warning;
        char *path = NULL;
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status =
            mist_checkpoint_find(scratch.folder, NULL, &path, &warning, &err);
        if (!status)
            status = mist_checkpoint_verify(path, &err);
        if (!status)
            status = mist_checkpoint_open(path, &checkpoint, &err);
        bool has_failed = fault_disarm();
        if (!has_failed || status) /* stdio goes on when it gets no buffer */
            assert_int_equal(status, has_failed ? MIST_ERR_MEMORY : MIST_OK);
        mist_checkpoint_close(checkpoint);
        free(path);
        assert_int_equal(fault_n_live(), n_live);
        if (!has_failed)
            break;
    }
    free_whole(&whole);
    remove_tree(scratch.folder);
}

TEST_MAIN(NULL, NULL)

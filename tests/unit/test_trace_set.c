/*
 * Trace sets: words, shapes, rows, files; what is malformed and where the message points.
 */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/atomic_file.h"
#include "tests/unit/find_link.h"
#include "traces/trace_set.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const char CLUSTER[] =
    "{\"format\": 1, \"name\": \"pair\", \"backend\": \"cuda\", \"nodes\": 2,\n"
    " \"devices_per_node\": 8, \"device_memory_bytes\": 80000000000,\n"
    " \"peak_flop_per_s\": {\"fp32\": 1.95e13, \"bf16\": 3.12e14},\n"
    " \"memory_bytes_per_s\": 1.5e12}\n";
static const char KERNEL_HEAD[] =
    "op,dtype,phase,shape,time_us,deviation_us,repetitions,flop,bytes\n";
static const char LINK_HEAD[] = "operation,nodes,ranks_per_node,concurrent_groups,bytes,"
                                "time_us,deviation_us,repetitions\n";
static const char INTERFERENCE_HEAD[] =
    "channels,nodes,ranks_per_node,compute_us,gpu_gpu_us,host_to_device_us,"
    "device_to_host_us,together_us,deviation_us,repetitions\n";

/* ---- helpers ---- */

static char *new_folder(void)
{
    char *folder = strdup("/tmp/mist_test_XXXXXX");

    assert_non_null(mkdtemp(folder));
    return folder;
}

static void write_file(const char *folder, const char *name, const char *head,
                       const char *body)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fprintf(stream, "%s%s", head, body);
    assert_int_equal(fclose(stream), 0);
}

static void remove_folder(char *folder)
{
    static const char *const names[] = {"cluster.json", "kernels.csv", "links.csv",
                                        "interference.csv", "checks.csv"};
    char path[256];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
    free(folder);
}

static struct mist_kernel_row kernel_row(const char *op, enum mist_phase phase,
                                         const char *shape)
{
    struct mist_kernel_row row = {.dtype = MIST_TRACE_BF16,
                                  .phase = phase,
                                  .time_us = 12.5,
                                  .deviation_us = 0.25,
                                  .repetitions = 50,
                                  .flop = 1e9,
                                  .bytes = 3e6};

    snprintf(row.op, sizeof row.op, "%s", op);
    assert_int_equal(mist_shape_parse(shape, &row.shape, NULL), MIST_OK);
    return row;
}

static struct mist_link_row link_row(enum mist_link_operation operation, int64_t bytes)
{
    return (struct mist_link_row){.operation = operation,
                                  .nodes = 2,
                                  .ranks_per_node = 4,
                                  .concurrent_groups = 2,
                                  .bytes = bytes,
                                  .time_us = 0.1 * (double)bytes,
                                  .repetitions = 7};
}

static void fill_set(struct mist_trace_set *set, bool reversed)
{
    const char *shapes[] = {"rows=512;n_in=256;n_out=768",
                            "rows=1024;n_in=256;n_out=768"};
    struct mist_interference_row both = {.channels = 3,
                                         .nodes = 1,
                                         .ranks_per_node = 2,
                                         .alone_us = {10.0, 20.0 / 3, 0, 0},
                                         .together_us = 14.1,
                                         .repetitions = 3};

    mist_trace_set_init(set);
    set->cluster = (struct mist_cluster){.name = "pair",
                                         .backend = MIST_TRACE_CUDA,
                                         .nodes = 2,
                                         .devices_per_node = 8,
                                         .device_memory_bytes = 80000000000,
                                         .memory_bytes_per_s = 1.0e12 / 3,
                                         .launch_us = 4.25,
                                         .runtime_memory_bytes = 500000000,
                                         .drift_frac = 0.1 / 7,
                                         .skew = {0.01 / 3, 0.02 / 3, 0.04 / 3},
                                         .probe_us = 1e5 / 9,
                                         .n_libraries = 1};
    set->cluster.peak_flop_per_s[MIST_TRACE_BF16] = 312e12;
    strcpy(set->cluster.libraries[0].name, "nccl");
    strcpy(set->cluster.libraries[0].version, "2.28.9");
    for (int i = 0; i < 2; i++) {
        struct mist_kernel_row kernel =
            kernel_row("gemm", MIST_PHASE_FORWARD, shapes[reversed ? 1 - i : i]);
        struct mist_link_row link =
            link_row(MIST_LINK_ALL_GATHER, (reversed ? 2 - i : i + 1) * 1000);
        assert_int_equal(mist_trace_set_add_kernel(set, &kernel, NULL), MIST_OK);
        assert_int_equal(mist_trace_set_add_link(set, &link, NULL), MIST_OK);
    }
    const struct mist_check_row check = {.mechanism = MIST_MECHANISM_ZERO3,
                                         .predicted_us = 1e5 / 3,
                                         .bar_us = 1e3 / 7,
                                         .measured_us = 1e5 / 3.1,
                                         .deviation_us = 0.1,
                                         .repetitions = 5};
    assert_int_equal(mist_trace_set_add_interference(set, &both, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_add_check(set, &check, NULL), MIST_OK);
}

/* ---- words and shapes ---- */

TEST(test_words)
{
    assert_string_equal(mist_phase_words[MIST_PHASE_BACKWARD_WEIGHT], "backward_weight");
    assert_string_equal(mist_trace_dtype_words[MIST_TRACE_FP8], "fp8");
    assert_string_equal(mist_link_operation_words[MIST_LINK_DEVICE_TO_HOST],
                        "device_to_host");
    assert_string_equal(mist_trace_backend_words[MIST_TRACE_DATASHEET], "datasheet");
    assert_string_equal(mist_mechanism_words[MIST_MECHANISM_SEQUENCE_PARALLEL],
                        "sequence_parallel");
    assert_string_equal(mist_mechanism_words[MIST_MECHANISM_OFFLOAD], "offload");
}

TEST(test_channels)
{
    char text[MIST_CHANNELS_TEXT_MAX];
    unsigned channels = 0;

    for (unsigned i = 1; i < 16; i++) {
        mist_channels_to_text(i, text);
        assert_true(mist_channels_from_text(text, &channels));
        assert_int_equal(channels, i);
    }
    assert_string_equal(text, "compute+gpu_gpu+host_to_device+device_to_host");
    assert_false(mist_channels_from_text("gpu_gpu+compute", &channels));
    assert_false(mist_channels_from_text("compute+compute", &channels));
    assert_false(mist_channels_from_text("compute+", &channels));
    assert_false(mist_channels_from_text("", &channels));
    assert_int_equal(channels, 15);
}

TEST(test_shape)
{
    static const char *const bad[] = {
        "",
        "rows",
        "rows=",
        "=5",
        "rows=0",
        "rows=-1",
        "rows=+1",
        "rows=01",
        "rows=1.0",
        "rows=1;",
        ";rows=1",
        "rows=1;rows=2",
        "Rows=1",
        "1r=1",
        "rows=1 ",
        "rows =1",
        "rows=1,b=2",
        "rows=1e3",
        "rows=99999999999999999999",
        "rows=1;;b=2",
        "a=1;b=1;c=1;d=1;e=1;f=1;g=1;h=1;i=1",
        "a_name_of_twenty_four_ch=1",
    };
    struct mist_shape shape = {.n_dims = 42};
    char text[MIST_SHAPE_TEXT_MAX];
    struct mist_err err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (mist_shape_parse(bad[i], &shape, &err) != MIST_ERR_INPUT)
            fail_msg("'%s' was accepted", bad[i]);
        assert_int_equal(shape.n_dims, 42);
    }
    assert_int_equal(mist_shape_parse("rows=512;n_in=256", &shape, &err), MIST_OK);
    assert_int_equal(shape.n_dims, 2);
    assert_int_equal(mist_shape_get(&shape, "n_in"), 256);
    assert_int_equal(mist_shape_get(&shape, "n_out"), 0);
    mist_shape_format(&shape, text);
    assert_string_equal(text, "rows=512;n_in=256");
    assert_int_equal(
        mist_shape_parse("a_name_of_23_characters=9223372036854775807;b=1;c=1;"
                         "d=1;e=1;f=1;g=1;h=1",
                         &shape, &err),
        MIST_OK);
    assert_int_equal(mist_shape_get(&shape, "a_name_of_23_characters"), INT64_MAX);
}

/* ---- rows ---- */

/* The index and the chains against a walk over all rows. */
TEST(test_many_kernels)
{
    static const char *const ops[] = {"gemm", "norm", "attention"};
    enum { N = 3000 };
    struct mist_trace_set set;

    mist_trace_set_init(&set);
    for (int i = 0; i < N; i++) {
        char shape[64];
        snprintf(shape, sizeof shape, "rows=%d;n_in=%d", i / 12 + 1, i % 4 + 1);
        struct mist_kernel_row row =
            kernel_row(ops[i % 3], (enum mist_phase)(i / 3 % 4), shape);
        row.time_us = i + 1;
        enum mist_status status = mist_trace_set_add_kernel(&set, &row, NULL);
        assert_int_equal(status, MIST_OK);
        assert_int_equal(mist_trace_set_add_kernel(&set, &row, NULL), MIST_ERR_INPUT);
    }
    assert_int_equal(set.n_kernels, N);
    size_t n_chained = 0;
    for (int op = 0; op < 3; op++)
        for (int phase = 0; phase < 4; phase++) {
            const struct mist_kernel_row *row = mist_trace_set_first_kernel(
                &set, ops[op], MIST_TRACE_BF16, (enum mist_phase)phase);
            for (int i = 0; i < N; i++) {
                const struct mist_kernel_row *slow = &set.kernels[i];
                if (strcmp(slow->op, ops[op]) != 0 || (int)slow->phase != phase)
                    continue;
                assert_ptr_equal(row, slow);
                assert_ptr_equal(mist_trace_set_find_kernel(&set, ops[op],
                                                            MIST_TRACE_BF16, slow->phase,
                                                            &slow->shape),
                                 slow);
                row = mist_trace_set_next_kernel(&set, row);
                n_chained++;
            }
            assert_null(row);
        }
    assert_int_equal(n_chained, N);
    assert_null(mist_trace_set_find_kernel(&set, "gemm", MIST_TRACE_FP32,
                                           MIST_PHASE_FORWARD, &set.kernels[0].shape));
    assert_null(
        mist_trace_set_first_kernel(&set, "none", MIST_TRACE_BF16, MIST_PHASE_FORWARD));
    mist_trace_set_fini(&set);
}

TEST(test_bad_rows)
{
    struct mist_trace_set set;
    struct mist_kernel_row kernel = kernel_row("gemm", MIST_PHASE_FORWARD, "rows=1");
    struct mist_link_row link = link_row(MIST_LINK_ALL_REDUCE, 8);
    struct mist_interference_row both = {.channels = 3,
                                         .nodes = 1,
                                         .ranks_per_node = 2,
                                         .alone_us = {1, 1, 0, 0},
                                         .together_us = 1.5,
                                         .repetitions = 1};
    struct mist_check_row check = {.predicted_us = 9, .measured_us = 8, .repetitions = 1};

    mist_trace_set_init(&set);
#define REJECTS(add, row, field, bad)                                                    \
    do {                                                                                 \
        __typeof__(row) copy = (row);                                                    \
        copy.field = (bad);                                                              \
        assert_int_equal(add(&set, &copy, NULL), MIST_ERR_INPUT);                        \
    } while (0)
    REJECTS(mist_trace_set_add_kernel, kernel, time_us, 0.0);
    REJECTS(mist_trace_set_add_kernel, kernel, time_us, (double)NAN);
    REJECTS(mist_trace_set_add_kernel, kernel, time_us, (double)INFINITY);
    REJECTS(mist_trace_set_add_kernel, kernel, deviation_us, -1.0);
    REJECTS(mist_trace_set_add_kernel, kernel, repetitions, 0);
    REJECTS(mist_trace_set_add_kernel, kernel, flop, -1.0);
    REJECTS(mist_trace_set_add_kernel, kernel, bytes, (double)NAN);
    REJECTS(mist_trace_set_add_kernel, kernel, op[0], 'G');
    REJECTS(mist_trace_set_add_kernel, kernel, op[0], '\0');
    REJECTS(mist_trace_set_add_kernel, kernel, shape.n_dims, 0);
    REJECTS(mist_trace_set_add_kernel, kernel, shape.dims[0].value, 0);
    REJECTS(mist_trace_set_add_kernel, kernel, phase, MIST_N_PHASES);
    REJECTS(mist_trace_set_add_link, link, nodes, 0);
    REJECTS(mist_trace_set_add_link, link, ranks_per_node, -1);
    REJECTS(mist_trace_set_add_link, link, concurrent_groups, 0);
    REJECTS(mist_trace_set_add_link, link, bytes, 0);
    REJECTS(mist_trace_set_add_link, link, time_us, -1.0);
    REJECTS(mist_trace_set_add_interference, both, channels, 1u);
    REJECTS(mist_trace_set_add_interference, both, channels, 19u);
    REJECTS(mist_trace_set_add_interference, both, alone_us[0], 0.0);
    REJECTS(mist_trace_set_add_interference, both, alone_us[2], 1.0);
    REJECTS(mist_trace_set_add_interference, both, together_us, 0.0);
    REJECTS(mist_trace_set_add_check, check, mechanism, MIST_N_MECHANISMS);
    REJECTS(mist_trace_set_add_check, check, predicted_us, 0.0);
    REJECTS(mist_trace_set_add_check, check, predicted_us, (double)NAN);
    REJECTS(mist_trace_set_add_check, check, bar_us, -1.0);
    REJECTS(mist_trace_set_add_check, check, measured_us, (double)INFINITY);
    REJECTS(mist_trace_set_add_check, check, measured_us, 101 * check.predicted_us);
    REJECTS(mist_trace_set_add_check, check, measured_us, check.predicted_us / 101);
    REJECTS(mist_trace_set_add_check, check, deviation_us, 1e11);
    REJECTS(mist_trace_set_add_check, check, repetitions, 0);
    assert_int_equal(set.n_kernels + set.n_links + set.n_interferences + set.n_checks, 0);
    for (int i = 0; i < MIST_N_MECHANISMS; i++) {
        check.mechanism = (enum mist_mechanism)i;
        assert_int_equal(mist_trace_set_add_check(&set, &check, NULL), MIST_OK);
        assert_int_equal(mist_trace_set_add_check(&set, &check, NULL), MIST_ERR_INPUT);
        assert_ptr_equal(mist_trace_set_find_check(&set, check.mechanism),
                         &set.checks[i]);
    }
    assert_int_equal(mist_trace_set_add_interference(&set, &both, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_add_interference(&set, &both, NULL), MIST_ERR_INPUT);
    both.alone_us[1] = 2;
    assert_int_equal(mist_trace_set_add_interference(&set, &both, NULL), MIST_OK);
    mist_trace_set_fini(&set);
}

/* ---- files ---- */

TEST(test_round_trip)
{
    struct mist_trace_set set, back;
    struct mist_err err = {0};
    char *folder = new_folder();

    fill_set(&set, false);
    assert_int_equal(mist_trace_set_save(&set, folder, false, &err), MIST_OK);
    assert_int_equal(mist_trace_set_load(&back, folder, &err), MIST_OK);
    assert_true(back.has_kernels);
    assert_int_equal(back.n_kernels, 2);
    assert_int_equal(back.n_links, 2);
    assert_int_equal(back.n_interferences, 1);
    assert_true(back.cluster.memory_bytes_per_s == set.cluster.memory_bytes_per_s);
    assert_true(back.cluster.drift_frac == set.cluster.drift_frac);
    assert_true(back.cluster.skew.step_frac == set.cluster.skew.step_frac);
    assert_true(back.cluster.probe_us == set.cluster.probe_us);
    assert_true(back.interferences[0].alone_us[1] == 20.0 / 3);
    assert_int_equal(back.n_checks, 1);
    assert_true(back.checks[0].measured_us == 1e5 / 3.1);
    assert_string_equal(back.cluster.libraries[0].version, "2.28.9");
    assert_int_equal(mist_trace_set_fingerprint(&set), mist_trace_set_fingerprint(&back));
    const struct mist_link_row *link =
        find_link(&back, MIST_LINK_ALL_GATHER, 2, 4, 2, 2000);
    assert_non_null(link);
    assert_true(link->time_us == 0.1 * 2000.0);

    /* A second save needs overwrite; it removes the tables that are gone. */
    assert_int_equal(mist_trace_set_save(&set, folder, false, &err), MIST_ERR_USAGE);
    set.n_interferences = set.n_checks = 0;
    assert_int_equal(mist_trace_set_save(&set, folder, true, &err), MIST_OK);
    mist_trace_set_fini(&back);
    assert_int_equal(mist_trace_set_load(&back, folder, &err), MIST_OK);
    assert_int_equal(back.n_interferences, 0);
    assert_int_equal(back.n_checks, 0);
    assert_int_equal(back.n_links, 2);
    mist_trace_set_fini(&back);
    mist_trace_set_fini(&set);
    remove_folder(folder);
}

/* Entries of a folder; -1: there is no folder. */
static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;

    if (!folder)
        return -1;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n - 2;
}

/* The fingerprint of what lies in a folder. */
static uint64_t fingerprint_of(const char *folder)
{
    struct mist_trace_set set;
    struct mist_err err = {0};

    if (mist_trace_set_load(&set, folder, &err) != MIST_OK)
        fail_msg("%s: %s", err.path, err.message);
    uint64_t fingerprint = mist_trace_set_fingerprint(&set);
    mist_trace_set_fini(&set);
    return fingerprint;
}

/* A folder that does not exist yet: the whole set or no folder, whatever step fails. */
TEST(test_new_folder_or_none)
{
    struct mist_trace_set set;
    char *parent = new_folder(), folder[256];

    fill_set(&set, false);
    snprintf(folder, sizeof folder, "%s/a", parent);
    for (int fault = 0; fault < N_FAULTS; fault++) {
        long n = 1;
        for (;; n++) {
            fault_arm((enum fault)fault, n);
            long n_live = fault_n_live();
            enum mist_status status = mist_trace_set_save(&set, folder, false, NULL);
            bool has_fired = fault_disarm();
            assert_int_equal(fault_n_live(), n_live);
            assert_int_equal(count_entries(parent), status == MIST_OK);
            if (status != MIST_OK) {
                assert_true(has_fired);
                continue;
            }
            assert_int_equal(count_entries(folder), 5);
            assert_int_equal(fingerprint_of(folder), mist_trace_set_fingerprint(&set));
            remove_folder(strdup(folder));
            if (!has_fired) /* stdio does without a buffer */
                break;
        }
        assert_true(n > 5); /* five files at least */
    }
    mist_trace_set_fini(&set);
    remove_folder(parent);
}

/* A set is replaced by one with other tables, beside a file that is not ours: the old set
 * as a whole, or the new one. */
TEST(test_old_set_or_new)
{
    struct mist_trace_set old, next;
    char *folder = new_folder(), other[256];

    fill_set(&old, false);
    fill_set(&next, false);
    old.n_links = 0;
    next.n_interferences = 0;
    next.kernels[0].time_us = 99;
    write_file(folder, "notes.txt", "kept", "");
    for (int fault = 0; fault < N_FAULTS; fault++) {
        assert_int_equal(mist_trace_set_save(&old, folder, true, NULL), MIST_OK);
        long n = 1;
        for (;; n++) {
            fault_arm((enum fault)fault, n);
            enum mist_status status = mist_trace_set_save(&next, folder, true, NULL);
            bool has_fired = fault_disarm();
            assert_int_equal(count_entries(folder), 5); /* 4 files of a set, the notes */
            assert_int_equal(
                fingerprint_of(folder),
                mist_trace_set_fingerprint(status == MIST_OK ? &next : &old));
            if (!has_fired)
                break;
            if (status == MIST_OK) /* stdio does without a buffer */
                assert_int_equal(mist_trace_set_save(&old, folder, true, NULL), MIST_OK);
        }
        assert_true(n > (fault == FAULT_RENAME ? 12 : 4)); /* written, out, in */
    }
    snprintf(other, sizeof other, "%s/notes.txt", folder);
    assert_int_equal(unlink(other), 0);
    mist_trace_set_fini(&old);
    mist_trace_set_fini(&next);
    remove_folder(folder);
}

/* What is in the way, slashes behind the name, folders to be made above it. */
TEST(test_odd_folders)
{
    struct mist_trace_set set;
    char *parent = new_folder(), path[256];

    fill_set(&set, false);
    assert_int_equal(mist_trace_set_save(&set, "", false, NULL), MIST_ERR_IO);
    snprintf(path, sizeof path, "%s/b/c//", parent);
    assert_int_equal(mist_trace_set_save(&set, path, false, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_save(&set, path, true, NULL), MIST_OK);
    assert_int_equal(fingerprint_of(path), mist_trace_set_fingerprint(&set));
    snprintf(path, sizeof path, "%s/b/c/links.csv", parent);
    assert_int_equal(mist_trace_set_save(&set, path, true, NULL), MIST_ERR_IO);
    snprintf(path, sizeof path, "%s/b/c/links.csv/d", parent);
    assert_int_equal(mist_trace_set_save(&set, path, true, NULL), MIST_ERR_IO);
    snprintf(path, sizeof path, "%s/b/c/links.csv", parent);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0); /* a folder where a file belongs */
    snprintf(path, sizeof path, "%s/b/c", parent);
    assert_int_equal(mist_trace_set_save(&set, path, true, NULL), MIST_ERR_IO);
    assert_int_equal(count_entries(path), 5);
    snprintf(path, sizeof path, "%s/b/c/links.csv", parent);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/b/c", parent);
    remove_folder(strdup(path));
    snprintf(path, sizeof path, "%s/b", parent);
    remove_folder(strdup(path));
    mist_trace_set_fini(&set);
    remove_folder(parent);
}

TEST(test_fingerprint)
{
    struct mist_trace_set a, b;

    fill_set(&a, false);
    fill_set(&b, true);
    assert_int_equal(mist_trace_set_fingerprint(&a), mist_trace_set_fingerprint(&b));
    b.kernels[1].time_us += 1e-9;
    assert_int_not_equal(mist_trace_set_fingerprint(&a), mist_trace_set_fingerprint(&b));
    b.kernels[1].time_us = a.kernels[0].time_us;
    assert_int_equal(mist_trace_set_fingerprint(&a), mist_trace_set_fingerprint(&b));
    b.cluster.drift_frac *= 2;
    assert_int_not_equal(mist_trace_set_fingerprint(&a), mist_trace_set_fingerprint(&b));
    b.cluster.drift_frac = a.cluster.drift_frac;
    assert_int_equal(mist_trace_set_fingerprint(&a), mist_trace_set_fingerprint(&b));
    b.cluster.libraries[0].version[0] = '3';
    assert_int_not_equal(mist_trace_set_fingerprint(&a), mist_trace_set_fingerprint(&b));
    mist_trace_set_fini(&a);
    mist_trace_set_fini(&b);
}

/* Whatever is measured changes it. */
TEST(test_every_value_is_in_the_fingerprint)
{
    struct mist_trace_set set;

    fill_set(&set, false);
    struct mist_cluster *cluster = &set.cluster;
    struct mist_kernel_row *kernel = &set.kernels[0];
    struct mist_link_row *link = &set.links[1];
    struct mist_interference_row *both = &set.interferences[0];
    struct mist_check_row *check = &set.checks[0];
    double *const reals[] = {
        &cluster->memory_bytes_per_s,
        &cluster->launch_us,
        &cluster->drift_frac,
        &cluster->skew.alone_frac,
        &cluster->skew.pass_frac,
        &cluster->skew.step_frac,
        &cluster->probe_us,
        &cluster->peak_flop_per_s[0],
        &kernel->time_us,
        &kernel->deviation_us,
        &kernel->flop,
        &kernel->bytes,
        &link->time_us,
        &link->deviation_us,
        &both->alone_us[1],
        &both->together_us,
        &both->deviation_us,
        &check->predicted_us,
        &check->bar_us,
        &check->measured_us,
        &check->deviation_us,
    };
    int64_t *const counts[] = {
        &cluster->device_memory_bytes,
        &cluster->host_memory_bytes_per_node,
        &cluster->runtime_memory_bytes,
        &kernel->repetitions,
        &link->bytes,
        &link->repetitions,
        &both->repetitions,
        &check->repetitions,
    };
    int *const sizes[] = {
        &cluster->nodes,          &cluster->devices_per_node,
        &cluster->device_threads, &link->nodes,
        &link->ranks_per_node,    &link->concurrent_groups,
        &both->ranks_per_node,    &both->nodes,
    };
    uint64_t first = mist_trace_set_fingerprint(&set);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double before = *reals[i];
        *reals[i] = before * 1.5 + 1;
        assert_int_not_equal(mist_trace_set_fingerprint(&set), first);
        *reals[i] = before;
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ++*counts[i];
        assert_int_not_equal(mist_trace_set_fingerprint(&set), first);
        --*counts[i];
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ++*sizes[i];
        assert_int_not_equal(mist_trace_set_fingerprint(&set), first);
        --*sizes[i];
    }
    assert_int_equal(mist_trace_set_fingerprint(&set), first);
    mist_trace_set_fini(&set);
}

TEST(test_cluster_alone)
{
    struct mist_trace_set set;
    struct mist_err err = {0};
    char *folder = new_folder();

    fill_set(&set, false);
    assert_int_equal(mist_cluster_check(&set.cluster, NULL), MIST_OK);
    set.cluster.drift_frac = (double)NAN;
    assert_int_equal(mist_cluster_check(&set.cluster, NULL), MIST_ERR_INPUT);
    set.cluster.drift_frac = (double)INFINITY;
    assert_int_equal(mist_cluster_check(&set.cluster, NULL), MIST_ERR_INPUT);
    set.cluster.drift_frac = 0;
    set.cluster.libraries[1] = set.cluster.libraries[0];
    set.cluster.n_libraries = 2;
    assert_int_equal(mist_cluster_check(&set.cluster, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "nccl comes twice"));
    set.cluster.n_libraries = MIST_TRACE_MAX_LIBRARIES + 1;
    assert_int_equal(mist_cluster_check(&set.cluster, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "33 libraries, expected 0 .. 32"));
    mist_trace_set_fini(&set);
    assert_int_equal(mist_trace_set_load(&set, folder, &err), MIST_ERR_IO);
    write_file(folder, "cluster.json", CLUSTER, "");
    assert_int_equal(mist_trace_set_load(&set, folder, &err), MIST_OK);
    assert_false(set.has_kernels);
    assert_int_equal(set.cluster.devices_per_node, 8);
    assert_int_equal(set.cluster.host_memory_bytes_per_node, 0);
    assert_true(set.cluster.drift_frac == 0 && set.cluster.probe_us == 0);
    assert_true(set.cluster.peak_flop_per_s[MIST_TRACE_FP32] == 1.95e13);
    mist_trace_set_fini(&set);
    write_file(folder, "kernels.csv", KERNEL_HEAD, "");
    assert_int_equal(mist_trace_set_load(&set, folder, &err), MIST_OK);
    assert_true(set.has_kernels);
    assert_int_equal(set.n_kernels, 0);
    mist_trace_set_fini(&set);
    remove_folder(folder);
}

/* Replaces the first from of CLUSTER by to. */
static void edit_cluster(const char *from, const char *to, char out[1024])
{
    const char *at = strstr(CLUSTER, from);

    assert_non_null(at);
    snprintf(out, 1024, "%.*s%s%s", (int)(at - CLUSTER), CLUSTER, to, at + strlen(from));
}

/* A key that older sets have says nothing any more. */
TEST(test_a_key_of_old_sets)
{
    struct mist_trace_set now, old;
    struct mist_err err = {0};
    char *folder = new_folder(), text[1024];

    write_file(folder, "cluster.json", CLUSTER, "");
    must(mist_trace_set_load(&now, folder, &err), &err);
    edit_cluster("1.5e12}", "1.5e12, \"interruption_frac\": 0.007}", text);
    write_file(folder, "cluster.json", text, "");
    must(mist_trace_set_load(&old, folder, &err), &err);
    assert_int_equal(mist_trace_set_fingerprint(&old), mist_trace_set_fingerprint(&now));
    mist_trace_set_fini(&now);
    mist_trace_set_fini(&old);
    remove_folder(folder);
}

#define EIGHT_LIBRARIES(a)                                                               \
    "\"" a "0\":\"\",\"" a "1\":\"\",\"" a "2\":\"\",\"" a "3\":\"\",\"" a               \
    "4\":\"\",\"" a "5\":\"\",\"" a "6\":\"\",\"" a "7\":\"\""
#define MANY_LIBRARIES                                                                   \
    EIGHT_LIBRARIES("a")                                                                 \
    "," EIGHT_LIBRARIES("b") "," EIGHT_LIBRARIES("c") "," EIGHT_LIBRARIES(               \
        "d") ",\"e\":\"\""
#define LONG_TEXT                                                                        \
    "one hundred and more bytes, which are too many for the name of a cluster or of "    \
    "anything else that is printed within one line of a table"

TEST(test_bad_cluster)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"nodes\": 2", "\"nodes\": 0", "nodes"},
        {"\"nodes\": 2", "\"nodes\": 2.5", "nodes"},
        {"\"nodes\": 2", "\"nodes\": 2, \"nodes\": 2", "nodes"},
        {"\"nodes\": 2", "\"nodes\": 2, \"colour\": 2", "colour"},
        {"\"nodes\": 2,", "", "nodes"},
        {"\"name\": \"pair\"", "\"name\": \"\"", "name"},
        {"\"cuda\"", "\"rocm\"", "backend"},
        {"\"format\": 1", "\"format\": 2", "format"},
        {"80000000000", "-1", "device_memory_bytes"},
        {"80000000000", "80", "it counts bytes; 80 GiB are 85899345920"},
        {"\"fp32\": 1.95e13, \"bf16\": 3.12e14", "", "peak_flop_per_s"},
        {"\"fp32\"", "\"int7\"", "int7"},
        {"1.95e13", "-1", "fp32"},
        {"1.5e12}", "0}", "memory_bytes_per_s"},
        {"1.5e12}", "1.5e12, \"drift_frac\": -0.01}", "drift_frac"},
        {"1.5e12}", "1.5e12, \"drift_frac\": \"2 %\"}", "drift_frac"},
        {"1.5e12}", "1.5e12, \"probe_us\": -1}", "probe_us"},
        {"1.5e12}", "1.5e12, \"probe_us\": 1e11}", "probe_us"},
        {"1.5e12}", "1.5e12, \"probe_us\": null}", "probe_us"},
        {"1.5e12}", "1.5e12, \"libraries\": {\"a\": 1}}", "a"},
        {"1.5e12}",
         "1.5e12, \"declared\": {\"compute_slowdown\": 0.5, \"residual_frac\": 0.1}}",
         "declared.compute_slowdown is 0.5, expected 1 (none) to 100"},
        {"1.5e12}", "1.5e12, \"libraries\": {\"\": \"1\"}}", "name of 0 bytes"},
        {"1.5e12}", "1.5e12, \"libraries\": {" MANY_LIBRARIES "}}",
         "more than 32 members"},
        {"\"name\": \"pair\"", "\"name\": \"" LONG_TEXT "\"",
         "bytes long, expected at most 63"},
        {"1.5e12}", "1.5e12", ""},
    };
    char *folder = new_folder();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        char text[1024];
        edit_cluster(cases[i].from, cases[i].to, text);
        write_file(folder, "cluster.json", text, "");
        if (mist_trace_set_load(&set, folder, &err) != MIST_ERR_INPUT)
            fail_msg("case %zu was accepted", i);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s", i, err.message);
        assert_non_null(strstr(err.path, "cluster.json"));
        assert_true(err.line >= 1);
        assert_string_equal(set.cluster.name, "");
    }
    remove_folder(folder);
}

TEST(test_bad_tables)
{
    static const char K[] = "kernels.csv", L[] = "links.csv", I[] = "interference.csv";
    static const struct {
        const char *file, *head, *rows, *message;
        long line;
    } cases[] = {
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,1,0,1,1\n", "", 2},
        {K, KERNEL_HEAD, "gemm,int8,forward,rows=1,1,0,1,1,1\n", "dtype", 2},
        {K, KERNEL_HEAD, "gemm,bf16,backward,rows=1,1,0,1,1,1\n", "phase", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=x,1,0,1,1,1\n", "shape", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,nan,0,1,1,1\n", "time_us", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,0,0,1,1,1\n", "time_us", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,,0,1,1,1\n", "time_us", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,1,-1,1,1,1\n", "deviation_us", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,1,0,0,1,1\n", "repetitions", 2},
        {K, KERNEL_HEAD, "gemm,bf16,forward,rows=1,1,0,1,1e999,1\n", "flop", 2},
        {K, KERNEL_HEAD, "Gemm,bf16,forward,rows=1,1,0,1,1,1\n", "op", 2},
        {K, KERNEL_HEAD,
         "gemm,bf16,forward,rows=1,1,0,1,1,1\ngemm,bf16,forward,rows=2,1,0,1,1,1\n"
         "gemm,bf16,forward,rows=1,2,0,1,1,1\n",
         "twice", 4},
        {K, "op,dtype,phase,shape,time_ms,deviation_us,repetitions,flop,bytes\n", "",
         "time_us", 1},
        {K, "op,dtype\n", "", "", 1},
        {K, "", "", "", 1},
        {L, LINK_HEAD, "all_reduce,1,8,1,0,5,0,1\n", "bytes", 2},
        {L, LINK_HEAD, "all_to_all,1,8,1,8,5,0,1\n", "operation", 2},
        {L, LINK_HEAD, "all_reduce,0,8,1,8,5,0,1\n", "nodes", 2},
        {L, LINK_HEAD, "all_reduce,1,8,0,8,5,0,1\n", "concurrent_groups", 2},
        {L, LINK_HEAD, "all_reduce,1,8,1,8,0x10,0,1\n", "time_us", 2},
        {L, LINK_HEAD, "all_reduce,1,8,1,8,5,0,1\nall_reduce,1,8,1,8,6,0,1\n", "twice",
         3},
        {L, LINK_HEAD, "\"all_reduce,1,8,1,8,5,0,1\n", "", 2},
        {I, INTERFERENCE_HEAD, "gpu_gpu+compute,1,2,1,1,0,0,2,0,1\n", "channels", 2},
        {I, INTERFERENCE_HEAD, "compute,1,2,1,0,0,0,2,0,1\n", "channels", 2},
        {I, INTERFERENCE_HEAD, "compute+gpu_gpu,1,2,1,0,0,0,2,0,1\n", "gpu_gpu_us", 2},
        {I, INTERFERENCE_HEAD, "compute+gpu_gpu,1,2,1,1,3,0,2,0,1\n", "host_to_device_us",
         2},
        {I, INTERFERENCE_HEAD, "compute+gpu_gpu,1,2,1,1,0,0,0,0,1\n", "together_us", 2},
    };
    char *folder = new_folder();

    write_file(folder, "cluster.json", CLUSTER, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        char path[256];
        write_file(folder, cases[i].file, cases[i].head, cases[i].rows);
        if (mist_trace_set_load(&set, folder, &err) != MIST_ERR_INPUT)
            fail_msg("case %zu was accepted", i);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s", i, err.message);
        if (err.line != cases[i].line)
            fail_msg("case %zu: line %ld: %s", i, err.line, err.message);
        snprintf(path, sizeof path, "%s/%s", folder, cases[i].file);
        assert_string_equal(err.path, path);
        assert_null(set.kernels);
        unlink(path);
    }
    remove_folder(folder);
}

/* What is saved says how many rows its tables have; lost ones are noticed. */
TEST(test_lost_rows)
{
    struct mist_trace_set set;
    struct mist_err err = {0};
    char *folder = new_folder();
    char path[256], *text = NULL;
    size_t n = 0;

    fill_set(&set, false);
    assert_int_equal(mist_trace_set_save(&set, folder, true, &err), MIST_OK);
    mist_trace_set_fini(&set);
    snprintf(path, sizeof path, "%s/links.csv", folder);
    assert_int_equal(mist_file_read_all(path, 1 << 20, &text, &n, &err), MIST_OK);
    while (n > 1 && text[n - 2] != '\n') /* the last row */
        n--;
    assert_int_equal(truncate(path, (off_t)n - 1), 0);
    free(text);
    assert_int_equal(mist_trace_set_load(&set, folder, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, path);
    assert_int_equal(err.line, 2);
    assert_non_null(strstr(err.message, "ends after 1 rows, expected 2"));
    assert_null(set.folder);
    unlink(path);
    assert_int_equal(mist_trace_set_load(&set, folder, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "is not there, expected 2 rows"));
    remove_folder(folder);
}

TEST_MAIN(NULL, NULL)

/*
 * exec/backend: what is chosen, what is said when it is not to be had, plugins that are
 * none, devices and communication of ranks. The plugins are made here, by the compiler.
 */
#include "tests/unit/test.h"

#include "exec/comm/comm_internal.h"
#include "exec/runtime/backend.h"
#include "tests/unit/comm_job.h"

#include <dlfcn.h>

static const char variable[] = "MIST_CUDA_PLUGIN";

static int forget_plugin(void **state)
{
    return unsetenv(variable);
}

/* As the backend looks for it, but by its own words. */
static bool has_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);

    if (library)
        dlclose(library);
    return library || access("/dev/nvidiactl", F_OK) == 0 ||
           access("/proc/driver/nvidia/version", F_OK) == 0;
}

/* ---------------------------------------------------------------------------- choice */

static void check_cpu(const struct mist_backend *backend,
                      const struct mist_backend_info *info)
{
    assert_string_equal(backend->name, "cpu");
    assert_int_equal(backend->version, MIST_BACKEND_VERSION);
    assert_ptr_equal(backend->operators, &mist_operators_cpu);
    assert_null(backend->open_collectives);
    assert_int_equal(info->n_devices, 1);
    assert_true(info->memory_bytes > 0 && info->n_processors > 0);
}

TEST_WITH(test_cpu, forget_plugin, NULL)
{
    const struct mist_backend *backend;
    struct mist_backend_info info;
    struct mist_device_config config = {.arena_bytes = {100, 100}, .threads = 1};
    struct mist_device *device;
    char note[512];

    assert_int_equal(
        mist_backend_find(MIST_BACKEND_CPU, &backend, &info, note, sizeof note, NULL),
        MIST_OK);
    check_cpu(backend, &info);
    assert_string_equal(note, "");
    assert_int_equal(backend->open_device(&config, &device, NULL), MIST_OK);
    assert_string_equal(device->ops->name, "cpu");
    mist_device_close(device);
    /* info may be left out, and the note */
    assert_int_equal(mist_backend_find(MIST_BACKEND_CPU, &backend, NULL, NULL, 0, NULL),
                     MIST_OK);
    for (int i = 0; i < MIST_N_BACKEND_CHOICES; i++)
        assert_non_null(mist_backend_words[i]);
    assert_string_equal(mist_backend_words[MIST_BACKEND_CUDA], "cuda");
    assert_null(mist_backend_words[MIST_N_BACKEND_CHOICES]);
}

/* Not even a plugin that would not load is looked at. */
TEST_WITH(test_auto_without_driver, forget_plugin, NULL)
{
    const struct mist_backend *backend;
    struct mist_backend_info info;
    char note[512];

    if (has_driver()) {
        print_message("there is a driver of NVIDIA\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            setenv(variable, "/nowhere/libmist_cuda.so", 1);
        assert_int_equal(mist_backend_find(MIST_BACKEND_AUTO, &backend, &info, note,
                                           sizeof note, NULL),
                         MIST_OK);
        check_cpu(backend, &info);
        assert_string_equal(note, "");
    }
}

TEST_WITH(test_cuda_without_driver, forget_plugin, NULL)
{
    const struct mist_backend *backend;
    char note[512];

    if (has_driver()) {
        print_message("there is a driver of NVIDIA\n");
        skip();
    }
    assert_int_equal(
        mist_backend_find(MIST_BACKEND_CUDA, &backend, NULL, note, sizeof note, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "no NVIDIA driver"));
    assert_non_null(strstr(err.message, "install it"));
}

/* --------------------------------------------------------------------------- plugins */

static void expect(const char *path, enum mist_status status, const char *says,
                   const char *says_too)
{
    const struct mist_backend *backend;
    struct mist_backend_info info;
    char note[512];

    setenv(variable, path, 1);
    err.message[0] = '\0';
    assert_int_equal(
        mist_backend_find(MIST_BACKEND_CUDA, &backend, &info, note, sizeof note, &err),
        status);
    assert_string_equal(note, "");
    if (status == MIST_OK) {
        assert_string_equal(backend->name, "cuda");
        assert_string_equal(info.device_name, "Model T");
        assert_int_equal(info.n_devices, 3);
    } else if (!strstr(err.message, says) || !strstr(err.message, says_too)) {
        fail_msg("%s", err.message);
    }
}

TEST_WITH(test_bad_plugins, forget_plugin, NULL)
{
    struct scratch scratch;

    expect("/nowhere/plugin.so", MIST_ERR_RUN, variable, "/nowhere/plugin.so");
    scratch_init(&scratch);
    const char *text = scratch_path(&scratch, "text.so");
    scratch_write(text, "this is no library\n");
    expect(text, MIST_ERR_RUN, "does not load", "text.so");
    scratch_fini(&scratch);
}

static const char source[] =
    "#include \"exec/runtime/backend.h\"\n"
    "static enum mist_status probe(struct mist_backend_info *out, struct mist_err *err)\n"
    "{\n"
    "    *out = (struct mist_backend_info){.n_devices = 3, .device_name = \"Model T\"};\n"
    "    if (FAILS && err)\n"
    "        err->message[0] = 'b', err->message[1] = '9', err->message[2] = 0;\n"
    "    return FAILS ? MIST_ERR_RUN : MIST_OK;\n"
    "}\n"
    "const struct mist_backend NAME = {\n"
    "    .version = MIST_BACKEND_VERSION + NEWER, .name = \"cuda\", .probe = probe};\n";

TEST_WITH(test_made_plugins, forget_plugin, NULL)
{
    static const struct {
        const char *flags;
        enum mist_status status;
        const char *says, *says_too;
    } cases[] = {
        {"-DNAME=mist_backend_cuda -DNEWER=0 -DFAILS=0", MIST_OK, "", ""},
        {"-DNAME=mist_backend_cuda -DNEWER=0 -DFAILS=1", MIST_ERR_RUN, "b9", ""},
        {"-DNAME=mist_backend_cuda '-DNEWER=(999-MIST_BACKEND_VERSION)' -DFAILS=0",
         MIST_ERR_RUN, "has version 999", "this program has version"},
        {"-DNAME=another -DNEWER=0 -DFAILS=0", MIST_ERR_RUN, "is no backend", ".so"},
    };
    struct scratch scratch;
    char from[128], to[128], command[1024];

    if (system("command -v cc >/dev/null 2>&1") != 0) {
        print_message("no cc to make plugins with\n");
        skip();
    }
    scratch_init(&scratch);
    snprintf(from, sizeof from, "%s", scratch_path(&scratch, "plugin.c"));
    scratch_write(from, source);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(to, sizeof to, "%s/%zu.so", scratch.folder, i);
        snprintf(command, sizeof command,
                 "cc -std=c17 -D_POSIX_C_SOURCE=200809L -shared -fPIC -I. %s %s -o %s",
                 cases[i].flags, from, to);
        assert_int_equal(system(command), 0);
        expect(to, cases[i].status, cases[i].says, cases[i].says_too);
    }
    scratch_fini(&scratch);
}

/* The one that was built, where CUDA is installed. */
TEST_WITH(test_real_plugin, forget_plugin, NULL)
{
    const struct mist_backend *backend;
    struct mist_backend_info info;
    char path[512], note[512];
    const char *build = getenv("MIST_BUILD");

    snprintf(path, sizeof path, "%s/libmist_cuda.so", build ? build : "build");
    if (access(path, F_OK) != 0) {
        print_message("there is no %s\n", path);
        skip();
    }
    setenv(variable, path, 1);
    enum mist_status status =
        mist_backend_find(MIST_BACKEND_CUDA, &backend, &info, note, sizeof note, &err);
    if (status == MIST_OK) {
        print_message("%d of %s: %s\n", (int)info.n_devices, info.device_name,
                      info.versions);
        assert_non_null(strstr(info.versions, "NCCL"));
    } else if (!strstr(err.message, "looking for GPUs") &&
               !strstr(err.message, "does not load")) {
        fail_msg("%s", err.message);
    } else {
        print_message("%s\n", err.message);
    }
}

/* ----------------------------------------------------------------------------- ranks */

/* Which of four GPUs each of four ranks sees, as letters, and what they take; who shares,
 * and what is said of that. */
static const struct picking {
    const char *mode, *sees[4], *takes, *note;
    int32_t n_sharing[4], n_node_devices;
} pickings[] = {
    {"same", {"ABCD", "ABCD", "ABCD", "ABCD"}, "ABCD", "", {1, 1, 1, 1}, 4},
    {"permuted", {"ABCD", "DCBA", "BADC", "CDAB"}, "ADBC", "", {1, 1, 1, 1}, 4},
    {"one_each", {"C", "A", "D", "B"}, "CADB", "", {1, 1, 1, 1}, 4},
    {"fewer_first", {"AB", "A", "CBA", "BCDA"}, "BACD", "", {1, 1, 1, 1}, 4},
    {"two",
     {"AB", "AB", "AB", "AB"},
     "ABAB",
     "ranks 0, 2 share GPU A; ranks 1, 3 share GPU B",
     {2, 2, 2, 2},
     2},
    {"one_shared",
     {"A", "B", "C", "A"},
     "ABCA",
     "ranks 0, 3 share GPU A",
     {2, 1, 1, 2},
     3},
    {"one",
     {"A", "A", "A", "A"},
     "AAAA",
     "ranks 0, 1, 2, 3 share GPU A",
     {4, 4, 4, 4},
     1},
};
enum { N_PICKINGS = sizeof pickings / sizeof *pickings };

static int run_picking(const struct picking *picking)
{
    struct mist_backend_info info = {0};
    struct mist_backend_place place;

    CHECK(mist_comm_open(&comm, &err) == MIST_OK);
    rank = mist_comm_rank(comm);
    const char *sees = picking->sees[rank];
    info.n_devices = (int32_t)strlen(sees);
    for (int32_t i = 0; i < info.n_devices; i++)
        info.device_ids[i][0] = sees[i];
    CHECK(mist_backend_pick_device(&info, comm, &place, &err) == MIST_OK);
    CHECK(sees[place.i_device] == picking->takes[rank]);
    CHECK(place.n_sharing == picking->n_sharing[rank]);
    CHECK(place.n_node_devices == picking->n_node_devices);
    CHECK(strcmp(place.note, picking->note) == 0);
    mist_comm_close(comm);
    return 0;
}

TEST(test_pick_device)
{
    need_mpirun();
    for (int i = 0; i < N_PICKINGS; i++)
        run_good_job(4, "", pickings[i].mode);
}

/* One rank, and CPUs, which nobody is told about. */
TEST(test_pick_alone)
{
    struct mist_backend_info info = {.n_devices = 2, .device_ids = {"x", "y"}};
    struct mist_backend_place place;

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    for (int is_cpu = 0; is_cpu < 2; is_cpu++) {
        info.n_devices = is_cpu ? 1 : 2;
        info.device_ids[0][0] = is_cpu ? '\0' : 'x';
        assert_int_equal(mist_backend_pick_device(&info, comm, &place, NULL), MIST_OK);
        assert_int_equal(place.i_device, 0);
        assert_int_equal(place.n_sharing, 1);
        assert_string_equal(place.note, "");
    }
    mist_comm_close(comm);
}

/* A backend's own communication, which only tells that it was asked for, after all ranks
 * but the first got an id from the last, and those with even numbers from rank 2. */
static struct mist_collectives own = {NULL};

static enum mist_status
open_own(struct mist_device *device, int32_t own_rank, int32_t n, double deadline_s,
         enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n,
                                      void *id, struct mist_err *err),
         void *context, struct mist_collectives **out, struct mist_err *e)
{
    unsigned char id[MIST_COLLECTIVES_ID_BYTES];
    int32_t even[] = {2, 0}, others[] = {n - 1, 1};

    (void)device;
    CHECK(own_rank == rank && n == n_ranks && deadline_s == 12.5);
    for (int i = 0; i < MIST_COLLECTIVES_ID_BYTES; i++)
        id[i] = (unsigned char)(i * 7 + rank);
    if (rank == 0 || rank == 2) {
        CHECK(exchange(context, even, 2, id, e) == MIST_OK);
        for (int i = 0; i < MIST_COLLECTIVES_ID_BYTES; i++)
            CHECK(id[i] == (unsigned char)(i * 7 + 2));
    }
    if (rank == 1 || rank == n - 1) {
        for (int i = 0; i < MIST_COLLECTIVES_ID_BYTES; i++)
            id[i] = (unsigned char)(i * 5 + rank);
        CHECK(exchange(context, others, 2, id, e) == MIST_OK);
        for (int i = 0; i < MIST_COLLECTIVES_ID_BYTES; i++)
            CHECK(id[i] == (unsigned char)(i * 5 + n - 1));
    }
    *out = &own;
    return MIST_OK;
}

static int run_rank(const char *mode)
{
    struct mist_backend backend = {.name = "made up", .open_collectives = open_own};
    struct mist_device_config config = {.arena_bytes = {4096, 0}, .threads = 1};
    struct mist_device *device;
    struct mist_collectives *at;
    bool shares = strcmp(mode, "one_shares") == 0;

    for (int i = 0; i < N_PICKINGS; i++)
        if (strcmp(mode, pickings[i].mode) == 0)
            return run_picking(&pickings[i]);
    join_job();
    CHECK(mist_device_open_cpu(&config, &device, &err) == MIST_OK);
    if (strcmp(mode, "cpu") == 0)
        backend.open_collectives = NULL;
    CHECK(mist_backend_open_collectives(&backend, comm, device,
                                        !(shares && rank == n_ranks - 1), 12.5, &at,
                                        &err) == MIST_OK);
    if (strcmp(mode, "own") == 0) {
        CHECK(at == &own);
    } else {
        CHECK(strcmp(at->ops->name, "mpi") == 0);
        mist_collectives_close(at);
        /* on a device whose memory is not the host's */
        const struct mist_device_ops *ops = device->ops;
        struct mist_device_ops staged = *ops;
        staged.is_host = false;
        device->ops = &staged;
        CHECK(mist_backend_open_collectives(&backend, comm, device, false, 12.5, &at,
                                            &err) == MIST_OK);
        CHECK(strcmp(at->ops->name, "staged") == 0);
        mist_collectives_close(at);
        device->ops = ops;
    }
    mist_device_close(device);
    mist_comm_close(comm);
    return 0;
}

TEST(test_communication)
{
    need_mpirun();
    run_good_job(4, "", "own");
    run_good_job(3, "", "one_shares");
    run_good_job(2, "", "cpu");
}

/* No messages: the backend's own way would be for nothing. */
TEST(test_alone)
{
    struct mist_backend backend = {.open_collectives = open_own};
    struct mist_device_config config = {.threads = 1};
    struct mist_device *device;
    struct mist_collectives *at;

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    assert_int_equal(mist_device_open_cpu(&config, &device, NULL), MIST_OK);
    assert_int_equal(
        mist_backend_open_collectives(&backend, comm, device, true, 1, &at, NULL),
        MIST_OK);
    assert_string_equal(at->ops->name, "mpi");
    mist_collectives_close(at);
    mist_device_close(device);
    mist_comm_close(comm);
}

JOB_MAIN

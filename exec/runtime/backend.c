/*
 * Finds the backend that a run uses, and the plugin that carries CUDA's.
 *
 * The plugin brings hundreds of megabytes of libraries with it, so it is opened only
 * where there is a driver for it to talk to; looking for that takes a few microseconds.
 */
#include "exec/runtime/backend.h"

#include "core/parse.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const mist_backend_words[] = {"auto", "cpu", "cuda", NULL};

static const char plugin_name[] = "libmist_cuda.so";
static const char plugin_variable[] = "MIST_CUDA_PLUGIN";

/* ------------------------------------------------------------------------------ cpu */

static enum mist_status probe_cpu(struct mist_backend_info *out, struct mist_err *err)
{
    int64_t n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

    (void)err;
    *out = (struct mist_backend_info){
        .n_devices = 1,
        .device_name = "CPU",
        .memory_bytes = n_pages > 0 && page_bytes > 0 ? n_pages * page_bytes : 0,
        .n_processors = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)};
    return MIST_OK;
}

static const struct mist_backend backend_cpu = {
    .version = MIST_BACKEND_VERSION,
    .name = "cpu",
    .operators = &mist_operators_cpu,
    .probe = probe_cpu,
    .open_device = mist_device_open_cpu,
};

/* --------------------------------------------------------------------------- plugin */

/* Whether a driver of NVIDIA seems to be there, of whatever version and in whatever
 * state. */
static bool has_driver(void)
{
    void *library;

    if (access("/proc/driver/nvidia/version", F_OK) == 0 ||
        access("/dev/nvidiactl", F_OK) == 0)
        return true;
    library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

/* path[PATH_MAX]: where the plugin is. */
static enum mist_status find_plugin(char *path, struct mist_err *err)
{
    static const char *const folders[] = {"", "../lib/mist/"};
    const char *chosen = getenv(plugin_variable);
    char program[PATH_MAX];

    if (chosen && *chosen) {
        if (snprintf(path, PATH_MAX, "%s", chosen) < PATH_MAX && access(path, F_OK) == 0)
            return MIST_OK;
        return mist_err_set(err, MIST_ERR_RUN, "%s names no file: %.300s",
                            plugin_variable, chosen);
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *name = strrchr(program, '/');
    name = name ? name + 1 : program;
    *name = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (snprintf(path, PATH_MAX, "%s%s%s", program, folders[i], plugin_name) <
                PATH_MAX &&
            access(path, F_OK) == 0)
            return MIST_OK;
    return mist_err_set(err, MIST_ERR_RUN,
                        "%s is neither in %.200s nor in ../lib/mist from there: build "
                        "Mist where nvcc and CUDA's libraries are, or set %s to it",
                        plugin_name, program, plugin_variable);
}

/* Opens it for good: what it holds is static. */
static enum mist_status open_plugin(const char *path, const struct mist_backend **out,
                                    struct mist_err *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *why = dlerror();
        return mist_err_set(err, MIST_ERR_RUN,
                            "the CUDA backend does not load (CUDA's libraries are looked "
                            "for in LD_LIBRARY_PATH, too): %.350s",
                            why ? why : path);
    }
    const struct mist_backend *backend = dlsym(library, "mist_backend_cuda");
    enum mist_status status = MIST_OK;
    if (!backend)
        status = mist_err_set(err, MIST_ERR_RUN, "%.350s is no backend of Mist", path);
    else if (backend->version != MIST_BACKEND_VERSION)
        status = mist_err_set(err, MIST_ERR_RUN,
                              "%.350s has version %ld of the backends' interface, this "
                              "program has version %d: build both from the same source",
                              path, (long)backend->version, (int)MIST_BACKEND_VERSION);
    if (status != MIST_OK)
        dlclose(library);
    else
        *out = backend;
    return status;
}

static enum mist_status find_cuda(const struct mist_backend **out,
                                  struct mist_backend_info *info, struct mist_err *err)
{
    char path[PATH_MAX];
    enum mist_status status = find_plugin(path, err);

    if (status == MIST_OK)
        status = open_plugin(path, out, err);
    if (status == MIST_OK)
        status = (*out)->probe(info, err);
    return status;
}

/* --------------------------------------------------------------------------- choice */

enum mist_status mist_backend_find(enum mist_backend_choice choice,
                                   const struct mist_backend **out,
                                   struct mist_backend_info *info, char *note,
                                   size_t note_bytes, struct mist_err *err)
{
    struct mist_backend_info unused = {0};
    struct mist_err why;

    info = info ? info : &unused;
    if (note_bytes > 0)
        *note = '\0';
    *out = &backend_cpu;
    /* Who names a plugin and asks for it hears what that plugin says. */
    bool is_named = choice == MIST_BACKEND_CUDA && getenv(plugin_variable);
    if (choice != MIST_BACKEND_CPU && (is_named || has_driver())) {
        enum mist_status status =
            find_cuda(out, info, choice == MIST_BACKEND_CUDA ? err : &why);
        if (status == MIST_OK || choice == MIST_BACKEND_CUDA)
            return status;
        snprintf(note, note_bytes, "no GPU is used: %s", why.message);
        *out = &backend_cpu;
    }
    if (choice == MIST_BACKEND_CUDA)
        return mist_err_set(err, MIST_ERR_RUN,
                            "this machine has no NVIDIA driver (no /dev/nvidiactl, no "
                            "libcuda.so.1): install it, or start the container with its "
                            "GPUs (docker: --gpus all)");
    return backend_cpu.probe(info, err);
}

enum mist_status mist_backend_check_attention(const struct mist_backend *backend,
                                              enum mist_attention_choice attention,
                                              struct mist_err *err)
{
    if (attention != MIST_ATTENTION_CUDNN || backend->operators != &mist_operators_cpu)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_USAGE,
                        "--attention cudnn needs a GPU, and this run is on the CPU");
}

/* ------------------------------------------------------------------- whose is which */

/* What a rank sees, and what it takes. */
struct seen {
    int32_t node, n;
    char ids[MIST_BACKEND_MAX_DEVICES][MIST_BACKEND_ID_BYTES];
    int32_t pick; /* -1: none yet */
};

static bool has_picked(const struct seen *rank, int32_t node, const char *id)
{
    return rank->node == node && rank->pick >= 0 &&
           strcmp(rank->ids[rank->pick], id) == 0;
}

static int32_t count_users(const struct seen *ranks, int32_t n_ranks, int32_t node,
                           const char *id)
{
    int32_t n = 0;

    for (int32_t r = 0; r < n_ranks; r++)
        n += has_picked(&ranks[r], node, id);
    return n;
}

static void pick_all(struct seen *ranks, int32_t n_ranks)
{
    for (int32_t n = 1; n <= MIST_BACKEND_MAX_DEVICES; n++)
        for (int32_t r = 0; r < n_ranks; r++) {
            int32_t best = -1, fewest = INT32_MAX;
            for (int32_t i = 0; i < n && ranks[r].n == n; i++) {
                int32_t users =
                    count_users(ranks, n_ranks, ranks[r].node, ranks[r].ids[i]);
                best = users < fewest ? i : best;
                fewest = users < fewest ? users : fewest;
            }
            if (ranks[r].n == n)
                ranks[r].pick = best;
        }
}

/* Different devices that the ranks of a node see. */
static int32_t count_devices(const struct seen *ranks, int32_t n_ranks, int32_t node)
{
    int32_t n = 0;

    for (int32_t r = 0; r < n_ranks; r++)
        for (int32_t i = 0; i < ranks[r].n && ranks[r].node == node; i++) {
            bool is_known = false;
            for (int32_t k = 0; k < r && !is_known; k++)
                for (int32_t j = 0; j < ranks[k].n && ranks[k].node == node; j++)
                    is_known |= strcmp(ranks[k].ids[j], ranks[r].ids[i]) == 0;
            n += !is_known;
        }
    return n;
}

/* "ranks 0, 1 share GPU 0000:3B:00.0; ..." */
static void describe_sharing(const struct seen *ranks, int32_t n_ranks, char *note,
                             size_t note_bytes)
{
    *note = '\0';
    for (int32_t r = 0; r < n_ranks; r++) {
        const char *id = ranks[r].ids[ranks[r].pick], *before = "; ";
        int32_t node = ranks[r].node;
        if (!*id || count_users(ranks, n_ranks, node, id) < 2 ||
            count_users(ranks, r, node, id) > 0)
            continue;
        for (int32_t k = r; k < n_ranks; k++)
            if (has_picked(&ranks[k], node, id)) {
                mist_text_add(note, note_bytes, before, "%s%ld", k == r ? "ranks " : "",
                              (long)k);
                before = ", ";
            }
        mist_text_add(note, note_bytes, "", " share GPU %s", id);
    }
}

static enum mist_status gather_seen(const struct mist_backend_info *info,
                                    struct mist_comm *comm, struct seen *ranks,
                                    struct mist_err *err)
{
    struct seen own = {.node = mist_comm_node(comm), .n = info->n_devices, .pick = -1};

    assert(info->n_devices > 0 && info->n_devices <= MIST_BACKEND_MAX_DEVICES);
    memcpy(own.ids, info->device_ids, sizeof own.ids);
    return mist_comm_share_bytes(comm, &own, sizeof own, ranks, err);
}

enum mist_status mist_backend_pick_device(const struct mist_backend_info *info,
                                          struct mist_comm *comm,
                                          struct mist_backend_place *out,
                                          struct mist_err *err)
{
    int32_t n_ranks = mist_comm_n_ranks(comm);
    struct seen *ranks = calloc((size_t)n_ranks, sizeof *ranks);

    if (!ranks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %ld ranks",
                            (long)n_ranks);
    enum mist_status status = gather_seen(info, comm, ranks, err);
    if (status == MIST_OK) {
        const struct seen *own = &ranks[mist_comm_rank(comm)];
        pick_all(ranks, n_ranks);
        out->i_device = own->pick;
        out->n_sharing = count_users(ranks, n_ranks, own->node, own->ids[own->pick]);
        out->n_node_devices = count_devices(ranks, n_ranks, own->node);
        describe_sharing(ranks, n_ranks, out->note, sizeof out->note);
    }
    free(ranks);
    return status;
}

/* -------------------------------------------------------------------- communication */

/* Over the host; context is the communicator. */
static enum mist_status bring_id(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err)
{
    struct mist_comm *comm = context;
    enum mist_status status = MIST_OK;

    if (mist_comm_rank(comm) != ranks[0])
        return mist_comm_recv(comm, ranks[0], 0, id, MIST_COLLECTIVES_ID_BYTES, err);
    for (int32_t i = 1; i < n && status == MIST_OK; i++)
        status = mist_comm_send(comm, ranks[i], 0, id, MIST_COLLECTIVES_ID_BYTES, err);
    return status;
}

enum mist_status mist_backend_open_collectives(const struct mist_backend *backend,
                                               struct mist_comm *comm,
                                               struct mist_device *device,
                                               bool has_own_device, double deadline_s,
                                               struct mist_collectives **out,
                                               struct mist_err *err)
{
    int64_t is_direct = has_own_device && backend->open_collectives;
    enum mist_status status =
        mist_comm_all_reduce_i64(comm, MIST_COMM_MIN, &is_direct, 1, err);

    *out = NULL;
    if (status != MIST_OK)
        return status;
    if (is_direct && mist_comm_n_ranks(comm) > 1)
        return backend->open_collectives(device, mist_comm_rank(comm),
                                         mist_comm_n_ranks(comm), deadline_s, bring_id,
                                         comm, out, err);
    return mist_collectives_open_host(comm, device->ops->is_host ? NULL : device, out,
                                      err);
}

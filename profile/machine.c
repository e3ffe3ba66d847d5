/* What this machine is. See machine.h. */
#include "profile/machine.h"

#include "exec/comm/comm.h"
#include "exec/operators/cpu_kernels.h" /* which library they use */

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { DEVICE_PERCENT = 80, HOST_PERCENT = 10, HOST_PERCENT_BESIDE_GPUS = 70 };

/* The text behind "key :" in a file of such lines; "" when there is none. */
static void read_value(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    FILE *stream = fopen(path, "r");

    out[0] = '\0';
    while (stream && fgets(line, sizeof line, stream)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        char *begin = colon + 1 + strspn(colon + 1, " \t");
        begin[strcspn(begin, "\n")] = '\0';
        snprintf(out, size, "%.*s", (int)size - 1, begin);
        break;
    }
    if (stream)
        fclose(stream);
}

enum mist_status mist_machine_read(enum mist_backend_choice choice,
                                   struct mist_machine *out, char *note,
                                   size_t note_bytes, struct mist_err *err)
{
    char text[64];
    long long total_kib = 0;

    *out = (struct mist_machine){.n_processors = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)};
    read_value("/proc/cpuinfo", "model name", out->processor, sizeof out->processor);
    if (!out->processor[0])
        snprintf(out->processor, sizeof out->processor, "cpu");
    read_value("/proc/meminfo", "MemTotal", text, sizeof text);
    if (sscanf(text, "%lld", &total_kib) != 1 || total_kib <= 0)
        return mist_err_set(err, MIST_ERR_IO,
                            "/proc/meminfo can't be read, so the memory of this machine "
                            "is not known");
    out->memory_bytes = (int64_t)total_kib * 1024;
    enum mist_status status =
        mist_backend_find(choice, &out->backend, &out->devices, note, note_bytes, err);
    out->n_node_devices = out->devices.n_devices;
    return status;
}

bool mist_machine_has_gpus(const struct mist_machine *machine)
{
    return machine->backend->operators != &mist_operators_cpu;
}

/* How many of n_ranks ranks of a node share a device. */
static int32_t n_sharing(const struct mist_machine *machine, int32_t n_ranks)
{
    int32_t n_devices = machine->n_node_devices > 0 ? machine->n_node_devices : 1;

    return (n_ranks + n_devices - 1) / n_devices;
}

int64_t mist_machine_device_bytes(const struct mist_machine *machine, int32_t n_ranks)
{
    if (mist_machine_has_gpus(machine))
        return machine->devices.memory_bytes / n_sharing(machine, n_ranks);
    return machine->memory_bytes / 100 * DEVICE_PERCENT / n_ranks;
}

/* Memory for offloading, of all ranks together: 70 % of the machine's beside GPUs; else,
 * since the rest is device memory, 10 %. */
static int64_t host_bytes(const struct mist_machine *machine)
{
    return machine->memory_bytes / 100 *
           (mist_machine_has_gpus(machine) ? HOST_PERCENT_BESIDE_GPUS : HOST_PERCENT);
}

const char *mist_machine_device_name(const struct mist_machine *machine)
{
    return mist_machine_has_gpus(machine) ? machine->devices.device_name
                                          : machine->processor;
}

static void add_library(struct mist_cluster *cluster, const char *name,
                        const char *version)
{
    int i = cluster->n_libraries++;

    snprintf(cluster->libraries[i].name, MIST_TRACE_NAME_MAX, "%.*s",
             MIST_TRACE_NAME_MAX - 1, name);
    snprintf(cluster->libraries[i].version, MIST_TRACE_NAME_MAX, "%.*s",
             MIST_TRACE_NAME_MAX - 1, version);
}

/* "oneDNN 2.6.3, AVX-512, 1 of 2 OpenMP threads" without the threads. */
static void add_kernels(struct mist_cluster *cluster)
{
    char text[128];

    mist_cpu_describe(text, sizeof text, 1);
    char *last = strrchr(text, ','), *blank = strchr(text, ' ');
    if (!last || !blank)
        return;
    *last = *blank = '\0';
    add_library(cluster, text, blank + 1);
}

/* "driver 580.65, CUDA 13.0": names and versions. */
static void add_versions(struct mist_cluster *cluster, const char *versions)
{
    char text[256];
    char *at = text;

    snprintf(text, sizeof text, "%s", versions);
    while (*at) {
        char *end = at + strcspn(at, ","), *next = end + (*end != '\0');
        *end = '\0';
        at += strspn(at, " ");
        char *blank = strchr(at, ' ');
        if (blank) {
            *blank = '\0';
            add_library(cluster, at, blank + 1);
        }
        at = next;
    }
}

void mist_machine_describe(const struct mist_machine *machine, int32_t n_nodes,
                           int32_t n_node_ranks, struct mist_cluster *out)
{
    struct utsname system;
    char mpi[MIST_TRACE_NAME_MAX];
    time_t now = time(NULL);
    struct tm utc;

    snprintf(out->name, sizeof out->name, "%.*s", MIST_TRACE_NAME_MAX - 1,
             mist_machine_device_name(machine));
    out->backend = mist_machine_has_gpus(machine) ? MIST_TRACE_CUDA : MIST_TRACE_CPU;
    if (gmtime_r(&now, &utc))
        strftime(out->date, sizeof out->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    out->nodes = n_nodes;
    out->devices_per_node = n_node_ranks;
    out->device_memory_bytes = mist_machine_device_bytes(machine, n_node_ranks);
    out->host_memory_bytes_per_node = host_bytes(machine);
    if (mist_machine_has_gpus(machine)) {
        add_library(out, "processor", machine->processor);
        add_versions(out, machine->devices.versions);
    } else {
        add_kernels(out);
    }
    mist_comm_describe(mpi, sizeof mpi);
    if (mpi[0])
        add_library(out, "mpi", mpi);
    add_library(out, "compiler", __VERSION__);
    if (uname(&system) == 0)
        add_library(out, system.sysname, system.release);
    add_library(out, "mist", MIST_VERSION);
}

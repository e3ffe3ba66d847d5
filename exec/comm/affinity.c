/* Which processors a rank runs on. See affinity.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include "exec/comm/affinity.h"

#include "core/order.h"
#include "core/parse.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct mist_processors) == sizeof(cpu_set_t) &&
                   MIST_MAX_PROCESSORS == CPU_SETSIZE,
               "the one is the other, without the need for _GNU_SOURCE");

const char *const mist_affinity_words[] = {"auto", "none", NULL};

/* ------------------------------------------------------------------------------- sets */

static cpu_set_t *cpu_set(const struct mist_processors *set)
{
    return (cpu_set_t *)(uintptr_t)set;
}

int32_t mist_processors_count(const struct mist_processors *set)
{
    return CPU_COUNT(cpu_set(set));
}

char *mist_processors_text(const struct mist_processors *set, char *text, size_t size)
{
    text[0] = '\0';
    for (int32_t i = 0, end; i < MIST_MAX_PROCESSORS; i = end + 1) {
        end = i;
        if (!mist_processors_has(set, i))
            continue;
        while (end + 1 < MIST_MAX_PROCESSORS && mist_processors_has(set, end + 1))
            end++;
        mist_text_add(text, size, ",", end > i ? "%d-%d" : "%d", (int)i, (int)end);
    }
    return text;
}

/* --------------------------------------------------------------------------- decision */

struct place {
    int64_t core;
    int32_t processor;
};

MIST_COMPARATOR(compare_places, struct place, core, processor)

/* Share i of n: whole cores where there are enough; what does not divide stays free. */
static struct mist_processors share_of(const struct mist_processors *within,
                                       const int64_t *core_of, int32_t i, int32_t n)
{
    struct place places[MIST_MAX_PROCESSORS];
    struct mist_processors share = {{0}};
    int32_t n_places = 0, n_units = 0;

    for (int32_t k = 0; k < MIST_MAX_PROCESSORS; k++)
        if (mist_processors_has(within, k))
            places[n_places++] = (struct place){core_of[k], k};
    qsort(places, (size_t)n_places, sizeof *places, compare_places);
    for (int32_t k = 0; k < n_places; k++)
        n_units += k == 0 || places[k].core != places[k - 1].core;
    bool by_core = n_units >= n;
    int32_t size = (by_core ? n_units : n_places) / n, unit = -1;
    for (int32_t k = 0; k < n_places; k++) {
        unit += !by_core || k == 0 || places[k].core != places[k - 1].core;
        if (unit >= i * size && unit < (i + 1) * size)
            mist_processors_add(&share, places[k].processor);
    }
    return share;
}

/* Processors of a rank, each divided among the ranks that are bound to it. */
static int32_t count_own(const struct mist_affinity_rank *ranks, int32_t n,
                         int32_t i_rank)
{
    double sum = 0;

    for (int32_t k = 0; k < MIST_MAX_PROCESSORS; k++) {
        int32_t n_on = 0;
        if (!mist_processors_has(&ranks[i_rank].bound, k))
            continue;
        for (int32_t i = 0; i < n; i++)
            n_on += mist_processors_has(&ranks[i].bound, k);
        sum += 1.0 / n_on;
    }
    return sum < 1 ? 1 : (int32_t)(sum + 1e-6); /* 3 times 1/3 is 1 */
}

void mist_affinity_decide(const struct mist_affinity_rank *ranks, int32_t n,
                          int32_t i_rank, const int64_t *core_of,
                          struct mist_affinity *out)
{
    bool widens = true;

    for (int32_t i = 0; i < n && widens; i++) {
        int32_t n_bound = mist_processors_count(&ranks[i].bound);
        struct mist_processors share = share_of(&ranks[0].within, core_of, i, n);
        widens = CPU_EQUAL(cpu_set(&ranks[i].within), cpu_set(&ranks[0].within)) &&
                 n_bound < ranks[i].n_wanted && mist_processors_count(&share) > n_bound;
    }
    *out = (struct mist_affinity){.processors = ranks[i_rank].bound,
                                  .n_processors = count_own(ranks, n, i_rank),
                                  .is_widened = widens};
    if (widens) {
        out->processors = share_of(&ranks[0].within, core_of, i_rank, n);
        out->n_processors = mist_processors_count(&out->processors);
    }
    out->is_short = out->n_processors < ranks[i_rank].n_needed;
}

/* ----------------------------------------------------------------------------- system */

/* Where a process (0: the calling thread) may run; false: not known. */
static bool get_bound(pid_t pid, struct mist_processors *out)
{
    *out = (struct mist_processors){{0}};
    return sched_getaffinity(pid, sizeof *out, cpu_set(out)) == 0;
}

static bool set_bound(const struct mist_processors *processors)
{
    return sched_setaffinity(0, sizeof *processors, cpu_set(processors)) == 0;
}

/* The first line of a small file, without its end; "" if there is none. */
static void read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "r");

    line[0] = '\0';
    if (!file)
        return;
    if (!fgets(line, (int)size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

/* The nearest process above this one that starts ranks; 0: none in sight. */
static pid_t find_launcher(void)
{
    static const char *const names[] = {"mpirun", "mpiexec",    "orterun",
                                        "orted",  "prterun",    "prted",
                                        "prte",   "slurmstepd", "hydra_pmi_proxy"};
    char path[64], line[512];

    for (long pid = (long)getppid(), n = 0; pid > 1 && n < 16; n++) {
        snprintf(path, sizeof path, "/proc/%ld/comm", pid);
        read_line(path, line, sizeof line);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(line, names[i]) == 0)
                return (pid_t)pid;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        read_line(path, line, sizeof line);
        const char *behind_name = strrchr(line, ')'); /* pid (name) state parent */
        pid = behind_name && strlen(behind_name) > 4 ? atol(behind_name + 4) : 0;
    }
    return 0;
}

/* Whether something else than a launcher chose where this process runs. */
static bool is_bound_by_user(void)
{
    return omp_get_proc_bind() != omp_proc_bind_false ||
           (getenv("OMPI_MCA_orte_launch") && !getenv("OMPI_MCA_orte_bound_at_launch"));
}

/* Where the rank could run: where its launcher may, as far as the kernel lets it, which
 * is found out by trying. */
static struct mist_processors find_within(const struct mist_processors *bound)
{
    struct mist_processors wide, within = *bound;
    pid_t launcher = is_bound_by_user() ? 0 : find_launcher();

    if (launcher == 0 || !get_bound(launcher, &wide))
        return within;
    if (set_bound(&wide) && !get_bound(0, &within))
        within = *bound;
    (void)set_bound(bound); /* what it was before */
    return within;
}

/* Packages, then cores by their first thread; without sysfs every processor is a core. */
static void find_cores(const struct mist_processors *set, int64_t *core_of)
{
    for (int32_t i = 0; i < MIST_MAX_PROCESSORS; i++) {
        char path[128], line[64];
        core_of[i] = i;
        if (!mist_processors_has(set, i))
            continue;
        snprintf(path, sizeof path,
                 "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", (int)i);
        read_line(path, line, sizeof line);
        int64_t package = line[0] ? atol(line) : 0;
        snprintf(path, sizeof path,
                 "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", (int)i);
        read_line(path, line, sizeof line);
        core_of[i] = package * MIST_MAX_PROCESSORS + (line[0] ? atol(line) : i);
    }
}

/* -------------------------------------------------------------------------- agreement */

/* What a rank tells the others. */
struct told {
    struct mist_affinity_rank rank;
    int32_t node;
};

static void describe(const struct mist_affinity_rank *ranks, int32_t n, int32_t i_rank,
                     const struct mist_affinity *at, char *note, size_t note_bytes)
{
    const struct mist_affinity_rank *rank = &ranks[i_rank];
    long n_online = sysconf(_SC_NPROCESSORS_ONLN), n_needed = 0;
    char bound[128], now[128];

    mist_processors_text(&rank->bound, bound, sizeof bound);
    mist_processors_text(&at->processors, now, sizeof now);
    for (int32_t i = 0; i < n; i++)
        n_needed += ranks[i].n_needed;
    if (at->is_short && n_needed > n_online)
        snprintf(note, note_bytes,
                 "%ld busy threads on this node's %ld processor%s: start fewer", n_needed,
                 n_online, n_online == 1 ? "" : "s");
    else if (at->is_short)
        snprintf(note, note_bytes,
                 "%d busy threads of a rank on %s%s: start fewer, or let it have more "
                 "(mpirun --bind-to none or --map-by slot:PE=%d, taskset, cpusets)",
                 (int)rank->n_needed,
                 mist_processors_count(&at->processors) == 1 ? "processor "
                                                             : "processors ",
                 now, (int)rank->n_needed);
    else if (at->is_widened)
        snprintf(note, note_bytes,
                 "runs on processors %s, since %d threads work at once and the launcher "
                 "bound rank 0 to %s (--bind none keeps to that)",
                 now, (int)rank->n_wanted, bound);
}

/* Threads of a team look for each other for milliseconds before they sleep, unless GCC's
 * OpenMP sees, as the process begins, that they have too few processors: of other ranks it
 * does not know. */
static bool has_busy_waits(const struct mist_affinity_rank *rank,
                           const struct mist_affinity *at, int32_t n_threads)
{
    return at->is_short && n_threads > 1 &&
           n_threads <= mist_processors_count(&rank->bound) &&
           !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT");
}

/* This rank as it was started. */
static struct mist_affinity_rank look(int32_t n_threads, bool *keeps)
{
    /* Beside the compute team work three more streams; beside a GPU the dispatcher,
     * CUDA's thread and NCCL's, of which the last sleeps most of the time. */
    struct mist_affinity_rank rank = {.n_needed = n_threads > 0 ? n_threads : 2,
                                      .n_wanted = n_threads > 0 ? n_threads + 3 : 3};

    if (!get_bound(0, &rank.bound)) { /* more processors than a set has */
        mist_processors_add(&rank.bound, 0);
        rank.n_needed = rank.n_wanted = 1; /* which is enough */
        *keeps = true;
    }
    rank.within = *keeps ? rank.bound : find_within(&rank.bound);
    return rank;
}

enum mist_status mist_affinity_settle(struct mist_comm *comm, int32_t n_threads,
                                      bool keeps, struct mist_affinity *out, char *note,
                                      size_t note_bytes, struct mist_err *err)
{
    struct told mine = {.rank = look(n_threads, &keeps), .node = mist_comm_node(comm)};
    struct told *all = malloc((size_t)mist_comm_n_ranks(comm) * sizeof *all);
    struct mist_affinity_rank *ranks =
        malloc((size_t)mist_comm_n_node_ranks(comm) * sizeof *ranks);
    int64_t core_of[MIST_MAX_PROCESSORS];
    int32_t n = 0;
    enum mist_status status =
        all && ranks ? mist_comm_share_bytes(comm, &mine, sizeof mine, all, err)
                     : mist_err_memory(err, NULL);

    if (note_bytes > 0)
        note[0] = '\0';
    for (int32_t i = 0; i < mist_comm_n_ranks(comm) && status == MIST_OK; i++)
        if (all[i].node == mine.node)
            ranks[n++] = all[i].rank;
    if (status == MIST_OK) {
        int32_t i_rank = mist_comm_node_rank(comm); /* both count by rank */
        find_cores(&mine.rank.within, core_of);
        mist_affinity_decide(ranks, n, i_rank, core_of, out);
        if (out->is_widened && !set_bound(&out->processors))
            *out =
                (struct mist_affinity){.processors = mine.rank.bound, .n_processors = 1};
        if (!keeps)
            describe(ranks, n, i_rank, out, note, note_bytes);
        if (!keeps && has_busy_waits(&mine.rank, out, n_threads))
            mist_text_add(note, note_bytes, ", ",
                          "or give all ranks OMP_WAIT_POLICY=passive: else threads that "
                          "wait keep others from their work");
    }
    free(all);
    free(ranks);
    return status;
}

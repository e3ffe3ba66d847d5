/*
 * exec/comm: memory that ranks of a node share, and what becomes of a job where one rank
 * can't have it. Each call of the C library behind it fails on each rank in turn: all
 * ranks then do without, and sums and copies have the same bits through messages.
 *
 * The linker gives the calls of Mist, not those of MPI, to the functions here (--wrap in
 * the Makefile). Which of them fails, and where, is in the mode of a job: "mmap_own:1".
 */
#include "tests/unit/test.h"

#include "exec/comm/comm_internal.h"
#include "tests/unit/comm_job.h"

#include <errno.h>
#include <sys/types.h>

/* --------------------------------------------------------------------------- failures */

static const char *failing = ""; /* the call, on this rank; "": none */
static int own_fd = -1, peer_fd = -1, n_failed;

static bool fails(const char *call, int code)
{
    if (strcmp(failing, call) != 0)
        return false;
    n_failed++;
    errno = code;
    return true;
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    if (fails("memfd_create", ENOSYS))
        return -1;
    return own_fd = __real_memfd_create(name, flags);
}

int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes)
{
    return fd == own_fd && fails("ftruncate", ENOMEM) ? -1 : __real_ftruncate(fd, bytes);
}

/* Files of other processes alone; none is made by those who call this. A stranger: another
 * process has the number, as where ranks don't see each other's processes. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags);
int __wrap_open(const char *path, int flags)
{
    bool is_peer = strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/");
    char own[64];

    snprintf(own, sizeof own, "/proc/self/fd/%d", own_fd);
    if (is_peer && fails("open", EACCES))
        return -1;
    if (is_peer && fails("stranger", 0))
        path = own;
    int fd = __real_open(path, flags, 0600);
    if (is_peer)
        peer_fd = fd;
    return fd;
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t first);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t first);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t first)
{
    const char *call = fd < 0          ? "mmap"
                       : fd == own_fd  ? "mmap_own"
                       : fd == peer_fd ? "mmap_peer"
                                       : "mmap";

    return fails(call, ENOMEM) ? (void *)-1
                               : __real_mmap(at, bytes, protection, flags, fd, first);
}

/* ------------------------------------------------------------------------ rank of a job */

/* Sums in the order of ranks, by adding them. */
static void check_sums(struct mist_comm_group *group, int64_t shard)
{
    int64_t n = shard * n_ranks;
    float *mine = malloc((size_t)n * sizeof *mine),
          *sum = malloc((size_t)n * sizeof *sum);
    float *work = malloc((size_t)n * sizeof *work);

    CHECK(mine && sum && work);
    for (int64_t i = 0; i < n; i++) {
        mine[i] = value_of(rank, i);
        sum[i] = value_of(0, i);
        for (int32_t r = 1; r < n_ranks; r++)
            sum[i] += value_of(r, i);
    }
    memcpy(work, mine, (size_t)n * sizeof *work);
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_FP32, work, n, &err) == MIST_OK);
    CHECK(is_same(work, sum, n));
    CHECK(mist_comm_reduce_scatter(group, MIST_DTYPE_FP32, mine, mine + rank * shard, n,
                                   &err) == MIST_OK);
    CHECK(is_same(mine + rank * shard, sum + rank * shard, shard));
    memset(work, 0, (size_t)n * sizeof *work);
    CHECK(mist_comm_all_gather(group, mine + rank * shard, work, shard * 4, &err) ==
          MIST_OK);
    CHECK(is_same(work, sum, n));
    free(mine);
    free(sum);
    free(work);
}

/* mode: "call:rank", or "nothing:0". */
static int run_rank(const char *mode)
{
    static const int64_t shards[] = {1, 17, 2048, 65536, 200000};
    const char *number = getenv("OMPI_COMM_WORLD_RANK"), *at = strchr(mode, ':');
    char call[32];
    int32_t all[] = {0, 1, 2};
    struct mist_comm_group *group;

    snprintf(call, sizeof call, "%.*s", (int)(at - mode), mode);
    bool has_window = strcmp(call, "nothing") == 0;
    if (number && atoi(number) == atoi(at + 1))
        failing = call;
    join_job();
    CHECK(mist_comm_n_node_ranks(comm) == n_ranks);
    CHECK((n_failed > 0) == (!has_window && rank == atoi(at + 1)));
    CHECK((comm->window != NULL) == has_window);
    CHECK(mist_comm_group(comm, all, n_ranks, 0, &group, &err) == MIST_OK);
    CHECK(mist_comm_reserve(comm, 4 * 200000 * n_ranks, n_ranks, &err) == MIST_OK);
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        check_sums(group, shards[i]);
    CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
    mist_comm_close(comm);
    return 0;
}

/* -------------------------------------------------------------------------- the tests */

TEST(test_without_failures)
{
    need_mpirun();
    run_good_job(2, "", "nothing:0");
    run_good_job(3, "", "nothing:0");
}

TEST(test_every_call_on_every_rank)
{
    static const char *const calls[] = {"memfd_create", "ftruncate", "mmap_own",
                                        "open",         "stranger",  "mmap_peer"};
    char mode[48];

    need_mpirun();
    for (size_t i = 0; i < 2 * sizeof calls / sizeof *calls; i++) {
        snprintf(mode, sizeof mode, "%s:%d", calls[i / 2], (int)i % 2);
        run_good_job(2, "", mode);
    }
    run_good_job(3, "", "mmap_peer:1"); /* two ranks have each other's, and do without */
}

JOB_MAIN

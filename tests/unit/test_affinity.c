/*
 * exec/affinity: who runs where, on made-up nodes; and that settling keeps to what it
 * says. Shares are checked against what shares are: disjoint, equal, of whole cores,
 * within what is allowed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "tests/unit/test.h"

#include "exec/comm/affinity.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

enum { MAX_RANKS = 64 };

/* A node of made-up ranks. */
struct node {
    int64_t core_of[MIST_MAX_PROCESSORS];
    struct mist_affinity_rank ranks[MAX_RANKS];
    int32_t n;
    struct mist_affinity got[MAX_RANKS];
};

static struct mist_processors range(int32_t first, int32_t n)
{
    struct mist_processors set = {{0}};

    for (int32_t i = first; i < first + n; i++)
        mist_processors_add(&set, i);
    return set;
}

/* n ranks of n_threads on a machine where every processor is a core. */
static struct node node_of(int32_t n, int32_t n_threads)
{
    struct node node = {.n = n};

    for (int32_t i = 0; i < MIST_MAX_PROCESSORS; i++)
        node.core_of[i] = i;
    for (int32_t i = 0; i < n; i++) {
        node.ranks[i].n_needed = n_threads;
        node.ranks[i].n_wanted = n_threads + 3;
    }
    return node;
}

static void bind(struct node *node, int32_t i, struct mist_processors bound,
                 struct mist_processors within)
{
    node->ranks[i].bound = bound;
    node->ranks[i].within = within;
}

static void decide(struct node *node)
{
    for (int32_t i = 0; i < node->n; i++)
        mist_affinity_decide(node->ranks, node->n, i, node->core_of, &node->got[i]);
}

static void assert_set(const struct mist_affinity *got, const char *expected)
{
    char text[256];

    assert_string_equal(mist_processors_text(&got->processors, text, sizeof text),
                        expected);
}

/* Everybody stays where he is. */
static void assert_left(const struct node *node, int32_t n_processors, bool is_short)
{
    for (int32_t i = 0; i < node->n; i++) {
        assert_false(node->got[i].is_widened);
        assert_memory_equal(&node->got[i].processors, &node->ranks[i].bound,
                            sizeof node->ranks[i].bound);
        assert_int_equal(node->got[i].n_processors, n_processors);
        assert_int_equal(node->got[i].is_short, is_short);
    }
}

/* Everybody has an equal share for himself. */
static void assert_shared(const struct node *node, int32_t n_processors)
{
    struct mist_processors taken = {{0}};

    for (int32_t i = 0; i < node->n; i++) {
        const struct mist_affinity *got = &node->got[i];
        assert_true(got->is_widened);
        assert_int_equal(got->n_processors, n_processors);
        assert_int_equal(mist_processors_count(&got->processors), n_processors);
        for (int32_t k = 0; k < MIST_MAX_PROCESSORS; k++) {
            if (!mist_processors_has(&got->processors, k))
                continue;
            assert_true(mist_processors_has(&node->ranks[i].within, k));
            assert_false(mist_processors_has(&taken, k));
            mist_processors_add(&taken, k);
        }
    }
}

/* mpirun -n 2: a core each. */
TEST(test_bound_to_cores)
{
    struct node node = node_of(2, 2);

    for (int32_t i = 0; i < 2; i++)
        bind(&node, i, range(i, 1), range(0, 64));
    decide(&node);
    assert_shared(&node, 32);
    assert_set(&node.got[0], "0-31");
    assert_set(&node.got[1], "32-63");

    node = node_of(8, 1); /* eight of them, bound by --bind-to core */
    for (int32_t i = 0; i < 8; i++)
        bind(&node, i, range(i, 1), range(0, 64));
    decide(&node);
    assert_shared(&node, 8);
    assert_set(&node.got[7], "56-63");

    node = node_of(3, 2); /* what does not divide stays free */
    for (int32_t i = 0; i < 3; i++)
        bind(&node, i, range(i, 1), range(0, 8));
    decide(&node);
    assert_shared(&node, 2);
    assert_set(&node.got[2], "4-5");
}

/* Two processors for two ranks, one for one or two: there is nothing to give. */
TEST(test_small_machines)
{
    struct node node = node_of(2, 1);

    for (int32_t i = 0; i < 2; i++)
        bind(&node, i, range(i, 1), range(0, 2));
    decide(&node);
    assert_left(&node, 1, false);
    for (int32_t i = 0; i < 2; i++)
        node.ranks[i].n_needed = 2;
    decide(&node);
    assert_left(&node, 1, true);

    node = node_of(1, 2); /* mpirun -n 1 */
    bind(&node, 0, range(1, 1), range(0, 2));
    decide(&node);
    assert_shared(&node, 2);
    assert_false(node.got[0].is_short);
    node.ranks[0].n_needed = 3;
    decide(&node);
    assert_shared(&node, 2);
    assert_true(node.got[0].is_short);

    node = node_of(1, 1);
    bind(&node, 0, range(0, 1), range(0, 1));
    decide(&node);
    assert_left(&node, 1, false);
    node = node_of(2, 1); /* --oversubscribe */
    for (int32_t i = 0; i < 2; i++)
        bind(&node, i, range(0, 1), range(0, 1));
    decide(&node);
    assert_left(&node, 1, false);
}

/* The launcher itself is kept within processors 8-15 and 24 (a cpuset, taskset). */
TEST(test_subset)
{
    struct node node = node_of(2, 2);
    struct mist_processors within = range(8, 8);

    mist_processors_add(&within, 24);
    for (int32_t i = 0; i < 2; i++)
        bind(&node, i, range(8 + i, 1), within);
    decide(&node);
    assert_shared(&node, 4);
    assert_set(&node.got[0], "8-11");
    assert_set(&node.got[1], "12-15");
    for (int32_t i = 0; i < 2; i++) /* nobody but the launcher's superior bound them */
        bind(&node, i, range(8 + i, 1), range(8 + i, 1));
    decide(&node);
    assert_left(&node, 1, true);
}

/* Two jobs' worth of ranks on the same core; and sets that overlap in part. */
TEST(test_overlap)
{
    struct node node = node_of(4, 1);

    for (int32_t i = 0; i < 4; i++)
        bind(&node, i, range(i / 2, 1), range(0, 16));
    decide(&node);
    assert_shared(&node, 4);

    node = node_of(2, 2); /* 0-2 and 2-4, which is all they may: 2 1/2 each */
    bind(&node, 0, range(0, 3), range(0, 3));
    bind(&node, 1, range(2, 3), range(2, 3));
    decide(&node);
    assert_left(&node, 2, false);

    node = node_of(4, 4); /* --bind-to none, or to a package */
    for (int32_t i = 0; i < 4; i++)
        bind(&node, i, range(0, 16), range(0, 16));
    decide(&node);
    assert_left(&node, 4, false);
    for (int32_t i = 0; i < 4; i++)
        bind(&node, i, range(i / 2 * 16, 16), range(0, 32));
    decide(&node);
    assert_left(&node, 8, false);
}

/* srun --cpus-per-task=4: disjoint sets, which are what there is for each. */
TEST(test_disjoint_allotments)
{
    struct node node = node_of(4, 4);

    for (int32_t i = 0; i < 4; i++)
        bind(&node, i, range(4 * i, 4), range(0, 16));
    decide(&node);
    assert_left(&node, 4, false);
    for (int32_t i = 0; i < 4; i++)
        node.ranks[i].n_needed = 6;
    decide(&node);
    assert_left(&node, 4, true);
    for (int32_t i = 0; i < 4;
         i++) /* the whole node is the job's: it may be shared out */
        node.ranks[i].within = range(0, 64);
    decide(&node);
    assert_shared(&node, 16);
}

/* Where one rank has enough, or may run elsewhere than the others, nothing is changed. */
TEST(test_disagreement)
{
    struct node node = node_of(2, 1);

    bind(&node, 0, range(0, 1), range(0, 16));
    bind(&node, 1, range(8, 8), range(0, 16));
    decide(&node);
    assert_false(node.got[0].is_widened || node.got[1].is_widened);
    bind(&node, 1, range(8, 1), range(8, 8));
    decide(&node);
    assert_left(&node, 1, false);
}

/* Two packages of 4 cores of two threads: processors p and p + 8 are one core, and even
 * ones are on the first package. */
TEST(test_threads_and_packages)
{
    struct node node = node_of(4, 2);

    for (int32_t i = 0; i < 16; i++)
        node.core_of[i] = i % 2 * 1000 + i % 8;
    for (int32_t i = 0; i < 4; i++) {
        bind(&node, i, range(i, 1), range(0, 16));
        mist_processors_add(&node.ranks[i].bound, i + 8);
    }
    decide(&node);
    assert_shared(&node, 4);
    assert_set(&node.got[0], "0,2,8,10");
    assert_set(&node.got[1], "4,6,12,14");
    assert_set(&node.got[2], "1,3,9,11");
    assert_set(&node.got[3], "5,7,13,15");
}

TEST(test_text)
{
    struct mist_processors set = range(0, 0);
    char text[64];

    assert_string_equal(mist_processors_text(&set, text, sizeof text), "");
    set = range(62, 4);
    mist_processors_add(&set, 0);
    mist_processors_add(&set, 1023);
    assert_string_equal(mist_processors_text(&set, text, sizeof text), "0,62-65,1023");
    assert_string_equal(mist_processors_text(&set, text, 6), "0,62-");
    assert_int_equal(mist_processors_count(&set), 6);
}

/* Without a launcher everything stays as it is, and what is short is said. */
TEST(test_settle_alone)
{
    cpu_set_t before, after;
    struct mist_comm *comm = NULL;
    struct mist_affinity affinity;
    struct mist_err err = {0};
    char note[512];

    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int32_t n = CPU_COUNT(&before);
    assert_int_equal(mist_comm_open(&comm, &err), MIST_OK);
    for (int k = 0; k < 3; k++) {
        bool is_short = k > 0;
        assert_int_equal(mist_affinity_settle(comm, is_short ? n + 1 : n, k == 2,
                                              &affinity, note, sizeof note, &err),
                         MIST_OK);
        assert_int_equal(affinity.n_processors, n);
        assert_int_equal(mist_processors_count(&affinity.processors), n);
        assert_false(affinity.is_widened);
        assert_int_equal(affinity.is_short, is_short);
        assert_int_equal(note[0] != '\0', k == 1);
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    mist_comm_close(comm);
}

/* ------------------------------------------------------------------- under a launcher */

static void *look(void *arg)
{
    return (void *)(intptr_t)sched_getaffinity(0, sizeof(cpu_set_t), arg);
}

/* A rank: the thread that settled, and those made later, run where that says; on shares
 * of their own where ranks were widened. The exit code. */
static int run_rank(const char *n_threads)
{
    struct mist_affinity mine, *all = NULL;
    struct mist_comm *comm;
    struct mist_err err;
    cpu_set_t here, there;
    pthread_t thread;
    char note[512];
    int64_t sizes[MAX_RANKS];
    char *bytes = NULL;
    int n_wrong = 0;

    if (mist_comm_open(&comm, &err) != MIST_OK ||
        mist_affinity_settle(comm, n_threads[0] - '0', false, &mine, note, sizeof note,
                             &err) != MIST_OK ||
        sched_getaffinity(0, sizeof here, &here) != 0 ||
        pthread_create(&thread, NULL, look, &there) != 0 ||
        pthread_join(thread, NULL) != 0 ||
        mist_comm_gather_bytes(comm, &mine, sizeof mine, &bytes, sizes, &err) != MIST_OK)
        return 1;
    for (int32_t k = 0; k < MIST_MAX_PROCESSORS; k++)
        n_wrong +=
            CPU_ISSET((size_t)k, &here) != mist_processors_has(&mine.processors, k);
    n_wrong += !CPU_EQUAL(&here, &there);
    all = (struct mist_affinity *)(void *)bytes;
    for (int32_t i = 1; all && i < mist_comm_n_ranks(comm); i++) {
        n_wrong += all[i].is_widened != all[0].is_widened;
        for (int32_t k = 0; k < MIST_MAX_PROCESSORS && all[0].is_widened; k++)
            n_wrong += mist_processors_has(&all[0].processors, k) &&
                       mist_processors_has(&all[i].processors, k);
    }
    if (note[0])
        printf("# %s\n", note);
    free(bytes);
    mist_comm_close(comm);
    return n_wrong == 0 ? 0 : 3;
}

TEST(test_launched)
{
    char self[512] = "", command[1024];
    cpu_set_t here;

    assert_int_equal(sched_getaffinity(0, sizeof here, &here), 0);
    if (system("command -v mpirun >/dev/null 2>&1") != 0 || CPU_COUNT(&here) < 2) {
        print_message("# mpirun or a second processor is missing\n");
        skip();
    }
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int n = 1; n <= 2; n++) /* as it binds by default */
        for (int n_threads = 0; n_threads <= 2; n_threads++) {
            snprintf(command, sizeof command,
                     "mpirun --allow-run-as-root -n %d '%s' %d >&2", n, self, n_threads);
            assert_int_equal(system(command), 0);
        }
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_rank(argv[1]);

    return run_listed_tests(NULL, NULL);
}

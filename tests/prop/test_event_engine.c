/*
 * Property: the event engine equals a naive simulator that steps from event to event and
 * looks at everything each time, on random graphs with collectives, links, interference
 * and zero-length tasks. MIST_SEED chooses the graphs.
 */
#include "tests/unit/test.h"

#include "sim/event_engine.h"

#include <math.h>

#define N_GRAPHS  2000
#define MAX_TASKS 200
#define MAX_DEPS  (4 * MAX_TASKS)
#define MAX_DEVS  6
#define MAX_LINKS 3

/* A graph with the storage of all its arrays. */
struct random_graph {
    struct mist_event_graph g;
    int32_t device[MAX_TASKS], dep_offset[MAX_TASKS + 1], dep[MAX_DEPS],
        rendezvous[MAX_TASKS];
    int32_t rendezvous_link[MAX_TASKS], device_interference[MAX_DEVS];
    uint8_t channel[MAX_TASKS];
    double work_s[MAX_TASKS], share[MAX_LINKS][4];
    struct mist_event_link link[MAX_LINKS];
    struct mist_interference interference[2];
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(uint64_t *state, int n)
{
    return (int)(next_random(state) % (uint64_t)n);
}

static double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static void make_tables(struct random_graph *r, uint64_t *rng)
{
    for (int k = 0; k < 2; k++) {
        mist_interference_init(&r->interference[k]);
        r->interference[k].shares_processors = below(rng, 2);
        for (int set = 1; set < MIST_N_STREAM_SETS; set++)
            for (int c = 0; c < MIST_N_CHANNELS; c++)
                if ((set >> c & 1) && (set & (set - 1)))
                    r->interference[k].slowdown[set][c] =
                        below(rng, 3) ? 1.0 + 2.0 * uniform(rng) : 1.5;
    }
    for (int i = 0; i < MAX_LINKS; i++) {
        r->share[i][1] = 1.0;
        r->share[i][2] = 0.4 + 0.6 * uniform(rng);
        r->share[i][3] = 0.3 + 0.1 * uniform(rng);
        r->link[i] = (struct mist_event_link){r->share[i], below(rng, 4)};
    }
    for (int i = 0; i < MAX_DEVS; i++)
        r->device_interference[i] = below(rng, 3) - 1;
}

/* Dependencies and streams go forward in index and the members of a rendezvous are
 * neighbours on different streams that do not depend on each other, so that nothing
 * deadlocks. */
static void make_graph(struct random_graph *r, uint64_t *rng)
{
    int n = 1 + below(rng, MAX_TASKS), n_devices = 1 + below(rng, MAX_DEVS), n_deps = 0;
    int n_rendezvous = 0, group_begin = 0, group_left = 0;
    bool whole = below(rng, 2); /* whole seconds: many ties */

    make_tables(r, rng);
    r->dep_offset[0] = 0;
    for (int i = 0; i < n; i++) {
        if (group_left == 0 && below(rng, 5) == 0) {
            group_begin = i;
            group_left = 1 + below(rng, 4);
            r->rendezvous_link[n_rendezvous++] = below(rng, MAX_LINKS + 1) - 1;
        }
        bool grouped = group_left > 0, clash = false;
        r->device[i] = below(rng, n_devices);
        r->channel[i] =
            (uint8_t)(below(rng, 3) ? below(rng, 2) : below(rng, MIST_N_STREAMS));
        for (int k = group_begin; grouped && k < i; k++)
            clash |= r->device[k] == r->device[i] && r->channel[k] == r->channel[i];
        if (clash) { /* two members on one stream would wait for each other */
            grouped = false;
            group_left = 0;
        }
        group_left -= grouped;
        r->rendezvous[i] = grouped ? n_rendezvous - 1 : -1;
        r->work_s[i] = below(rng, 6) == 0 ? 0.0
                       : whole            ? 1.0 + below(rng, 3)
                                          : uniform(rng);
        int last = grouped ? group_begin : i;
        for (int k = below(rng, 4); k > 0 && last > 0 && n_deps < MAX_DEPS; k--)
            r->dep[n_deps++] = last - 1 - below(rng, last < 20 ? last : 20);
        r->dep_offset[i + 1] = n_deps;
    }
    r->g = (struct mist_event_graph){.n_tasks = n,
                                     .n_devices = n_devices,
                                     .n_rendezvous = n_rendezvous,
                                     .n_links = MAX_LINKS,
                                     .n_interference = 2,
                                     .device = r->device,
                                     .channel = r->channel,
                                     .work_s = r->work_s,
                                     .dep_offset = r->dep_offset,
                                     .dep = r->dep,
                                     .rendezvous = r->rendezvous,
                                     .rendezvous_link = r->rendezvous_link,
                                     .link = r->link,
                                     .interference = r->interference,
                                     .device_interference = r->device_interference};
}

/* -------------------------------------------------------------------- naive simulator */

enum phase { WAITING, READY, RUNNING, ENDED };

struct naive {
    enum phase phase[MAX_TASKS];
    double left_s[MAX_TASKS], ready_s[MAX_TASKS], start_s[MAX_TASKS], end_s[MAX_TASKS];
};

static bool together(const struct mist_event_graph *g, int a, int b)
{
    return a == b || (g->rendezvous[a] >= 0 && g->rendezvous[a] == g->rendezvous[b]);
}

static bool may_be_ready(const struct mist_event_graph *g, const struct naive *s, int i)
{
    for (int k = g->dep_offset[i]; k < g->dep_offset[i + 1]; k++)
        if (s->phase[g->dep[k]] != ENDED)
            return false;
    for (int k = 0; k < i; k++)
        if (g->device[k] == g->device[i] && g->channel[k] == g->channel[i] &&
            s->phase[k] != ENDED)
            return false;
    return true;
}

/* Makes ready, starts and (when there is no work) ends one thing;
 * false when nothing can happen. */
static bool advance_phase(const struct mist_event_graph *g, struct naive *s, double now_s)
{
    for (int i = 0; i < g->n_tasks; i++) {
        if (s->phase[i] == WAITING && may_be_ready(g, s, i)) {
            s->phase[i] = READY;
            s->ready_s[i] = now_s;
            return true;
        }
        if (s->phase[i] != READY)
            continue;
        bool all = true;
        double work_s = 0.0;
        for (int k = 0; k < g->n_tasks; k++)
            if (together(g, i, k)) {
                all = all && s->phase[k] == READY;
                work_s = fmax(work_s, g->work_s[k]);
            }
        for (int k = 0; all && k < g->n_tasks; k++)
            if (together(g, i, k)) {
                s->phase[k] = work_s > 0.0 ? RUNNING : ENDED;
                s->left_s[k] = work_s;
                s->start_s[k] = s->end_s[k] = now_s;
            }
        if (all)
            return true;
    }
    return false;
}

static double own_rate(const struct mist_event_graph *g, const struct naive *s, int i)
{
    int set = 0, class = g->device_interference[g->device[i]];

    for (int k = 0; k < g->n_tasks; k++)
        if (s->phase[k] == RUNNING && g->device[k] == g->device[i])
            set |= 1 << g->channel[k];
    if (class < 0)
        return 1.0;
    const struct mist_interference *factors = &g->interference[class];
    int channel = g->channel[i];
    bool is_shared = factors->shares_processors && (set & 1) && (set >> 4 & 1) &&
                     (channel == MIST_STREAM_COMPUTE || channel == MIST_STREAM_HOST);
    double alone = channel == 4 ? 1 : 1.0 / factors->slowdown[set % 16][channel];
    return is_shared ? alone / 2 : alone;
}

static double rate(const struct mist_event_graph *g, const struct naive *s, int i)
{
    double slowest = 1.0;
    bool seen[MAX_TASKS] = {false};
    int link = g->rendezvous[i] < 0 ? -1 : g->rendezvous_link[g->rendezvous[i]],
        users = 0;

    for (int k = 0; k < g->n_tasks; k++)
        if (together(g, i, k))
            slowest = fmin(slowest, own_rate(g, s, k));
    for (int k = 0; link >= 0 && k < g->n_tasks; k++) {
        int other = g->rendezvous[k];
        if (s->phase[k] == RUNNING && other >= 0 && g->rendezvous_link[other] == link) {
            users += !seen[other];
            seen[other] = true;
        }
    }
    if (users < 2)
        return slowest;
    int n = g->link[link].n_share;
    double total = n == 0 ? 1.0 : n * (n == 1 ? 1.0 : g->link[link].share_frac[n]);
    return slowest * (users <= n ? g->link[link].share_frac[users] : total / users);
}

static void simulate(const struct mist_event_graph *g, struct naive *s)
{
    double now_s = 0.0;

    memset(s, 0, sizeof *s);
    for (;;) {
        double rates[MAX_TASKS], step_s = INFINITY;
        while (advance_phase(g, s, now_s))
            ;
        for (int i = 0; i < g->n_tasks; i++)
            if (s->phase[i] == RUNNING) {
                rates[i] = rate(g, s, i);
                step_s = fmin(step_s, s->left_s[i] / rates[i]);
            }
        if (step_s == INFINITY)
            return;
        now_s += step_s;
        for (int i = 0; i < g->n_tasks; i++)
            if (s->phase[i] == RUNNING) {
                s->left_s[i] -= step_s * rates[i];
                if (s->left_s[i] < 1e-12) {
                    s->phase[i] = ENDED;
                    s->end_s[i] = now_s;
                }
            }
    }
}

static double worst_difference(const double *a, const double *b, int n)
{
    double worst = 0.0;

    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs(a[i] - b[i]) / fmax(1.0, fabs(b[i])));
    return worst;
}

static void test_equals_naive_simulator(void **state)
{
    uint64_t seed = test_seed(20260101), rng = seed;
    static struct random_graph r;
    static struct naive naive;
    double worst = 0.0;
    int64_t n_rate_changes = 0;

    for (int i = 0; i < N_GRAPHS; i++) {
        struct mist_arena arena;
        struct mist_event_engine *engine;
        struct mist_event_result result;
        struct mist_err err = {0};
        make_graph(&r, &rng);
        mist_arena_init(&arena);
        assert_int_equal(mist_event_engine_prepare(&engine, &r.g, &arena, &err), MIST_OK);
        if (mist_event_engine_run(engine, &result, &err) != MIST_OK)
            fail_msg("seed %llu graph %d: %s", (unsigned long long)seed, i, err.message);
        simulate(&r.g, &naive);
        double off =
            fmax(worst_difference(result.end_s, naive.end_s, r.g.n_tasks),
                 fmax(worst_difference(result.start_s, naive.start_s, r.g.n_tasks),
                      worst_difference(result.ready_s, naive.ready_s, r.g.n_tasks)));
        if (!(off <= 1e-9))
            fail_msg("seed %llu graph %d: differs by %g", (unsigned long long)seed, i,
                     off);
        worst = fmax(worst, off);
        n_rate_changes += result.n_rate_changes;
        mist_arena_fini(&arena);
    }
    print_message("seed %llu: %d graphs, %lld rate changes, largest difference %.2g\n",
                  (unsigned long long)seed, N_GRAPHS, (long long)n_rate_changes, worst);
    assert_true(n_rate_changes > N_GRAPHS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_naive_simulator)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Properties of the event engine, on random programs with groups, interference,
 * zero-length tasks and several iterations. MIST_SEED chooses the graphs.
 *   equal     to a naive simulator that knows no programs, lanes and iterations but only
 *             the tasks of all devices, steps from event to event and looks at everything
 *             each time
 *   bounded   from below by the longest path and by the busiest stream; where nothing
 *             slows anything down the longest path it is
 *   scaled    all durations times a factor: all times times the factor
 *   renamed   devices and groups in another order: the same times
 *   monotone  faster messages, or faster computation, are never slower where nothing slows
 *             anything down. (Otherwise they may be: what is over sooner on one device
 *             begins sooner on another, and disturbs there.)
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/engine/event_engine.h"

#include <math.h>

#define N_GRAPHS     2000
#define N_MEANING    1000 /* graphs of the other properties */
#define MAX_PROGRAMS 3
#define MAX_DEVS     6
#define MAX_OWN      14 /* tasks of a program */
#define MAX_LANES    3
#define MAX_TASKS    (3 * MAX_DEVS * MAX_OWN) /* of all devices in all iterations */
#define MAX_DEPS     (MAX_TASKS * 8)

/* A program with the storage of all its arrays. */
struct random_program {
    uint8_t channel[MAX_OWN], lane_channel[MAX_LANES];
    int32_t dep_offset[MAX_OWN + 1], dep[4 * MAX_OWN], lane[MAX_OWN];
    int n_tasks, n_deps;
};

struct random_graph {
    struct mist_event_graph g;
    struct random_program own[MAX_PROGRAMS];
    struct mist_event_program program[MAX_PROGRAMS];
    struct mist_event_device device[MAX_DEVS];
    double work_s[MAX_DEVS][MAX_OWN];
    int32_t group[MAX_DEVS][MAX_LANES];
    struct mist_interference interference[2];
};

/* The same as one list of tasks. */
struct flat_graph {
    int n_tasks, n_deps;
    int device[MAX_TASKS], channel[MAX_TASKS], rendezvous[MAX_TASKS];
    int dep_offset[MAX_TASKS + 1], dep[MAX_DEPS];
    double work_s[MAX_TASKS];
    const struct mist_event_device *devices;
};

static int below(struct mist_random *rng, int n)
{
    return (int)mist_random_below(rng, n);
}

static void make_tables(struct random_graph *r, struct mist_random *rng)
{
    for (int k = 0; k < 2; k++) {
        mist_interference_init(&r->interference[k]);
        r->interference[k].shares_processors = below(rng, 2);
        r->interference[k].takes_turns = below(rng, 2);
        r->interference[k].blocks_transfers = below(rng, 4) == 0;
        for (int set = 1; set < MIST_N_STREAM_SETS; set++)
            for (int c = 0; c < MIST_N_CHANNELS; c++)
                if ((set >> c & 1) && (set & (set - 1)))
                    r->interference[k].slowdown[set][c] =
                        below(rng, 3) ? 1.0 + 2.0 * mist_random_uniform(rng) : 1.5;
    }
}

/* Appends a task whose dependencies come before it; lane -1: it meets nobody. */
static void add_task(struct random_program *p, int lane, struct mist_random *rng)
{
    int i = p->n_tasks++;

    p->lane[i] = lane;
    p->channel[i] =
        lane >= 0 ? p->lane_channel[lane]
                  : (uint8_t)(below(rng, 3) ? below(rng, 2) : below(rng, MIST_N_STREAMS));
    for (int k = below(rng, 4); k > 0 && i > 0; k--)
        p->dep[p->n_deps++] = below(rng, i);
    p->dep_offset[i + 1] = p->n_deps;
}

/* All programs get their meetings in one order, so that nothing deadlocks. */
static void make_programs(struct random_graph *r, struct mist_random *rng)
{
    int n = r->g.n_programs;

    for (int i = 0; i < n; i++) {
        r->own[i] = (struct random_program){0};
        for (int k = 0; k < MAX_LANES; k++)
            r->own[i].lane_channel[k] = (uint8_t)below(rng, MIST_N_STREAMS);
    }
    for (int step = below(rng, MAX_OWN * n); step > 0; step--) {
        bool has_room = true;
        for (int i = 0; i < n; i++)
            has_room = has_room && r->own[i].n_tasks < MAX_OWN;
        if (!has_room)
            break;
        if (below(rng, 4)) {
            add_task(&r->own[below(rng, n)], -1, rng);
            continue;
        }
        int lane = below(rng, MAX_LANES);
        for (int i = 0; i < n; i++)
            add_task(&r->own[i], lane, rng);
    }
    for (int i = 0; i < n; i++)
        r->program[i] = (struct mist_event_program){
            .n_tasks = r->own[i].n_tasks,
            .n_lanes = MAX_LANES,
            .channel = r->own[i].channel,
            .dep_offset = r->own[i].dep_offset,
            .dep = r->own[i].dep,
            .lane = r->own[i].lane,
        };
}

/* Of all who meet, and so that no two draws are alike. */
static double factor(const void *context, int32_t device, int32_t task, int32_t iteration)
{
    return 0.5 + 0.01 * (device * 7 + task * 3 + iteration) * *(const double *)context;
}

static void make_graph(struct random_graph *r, struct mist_random *rng)
{
    static const double tenth = 0.1;
    bool whole = below(rng, 2);       /* whole seconds: many ties */
    int n_groups = 1 + below(rng, 3); /* of each lane */

    make_tables(r, rng);
    r->g = (struct mist_event_graph){
        .n_programs = 1 + below(rng, MAX_PROGRAMS),
        .n_devices = 1 + below(rng, MAX_DEVS),
        .n_groups = MAX_LANES * n_groups,
        .n_iterations = 1 + below(rng, 3),
        .program = r->program,
        .device = r->device,
        .factor = below(rng, 3) ? NULL : factor,
        .context = &tenth,
    };
    make_programs(r, rng);
    for (int d = 0; d < r->g.n_devices; d++) {
        int class = below(rng, 3) - 1;
        r->device[d] = (struct mist_event_device){
            .program = below(rng, r->g.n_programs),
            .work_s = d > 0 && below(rng, 2) ? r->device[d - 1].work_s : r->work_s[d],
            .group = r->group[d],
            .interference = class < 0 ? NULL : &r->interference[class],
            .is_recorded = true,
        };
        for (int k = 0; k < MAX_LANES; k++)
            r->group[d][k] = k * n_groups + below(rng, n_groups);
        for (int i = 0; i < MAX_OWN; i++)
            r->work_s[d][i] = below(rng, 6) == 0 ? 0.0
                              : whole            ? 1.0 + below(rng, 3)
                                                 : mist_random_uniform(rng);
    }
}

/* Task i of device d in an iteration stands at first + i. The first tasks of an iteration
 * wait for all of the one before. */
static void flatten_device(const struct random_graph *r, int d, int iteration, int before,
                           struct flat_graph *out)
{
    const struct mist_event_program *p = &r->program[r->device[d].program];
    int first = out->n_tasks, n_met[MAX_LANES] = {0};

    for (int i = 0; i < p->n_tasks; i++) {
        int at = out->n_tasks++, lane = p->lane[i];
        out->device[at] = d;
        out->channel[at] = p->channel[i];
        out->work_s[at] = r->device[d].work_s[i];
        if (r->g.factor)
            out->work_s[at] *= r->g.factor(r->g.context, d, i, iteration);
        out->rendezvous[at] = -1;
        if (lane >= 0)
            out->rendezvous[at] =
                (r->device[d].group[lane] * 3 + iteration) * MAX_OWN + n_met[lane]++;
        for (int k = p->dep_offset[i]; k < p->dep_offset[i + 1]; k++)
            out->dep[out->n_deps++] = first + p->dep[k];
        if (iteration > 0)
            out->dep[out->n_deps++] = -1 - before; /* all tasks of the device there */
        out->dep_offset[at + 1] = out->n_deps;
    }
}

static void flatten(const struct random_graph *r, struct flat_graph *out)
{
    *out = (struct flat_graph){.devices = r->device};
    for (int k = 0; k < r->g.n_iterations; k++)
        for (int d = 0; d < r->g.n_devices; d++)
            flatten_device(r, d, k, out->n_tasks, out);
}

/* -------------------------------------------------------------------- naive simulator */

enum phase { WAITING, READY, RUNNING, ENDED };

struct naive {
    enum phase phase[MAX_TASKS];
    double left_s[MAX_TASKS], start_s[MAX_TASKS], end_s[MAX_TASKS];
};

static bool together(const struct flat_graph *g, int a, int b)
{
    return a == b || (g->rendezvous[a] >= 0 && g->rendezvous[a] == g->rendezvous[b]);
}

static bool may_be_ready(const struct flat_graph *g, const struct naive *s, int i)
{
    for (int k = g->dep_offset[i]; k < g->dep_offset[i + 1]; k++) {
        int on = g->dep[k];
        if (on >= 0 && s->phase[on] != ENDED)
            return false;
        for (int j = 0; on < 0 && j < -1 - on; j++) /* the iterations before */
            if (g->device[j] == g->device[i] && s->phase[j] != ENDED)
                return false;
    }
    for (int k = 0; k < i; k++)
        if (g->device[k] == g->device[i] && g->channel[k] == g->channel[i] &&
            s->phase[k] != ENDED)
            return false;
    return true;
}

/* Makes ready, starts and (when there is no work) ends one thing;
 * false when nothing can happen. */
static bool advance_phase(const struct flat_graph *g, struct naive *s, double now_s)
{
    for (int i = 0; i < g->n_tasks; i++) {
        if (s->phase[i] == WAITING && may_be_ready(g, s, i)) {
            s->phase[i] = READY;
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

static double own_rate(const struct flat_graph *g, const struct naive *s, int i)
{
    const struct mist_interference *factors = g->devices[g->device[i]].interference;
    int set = 0;

    for (int k = 0; k < g->n_tasks; k++)
        if (s->phase[k] == RUNNING && g->device[k] == g->device[i])
            set |= 1 << g->channel[k];
    if (!factors)
        return 1.0;
    int channel = g->channel[i];
    int n_others = (set >> MIST_STREAM_SEND & 1) + (set >> MIST_STREAM_RECEIVE & 1) +
                   (set >> MIST_STREAM_SHARDS & 1);
    int n_messages = n_others + (set >> MIST_STREAM_GPU_GPU & 1);
    bool computes = set & 1 && set >> MIST_STREAM_HOST & 1;
    int n_sharing = 1;
    double alone = 1;
    if (factors->blocks_transfers && channel == MIST_STREAM_COMPUTE &&
        (set >> MIST_STREAM_SEND & 1 || set >> MIST_STREAM_RECEIVE & 1))
        return 1e-6;
    if (channel == MIST_STREAM_COMPUTE || channel == MIST_STREAM_HOST)
        n_sharing = factors->shares_processors && computes ? 2 : 1;
    if (channel == MIST_STREAM_SEND || channel == MIST_STREAM_RECEIVE ||
        channel == MIST_STREAM_SHARDS)
        channel = MIST_STREAM_GPU_GPU;
    if (channel == MIST_STREAM_GPU_GPU && factors->shares_processors &&
        factors->takes_turns)
        n_sharing = n_messages;
    if (channel != MIST_STREAM_HOST)
        alone = 1.0 / factors->slowdown[set % 16 | 2 * (n_others > 0)][channel];
    return alone / n_sharing;
}

static double rate(const struct flat_graph *g, const struct naive *s, int i)
{
    double slowest = 1.0;

    for (int k = 0; k < g->n_tasks; k++)
        if (together(g, i, k))
            slowest = fmin(slowest, own_rate(g, s, k));
    return slowest;
}

static void simulate(const struct flat_graph *g, struct naive *s)
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

/* --------------------------------------------------------------------------- compared */

static double difference(double a, double b)
{
    return fabs(a - b) / fmax(1.0, fabs(b));
}

/* Time in which a device runs anything, channels: a set; from task first on. Between two
 * consecutive starts or ends nothing changes. */
static double naive_use_s(const struct flat_graph *g, const struct naive *s, int first,
                          int device, int channels)
{
    double use_s = 0.0;

    for (int i = 2 * first; i < 2 * g->n_tasks; i++) {
        double from_s = i % 2 ? s->end_s[i / 2] : s->start_s[i / 2], to_s = INFINITY;
        bool is_first = true, is_busy = false;
        for (int k = 2 * first; k < 2 * g->n_tasks; k++) {
            double edge_s = k % 2 ? s->end_s[k / 2] : s->start_s[k / 2];
            to_s = edge_s > from_s ? fmin(to_s, edge_s) : to_s;
            is_first = is_first && !(edge_s == from_s && k < i);
        }
        for (int k = first; k < g->n_tasks; k++)
            is_busy |= g->device[k] == device && (channels >> g->channel[k] & 1) &&
                       s->start_s[k] <= from_s && from_s < s->end_s[k];
        if (is_first && is_busy && isfinite(to_s))
            use_s += to_s - from_s;
    }
    return use_s;
}

/* The last iteration, and when every one ends. */
static double compare(const struct random_graph *r, const struct flat_graph *g,
                      const struct naive *naive, const struct mist_event_result *result)
{
    int n_once = g->n_tasks / r->g.n_iterations, last = g->n_tasks - n_once;
    double off = 0.0;

    for (int i = 0; i < n_once; i++)
        off = fmax(off, fmax(difference(result->start_s[i], naive->start_s[last + i]),
                             difference(result->end_s[i], naive->end_s[last + i])));
    for (int k = 0; k < r->g.n_iterations; k++) {
        double end_s = 0.0;
        for (int i = k * n_once; i < (k + 1) * n_once; i++)
            end_s = fmax(end_s, naive->end_s[i]);
        off = fmax(off, difference(result->iteration_end_s[k], end_s));
    }
    for (int d = 0; d < r->g.n_devices; d++) {
        for (int c = 0; c < MIST_N_STREAMS; c++)
            off = fmax(off, difference(result->use[d].busy_s[c],
                                       naive_use_s(g, naive, last, d, 1 << c)));
        off = fmax(off,
                   difference(result->use[d].covered_s,
                              naive_use_s(g, naive, last, d, (1 << MIST_N_STREAMS) - 1)));
    }
    return off;
}

TEST(test_equals_naive_simulator)
{
    uint64_t seed = test_seed(20260101);
    struct mist_random rng;
    static struct random_graph r;
    static struct flat_graph flat;
    static struct naive naive;
    double worst = 0.0;
    int64_t n_rate_changes = 0;

    mist_random_init(&rng, seed);
    for (int i = 0; i < N_GRAPHS; i++) {
        struct mist_arena arena;
        struct mist_event_engine *engine;
        struct mist_event_result result;
        struct mist_err err = {0};
        make_graph(&r, &rng);
        flatten(&r, &flat);
        mist_arena_init(&arena);
        must(mist_event_engine_prepare(&engine, &r.g, &arena, &err), &err);
        if (mist_event_engine_run(engine, &result, &err) != MIST_OK)
            fail_msg("seed %llu graph %d: %s", (unsigned long long)seed, i, err.message);
        simulate(&flat, &naive);
        double off = compare(&r, &flat, &naive, &result);
        if (!(off <= 1e-9))
            fail_msg("seed %llu graph %d: differs by %g", (unsigned long long)seed, i,
                     off);
        assert_int_equal(result.n_tasks, flat.n_tasks);
        worst = fmax(worst, off);
        n_rate_changes += result.n_rate_changes;
        mist_arena_fini(&arena);
    }
    print_message("seed %llu: %d graphs, %lld rate changes, largest difference %.2g\n",
                  (unsigned long long)seed, N_GRAPHS, (long long)n_rate_changes, worst);
    assert_true(n_rate_changes > N_GRAPHS);
}

/* ------------------------------------------------------------- what a replay must mean */

/* A replay, kept. */
struct replayed {
    struct mist_arena arena;
    struct mist_event_result result;
};

static void replay(const struct random_graph *r, struct replayed *out)
{
    struct mist_event_engine *engine;
    struct mist_err err = {0};

    mist_arena_init(&out->arena);
    must(mist_event_engine_prepare(&engine, &r->g, &out->arena, &err), &err);
    must(mist_event_engine_run(engine, &out->result, &err), &err);
}

static double makespan_s(const struct random_graph *r)
{
    struct replayed replayed;

    replay(r, &replayed);
    mist_arena_fini(&replayed.arena);
    return replayed.result.makespan_s;
}

/* Whether task k must end before i starts, which stands behind it. */
static bool is_before(const struct flat_graph *g, int k, int i)
{
    if (g->device[k] != g->device[i])
        return false;
    for (int d = g->dep_offset[i]; d < g->dep_offset[i + 1]; d++)
        if (g->dep[d] == k || (g->dep[d] < 0 && k < -1 - g->dep[d]))
            return true;
    return g->channel[k] == g->channel[i];
}

/* The longest path: starts move later until none has to, those who meet together. */
static double longest_path_s(const struct flat_graph *g)
{
    static double start_s[MAX_TASKS], work_s[MAX_TASKS];
    double end_s = 0;

    for (int i = 0; i < g->n_tasks; i++) {
        start_s[i] = 0;
        work_s[i] = 0;
        for (int k = 0; k < g->n_tasks; k++)
            if (together(g, i, k))
                work_s[i] = fmax(work_s[i], g->work_s[k]);
    }
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (int i = 0; i < g->n_tasks; i++) {
            double from_s = start_s[i];
            for (int k = 0; k < g->n_tasks; k++) {
                if (k < i && is_before(g, k, i))
                    from_s = fmax(from_s, start_s[k] + work_s[k]);
                if (together(g, i, k))
                    from_s = fmax(from_s, start_s[k]);
            }
            has_moved = has_moved || from_s > start_s[i];
            start_s[i] = from_s;
            end_s = fmax(end_s, from_s + work_s[i]);
        }
    }
    return end_s;
}

static double busiest_stream_s(const struct flat_graph *g)
{
    double sum_s[MAX_DEVS][MIST_N_STREAMS] = {{0}}, most_s = 0;

    for (int i = 0; i < g->n_tasks; i++) {
        double *sum = &sum_s[g->device[i]][g->channel[i]];
        *sum += g->work_s[i];
        most_s = fmax(most_s, *sum);
    }
    return most_s;
}

static void calm(struct random_graph *r)
{
    for (int d = 0; d < r->g.n_devices; d++)
        r->device[d].interference = NULL;
}

TEST(test_makespans_are_bounded)
{
    uint64_t seed = test_seed(20260102);
    struct mist_random rng;
    static struct random_graph r;
    static struct flat_graph flat;

    mist_random_init(&rng, seed);
    for (int i = 0; i < N_MEANING; i++) {
        make_graph(&r, &rng);
        flatten(&r, &flat);
        double path_s = longest_path_s(&flat), disturbed_s = makespan_s(&r);
        if (disturbed_s < path_s * (1 - 1e-9) ||
            disturbed_s < busiest_stream_s(&flat) * (1 - 1e-9))
            fail_msg("seed %llu graph %d: %.17g s, the longest path is %.17g",
                     (unsigned long long)seed, i, disturbed_s, path_s);
        calm(&r);
        if (!(difference(makespan_s(&r), path_s) <= 1e-9))
            fail_msg("seed %llu graph %d: undisturbed %.17g s, the longest path is %.17g",
                     (unsigned long long)seed, i, makespan_s(&r), path_s);
    }
}

/* Work of the tasks that meet others, or of those that don't, times a factor. Devices may
 * have one array in common. */
static void scale_work(struct random_graph *r, double factor, bool of_messages,
                       bool of_others)
{
    for (int d = 0; d < r->g.n_devices; d++) {
        const struct random_program *p = &r->own[r->device[d].program];
        for (int i = 0; i < p->n_tasks; i++)
            r->work_s[d][i] = r->device[d].work_s[i];
    }
    for (int d = 0; d < r->g.n_devices; d++) {
        const struct random_program *p = &r->own[r->device[d].program];
        r->device[d].work_s = r->work_s[d];
        for (int i = 0; i < p->n_tasks; i++)
            if (p->lane[i] >= 0 ? of_messages : of_others)
                r->work_s[d][i] *= factor;
    }
}

TEST(test_faster_is_never_slower)
{
    uint64_t seed = test_seed(20260103);
    struct mist_random rng;
    static struct random_graph r;
    int n_faster = 0;

    mist_random_init(&rng, seed);
    for (int i = 0; i < N_MEANING; i++) {
        double before_s, after_s;
        bool of_messages = below(&rng, 2);
        make_graph(&r, &rng);
        calm(&r);
        before_s = makespan_s(&r);
        scale_work(&r, 0.1 + 0.9 * mist_random_uniform(&rng), of_messages, !of_messages);
        after_s = makespan_s(&r);
        if (after_s > before_s * (1 + 1e-12))
            fail_msg("seed %llu graph %d: %.17g s, %.17g with faster %s",
                     (unsigned long long)seed, i, before_s, after_s,
                     of_messages ? "messages" : "computation");
        n_faster += after_s < before_s;
    }
    assert_true(n_faster > N_MEANING / 4);
}

TEST(test_times_scale)
{
    uint64_t seed = test_seed(20260104);
    struct mist_random rng;
    static struct random_graph r;

    mist_random_init(&rng, seed);
    for (int i = 0; i < N_MEANING; i++) {
        bool is_power = below(&rng, 2);
        double by = is_power ? 4 : 0.1 + 5 * mist_random_uniform(&rng);
        make_graph(&r, &rng);
        double before_s = makespan_s(&r);
        scale_work(&r, by, true, true);
        double after_s = makespan_s(&r);
        if (!(fabs(after_s - by * before_s) <= (is_power ? 0 : 1e-9) * by * before_s))
            fail_msg("seed %llu graph %d: %.17g s times %g is not %.17g s",
                     (unsigned long long)seed, i, before_s, by, after_s);
    }
}

/* A random order of n numbers. */
static void shuffle(int *order, int n, struct mist_random *rng)
{
    for (int i = 0; i < n; i++) {
        int k = below(rng, i + 1);
        order[i] = i;
        order[i] = order[k];
        order[k] = i;
    }
}

/* The last iteration of a device among the tasks of all. */
static const double *ends_of(const struct random_graph *r,
                             const struct replayed *replayed, int device)
{
    const double *end_s = replayed->result.end_s;

    for (int d = 0; d < device; d++)
        end_s += r->program[r->device[d].program].n_tasks;
    return end_s;
}

TEST(test_names_do_not_matter)
{
    uint64_t seed = test_seed(20260105);
    struct mist_random rng;
    static struct random_graph r, renamed;

    mist_random_init(&rng, seed);
    for (int i = 0; i < N_MEANING; i++) {
        struct replayed was, is;
        int place[MAX_DEVS], number[3 * MAX_LANES];
        make_graph(&r, &rng);
        r.g.factor = NULL; /* it knows devices by their numbers */
        renamed = r;
        renamed.g.device = renamed.device;
        shuffle(place, r.g.n_devices, &rng);
        shuffle(number, r.g.n_groups, &rng);
        for (int d = 0; d < r.g.n_devices; d++) {
            struct mist_event_device *to = &renamed.device[place[d]];
            *to = r.device[d];
            to->group = renamed.group[place[d]];
            for (int k = 0; k < MAX_LANES; k++)
                renamed.group[place[d]][k] = number[r.group[d][k]];
        }
        replay(&r, &was);
        replay(&renamed, &is);
        for (int d = 0; d < r.g.n_devices; d++) {
            const double *a = ends_of(&r, &was, d);
            const double *b = ends_of(&renamed, &is, place[d]);
            for (int k = 0; k < r.program[r.device[d].program].n_tasks; k++)
                if (a[k] != b[k])
                    fail_msg("seed %llu graph %d: task %d of device %d ends at %.17g s, "
                             "as device %d at %.17g s",
                             (unsigned long long)seed, i, k, d, a[k], place[d], b[k]);
        }
        mist_arena_fini(&was.arena);
        mist_arena_fini(&is.arena);
    }
}

TEST_MAIN(NULL, NULL)

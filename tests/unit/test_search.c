/*
 * The search against plain enumeration. Prices are drawn at random on a grid of 1/1024 s,
 * so that every sum is exact and the formula of the iteration time can be compared digit
 * by digit with the recursion that the search uses; offloading only ever costs time and
 * saves memory, and a layer more takes memory, as the search may assume. The enumeration
 * below shares nothing with the space or the search: it tries every G, every number of
 * stages, every shape, every split and every knob.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tune/questions.h"
#include "tune/search_internal.h"
#include "tune/search_rows.h"

#include <math.h>

enum { SEED = 20252, MAX_STAGES = 4, LAYERS = 4, MAX_SPLITS = 1 << 16, ALL_LAYERS = 99 };
enum {
    SHORT = 8,
    LONG = 4 * 8192
}; /* tokens of sequences that are not cut, that may be */

static const struct mist_model model = {.name = "four",
                                        .n_layers = LAYERS,
                                        .hidden = 8,
                                        .n_heads = 2,
                                        .n_kv_heads = 1,
                                        .ffn = 6};

/* ----------------------------------------------------------------------------- prices */

struct knobs {
    int32_t n_layers, n_checkpointed, n_lean, zero;
    double offload[MIST_N_OFFLOADS];
};

/* in_flight: only where it may matter, which is memory. */
static double draw(uint64_t seed, const struct mist_search_kind *kind,
                   const struct knobs *knobs, int32_t in_flight, uint64_t what)
{
    uint64_t index = (uint64_t)kind->role;

    index = index * 16 + (uint64_t)in_flight;
    index = index * 64 + (uint64_t)kind->n_micro_batches;
    index = index * 64 + (uint64_t)kind->micro_batch;
    index = index * 16 + (uint64_t)kind->shape.dp;
    index = index * 16 + (uint64_t)kind->shape.tp;
    index = index * 2 + kind->shape.is_sequence_parallel;
    index = index * 16 + (uint64_t)kind->shape.cp; /* 0: whole sequences */
    index = index * 16 + (uint64_t)knobs->n_layers;
    index = index * 16 + (uint64_t)knobs->n_checkpointed;
    index = index * 4 + (uint64_t)knobs->zero;
    return mist_random_uniform_at(seed, what, index);
}

/* Drawn for this many layers and each that has no more of either sort: the most. */
static double draw_peak(uint64_t seed, const struct mist_search_kind *kind,
                        const struct knobs *knobs)
{
    struct knobs fewer = *knobs;
    double most = 0;

    for (int32_t c = 0; c <= knobs->n_checkpointed; c++)
        for (int32_t open = 0; open <= knobs->n_layers - knobs->n_checkpointed; open++) {
            fewer.n_layers = c + open;
            fewer.n_checkpointed = c;
            most = fmax(most, draw(seed, kind, &fewer, kind->in_flight, 3));
        }
    return floor(1000 * most);
}

static void price_one(uint64_t seed, const struct mist_search_kind *kind,
                      const struct knobs *knobs, double *t_s, double *d_s,
                      double *peak_bytes, double *host_bytes)
{
    double work = knobs->n_layers * kind->micro_batch + 1.0;

    *t_s = floor(1024 * work * draw(seed, kind, knobs, 0, 1)) / 1024;
    *d_s = floor(2048 * work * draw(seed, kind, knobs, 0, 2)) / 1024 - work / 4;
    *peak_bytes = draw_peak(seed, kind, knobs);
    *host_bytes = 0;
    if (knobs->n_lean > 0) {
        *t_s += floor(128 * draw(seed, kind, knobs, 0, 12)) / 128;
        *d_s += floor(128 * draw(seed, kind, knobs, 0, 13)) / 128;
        *peak_bytes -= floor(*peak_bytes / 3);
    }
    for (uint64_t k = 0; k < MIST_N_OFFLOADS; k++) {
        double ratio = knobs->offload[k];
        *t_s += ratio * floor(128 * draw(seed, kind, knobs, 0, 4 + k)) / 128;
        *d_s += ratio * floor(128 * draw(seed, kind, knobs, 0, 8 + k)) / 128;
        *peak_bytes -= ratio * *peak_bytes / 4;
        double bytes = ratio * 100 * (double)(k + 1);
        if (k == MIST_OFFLOAD_ACTIVATIONS)
            bytes = ratio * 200 * (knobs->n_layers + 1);
        if (k == MIST_OFFLOAD_ACTIVATIONS && kind->in_flight == 1)
            bytes -= 200 * ratio * fmin(2, knobs->n_layers); /* stay */
        *host_bytes += fmax(100 * ratio, bytes);
    }
}

static atomic_size_t n_prices; /* asked for so far */

static enum mist_status price(void *context, const struct mist_search_kind *kind,
                              const struct mist_search_columns *block,
                              struct mist_err *err)
{
    (void)err;
    n_prices += block->n;
    for (size_t i = 0; i < block->n; i++) {
        struct knobs knobs = {.n_layers = (int32_t)block->n_layers[i],
                              .n_checkpointed = (int32_t)block->n_checkpointed[i],
                              .n_lean = block->n_lean ? (int32_t)block->n_lean[i] : 0,
                              .zero = (int32_t)block->zero[i]};
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            knobs.offload[k] = block->offload[k] ? block->offload[k][i] : 0;
        price_one(*(const uint64_t *)context, kind, &knobs, &block->t_s[i],
                  &block->d_s[i], &block->peak_bytes[i], &block->host_bytes[i]);
    }
    return MIST_OK;
}

/* ------------------------------------------------------------------------ brute force */

/* What candidates of one search differ in: a single stage also in its shape. */
struct split {
    int32_t g, n_stages, cp, layers[MAX_STAGES], devices[MAX_STAGES];
    int32_t tp, sequence; /* of a single stage */
};

/* Words of a plan that it may be held to. */
enum word {
    PP,
    G,
    LAYER,
    DP,
    TP,
    B,
    SEQUENCE,
    ZERO,
    CKPT,
    LEAN,
    OFFLOADED,
    CP = 14,
    N_WORDS
};
static const char *const words[N_WORDS] = {"pp",
                                           "micro-batches",
                                           "layers",
                                           "dp",
                                           "tp",
                                           "micro-batch",
                                           "sequence",
                                           "zero",
                                           "ckpt",
                                           "lean",
                                           "offload-weights",
                                           "offload-gradients",
                                           "offload-optimizer",
                                           "offload-activations",
                                           "cp"};

struct brute {
    uint64_t seed;
    bool is_held, is_uniform;
    int low[N_WORDS], high[N_WORDS]; /* is_held; all: of the layers there are */
    struct knobs knobs[MAX_STAGES];
    bool sequences[MAX_STAGES];
    unsigned groups;
    int32_t n_layers, n_ranks, global_batch;
    int32_t seq_len; /* 0: SHORT */
    bool is_tied;
    int ratio_step; /* in units of 1 / MIST_RATIO_ONE; 0: nothing or all is offloaded */
    int64_t limit_bytes, host_limit_bytes;
    int32_t n_chunks; /* 0: 1 */
    int32_t g, n_stages, cp;
    int first_sequence;
    double t_s[MAX_STAGES], d_s[MAX_STAGES];
    int32_t layers[MAX_STAGES], dps[MAX_STAGES], tps[MAX_STAGES];
    double n_plans;
    double best_s;              /* INFINITY: no plan */
    int64_t closest_bytes;      /* whatever the limit */
    int64_t closest_host_bytes; /* whatever the host's limit */
    double split_s[MAX_SPLITS]; /* best by split */
    struct split splits[MAX_SPLITS];
    size_t n_splits;
};

static bool has(const struct brute *at, enum mist_space_group group)
{
    return (at->groups >> group & 1u) != 0;
}

static int32_t seq_len_of(const struct brute *at)
{
    return at->seq_len > 0 ? at->seq_len : SHORT;
}

/* n_splits: it is new. */
static size_t find_split(const struct brute *at, const struct split *split)
{
    size_t i = 0;

    while (i < at->n_splits && memcmp(&at->splits[i], split, sizeof *split) != 0)
        i++;
    return i;
}

static void note_split(struct brute *at, double time_s)
{
    struct split split = {.g = at->g, .n_stages = at->n_stages, .cp = at->cp};

    for (int32_t s = 0; s < at->n_stages; s++) {
        split.layers[s] = at->layers[s];
        split.devices[s] = at->dps[s] * at->cp * at->tps[s];
    }
    if (at->n_stages == 1) {
        split.tp = at->tps[0];
        split.sequence = at->first_sequence;
    }
    size_t i = find_split(at, &split);
    if (i == at->n_splits) {
        at->splits[at->n_splits++] = split;
        at->split_s[i] = INFINITY;
    }
    at->split_s[i] = time_s < at->split_s[i] ? time_s : at->split_s[i];
}

/* (G - 1 / v) max t + sum t / v + max(0, max (d_i - sum_{j<i} t_j / v)), as it is written; v:
 * chunks of a stage, 1, 2 or 4, so that this is exact. */
static double formula(int32_t g, double v, int32_t n, const double *t_s,
                      const double *d_s)
{
    double most = 0, sum = 0, late = 0;

    for (int32_t i = 0; i < n; i++) {
        most = fmax(most, t_s[i]);
        late = fmax(late, d_s[i] - sum);
        sum += t_s[i] / v;
    }
    return (g - 1 / v) * most + sum + late;
}

/* Whether a word of a plan may have that value; all: what "all" is. */
static bool may_be(const struct brute *at, int word, int value, int all)
{
    int low = at->low[word] == ALL_LAYERS ? all : at->low[word];

    return !at->is_held || (value >= low && value <= at->high[word]);
}

/* Whether the stages are alike, where they have to be. */
static bool is_alike_enough(const struct brute *at)
{
    for (int32_t i = 1; i < at->n_stages && at->is_uniform; i++)
        if (memcmp(&at->knobs[i], &at->knobs[0], sizeof at->knobs[0]) != 0 ||
            at->dps[i] != at->dps[0] || at->tps[i] != at->tps[0] ||
            at->sequences[i] != at->sequences[0])
            return false;
    return true;
}

static void finish_plan(struct brute *at, double peak_bytes, double host_bytes)
{
    double time_s = formula(at->g, at->n_chunks > 0 ? at->n_chunks : 1, at->n_stages,
                            at->t_s, at->d_s);

    if (!is_alike_enough(at))
        return;
    at->n_plans++;
    if (host_bytes < (double)at->closest_host_bytes &&
        peak_bytes <= (double)at->limit_bytes)
        at->closest_host_bytes = (int64_t)ceil(host_bytes);
    if (host_bytes > (double)at->host_limit_bytes)
        return;
    if (peak_bytes < (double)at->closest_bytes)
        at->closest_bytes = (int64_t)ceil(peak_bytes);
    if (peak_bytes > (double)at->limit_bytes)
        return;
    at->best_s = fmin(at->best_s, time_s);
    note_split(at, time_s);
}

static void try_stage(struct brute *at, int32_t i, int32_t layers, int32_t ranks,
                      double peak_bytes, double host_bytes);

/* All knobs of stage i with a shape and a number of layers. */
static void try_knobs(struct brute *at, int32_t i, const struct mist_search_kind *kind,
                      int32_t layers, int32_t ranks, int32_t l, double peak_bytes,
                      double host_bytes)
{
    int32_t dp = kind->shape.dp, n_devices = dp * at->cp * kind->shape.tp;
    int step = at->ratio_step ? at->ratio_step : MIST_RATIO_ONE;
    int n_ratios = has(at, MIST_SPACE_OFFLOAD) ? MIST_RATIO_ONE / step + 1 : 1;
    int n_offloads = n_ratios * n_ratios * n_ratios * n_ratios;

    at->layers[i] = l;
    at->dps[i] = dp;
    at->tps[i] = kind->shape.tp;
    for (int32_t c = 0; c <= (has(at, MIST_SPACE_CKPT) ? l : 0); c++)
        for (int32_t z = 0; z <= (has(at, MIST_SPACE_ZERO) && dp * at->cp > 1 ? 3 : 0);
             z++)
            for (int way = 0; way < 2 * n_offloads; way++) {
                int offloads = way / 2;
                struct knobs knobs = {.n_layers = l,
                                      .n_checkpointed = c,
                                      .n_lean = way % 2 * (l - c),
                                      .zero = z};
                double bytes, host;
                if (way % 2 > 0 && (!has(at, MIST_SPACE_LEAN) || c == l))
                    continue;
                bool may = may_be(at, ZERO, z, z) && may_be(at, CKPT, c, l) &&
                           may_be(at, LEAN, knobs.n_lean, l - c);
                for (int k = 0; k < MIST_N_OFFLOADS; k++) {
                    int value = offloads % n_ratios * step;
                    offloads /= n_ratios;
                    knobs.offload[k] = value / 8.0;
                    may = may && may_be(at, OFFLOADED + k, value, 8);
                }
                if (!may)
                    continue;
                at->knobs[i] = knobs;
                at->sequences[i] = kind->shape.is_sequence_parallel;
                price_one(at->seed, kind, &knobs, &at->t_s[i], &at->d_s[i], &bytes,
                          &host);
                try_stage(at, i + 1, layers - l, ranks - n_devices,
                          fmax(bytes, peak_bytes), fmax(host, host_bytes));
            }
}

/* Whether a stage may have the shape, beside the sums. */
static bool may_have(const struct brute *at, int32_t i, int32_t l, int32_t dp, int32_t tp,
                     int sequence)
{
    int32_t samples = at->global_batch / at->g;

    if (!may_be(at, PP, at->n_stages, 0) || !may_be(at, G, at->g, 0) ||
        !may_be(at, LAYER, l, 0) || !may_be(at, DP, dp, 0) || !may_be(at, TP, tp, 0) ||
        !may_be(at, B, samples / dp, 0) || !may_be(at, SEQUENCE, sequence, 0))
        return false;
    int32_t tokens = samples / dp * (seq_len_of(at) / at->cp);

    if (samples % dp != 0 || (sequence && (tp == 1 || tokens % tp != 0)) ||
        (sequence && !has(at, MIST_SPACE_SEQUENCE)))
        return false;
    if (!has(at, MIST_SPACE_IMBALANCE) && l * at->n_stages != at->n_layers)
        return false;
    if (!has(at, MIST_SPACE_MESH) && dp * at->cp * tp * at->n_stages != at->n_ranks)
        return false;
    return !at->is_tied || i == 0 || i < at->n_stages - 1 ||
           (dp == at->dps[0] && tp == at->tps[0]);
}

static void try_stage(struct brute *at, int32_t i, int32_t layers, int32_t ranks,
                      double peak_bytes, double host_bytes)
{
    int32_t samples = at->global_batch / at->g, left = at->n_stages - i - 1;

    if (i == at->n_stages) {
        if (layers == 0 && ranks == 0)
            finish_plan(at, peak_bytes, host_bytes);
        return;
    }
    for (int32_t l = left == 0 ? layers : 1; l <= layers - left; l++)
        for (int32_t n = left == 0 ? ranks : 1; n <= ranks - left; n++)
            for (int32_t tp = 1; tp <= 2 && tp <= n; tp++)
                for (int sequence = 0; sequence < 2 && n % (at->cp * tp) == 0;
                     sequence++) {
                    int32_t dp = n / (at->cp * tp);
                    if (!may_have(at, i, l, dp, tp, sequence))
                        continue;
                    if (!has(at, MIST_SPACE_MESH) && i > 0 &&
                        (tp != at->tps[0] || sequence != at->first_sequence))
                        continue; /* one shape for all */
                    if (i == 0)
                        at->first_sequence = sequence;
                    struct mist_search_kind kind = {
                        .role = at->n_stages == 1       ? MIST_SEARCH_ONLY
                                : i == 0                ? MIST_SEARCH_FIRST
                                : i == at->n_stages - 1 ? MIST_SEARCH_LAST
                                                        : MIST_SEARCH_MIDDLE,
                        .in_flight = at->n_stages - i < at->g ? at->n_stages - i : at->g,
                        .n_micro_batches = at->g,
                        .micro_batch = samples / dp,
                        .shape = {dp, tp, sequence == 1, at->cp > 1 ? at->cp : 0},
                    };
                    try_knobs(at, i, &kind, layers, ranks, l, peak_bytes, host_bytes);
                }
}

/* Whether sequences may be cut over that many ranks: twice as many chunks of them. */
static bool may_cut(const struct brute *at, int32_t cp)
{
    bool is_asked = at->is_held && (at->low[CP] > 1 || at->high[CP] < INT32_MAX);

    return may_be(at, CP, cp, 0) &&
           (cp == 1 || (has(at, MIST_SPACE_CONTEXT) && seq_len_of(at) % (2 * cp) == 0 &&
                        (is_asked || at->seq_len == LONG)));
}

static void enumerate(struct brute *at)
{
    at->n_plans = 0;
    at->n_splits = 0;
    at->best_s = INFINITY;
    at->closest_bytes = at->closest_host_bytes = INT64_MAX;
    for (at->g = 1; at->g <= at->global_batch; at->g++)
        for (at->n_stages = 1; at->n_stages <= at->n_layers; at->n_stages++)
            for (at->cp = 1; at->cp <= at->n_ranks; at->cp++)
                if (at->global_batch % at->g == 0 && may_cut(at, at->cp))
                    try_stage(at, 0, at->n_layers, at->n_ranks, 0, 0);
}

/* ---------------------------------------------------------------------------- helpers */

static void init_space_of(struct mist_space *space, const struct mist_model *of,
                          int32_t seq_len, int32_t n_ranks, int32_t global_batch,
                          unsigned groups)
{
    struct mist_job job = {.global_batch = global_batch, .seq_len = seq_len};
    struct mist_err err;

    assert_int_equal(mist_space_init(space, of, &job, n_ranks, 64, groups, NULL, &err),
                     MIST_OK);
    space->ratio_step = MIST_RATIO_ONE; /* nothing or all */
}

static void init_space(struct mist_space *space, int32_t n_ranks, int32_t global_batch,
                       unsigned groups)
{
    init_space_of(space, &model, SHORT, n_ranks, global_batch, groups);
}

/* Rows that the next search keeps. */
static struct mist_search_rows kept_rows, *wanted_rows;
static int32_t wanted_chunks; /* 0: 1 */

static void want_rows(void)
{
    struct mist_err err;

    must(mist_search_rows_open(&kept_rows, "/dev/null", &err), &err);
    wanted_rows = &kept_rows;
}

static void take_row(void *context, const struct mist_search_row *row)
{
    struct mist_search_row **at = context;

    *(*at)++ = *row;
}

/* The rows of the search since want_rows(); the caller's to free. */
static struct mist_search_row *take_rows(int64_t *n)
{
    struct mist_search_row *rows = calloc((size_t)kept_rows.n + 1, sizeof *rows);
    struct mist_search_row *at = rows;
    struct mist_err err;

    assert_non_null(rows);
    must(mist_search_rows_each(&kept_rows, take_row, &at, &err), &err);
    *n = kept_rows.n;
    assert_int_equal(at - rows, *n);
    must(mist_search_rows_close(&kept_rows, &err), &err);
    wanted_rows = NULL;
    return rows;
}

static void search_within(const struct mist_space *space, uint64_t seed,
                          int64_t limit_bytes, int64_t host_limit_bytes,
                          double slack_frac, size_t n_best, int n_threads,
                          struct mist_search_result *result)
{
    struct mist_thread_pool *pool;
    struct mist_err err;

    assert_int_equal(mist_thread_pool_new(n_threads, &pool, &err), MIST_OK);
    struct mist_search_config config = {
        .limit_bytes = limit_bytes,
        .host_limit_bytes = host_limit_bytes,
        .slack_frac = slack_frac,
        .n_best = n_best,
        .price = price,
        .price_context = &seed,
        .pool = pool,
        .rows = wanted_rows,
        .n_chunks = wanted_chunks,
    };
    assert_int_equal(mist_search_run(space, &config, result, &err), MIST_OK);
    mist_thread_pool_free(pool);
}

static void search(const struct mist_space *space, uint64_t seed, int64_t limit_bytes,
                   size_t n_best, int n_threads, struct mist_search_result *result)
{
    search_within(space, seed, limit_bytes, INT64_MAX, 0, n_best, n_threads, result);
}

#define OFFLOAD (1u << MIST_SPACE_OFFLOAD)
#define ALL     (MIST_SPACE_ALL & ~OFFLOAD)

static const unsigned all_groups[] = {
    ALL,
    1u << MIST_SPACE_3D,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_ZERO,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_CKPT,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_IMBALANCE,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_LEAN,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_MESH | 1u << MIST_SPACE_ZERO,
    ALL & ~(1u << MIST_SPACE_MESH),
    ALL & ~(1u << MIST_SPACE_IMBALANCE),
    ALL & ~(1u << MIST_SPACE_SEQUENCE) & ~(1u << MIST_SPACE_ZERO),
};
enum { N_GROUPS = sizeof all_groups / sizeof *all_groups };

/* ------------------------------------------------------------------------------ tests */

/* How much memory is lacking, by search and by enumeration. */
static void compare_closest(const struct brute *brute, const struct mist_space *space)
{
    uint64_t seed = brute->seed;
    struct mist_search_config config = {
        .limit_bytes = brute->limit_bytes,
        .host_limit_bytes = brute->host_limit_bytes,
        .price = price,
        .price_context = &seed,
    };
    struct mist_search_closest closest;
    struct mist_err err;

    must(mist_thread_pool_new(1, &config.pool, &err), &err);
    must(mist_search_find_closest(space, &config, MIST_SEARCH_DEVICE_MEMORY, &closest,
                                  &err),
         &err);
    assert_true(closest.bytes == brute->closest_bytes);
    must(
        mist_search_find_closest(space, &config, MIST_SEARCH_HOST_MEMORY, &closest, &err),
        &err);
    assert_true(closest.bytes == brute->closest_host_bytes);
    mist_thread_pool_free(config.pool);
}

/* Search and enumeration of one question; true: there is a plan. */
static bool compare(struct brute *brute, const struct mist_bounds *bounds)
{
    struct mist_err err;
    struct mist_model of = model;
    struct mist_space space;
    struct mist_search_result result;
    bool is_feasible;

    of.n_layers = brute->n_layers;
    of.ties_embeddings = brute->is_tied;
    enumerate(brute);
    init_space_of(&space, &of, seq_len_of(brute), brute->n_ranks, brute->global_batch,
                  brute->groups);
    if (brute->ratio_step)
        space.ratio_step = brute->ratio_step;
    if (bounds) {
        struct mist_space whole = space;
        must(mist_space_part(&space, &whole, brute->groups, bounds, &err), &err);
        mist_space_fini(&whole);
    }
    wanted_chunks = brute->n_chunks;
    search_within(&space, brute->seed, brute->limit_bytes, brute->host_limit_bytes, 0, 3,
                  1, &result);
    wanted_chunks = 0;
    is_feasible = !isinf(brute->best_s);
    assert_true(mist_space_n_plans(&space) == brute->n_plans);
    if (!is_feasible) {
        assert_int_equal(result.n_candidates, 0);
        compare_closest(brute, &space);
    } else {
        assert_true(result.n_candidates > 0);
        assert_true(result.candidates[0].time_s == brute->best_s);
    }
    mist_search_result_fini(&result);
    mist_space_fini(&space);
    return is_feasible;
}

/* Optimum, number of plans and least memory, over groups, ranks, batches and limits. */
TEST(test_optimum)
{
    static struct brute brute;
    static const int64_t limits[] = {INT64_MAX, 800, 500, 250, 60, 0};
    uint64_t seed = test_seed(SEED);
    int n_feasible = 0;

    for (int i = 0; i < 120; i++) {
        brute.seed = seed + (uint64_t)i;
        brute.groups = all_groups[i % N_GROUPS];
        brute.n_layers = 3 + i % 2;
        brute.n_ranks = 1 + i % 5;
        brute.global_batch = i % 3 == 0 ? 4 : i % 3 == 1 ? 6 : 3;
        brute.is_tied = i % 7 == 0;
        brute.limit_bytes = limits[i / N_GROUPS % 6];
        brute.n_chunks = i % 11 < 3 ? 1 << i % 11 : 1;
        brute.host_limit_bytes = INT64_MAX;
        brute.seq_len = i % 4 == 3 ? LONG : SHORT;
        n_feasible += compare(&brute, NULL);
    }
    assert_true(n_feasible > 30);
}

/* The same with offloading, nothing or all of it: what is skipped is never needed. */
TEST(test_offload)
{
    static struct brute brute;
    static const int64_t limits[] = {INT64_MAX, 700, 400, 250, 150, 60};
    static const int64_t host_limits[] = {INT64_MAX, 300, 700};
    uint64_t seed = test_seed(SEED);
    int n_feasible = 0;

    for (int i = 0; i < 72; i++) {
        brute.seed = seed + 500 + (uint64_t)i;
        brute.groups = (i % 4 == 3 ? all_groups[i % N_GROUPS] : ALL) | OFFLOAD;
        brute.n_layers = 2;
        brute.n_ranks = 1 + i % 3;
        brute.global_batch = i % 2 == 0 ? 2 : 3;
        brute.is_tied = i % 5 == 0;
        brute.limit_bytes = limits[i % 6];
        brute.host_limit_bytes = i % 6 < 4 ? host_limits[i / 6 % 3] : INT64_MAX;
        n_feasible += compare(&brute, NULL);
    }
    assert_true(n_feasible > 30);
}

/* The same with finer ratios, of single stages and in halves of two with few other knobs. */
TEST(test_ratios)
{
    static struct brute brute;
    static const int64_t limits[] = {700, 550, 400, 300, 250, 150};
    uint64_t seed = test_seed(SEED);
    int n_feasible = 0;

    for (int i = 0; i < 96; i++) {
        bool is_one = i % 4 > 0;
        brute.seed = seed + 4000 + (uint64_t)i;
        brute.groups = is_one ? ALL | OFFLOAD : 1u << MIST_SPACE_3D | OFFLOAD;
        brute.ratio_step = MIST_RATIO_ONE / (is_one ? i % 16 == 1 ? 8 : 4 : 2);
        brute.n_layers = is_one ? 1 : 2;
        brute.n_ranks = is_one ? 1 + i % 3 : 2;
        brute.global_batch = 2;
        brute.limit_bytes = limits[i / 4 % 6];
        brute.host_limit_bytes = i % 3 == 0 ? 500 : INT64_MAX;
        n_feasible += compare(&brute, NULL);
    }
    assert_true(n_feasible > 60);
}

/* A stage with all its knobs in naive order. */
struct stage_brute {
    const struct mist_search_kind *kind;
    const struct mist_search_config *config;
    struct mist_search_choice *choices; /* t and d of what fits, by number of layers */
    size_t n;
};

static void try_stage_knobs(struct stage_brute *at, const struct knobs *knobs)
{
    struct mist_search_choice choice = {.n_layers = knobs->n_layers};
    double bytes, host;

    price_one(*(const uint64_t *)at->config->price_context, at->kind, knobs, &choice.t_s,
              &choice.d_s, &bytes, &host);
    if (bytes <= (double)at->config->limit_bytes &&
        host <= (double)at->config->host_limit_bytes)
        at->choices[at->n++] = choice;
}

enum { DEEP = 12, DEEP_RATIOS = 3 * 3 * 3 * 3, DEEP_ROWS = DEEP * (DEEP + 1) * 8 };

static void enumerate_stage(struct stage_brute *at)
{
    for (int32_t l = 1; l <= DEEP; l++)
        for (int32_t c = 0; c <= l; c++)
            for (int32_t i = 0; i < 8 * DEEP_RATIOS; i++) {
                struct knobs knobs = {.n_layers = l, .n_checkpointed = c, .zero = i % 4};
                int32_t halves = i / 8;
                if (i / 4 % 2 == 1 && c == l)
                    continue;
                knobs.n_lean = i / 4 % 2 * (l - c);
                for (int k = 0; k < MIST_N_OFFLOADS; k++, halves /= 3)
                    knobs.offload[k] = halves % 3 / 2.0;
                try_stage_knobs(at, &knobs);
            }
}

/* Whether no other way to run as many layers is as good, but for itself. */
static bool is_best(const struct stage_brute *at, const struct mist_search_choice *of)
{
    for (size_t i = 0; i < at->n; i++) {
        const struct mist_search_choice *other = &at->choices[i];
        if (other->n_layers == of->n_layers && other->t_s <= of->t_s &&
            other->d_s <= of->d_s && (other->t_s < of->t_s || other->d_s < of->d_s))
            return false;
    }
    return true;
}

static bool has_option(const struct mist_search_work *work,
                       const struct mist_search_choice *of)
{
    for (size_t i = 0; i < work->n_options; i++)
        if (work->choices[i].n_layers == of->n_layers &&
            work->choices[i].t_s == of->t_s && work->choices[i].d_s == of->d_s)
            return true;
    return false;
}

/* The frontiers of a stage of up to twelve layers, with what takes too much memory with
 * fewer layers left out early. Returns how many numbers of layers fit. */
static int compare_frontiers(uint64_t seed, int32_t in_flight, int64_t limit_bytes,
                             int64_t host_limit_bytes)
{
    struct mist_model deep = model;
    struct mist_space space;
    struct mist_search_config config = {.limit_bytes = limit_bytes,
                                        .host_limit_bytes = host_limit_bytes,
                                        .n_chunks = 1,
                                        .price = price,
                                        .price_context = &seed};
    struct mist_search_work work = {
        .kind = mist_search_stage_kind(4, 2, in_flight == 1, 1,
                                       (struct mist_space_shape){.dp = 2, .tp = 1}),
        .limit_bytes = limit_bytes,
        .layers_min = 1,
        .layers_max = DEEP,
        .first = 1,
        .last = DEEP,
        .most_t_s = INFINITY,
    };
    struct stage_brute brute = {&work.kind, &config, NULL, 0};
    int n_fitting = 0;
    struct mist_err err;

    deep.n_layers = DEEP + 1;
    init_space_of(&space, &deep, SHORT, 4, 8, MIST_SPACE_ALL);
    space.ratio_step = MIST_RATIO_ONE / 2;
    assert_int_equal(work.kind.in_flight, in_flight);
    must(mist_search_fill_work(&space, &config, &work, &err), &err);
    brute.choices = calloc((size_t)DEEP_ROWS * DEEP_RATIOS, sizeof *brute.choices);
    assert_non_null(brute.choices);
    enumerate_stage(&brute);
    for (size_t i = 0; i < work.n_options; i++) {
        const struct mist_search_choice *choice = &work.choices[i];
        assert_true(is_best(&brute, choice));
        n_fitting += i == 0 || choice[-1].n_layers != choice->n_layers;
    }
    for (size_t i = 0; i < brute.n; i++)
        assert_true(has_option(&work, &brute.choices[i]) ||
                    !is_best(&brute, &brute.choices[i]));
    free(brute.choices);
    mist_search_fini_work(&work);
    mist_space_fini(&space);
    return n_fitting;
}

TEST(test_deep_stage)
{
    static const int64_t limits[] = {500, 300, 220, 160, 110};
    static const int64_t host_limits[] = {INT64_MAX, 1600, 1100, 600};
    uint64_t seed = test_seed(SEED);
    int n_fitting = 0, n = 40;

    for (int i = 0; i < n; i++)
        n_fitting += compare_frontiers(seed + 20000 + (uint64_t)i, 1 + i % 2,
                                       limits[i / 2 % 5], host_limits[i / 10]);
    print_message("%d of %d numbers of layers fit\n", n_fitting, n * DEEP);
    assert_in_range(n_fitting, n * DEEP / 8, n * DEEP * 7 / 8);
}

/* Prices that a search and the least memory take where hardly anything fits, or nothing. */
static size_t count_prices(const struct mist_space *space, uint64_t seed,
                           int64_t limit_bytes, bool has_plans)
{
    struct mist_search_result result;

    n_prices = 0;
    search(space, seed, limit_bytes, 1, 1, &result);
    assert_int_equal(result.n_candidates > 0, has_plans);
    mist_search_result_fini(&result);
    return n_prices;
}

/* That nothing fits is found by a look at few numbers of layers. */
TEST(test_no_plan)
{
    struct mist_model deep = model;
    struct mist_space space;
    uint64_t seed = test_seed(SEED);
    struct mist_search_config config = {
        .host_limit_bytes = INT64_MAX, .price = price, .price_context = &seed};
    struct mist_search_closest closest;
    size_t n_nothing = 0, n_something = 0;
    struct mist_err err;

    deep.n_layers = DEEP;
    init_space_of(&space, &deep, SHORT, 4, 4, MIST_SPACE_ALL);
    space.ratio_step = MIST_RATIO_ONE / 2;
    must(mist_thread_pool_new(1, &config.pool, &err), &err);
    for (int i = 0; i < 3; i++, seed++) {
        must(mist_search_find_closest(&space, &config, MIST_SEARCH_DEVICE_MEMORY,
                                      &closest, &err),
             &err);
        assert_true(closest.bytes < INT64_MAX);
        n_nothing += count_prices(&space, seed, closest.bytes - 1, false);
        n_something += count_prices(&space, seed, 2 * closest.bytes, true);
    }
    print_message("%zu prices of nothing, %zu of something\n", n_nothing, n_something);
    assert_true(n_nothing < n_something / 4);
    mist_thread_pool_free(config.pool);
    mist_space_fini(&space);
}

/* Holds the enumeration and the bounds to one word more. */
static void hold(struct brute *brute, struct mist_bounds *bounds, int word, uint64_t draw)
{
    static const int most[N_WORDS] = {3, 6, 3, 4, 2, 3, 1, 3, 3, 3, 1, 1, 1, 1, 2};
    bool may_be_0 = word >= SEQUENCE && word != CP,
         is_layers = word == CKPT || word == LEAN;
    int value = (int)(draw % (unsigned)(most[word] + may_be_0)) + !may_be_0;
    bool is_fixed = draw / 64 % 2 || word == SEQUENCE,
         is_all = draw / 128 % 2 && is_layers;
    struct mist_err err;
    char text[64];

    snprintf(text, sizeof text, is_all ? "%s=all" : "%s=%d", words[word], value);
    must(mist_bounds_add(bounds, text, is_fixed, &err), &err);
    value = is_all ? ALL_LAYERS : word >= OFFLOADED && word != CP ? 8 * value : value;
    brute->high[word] = value;
    brute->low[word] = is_fixed ? value : 0;
}

/* Held to some words of a plan, and to stages that are alike, the search finds the best of
 * the plans that keep to them. */
TEST(test_bounds)
{
    static struct brute brute;
    static const int64_t limits[] = {INT64_MAX, 700, 400, 250};
    int n_feasible = 0, n_uniform = 0;

    brute.is_held = true;
    for (uint64_t i = 0; i < 240; i++) {
        struct mist_bounds bounds = mist_bounds_none();
        brute.seed = test_seed(SEED) + 9000 + i;
        brute.is_uniform = bounds.is_uniform = i % 3 == 0;
        brute.n_chunks = i % 5 < 3 ? 1 << i % 5 : 1;
        for (int k = 0; k < N_WORDS; k++) {
            brute.low[k] = 0;
            brute.high[k] = INT32_MAX;
        }
        for (uint64_t k = 0; k < 1 + i % 2; k++) {
            uint64_t draw = (uint64_t)(mist_random_uniform_at(brute.seed, k, 1) * 1e9);
            int word = (int)(draw / 256 % (CP / 2)) + (int)k * (CP / 2);
            hold(&brute, &bounds, word, draw);
        }
        if (i % 6 == 5)
            hold(&brute, &bounds, CP, i / 6 * 64 + i / 12);
        brute.groups = i % 4 == 3 ? all_groups[i / 4 % N_GROUPS] : MIST_SPACE_ALL;
        brute.n_layers = 2 + (int32_t)(i % 5 == 0);
        brute.n_ranks = 1 + (int32_t)(i / 2 % 4);
        brute.global_batch = i % 2 == 0 ? 2 : 6;
        if (brute.n_layers == 3 || brute.n_ranks == 4)
            brute.groups &= ~OFFLOAD;
        brute.limit_bytes = limits[i % 4];
        brute.host_limit_bytes = INT64_MAX;
        bool is_feasible = compare(&brute, &bounds);
        n_feasible += is_feasible;
        n_uniform += is_feasible && brute.is_uniform && !isinf(brute.best_s);
    }
    assert_true(n_feasible > 60);
    assert_true(n_uniform > 20);
}

/* What is to be offloaded, and no host holds: how much it would have to. */
TEST(test_no_host)
{
    static struct brute brute;

    brute.is_held = true;
    brute.groups = MIST_SPACE_ALL;
    brute.n_layers = brute.global_batch = 2;
    brute.limit_bytes = INT64_MAX;
    brute.host_limit_bytes = -1;
    for (int i = 0; i < 12; i++) {
        enum { FIXED = 64, TO_1 = 1 };
        struct mist_bounds bounds = mist_bounds_none();
        brute.seed = test_seed(SEED) + 12000 + (uint64_t)i;
        brute.n_ranks = 1 + i / 4;
        for (int k = 0; k < N_WORDS; k++) {
            brute.low[k] = 0;
            brute.high[k] = INT32_MAX;
        }
        hold(&brute, &bounds, OFFLOADED + i % 4, FIXED + TO_1);
        assert_false(compare(&brute, &bounds));
        assert_true(brute.closest_host_bytes > 0);
        assert_true(brute.closest_host_bytes < INT64_MAX);
    }
}

TEST(test_bound_words)
{
    static const struct {
        const char *before, *fix, *max, *message;
    } cases[] = {
        {NULL, "tp", NULL, "knobs are pp, micro-batches"},
        {NULL, "ep=2", NULL, "knobs are pp, micro-batches"},
        {NULL, "cp=0", NULL, "--fix cp=0: expected 1 to"},
        {NULL, "zero=4", NULL, "--fix zero=4: expected 0 to 3"},
        {NULL, "tp=0", NULL, "--fix tp=0: expected 1 to"},
        {NULL, "tp=2.5", NULL, "--fix tp=2.5: expected 1 to"},
        {NULL, "offload-weights=0.3", NULL, "expected eighths, 0 to 1"},
        {NULL, "schedule=2f2b", NULL,
         "expected 1f1b or interleaved or zb_h1 or zb_h2 or zb_v or zb_1p or zb_2p"},
        {NULL, NULL, "schedule=1f1b", "have no order"},
        {NULL, "ckpt=none", NULL, "expected 0 to 1048576 or all"},
        {"tp=8", "tp=4", NULL, "--fix tp=4 contradicts --fix tp=8"},
        {"tp=8", NULL, "tp=4", "--max tp=4 contradicts --fix tp=8"},
        {"zero=3", "shards=1", NULL, "'shards=1' is no knob=value"},
    };
    struct mist_err err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_bounds bounds = mist_bounds_none();
        if (cases[i].before)
            must(mist_bounds_add(&bounds, cases[i].before, true, &err), &err);
        assert_int_equal(mist_bounds_add(&bounds,
                                         cases[i].fix ? cases[i].fix : cases[i].max,
                                         cases[i].fix != NULL, &err),
                         MIST_ERR_USAGE);
        if (!strstr(err.message, cases[i].message))
            fail_msg("'%s' lacks '%s'", err.message, cases[i].message);
    }
}

/* What a question has found leaves out no plan of those that follow from it: without a group
 * of knobs, with ratios in halves, and with less memory. */
TEST(test_narrowed)
{
    int n_left_out = 0, n_found = 0;

    for (uint64_t i = 0; i < 60; i++) {
        struct mist_question of[2] = {{.i_from = SIZE_MAX}, {.i_from = 0}};
        const struct mist_questions questions = {.all = of, .n = 2};
        struct mist_space space, part;
        struct mist_search_result some, all;
        struct mist_arena arena;
        struct mist_err err;
        uint64_t seed = test_seed(SEED) + 12000 + i;
        int64_t limit_bytes = i % 2 ? 600 : 400;
        size_t n = 0, n_narrowed = 0;
        unsigned group = MIST_SPACE_ZERO + (unsigned)i % (MIST_N_SPACE_GROUPS - 1);
        mist_arena_init(&arena);
        init_space(&space, 2 + (int32_t)(i % 3), 4, MIST_SPACE_ALL & ~OFFLOAD);
        search_within(&space, seed, limit_bytes, INT64_MAX, 0.3, 1000, 1, &some);
        double within_s =
            some.n_candidates > 0 ? 1.3 * some.candidates[0].time_s : (double)INFINITY;
        must(mist_question_note_found(&of[0], &some, within_s, &arena, &err), &err);
        must(mist_space_part(&part, &space, space.groups & ~(1u << group), &space.bounds,
                             &err),
             &err);
        int32_t n_cases = part.n_cases;
        limit_bytes -= (int64_t)(i % 3) * 50;
        mist_questions_narrow(&questions, 1, 1.01 * within_s, &part);
        assert_true(isinf(within_s) || part.n_cases == n_cases);
        search(&part, seed, limit_bytes, 1000, 1, &all);
        mist_questions_narrow(&questions, 1, within_s, &part);
        n_left_out += part.n_cases < n_cases;
        mist_search_result_fini(&some);
        search(&part, seed, limit_bytes, 1000, 1, &some);
        while (n < all.n_candidates && all.candidates[n].time_s <= within_s)
            n++;
        while (n_narrowed < some.n_candidates &&
               some.candidates[n_narrowed].time_s <= within_s)
            n_narrowed++;
        assert_int_equal(n, n_narrowed);
        for (size_t k = 0; k < n; k++)
            assert_true(all.candidates[k].time_s == some.candidates[k].time_s);
        n_found += n > 0;
        mist_search_result_fini(&some);
        mist_search_result_fini(&all);
        mist_space_fini(&part);
        mist_space_fini(&space);
        mist_arena_fini(&arena);
    }
    print_message("%d narrowed, %d with plans\n", n_left_out, n_found);
    assert_true(n_left_out > 30 && n_found > 15);
}

/* Finer ratios are never worse, and the bounds lose nothing within the slack. */
TEST(test_slack)
{
    static const int64_t limits[] = {INT64_MAX, 600, 300};
    int n_left_out = 0;

    for (int i = 0; i < 45; i++) {
        struct mist_space space;
        struct mist_search_result all, some;
        uint64_t seed = test_seed(SEED) + 2000 + (uint64_t)i;
        size_t n = 0;
        wanted_chunks = i % 5;
        double slack_frac = wanted_chunks > 1 ? 0.05 : 0.5;
        init_space(&space, 2 + i % 3, 4,
                   all_groups[i % N_GROUPS] | (i % 2 ? OFFLOAD : 0));
        search_within(&space, seed, limits[i % 3], INT64_MAX, 0, 1000, 2, &all);
        search_within(&space, seed, limits[i % 3], INT64_MAX, slack_frac, 1000, 2, &some);
        while (n < all.n_candidates &&
               all.candidates[n].time_s <= (1 + slack_frac) * all.candidates[0].time_s)
            n++;
        assert_int_equal(n, some.n_candidates);
        n_left_out += n < all.n_candidates;
        for (size_t k = 0; k < n; k++)
            assert_true(all.candidates[k].time_s == some.candidates[k].time_s);
        mist_search_result_fini(&some);
        mist_search_result_fini(&all);
        mist_space_fini(&space);
        wanted_chunks = 0;
    }
    assert_true(n_left_out > 20);
}

TEST(test_refinement)
{
    int n_better = 0;

    for (int i = 0; i < 40; i++) {
        double last_s = INFINITY;
        for (int32_t step = MIST_RATIO_ONE; step >= 1; step /= 2) {
            struct mist_space space;
            struct mist_search_result result;
            init_space(&space, 1 + i % 2, 2, MIST_SPACE_ALL);
            space.ratio_step = step;
            search(&space, test_seed(SEED) + 3000 + (uint64_t)i, 220, 1, 1, &result);
            double best_s =
                result.n_candidates > 0 ? result.candidates[0].time_s : last_s;
            assert_true(best_s <= last_s);
            n_better += best_s < last_s && !isinf(last_s);
            last_s = best_s;
            mist_search_result_fini(&result);
            mist_space_fini(&space);
        }
    }
    assert_true(n_better > 10);
}

/* With room for all splits, the candidates are the best plans of all splits. */
TEST(test_splits)
{
    static struct brute brute;

    for (uint64_t i = 0; i < 6; i++) {
        struct mist_space space;
        struct mist_search_result result;
        brute.seed = test_seed(SEED) + 1000 + i;
        brute.groups = ALL;
        brute.n_layers = LAYERS;
        brute.host_limit_bytes = INT64_MAX;
        brute.n_ranks = 3 + (int32_t)(i % 2);
        brute.global_batch = 4;
        brute.limit_bytes = i % 2 == 0 ? 700 : INT64_MAX;
        brute.seq_len = i % 3 == 2 ? LONG : SHORT;
        enumerate(&brute);
        init_space_of(&space, &model, brute.seq_len, brute.n_ranks, brute.global_batch,
                      brute.groups);
        search(&space, brute.seed, brute.limit_bytes, 1000, 2, &result);
        assert_int_equal(result.n_candidates, brute.n_splits);
        for (size_t k = 0; k < result.n_candidates; k++) {
            const struct mist_search_candidate *of = &result.candidates[k];
            struct split split = {.g = space.cases[of->i_case].n_micro_batches,
                                  .n_stages = of->n_stages,
                                  .cp = mist_space_cp(&of->stages[0].shape)};
            for (int32_t s = 0; s < of->n_stages; s++) {
                split.layers[s] = of->stages[s].n_layers;
                split.devices[s] = mist_space_n_devices(&of->stages[s].shape);
                assert_true(of->stages[s].peak_bytes <= brute.limit_bytes);
            }
            if (of->n_stages == 1) {
                split.tp = of->stages[0].shape.tp;
                split.sequence = of->stages[0].shape.is_sequence_parallel;
            }
            size_t found = find_split(&brute, &split);
            assert_true(found < brute.n_splits);
            assert_true(of->time_s == brute.split_s[found]);
            assert_true(k == 0 || of->time_s >= of[-1].time_s);
        }
        mist_search_result_fini(&result);
        mist_space_fini(&space);
    }
}

static double find_best(uint64_t seed, unsigned groups, int64_t limit_bytes)
{
    struct mist_space space;
    struct mist_search_result result;

    init_space(&space, 4, 4, groups);
    search(&space, seed, limit_bytes, 1, 1, &result);
    double best_s = result.n_candidates > 0 ? result.candidates[0].time_s : INFINITY;
    mist_search_result_fini(&result);
    mist_space_fini(&space);
    return best_s;
}

/* A tighter limit and fewer knobs are never faster. */
TEST(test_monotony)
{
    for (uint64_t seed = test_seed(SEED); seed < test_seed(SEED) + 10; seed++) {
        double last_s = 0;
        for (int64_t limit = 1000; limit >= 0; limit -= 50) {
            double best_s = find_best(seed, MIST_SPACE_ALL, limit);
            assert_true(best_s >= last_s);
            last_s = best_s;
        }
        assert_true(isinf(find_best(seed, MIST_SPACE_ALL, -1)));
        for (int i = 1; i < N_GROUPS; i++)
            assert_true(find_best(seed, all_groups[i], 700) >=
                        find_best(seed, MIST_SPACE_ALL, 700));
    }
}

TEST(test_threads)
{
    struct mist_space space;
    struct mist_search_result one, many;
    int64_t n_rows, n_again;

    init_space(&space, 4, 4, MIST_SPACE_ALL);
    want_rows();
    search(&space, test_seed(SEED), 700, 8, 1, &one);
    struct mist_search_row *rows = take_rows(&n_rows);
    assert_true(n_rows > 0);
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        want_rows();
        search(&space, test_seed(SEED), 700, 8, n_threads, &many);
        assert_int_equal(one.n_candidates, many.n_candidates);
        for (size_t i = 0; i < one.n_candidates; i++) {
            assert_true(one.candidates[i].time_s == many.candidates[i].time_s);
            assert_int_equal(one.candidates[i].i_case, many.candidates[i].i_case);
            for (int32_t s = 0; s < one.candidates[i].n_stages; s++) {
                const struct mist_search_choice *a = &one.candidates[i].stages[s];
                const struct mist_search_choice *b = &many.candidates[i].stages[s];
                assert_int_equal(a->n_layers, b->n_layers);
                assert_int_equal(a->knobs.n_checkpointed, b->knobs.n_checkpointed);
                assert_int_equal(a->knobs.n_lean, b->knobs.n_lean);
                assert_int_equal(a->knobs.zero, b->knobs.zero);
                assert_int_equal(a->shape.dp, b->shape.dp);
                assert_int_equal(a->shape.tp, b->shape.tp);
                assert_int_equal(a->shape.is_sequence_parallel,
                                 b->shape.is_sequence_parallel);
                assert_memory_equal(a->knobs.offload, b->knobs.offload,
                                    sizeof a->knobs.offload);
            }
        }
        struct mist_search_row *again = take_rows(&n_again);
        assert_int_equal(n_rows, n_again);
        for (int64_t i = 0; i < n_rows; i++)
            assert_true(rows[i].choice.t_s == again[i].choice.t_s &&
                        rows[i].fate == again[i].fate);
        free(again);
        mist_search_result_fini(&many);
    }
    free(rows);
    mist_search_result_fini(&one);
    mist_space_fini(&space);
}

/* The log says of every configuration what is true of it. */
TEST(test_rows)
{
    struct mist_space space;
    struct mist_search_result result;
    int64_t n_fitting = 0, n_frontier = 0, n_rows;

    init_space(&space, 4, 4, ALL);
    want_rows();
    search(&space, test_seed(SEED), 700, 2, 2, &result);
    struct mist_search_row *rows = take_rows(&n_rows);
    /* not those that ask what the memory leaves */
    assert_in_range(n_rows, 1, result.n_priced);
    for (int64_t i = 0; i < n_rows; i++) {
        const struct mist_search_row *row = &rows[i];
        bool is_dominated = false;
        n_fitting += row->choice.peak_bytes <= 700;
        n_frontier += row->fate == MIST_FATE_FRONTIER;
        assert_int_equal(row->fate == MIST_FATE_OVER_LIMIT, row->choice.peak_bytes > 700);
        if (row->choice.peak_bytes > 700)
            continue;
        for (int64_t k = 0; k < n_rows; k++) {
            const struct mist_search_row *other = &rows[k];
            if (memcmp(&other->kind, &row->kind, sizeof row->kind) != 0 ||
                other->choice.n_layers != row->choice.n_layers ||
                other->choice.peak_bytes > 700 || k == i)
                continue;
            bool is_equal = other->choice.t_s == row->choice.t_s &&
                            other->choice.d_s == row->choice.d_s;
            is_dominated = is_dominated ||
                           (other->choice.t_s <= row->choice.t_s &&
                            other->choice.d_s <= row->choice.d_s && (!is_equal || k < i));
        }
        assert_int_equal(row->fate,
                         is_dominated ? MIST_FATE_DOMINATED : MIST_FATE_FRONTIER);
    }
    assert_int_equal(n_fitting, result.n_fitting);
    assert_int_equal(n_frontier, result.n_frontier);
    free(rows);
    mist_search_result_fini(&result);
    mist_space_fini(&space);
}

/* GLPK finds what the exact solver finds. */
TEST(test_glpk)
{
    struct mist_space space;
    struct mist_search_result exact, result;
    struct mist_thread_pool *pool;
    struct mist_err err;
    uint64_t seed = test_seed(SEED);

    init_space(&space, 3, 6, MIST_SPACE_ALL);
    search(&space, seed, 800, 1, 1, &exact);
    assert_int_equal(mist_thread_pool_new(2, &pool, &err), MIST_OK);
    struct mist_search_config config = {
        .limit_bytes = 800,
        .host_limit_bytes = INT64_MAX,
        .n_best = 1,
        .solver = MIST_SOLVER_BOTH,
        .glpk_time_limit_s = 60,
        .price = price,
        .price_context = &seed,
        .pool = pool,
    };
    assert_int_equal(mist_search_run(&space, &config, &result, &err), MIST_OK);
    assert_true(result.glpk.n_cases > 3);
    assert_int_equal(result.glpk.n_optimal, result.glpk.n_cases);
    assert_int_equal(result.glpk.n_differ, 0);
    mist_search_result_fini(&result);
    config.solver = MIST_SOLVER_GLPK;
    assert_int_equal(mist_search_run(&space, &config, &result, &err), MIST_OK);
    assert_true(fabs(result.candidates[0].time_s - exact.candidates[0].time_s) <=
                1e-6 * exact.candidates[0].time_s);
    mist_search_result_fini(&result);
    mist_search_result_fini(&exact);
    mist_thread_pool_free(pool);
    mist_space_fini(&space);
}

TEST(test_stop)
{
    struct mist_space space;
    struct mist_search_result result;
    struct mist_thread_pool *pool;
    struct mist_err err;
    uint64_t seed = test_seed(SEED);
    atomic_int is_over = 1;

    init_space(&space, 3, 6, MIST_SPACE_ALL);
    assert_int_equal(mist_thread_pool_new(1, &pool, &err), MIST_OK);
    struct mist_search_config config = {
        .limit_bytes = 800,
        .host_limit_bytes = INT64_MAX,
        .n_best = 1,
        .price = price,
        .price_context = &seed,
        .pool = pool,
        .is_over = &is_over,
    };
    assert_int_equal(mist_search_run(&space, &config, &result, &err), MIST_OK);
    assert_int_equal(result.n_cases_done, 0);
    assert_int_equal(result.n_candidates, 0);
    mist_search_result_fini(&result);
    mist_thread_pool_free(pool);
    mist_space_fini(&space);
}

TEST(test_groups)
{
    struct mist_err err;
    unsigned groups = 0;

    assert_int_equal(mist_space_add_group("ckpt", &groups, &err), MIST_OK);
    assert_int_equal(groups, 1u << MIST_SPACE_CKPT);
    assert_int_equal(mist_space_add_group("4d", &groups, &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "'4d'"));
    assert_int_equal(groups, 1u << MIST_SPACE_CKPT);
    for (int i = 0; i < MIST_N_SPACE_GROUPS; i++) {
        const char *name = mist_space_group_name((enum mist_space_group)i);
        assert_int_equal(mist_space_add_group(name, &groups, &err), MIST_OK);
    }
    assert_int_equal(groups, MIST_SPACE_ALL);
}

/* Meshes on several nodes: whole nodes or equal parts of one; tp divides what it cuts. */
TEST(test_nodes)
{
    struct mist_space space;
    struct mist_job job = {.global_batch = 12, .seq_len = 8};
    struct mist_err err;
    bool has_tp = false, has_sequence = false;

    assert_int_equal(
        mist_space_init(&space, &model, &job, 12, 4, MIST_SPACE_ALL, NULL, &err),
        MIST_OK);
    for (int32_t i = 0; i < space.n_cases; i++)
        for (int32_t k = 0; k < space.cases[i].n_shapes; k++) {
            const struct mist_space_shape *shape = &space.cases[i].shapes[k];
            int32_t n = mist_space_n_devices(shape);
            assert_true(n != 3 && n != 5 && n != 6 && n <= 12);
            assert_true(shape->tp == 1 || shape->tp == 2); /* two heads */
            assert_true(space.cases[i].samples % shape->dp == 0);
            has_tp = has_tp || shape->tp == 2;
            has_sequence = has_sequence || shape->is_sequence_parallel;
            assert_true(shape->tp > 1 || !shape->is_sequence_parallel);
        }
    assert_true(space.n_cases > 0 && has_tp && has_sequence);
    mist_space_fini(&space);
    assert_int_equal(
        mist_space_init(&space, &model, &job, 0, 4, MIST_SPACE_ALL, NULL, &err),
        MIST_ERR_USAGE);
    mist_space_fini(&space);
}

TEST_MAIN(NULL, NULL)

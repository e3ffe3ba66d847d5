/*
 * The plans beside a plan, against all choices of a stage: those that are one knob apart, and
 * those that have a checkpointed layer more and a step of offloading less, or the reverse.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tests/unit/tiny_models.h"
#include "tune/neighbours.h"

#include <string.h>

enum { N_LAYERS = 3, MAX_STAGES = 2, MAX_CHOICES = 1 << 16, ROUNDS = 60 };

static struct mist_err err;

/* Everything that a stage of N_LAYERS can be, shape and layers aside. */
static struct mist_search_choice choices[MAX_CHOICES];
static int n_choices;

static void list_choices(const struct mist_space *space)
{
    static const int powers[] = {1, 9, 81, 729, 6561};
    bool has_lean = mist_space_has(space, MIST_SPACE_LEAN);
    bool offloads = mist_space_has(space, MIST_SPACE_OFFLOAD);
    int n_ckpt = mist_space_has(space, MIST_SPACE_CKPT) ? N_LAYERS + 1 : 1;
    int n_zero = mist_space_has(space, MIST_SPACE_ZERO) ? 4 : 1;

    n_choices = 0;
    for (int i = 0; i < powers[4] * n_ckpt * n_zero * 4; i++) {
        int rest = i / powers[4];
        bool can_be = true;
        struct mist_search_choice of = {.n_layers = N_LAYERS, .shape = {2, 1, false, 0}};
        for (int k = 0; k < MIST_N_OFFLOADS; k++) {
            of.knobs.offload[k] = (int8_t)(i / powers[k] % 9);
            can_be = can_be && of.knobs.offload[k] % space->ratio_step == 0 &&
                     (offloads || of.knobs.offload[k] == 0);
        }
        of.knobs.n_checkpointed = rest % n_ckpt;
        of.knobs.zero = rest / n_ckpt % n_zero;
        of.knobs.n_lean =
            rest / n_ckpt / n_zero % 2 ? N_LAYERS - of.knobs.n_checkpointed : 0;
        of.knobs.updates_on_host = rest / n_ckpt / n_zero / 2;
        can_be =
            can_be && (rest / n_ckpt / n_zero % 2 == 0 || of.knobs.n_lean > 0) &&
            (has_lean || of.knobs.n_lean == 0) &&
            (!of.knobs.updates_on_host || (space->allows_host_updates &&
                                           of.knobs.offload[MIST_OFFLOAD_OPTIMIZER] > 0));
        if (can_be) {
            assert_true(n_choices < MAX_CHOICES);
            choices[n_choices++] = of;
        }
    }
}

/* Whether a stage can become another by one knob, or a trade; ratios by a step, eighths also by
 * two. All that is not checkpointed stays lean;
 * what is updated on the host comes back with the last of its state. */
static bool is_apart(const struct mist_space *space, const struct mist_search_choice *a,
                     const struct mist_search_choice *b)
{
    bool is_lean = a->knobs.n_lean > 0, is_all = b->knobs.n_checkpointed == N_LAYERS;
    int more = b->knobs.n_checkpointed - a->knobs.n_checkpointed, ratios = 0;
    int longest = space->ratio_step == 1 ? 2 : 1;
    int n = abs(more) + abs(a->knobs.zero - b->knobs.zero);

    if (is_lean != (b->knobs.n_lean > 0) && !(is_lean && is_all))
        n++;
    for (int k = 0; k < MIST_N_OFFLOADS; k++) {
        int steps = (b->knobs.offload[k] - a->knobs.offload[k]) / space->ratio_step;
        n += steps == 0 ? 0 : abs(steps) <= longest ? 1 : abs(steps);
        ratios += (steps > 0) - (steps < 0);
    }
    if (a->knobs.updates_on_host != b->knobs.updates_on_host &&
        !(a->knobs.updates_on_host && b->knobs.offload[MIST_OFFLOAD_OPTIMIZER] == 0))
        n++;
    return n == 1 || (n == 2 && abs(more) == 1 && ratios == -more);
}

static bool is_same(const struct mist_search_choice *a,
                    const struct mist_search_choice *b)
{
    return a->knobs.n_checkpointed == b->knobs.n_checkpointed &&
           a->knobs.n_lean == b->knobs.n_lean && a->knobs.zero == b->knobs.zero &&
           a->knobs.updates_on_host == b->knobs.updates_on_host &&
           memcmp(a->knobs.offload, b->knobs.offload, sizeof a->knobs.offload) == 0;
}

/* What came: how often each choice of a stage, the others left as they were. */
struct came {
    const struct mist_search_candidate *of;
    int n[MAX_STAGES][MAX_CHOICES], n_together;
};

static enum mist_status take(void *context, const struct mist_search_candidate *candidate,
                             struct mist_err *error)
{
    struct came *came = context;
    int32_t i_changed = -1, n_changed = 0;

    (void)error;
    assert_int_equal(candidate->n_stages, came->of->n_stages);
    for (int32_t s = 0; s < candidate->n_stages; s++) {
        assert_int_equal(candidate->stages[s].n_layers, N_LAYERS);
        if (is_same(&candidate->stages[s], &came->of->stages[s]))
            continue;
        i_changed = s;
        n_changed++;
    }
    came->n_together += n_changed > 1;
    for (int i = 0; i < n_choices && n_changed == 1; i++)
        came->n[i_changed][i] += is_same(&choices[i], &candidate->stages[i_changed]);
    return MIST_OK;
}

static void check(const struct mist_space *space, const struct mist_search_candidate *of)
{
    static struct came came; /* large */
    int n_neighbours = 0;

    memset(&came, 0, sizeof came);
    came.of = of;
    must(mist_neighbours_list(space, of, take, &came, &err), &err);
    for (int32_t s = 0; s < of->n_stages; s++)
        for (int i = 0; i < n_choices; i++) {
            bool is_one = is_apart(space, &of->stages[s], &choices[i]);
            n_neighbours += is_one;
            assert_true((came.n[s][i] > 0) == is_one);
        }
    assert_true(n_neighbours > 0);
    assert_true(of->n_stages > 1 ? came.n_together > 0 : came.n_together == 0);
}

TEST(test_one_knob)
{
    const unsigned groups[] = {MIST_SPACE_ALL, MIST_SPACE_ALL & ~(1u << MIST_SPACE_LEAN),
                               MIST_SPACE_ALL & ~(1u << MIST_SPACE_OFFLOAD),
                               MIST_SPACE_ALL & ~(1u << MIST_SPACE_ZERO),
                               MIST_SPACE_ALL & ~(1u << MIST_SPACE_ZERO) &
                                   ~(1u << MIST_SPACE_LEAN)}; /* with eighths */
    enum { N_GROUPS = sizeof groups / sizeof *groups, EIGHTHS = N_GROUPS - 1 };
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2 * N_LAYERS);
    struct mist_job job = {.global_batch = 8, .seq_len = 32};
    struct mist_random random;

    mist_random_init(&random, test_seed(12));
    for (int round = 0; round < ROUNDS; round++) {
        struct mist_search_choice stages[MAX_STAGES] = {0};
        struct mist_search_candidate of = {
            .n_micro_batches = 4, .n_stages = 1 + round % MAX_STAGES, .stages = stages};
        struct mist_space space;
        int i_groups = round / 2 % N_GROUPS;
        must(mist_space_init(&space, &model, &job, 4, 4, groups[i_groups], NULL, &err),
             &err);
        space.allows_host_updates = round % 3 > 0 && i_groups != 2 && i_groups != EIGHTHS;
        space.ratio_step = i_groups == EIGHTHS ? 1
                           : round % 5 == 0    ? 2
                                               : MIST_RATIO_ONE / 2;
        list_choices(&space);
        for (int32_t s = 0; s < of.n_stages; s++)
            stages[s] = choices[mist_random_below(&random, n_choices)];
        stages[MAX_STAGES - 1] = stages[0]; /* then some knob moves in both */
        check(&space, &of);
        mist_space_fini(&space);
    }
}

TEST_MAIN(NULL, NULL)

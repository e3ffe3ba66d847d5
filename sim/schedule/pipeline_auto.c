/* Orders by playing a pipeline through. See pipeline_auto.h. */
#include "sim/schedule/pipeline_auto.h"

#include <math.h> /* llround */
#include <stdlib.h>
#include <string.h> /* memset */

enum kind { FORWARD, INPUT, WEIGHT, N_KINDS };

/* Choices that are tried. */
enum style {
    NEVER_LATE = 1,  /* no forward in front that makes the first input gradient late */
    HOLDS_BACK = 2,  /* forwards wait where the next stage is behind with them */
    FILLS_EARLY = 4, /* short gaps are filled though others wait more */
    N_STYLES = 8,
};

/* What a forward keeps, in units of memory. */
static const int64_t whole = 1 << 20;

/* Times are ticks. */
struct stage {
    int64_t takes[N_KINDS], transfer;
    int64_t keeps[N_KINDS]; /* more (or less) than before, in units of memory */
    int64_t start, clock;
    int64_t idle;       /* since its first slot */
    int64_t kept;       /* units of memory */
    int32_t n[N_KINDS]; /* slots so far */
    struct mist_slot *next;
    int32_t *ends[WEIGHT]; /* the order's: [G] of forwards, of input gradients */
};

struct trial {
    struct mist_pipeline_order *order;
    int32_t p, g;
    unsigned style;
    int64_t limit;     /* units of memory of a stage */
    int64_t most_idle; /* of a stage */
    struct stage *stages;
    int32_t *room; /* [p] for what is planned for each stage */
};

/* ------------------------------------------------------------------------------ slots */

/* When what the next slot of a kind waits for has come; 0: it waits for nothing. */
static int64_t find_arrival(const struct trial *at, int32_t i, enum kind kind)
{
    int32_t end = kind == FORWARD ? 0 : at->p - 1;
    int32_t from = kind == FORWARD ? i - 1 : i + 1;

    if (kind == WEIGHT || i == end)
        return 0;
    return at->stages[from].ends[kind][at->stages[i].n[kind]] + at->stages[from].transfer;
}

static void put(struct trial *at, int32_t i, enum kind kind)
{
    static const enum mist_slot_kind kinds[N_KINDS] = {
        MIST_SLOT_FORWARD, MIST_SLOT_BACKWARD_INPUT, MIST_SLOT_BACKWARD_WEIGHT};
    struct stage *stage = &at->stages[i];
    int64_t arrival = find_arrival(at, i, kind), before = stage->clock;

    if (arrival > before)
        stage->clock = arrival;
    if (stage->n[FORWARD] == 0)
        stage->start = stage->clock;
    else
        stage->idle += stage->clock - before;
    if (stage->idle > at->most_idle)
        at->most_idle = stage->idle;
    stage->clock += stage->takes[kind];
    stage->kept += stage->keeps[kind];
    if (kind != WEIGHT)
        stage->ends[kind][stage->n[kind]] = (int32_t)stage->clock;
    *stage->next++ =
        (struct mist_slot){.micro_batch = stage->n[kind]++,
                           .kind = kinds[kind],
                           .start = (int32_t)(stage->clock - stage->takes[kind]),
                           .end = (int32_t)stage->clock};
}

static bool has_weight(const struct stage *stage)
{
    return stage->n[WEIGHT] < stage->n[INPUT];
}

/* Weight gradients, until one more activation has room; all where there is but one stage,
 * and so no gap to keep them for. */
static void make_room(struct trial *at, int32_t i)
{
    const struct stage *stage = &at->stages[i];

    while (has_weight(stage) && (at->p == 1 || stage->kept + whole > at->limit))
        put(at, i, WEIGHT);
}

/* Weight gradients while the stage would wait for its next slot of a kind. */
static void fill_gap(struct trial *at, int32_t i, enum kind kind)
{
    struct stage *stage = &at->stages[i];
    int64_t until = find_arrival(at, i, kind);

    while (has_weight(stage) && stage->clock + stage->takes[WEIGHT] <= until)
        put(at, i, WEIGHT);
    if (has_weight(stage) && stage->clock < until &&
        (at->style & FILLS_EARLY || stage->idle + until - stage->clock > at->most_idle))
        put(at, i, WEIGHT);
}

/* ------------------------------------------------------------------------------ phases */

/* How many forwards a stage runs beside its first one, before an input gradient that
 * comes at a time; *end: of that input gradient. */
static int32_t count_in_front(const struct trial *at, const struct stage *stage,
                              int64_t comes, int64_t *end)
{
    int64_t takes = stage->takes[FORWARD], clock = stage->clock;
    int64_t kept = stage->kept;
    int32_t n = 0;

    while (1 + n < at->g && kept + whole <= at->limit &&
           (at->style & NEVER_LATE ? clock + takes <= comes : clock < comes)) {
        clock += takes;
        kept += whole;
        n++;
    }
    *end = (clock > comes ? clock : comes) + stage->takes[INPUT];
    return n;
}

/* Stages further on run fewer forwards in front, but where both run all. */
static void limit_in_front(const struct trial *at, int32_t *in_front)
{
    for (int32_t i = 1; i < at->p; i++) {
        int32_t before = in_front[i - 1];
        bool have_all = before + 1 == at->g && in_front[i] + 1 == at->g;
        if (in_front[i] >= before && !have_all)
            in_front[i] = before > 0 ? before - 1 : 0;
    }
}

/* All that comes before the second input gradient. */
static void warm_up(struct trial *at)
{
    int32_t *in_front = at->room;
    int64_t end = 0;

    for (int32_t i = 0; i < at->p; i++)
        put(at, i, FORWARD);
    for (int32_t i = at->p - 1; i >= 0; i--) {
        bool is_last = i == at->p - 1;
        int64_t comes = is_last ? 0 : end + at->stages[i + 1].transfer;
        in_front[i] = count_in_front(at, &at->stages[i], comes, &end);
    }
    limit_in_front(at, in_front);
    for (int32_t i = 0; i < at->p; i++)
        for (int32_t k = 0; k < in_front[i]; k++)
            put(at, i, FORWARD);
    for (int32_t i = at->p - 1; i >= 0; i--)
        put(at, i, INPUT);
}

/* Whether a forward had better wait: the next stage would not take it up at once, and
 * there is nothing to win by it. */
static bool holds_back(const struct trial *at, int32_t i)
{
    const struct stage *stage = &at->stages[i], *next = stage + 1;
    int64_t room = at->limit - stage->kept - whole, ends = stage->clock;

    if (i + 1 == at->p || stage->n[FORWARD] < next->n[FORWARD] + 2)
        return false;
    int64_t wanted =
        next->clock + next->takes[FORWARD] + next->takes[INPUT] + next->transfer;
    if (stage->clock >= wanted)
        return true;
    for (int32_t k = stage->n[WEIGHT]; room < 0 && k < stage->n[INPUT]; k++) {
        room -= stage->keeps[WEIGHT];
        ends += stage->takes[WEIGHT];
    }
    return ends + stage->takes[FORWARD] > wanted &&
           wanted - stage->clock <= at->most_idle - stage->idle;
}

/* One forward of each stage but where it is held back, one input gradient of each. */
static void run_round(struct trial *at)
{
    int32_t *runs = at->room;

    for (int32_t i = 0; i < at->p; i++)
        runs[i] = at->stages[i].n[FORWARD] < at->g &&
                  !(at->style & HOLDS_BACK && holds_back(at, i));
    for (int32_t i = at->p - 2; i >= 0; i--)
        runs[i] = runs[i] && runs[i + 1];
    for (int32_t i = 0; i < at->p; i++)
        if (runs[i]) {
            make_room(at, i);
            fill_gap(at, i, FORWARD);
            put(at, i, FORWARD);
        }
    for (int32_t i = at->p - 1; i >= 0; i--) {
        struct stage *stage = &at->stages[i];
        fill_gap(at, i, INPUT);
        while (i == 0 && stage->n[FORWARD] == at->g && has_weight(stage))
            put(at, i, WEIGHT); /* no other stage waits for it */
        put(at, i, INPUT);
    }
}

/* What a trial came to; less is better. */
struct outcome {
    int64_t longest; /* of a stage from its first slot to its last */
    int64_t end;
};

static struct outcome play(struct trial *at)
{
    struct outcome outcome = {0};

    at->most_idle = 0;
    for (int32_t i = 0; i < at->p; i++) {
        struct stage *stage = &at->stages[i];
        stage->start = stage->clock = stage->idle = stage->kept = 0;
        memset(stage->n, 0, sizeof stage->n);
        stage->next = at->order->slots + (size_t)i * (size_t)at->order->n_slots;
    }
    warm_up(at);
    for (int32_t k = 1; k < at->g; k++)
        run_round(at);
    for (int32_t i = 0; i < at->p; i++) {
        const struct stage *stage = &at->stages[i];
        while (has_weight(stage))
            put(at, i, WEIGHT);
        if (stage->clock - stage->start > outcome.longest)
            outcome.longest = stage->clock - stage->start;
        if (stage->clock > outcome.end)
            outcome.end = stage->clock;
    }
    return outcome;
}

/* ------------------------------------------------------------------------- life cycle */

/* Microseconds of a tick: 1, or more where that is needed for the clock to fit 31 bits,
 * even if all slots came one after the other. */
static int64_t tick_us(const struct mist_pipeline_pass *passes, int32_t p, int32_t g)
{
    int64_t sum_us = 0;

    for (int32_t i = 0; i < p; i++)
        sum_us += (int64_t)passes[i].forward_us + passes[i].input_us +
                  passes[i].weight_us + 2 * (int64_t)passes[i].transfer_us;
    return 1 + sum_us / ((1 << 30) / g + 1);
}

static int64_t to_ticks(int32_t time_us, int64_t tick)
{
    return time_us < tick ? 1 : time_us / tick;
}

static void init_stage(struct trial *at, int32_t i, const struct mist_pipeline_pass *pass,
                       int64_t tick)
{
    struct mist_pipeline_order *order = at->order;
    int64_t freed = llround(pass->freed_frac * (double)whole);
    size_t first = (size_t)i * (size_t)order->n_micro_batches;

    at->stages[i] = (struct stage){
        .takes = {to_ticks(pass->forward_us, tick), to_ticks(pass->input_us, tick),
                  to_ticks(pass->weight_us, tick)},
        .transfer = pass->transfer_us / tick,
        .keeps = {whole, -freed, freed - whole},
        .ends = {order->end_forward + first, order->end_backward + first},
    };
}

/* The style of the best order. */
static unsigned choose(const struct outcome *outcomes)
{
    int64_t end = INT64_MAX, longest = INT64_MAX;
    unsigned best = 0;

    for (unsigned i = 0; i < N_STYLES; i++)
        end = outcomes[i].end < end ? outcomes[i].end : end;
    for (unsigned i = 0; i < N_STYLES; i++)
        if (outcomes[i].end - end <= end / 10000 && outcomes[i].longest < longest) {
            longest = outcomes[i].longest;
            best = i;
        }
    return best;
}

enum mist_status mist_pipeline_auto_fill(struct mist_pipeline_order *order,
                                         const struct mist_pipeline_pass *passes,
                                         struct mist_err *err)
{
    int32_t p = order->n_stages, g = order->n_micro_batches;
    struct trial at = {.order = order,
                       .p = p,
                       .g = g,
                       .limit = mist_pipeline_kinds[order->schedule].n_kept_per_stage *
                                p * whole,
                       .stages = calloc((size_t)p, sizeof *at.stages),
                       .room = calloc((size_t)p, sizeof *at.room)};
    struct outcome outcomes[N_STYLES];
    enum mist_status status = MIST_OK;

    if (at.stages && at.room) {
        for (int32_t i = 0; i < p; i++)
            init_stage(&at, i, &passes[i], tick_us(passes, p, g));
        for (at.style = 0; at.style < N_STYLES; at.style++)
            outcomes[at.style] = play(&at);
        at.style = choose(outcomes);
        play(&at);
    } else {
        status = mist_err_memory(err, NULL);
    }
    free(at.stages);
    free(at.room);
    return status;
}

/* Packs sequences into samples. See packing.h. */
#include "sim/replay/packing.h"

#include "core/memory.h" /* mist_grow */
#include "core/order.h"

#include <stdlib.h>

const char *const mist_packing_names[MIST_N_PACKINGS + 1] = {"none", "pad", "first-fit",
                                                             "sorted", NULL};

struct packing {
    const struct mist_lengths *lengths;
    uint64_t seed, n_drawn;
    int32_t seq_len;
    int64_t n_slots;         /* samples of an iteration */
    int32_t n_alike;         /* pad: so many samples in a row have one length */
    struct mist_load *slots; /* [n_slots] of this iteration */
    int32_t *pool;           /* lengths of sequences that wait to be packed */
    size_t n_pool, pool_capacity;
    /* Room of the slots as a tree: node k has the largest of nodes 2k and 2k + 1, leaf
     * n_leaves + i that of slot i. */
    int32_t *room;
    int64_t n_leaves;
    struct mist_loads *out;
};

static int32_t draw(struct packing *at)
{
    return mist_lengths_draw(at->lengths, at->seed, at->n_drawn++);
}

static int32_t cut(const struct packing *at, int32_t length)
{
    return length < at->seq_len ? length : at->seq_len;
}

static void put(struct packing *at, int64_t i_slot, int32_t length)
{
    at->out->n_cut += length > at->seq_len;
    length = cut(at, length);
    at->slots[i_slot].tokens += length;
    at->slots[i_slot].squares += (double)length * length;
    at->out->packed.tokens += length;
    at->out->packed.squares += (double)length * length;
    at->out->n_sequences++;
}

/* ------------------------------------------------------------------- one sequence each */

static void fill_apart(struct packing *at)
{
    for (int64_t i = 0; i < at->n_slots; i++)
        put(at, i, draw(at));
}

static void pad(struct packing *at)
{
    for (int64_t i = 0; i < at->n_slots; i += at->n_alike) {
        struct mist_load most = {0};
        for (int64_t k = i; k < i + at->n_alike; k++)
            most = at->slots[k].tokens > most.tokens ? at->slots[k] : most;
        for (int64_t k = i; k < i + at->n_alike; k++)
            at->slots[k] = most;
    }
}

/* -------------------------------------------------------------------- several together */

/* The pool gets what the slots' tokens have room for together. */
static bool fill_pool(struct packing *at)
{
    int64_t left = at->n_slots * at->seq_len;

    for (size_t i = 0; i < at->n_pool; i++)
        left -= cut(at, at->pool[i]);
    for (;;) {
        int32_t length = draw(at);
        if (cut(at, length) > left) {
            at->n_drawn--;
            return true;
        }
        if (!MIST_APPEND(at->pool, at->pool_capacity, at->n_pool, length))
            return false;
        left -= cut(at, length);
    }
}

MIST_COMPARATOR_OF(compare_falling, int32_t, MIST_COMPARE(*b, *a))

static void set_room(struct packing *at, int64_t i_slot, int32_t room)
{
    int64_t k = at->n_leaves + i_slot;

    at->room[k] = room;
    for (k /= 2; k >= 1; k /= 2)
        at->room[k] =
            at->room[2 * k] > at->room[2 * k + 1] ? at->room[2 * k] : at->room[2 * k + 1];
}

/* The first slot with room; -1: none. */
static int64_t find_room(const struct packing *at, int32_t length)
{
    int64_t k = 1;

    if (at->room[1] < length)
        return -1;
    while (k < at->n_leaves)
        k = at->room[2 * k] >= length ? 2 * k : 2 * k + 1;
    return k - at->n_leaves;
}

/* What finds no room stays in the pool. */
static void pack_pool(struct packing *at)
{
    size_t n_left = 0;

    for (int64_t k = 2 * at->n_leaves - 1; k >= 1; k--)
        at->room[k] = k < at->n_leaves                 ? at->room[2 * k]
                      : k - at->n_leaves < at->n_slots ? at->seq_len
                                                       : 0;
    for (size_t i = 0; i < at->n_pool; i++) {
        int32_t length = cut(at, at->pool[i]);
        int64_t i_slot = find_room(at, length);
        if (i_slot < 0) {
            at->pool[n_left++] = at->pool[i];
            continue;
        }
        put(at, i_slot, at->pool[i]);
        set_room(at, i_slot, at->room[at->n_leaves + i_slot] - length);
    }
    at->n_pool = n_left;
}

/* ---------------------------------------------------------------------------- iterations */

static bool pack(struct packing *at, enum mist_packing packing)
{
    for (int64_t i = 0; i < at->n_slots; i++)
        at->slots[i] = (struct mist_load){0};
    if (packing == MIST_PACKING_NONE || packing == MIST_PACKING_PAD) {
        fill_apart(at);
        if (packing == MIST_PACKING_PAD)
            pad(at);
        return true;
    }
    if (!fill_pool(at))
        return false;
    if (packing == MIST_PACKING_SORTED && at->pool)
        qsort(at->pool, at->n_pool, sizeof *at->pool, compare_falling);
    pack_pool(at);
    return true;
}

static void add_sums(const struct packing *at, struct mist_load *sums)
{
    const struct mist_loads *out = at->out;

    for (int64_t i = 0; i < at->n_slots; i++) {
        if (i % out->n_samples == 0)
            *sums++ = (struct mist_load){0};
        sums[0] = (struct mist_load){sums[-1].tokens + at->slots[i].tokens,
                                     sums[-1].squares + at->slots[i].squares};
        sums++;
    }
}

static void find_mean(struct mist_loads *out)
{
    double n = (double)out->n_iterations * out->n_micro_batches * out->n_samples;
    double length = out->seq_len;
    const struct mist_load *last = out->sums + out->n_samples; /* of a micro-batch */

    for (int64_t i = 0; i < (int64_t)out->n_iterations * out->n_micro_batches; i++) {
        out->mean.tokens += last->tokens;
        out->mean.squares += last->squares;
        last += out->n_samples + 1;
    }
    out->mean.tokens /= n * length;
    out->mean.squares /= n * length * length;
}

/* Samples of a rank's micro-batch, or those of so many ranks as hold whole micro-batches of
 * ranks in every stage. */
static int32_t count_alike(const struct mist_plan *plan, int32_t n_samples)
{
    int32_t common = plan->stages[0].dp; /* greatest divisor of all dp */

    for (int32_t i = 1; i < plan->n_stages; i++) {
        int32_t a = plan->stages[i].dp, b = common;
        while (b > 0) {
            int32_t rest = a % b;
            a = b;
            b = rest;
        }
        common = a;
    }
    return n_samples / common;
}

enum mist_status mist_loads_make(const struct mist_plan *plan,
                                 const struct mist_lengths *lengths,
                                 enum mist_packing packing, uint64_t seed,
                                 int32_t n_iterations, struct mist_loads *out,
                                 struct mist_err *err)
{
    struct mist_loads loads = {
        .n_iterations = n_iterations,
        .n_micro_batches = plan->n_micro_batches,
        .n_samples = plan->stages[0].micro_batch * plan->stages[0].dp,
        .seq_len = plan->job.seq_len,
    };
    struct packing at = {
        .lengths = lengths,
        .seed = seed,
        .seq_len = plan->job.seq_len,
        .n_slots = (int64_t)loads.n_micro_batches * loads.n_samples,
        .n_alike = count_alike(plan, loads.n_samples),
        .n_leaves = 1,
        .out = &loads,
    };
    size_t n_sums = (size_t)(at.n_slots + loads.n_micro_batches);

    while (at.n_leaves < at.n_slots)
        at.n_leaves *= 2;
    bool has_memory = MIST_CALLOC(loads.sums, (size_t)n_iterations * n_sums) &&
                      MIST_CALLOC(at.slots, at.n_slots) &&
                      MIST_CALLOC(at.room, 2 * (size_t)at.n_leaves);
    for (int32_t i = 0; i < n_iterations && has_memory; i++) {
        has_memory = pack(&at, packing);
        if (has_memory)
            add_sums(&at, loads.sums + (size_t)i * n_sums);
    }
    free(at.slots);
    free(at.room);
    free(at.pool);
    if (!has_memory) {
        free(loads.sums);
        return mist_err_memory(err, NULL);
    }
    find_mean(&loads);
    *out = loads;
    return MIST_OK;
}

void mist_loads_fini(struct mist_loads *loads)
{
    free(loads->sums);
    *loads = (struct mist_loads){0};
}

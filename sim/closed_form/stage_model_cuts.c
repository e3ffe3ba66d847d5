/*
 * What offload ratios come to: whole tensors, as module_storage.h decides block by block.
 *
 * A stage of L blocks at a ratio offloads what the first L blocks of a long row do, and a
 * row repeats itself: checkpointed blocks, which have one tensor each, leave the same
 * difference to a ratio in eighths behind after eight of them. So a few rows tell all
 * stages of a shape, and a configuration is looked up.
 */
#include "sim/closed_form/stage_model_internal.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/schedule/memory_planner.h"

#include <math.h> /* fmax */
#include <stdlib.h>

enum { ONE = 8 /* a ratio of 1, in eighths */, N_RATIOS = ONE + 1 };

struct mist_stage_cuts {
    int32_t n;                     /* blocks at most */
    double input, all;             /* bytes: a block's input; all that it keeps */
    double most_away[N_RATIOS][2]; /* ONE_..., TWO_... */
    double *away;                  /* [N_RATIOS][n + 1] SHARE_... by blocks */
    double *inputs; /* [N_RATIOS][n + 1] bytes of so many checkpointed blocks' inputs on
                       the device */
    double *kept; /* [N_RATIOS][ONE][n + 1] bytes of so many blocks that keep all, behind
                       so many checkpointed ones (modulo ONE), on the device */
};

/* A row of blocks: what each has in the host. */
struct row {
    int32_t n;
    const struct mist_layer_layout *block;
    int64_t *away_elements;              /* [n] */
    struct mist_module_storage *storage; /* [n + ONE] */
};

static double in_arena(int64_t size_bytes)
{
    return (double)mist_align_up(size_bytes, MIST_BUFFER_ALIGNMENT);
}

static void note_params(struct mist_stage_cuts *cuts, struct row *row, int ratio)
{
    double *away = cuts->away + (size_t)ratio * (size_t)(cuts->n + 1);
    double sum = 0, before = 0, matrices, *most = cuts->most_away[ratio];

    mist_storage_cut_params(row->block, 1, 1, row->away_elements);
    matrices = (double)row->away_elements[0];
    mist_storage_cut_params(row->block, ratio / (double)ONE, row->n, row->away_elements);
    for (int32_t i = 0; i < row->n; i++) {
        double now = (double)row->away_elements[i];
        sum += now;
        away[i + 1] = sum / (matrices * (i + 1));
        most[0] = fmax(most[0], now / matrices);
        most[1] = fmax(most[1], (before + now) / (2 * matrices));
        before = now;
    }
}

/* Behind so many checkpointed blocks. */
static void note_kept(struct mist_stage_cuts *cuts, struct row *row, int ratio,
                      int32_t n_checkpointed)
{
    double *kept =
        cuts->kept + (size_t)(ratio * ONE + n_checkpointed) * (size_t)(cuts->n + 1);
    double sum = 0;

    mist_storage_cut_kept(row->block, ratio / (double)ONE, n_checkpointed,
                          n_checkpointed + row->n, row->storage);
    for (int32_t i = 0; i < row->n; i++) {
        const struct mist_module_storage *of = &row->storage[n_checkpointed + i];
        sum += (of->swaps_input ? 0 : cuts->input) + in_arena(of->saved_bytes[0]);
        kept[i + 1] = sum;
    }
}

static void note_inputs(struct mist_stage_cuts *cuts, struct row *row, int ratio)
{
    double *inputs = cuts->inputs + (size_t)ratio * (size_t)(cuts->n + 1);

    mist_storage_cut_kept(row->block, ratio / (double)ONE, row->n, row->n, row->storage);
    for (int32_t i = 0; i < row->n; i++)
        inputs[i + 1] = inputs[i] + (row->storage[i].swaps_input ? 0 : cuts->input);
}

struct mist_stage_cuts *mist_stage_cuts_new(const struct mist_layer_layout *block,
                                            int32_t n_layers)
{
    size_t n = (size_t)(n_layers < 1 ? 1 : n_layers), length = n + 1;
    size_t n_doubles = (size_t)N_RATIOS * (2 + ONE) * length;
    struct mist_stage_cuts *cuts = calloc(1, sizeof *cuts + n_doubles * sizeof(double));
    struct row row = {
        .n = (int32_t)n,
        .block = block,
        .away_elements = calloc(n, sizeof *row.away_elements),
        .storage = calloc(n + ONE, sizeof *row.storage),
    };

    if (cuts && row.away_elements && row.storage) {
        cuts->n = (int32_t)n;
        cuts->input = in_arena(block->input_bytes);
        cuts->all = cuts->input + in_arena(block->saved_bytes);
        cuts->away = (double *)(cuts + 1);
        cuts->inputs = cuts->away + N_RATIOS * length;
        cuts->kept = cuts->inputs + N_RATIOS * length;
        for (int ratio = 0; ratio < N_RATIOS; ratio++) {
            note_params(cuts, &row, ratio);
            note_inputs(cuts, &row, ratio);
            for (int32_t i = 0; i < ONE; i++)
                note_kept(cuts, &row, ratio, i);
        }
    } else {
        free(cuts);
        cuts = NULL;
    }
    free(row.away_elements);
    free(row.storage);
    return cuts;
}

/* ---------------------------------------------------------------------------- look-up */

/* A column, or one value again and again. */
struct series {
    const double *values;
    size_t step;
};

static struct series series_of(const struct mist_tape_input *input, size_t first)
{
    return input->column ? (struct series){input->column + first, 1}
                         : (struct series){&input->value, 0};
}

static void look_up_params(const struct mist_stage_cuts *cuts,
                           const struct mist_tape_input *columns, size_t first, size_t n,
                           int quantity, double *const out[MIST_STAGE_N_CUTS])
{
    struct series layers = series_of(&columns[MIST_STAGE_LAYERS], first);
    struct series ratios =
        series_of(&columns[MIST_STAGE_OFFLOAD_WEIGHTS + quantity], first);
    double *mean = out[MIST_STAGE_CUT_SHARE_WEIGHTS + quantity];
    double *one = out[MIST_STAGE_CUT_ONE_WEIGHTS + quantity];
    double *two = out[MIST_STAGE_CUT_TWO_WEIGHTS + quantity];
    size_t length = (size_t)cuts->n + 1;

    for (size_t i = 0; i < n; i++) {
        int32_t n_layers = (int32_t)layers.values[i * layers.step];
        int ratio = (int)(ratios.values[i * ratios.step] * ONE);
        n_layers = n_layers < cuts->n ? n_layers : cuts->n;
        mean[i] = cuts->away[(size_t)ratio * length + (size_t)n_layers];
        one[i] = cuts->most_away[ratio][0];
        two[i] = cuts->most_away[ratio][1];
    }
}

/* What leaves for the host of block i from the end, of so many that keep all behind so
 * many checkpointed ones. */
static double swapped(const struct mist_stage_cuts *cuts, const double *inputs,
                      int32_t n_checkpointed, const double *kept, int32_t n_kept,
                      int32_t i)
{
    int32_t below = n_kept - i;

    if (below > 0) /* in two buffers, where it is one otherwise */
        return fmax(0, cuts->all - kept[below] + kept[below - 1] + MIST_BUFFER_ALIGNMENT);
    below += n_checkpointed;
    return below > 0 ? cuts->input - inputs[below] + inputs[below - 1] : 0;
}

static void look_up_kept(const struct mist_stage_cuts *cuts,
                         const struct mist_tape_input *columns, size_t first, size_t n,
                         double *const out[MIST_STAGE_N_CUTS])
{
    struct series layers = series_of(&columns[MIST_STAGE_LAYERS], first);
    struct series checkpointed = series_of(&columns[MIST_STAGE_CHECKPOINTED], first);
    struct series ratios = series_of(&columns[MIST_STAGE_OFFLOAD_ACTIVATIONS], first);
    size_t length = (size_t)cuts->n + 1;

    for (size_t i = 0; i < n; i++) {
        int32_t again = (int32_t)checkpointed.values[i * checkpointed.step];
        int32_t whole = (int32_t)layers.values[i * layers.step] - again;
        size_t ratio = (size_t)(ratios.values[i * ratios.step] * ONE);
        again = again < cuts->n ? again : cuts->n;
        whole = whole < cuts->n ? whole : cuts->n;
        const double *inputs = cuts->inputs + ratio * length;
        const double *kept = cuts->kept + (ratio * ONE + (size_t)again % ONE) * length;
        out[MIST_STAGE_CUT_KEPT][i] = inputs[again] + kept[whole];
        for (int32_t k = 0; k < 3; k++)
            out[MIST_STAGE_CUT_SWAPPED_0 + k][i] =
                ratio > 0 ? swapped(cuts, inputs, again, kept, whole, k) : 0;
    }
}

void mist_stage_cuts_look_up(const struct mist_stage_cuts *cuts,
                             const struct mist_tape_input columns[MIST_STAGE_N_COLUMNS],
                             size_t first, size_t n, double *const out[MIST_STAGE_N_CUTS])
{
    for (int quantity = 0; quantity < 3; quantity++)
        look_up_params(cuts, columns, first, n, quantity, out);
    look_up_kept(cuts, columns, first, n, out);
}

/* Labels of plans. See plan_label.h. */
#include "tune/plan_label.h"

#include "core/parse.h"
#include "tune/space.h" /* names of what is offloaded */

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A word more. */
#define ADD(text, ...) mist_text_add(text, MIST_PLAN_LABEL_BYTES, " ", __VA_ARGS__)

/* "ow.5" for half of the weights, or without the size "ow". */
static void add_ratio(char *text, const char *name, double frac, bool has_size)
{
    char number[24];

    if (!(frac > 0))
        return;
    snprintf(number, sizeof number, "%.3g", frac);
    ADD(text, "o%c%s", name[0], !has_size ? "" : number[0] == '0' ? number + 1 : number);
}

static char *write_label(const struct mist_plan *plan, bool has_sizes,
                         char text[MIST_PLAN_LABEL_BYTES])
{
    struct mist_stage_plan most = {0};

    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        most.zero = stage->zero > most.zero ? stage->zero : most.zero;
        most.dp = stage->dp > most.dp ? stage->dp : most.dp;
        most.tp = stage->tp > most.tp ? stage->tp : most.tp;
        most.cp = stage->cp > most.cp ? stage->cp : most.cp;
        most.is_sequence_parallel |= stage->is_sequence_parallel;
        most.n_checkpointed += stage->n_checkpointed;
        most.n_lean += stage->n_lean;
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            most.offload_frac[k] = fmax(most.offload_frac[k], stage->offload_frac[k]);
        most.updates_on_host |= stage->updates_on_host;
    }
    text[0] = '\0';
    if (plan->n_stages > 1)
        ADD(text, "S%d", (int)plan->n_stages);
    if (most.dp > 1)
        ADD(text, "dp%d", (int)most.dp);
    if (most.cp > 1)
        ADD(text, "cp%d", (int)most.cp);
    if (most.tp > 1)
        ADD(text, "tp%d", (int)most.tp);
    if (most.is_sequence_parallel)
        ADD(text, "sp");
    if (most.zero > 0)
        ADD(text, "z%d", (int)most.zero);
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        add_ratio(text, mist_offload_names[k], most.offload_frac[k], has_sizes);
    if (most.updates_on_host)
        ADD(text, "uh");
    if (most.n_checkpointed > 0)
        ADD(text, "ck");
    if (plan->job.recomputes_attention)
        ADD(text, "sel");
    if (most.n_lean > 0)
        ADD(text, "ln");
    if (plan->pipeline != MIST_PIPELINE_1F1B)
        ADD(text, "%s", mist_pipeline_words[plan->pipeline]);
    if (text[0] == '\0')
        ADD(text, "S1");
    return text;
}

char *mist_plan_label(const struct mist_plan *plan, char text[MIST_PLAN_LABEL_BYTES])
{
    return write_label(plan, true, text);
}

char *mist_plan_kind(const struct mist_plan *plan, char text[MIST_PLAN_LABEL_BYTES])
{
    return write_label(plan, false, text);
}

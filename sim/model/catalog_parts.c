/*
 * Cuts programs into parts at their communication steps. See struct mist_part in
 * catalog.h.
 *
 * Computation runs in its order on one stream, communication in its order on another. A
 * communication waits for all computation before it. A computation part waits for the
 * latest communication that one of its steps shares an operand with, and with it for all
 * communication before; it ends in front of the first step that would make it wait for
 * more. So a weight gradient right behind a communication that it has nothing to do with
 * runs beside it.
 */
#include "sim/model/catalog_internal.h"

#include <assert.h>
#include <string.h>

static bool has_operand(const struct mist_step *step, int8_t id)
{
    return memchr(step->operands, id, sizeof step->operands) != NULL;
}

static bool shares_operand(const struct mist_step *a, const struct mist_step *b)
{
    for (int k = 0; k < MIST_MAX_OPERANDS; k++)
        if (a->operands[k] >= 0 && has_operand(b, a->operands[k]))
            return true;
    return false;
}

/* The latest communication part so far that shares an operand with the step; -1 none. */
static int32_t latest_shared(const struct mist_program *program,
                             const struct mist_step *steps, const struct mist_step *step)
{
    for (int32_t i = program->n_parts - 1; i >= 0; i--)
        if (program->parts[i].is_communication &&
            shares_operand(&steps[program->parts[i].first_step], step))
            return i;
    return -1;
}

static int32_t latest_computation(const struct mist_program *program)
{
    int32_t i = program->n_parts - 1;

    while (i >= 0 && program->parts[i].is_communication)
        i--;
    return i;
}

/* Cuts steps first .. first + n - 1 into parts. */
static void cut_program(const struct mist_step *steps, int32_t first, int32_t n,
                        struct mist_program *out)
{
    int32_t waited = -1; /* latest communication that computation so far waits for */

    *out = (struct mist_program){.n_steps = n};
    for (int32_t i = first; i < first + n; i++) {
        struct mist_part *last = out->n_parts ? &out->parts[out->n_parts - 1] : NULL;
        bool is_communication = mist_op_is_communication(steps[i].op);
        int32_t waits_for = is_communication ? latest_computation(out)
                                             : latest_shared(out, steps, &steps[i]);
        if (!last || is_communication || last->is_communication || waits_for > waited) {
            assert(out->n_parts < MIST_MAX_PARTS);
            last = &out->parts[out->n_parts++];
            *last = (struct mist_part){(int16_t)i, 0, is_communication, -1};
        }
        last->n_steps++;
        last->waits_for =
            (int8_t)(waits_for > last->waits_for ? waits_for : last->waits_for);
        if (!is_communication && waits_for > waited)
            waited = waits_for;
    }
}

int32_t mist_program_communication_end(const struct mist_program *program, int32_t i_part,
                                       int32_t n_steps)
{
    for (int32_t i = i_part + 1; i < program->n_parts; i++)
        if (!program->parts[i].is_communication && program->parts[i].waits_for >= i_part)
            return program->parts[i].first_step - 1;
    return n_steps - 1;
}

/* --------------------------------------------------------------------------- programs */

static int32_t count_recompute(const struct mist_layer_layout *layout)
{
    int32_t n = layout->shape.repeats_all ? layout->n_forward : 0;

    for (int32_t i = n; i < layout->n_forward; i++)
        for (int k = 0; k < mist_op_n_written(layout->forward[i].op, MIST_PHASE_FORWARD);
             k++)
            if (layout->tensors[layout->forward[i].operands[k]].tensor_class ==
                MIST_TENSOR_SAVED)
                n = i + 1;
    return n;
}

static int32_t count_evaluate(const struct mist_layer_layout *layout)
{
    for (int32_t i = 0; i < layout->n_forward; i++)
        if (mist_op_has_losses(layout->forward[i].op))
            return i + 1;
    return layout->n_forward;
}

/* A weight gradient, or the gather of what only weight gradients read. */
static bool belongs_to_weights(const struct mist_step *steps, int32_t n, int32_t i_step)
{
    const struct mist_step *step = &steps[i_step];

    if (step->op != MIST_OP_TP_ALL_GATHER)
        return step->phase == MIST_PHASE_BACKWARD_WEIGHT;
    for (int32_t i = 0; i < n; i++)
        if (i != i_step && has_operand(&steps[i], step->operands[MIST_ARG_OUT]) &&
            steps[i].phase != MIST_PHASE_BACKWARD_WEIGHT)
            return false;
    return true;
}

/* Input gradients first, weight gradients behind; returns how many the first are. */
static int32_t split_backward(struct mist_step *steps, int32_t n)
{
    struct mist_step weights[MIST_MAX_STEPS];
    bool is_weight[MIST_MAX_STEPS];
    int32_t n_inputs = 0, n_weights = 0;

    for (int32_t i = 0; i < n; i++)
        is_weight[i] = belongs_to_weights(steps, n, i);
    for (int32_t i = 0; i < n; i++) {
        if (is_weight[i])
            weights[n_weights++] = steps[i];
        else
            steps[n_inputs++] = steps[i];
    }
    /* cppcheck-suppress uninitvar ; n_weights of them are set */
    memcpy(steps + n_inputs, weights, (size_t)n_weights * sizeof *weights);
    return n_inputs;
}

void mist_layout_cut_programs(struct mist_layer_layout *layout)
{
    struct mist_program *programs = layout->programs;
    int32_t n = layout->n_backward;

    cut_program(layout->forward, 0, layout->n_forward, &programs[MIST_PROGRAM_FORWARD]);
    cut_program(layout->forward, 0, count_recompute(layout),
                &programs[MIST_PROGRAM_RECOMPUTE]);
    cut_program(layout->forward, 0, count_evaluate(layout),
                &programs[MIST_PROGRAM_EVALUATE]);
    cut_program(layout->forward, layout->n_forward, layout->n_remake,
                &programs[MIST_PROGRAM_REMAKE]);
    if (!layout->shape.splits_backward) {
        cut_program(layout->backward, 0, n, &programs[MIST_PROGRAM_BACKWARD]);
        return;
    }
    int32_t n_inputs = split_backward(layout->backward, n);
    cut_program(layout->backward, 0, n_inputs, &programs[MIST_PROGRAM_BACKWARD_INPUT]);
    cut_program(layout->backward, n_inputs, n - n_inputs,
                &programs[MIST_PROGRAM_BACKWARD_WEIGHT]);
}

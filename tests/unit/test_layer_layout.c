/*
 * Programs, parts and scratch of a layout by brute force: which part is surely over when
 * another starts is computed as a relation over all pairs of parts; then every two uses
 * of a tensor that do not commute, and every two pieces of scratch that share bytes, must
 * be in order.
 */
#include "tests/unit/test.h"

#include "exec/operators/cpu_kernels.h" /* workspace sizes */
#include "sim/model/catalog.h"
#include "tests/unit/attention_workspace.h"
#include "tests/unit/catalog_cases.h"

/* Parts of one program, or of two that run one after the other. */
struct order {
    const struct mist_step *steps;
    int32_t n_steps, n_parts;
    int32_t part_of[MIST_MAX_STEPS];
    bool is_before[2 * MIST_MAX_PARTS][2 * MIST_MAX_PARTS];
};

/* Adds a program; all of what is there already is over when it starts. */
static void add_program(struct order *at, const struct mist_program *program)
{
    int32_t first = at->n_parts;

    for (int32_t i = 0; i < program->n_parts; i++) {
        const struct mist_part *part = &program->parts[i];
        int32_t id = first + i;
        for (int32_t k = 0; k < first; k++)
            at->is_before[k][id] = true;
        for (int32_t k = 0; k < i; k++) /* parts of a sort run in their order */
            if (program->parts[k].is_communication == part->is_communication)
                at->is_before[first + k][id] = true;
        if (part->waits_for >= 0)
            at->is_before[first + part->waits_for][id] = true;
        assert_int_equal(part->first_step, at->n_steps);
        for (int32_t k = 0; k < part->n_steps; k++)
            at->part_of[at->n_steps++] = id;
    }
    at->n_parts += program->n_parts;
    for (int32_t k = 0; k < at->n_parts; k++)
        for (int32_t i = 0; i < at->n_parts; i++)
            for (int32_t j = 0; j < at->n_parts; j++)
                if (at->is_before[i][k] && at->is_before[k][j])
                    at->is_before[i][j] = true;
}

/* Whether step i is over when step j starts. */
static bool is_over(const struct order *at, int32_t i, int32_t j)
{
    int32_t a = at->part_of[i], b = at->part_of[j];

    return a == b ? i < j : at->is_before[a][b];
}

static void order_of(const struct mist_layer_layout *layout, bool is_backward,
                     struct order *out)
{
    *out = (struct order){.steps = is_backward ? layout->backward : layout->forward};
    if (!is_backward) {
        add_program(out, &layout->programs[MIST_PROGRAM_FORWARD]);
        return;
    }
    add_program(out, &layout->programs[MIST_PROGRAM_BACKWARD]);
    add_program(out, &layout->programs[MIST_PROGRAM_BACKWARD_INPUT]);
    add_program(out, &layout->programs[MIST_PROGRAM_BACKWARD_WEIGHT]);
}

/* --------------------------------------------------------------------------- programs */

static void check_programs(const struct mist_model *m,
                           const struct mist_layer_layout *layout)
{
    const struct mist_program *programs = layout->programs;
    bool is_split = layout->shape.splits_backward;
    int32_t n_input = programs[MIST_PROGRAM_BACKWARD_INPUT].n_steps;
    int32_t n_evaluate = programs[MIST_PROGRAM_EVALUATE].n_steps;

    (void)m;
    assert_int_equal(programs[MIST_PROGRAM_FORWARD].n_steps, layout->n_forward);
    assert_int_equal(programs[MIST_PROGRAM_BACKWARD].n_steps,
                     is_split ? 0 : layout->n_backward);
    assert_int_equal(n_input + programs[MIST_PROGRAM_BACKWARD_WEIGHT].n_steps,
                     is_split ? layout->n_backward : 0);
    if (layout->kind == MIST_LAYER_HEAD)
        assert_string_equal(layout->forward[n_evaluate - 1].name, "loss");
    else
        assert_int_equal(n_evaluate, layout->n_forward);
    for (int32_t i = 0; i < layout->n_backward && is_split; i++) {
        bool is_weight = layout->backward[i].phase == MIST_PHASE_BACKWARD_WEIGHT;
        bool is_gather = layout->backward[i].op == MIST_OP_TP_ALL_GATHER;
        assert_true(i < n_input ? !is_weight : is_weight || is_gather);
    }
    if (is_split && layout->kind == MIST_LAYER_EMBEDDING)
        assert_int_equal(n_input, 0);
}

TEST(test_programs)
{
    for_all(check_programs);
}

/* The two halves are the unsplit backward, each in its old order. */
TEST(test_split_order)
{
    struct mist_err err = {0};
    static struct mist_layer_layout whole, split;

    for (int i = 0; i < N_CASES; i++) {
        struct mist_model model = case_model(i);
        struct mist_layer_shape shape = {.micro_batch = 2,
                                         .seq = 16,
                                         .tp = 2,
                                         .threads = 1,
                                         .is_sequence_parallel = i % 2,
                                         .dtype = MIST_DTYPE_FP32};
        assert_int_equal(
            mist_layer_layout_make(&model, MIST_LAYER_BLOCK, shape, &whole, &err),
            MIST_OK);
        shape.splits_backward = true;
        assert_int_equal(
            mist_layer_layout_make(&model, MIST_LAYER_BLOCK, shape, &split, &err),
            MIST_OK);
        int32_t next[2] = {0, split.programs[MIST_PROGRAM_BACKWARD_INPUT].n_steps};
        assert_int_equal(whole.n_backward, split.n_backward);
        for (int32_t k = 0; k < whole.n_backward; k++) {
            const struct mist_step *step = &whole.backward[k];
            bool is_found = false;
            for (int half = 0; half < 2 && !is_found; half++) {
                const struct mist_step *other = &split.backward[next[half]];
                is_found =
                    next[half] < split.n_backward && other->op == step->op &&
                    other->phase == step->phase &&
                    !memcmp(other->operands, step->operands, sizeof step->operands);
                next[half] += is_found;
            }
            assert_true(is_found);
        }
    }
}

/* ------------------------------------------------------------------------------ parts */

static bool share_operand(const struct mist_step *a, const struct mist_step *b)
{
    for (int i = 0; i < MIST_MAX_OPERANDS; i++)
        for (int k = 0; k < MIST_MAX_OPERANDS; k++)
            if (a->operands[i] >= 0 && a->operands[i] == b->operands[k])
                return true;
    return false;
}

/* The part that a step of part i has to wait for. */
static int32_t expected_wait(const struct mist_program *program,
                             const struct mist_step *steps, int32_t i, int32_t i_step)
{
    const struct mist_part *part = &program->parts[i];
    int32_t latest = -1;

    for (int32_t k = 0; k < i; k++) {
        const struct mist_part *other = &program->parts[k];
        if (other->is_communication != part->is_communication &&
            (part->is_communication ||
             share_operand(&steps[other->first_step], &steps[i_step])))
            latest = k;
    }
    return latest;
}

static void check_part(const struct mist_program *program, const struct mist_step *steps,
                       int32_t i, int32_t *waited)
{
    const struct mist_part *part = &program->parts[i];
    int32_t latest = -1;

    assert_true(part->n_steps >= 1);
    for (int32_t k = 0; k < part->n_steps; k++) {
        int32_t i_step = part->first_step + k;
        int32_t wait = expected_wait(program, steps, i, i_step);
        assert_int_equal(is_communication(steps[i_step].op), part->is_communication);
        latest = wait > latest ? wait : latest;
        if (part->is_communication)
            continue;
        if (k > 0) /* else it would make the steps before it wait as well */
            assert_true(wait <= *waited);
        else if (i > 0 && !program->parts[i - 1].is_communication)
            assert_true(wait > *waited); /* no cut without need */
        *waited = wait > *waited ? wait : *waited;
    }
    if (part->is_communication)
        assert_int_equal(part->n_steps, 1);
    assert_int_equal(part->waits_for, latest);
}

static void check_parts(const struct mist_model *m,
                        const struct mist_layer_layout *layout)
{
    (void)m;
    for (int kind = 0; kind < MIST_N_PROGRAM_KINDS; kind++) {
        const struct mist_program *program = &layout->programs[kind];
        bool is_backward = mist_program_is_backward((enum mist_program_kind)kind);
        int32_t waited = -1, next = 0;
        if (kind == MIST_PROGRAM_BACKWARD_WEIGHT)
            next = layout->programs[MIST_PROGRAM_BACKWARD_INPUT].n_steps;
        if (kind == MIST_PROGRAM_REMAKE)
            next = layout->n_forward;
        int32_t end = next + program->n_steps;
        for (int32_t i = 0; i < program->n_parts; i++) {
            assert_int_equal(program->parts[i].first_step, next);
            check_part(program, is_backward ? layout->backward : layout->forward, i,
                       &waited);
            next += program->parts[i].n_steps;
        }
        assert_int_equal(next, end);
        if (layout->shape.tp == 1)
            assert_int_equal(program->n_parts, program->n_steps > 0);
    }
}

TEST(test_parts)
{
    for_all(check_parts);
}

/* Every sum of gradients over ranks has the weight gradient behind it run beside it. */
static void check_beside(const struct mist_model *m,
                         const struct mist_layer_layout *layout)
{
    static struct order order;

    (void)m;
    if (layout->kind != MIST_LAYER_BLOCK || layout->shape.splits_backward)
        return;
    order_of(layout, true, &order);
    for (int32_t i = 0; i < layout->n_backward; i++) {
        if (layout->backward[i].op != MIST_OP_TP_ALL_REDUCE &&
            layout->backward[i].op != MIST_OP_TP_REDUCE_SCATTER)
            continue;
        int32_t k = i + 1;
        while (layout->backward[k].op == MIST_OP_TP_ALL_GATHER)
            k++;
        assert_int_equal(layout->backward[k].phase, MIST_PHASE_BACKWARD_WEIGHT);
        assert_false(is_over(&order, i, k) || is_over(&order, k, i));
    }
}

TEST(test_beside)
{
    for_all(check_beside);
}

static bool writes(const struct mist_step *step, int8_t id)
{
    const char *access = access_of(step->op, step->phase);

    for (int k = 0; access[k]; k++)
        if (step->operands[k] == id && access[k] != 'r' && access[k] != 'R')
            return true;
    return false;
}

/* Two steps that share a tensor, and one writes it, run in their order. */
static void check_data(const struct mist_model *m, const struct mist_layer_layout *layout)
{
    static struct order order;

    (void)m;
    for (int backward = 0; backward < 2; backward++) {
        order_of(layout, backward, &order);
        for (int32_t j = 0; j < order.n_steps; j++)
            for (int32_t i = 0; i < j; i++)
                for (int k = 0; k < MIST_MAX_OPERANDS; k++) {
                    int8_t id = order.steps[i].operands[k];
                    if (id >= 0 &&
                        memchr(order.steps[j].operands, id, MIST_MAX_OPERANDS) &&
                        (writes(&order.steps[i], id) || writes(&order.steps[j], id)))
                        assert_true(is_over(&order, i, j));
                }
    }
}

TEST(test_data)
{
    for_all(check_data);
}

/* ---------------------------------------------------------------------------- scratch */

/* A scratch tensor or a workspace, and the steps that use it. */
struct piece {
    int64_t start, end; /* bytes */
    bool is_used[MIST_MAX_STEPS];
};

static int list_pieces(const struct mist_layer_layout *layout, const struct order *order,
                       bool is_backward, struct piece *out)
{
    int n = 0;

    for (int id = 0; id < layout->n_tensors; id++) {
        bool is_used = false;
        if (layout->tensors[id].tensor_class != MIST_TENSOR_SCRATCH)
            continue;
        int64_t start = is_backward ? layout->tensors[id].offset_backward
                                    : layout->tensors[id].offset_forward;
        out[n] = (struct piece){start, start + layout->tensors[id].bytes, {0}};
        for (int32_t i = 0; i < order->n_steps; i++)
            if (memchr(order->steps[i].operands, id, MIST_MAX_OPERANDS))
                out[n].is_used[i] = is_used = true;
        n += is_used;
    }
    for (int32_t i = 0; i < order->n_steps; i++) {
        const struct mist_step *step = &order->steps[i];
        if (step->workspace_bytes == 0)
            continue;
        out[n] = (struct piece){
            step->workspace_offset, step->workspace_offset + step->workspace_bytes, {0}};
        out[n++].is_used[i] = true;
    }
    return n;
}

/* Whether all of a's uses are over when b's first starts. */
static bool is_piece_over(const struct order *order, const struct piece *a,
                          const struct piece *b)
{
    for (int32_t i = 0; i < order->n_steps; i++)
        for (int32_t j = 0; j < order->n_steps; j++)
            if (a->is_used[i] && b->is_used[j] && !is_over(order, i, j))
                return false;
    return true;
}

static void check_scratch(const struct mist_model *m,
                          const struct mist_layer_layout *layout)
{
    static struct piece pieces[MIST_MAX_TENSORS + MIST_MAX_STEPS];
    static struct order order;

    (void)m;
    for (int backward = 0; backward < 2; backward++) {
        order_of(layout, backward, &order);
        int n = list_pieces(layout, &order, backward, pieces);
        int64_t size =
            backward ? layout->scratch_backward_bytes : layout->scratch_forward_bytes;
        int64_t end = 0;
        for (int i = 0; i < n; i++) {
            const struct piece *a = &pieces[i];
            assert_true(a->start >= 0 && a->start % 64 == 0 && a->end <= size);
            end = a->end > end ? a->end : end;
            for (int k = 0; k < i; k++) {
                const struct piece *b = &pieces[k];
                if (a->start < b->end && b->start < a->end)
                    assert_true(is_piece_over(&order, a, b) ||
                                is_piece_over(&order, b, a));
            }
        }
        assert_int_equal(size, (end + 63) / 64 * 64);
    }
}

TEST(test_scratch)
{
    for_all(check_scratch);
}

/* Of the kernels of the CPU. */
static void check_workspace(const struct mist_model *m,
                            const struct mist_layer_layout *layout)
{
    (void)m;
    bool is_bf16 = layout->shape.dtype == MIST_DTYPE_BF16;
    for (int i = 0; i < layout->n_forward + layout->n_backward; i++) {
        const struct mist_step *step = i < layout->n_forward
                                           ? &layout->forward[i]
                                           : &layout->backward[i - layout->n_forward];
        const int64_t *d = step->dims;
        struct mist_cpu_attention shape = {d[0], d[1], d[2], d[3], d[4]};
        bool is_forward = step->phase == MIST_PHASE_FORWARD;
        int threads = layout->shape.threads;
        size_t need = 0;
        if (step->op == MIST_OP_ATTENTION && is_forward)
            need = mist_cpu_attention_forward_workspace_bytes(&shape, is_bf16, threads);
        else if (step->op == MIST_OP_ATTENTION)
            need = mist_cpu_attention_backward_workspace_bytes(&shape, is_bf16, threads);
        else if (step->op == MIST_OP_EMBEDDING && !is_forward)
            need = mist_cpu_embedding_slice_backward_workspace_bytes(d[0]);
        else if (is_bf16)
            continue; /* others have rows in fp32, too */
        else if ((step->op == MIST_OP_LAYER_NORM || step->op == MIST_OP_RMS_NORM) &&
                 !is_forward)
            need = mist_cpu_norm_backward_workspace_bytes(d[0], d[1]);
        else if (step->op == MIST_OP_HEAD_NORM && !is_forward)
            need = mist_cpu_norm_backward_workspace_bytes(d[0] * d[1], d[4]);
        else if (step->op == MIST_OP_LINEAR_CROSS_ENTROPY)
            need = 4 * (size_t)(d[0] * d[2]); /* no case has many rows */
        assert_int_equal(step->workspace_bytes, need);
    }
}

TEST(test_workspace)
{
    for_all(check_workspace);
}

/* On a GPU attention has what its kernels may use, and the norms their sums of blocks. */
static void check_gpu_workspace(const struct mist_layer_layout *layout)
{
    for (int k = 0; k < layout->n_forward + layout->n_backward; k++) {
        const struct mist_step *step = k < layout->n_forward
                                           ? &layout->forward[k]
                                           : &layout->backward[k - layout->n_forward];
        const int64_t *d = step->dims;
        bool is_backward = step->phase != MIST_PHASE_FORWARD;
        if (step->op == MIST_OP_ATTENTION && layout->shape.dtype == MIST_DTYPE_BF16)
            assert_int_equal(step->workspace_bytes,
                             mist_cuda_attention_workspace_bytes(d[0], d[1], d[2], d[3],
                                                                 d[4], is_backward));
        else if (step->op == MIST_OP_ATTENTION)
            assert_int_equal(step->workspace_bytes, is_backward * 4 * d[0] * d[1] * d[2]);
        else if (step->op == MIST_OP_LAYER_NORM &&
                 step->phase == MIST_PHASE_BACKWARD_INPUT)
            assert_int_equal(step->workspace_bytes,
                             4 * d[1] *
                                 (2 * mist_catalog_norm_blocks(d[0]) +
                                  (layout->shape.dtype == MIST_DTYPE_BF16)));
    }
}

TEST(test_gpu_workspace)
{
    static const int32_t lengths[] = {16, 1000, 40000}; /* dQ is more, dS, many chunks */
    static struct mist_layer_layout layout;
    struct mist_err err = {0};

    for (int i = 0; i < 6 * N_CASES; i++) {
        struct mist_model model = case_model(i % N_CASES);
        struct mist_layer_shape shape = {.micro_batch = 3,
                                         .seq = lengths[i / N_CASES % 3],
                                         .tp = 1 + i % 2,
                                         .dtype = i / N_CASES < 3 ? MIST_DTYPE_BF16
                                                                  : MIST_DTYPE_FP32};
        assert_int_equal(
            mist_layer_layout_make(&model, MIST_LAYER_BLOCK, shape, &layout, &err),
            MIST_OK);
        check_gpu_workspace(&layout);
    }
}

/* However many rows there are, there are the logits of so many, more of them on a GPU,
 * and nothing grows but the norm's output beside them. */
static void check_loss_workspace(int32_t threads, int64_t most_rows)
{
    static struct mist_layer_layout layout;
    struct mist_model model = case_model(CASE_GPT);
    struct mist_err err = {0};

    model.vocab = 50257;
    for (int32_t b = 1; b <= 64; b *= 4) {
        struct mist_layer_shape shape = {.micro_batch = b,
                                         .seq = 512,
                                         .tp = 1,
                                         .threads = threads,
                                         .dtype = MIST_DTYPE_BF16};
        int64_t rows = 512 * (int64_t)b, most = rows < most_rows ? rows : most_rows;
        assert_int_equal(
            mist_layer_layout_make(&model, MIST_LAYER_HEAD, shape, &layout, &err),
            MIST_OK);
        const struct mist_step *loss = &layout.forward[layout.n_forward - 1];
        assert_int_equal(loss->op, MIST_OP_LINEAR_CROSS_ENTROPY);
        assert_int_equal(loss->workspace_bytes, 2 * most * 50257);
        assert_true(layout.scratch_forward_bytes <=
                    2 * most * 50257 + 64 + 2 * rows * model.hidden + 64);
    }
}

TEST(test_loss_workspace)
{
    check_loss_workspace(0, 4096);
    check_loss_workspace(3, 1024);
}

TEST_MAIN(NULL, NULL)

/*
 * Compiles expressions for the accumulator machine of tape.h.
 *
 * Outputs are generated depth first. Of an operation's operands the one that needs more
 * registers comes first and is put aside when the other has to be computed too (Sethi and
 * Ullman 1970); a value that is used more than once is stored when it is first computed
 * and its register is reused after its last use. The register freed last is taken first,
 * because it is the likeliest to be in the cache.
 */
#include "sim/symbolic/tape.h"

#include "core/memory.h" /* mist_grow */
#include "sim/symbolic/tape_internal.h"

#include <stdlib.h>
#include <string.h>

struct node_state {
    bool is_used;    /* some output depends on it */
    bool is_varying; /* depends on a symbol with a column */
    int32_t n_uses;  /* operands still to be read, of varying nodes */
    int32_t need;    /* registers to compute it, about */
    int32_t place;   /* varying: block pointer or -1; uniform: number of the uniform */
    int32_t output;  /* first output that it is, or -1 */
    int32_t splat;   /* uniform: block pointer of its splat, or -1 */
};

struct compiler {
    const struct mist_expr_pool *pool;
    struct mist_tape *tape;
    struct node_state *states; /* [n_nodes] */
    int32_t *free_places;      /* stack of registers that are free, as block pointers */
    size_t n_free;
    size_t free_capacity;
    mist_expr acc;  /* the node that the accumulator holds, or -1 */
    size_t i_saved; /* the last instruction that read the second accumulator */
    bool failed;    /* out of memory */
};

static const struct mist_expr_node *node_of(const struct compiler *c, mist_expr expr)
{
    return &c->pool->nodes[expr];
}

static int n_args_of(const struct mist_expr_node *node)
{
    return mist_expr_n_args((enum mist_expr_op)node->op);
}

/* Appends a zeroed element to an array of the tape; NULL when out of memory. */
static void *append(struct compiler *c, void **array, size_t *n, size_t *capacity,
                    size_t bytes)
{
    char *grown = c->failed ? NULL : mist_grow(*array, capacity, *n + 1, bytes);

    if (!grown) {
        c->failed = true;
        return NULL;
    }
    *array = grown;
    return memset(grown + bytes * (*n)++, 0, bytes);
}

static void emit(struct compiler *c, int op, int32_t a, int32_t b, int32_t third)
{
    struct mist_tape *tape = c->tape;
    void *array = tape->instrs;
    struct tape_instr *instr =
        append(c, &array, &tape->n_instrs, &tape->instrs_capacity, sizeof *instr);

    tape->instrs = array;
    if (instr)
        *instr = (struct tape_instr){op, a, b, third};
}

/* ---------------------------------------------------------------------- registers */

static int32_t first_register(const struct compiler *c)
{
    return c->tape->n_columns + c->tape->n_outputs;
}

static int32_t take_register(struct compiler *c)
{
    if (c->n_free > 0)
        return c->free_places[--c->n_free];
    return first_register(c) + c->tape->n_registers++;
}

static void give_register(struct compiler *c, int32_t place)
{
    void *array = c->free_places;
    int32_t *slot = append(c, &array, &c->n_free, &c->free_capacity, sizeof *slot);

    c->free_places = array;
    if (slot)
        *slot = place;
}

/* One operand less to read; the last one frees the register. */
static void consume(struct compiler *c, mist_expr expr)
{
    struct node_state *state = &c->states[expr];

    if (state->is_varying && --state->n_uses == 0 && state->place >= first_register(c))
        give_register(c, state->place);
}

/* A block that holds the value of a node that is a leaf, uniform ones spread out. */
static int32_t block_of(struct compiler *c, mist_expr expr)
{
    struct node_state *state = &c->states[expr];
    struct mist_tape *tape = c->tape;

    if (state->is_varying)
        return state->place;
    if (state->splat >= 0)
        return state->splat;
    /* A register of its own: a recycled one would be overwritten in every block. */
    state->splat = first_register(c) + tape->n_registers++;
    void *array = tape->splats;
    struct tape_pair *pair =
        append(c, &array, &tape->n_splats, &tape->splats_capacity, sizeof *pair);
    tape->splats = array;
    if (pair)
        *pair = (struct tape_pair){state->place, state->splat};
    return state->splat;
}

/* True when the value is in memory, or uniform. */
static bool is_leaf(const struct compiler *c, mist_expr expr)
{
    return !c->states[expr].is_varying || c->states[expr].place >= 0;
}

/* --------------------------------------------------------------- code generation */

static void compute(struct compiler *c, mist_expr expr);

/* Puts a node into the accumulator, which counts as one use. */
static void bring(struct compiler *c, mist_expr expr)
{
    if (!is_leaf(c, expr)) {
        compute(c, expr);
    } else if (c->acc != expr) {
        int op = c->states[expr].is_varying ? TAPE_LOAD : TAPE_LOAD_U;
        emit(c, op, c->states[expr].place, 0, 0);
        c->acc = expr;
    }
    consume(c, expr);
}

/* Makes a leaf of what isn't one. Not a use. */
static void put_aside(struct compiler *c, mist_expr expr)
{
    if (is_leaf(c, expr))
        return;
    compute(c, expr);
    if (c->states[expr].place < 0) {
        c->states[expr].place = take_register(c);
        emit(c, TAPE_STORE, c->states[expr].place, 0, 0);
    }
}

enum { FORM_U = 1, FORM_R = 2, FORM_S = 4, FORM_RS = 5 };

static const int first_form[MIST_EXPR_N_OPS] = {
    [MIST_EXPR_ADD] = TAPE_ADD, [MIST_EXPR_SUB] = TAPE_SUB, [MIST_EXPR_MUL] = TAPE_MUL,
    [MIST_EXPR_DIV] = TAPE_DIV, [MIST_EXPR_MIN] = TAPE_MIN, [MIST_EXPR_MAX] = TAPE_MAX,
};

/* acc op leaf, or leaf op acc. */
static void emit_binary(struct compiler *c, int32_t op, mist_expr leaf, bool is_reversed)
{
    int form = (is_reversed ? FORM_R : 0) + (c->states[leaf].is_varying ? 0 : FORM_U);

    emit(c, first_form[op] + form, c->states[leaf].place, 0, 0);
    consume(c, leaf);
}

/*
 * Both operands have to be computed and the first, now in acc, is in no one's way after
 * this operation. It waits in memory, or in the second accumulator when the other operand
 * turns out not to need that.
 */
static void compute_second(struct compiler *c, int32_t op, mist_expr first,
                           mist_expr second, bool first_is_left)
{
    size_t i_store = c->tape->n_instrs;

    c->states[first].place = take_register(c);
    emit(c, TAPE_STORE, c->states[first].place, 0, 0);
    bring(c, second);
    if (c->failed || c->i_saved > i_store) {
        emit_binary(c, op, first, first_is_left);
        return;
    }
    c->tape->instrs[i_store].op = TAPE_SAVE;
    c->i_saved = c->tape->n_instrs;
    emit(c, first_form[op] + (first_is_left ? FORM_RS : FORM_S), 0, 0, 0);
    consume(c, first);
}

static void compute_binary(struct compiler *c, const struct mist_expr_node *node)
{
    mist_expr a = node->arg[0];
    mist_expr b = node->arg[1];
    bool b_goes_first = c->states[b].need > c->states[a].need;
    mist_expr first = b_goes_first ? b : a;
    mist_expr second = b_goes_first ? a : b;

    if (!is_leaf(c, first) && !is_leaf(c, second)) {
        compute(c, first);
        if (!is_leaf(c, first) && !is_leaf(c, second)) {
            compute_second(c, node->op, first, second, first == a);
            return;
        }
        if (is_leaf(c, second)) { /* it was part of the first, or is the first */
            consume(c, first);
            emit_binary(c, node->op, second, first == b);
            return;
        }
    }
    /* At most one is still to be computed;
     * that one, or else what is at hand, goes into acc. */
    bool a_in_acc = is_leaf(c, b);
    if (is_leaf(c, a) && is_leaf(c, b))
        a_in_acc = c->acc == a || (c->acc != b && c->states[a].is_varying);
    bring(c, a_in_acc ? a : b);
    emit_binary(c, node->op, a_in_acc ? b : a, !a_in_acc);
}

/*
 * Which of select's operands goes through the accumulator: one that is not in memory yet.
 */
static int choose_select_operand(const struct compiler *c,
                                 const struct mist_expr_node *node)
{
    static const int preference[4] = {2, 3, 0, 1};

    for (int i = 0; i < 4; i++)
        if (!is_leaf(c, node->arg[preference[i]]))
            return preference[i];
    for (int i = 0; i < 4; i++)
        if (node->arg[preference[i]] == c->acc)
            return preference[i];
    return 2;
}

static void compute_select(struct compiler *c, const struct mist_expr_node *node)
{
    int32_t kind = node->op - MIST_EXPR_SELECT_LT;
    int in_acc = choose_select_operand(c, node);
    int32_t blocks[4] = {0};

    for (int i = 0; i < 4; i++)
        if (i != in_acc)
            put_aside(c, node->arg[i]);
    bring(c, node->arg[in_acc]);
    for (int i = 0; i < 4; i++)
        if (i != in_acc)
            blocks[i] = block_of(c, node->arg[i]);
    if (in_acc == 2)
        emit(c, TAPE_PICK_LT + kind, blocks[0], blocks[1], blocks[3]);
    else if (in_acc == 3)
        emit(c, TAPE_SKIP_LT + kind, blocks[0], blocks[1], blocks[2]);
    else if (in_acc == 0)
        emit(c, TAPE_TEST_LT + kind, blocks[1], blocks[2], blocks[3]);
    else /* a < acc is acc > a */
        emit(c, TAPE_TEST_GT + kind, blocks[0], blocks[2], blocks[3]);
    for (int i = 0; i < 4; i++)
        if (i != in_acc)
            consume(c, node->arg[i]);
}

/* Leaves a varying node in acc, and in memory where it is an
 * output or used more than once. */
static void compute(struct compiler *c, mist_expr expr)
{
    const struct mist_expr_node *node = node_of(c, expr);
    struct node_state *state = &c->states[expr];

    switch ((enum mist_expr_op)node->op) {
    case MIST_EXPR_SELECT_LT:
    case MIST_EXPR_SELECT_LE:
        compute_select(c, node);
        break;
    default:
        compute_binary(c, node);
    }
    c->acc = expr;
    if (state->output >= 0)
        state->place = c->tape->n_columns + state->output;
    else if (state->n_uses > 1)
        state->place = take_register(c);
    if (state->place >= 0)
        emit(c, TAPE_STORE, state->place, 0, 0);
}

static void compute_outputs(struct compiler *c, const mist_expr *outputs)
{
    for (int32_t i = 0; i < c->tape->n_outputs; i++) {
        mist_expr expr = outputs[i];
        int32_t place = c->tape->n_columns + i;
        if (!is_leaf(c, expr))
            compute(c, expr);
        if (c->states[expr].is_varying && c->states[expr].place == place)
            continue;
        /* A symbol, a uniform value, or an output that comes twice. */
        if (c->acc != expr)
            emit(c, c->states[expr].is_varying ? TAPE_LOAD : TAPE_LOAD_U,
                 c->states[expr].place, 0, 0);
        c->acc = expr;
        emit(c, TAPE_STORE, place, 0, 0);
    }
    emit(c, TAPE_END, 0, 0, 0);
}

/* ------------------------------------------------------------------------ analysis */

static void mark_used(struct compiler *c, const mist_expr *outputs)
{
    mist_expr last = -1;

    for (int32_t i = 0; i < c->tape->n_outputs; i++) {
        struct node_state *state = &c->states[outputs[i]];
        state->is_used = true;
        state->output = state->output < 0 ? i : state->output;
        last = outputs[i] > last ? outputs[i] : last;
    }
    for (mist_expr i = last; i >= 0; i--)
        for (int k = 0; c->states[i].is_used && k < n_args_of(node_of(c, i)); k++)
            c->states[node_of(c, i)->arg[k]].is_used = true;
}

static void add_column(struct compiler *c, struct node_state *state, int32_t symbol)
{
    struct mist_tape *tape = c->tape;
    void *array = tape->column_symbols;
    size_t n = (size_t)tape->n_columns;
    int32_t *slot = append(c, &array, &n, &tape->column_symbols_capacity, sizeof *slot);

    tape->column_symbols = array;
    state->is_varying = true;
    state->place = tape->n_columns++;
    if (slot)
        *slot = symbol;
}

/* Gives a uniform node its number and, unless it is a constant, what computes it. */
static void add_uniform(struct compiler *c, mist_expr expr)
{
    const struct mist_expr_node *node = node_of(c, expr);
    struct mist_tape *tape = c->tape;
    size_t n = (size_t)tape->n_uniforms;
    void *array = tape->constants;
    double *value = append(c, &array, &n, &tape->constants_capacity, sizeof *value);

    tape->constants = array;
    c->states[expr].place = tape->n_uniforms++;
    if (value)
        *value = node->value;
    if (node->op == MIST_EXPR_SYMBOL) {
        array = tape->uniform_symbols;
        struct tape_pair *pair = append(c, &array, &tape->n_uniform_symbols,
                                        &tape->uniform_symbols_capacity, sizeof *pair);
        tape->uniform_symbols = array;
        if (pair)
            *pair = (struct tape_pair){node->arg[0], c->states[expr].place};
    } else if (node->op != MIST_EXPR_CONST) {
        array = tape->prologue;
        struct tape_scalar_instr *instr =
            append(c, &array, &tape->n_prologue, &tape->prologue_capacity, sizeof *instr);
        tape->prologue = array;
        if (!instr)
            return;
        *instr = (struct tape_scalar_instr){.op = node->op, .dst = c->states[expr].place};
        for (int i = 0; i < n_args_of(node); i++)
            instr->arg[i] = c->states[node->arg[i]].place;
    }
}

/* need of an operation: as many registers as its operands,
 * one more when two are equally greedy. */
static int32_t need_of(const struct compiler *c, const struct mist_expr_node *node)
{
    int32_t most = 0;
    int32_t n_most = 0;

    for (int i = 0; i < n_args_of(node); i++) {
        int32_t need = c->states[node->arg[i]].need;
        n_most = need > most ? 1 : n_most + (need == most);
        most = need > most ? need : most;
    }
    return most == 0 ? 1 : most + n_most - 1;
}

static void classify_nodes(struct compiler *c, const bool *is_uniform)
{
    for (size_t i = 0; i < c->pool->n_nodes && !c->failed; i++) {
        const struct mist_expr_node *node = &c->pool->nodes[i];
        struct node_state *state = &c->states[i];
        int n_args = n_args_of(node);
        if (!state->is_used)
            continue;
        if (node->op == MIST_EXPR_SYMBOL && !(is_uniform && is_uniform[node->arg[0]]))
            add_column(c, state, node->arg[0]);
        for (int k = 0; k < n_args; k++)
            state->is_varying = state->is_varying || c->states[node->arg[k]].is_varying;
        if (!state->is_varying) {
            add_uniform(c, (mist_expr)i);
            continue;
        }
        for (int k = 0; k < n_args; k++)
            c->states[node->arg[k]].n_uses++;
        if (n_args > 0)
            state->need = need_of(c, node);
    }
}

enum mist_status mist_tape_compile(const struct mist_expr_pool *pool,
                                   const mist_expr *outputs, int32_t n_outputs,
                                   const bool *is_uniform, struct mist_tape **out,
                                   struct mist_err *err)
{
    struct compiler c = {.pool = pool, .acc = -1};

    for (int32_t i = 0; i < n_outputs; i++) {
        if (outputs[i] >= 0)
            continue;
        enum mist_status status = mist_expr_pool_check(pool, err);
        if (status != MIST_OK)
            return status;
        return mist_err_set(err, MIST_ERR_RANGE, "output %d is no expression", (int)i);
    }
    c.tape = calloc(1, sizeof *c.tape);
    c.states = malloc((pool->n_nodes + 1) * sizeof *c.states);
    c.failed = !c.tape || !c.states;
    if (!c.failed) {
        c.tape->isa = tape_best_isa();
        c.tape->n_outputs = n_outputs;
        for (size_t i = 0; i < pool->n_nodes; i++)
            c.states[i] = (struct node_state){.place = -1, .output = -1, .splat = -1};
        mark_used(&c, outputs);
        classify_nodes(&c, is_uniform);
    }
    if (!c.failed)
        compute_outputs(&c, outputs);
    free(c.states);
    free(c.free_places);
    if (c.failed) {
        mist_tape_free(c.tape);
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory while compiling expressions");
    }
    *out = c.tape;
    return MIST_OK;
}

void mist_tape_free(struct mist_tape *tape)
{
    if (!tape)
        return;
    free(tape->instrs);
    free(tape->prologue);
    free(tape->constants);
    free(tape->uniform_symbols);
    free(tape->splats);
    free(tape->column_symbols);
    free(tape);
}

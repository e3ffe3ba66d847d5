/*
 * The interpreter of tapes, written once and included by sim/tape_eval.c for each
 * instruction set.
 *
 * Before each inclusion: NAME(x) makes a name of its own, TARGET is the function
 * attribute, VEC a vector of WIDTH doubles; LOAD STORE SPLAT ADD SUB MUL DIV CEIL FLOOR
 * LT LE EQ BLEND (mask ? first : second), and MIN, MAX as in expr.h: the second operand
 * when neither compares as wanted.
 *
 * The accumulator is eight variables and not an array, so that it lives in registers
 * across the dispatch. One instruction then takes about eight cycles, which hides the
 * cost of dispatching it.
 */

#define LANES (8 * WIDTH)

/* clang-format off */
#define EACH(X) do { X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) } while (0)
#define ACC(k)    acc##k
#define AT(p, k)  LOAD((p) + (k) * WIDTH)

#define X_LOAD(k)  ACC(k) = AT(a, k);
#define X_SPLAT(k) ACC(k) = u;
#define X_STORE(k) STORE(a + (k) * WIDTH, ACC(k));
#define X_OP(k)    ACC(k) = OP(ACC(k), AT(a, k));
#define X_OP_U(k)  ACC(k) = OP(ACC(k), u);
#define X_OP_R(k)  ACC(k) = OP(AT(a, k), ACC(k));
#define X_OP_RU(k) ACC(k) = OP(u, ACC(k));
#define X_CEIL(k)  ACC(k) = CEIL(ACC(k));
#define X_FLOOR(k) ACC(k) = FLOOR(ACC(k));
#define X_PICK(k)  ACC(k) = BLEND(COMPARE(AT(a, k), AT(b, k)), ACC(k), AT(c, k));
#define X_SKIP(k)  ACC(k) = BLEND(COMPARE(AT(a, k), AT(b, k)), AT(c, k), ACC(k));
#define X_TEST(k)  ACC(k) = BLEND(COMPARE(ACC(k), AT(a, k)), AT(b, k), AT(c, k));
#define X_TEST_R(k) ACC(k) = BLEND(COMPARE(AT(a, k), ACC(k)), AT(b, k), AT(c, k));
/* clang-format on */

/* values[i] = table at values[i], [LANES]. The loops are the lanes', so that they become
 * gathers. */
TARGET static void NAME(look_up)(const struct mist_expr_table *table, double *values)
{
    const double *restrict x = table->x;
    const double *restrict y = table->y;
    const double *restrict slope = table->slope;
    double v_min = x ? x[0] : 0;
    double v_max = table->v_max;
    double v[LANES];
    int32_t at[LANES];

    for (int i = 0; i < LANES; i++) {
        double low = values[i] > v_min ? values[i] : v_min;
        v[i] = low < v_max ? low : v_max;
        at[i] = x ? 0 : (int32_t)v[i];
    }
    if (!x) {
        for (int i = 0; i < LANES; i++)
            values[i] = y[at[i]];
        return;
    }
    for (int32_t step = table->n_padded / 2; step > 0; step /= 2)
        for (int i = 0; i < LANES; i++)
            at[i] += x[at[i] + step] <= v[i] ? step : 0;
    for (int i = 0; i < LANES; i++)
        values[i] = y[at[i]] + (v[i] - x[at[i]]) * slope[at[i]];
}

/* One block. blocks: pointers by number; uniforms: values by number. */
TARGET static void NAME(run_block)(const struct mist_tape *tape, double *const *blocks,
                                   const double *uniforms)
{
    VEC acc0, acc1, acc2, acc3, acc4, acc5, acc6, acc7;
    VEC u = SPLAT(0);

    EACH(X_SPLAT);
    for (const struct tape_instr *instr = tape->instrs;; instr++) {
        double *a;
        const double *b, *c;
        switch ((enum tape_op)instr->op) {
        case TAPE_LOAD:
            a = blocks[instr->a];
            EACH(X_LOAD);
            continue;
        case TAPE_LOAD_U:
            u = SPLAT(uniforms[instr->a]);
            EACH(X_SPLAT);
            continue;
        case TAPE_STORE:
            a = blocks[instr->a];
            EACH(X_STORE);
            continue;
#define BINARY(CASE)                                                                     \
    case CASE:                                                                           \
        a = blocks[instr->a];                                                            \
        EACH(X_OP);                                                                      \
        continue;                                                                        \
    case CASE##_U:                                                                       \
        u = SPLAT(uniforms[instr->a]);                                                   \
        EACH(X_OP_U);                                                                    \
        continue;                                                                        \
    case CASE##_R:                                                                       \
        a = blocks[instr->a];                                                            \
        EACH(X_OP_R);                                                                    \
        continue;                                                                        \
    case CASE##_RU:                                                                      \
        u = SPLAT(uniforms[instr->a]);                                                   \
        EACH(X_OP_RU);                                                                   \
        continue;
#define OP ADD
            BINARY(TAPE_ADD)
#undef OP
#define OP SUB
            BINARY(TAPE_SUB)
#undef OP
#define OP MUL
            BINARY(TAPE_MUL)
#undef OP
#define OP DIV
            BINARY(TAPE_DIV)
#undef OP
#define OP MIN
            BINARY(TAPE_MIN)
#undef OP
#define OP MAX
            BINARY(TAPE_MAX)
#undef OP
        case TAPE_CEIL:
            EACH(X_CEIL);
            continue;
        case TAPE_FLOOR:
            EACH(X_FLOOR);
            continue;
#define SELECT(CASE, X)                                                                  \
    case CASE:                                                                           \
        a = blocks[instr->a];                                                            \
        b = blocks[instr->b];                                                            \
        c = blocks[instr->c];                                                            \
        EACH(X);                                                                         \
        continue;
#define COMPARE LT
            SELECT(TAPE_PICK_LT, X_PICK)
            SELECT(TAPE_SKIP_LT, X_SKIP)
            SELECT(TAPE_TEST_LT, X_TEST)
            SELECT(TAPE_TEST_GT, X_TEST_R)
#undef COMPARE
#define COMPARE LE
            SELECT(TAPE_PICK_LE, X_PICK)
            SELECT(TAPE_SKIP_LE, X_SKIP)
            SELECT(TAPE_TEST_LE, X_TEST)
            SELECT(TAPE_TEST_GE, X_TEST_R)
#undef COMPARE
#define COMPARE EQ
            SELECT(TAPE_PICK_EQ, X_PICK)
            SELECT(TAPE_SKIP_EQ, X_SKIP)
            SELECT(TAPE_TEST_EQ, X_TEST)
#undef COMPARE
        case TAPE_TABLE:
            a = blocks[instr->a];
            EACH(X_STORE);
            NAME(look_up)(&tape->tables[instr->b], a);
            EACH(X_LOAD);
            continue;
        case TAPE_END:
        case TAPE_N_OPS:
            return;
        }
    }
}

#undef LANES
#undef EACH
#undef ACC
#undef AT
#undef X_LOAD
#undef X_SPLAT
#undef X_STORE
#undef X_OP
#undef X_OP_U
#undef X_OP_R
#undef X_OP_RU
#undef X_CEIL
#undef X_FLOOR
#undef X_PICK
#undef X_SKIP
#undef X_TEST
#undef X_TEST_R
#undef BINARY
#undef SELECT
#undef NAME
#undef TARGET
#undef VEC
#undef WIDTH
#undef LOAD
#undef STORE
#undef SPLAT
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef MIN
#undef MAX
#undef CEIL
#undef FLOOR
#undef LT
#undef LE
#undef EQ
#undef BLEND

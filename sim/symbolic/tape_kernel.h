/*
 * The interpreter of tapes, written once and included by sim/symbolic/tape_eval.c for each
 * instruction set.
 *
 * Before each inclusion: NAME(x) makes a name of its own, TARGET is the function
 * attribute, VEC a vector of WIDTH doubles; LOAD STORE SPLAT ADD SUB MUL DIV LT LE
 * BLEND (mask ? first : second), and MIN, MAX as in expr.h: the second operand
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

/* Each instruction dispatches the next: one jump per kind is predicted far better than one for all. */
#define NEXT goto *labels[(++instr)->op]

/* Where there are registers enough for a second accumulator; else it is a block on the stack. */
#if HAS_32_REGISTERS
#define SAVED(k)  saved##k
#define X_SAVE(k) saved##k = ACC(k);
#else
#define SAVED(k)  AT(saved, k)
#define X_SAVE(k) STORE(saved + (k) * WIDTH, ACC(k));
#endif

#define X_LOAD(k)  ACC(k) = AT(a, k);
#define X_SPLAT(k) ACC(k) = u;
#define X_STORE(k) STORE(a + (k) * WIDTH, ACC(k));
#define X_OP(k)    ACC(k) = OP(ACC(k), AT(a, k));
#define X_OP_U(k)  ACC(k) = OP(ACC(k), u);
#define X_OP_R(k)  ACC(k) = OP(AT(a, k), ACC(k));
#define X_OP_RU(k) ACC(k) = OP(u, ACC(k));
#define X_OP_S(k)  ACC(k) = OP(ACC(k), SAVED(k));
#define X_OP_RS(k) ACC(k) = OP(SAVED(k), ACC(k));
#define X_PICK(k)  ACC(k) = BLEND(COMPARE(AT(a, k), AT(b, k)), ACC(k), AT(c, k));
#define X_SKIP(k)  ACC(k) = BLEND(COMPARE(AT(a, k), AT(b, k)), AT(c, k), ACC(k));
#define X_TEST(k)  ACC(k) = BLEND(COMPARE(ACC(k), AT(a, k)), AT(b, k), AT(c, k));
#define X_TEST_R(k) ACC(k) = BLEND(COMPARE(AT(a, k), ACC(k)), AT(b, k), AT(c, k));
/* clang-format on */

/* One block. blocks: pointers by number; uniforms: values by number. */
TARGET static void NAME(run_block)(const struct mist_tape *tape, double *const *blocks,
                                   const double *uniforms)
{
    VEC acc0, acc1, acc2, acc3, acc4, acc5, acc6, acc7;
    VEC u = SPLAT(0);
#if HAS_32_REGISTERS
    VEC saved0, saved1, saved2, saved3, saved4, saved5, saved6, saved7;
#else
    double saved[LANES];
#endif
    static const void *const labels[TAPE_N_OPS] = {
        /* cppcheck-suppress assignBoolToPointer ; these && are no operators */
        [TAPE_END] = &&L_TAPE_END,         [TAPE_LOAD] = &&L_TAPE_LOAD,
        [TAPE_LOAD_U] = &&L_TAPE_LOAD_U,   [TAPE_STORE] = &&L_TAPE_STORE,
        [TAPE_SAVE] = &&L_TAPE_SAVE,       [TAPE_ADD] = &&L_TAPE_ADD,
        [TAPE_ADD_U] = &&L_TAPE_ADD_U,     [TAPE_ADD_R] = &&L_TAPE_ADD_R,
        [TAPE_ADD_RU] = &&L_TAPE_ADD_RU,   [TAPE_ADD_S] = &&L_TAPE_ADD_S,
        [TAPE_ADD_RS] = &&L_TAPE_ADD_RS,   [TAPE_SUB] = &&L_TAPE_SUB,
        [TAPE_SUB_U] = &&L_TAPE_SUB_U,     [TAPE_SUB_R] = &&L_TAPE_SUB_R,
        [TAPE_SUB_RU] = &&L_TAPE_SUB_RU,   [TAPE_SUB_S] = &&L_TAPE_SUB_S,
        [TAPE_SUB_RS] = &&L_TAPE_SUB_RS,   [TAPE_MUL] = &&L_TAPE_MUL,
        [TAPE_MUL_U] = &&L_TAPE_MUL_U,     [TAPE_MUL_R] = &&L_TAPE_MUL_R,
        [TAPE_MUL_RU] = &&L_TAPE_MUL_RU,   [TAPE_MUL_S] = &&L_TAPE_MUL_S,
        [TAPE_MUL_RS] = &&L_TAPE_MUL_RS,   [TAPE_DIV] = &&L_TAPE_DIV,
        [TAPE_DIV_U] = &&L_TAPE_DIV_U,     [TAPE_DIV_R] = &&L_TAPE_DIV_R,
        [TAPE_DIV_RU] = &&L_TAPE_DIV_RU,   [TAPE_DIV_S] = &&L_TAPE_DIV_S,
        [TAPE_DIV_RS] = &&L_TAPE_DIV_RS,   [TAPE_MIN] = &&L_TAPE_MIN,
        [TAPE_MIN_U] = &&L_TAPE_MIN_U,     [TAPE_MIN_R] = &&L_TAPE_MIN_R,
        [TAPE_MIN_RU] = &&L_TAPE_MIN_RU,   [TAPE_MIN_S] = &&L_TAPE_MIN_S,
        [TAPE_MIN_RS] = &&L_TAPE_MIN_RS,   [TAPE_MAX] = &&L_TAPE_MAX,
        [TAPE_MAX_U] = &&L_TAPE_MAX_U,     [TAPE_MAX_R] = &&L_TAPE_MAX_R,
        [TAPE_MAX_RU] = &&L_TAPE_MAX_RU,   [TAPE_MAX_S] = &&L_TAPE_MAX_S,
        [TAPE_MAX_RS] = &&L_TAPE_MAX_RS,   [TAPE_PICK_LT] = &&L_TAPE_PICK_LT,
        [TAPE_PICK_LE] = &&L_TAPE_PICK_LE, [TAPE_SKIP_LT] = &&L_TAPE_SKIP_LT,
        [TAPE_SKIP_LE] = &&L_TAPE_SKIP_LE, [TAPE_TEST_LT] = &&L_TAPE_TEST_LT,
        [TAPE_TEST_LE] = &&L_TAPE_TEST_LE, [TAPE_TEST_GT] = &&L_TAPE_TEST_GT,
        [TAPE_TEST_GE] = &&L_TAPE_TEST_GE,
    };
    const struct tape_instr *instr = tape->instrs;
    double *a;
    const double *b, *c;

    EACH(X_SPLAT);
    EACH(X_SAVE);
    goto *labels[instr->op];
L_TAPE_LOAD:
    a = blocks[instr->a];
    EACH(X_LOAD);
    NEXT;
L_TAPE_LOAD_U:
    u = SPLAT(uniforms[instr->a]);
    EACH(X_SPLAT);
    NEXT;
L_TAPE_STORE:
    a = blocks[instr->a];
    EACH(X_STORE);
    NEXT;
L_TAPE_SAVE:
    EACH(X_SAVE);
    NEXT;
#define BINARY(CASE)                                                                     \
    L_##CASE : a = blocks[instr->a];                                                     \
    EACH(X_OP);                                                                          \
    NEXT;                                                                                \
    L_##CASE##_U : u = SPLAT(uniforms[instr->a]);                                        \
    EACH(X_OP_U);                                                                        \
    NEXT;                                                                                \
    L_##CASE##_R : a = blocks[instr->a];                                                 \
    EACH(X_OP_R);                                                                        \
    NEXT;                                                                                \
    L_##CASE##_RU : u = SPLAT(uniforms[instr->a]);                                       \
    EACH(X_OP_RU);                                                                       \
    NEXT;                                                                                \
    L_##CASE##_S : EACH(X_OP_S);                                                         \
    NEXT;                                                                                \
    L_##CASE##_RS : EACH(X_OP_RS);                                                       \
    NEXT;
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
#define SELECT(CASE, X)                                                                  \
    L_##CASE : a = blocks[instr->a];                                                     \
    b = blocks[instr->b];                                                                \
    c = blocks[instr->c];                                                                \
    EACH(X);                                                                             \
    NEXT;
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
L_TAPE_END:
    return;
}

#undef LANES
#undef EACH
#undef ACC
#undef AT
#undef NEXT
#undef X_LOAD
#undef X_SPLAT
#undef X_STORE
#undef X_OP
#undef X_OP_U
#undef X_OP_R
#undef X_OP_RU
#undef X_OP_S
#undef X_OP_RS
#undef SAVED
#undef X_SAVE
#undef HAS_32_REGISTERS
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
#undef LT
#undef LE
#undef BLEND

/*
 * Runs tapes: the once-per-call part, the blocks, and the choice among the instruction
 * sets.
 *
 * The interpreter (sim/symbolic/tape_kernel.h) is compiled for each instruction set with that
 * set's intrinsics: what the compilers make of "a < b ? a : b" in a plain loop is two
 * instructions or, without AVX2, a branch, where the processor has one that does exactly
 * this; and only with a vector type does the accumulator stay in registers. Never with
 * FMA: results must not depend on the processor.
 */
#include "sim/symbolic/tape_internal.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_X86 1
#include <immintrin.h>
#else
#define HAS_X86 0
#endif

/* Labels as values are an extension of GNU C that clang has too. */
#pragma GCC diagnostic ignored "-Wpedantic"

/* clang-format off */
#define NAME(x)        x##_portable
#define TARGET
#define VEC            double
#define WIDTH          1
#define LOAD(p)        (*(p))
#define STORE(p, v)    (*(p) = (v))
#define SPLAT(s)       (s)
#define ADD(a, b)      ((a) + (b))
#define SUB(a, b)      ((a) - (b))
#define MUL(a, b)      ((a) * (b))
#define DIV(a, b)      ((a) / (b))
#define MIN(a, b)      ((a) < (b) ? (a) : (b))
#define MAX(a, b)      ((a) > (b) ? (a) : (b))
#define LT(a, b)       ((a) < (b))
#define LE(a, b)       ((a) <= (b))
#define BLEND(m, a, b) ((m) ? (a) : (b))
#define HAS_32_REGISTERS 0
#include "sim/symbolic/tape_kernel.h"

#if HAS_X86
#define NAME(x)        x##_avx2
#define TARGET         __attribute__((target("avx2")))
#define VEC            __m256d
#define WIDTH          4
#define LOAD(p)        _mm256_loadu_pd(p)
#define STORE(p, v)    _mm256_storeu_pd(p, v)
#define SPLAT(s)       _mm256_set1_pd(s)
#define ADD(a, b)      _mm256_add_pd(a, b)
#define SUB(a, b)      _mm256_sub_pd(a, b)
#define MUL(a, b)      _mm256_mul_pd(a, b)
#define DIV(a, b)      _mm256_div_pd(a, b)
#define MIN(a, b)      _mm256_min_pd(a, b)
#define MAX(a, b)      _mm256_max_pd(a, b)
#define LT(a, b)       _mm256_cmp_pd(a, b, _CMP_LT_OQ)
#define LE(a, b)       _mm256_cmp_pd(a, b, _CMP_LE_OQ)
#define BLEND(m, a, b) _mm256_blendv_pd(b, a, m)
#define HAS_32_REGISTERS 0
#include "sim/symbolic/tape_kernel.h"

#define NAME(x)        x##_avx512
#define TARGET         __attribute__((target("avx512f,avx512vl,avx512dq")))
#define VEC            __m512d
#define WIDTH          8
#define LOAD(p)        _mm512_loadu_pd(p)
#define STORE(p, v)    _mm512_storeu_pd(p, v)
#define SPLAT(s)       _mm512_set1_pd(s)
#define ADD(a, b)      _mm512_add_pd(a, b)
#define SUB(a, b)      _mm512_sub_pd(a, b)
#define MUL(a, b)      _mm512_mul_pd(a, b)
#define DIV(a, b)      _mm512_div_pd(a, b)
#define MIN(a, b)      _mm512_min_pd(a, b)
#define MAX(a, b)      _mm512_max_pd(a, b)
#define LT(a, b)       _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ)
#define LE(a, b)       _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ)
#define BLEND(m, a, b) _mm512_mask_blend_pd(m, b, a)
#define HAS_32_REGISTERS 1
#include "sim/symbolic/tape_kernel.h"
#endif
/* clang-format on */

typedef void block_function(const struct mist_tape *tape, double *const *blocks,
                            const double *uniforms);

static const struct {
    block_function *run_block;
    size_t n_lanes;
} isas[MIST_TAPE_N_ISAS] = {
    [MIST_TAPE_PORTABLE] = {run_block_portable, 8},
#if HAS_X86
    [MIST_TAPE_AVX2] = {run_block_avx2, 32},
    [MIST_TAPE_AVX512] = {run_block_avx512, 64},
#endif
};

bool tape_has_isa(enum mist_tape_isa isa)
{
    if (isa == MIST_TAPE_PORTABLE)
        return true;
#if HAS_X86
    __builtin_cpu_init();
    if (isa == MIST_TAPE_AVX2)
        return __builtin_cpu_supports("avx2");
    if (isa == MIST_TAPE_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
#endif
    return false;
}

enum mist_tape_isa tape_best_isa(void)
{
    if (tape_has_isa(MIST_TAPE_AVX512))
        return MIST_TAPE_AVX512;
    return tape_has_isa(MIST_TAPE_AVX2) ? MIST_TAPE_AVX2 : MIST_TAPE_PORTABLE;
}

/*
 * The scratch memory: pointers of all blocks, the uniform values, then blocks of
 * TAPE_LANES_MAX: one per register, and one per column and output for the last,
 * incomplete block.
 */
struct frame {
    double **blocks;  /* [columns + outputs + registers] */
    double *uniforms; /* [n_uniforms] */
    double *pads;     /* [columns + outputs][TAPE_LANES_MAX] */
};

static size_t n_pads(const struct mist_tape *tape)
{
    return (size_t)tape->n_columns + (size_t)tape->n_outputs;
}

static size_t n_blocks(const struct mist_tape *tape)
{
    return n_pads(tape) + (size_t)tape->n_registers;
}

static size_t pointer_bytes(const struct mist_tape *tape)
{
    return (n_blocks(tape) * sizeof(double *) + 63) & ~(size_t)63;
}

static size_t uniform_bytes(const struct mist_tape *tape)
{
    return ((size_t)tape->n_uniforms * sizeof(double) + 63) & ~(size_t)63;
}

size_t mist_tape_scratch_bytes(const struct mist_tape *tape)
{
    return pointer_bytes(tape) + uniform_bytes(tape) +
           n_blocks(tape) * TAPE_LANES_MAX * sizeof(double) + 64;
}

static void compute_uniforms(const struct mist_tape *tape,
                             const struct mist_tape_input *inputs, double *uniforms)
{
    for (int32_t i = 0; i < tape->n_uniforms; i++)
        uniforms[i] = tape->constants[i];
    for (size_t i = 0; i < tape->n_uniform_symbols; i++)
        uniforms[tape->uniform_symbols[i].to] =
            inputs[tape->uniform_symbols[i].from].value;
    for (size_t i = 0; i < tape->n_prologue; i++) {
        const struct tape_scalar_instr *instr = &tape->prologue[i];
        double args[4] = {0};
        for (int k = 0; k < mist_expr_n_args((enum mist_expr_op)instr->op); k++)
            args[k] = uniforms[instr->arg[k]];
        uniforms[instr->dst] = mist_expr_apply((enum mist_expr_op)instr->op, args);
    }
}

static void fill(double *block, double value)
{
    for (size_t i = 0; i < TAPE_LANES_MAX; i++)
        block[i] = value;
}

/* Everything that holds for the whole call:
 * registers, uniforms, columns that are one value. */
static struct frame set_up(const struct mist_tape *tape,
                           const struct mist_tape_input *inputs, void *scratch)
{
    char *base = scratch;
    struct frame frame = {.blocks = scratch,
                          .uniforms = (void *)(base + pointer_bytes(tape)),
                          .pads =
                              (void *)(base + pointer_bytes(tape) + uniform_bytes(tape))};

    for (size_t i = 0; i < n_blocks(tape); i++)
        frame.blocks[i] = frame.pads + i * TAPE_LANES_MAX;
    compute_uniforms(tape, inputs, frame.uniforms);
    for (size_t i = 0; i < tape->n_splats; i++)
        fill(frame.blocks[tape->splats[i].to], frame.uniforms[tape->splats[i].from]);
    for (int32_t i = 0; i < tape->n_columns; i++)
        if (!inputs[tape->column_symbols[i]].column)
            fill(frame.blocks[i], inputs[tape->column_symbols[i]].value);
    return frame;
}

/* A block of configurations that are not all behind one another, or too few: columns are
 * copied together, outputs back. */
static void run_copied(const struct mist_tape *tape, const struct mist_tape_input *inputs,
                       const int32_t *rows, size_t n, double *const *outputs,
                       const struct frame *frame)
{
    for (size_t i = 0; i < n_pads(tape); i++)
        frame->blocks[i] = frame->pads + i * TAPE_LANES_MAX;
    for (int32_t i = 0; i < tape->n_columns; i++) {
        const double *column = inputs[tape->column_symbols[i]].column;
        double *block = frame->blocks[i];
        if (!column)
            continue;
        for (size_t k = 0; k < n; k++)
            block[k] = column[rows[k]];
        for (size_t k = n; k < isas[tape->isa].n_lanes; k++)
            block[k] = block[0];
    }
    isas[tape->isa].run_block(tape, frame->blocks, frame->uniforms);
    for (int32_t i = 0; i < tape->n_outputs; i++) {
        const double *block = frame->blocks[tape->n_columns + i];
        for (size_t k = 0; k < n && outputs[i]; k++)
            outputs[i][rows[k]] = block[k];
    }
}

/* A full block of those behind first. */
static void run_in_place(const struct mist_tape *tape,
                         const struct mist_tape_input *inputs, size_t first,
                         double *const *outputs, const struct frame *frame)
{
    for (int32_t i = 0; i < tape->n_columns; i++) {
        const double *column = inputs[tape->column_symbols[i]].column;
        if (column)
            frame->blocks[i] = (double *)(uintptr_t)(column + first); /* never written */
    }
    for (int32_t i = 0; i < tape->n_outputs; i++)
        if (outputs[i])
            frame->blocks[tape->n_columns + i] = outputs[i] + first;
    isas[tape->isa].run_block(tape, frame->blocks, frame->uniforms);
}

void mist_tape_eval(const struct mist_tape *tape, const struct mist_tape_input *inputs,
                    const int32_t *rows, size_t n, double *const *outputs, void *scratch)
{
    struct frame frame = set_up(tape, inputs, scratch);
    size_t n_lanes = isas[tape->isa].n_lanes;
    int32_t last[TAPE_LANES_MAX];

    for (size_t first = 0; first < n; first += n_lanes) {
        size_t n_now = n - first < n_lanes ? n - first : n_lanes;
        size_t begin = rows ? (size_t)rows[first] : first;
        if (n_now == n_lanes &&
            (!rows || (size_t)rows[first + n_now - 1] == begin + n_now - 1)) {
            run_in_place(tape, inputs, begin, outputs, &frame);
            continue;
        }
        for (size_t k = 0; k < n_now && !rows; k++)
            last[k] = (int32_t)(first + k);
        run_copied(tape, inputs, rows ? rows + first : last, n_now, outputs, &frame);
    }
}

/*
 * The CPU backend's operators in bf16: activations and weights are stored in 16 bits,
 * everything is computed in fp32.
 *
 * What differs in functions of cpu_kernels.h (read that first) with is_bf16 or a context:
 *   - mist_bf16 tensors are the upper half of an fp32: rounded to nearest, ties to even;
 *     NaN stays NaN. A result is rounded once, when it is stored.
 *   - Statistics (norm, lse, cross-entropy), losses, rotary tables, and the optimizer's
 *     state are fp32; gradients of parameters, too, unless how has
 *     MIST_CPU_BF16_GRADIENTS.
 *   - Scratch comes from the caller (size from the *_workspace_bytes function beside it,
 *     alignment of float) where a row must be held in fp32.
 *   - Linear layers and attention multiply bf16 by bf16 and accumulate in fp32 in oneDNN,
 *     for which they need a context. Should oneDNN fail (out of memory), the output becomes
 *     NaN: the step's finiteness check then ends the run.
 *   - Attention rounds its probabilities, not yet divided by their sum, and the slopes of
 *     its scores for the products that read them, as flash attention does on a GPU.
 * The bits of every result are the same for any n_threads.
 */
#ifndef MIST_EXEC_CPU_BF16_H
#define MIST_EXEC_CPU_BF16_H

#include "core/bf16.h"
#include "core/status.h"
#include "exec/operators/cpu_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------- conversion */

/* On the calling thread: out[n] = x[n], rounded. */
void mist_cpu_bf16_from_float(mist_bf16 *out, const float *x, int64_t n);

/* out[n] = x[n], exactly. */
void mist_cpu_bf16_to_float(float *out, const mist_bf16 *x, int64_t n);

/* --------------------------------------------------------------------------- products */

/*
 * Compiled products, one per shape that was asked for, and the scratch they need. One
 * thread at a time may use a context. A product's first use allocates, later ones do not:
 * run each shape once before a step that must not allocate.
 */
struct mist_cpu_bf16;

/* Returns a context for calls with up to n_threads threads (>= 1), to be freed by the
 * caller. MIST_ERR_MEMORY: out is NULL then. */
enum mist_status mist_cpu_bf16_new(struct mist_cpu_bf16 **out, int n_threads,
                                   struct mist_err *err) MIST_MUST_CHECK;
void mist_cpu_bf16_free(struct mist_cpu_bf16 *context); /* NULL: nothing */

/* True if operands are widened and multiplied in fp32, which takes longer than fp32 does:
 * oneDNN 2 multiplies bf16 on processors with AVX-512 (fast only where they have
 * instructions for it), and version 3 by another interface. */
bool mist_cpu_bf16_is_widened(const struct mist_cpu_bf16 *context);

#endif

/*
 * Whether the config.json of a Hugging Face model describes what a run computes: tensors
 * of the right shapes say nothing of heads, epsilons, activations or frequencies.
 *
 * Keys and defaults are those of transformers' GPT2Config and LlamaConfig. What a key of
 * another value would change in a forward pass is compared or, where we know one way
 * only, must ask for that: heads, sizes, epsilon, activation, rope_theta, rope_scaling,
 * tying, biases, scales of attention. Left out: dropout, which belongs to a training run
 * and not to its weights.
 */
#ifndef MIST_EXEC_HF_CONFIG_H
#define MIST_EXEC_HF_CONFIG_H

#include "core/status.h"
#include "sim/model/model.h"

#include <stdbool.h>

/*
 * weights: a folder with a config.json, or a file beside one. model must have passed
 * mist_model_check(), gpt or llama. *is_there: there is a config.json; without one there
 * is nothing to check. MIST_ERR_INPUT names file, line, key, what was found and what was
 * expected; MIST_ERR_IO, MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_hf_check_config(const char *weights,
                                                      const struct mist_model *model,
                                                      bool *is_there,
                                                      struct mist_err *err);

#endif

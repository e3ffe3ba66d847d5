/*
 * Whether the config.json of a Hugging Face model describes what a run computes: tensors
 * of the right shapes say nothing of heads, epsilons, activations or frequencies.
 *
 * It is read as a model for planning is (sim/model/model_keys.h), and what stands in those
 * tables is compared with the plan's model: sizes, heads, epsilon, activation, frequencies
 * and their scaling, tying, windows. What asks for another computation than ours is
 * refused by its key. Left out: dropout, which belongs to a training run and not to its
 * weights.
 */
#ifndef MIST_EXEC_HF_CONFIG_H
#define MIST_EXEC_HF_CONFIG_H

#include "core/status.h"
#include "sim/model/model.h"

#include <stdbool.h>

/*
 * weights: a folder with a config.json, or a file beside one. model must have passed
 * mist_model_check(). *is_there: there is a config.json; without one there
 * is nothing to check. MIST_ERR_INPUT names file, line, key, what was found and what was
 * expected; MIST_ERR_IO, MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_hf_check_config(const char *weights,
                                                      const struct mist_model *model,
                                                      bool *is_there,
                                                      struct mist_err *err);

#endif

/*
 * Frequencies of rotary position embedding (Su et al. 2021), as they are or changed for
 * sequences longer than those of the pre-training. See model.h.
 *
 * linear   Chen et al. 2023, "Extending Context Window of Large Language Models via
 *          Positional Interpolation": all divided by the factor.
 * llama3   Llama 3.1's: waves longer than original / low_frequency_factor positions are
 *          slowed down by the factor, those shorter than original / high_frequency_factor
 *          stay, and between them the two are mixed by the number of turns within the
 *          original positions (transformers, modeling_rope_utils.py).
 */
#include "sim/model/model.h"

#include <math.h>

static double scale_llama3(const struct mist_model *m, double frequency)
{
    const double two_pi = 6.283185307179586;
    double low = m->rope_low_frequency_factor, high = m->rope_high_frequency_factor;
    double n_turns = m->rope_original_positions * frequency / two_pi;
    double kept = (n_turns - low) / (high - low);

    if (n_turns > high)
        return frequency;
    if (n_turns < low)
        return frequency / m->rope_factor;
    return (1 - kept) * frequency / m->rope_factor + kept * frequency;
}

double mist_model_rope_frequency(const struct mist_model *model, int32_t j)
{
    int32_t rotary_dim = model->rotary_dim > 0 ? model->rotary_dim : model->head_dim;
    double frequency = pow(model->rope_theta, -2.0 * (double)j / (double)rotary_dim);

    if (j >= rotary_dim / 2)
        return 0;
    switch (model->rope_scaling) {
    case MIST_ROPE_LINEAR:
        return frequency / model->rope_factor;
    case MIST_ROPE_LLAMA3:
        return scale_llama3(model, frequency);
    default:
        return frequency;
    }
}

/* Which channels are run together, and the rows of what was measured. See
 * time_interference.h. */
#include "profile/time_interference.h"

#include "traces/trace_set.h"

#include <string.h>

static int n_channels_of(unsigned channels)
{
    int n = 0;

    for (int c = 0; c < MIST_N_CHANNELS; c++)
        n += (channels >> c & 1u) != 0;
    return n;
}

/* All ratios of one set of channels, appended at n; the new number. */
static int32_t add_set(struct mist_mixture *out, int32_t n, unsigned channels,
                       enum mist_mixture_message message)
{
    for (int doubled = -1; doubled < MIST_N_CHANNELS; doubled++) {
        if (doubled >= 0 && !(channels >> doubled & 1u))
            continue;
        out[n] = (struct mist_mixture){.channels = channels, .message = message};
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            out[n].ratio[c] = channels >> c & 1u ? 1 + (c == doubled) : 0;
        n++;
    }
    return n;
}

int32_t mist_mixtures_make(int32_t n_ranks, bool is_quick,
                           struct mist_mixture out[MIST_MIXTURES_MAX])
{
    const unsigned gpu_gpu = 1u << MIST_STREAM_GPU_GPU;
    const unsigned compute = 1u << MIST_STREAM_COMPUTE;
    int32_t n = 0;

    for (int size = 2; size <= MIST_N_CHANNELS; size++)
        for (unsigned set = 0; set < 1u << MIST_N_CHANNELS; set++) {
            if (n_channels_of(set) != size || (n_ranks < 2 && set & gpu_gpu))
                continue;
            n = add_set(out, n, set, MIST_MIXTURE_REDUCE);
            if (set & gpu_gpu && (!is_quick || set == (gpu_gpu | compute)))
                n = add_set(out, n, set, MIST_MIXTURE_EXCHANGE);
            if (set == (gpu_gpu | compute)) {
                n = add_set(out, n, set, MIST_MIXTURE_GATHER);
                n = add_set(out, n, set, MIST_MIXTURE_SCATTER);
            }
        }
    return n;
}

enum mist_status mist_mixtures_add_rows(const struct mist_mixture *mixtures, int32_t n,
                                        const struct mist_grid_config *config,
                                        const struct mist_messages *messages,
                                        struct mist_trace_set *traces,
                                        struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        const struct mist_estimate *together = &mixtures[i].together;
        struct mist_interference_row row = {.channels = mixtures[i].channels,
                                            .nodes = config->n_nodes,
                                            .ranks_per_node =
                                                config->n_ranks / config->n_nodes,
                                            .together_us = together->median,
                                            .deviation_us = together->deviation,
                                            .repetitions = together->n};
        struct mist_err why = {0};
        memcpy(row.alone_us, mixtures[i].alone_us, sizeof row.alone_us);
        status = mist_trace_set_add_interference(traces, &row, &why);
        if (status == MIST_OK)
            continue;
        if (status != MIST_ERR_INPUT) {
            *err = why;
            return status;
        }
        char channels[MIST_CHANNELS_TEXT_MAX];
        mist_channels_to_text(row.channels, channels);
        if (messages)
            mist_message(messages, "a mixture of %s is left out: %s", channels,
                         why.message);
        status = MIST_OK;
    }
    return status;
}

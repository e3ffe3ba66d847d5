/* Iterations that are not alike. See sim_uneven.h. */
#include "sim/sim_uneven.h"

#include "core/statistics.h"

void mist_sim_uneven_add_iterations(struct mist_emit *emit,
                                    const struct mist_replay_result *result)
{
    static const struct {
        double frac;
        const char *key, *label;
    } quantiles[] = {
        {0, "shortest_s", "the shortest of them"},
        {0.5, "median_s", "half of them take up to"},
        {0.9, "p90_s", "9 of 10 take up to"},
        {0.99, "p99_s", "99 of 100 take up to"},
        {1, "longest_s", "the longest"},
    };
    size_t n = (size_t)result->n_iterations;

    if (n < 2)
        return;
    mist_emit_integer(emit, "iterations", "mean of iterations", (int64_t)n);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        mist_emit_double(emit, quantiles[i].key, quantiles[i].label,
                         mist_quantile(result->iterations_s, n, quantiles[i].frac),
                         MIST_HUMAN_TIME_S);
}

void mist_sim_uneven_add_loads(struct mist_emit *emit, const struct mist_loads *loads)
{
    double n = loads->n_iterations, n_sequences = (double)loads->n_sequences;
    double room = n * loads->n_micro_batches * loads->n_samples * loads->seq_len;
    double held_frac = loads->packed.tokens / room;

    mist_emit_double(emit, "tokens", "tokens of an iteration", loads->packed.tokens / n,
                     MIST_HUMAN_COUNT);
    mist_emit_number(emit, "sequences", "its sequences", n_sequences / n);
    mist_emit_number(emit, "filled_frac", "of full samples", held_frac);
    mist_emit_number(emit, "padded_frac", "and padding", loads->mean.tokens - held_frac);
    mist_emit_number(emit, "cut_frac", "sequences that are cut",
                     n_sequences > 0 ? (double)loads->n_cut / n_sequences : 0);
}

void mist_sim_uneven_add_causes(struct mist_emit *emit,
                                const struct mist_replay_causes *causes, size_t n_most)
{
    char text[64];

    mist_emit_number(emit, "even_s", "if all were even", causes->even_s);
    mist_emit_number(emit, "slowdown", "slowdown by unevenness",
                     causes->even_s > 0 ? causes->iteration_s / causes->even_s : 1);
    mist_emit_list_begin(emit, "causes", "What slows iterations down");
    for (size_t i = 0; i < causes->n && (n_most == 0 || i < n_most); i++) {
        const struct mist_replay_cause *cause = &causes->causes[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "cause", "cause",
                       mist_replay_cause_text(&cause->part, text, sizeof text));
        mist_emit_number(emit, "alone_slowdown", "alone, slowdown", cause->alone_frac);
        mist_emit_number(emit, "without_s", "iteration without it", cause->without_s);
        mist_emit_number(
            emit, "saved_frac", "less",
            causes->iteration_s > 0 ? 1 - cause->without_s / causes->iteration_s : 0);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* A job as a graph of activities that both simulators understand (bench_simgrid.c). */
#ifndef MIST_TESTS_BENCH_SIMGRID_JOB_H
#define MIST_TESTS_BENCH_SIMGRID_JOB_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What activities are; those of a kind and rank follow one another. */
enum { COMPUTE, TP_RING, DP_RING, FORWARD, BACKWARD, N_KINDS };

/* Computation of a rank, or a message on the link of that kind from one to another, which
 * is shared with nobody. */
struct activity {
    int8_t kind;
    int32_t from, to;     /* ranks; the same: computation */
    int32_t waits_for[2]; /* earlier activities; -1: none */
    double time_s;
};

struct job {
    int32_t n_ranks, n;
    const struct activity *activities; /* [n] */
};

/* The end of the job by SimGrid, once per process. bytes_per_s: of its links. */
double simgrid_replay(const struct job *job, double bytes_per_s);

#ifdef __cplusplus
}
#endif

#endif

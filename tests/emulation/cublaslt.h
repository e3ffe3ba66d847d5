/*
 * Knobs and counters of the stand-in for cuBLASLt (cublaslt.c), for tests.
 */
#ifndef MIST_TESTS_EMULATION_CUBLASLT_H
#define MIST_TESTS_EMULATION_CUBLASLT_H

#include <stdbool.h>
#include <stdint.h>

struct mist_test_cublaslt {
    bool refuses_fusion;        /* heuristics have nothing with an epilogue, */
    uint32_t refuses;           /* nothing for this cublasLtEpilogue_t; 0: all have one */
    uint32_t launch_refuses;    /* a cublasLtEpilogue_t that is not launched; 0: none */
    int launch_status;          /* but answered with this cublasStatus_t, */
    int64_t n_launches_refused; /* so often from now on */
    int64_t fail_at;            /* the fail_at-th fallible call from now fails; 0: none */
    int64_t n_calls;            /* fallible calls so far */
    int64_t n_heuristics;       /* cublasLtMatmulAlgoGetHeuristic */
    int64_t n_matmuls;          /* cublasLtMatmul */
    int64_t n_alive;            /* objects that were created and not destroyed */
    int64_t i_last_algorithm;   /* of the last product; 0 is the heuristics' first */
    uint32_t last_epilogue;     /* of the last product */
    uint32_t last_schemes;      /* reduction schemes allowed in the last heuristics */
};

extern struct mist_test_cublaslt mist_test_cublaslt;

/* Algorithms that the stand-in has for every product; the i-th needs i KiB
 * of workspace. */
enum { MIST_TEST_CUBLASLT_N_ALGORITHMS = 5 };

#endif

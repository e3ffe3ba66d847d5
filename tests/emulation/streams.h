/*
 * Streams and events of the emulator, for cudart.c, the launches of emulation.h and the
 * stand-ins of libraries. Needs no header of CUDA.
 *
 * Work runs at once, at the call, unless the environment has MIST_EMULATION_STREAMS=lazy
 * (or =lazy-forward), or a test says so: then it is queued until something waits for it
 * on the host, and that runs all other streams first, the last made before the others
 * (forward: only what is waited for, and what that waits for). Both are orders that a GPU
 * may choose, too, and the farthest from the one in which the host called: where an event
 * is missing, results are wrong.
 *
 * A stream that captures keeps its work in a graph instead, with what it has to wait for;
 * a launched graph runs in the order of the capture, or as late as may be, the last
 * work first with what that waits for.
 *
 * For one thread. Functions of the host in a stream may not call CUDA; one that does, in
 * the thread that the stream called it in, ends the program.
 */
#ifndef MIST_TESTS_EMULATION_STREAMS_H
#define MIST_TESTS_EMULATION_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;

/* What a call did that CUDA refuses; the capture that it concerns is of no use then. */
enum mist_emulated_misuse {
    MIST_EMULATED_FINE,
    MIST_EMULATED_NOT_WHILE_CAPTURING, /* the host can't wait for what does not run */
    MIST_EMULATED_OUTSIDE_EVENT,       /* a captured wait for what was not captured */
    MIST_EMULATED_CAPTURED_EVENT,      /* the reverse */
    MIST_EMULATED_UNJOINED,            /* a stream that took part leads nowhere */
    MIST_EMULATED_INVALIDATED,         /* by one of these before */
    MIST_EMULATED_UNMATCHED /* an end without this stream's begin, or reverse */
};

enum mist_emulated_order {
    MIST_EMULATED_AT_ONCE,
    MIST_EMULATED_LAZY,
    MIST_EMULATED_LAZY_FORWARD
};

/* From now on; what is queued is run first. */
void mist_emulated_streams_set(enum mist_emulated_order order);

/* fn(copy of arg[arg_bytes]) in a stream; on the default stream (NULL) at once. */
void mist_emulated_stream_run(struct CUstream_st *stream, void (*fn)(void *),
                              const void *arg, size_t arg_bytes);

/* The same of a function of the host. */
void mist_emulated_stream_run_host(struct CUstream_st *stream, void (*fn)(void *),
                                   void *arg);

/* Is told what each kernel and product is that is launched from now on, and none of them
 * runs: "(norm<T>)", "cublasLtMatmul GELU_AUX". NULL: they run. */
extern void (*mist_emulated_watch)(const char *what);

/* Ends the program if a function of the host is running. */
void mist_emulated_stream_enter(const char *call);

struct CUstream_st *mist_emulated_stream_new(int priority);
int mist_emulated_stream_priority(const struct CUstream_st *stream);
void mist_emulated_stream_free(struct CUstream_st *stream); /* runs what is queued */
enum mist_emulated_misuse mist_emulated_stream_synchronize(struct CUstream_st *stream);
void mist_emulated_streams_synchronize(void); /* all of them */
bool mist_emulated_streams_capture(void);     /* one of them, now */

/* *out: the caller's; NULL where anything was wrong. */
enum mist_emulated_misuse mist_emulated_capture_begin(struct CUstream_st *stream);
enum mist_emulated_misuse mist_emulated_capture_end(struct CUstream_st *stream,
                                                    struct CUgraph_st **out);
void mist_emulated_graph_run(struct CUgraph_st *graph, struct CUstream_st *stream);
void mist_emulated_graph_hold(struct CUgraph_st *graph); /* one more owner */
void mist_emulated_graph_free(struct CUgraph_st *graph); /* by each; streams idle */
int mist_emulated_graphs_count(void);

struct CUevent_st *mist_emulated_event_new(void);
void mist_emulated_event_free(struct CUevent_st *event);
void mist_emulated_event_record(struct CUevent_st *event, struct CUstream_st *stream);
/* What stream gets from now on waits for the latest record; without one for nothing. */
enum mist_emulated_misuse mist_emulated_event_wait(struct CUevent_st *event,
                                                   struct CUstream_st *stream);
bool mist_emulated_event_is_done(const struct CUevent_st *event);
enum mist_emulated_misuse mist_emulated_event_synchronize(struct CUevent_st *event);
double mist_emulated_event_time_s(const struct CUevent_st *event);

/* How many of the two there are. */
int mist_emulated_streams_count(void);
int mist_emulated_events_count(void);

#ifdef __cplusplus
}
#endif

#endif

/* What sim/event_prepare.c builds and sim/event_engine.c runs. Private to these two. */
#ifndef MIST_SIM_EVENT_INTERNAL_H
#define MIST_SIM_EVENT_INTERNAL_H

#include "sim/event_engine.h" /* the graph and the rules */

#include <stdbool.h>
#include <stdint.h>

/* A stream's number: device * MIST_N_STREAMS + channel. */

/* What happens to one task touches one half of a cache line. */
struct event_task {
    double work_s;      /* copied from the graph at the start of a run */
    int32_t stream;     /* where it runs */
    int32_t rendezvous; /* -1: none */
    int32_t next;       /* on the same stream, -1: last */
    int32_t succ_begin; /* tasks that depend on it: succ[succ_begin .. succ_end - 1] */
    int32_t succ_end;
    int32_t pending; /* dependencies and stream predecessor that have not ended */
};

/* Something that runs: one task, or all members of a rendezvous. Its number is the stream
 * of the task or of the member with the lowest index, so there is one record
 * per stream. */
struct event_flow {
    double left_s;      /* work left at since_s */
    double since_s;     /* time of the last change of its rate */
    double slowdown;    /* 1 / rate since then; 0: just started */
    double worst;       /* largest slowdown of its members */
    int32_t n_worst;    /* members that have it */
    int32_t task;       /* the task, or the lowest member */
    int32_t rendezvous; /* -1: a single task */
    int32_t link;       /* -1: none */
    int32_t link_prev;  /* neighbours among the flows on the link, -1: none */
    int32_t link_next;
    bool running;
    bool dirty;  /* is in dirty_flow */
    bool rescan; /* worst and n_worst must be found anew */
};

struct event_device {
    const struct mist_interference *factors;
    unsigned busy; /* set of streams that run something */
    bool dirty;    /* is in dirty_device */
};

struct event_link_state {
    int32_t first;   /* flow on it, -1: none */
    int32_t n_users; /* flows on it */
    bool dirty;      /* is in dirty_link */
};

/* A projected end. Four children are one cache line. */
struct event_heap_entry {
    double end_s;
    int32_t flow;
};

struct mist_event_engine {
    const struct mist_event_graph *graph; /* borrowed */
    int32_t n_tasks;
    int32_t n_streams;
    struct event_task *task;     /* [n_tasks] */
    int32_t *succ;               /* [dependencies] */
    int32_t *member_begin;       /* [n_rendezvous + 1] */
    int32_t *member;             /* [member_begin[n_rendezvous]] tasks, ascending */
    int32_t *n_missing;          /* [n_rendezvous] members that are not ready */
    struct event_device *device; /* [n_devices] */
    double *stream_slowdown; /* [n_streams] current factor of what runs there; 0: new */
    int32_t *stream_flow;    /* [n_streams] flow that runs there, -1: none */
    int32_t *stream_last;    /* [n_streams] scratch of the set-up */
    struct event_flow *flow; /* [n_streams] */
    struct event_link_state *link; /* [n_links] */
    struct event_heap_entry *heap; /* [n_heap] 4-ary, children of i: 4i + 1 .. 4i + 4 */
    int32_t *heap_at;              /* [n_streams] place of a flow in the heap, -1: none */
    int32_t *ready;                /* [n_streams] stack of tasks to be started */
    int32_t *ending;               /* [n_streams] flows that end at this instant */
    int32_t *dirty_flow;           /* [n_streams] */
    int32_t *dirty_device;         /* [n_devices] */
    int32_t *dirty_link;           /* [n_links] */
    int32_t n_heap, n_ready, n_dirty_flow, n_dirty_device, n_dirty_link;
    int32_t n_done; /* tasks that have ended */
    double now_s;
    struct mist_event_result result;
    struct mist_interference undisturbed; /* for devices without interference */
};

/* Everything of the graph that may change between runs: interference, links. */
enum mist_status event_check_values(const struct mist_event_graph *graph,
                                    struct mist_err *err) MIST_MUST_CHECK;

/* Explains why nothing runs any more: a cycle among what the stuck tasks wait for. end_s
 * < 0 marks tasks that have not ended. Overwrites stream_last. Returns MIST_ERR_INPUT. */
enum mist_status event_explain_deadlock(struct mist_event_engine *engine,
                                        struct mist_err *err);

#endif

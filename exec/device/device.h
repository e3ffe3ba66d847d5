/*
 * A device: two memory arenas, seven streams, and events that order them.
 *
 * This is the one interface behind which the backends stand. The runtime's dispatcher
 * (one thread) enqueues the tasks of a schedule; every stream works on its own queue in
 * order; events order tasks of different streams. On the CPU a stream is a worker thread
 * and the body of a task does the work. A device with streams of its own calls the body
 * at once, in the dispatcher's thread, and the body launches kernels and copies into the
 * stream that the task was submitted to. Bodies of the host stream always compute in a
 * thread of their own, in memory of the host, and call nothing of the device but
 * mist_device_fail().
 *
 * Nothing here allocates memory between mist_device_reset_events() and
 * mist_device_synchronize(). Left out: priorities, more than one dispatcher thread,
 * changing the CPU affinity (workers inherit it).
 */
#ifndef MIST_EXEC_DEVICE_H
#define MIST_EXEC_DEVICE_H

#include "core/status.h"
#include "sim/schedule/schedule.h" /* enum mist_buffer_arena */
#include "traces/timeline.h"       /* enum mist_stream */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who computes attention on a GPU, in the order of mist_attention_words. AUTO: cuDNN in
 * bf16, which then has to be there, else the own kernels. */
enum mist_attention_choice {
    MIST_ATTENTION_AUTO,
    MIST_ATTENTION_CUDNN,
    MIST_ATTENTION_OWN
};
extern const char *const mist_attention_words[]; /* "auto", "cudnn", "own"; NULL */

/* Whether iterations that launch the same work are captured and replayed. AUTO: where
 * that is possible and turns out to be faster. */
enum mist_graphs_choice { MIST_GRAPHS_AUTO, MIST_GRAPHS_ON, MIST_GRAPHS_OFF };
extern const char *const mist_graphs_words[]; /* "auto", "on", "off"; NULL */

struct mist_device_config {
    int64_t arena_bytes[MIST_N_ARENAS]; /* exact sizes, >= 0 */
    int64_t result_bytes; /* of memory that tasks leave results in for the host */
    int32_t threads;  /* OpenMP threads of the compute stream's kernels, >= 1; a device
                            with a processor of its own ignores them */
    int32_t i_device; /* of this machine; a CPU is always 0 */
    /* On the thread that waits for them: for a CPU whose rank has no processor beside
     * those of its computation. */
    bool streams_take_turns;
    bool records;        /* tasks will be timed by the device (mist_device_begin_span) */
    bool allows_atomics; /* kernels may add in any order where that is faster: the last
                            bits change from run to run */
    enum mist_attention_choice attention;
};

/* Whether the streams of a rank that computes with n_threads (0: on a GPU) on
 * n_processors are to take turns. */
static inline bool mist_device_takes_turns(int32_t n_threads, int32_t n_processors)
{
    return n_threads > 0 && n_processors <= n_threads;
}

/* The body of a task, or a function of the host. Errors go to mist_device_fail(). */
typedef void (*mist_stream_fn)(void *arg);

/* What ran for a span: a kernel, a copy or a fill. */
struct mist_span_work {
    int64_t id;            /* of the span */
    const char *name;      /* of the kernel; the same pointer until the device closes */
    double start_s, end_s; /* on the clock of mist_clock_now_s() */
};
typedef void mist_span_fn(void *context, const struct mist_span_work *work);

/* Why nothing can be told of what was recorded. */
enum mist_span_loss {
    MIST_SPANS_WHOLE,      /* it can */
    MIST_SPANS_CLOCK_SET,  /* the time of day was set meanwhile */
    MIST_SPANS_INCOMPLETE, /* records were lost on their way */
    MIST_SPANS_TOO_MANY,   /* more launches than there is memory for */
};
const char *mist_span_loss_text(enum mist_span_loss loss); /* "the time of day was set" */

struct mist_device;

/* What a backend gives; the functions below say what each has to do. */
struct mist_device_ops {
    const char *name; /* "cpu", "cuda" */
    bool is_host;     /* bodies compute in the worker's thread, in memory of the host */
    void (*close)(struct mist_device *device);
    bool (*pause)(struct mist_device *device, double waited_s); /* NULL: never */
    void (*reset_events)(struct mist_device *device, int32_t n_events);
    void (*submit)(struct mist_device *device, enum mist_stream stream, mist_stream_fn fn,
                   void *arg);
    void (*record)(struct mist_device *device, enum mist_stream stream, int32_t event);
    void (*wait)(struct mist_device *device, enum mist_stream stream, int32_t event);
    /* has_failed was set: nobody may wait on; NULL: nobody of the host does */
    void (*wake)(struct mist_device *device);
    void (*drain)(struct mist_device *device); /* waits until all streams are idle */
    void (*copy)(struct mist_device *device, void *to, const void *from, int64_t bytes);
    /* arg_bytes > 0: fn gets a copy of arg[arg_bytes]; 0: arg itself. NULL: calls at once */
    void (*call_host)(struct mist_device *device, mist_stream_fn fn, void *arg,
                      size_t arg_bytes);
    void (*fetch_results)(struct mist_device *device); /* NULL: they are the host's */
    /* own: to or from, the one that is memory of the device; from NULL: zeros */
    enum mist_status (*transfer)(struct mist_device *device, void *to, const void *from,
                                 int64_t bytes, const void *own, struct mist_err *err);
    enum mist_status (*start_spans)(struct mist_device *device, struct mist_err *err);
    void (*begin_span)(struct mist_device *device, int64_t id); /* NULL: can't record */
    void (*end_span)(struct mist_device *device);
    enum mist_status (*collect_spans)(struct mist_device *device, mist_span_fn *fn,
                                      void *context, enum mist_span_loss *loss,
                                      struct mist_err *err);
    /* for a profiler that looks on; NULL: there is none to tell */
    void (*begin_range)(struct mist_device *device, const char *name, int64_t value);
    void (*end_range)(struct mist_device *device);
    /* all four, or NULL: can't */
    void (*begin_capture)(struct mist_device *device);
    void (*end_capture)(struct mist_device *device);
    void (*replay)(struct mist_device *device);
    void (*drop_capture)(struct mist_device *device);
    int64_t (*used_bytes)(struct mist_device *device); /* NULL: unknown */
    /* NULL: ordinary memory will do */
    enum mist_status (*alloc_host)(int64_t bytes, void **out, struct mist_err *err);
    void (*free_host)(void *memory);
};

/* What all devices share; a backend's own struct begins with it. */
struct mist_device {
    const struct mist_device_ops *ops;
    int64_t arena_bytes[MIST_N_ARENAS];
    void *arenas[MIST_N_ARENAS];
    int64_t result_bytes;
    bool allows_atomics, records;
    enum mist_attention_choice attention;
    void *results, *host_results; /* the same memory where ops->is_host */
    atomic_bool has_failed;
    pthread_mutex_t failure_mutex; /* guards the next two */
    enum mist_status failure;
    struct mist_err failure_err;
};

/* For backends: true since mist_device_fail(). Tasks are skipped, waits don't wait. */
static inline bool mist_device_has_failed(const struct mist_device *device)
{
    return atomic_load(&device->has_failed);
}

/* For backends: refuses sizes below 0 (MIST_ERR_RANGE). */
MIST_MUST_CHECK enum mist_status
mist_device_check(const struct mist_device_config *config, struct mist_err *err);

/* For backends: the shared part from a config, and its end. */
void mist_device_init(struct mist_device *device, const struct mist_device_ops *ops,
                      const struct mist_device_config *config);
void mist_device_fini(struct mist_device *device);

/*
 * Opens the CPU backend: allocates both arenas (4096-byte aligned, zeroed, every page
 * touched by the thread team of the compute stream) and starts the seven workers.
 * *out is owned by the caller (mist_device_close). MIST_OK, MIST_ERR_RANGE (a size or
 * threads out of range), MIST_ERR_MEMORY or MIST_ERR_RUN (no threads).
 */
MIST_MUST_CHECK enum mist_status
mist_device_open_cpu(const struct mist_device_config *config, struct mist_device **out,
                     struct mist_err *err);

/* Waits for the streams, stops them and frees everything. NULL allowed. */
void mist_device_close(struct mist_device *device);

/* First byte of an arena; NULL when it has size 0. Lives as long as the device. */
static inline void *mist_device_arena(const struct mist_device *device,
                                      enum mist_buffer_arena arena)
{
    return device->arenas[arena];
}

/* Bytes that were allocated for an arena. */
int64_t mist_device_arena_bytes(const struct mist_device *device,
                                enum mist_buffer_arena arena);

/* Whether the host may read and write an arena itself, while streams are idle. */
bool mist_device_is_addressable(const struct mist_device *device,
                                enum mist_buffer_arena arena);

/*
 * Starts an iteration with events 0 .. n_events-1, none of them recorded, and all results
 * zero. All streams must be idle. Allocates only when n_events is larger than ever
 * before; running out of memory counts as mist_device_fail(), which the next synchronize
 * returns.
 */
void mist_device_reset_events(struct mist_device *device, int32_t n_events);

/*
 * The three things a stream can do, enqueued behind what it has already: run fn(arg);
 * mark an event as recorded (once all that was enqueued before on this stream is done);
 * wait until an event is recorded. arg must live until the stream is idle. An event is
 * recorded at most once per iteration. A call blocks while the stream's queue is full;
 * so that it can't block forever, enqueue the record of an event before the waits for it.
 * A stream that was idle takes MIST_DEVICE_ALWAYS_TAKES tasks whatever holds it up.
 */
enum { MIST_DEVICE_ALWAYS_TAKES = 8 };
static inline void mist_device_submit(struct mist_device *device, enum mist_stream stream,
                                      mist_stream_fn fn, void *arg)
{
    device->ops->submit(device, stream, fn, arg);
}
static inline void mist_device_record(struct mist_device *device, enum mist_stream stream,
                                      int32_t event)
{
    device->ops->record(device, stream, event);
}
static inline void mist_device_wait(struct mist_device *device, enum mist_stream stream,
                                    int32_t event)
{
    device->ops->wait(device, stream, event);
}

/*
 * Reports that something went wrong; from any thread. The first report stays. From then
 * on tasks are skipped and waits don't wait, so nobody hangs; the device stays failed
 * until it is closed. err may be NULL.
 */
void mist_device_fail(struct mist_device *device, enum mist_status status,
                      const struct mist_err *err);

/* Waits until all streams are idle. MIST_OK or what mist_device_fail() got first. */
MIST_MUST_CHECK enum mist_status mist_device_synchronize(struct mist_device *device,
                                                         struct mist_err *err);

/*
 * Between begin and end, streams idle at both, tasks are submitted as ever and nothing of
 * them runs: what they launch is kept, with its order. Bodies may not call the host.
 * MIST_OK: mist_device_replay() does all of it, whenever and as often as it is called, on
 * the memory that it was launched for. Otherwise nothing is kept, and the device has not
 * failed for it. The next capture replaces what is kept. Allocates.
 */
static inline bool mist_device_can_capture(const struct mist_device *device)
{
    return device->ops->begin_capture != NULL;
}
static inline void mist_device_begin_capture(struct mist_device *device)
{
    device->ops->begin_capture(device);
}
MIST_MUST_CHECK enum mist_status mist_device_end_capture(struct mist_device *device,
                                                         struct mist_err *err);
/* until the next synchronize */
static inline void mist_device_replay(struct mist_device *device)
{
    device->ops->replay(device);
}
/* streams idle */
static inline void mist_device_drop_capture(struct mist_device *device)
{
    device->ops->drop_capture(device);
}

/* ------------------------------------------------ inside the body of a task, in order */

/* Between steps of a computation, from any thread: streams that share this thread and go
 * before take their turn, if there are any. */
void mist_device_give_turn(void);

/* Where a body waits for another rank, for waited_s by now: runs other streams that share
 * this thread, or sleeps if they have nothing to do, and returns true for another look;
 * false: there are none. Fits mist_comm_set_pause(). */
bool mist_device_pause(void *device, double waited_s);

/* Copies between the arenas, or from memory of the host that stays until the stream is
 * idle. */
static inline void mist_device_copy(struct mist_device *device, void *to,
                                    const void *from, int64_t bytes)
{
    device->ops->copy(device, to, from, bytes);
}

/* Runs a function of the host once all that the stream was given before is done; what it
 * is given later waits for it. It may not touch the device but for mist_device_fail().
 * arg must live until it has run. */
void mist_device_call_host(struct mist_device *device, mist_stream_fn fn, void *arg);

/* The same with a copy of arg[arg_bytes], which the device keeps until fn has run. */
enum { MIST_DEVICE_MAX_CALL_BYTES = 64 };
void mist_device_call_host_copy(struct mist_device *device, mist_stream_fn fn,
                                const void *arg, size_t arg_bytes);

/* Brings results to where the host reads them (mist_device_host_results). */
static inline void mist_device_fetch_results(struct mist_device *device)
{
    if (device->ops->fetch_results)
        device->ops->fetch_results(device);
}

/* The device's memory of results, for tasks; and the host's copy after a fetch. */
static inline void *mist_device_results(const struct mist_device *device)
{
    return device->results;
}
static inline const void *mist_device_host_results(const struct mist_device *device)
{
    return device->host_results;
}

/*
 * Work launched between the two belongs to span id (>= 0), which may have several such
 * pieces. Spans of one body; not nested. Only where mist_device_records() and after
 * mist_device_start_spans(); elsewhere the caller looks at the clock.
 */
static inline bool mist_device_records(const struct mist_device *device)
{
    return device->records;
}
static inline void mist_device_begin_span(struct mist_device *device, int64_t id)
{
    device->ops->begin_span(device, id);
}
static inline void mist_device_end_span(struct mist_device *device)
{
    device->ops->end_span(device);
}

/* What is called between the two is name (static text) of value, such as a layer, for a
 * profiler that looks on; they nest. */
static inline void mist_device_begin_range(struct mist_device *device, const char *name,
                                           int64_t value)
{
    if (device->ops->begin_range)
        device->ops->begin_range(device, name, value);
}
static inline void mist_device_end_range(struct mist_device *device)
{
    if (device->ops->end_range)
        device->ops->end_range(device);
}

/* ------------------------------------------------------- from the host, streams idle */

/* Spans are recorded from here on; what was before is forgotten. The first time takes
 * long, until then recording costs nothing. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK static inline enum mist_status
mist_device_start_spans(struct mist_device *device, struct mist_err *err)
{
    return device->ops->start_spans(device, err);
}

/* Calls fn for all work of spans since the start or the last time, by ascending id and
 * start; or says in *loss why not, and calls it for none. */
MIST_MUST_CHECK static inline enum mist_status
mist_device_collect_spans(struct mist_device *device, mist_span_fn *fn, void *context,
                          enum mist_span_loss *loss, struct mist_err *err)
{
    return device->ops->collect_spans(device, fn, context, loss, err);
}

/* bytes (> 0) of zeros in memory of the host that the device copies to and from at full
 * speed, without making anyone wait; for mist_device_free_host(). MIST_OK,
 * MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_device_alloc_host(struct mist_device *device,
                                                        int64_t bytes, void **out,
                                                        struct mist_err *err);
void mist_device_free_host(struct mist_device *device, void *memory); /* NULL allowed */

/* Memory of the device that is in use, by anyone and for anything; -1: unknown. */
static inline int64_t mist_device_used_bytes(struct mist_device *device)
{
    return device->ops->used_bytes ? device->ops->used_bytes(device) : -1;
}

/* Memory of the device or the host arena: zeros, from, or to memory of the host. */
MIST_MUST_CHECK static inline enum mist_status
mist_device_clear(struct mist_device *device, void *to, int64_t bytes,
                  struct mist_err *err)
{
    return device->ops->transfer(device, to, NULL, bytes, to, err);
}
MIST_MUST_CHECK static inline enum mist_status
mist_device_write(struct mist_device *device, void *to, const void *from, int64_t bytes,
                  struct mist_err *err)
{
    return device->ops->transfer(device, to, from, bytes, to, err);
}
MIST_MUST_CHECK static inline enum mist_status
mist_device_read(struct mist_device *device, void *to, const void *from, int64_t bytes,
                 struct mist_err *err)
{
    return device->ops->transfer(device, to, from, bytes, from, err);
}

#endif

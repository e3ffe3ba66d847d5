/*
 * Private to device_cpu*.c: the CPU device, whose streams are threads (device_cpu.c) or
 * take turns on one (device_cpu_turns.c).
 */
#ifndef MIST_EXEC_DEVICE_CPU_INTERNAL_H
#define MIST_EXEC_DEVICE_CPU_INTERNAL_H

#include "exec/device/device.h"
#include "exec/device/fiber.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CPU_RING_ENTRIES = 4096, CPU_LINE_BYTES = 64 };

enum cpu_entry_kind { CPU_ENTRY_RUN, CPU_ENTRY_RECORD, CPU_ENTRY_WAIT, CPU_ENTRY_STOP };

struct cpu_entry {
    enum cpu_entry_kind kind;
    int32_t event;
    mist_stream_fn fn;
    void *arg;
};

/* Where a thread sleeps. */
struct cpu_gate {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    atomic_bool has_sleeper;
};

struct cpu_stream {
    struct cpu_device *device;
    pthread_t thread;
    struct cpu_gate gate; /* where the worker sleeps */

    _Alignas(CPU_LINE_BYTES) _Atomic uint64_t n_submitted; /* entries put in, ever */
    _Atomic uint64_t awaited_done; /* n_done at which the dispatcher wants to wake up */
    _Alignas(CPU_LINE_BYTES) _Atomic uint64_t n_done; /* entries dealt with, ever */
    _Atomic int32_t awaited_event;                    /* of the worker; -1: none */
    struct cpu_entry ring[CPU_RING_ENTRIES];

    /* where streams take turns */
    struct mist_fiber *fiber; /* of one that waits for other ranks in its bodies */
    bool is_in_body;          /* it is in the middle of one, running or not */
    double waited_s;          /* in which it has waited so long */
};

struct cpu_device {
    struct mist_device base; /* first */
    int32_t threads;
    _Atomic uint8_t *is_recorded; /* of every event */
    int32_t n_events, event_capacity;
    struct cpu_gate gate; /* where the dispatcher sleeps */
    int n_started;        /* streams with a thread */
    struct cpu_stream streams[MIST_N_STREAMS];
    bool takes_turns;                /* they do, on the thread that waits for them */
    struct cpu_stream *inside_fiber; /* whose fiber runs now; NULL: none */
};

/* Fibers of the streams that need one; and their end. */
MIST_MUST_CHECK enum mist_status cpu_turns_start(struct cpu_device *device,
                                                 struct mist_err *err);
void cpu_turns_end(struct cpu_device *device);

/* Runs what is submitted until a stream has dealt with so many entries; NULL: until all
 * are idle. */
void cpu_turns_run(struct cpu_device *device, struct cpu_stream *stream, uint64_t target);

/* mist_device_pause() of a device whose streams take turns. */
bool cpu_turns_pause(struct mist_device *device, double waited_s);

#endif

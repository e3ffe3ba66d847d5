/*
 * Backends: the CPU, which is always there, and CUDA, a plugin that is opened when it is
 * asked for or when this machine has a GPU.
 *
 * The plugin, libmist_cuda.so, carries everything of CUDA, so that the tools start in
 * milliseconds anywhere. It is looked for in MIST_CUDA_PLUGIN (a path), then beside the
 * program, then in ../lib/mist from there. It has one symbol, mist_backend_cuda.
 */
#ifndef MIST_EXEC_BACKEND_H
#define MIST_EXEC_BACKEND_H

#include "core/status.h"
#include "exec/comm/collectives.h"
#include "exec/device/device.h"
#include "exec/operators/operators.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of this header and those it includes: a plugin of another version is refused. */
enum { MIST_BACKEND_VERSION = 3 };

enum { MIST_BACKEND_MAX_DEVICES = 32, MIST_BACKEND_ID_BYTES = 20 };

/* Devices of this machine as this process sees them: others may see more, fewer, or the
 * same in another order (CUDA_VISIBLE_DEVICES, srun --gpus-per-task). */
struct mist_backend_info {
    int32_t n_devices; /* 1 .. MIST_BACKEND_MAX_DEVICES */
    /* [n_devices] the same for whoever sees it, such as "0000:3B:00.0", where on the PCI
     * bus it is; "" for the CPU */
    char device_ids[MIST_BACKEND_MAX_DEVICES][MIST_BACKEND_ID_BYTES];
    char device_name[128]; /* "NVIDIA H200" */
    char versions[256];    /* "driver 580.65, CUDA 13.0, cuBLASLt 13.1, cuDNN 9.19" */
    int64_t memory_bytes;  /* of a device, usable */
    double clock_hz, memory_bytes_per_s; /* what the hardware says of itself; 0 unknown */
    int32_t n_processors;                /* streaming multiprocessors */
};

/* Bytes by which ranks find each other: made by the first, brought to the others. */
enum { MIST_COLLECTIVES_ID_BYTES = 128 };

struct mist_backend {
    int32_t version; /* MIST_BACKEND_VERSION */
    const char *name;
    const struct mist_operators *operators;
    /* What is there. MIST_OK, or MIST_ERR_RUN with what is missing and what to do. */
    enum mist_status (*probe)(struct mist_backend_info *out, struct mist_err *err);
    enum mist_status (*open_device)(const struct mist_device_config *config,
                                    struct mist_device **out, struct mist_err *err);
    /* Direct communication between devices; NULL: through the host alone. exchange brings
     * id[MIST_COLLECTIVES_ID_BYTES] of the first of ranks[n] to all of them. */
    enum mist_status (*open_collectives)(
        struct mist_device *device, int32_t rank, int32_t n_ranks, double deadline_s,
        enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n,
                                     void *id, struct mist_err *err),
        void *context, struct mist_collectives **out, struct mist_err *err);
};

/* What a user may ask for, in the order of mist_backend_words. */
enum mist_backend_choice {
    MIST_BACKEND_AUTO,
    MIST_BACKEND_CPU,
    MIST_BACKEND_CUDA,
    MIST_N_BACKEND_CHOICES
};
extern const char
    *const mist_backend_words[]; /* "auto", "cpu", "cuda"; NULL-terminated */

/*
 * The backend of a choice; AUTO: CUDA where it has a device, else the CPU (and why, in
 * note[note_bytes], "" if there is nothing to say). info may be NULL. *out is static.
 * MIST_OK or MIST_ERR_RUN: CUDA was asked for and is not to be had.
 */
MIST_MUST_CHECK enum mist_status mist_backend_find(enum mist_backend_choice choice,
                                                   const struct mist_backend **out,
                                                   struct mist_backend_info *info,
                                                   char *note, size_t note_bytes,
                                                   struct mist_err *err);

/* --attention: MIST_ERR_USAGE where cuDNN is asked for beside no GPU. */
MIST_MUST_CHECK enum mist_status
mist_backend_check_attention(const struct mist_backend *backend,
                             enum mist_attention_choice attention, struct mist_err *err);

/*
 * Communication of the ranks' devices: the backend's own where every rank has a device
 * for itself, else through the host. All ranks call it.
 */
MIST_MUST_CHECK enum mist_status
mist_backend_open_collectives(const struct mist_backend *backend, struct mist_comm *comm,
                              struct mist_device *device, bool has_own_device,
                              double deadline_s, struct mist_collectives **out,
                              struct mist_err *err);

/* Where a rank computes. */
struct mist_backend_place {
    int32_t i_device;       /* of its own list */
    int32_t n_sharing;      /* ranks on that device, this one included */
    int32_t n_node_devices; /* that the ranks of its node see, taken together */
    char note[256]; /* the same on all ranks: who shares a GPU with whom; "" nobody */
};

/*
 * Which device a rank uses. All ranks call it, each with the devices that it sees. Each
 * in turn, who sees the fewest first, takes of those it sees the one that the fewest
 * ranks have taken: where all of a node see the same, the devices in order, again and
 * again. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_backend_pick_device(const struct mist_backend_info *info, struct mist_comm *comm,
                         struct mist_backend_place *out, struct mist_err *err);

#endif

/* NCCL for tests. See nccl.h. */
#include "tests/emulation/nccl.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RANKS = 8, MAX_CLIQUES = 64, MEETING_S = 10 };

/* A message on its way. */
struct message {
    struct message *next;
    size_t n;
    char bytes[];
};

/* What one member brings to an operation. */
struct part {
    int operation; /* 0: has not come */
    const void *send;
    void *recv;
    size_t n;
    ncclDataType_t type;
};

/* The communicators of one id. */
struct clique {
    int n_ranks, n_joined, n_met, turn;
    struct part parts[MAX_RANKS];
    struct message *messages[MAX_RANKS][MAX_RANKS]; /* from, to; oldest first */
};

struct ncclComm {
    struct clique *clique;
    int rank;
    ncclResult_t state, result; /* now; what it becomes when n_polls are over */
    int n_polls;                /* < 0: never */
    bool is_hung;               /* an operation on the device waits for ever */
    bool is_final;
};

struct CUevent_st {
    struct ncclComm *waits_for; /* NULL: for nothing */
    bool is_recorded;
    int n_late;
};

static struct {
    struct mist_test_nccl faults;
    struct mist_test_nccl_counts counts;
    struct clique cliques[MAX_CLIQUES];
    int n_ids;
} fake;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local struct ncclComm *hung; /* what this thread's stream stands at */

void mist_test_nccl_reset(void)
{
    for (int i = 0; i < MAX_CLIQUES; i++)
        for (int k = 0; k < MAX_RANKS * MAX_RANKS; k++) {
            struct message *next, *at = (&fake.cliques[i].messages[0][0])[k];
            for (; at; at = next) {
                next = at->next;
                free(at);
            }
        }
    memset(&fake, 0, sizeof fake);
    fake.faults.n_before_hang = -1;
    hung = NULL;
}

struct mist_test_nccl *mist_test_nccl(void)
{
    return &fake.faults;
}

struct mist_test_nccl_counts mist_test_nccl_counts(void)
{
    return fake.counts;
}

/* With the mutex: false if nothing happened for too long. */
static bool wait_for_change(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MEETING_S;
    return pthread_cond_timedwait(&changed, &mutex, &until) != ETIMEDOUT;
}

static ncclResult_t misuse(void)
{
    fake.counts.n_misused++;
    return ncclInvalidUsage;
}

/* The answer of a call that started something, whose end is result. */
static ncclResult_t start(struct ncclComm *comm, ncclResult_t result, bool never_ends)
{
    comm->n_polls = never_ends ? -1 : fake.faults.n_polls;
    comm->result = result;
    comm->state = comm->n_polls == 0 ? result : ncclInProgress;
    return comm->state;
}

/* ---------------------------------------------------------------------- communicators */

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    static const char *const names[] = {
        "no error",         "unhandled cuda error", "system error", "internal error",
        "invalid argument", "invalid usage",        "remote error", "in progress"};

    return code < ncclNumResults ? names[code] : "unknown";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the last\nwords";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    pthread_mutex_lock(&mutex);
    memset(id, 0x55, sizeof *id);
    int i = fake.n_ids++;
    memcpy(id->internal, &i, sizeof i);
    pthread_mutex_unlock(&mutex);
    return i < MAX_CLIQUES ? fake.faults.id_error : ncclInternalError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id,
                                    int rank, ncclConfig_t *config)
{
    int i;

    memcpy(&i, id.internal, sizeof i);
    *out = NULL;
    if (fake.faults.init_error != ncclSuccess)
        return fake.faults.init_error;
    pthread_mutex_lock(&mutex);
    struct clique *clique = i >= 0 && i < fake.n_ids ? &fake.cliques[i] : NULL;
    bool is_good = clique && rank >= 0 && rank < n_ranks && n_ranks <= MAX_RANKS &&
                   config->blocking == 0 && config->magic == 0xcafebeef &&
                   (clique->n_joined == 0 || clique->n_ranks == n_ranks);
    struct ncclComm *comm = is_good ? calloc(1, sizeof *comm) : NULL;
    if (comm) {
        clique->n_ranks = n_ranks;
        clique->n_joined++;
        pthread_cond_broadcast(&changed);
        while (clique->n_joined < n_ranks && is_good)
            is_good = wait_for_change();
        *comm = (struct ncclComm){.clique = clique, .rank = rank};
        fake.counts.n_made++;
        *out = comm;
    }
    pthread_mutex_unlock(&mutex);
    if (!comm)
        return misuse();
    return start(comm, is_good ? fake.faults.init_result : ncclSystemError,
                 fake.faults.init_never_ends);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    if (comm->state == ncclInProgress && comm->n_polls >= 0 && comm->n_polls-- <= 1)
        comm->state = comm->result;
    *out = comm->state == ncclSuccess ? fake.faults.async_error : comm->state;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (comm->state != ncclSuccess || comm->is_final || comm->is_hung)
        return misuse();
    comm->is_final = true;
    return start(comm, ncclSuccess, fake.faults.end_never_ends);
}

/* Its memory stays for as long as events look at it. */
static ncclResult_t end_comm(struct ncclComm *comm, int *count)
{
    pthread_mutex_lock(&mutex);
    ++*count;
    pthread_mutex_unlock(&mutex);
    if (hung == comm)
        hung = NULL;
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm->is_final || comm->state != ncclSuccess)
        return misuse();
    return end_comm(comm, &fake.counts.n_destroyed);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return end_comm(comm, &fake.counts.n_aborted);
}

/* ------------------------------------------------------------------------- operations */

enum operation { ALL_REDUCE = 1, REDUCE_SCATTER, ALL_GATHER };

static size_t bytes_of(ncclDataType_t type)
{
    return type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

static float load(const void *at, ncclDataType_t type, size_t i)
{
    float x;
    uint16_t half = 0;

    if (type == ncclFloat32)
        return memcpy(&x, (const char *)at + 4 * i, 4), x;
    memcpy(&half, (const char *)at + 2 * i, 2);
    uint32_t bits = (uint32_t)half << 16;
    return memcpy(&x, &bits, 4), x;
}

/* bf16: cuts off what does not fit; tests sum what does. */
static void store(void *at, ncclDataType_t type, size_t i, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    memcpy((char *)at + bytes_of(type) * i, type == ncclFloat32 ? (void *)&x : &half,
           bytes_of(type));
}

/* All have come. n is of a shard, or in an all_reduce of everything. */
static bool compute(struct clique *clique)
{
    const struct part *first = &clique->parts[0];
    int n_ranks = clique->n_ranks;
    size_t each = bytes_of(first->type) * first->n;
    size_t n_whole =
        first->operation == ALL_REDUCE ? first->n : first->n * (size_t)n_ranks;
    char *whole = malloc(bytes_of(first->type) * n_whole);

    for (int r = 0; r < n_ranks; r++)
        if (!whole || clique->parts[r].operation != first->operation ||
            clique->parts[r].n != first->n || clique->parts[r].type != first->type) {
            free(whole);
            return false;
        }
    for (int r = 0; r < n_ranks && first->operation == ALL_GATHER; r++)
        memcpy(whole + (size_t)r * each, clique->parts[r].send, each);
    for (size_t i = 0; i < n_whole && first->operation != ALL_GATHER; i++) {
        float sum = 0;
        for (int r = 0; r < n_ranks; r++)
            sum += load(clique->parts[r].send, first->type, i);
        store(whole, first->type, i, sum);
    }
    for (int r = 0; r < n_ranks; r++) {
        bool is_scatter = first->operation == REDUCE_SCATTER;
        memcpy(clique->parts[r].recv, whole + (is_scatter ? (size_t)r * each : 0),
               is_scatter ? each : bytes_of(first->type) * n_whole);
    }
    free(whole);
    return true;
}

/* Whether an operation may start; *answer is its answer if it is not to be done. */
static bool enter(struct ncclComm *comm, ncclResult_t *answer)
{
    if (comm->state != ncclSuccess || comm->is_final) {
        *answer = misuse();
        return false;
    }
    *answer = fake.faults.call_error;
    if (*answer != ncclSuccess)
        return false;
    pthread_mutex_lock(&mutex);
    if (fake.faults.n_before_hang >= 0 && fake.faults.n_before_hang-- == 0) {
        comm->is_hung = true;
        hung = comm;
    }
    pthread_mutex_unlock(&mutex);
    if (!hung)
        return true;
    *answer = start(comm, ncclSuccess, false);
    return false;
}

static ncclResult_t meet(struct ncclComm *comm, struct part part)
{
    struct clique *clique = comm->clique;
    ncclResult_t answer;
    bool is_good = true;

    if (!enter(comm, &answer))
        return answer;
    pthread_mutex_lock(&mutex);
    int turn = clique->turn;
    clique->parts[comm->rank] = part;
    if (++clique->n_met == clique->n_ranks) {
        is_good = compute(clique);
        clique->n_met = 0;
        clique->turn++;
        pthread_cond_broadcast(&changed);
    }
    while (clique->turn == turn && is_good)
        is_good = wait_for_change();
    pthread_mutex_unlock(&mutex);
    return start(comm, is_good ? fake.faults.call_result : ncclInvalidUsage,
                 fake.faults.call_never_ends);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    return op == ncclSum ? meet(comm, (struct part){ALL_REDUCE, send, recv, n, type})
                         : misuse();
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    (void)stream;
    return op == ncclSum ? meet(comm, (struct part){REDUCE_SCATTER, send, recv, n, type})
                         : misuse();
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    return meet(comm, (struct part){ALL_GATHER, send, recv, n, type});
}

ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    struct message *message = malloc(sizeof *message + n * bytes_of(type));
    ncclResult_t answer;

    (void)stream;
    if (!message || !enter(comm, &answer)) {
        free(message);
        return message ? answer : ncclSystemError;
    }
    message->next = NULL;
    message->n = n * bytes_of(type);
    memcpy(message->bytes, send, message->n);
    pthread_mutex_lock(&mutex);
    struct message **last = &comm->clique->messages[comm->rank][peer];
    while (*last)
        last = &(*last)->next;
    *last = message;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return start(comm, fake.faults.call_result, fake.faults.call_never_ends);
}

ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t answer;
    bool is_good = true;

    (void)stream;
    if (!enter(comm, &answer))
        return answer;
    pthread_mutex_lock(&mutex);
    struct message **first = &comm->clique->messages[peer][comm->rank];
    while (!*first && is_good)
        is_good = wait_for_change();
    struct message *message = *first;
    if (message) {
        *first = message->next;
        is_good = message->n == n * bytes_of(type);
        if (is_good)
            memcpy(recv, message->bytes, message->n);
        free(message);
    }
    pthread_mutex_unlock(&mutex);
    return start(comm, is_good ? fake.faults.call_result : ncclInvalidUsage,
                 fake.faults.call_never_ends);
}

/* ------------------------------------------------------- CUDA; weak: others have them */

#define WEAK __attribute__((weak))

WEAK cudaError_t cudaSetDevice(int i_device)
{
    (void)i_device;
    return cudaSuccess;
}

WEAK cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

WEAK const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaSuccess ? "no error" : "an error of CUDA";
}

WEAK cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = flags == cudaEventDisableTiming ? calloc(1, sizeof **out) : NULL;
    if (!*out)
        return cudaErrorInvalidValue;
    pthread_mutex_lock(&mutex);
    fake.counts.n_events++;
    pthread_mutex_unlock(&mutex);
    return cudaSuccess;
}

WEAK cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    pthread_mutex_lock(&mutex);
    fake.counts.n_events--;
    pthread_mutex_unlock(&mutex);
    return cudaSuccess;
}

WEAK cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    *event = (struct CUevent_st){
        .waits_for = hung, .is_recorded = true, .n_late = fake.faults.n_late};
    return cudaSuccess;
}

/* What hangs hangs until its communicator is aborted; no event is asked after that. */
WEAK cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (fake.faults.event_error != cudaSuccess)
        return fake.faults.event_error;
    if (event->waits_for || event->n_late-- > 0)
        return cudaErrorNotReady;
    return event->is_recorded ? cudaSuccess : cudaErrorNotReady;
}

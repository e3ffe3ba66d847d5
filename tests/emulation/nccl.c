/* NCCL for tests. See nccl.h. */
#include "tests/emulation/cudart.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)

#include "tests/emulation/nccl.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8, MAX_CLIQUES = 64, MAX_ABORTED = 16 };

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
    int rank, n_inside;
    bool is_good, is_told, is_final;
};

static struct {
    struct mist_test_nccl faults;
    struct mist_test_nccl_counts counts;
    struct clique cliques[MAX_CLIQUES];
    int n_ids, n_told;
} fake; /* under the mutex */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* The group of a thread: communicators to be freed at its end. */
static _Thread_local struct {
    bool is_open;
    int n;
    struct ncclComm *aborted[MAX_ABORTED];
} group;

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
    mist_emulated_cuda.loses_writes = false;
}

struct mist_test_nccl *mist_test_nccl(void)
{
    return &fake.faults;
}

struct mist_test_nccl_counts mist_test_nccl_counts(void)
{
    pthread_mutex_lock(&mutex);
    struct mist_test_nccl_counts counts = fake.counts;
    pthread_mutex_unlock(&mutex);
    return counts;
}

void mist_test_nccl_wait_for_abort(void)
{
    pthread_mutex_lock(&mutex);
    while (fake.n_told == 0)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static ncclResult_t misuse(void)
{
    fake.counts.n_misused++;
    return ncclInvalidUsage;
}

/* With the mutex: into a call that may wait, and out of it again. */
static void enter(struct ncclComm *comm, enum mist_test_nccl_block what)
{
    pthread_mutex_lock(&mutex);
    comm->n_inside++;
    while (fake.faults.blocks == what && !comm->is_told)
        pthread_cond_wait(&changed, &mutex);
}

static ncclResult_t leave(struct ncclComm *comm, ncclResult_t result)
{
    comm->n_inside--;
    if (comm->is_told)
        result = ncclInternalError;
    pthread_mutex_unlock(&mutex);
    return result;
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

/* As in NCCL, the communicator can be aborted from before it waits for the others. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id,
                                    int rank, ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    int i;

    memcpy(&i, id.internal, sizeof i);
    if (!comm || fake.faults.init_error != ncclSuccess) {
        free(comm);
        return fake.faults.init_error;
    }
    comm->clique = &fake.cliques[i % MAX_CLIQUES];
    comm->rank = rank;
    comm->is_good = i >= 0 && i < MAX_CLIQUES && rank >= 0 && rank < n_ranks &&
                    n_ranks <= MAX_RANKS && config->blocking == 1 &&
                    config->magic == 0xcafebeef;
    __atomic_store_n(out, comm, __ATOMIC_RELEASE);
    enter(comm, MIST_TEST_NCCL_INIT);
    fake.counts.n_made++;
    fake.counts.max_blocks = config->maxCTAs;
    fake.counts.has_nvls = !nvls || strcmp(nvls, "0") != 0;
    fake.counts.n_misused += !comm->is_good;
    comm->clique->n_joined++;
    pthread_cond_broadcast(&changed);
    while (comm->clique->n_joined < n_ranks && !comm->is_told)
        pthread_cond_wait(&changed, &mutex);
    comm->clique->n_ranks = n_ranks;
    return leave(comm, comm->is_good ? fake.faults.init_result : ncclInvalidArgument);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    pthread_mutex_lock(&mutex);
    *out = comm->is_good ? fake.faults.async_error : misuse();
    pthread_mutex_unlock(&mutex);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    enter(comm, MIST_TEST_NCCL_END);
    ncclResult_t result = comm->is_final ? misuse() : ncclSuccess;
    comm->is_final = true;
    return leave(comm, result);
}

/* With the mutex. */
static void free_comm(struct ncclComm *comm, int *count)
{
    if (comm->n_inside > 0)
        misuse();
    ++*count;
    free(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    pthread_mutex_lock(&mutex);
    while (fake.faults.blocks == MIST_TEST_NCCL_DESTROY)
        pthread_cond_wait(&changed, &mutex);
    ncclResult_t result = comm->is_final ? ncclSuccess : misuse();
    free_comm(comm, &fake.counts.n_destroyed);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* NCCL's header has no prototypes of the two. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    group.is_open = true;
    return ncclSuccess;
}

/* Outside of a group it would free one while others still run. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    pthread_mutex_lock(&mutex);
    if (!group.is_open || comm->is_told || group.n == MAX_ABORTED)
        misuse();
    else
        group.aborted[group.n++] = comm;
    comm->is_told = true;
    if (fake.n_told++ == 0)
        fake.counts.n_cuda_calls =
            __atomic_load_n(&mist_emulated_cuda.n_calls, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < group.n; i++)
        free_comm(group.aborted[i], &fake.counts.n_aborted);
    group.is_open = false;
    group.n = 0;
    pthread_mutex_unlock(&mutex);
    return ncclSuccess;
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

/* Begins an operation, with the mutex: false if it is not to be done, but to leave() with
 * *result. One that hangs on the device is in the stream, and nothing behind
 * it happens. */
static bool begin(struct ncclComm *comm, ncclResult_t *result)
{
    enter(comm, MIST_TEST_NCCL_CALL);
    *result = comm->is_final ? misuse() : fake.faults.call_error;
    if (fake.faults.n_before_hang >= 0 && fake.faults.n_before_hang-- == 0)
        mist_emulated_cuda.loses_writes = true;
    return *result == ncclSuccess && !comm->is_told && !mist_emulated_cuda.loses_writes;
}

static ncclResult_t meet(struct ncclComm *comm, ncclRedOp_t op, struct part part)
{
    struct clique *clique = comm->clique;
    ncclResult_t result;

    if (!begin(comm, &result))
        return leave(comm, result);
    int turn = clique->turn;
    clique->parts[comm->rank] = part;
    if (++clique->n_met == clique->n_ranks) {
        if (op != ncclSum || !compute(clique))
            result = misuse();
        clique->n_met = 0;
        clique->turn++;
        pthread_cond_broadcast(&changed);
    }
    while (clique->turn == turn && !comm->is_told)
        pthread_cond_wait(&changed, &mutex);
    return leave(comm, result);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    return meet(comm, op, (struct part){ALL_REDUCE, send, recv, n, type});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    (void)stream;
    return meet(comm, op, (struct part){REDUCE_SCATTER, send, recv, n, type});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    return meet(comm, ncclSum, (struct part){ALL_GATHER, send, recv, n, type});
}

ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    struct message *message = calloc(1, sizeof *message + n * bytes_of(type));
    ncclResult_t result;

    (void)stream;
    if (!begin(comm, &result) || !message) {
        free(message);
        return leave(comm, result);
    }
    message->n = n * bytes_of(type);
    memcpy(message->bytes, send, message->n);
    struct message **last = &comm->clique->messages[comm->rank][peer];
    while (*last)
        last = &(*last)->next;
    *last = message;
    pthread_cond_broadcast(&changed);
    return leave(comm, result);
}

ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result;

    (void)stream;
    if (!begin(comm, &result))
        return leave(comm, result);
    struct message **first = &comm->clique->messages[peer][comm->rank];
    while (!*first && !comm->is_told)
        pthread_cond_wait(&changed, &mutex);
    struct message *message = *first;
    if (message) {
        *first = message->next;
        if (message->n == n * bytes_of(type))
            memcpy(recv, message->bytes, message->n);
        else
            result = misuse();
        free(message);
    }
    return leave(comm, result);
}

#endif

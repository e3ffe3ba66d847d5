/* Names in profilers' traces. See torch_words.h. */
#include "sim/recorded/torch_words.h"

#include <string.h>

/* clang-format off */
const struct mist_recorded_kind mist_torch_kinds[MIST_TORCH_N_KINDS] = {
    [MIST_TORCH_MATMUL] = {.name = "matmul"},
    [MIST_TORCH_ATTENTION] = {.name = "attention"},
    [MIST_TORCH_SOFTMAX] = {.name = "softmax"},
    [MIST_TORCH_NORM] = {.name = "norm"},
    [MIST_TORCH_OPTIMIZER] = {.name = "optimizer"},
    [MIST_TORCH_EMBEDDING] = {.name = "embedding"},
    [MIST_TORCH_TRITON] = {.name = "triton"},
    [MIST_TORCH_REDUCTION] = {.name = "reduction"},
    [MIST_TORCH_ELEMENTWISE] = {.name = "elementwise"},
    [MIST_TORCH_COPY] = {.name = "copy"},
    [MIST_TORCH_MEMSET] = {.name = "memset"},
    [MIST_TORCH_OTHER] = {.name = "other"},
    [MIST_TORCH_HOST_TO_DEVICE] = {.name = "host_to_device", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_DEVICE_TO_HOST] = {.name = "device_to_host", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_ALL_REDUCE] = {.name = "all_reduce", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_ALL_GATHER] = {.name = "all_gather", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_REDUCE_SCATTER] = {.name = "reduce_scatter", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_BROADCAST] = {.name = "broadcast", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_REDUCE] = {.name = "reduce", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_SEND_RECV] = {.name = "send_recv", .sort = MIST_RECORDED_MESSAGE},
    [MIST_TORCH_LAUNCH] = {.name = "launch", .sort = MIST_RECORDED_CALL},
    [MIST_TORCH_SYNCHRONIZE] = {.name = "synchronize", .sort = MIST_RECORDED_CALL},
};

/* The first word that a name has, whatever its case, decides. */
static const struct word {
    const char *text; /* lower case */
    int kind;
} kernel_words[] = {
    {"memcpy htod", MIST_TORCH_HOST_TO_DEVICE}, {"memcpy dtoh", MIST_TORCH_DEVICE_TO_HOST},
    {"memcpy", MIST_TORCH_COPY}, {"memset", MIST_TORCH_MEMSET},
    {"flash", MIST_TORCH_ATTENTION}, {"fmha", MIST_TORCH_ATTENTION},
    {"attention", MIST_TORCH_ATTENTION}, {"sdpa", MIST_TORCH_ATTENTION},
    {"softmax", MIST_TORCH_SOFTMAX},
    {"layernorm", MIST_TORCH_NORM}, {"layer_norm", MIST_TORCH_NORM},
    {"rmsnorm", MIST_TORCH_NORM}, {"rms_norm", MIST_TORCH_NORM},
    {"multi_tensor", MIST_TORCH_OPTIMIZER}, {"adam", MIST_TORCH_OPTIMIZER},
    {"embedding", MIST_TORCH_EMBEDDING}, {"indexselect", MIST_TORCH_EMBEDDING},
    {"gemm", MIST_TORCH_MATMUL}, {"gemv", MIST_TORCH_MATMUL}, {"cutlass", MIST_TORCH_MATMUL},
    {"cublas", MIST_TORCH_MATMUL}, {"nvjet", MIST_TORCH_MATMUL},
    {"splitk", MIST_TORCH_MATMUL},
    {"triton", MIST_TORCH_TRITON},
    {"reduce", MIST_TORCH_REDUCTION},
    {"elementwise", MIST_TORCH_ELEMENTWISE}, {"copy", MIST_TORCH_ELEMENTWISE},
}, message_words[] = {
    {"allreduce", MIST_TORCH_ALL_REDUCE}, {"allgather", MIST_TORCH_ALL_GATHER},
    {"reducescatter", MIST_TORCH_REDUCE_SCATTER}, {"broadcast", MIST_TORCH_BROADCAST},
    {"reduce", MIST_TORCH_REDUCE}, {"sendrecv", MIST_TORCH_SEND_RECV},
}, call_words[] = {
    {"synchronize", MIST_TORCH_CALL_SYNC}, {"waitevent", MIST_TORCH_CALL_WAIT},
    {"eventrecord", MIST_TORCH_CALL_RECORD}, {"memcpy", MIST_TORCH_CALL_COPY},
    {"memset", MIST_TORCH_CALL_LAUNCH}, {"launch", MIST_TORCH_CALL_LAUNCH},
};
/* clang-format on */

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool has(const char *name, const char *word)
{
    for (; *name; name++) {
        size_t n = 0;
        while (word[n] && lower(name[n]) == word[n])
            n++;
        if (!word[n])
            return true;
    }
    return false;
}

static int find(const char *name, const struct word *words, size_t n_words, int none)
{
    for (size_t i = 0; i < n_words; i++)
        if (has(name, words[i].text))
            return words[i].kind;
    return none;
}

enum mist_torch_kind mist_torch_kind_of(const char *name)
{
    int kind = strncmp(name, "nccl", 4) == 0
                   ? find(name, message_words, LENGTH(message_words), MIST_TORCH_OTHER)
                   : find(name, kernel_words, LENGTH(kernel_words), MIST_TORCH_OTHER);

    return (enum mist_torch_kind)kind;
}

enum mist_torch_call_kind mist_torch_call_kind_of(const char *name)
{
    int kind = find(name, call_words, LENGTH(call_words), MIST_TORCH_CALL_NONE);

    return (enum mist_torch_call_kind)kind;
}

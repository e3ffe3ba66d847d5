#!/bin/sh
# A training step of GPT-2 124M (batch 4): mist-exec beside PyTorch and llm.c on the same processor.
#
#   dtype    T  threads    mist ms   eager ms compiled ms  torch/mist   llm.c ms  llm.c/mist
#    fp32   64        1     1106.0     2621.7     2643.8        2.37     8123.0        7.34
#
# All sides do forward, backward and AdamW on bytes of the same text. They take turns, a process each, and every
# round gives one ratio, to the faster of eager and compiled PyTorch: the figures are medians over the rounds, so that
# what else the machine does hits all. Of a process the first two steps are not counted. Never fails on time.
#
#   PyTorch   torch_gpt2.py under $PYTHON (default python3): 2.9 of PyPI, with MKL. One without fused attention or
#             with the reference BLAS is no yardstick and left out, as Debian's is; bf16 is autocast.
#   llm.c     train_gpt2.c in $LLMC_DIR, compiled as its Makefile does, on random weights, in fp32. Left out without.
#
# MIST_BENCH_ROUNDS (default 2), MIST_BENCH_SEQS ("64 512"), MIST_BENCH_THREADS ("1 2"), MIST_BENCH_DTYPES ("fp32 bf16").
# Takes about 20 minutes.
set -eu
build=${MIST_BUILD:-build}
here=$(dirname "$0")
python=${PYTHON:-python3}
rounds=${MIST_BENCH_ROUNDS:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

write_plan() { # SEQ DTYPE
    cat << END
{"format": 1,
 "model": {"name": "gpt2-124m", "family": "gpt", "n_layers": 12, "hidden": 768, "n_heads": 12, "n_kv_heads": 12,
  "head_dim": 64, "ffn": 3072, "vocab": 50257, "max_seq": 1024, "has_bias": true, "ties_embeddings": true,
  "norm_epsilon": 1e-5, "rope_theta": 0.0},
 "job": {"global_batch": 4, "seq_len": $1, "dtype": "$2"},
 "cluster": {"trace_set": "", "fingerprint": "0000000000000000", "device_memory_bytes": 0},
 "pipeline": "1f1b", "n_micro_batches": 1,
 "stages": [{"layers": 12, "mesh_nodes": 1, "mesh_devices": 1, "micro_batch": 4, "dp": 1, "tp": 1, "zero": 0,
  "checkpointed_layers": 0, "offload_weights_frac": 0, "offload_gradients_frac": 0,
  "offload_optimizer_frac": 0, "offload_activations_frac": 0}]}
END
}

write_text() {
    awk 'BEGIN { srand(1); for (i = 0; i < 65536; i++) printf "%c", 97 + int(26 * rand()) }'
}

# A main() around llm.c's own functions: argv is DATA SEQ STEPS, it prints the seconds of each step.
write_llmc_main() {
    cat << 'END'
#define TESTING
#include "train_gpt2.c"
int main(int argc, char **argv)
{
    static unsigned char text[65536];
    enum { B = 4 };
    int T = atoi(argv[2]), n_steps = atoi(argv[3]), *tokens = malloc(2 * B * T * sizeof(int));
    GPT2 model = {.config = {1024, 50257, 50304, 12, 12, 768}, .mean_loss = -1.0f};
    FILE *file = fopen(argv[1], "rb");
    if (argc != 4 || !file || fread(text, 1, sizeof text, file) != sizeof text)
        return 1;
    fill_in_parameter_sizes(model.param_sizes, model.config);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        model.num_parameters += model.param_sizes[i];
    model.params_memory = malloc_and_point_parameters(&model.params, model.param_sizes);
    for (size_t i = 0; i < model.num_parameters; i++)
        model.params_memory[i] = 0.04f * ((float)rand() / (float)RAND_MAX - 0.5f);
    for (int step = 1; step <= n_steps; step++) {
        struct timespec start, end;
        for (int b = 0; b < B; b++) {
            size_t first = (size_t)rand() % (sizeof text - (size_t)T - 1);
            for (int t = 0; t < T; t++) {
                tokens[b * T + t] = text[first + t];
                tokens[(B + b) * T + t] = text[first + t + 1];
            }
        }
        clock_gettime(CLOCK_MONOTONIC, &start);
        gpt2_forward(&model, tokens, tokens + B * T, B, T);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, step);
        clock_gettime(CLOCK_MONOTONIC, &end);
        fprintf(stderr, "loss %.4f\n", model.mean_loss);
        printf("step %.6f\n", (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
    }
}
END
}

median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

# Seconds of a step, the median of the process's steps but the first two.
time_mist() { # DTYPE SEQ THREADS STEPS
    "$build/mist-exec" "$folder/$2.$1.json" --data "$folder/text.u16" --iterations "$4" --threads "$3" -q --force \
        --log "$folder/log.csv" > /dev/null
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "step_s") at = i } NR > 3 { print $at }' "$folder/log.csv" |
        median
}

time_torch() { # DTYPE SEQ THREADS STEPS MODE
    OMP_NUM_THREADS=$3 "$python" "$here/torch_gpt2.py" "$folder/text" "$2" "$3" "$4" "$1" "$5" 2> "$folder/torch.err" |
        tail -n +3 | median
}

time_llmc() {
    [ "$1" = fp32 ] || return 0
    OMP_NUM_THREADS=$3 "$folder/llmc" "$folder/text" "$2" "$4" 2> "$folder/llmc.err" |
        awk '$1 == "step" && ++n > 2 { print $2 }' | median
}

# What there is to compare with, and why not.
has_torch='' has_llmc=''
if "$python" "$here/torch_gpt2.py" --version 2> "$folder/torch.err"; then
    has_torch=1
else
    echo "PyTorch: not measured, $(tail -n 1 "$folder/torch.err")"
fi
if [ -z "${LLMC_DIR:-}" ]; then
    echo "llm.c: not measured, LLMC_DIR names no folder with train_gpt2.c"
else
    write_llmc_main > "$folder/llmc.c"
    if ${CC:-cc} -Ofast -march=native -fopenmp -DOMP -w -I"$LLMC_DIR" "$folder/llmc.c" -o "$folder/llmc" -lm; then
        has_llmc=1
    else
        echo "llm.c: not measured, $LLMC_DIR/train_gpt2.c does not compile with the main() of this script"
    fi
fi

# Rounds of five columns: mist, eager, compiled, the faster of these, llm.c; - where there is none.
measure() { # DTYPE SEQ THREADS STEPS
    i=0
    : > "$folder/rounds"
    while [ "$i" -lt "$rounds" ]; do
        mist=$(time_mist "$@") eager='' compiled='' llmc=''
        if [ "$has_torch" ]; then eager=$(time_torch "$@" eager) compiled=$(time_torch "$@" compiled); fi
        if [ "$has_llmc" ]; then llmc=$(time_llmc "$@"); fi
        torch=$(printf '%s\n' "$eager" "$compiled" | grep . | sort -g | head -n 1)
        echo "$mist ${eager:--} ${compiled:--} ${torch:--} ${llmc:--}" >> "$folder/rounds"
        i=$((i + 1))
    done
    ms() { value=$(awk -v n="$1" '$n != "-" { print 1e3 * $n }' "$folder/rounds" | median) && show "$2" .1f; }
    ratio() { value=$(awk -v n="$1" '$n != "-" { print $n / $1 }' "$folder/rounds" | median) && show "$2" .2f; }
    # shellcheck disable=SC2059 # a width and a number format
    show() { if [ "$value" ]; then printf " %$1$2" "$value"; else printf " %$1s" -; fi; }
    printf '%6s %5d %8d' "$1" "$2" "$3"
    ms 1 10 && ms 2 10 && ms 3 11 && ratio 4 11 && ms 5 10 && ratio 5 11
    echo
}

write_text > "$folder/text"
LC_ALL=C sed 's/./&\x00/g' "$folder/text" > "$folder/text.u16" # the same as ids
printf '%6s %5s %8s %10s %10s %11s %11s %10s %11s\n' dtype T threads 'mist ms' 'eager ms' 'compiled ms' torch/mist \
    'llm.c ms' llm.c/mist
for dtype in ${MIST_BENCH_DTYPES:-fp32 bf16}; do
    for seq in ${MIST_BENCH_SEQS:-64 512}; do
        write_plan "$seq" "$dtype" > "$folder/$seq.$dtype.json"
        steps=6
        if [ "$seq" -gt 128 ]; then steps=4; fi
        for threads in ${MIST_BENCH_THREADS:-1 2}; do
            measure "$dtype" "$seq" "$threads" "$steps"
        done
    done
done

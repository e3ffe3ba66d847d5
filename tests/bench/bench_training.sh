#!/bin/sh
# A training step of GPT-2 124M (batch 4, fp32): mist-exec beside PyTorch and llm.c on the same processor.
#
#   T    threads    mist ms   torch ms  torch/mist   llm.c ms  llm.c/mist
#   64         1     1950.3     3012.8        1.54     8123.0        4.17
#
# Both sides do forward, backward and AdamW on bytes of the same text. They take turns, a process each, and every
# round gives one ratio: the figures are medians over the rounds, so that what else the machine does hits both. The
# first step of a process is not counted. Never fails on time.
#
#   PyTorch   Debian's: torch_gpt2.py under $PYTHON (default /usr/bin/python3). With the reference BLAS a product is
#             tens of times too slow and a ratio says nothing, so then it is left out: install libopenblas0-pthread.
#   llm.c     train_gpt2.c in $LLMC_DIR, compiled as its Makefile does, on random weights. Left out without.
#
# MIST_BENCH_ROUNDS (default 2), MIST_BENCH_SEQS ("64 512"), MIST_BENCH_THREADS ("1 2"). Takes about 8 minutes.
set -eu
build=${MIST_BUILD:-build}
here=$(dirname "$0")
python=${PYTHON:-/usr/bin/python3}
rounds=${MIST_BENCH_ROUNDS:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

write_plan() { # SEQ
    cat << END
{"format": 1,
 "model": {"name": "gpt2-124m", "family": "gpt", "n_layers": 12, "hidden": 768, "n_heads": 12, "n_kv_heads": 12,
  "head_dim": 64, "ffn": 3072, "vocab": 50257, "max_seq": 1024, "has_bias": true, "ties_embeddings": true,
  "norm_epsilon": 1e-5, "rope_theta": 0.0},
 "job": {"global_batch": 4, "seq_len": $1, "dtype": "fp32"},
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

# Seconds of a step, the median of the process's steps but the first.
time_mist() { # SEQ THREADS STEPS
    "$build/mist-exec" "$folder/$1.json" --data "$folder/text.u16" --iterations "$3" --threads "$2" -q --force \
        --log "$folder/log.csv" > /dev/null
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "step_s") at = i } NR > 2 { print $at }' "$folder/log.csv" |
        median
}

time_torch() {
    OMP_NUM_THREADS=$2 OPENBLAS_NUM_THREADS=$2 "$python" "$here/torch_gpt2.py" "$folder/text" "$1" "$2" "$3" \
        2> "$folder/torch.err" | tail -n +2 | median
}

time_llmc() {
    OMP_NUM_THREADS=$2 "$folder/llmc" "$folder/text" "$1" "$3" 2> "$folder/llmc.err" |
        awk '$1 == "step" && ++n > 1 { print $2 }' | median
}

# What there is to compare with, and why not.
has_torch= has_llmc=
if ! "$python" -c 'import torch' 2> /dev/null; then
    echo "PyTorch: not measured, $python can't import torch (Debian: python3-torch)"
else
    blas=$("$python" "$here/torch_gpt2.py" --blas)
    version=$("$python" -c 'import torch; print(torch.__version__)')
    case $blas in
    *openblas* | *blis* | *atlas* | *mkl* | "built in") has_torch=1 && echo "PyTorch $version, BLAS: $blas" ;;
    *) echo "PyTorch $version: not measured, its BLAS is the reference one (Debian: libopenblas0-pthread)" ;;
    esac
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

measure() { # SEQ THREADS STEPS
    i=0
    : > "$folder/rounds"
    while [ "$i" -lt "$rounds" ]; do
        mist=$(time_mist "$@") torch=- llmc=-
        if [ "$has_torch" ]; then torch=$(time_torch "$@"); fi
        if [ "$has_llmc" ]; then llmc=$(time_llmc "$@"); fi
        echo "$mist ${torch:--} ${llmc:--}" >> "$folder/rounds"
        i=$((i + 1))
    done
    column() { awk -v expr="$1" '$2 == "-" && expr ~ /t/ || $3 == "-" && expr ~ /l/ { next }
        { print expr == "m" ? 1e3 * $1 : expr == "t" ? 1e3 * $2 : expr == "l" ? 1e3 * $3 : expr == "t/m" ? $2 / $1 : $3 / $1 }' \
        "$folder/rounds" | median; }
    echo "$1 $2 $(column m) $(column t | grep . || echo -) $(column t/m | grep . || echo -)" \
        "$(column l | grep . || echo -) $(column l/m | grep . || echo -)" | awk '
        function f(x, format) { return x == "-" ? "-" : sprintf(format, x) }
        { printf "%5d %8d %10.1f %10s %11s %10s %11s\n", $1, $2, $3, f($4, "%.1f"), f($5, "%.2f"), f($6, "%.1f"), f($7, "%.2f") }'
}

write_text > "$folder/text"
LC_ALL=C sed 's/./&\x00/g' "$folder/text" > "$folder/text.u16" # the same as ids
printf '%5s %8s %10s %10s %11s %10s %11s\n' T threads 'mist ms' 'torch ms' torch/mist 'llm.c ms' llm.c/mist
for seq in ${MIST_BENCH_SEQS:-64 512}; do
    write_plan "$seq" > "$folder/$seq.json"
    for threads in ${MIST_BENCH_THREADS:-1 2}; do
        steps=4
        if [ "$seq" -gt 128 ]; then steps=3; fi
        measure "$seq" "$threads" "$steps"
    done
done

#!/bin/sh
# What overlap gains: the same plans with mist-exec's four streams beside each other, and one task at a time
# (--serial), taking turns.
#
#   plan                     ranks   overlapped ms   serial ms   serial/overlapped
#   offload_optimizer 1          1           312.4       355.0                1.14
#
# Few tokens for its parameters make copies and messages long beside the computation. Streams are threads and the
# compute stream has one, so a rank gains only where a processor is free for its copies: with two ranks on two
# processors, what overlap costs shows as well. A plan with nothing to overlap is the control. Every round gives one
# ratio; the figures are medians over the rounds. Losses must agree, bit for bit: a difference is an error. Never
# fails on time.
#
# MIST_BENCH_ROUNDS (default 3). Takes about 2 minutes.
set -eu
build=${MIST_BUILD:-build}
rounds=${MIST_BENCH_ROUNDS:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The four offload ratios, then dp and ZeRO level.
write_plan() { # WEIGHTS GRADIENTS OPTIMIZER ACTIVATIONS DP ZERO
    cat << END
{"format": 1,
 "model": {"name": "wide", "family": "gpt", "n_layers": 4, "hidden": 384, "n_heads": 6, "n_kv_heads": 6,
  "head_dim": 64, "ffn": 1536, "vocab": 512, "max_seq": 128, "has_bias": true, "ties_embeddings": false,
  "norm_epsilon": 1e-5, "rope_theta": 0.0},
 "job": {"global_batch": 8, "seq_len": 64, "dtype": "fp32"},
 "cluster": {"trace_set": "", "fingerprint": "0000000000000000", "device_memory_bytes": 0},
 "pipeline": "1f1b", "n_micro_batches": 2,
 "stages": [{"layers": 4, "mesh_nodes": 1, "mesh_devices": $5, "micro_batch": $((4 / $5)), "dp": $5, "tp": 1, "zero": $6,
  "checkpointed_layers": 0, "offload_weights_frac": $1, "offload_gradients_frac": $2,
  "offload_optimizer_frac": $3, "offload_activations_frac": $4}]}
END
}

# Milliseconds of an iteration of one run; its losses go to the file LOSSES.
time_run() { # RANKS LOSSES OPTION...
    ranks=$1 losses=$2
    shift 2
    launch=
    if [ "$ranks" -gt 1 ]; then launch="mpirun --oversubscribe --bind-to none -n $ranks"; fi
    $launch "$build/mist-exec" "$folder/plan.json" --data "$folder/text.u16" --iterations 7 --threads 1 -q --force \
        --log "$folder/log.csv" "$@" > /dev/null
    awk -F, 'NR > 1 { print $2 }' "$folder/log.csv" > "$losses"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "step_s") at = i } NR > 3 { print 1e3 * $at }' \
        "$folder/log.csv" | median
}

median() { sort -g | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

measure() { # NAME WEIGHTS GRADIENTS OPTIMIZER ACTIVATIONS DP ZERO
    name=$1
    shift
    write_plan "$@" > "$folder/plan.json"
    : > "$folder/rounds"
    i=0
    while [ "$i" -lt "$rounds" ]; do
        overlapped=$(time_run "$5" "$folder/overlapped")
        serial=$(time_run "$5" "$folder/serial" --serial)
        cmp -s "$folder/overlapped" "$folder/serial" || { echo "$name: losses differ" >&2; exit 6; }
        echo "$overlapped $serial" >> "$folder/rounds"
        i=$((i + 1))
    done
    printf '%-28s %5d %13.1f %10.1f %17.2f\n' "$name" "$5" "$(awk '{ print $1 }' "$folder/rounds" | median)" \
        "$(awk '{ print $2 }' "$folder/rounds" | median)" "$(awk '{ print $2 / $1 }' "$folder/rounds" | median)"
}

awk 'BEGIN { srand(1); for (i = 0; i < 65536; i++) printf "%c", 97 + int(26 * rand()) }' |
    LC_ALL=C sed 's/./&\x00/g' > "$folder/text.u16" # letters as ids
printf '%-28s %5s %13s %10s %17s\n' plan ranks 'overlapped ms' 'serial ms' serial/overlapped
measure 'nothing offloaded'             0   0   0   0   1 0
measure 'weights 0.5'                   0.5 0   0   0   1 0
measure 'weights 1'                     1   0   0   0   1 0
measure 'optimizer 0.5'                 0   0   0.5 0   1 0
measure 'optimizer 1'                   0   0   1   0   1 0
measure 'activations 0.5'               0   0   0   0.5 1 0
measure 'activations 1'                 0   0   0   1   1 0
measure 'everything 1'                  1   1   1   1   1 0
measure 'dp 2, ZeRO-1'                  0   0   0   0   2 1
measure 'dp 2, ZeRO-3'                  0   0   0   0   2 3
measure 'dp 2, ZeRO-3, optimizer 1'     0   0   1   0   2 3

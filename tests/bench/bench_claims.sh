#!/bin/sh
# The speedups that the EuroSys'25 paper published for L4, by simulation: for each model the best plan that Megatron-LM
# and that DeepSpeed can express, priced as they run it, beside the best of ours, and what each step on the way gives
# (mist-tune --ablate --target). Three speedups: over the framework as it runs its plan; over the same plan as we run it
# ("same kernels"); over the best plan that it can express with our kernels and our memory ("plans alone"). Prints the
# tables of tune/README.md.
#
#     $ tests/bench/bench_claims.sh [MODEL...]
#     | model | cluster | batch | Megatron-LM | its plan, our executor | all its knobs | + offload | ... | ours | same kernels | plans alone | published |
#
# Clusters are presets, with 2,048 tokens a sample and gradients in bf16, as theirs were in fp16. L4_TRACES=folder prices
# by a trace set of L4 in place of the preset. Exits with 1 where ours is slower.
set -eu
cd "$(dirname "$0")/../.."
tune=${MIST_BUILD:-build}/mist-tune
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# model, nodes, devices of a node, global batch; published speedups over Megatron-LM and DeepSpeed, - where there is none
cases='gpt3-1.3b 1 2 32 1.28 1.47
gpt3-2.7b 1 4 64 1.19 1.49
gpt3-6.7b 1 8 128 1.19 1.71
gpt3-13b 2 8 256 - -
gpt3-22b 4 8 512 - -
llama-1.3b 1 2 32 1.56 1.50
llama-2.7b 1 4 64 - -
llama-6.7b 1 8 128 - -
llama-13b-mist 2 8 256 - -
llama-22b 4 8 512 - -'

# ablate FRAMEWORK OPTIONS...: the CSV.
ablate() {
    framework=$1
    shift
    "$tune" --model "$model" --cluster "${L4_TRACES:-l4:${nodes}x$devices}" --nodes "$nodes" \
        --devices-per-node "$devices" --global-batch "$batch" --seq-len 2048 --dtype bf16 --gradient-dtype bf16 -q \
        --ablate --target "$framework" "$@" --csv
}

# row FILE: cells of iterations and of the steps between them.
row() {
    awk -F, 'NR > 1 { printf " %s |", $3 == "" ? "none fits" : sprintf(before ? "%.2f s, %+.1f %%" : "%.2f s", $3,
                 before ? 100 * (before / $3 - 1) : 0); before = $3 }' "$1"
}

# head_of COLUMN...: of a table.
head_of() {
    printf '| model | cluster | batch |'
    printf ' %s |' "$@"
    printf '\n|---|---|---|'
    for _ in "$@"; do printf '%s' '---|'; done
    printf '\n'
}

head_of Megatron-LM 'its plan, our executor' 'its best plan there' 'all its knobs' '+ offload' '+ imbalance' '+ mesh' \
    '+ lean' ours 'same kernels' 'plans alone' published > "$scratch/megatron.md"
head_of DeepSpeed 'its plan, our executor' 'its best plan there' 'all its knobs' ours 'same kernels' 'plans alone' \
    published > "$scratch/deepspeed.md"
echo "$cases" | while read -r model nodes devices batch over_megatron over_deepspeed; do
    case " ${*:-$model} " in *" $model "*) ;; *) continue ;; esac
    ablate megatron > "$scratch/megatron.csv"
    ablate deepspeed --space 3d,zero,ckpt,sequence,schedule > "$scratch/deepspeed.csv"
    ours=$(awk -F, 'END { print $3 }' "$scratch/megatron.csv")
    for framework in megatron deepspeed; do
        published=$over_megatron
        [ $framework = megatron ] || published=$over_deepspeed
        {
            printf '| %s | l4:%sx%s | %s |%s' "$model" "$nodes" "$devices" "$batch" "$(row "$scratch/$framework.csv")"
            awk -F, -v ours="$ours" -v published="$published" -v name="$framework" -v file="$scratch/ratios" '
                NR >= 2 && NR <= 4 { printf $3 == "" ? " |" : " %.2fx |", $3 / ours; all = all " " $3 / ours }
                END { print published == "-" ? "  |" : " " published "x |"; print name all >> file }' "$scratch/$framework.csv"
        } >> "$scratch/$framework.md"
    done
done
for framework in megatron deepspeed; do
    cat "$scratch/$framework.md"
    awk -v name=$framework '$1 == name { n++; bad += $4 < 1
                for (k = 2; k <= 4; k++) { sum[k] += $k; most[k] = $k > most[k] ? $k : most[k] } }
        END { printf "\nOurs is %.2fx as fast in the mean, %.2fx at most; with the same kernels %.2fx and %.2fx, by its " \
                     "plans alone %.2fx and %.2fx; slower in %d of %d\n\n", sum[2] / n, most[2], sum[3] / n, most[3],
                     sum[4] / n, most[4], bad, n
              exit bad > 0 }' "$scratch/ratios"
done

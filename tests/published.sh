#!/bin/sh
# Predicts runs that others measured and published, by presets and framework profiles alone, and prints two tables: of
# time and of memory.
#
#   tests/published.sh [DATA [OUT.csv [PAGE.csv]]]
#
# DATA (../shared/reference) has tables of measured runs; what is not there is left out, which is said. Runs that are
# typed in below have their source beside them. Nothing is fitted here: rows that a constant of a profile was fitted to
# (sim/model/framework.c) make a set of their own, "calibration". OUT.csv gets a row for each run, as mist-plot compare
# draws it: plan,predicted_s,measured_s,error_bar_s, where a plan is "SET: RUN". With PAGE.csv, which mist-plot errors
# draws, only the well-known runs are predicted, each with its source as a note. Rows of what is no time have their own
# unit, and a bar of 0.
set -eu
data=${1:-../shared/reference}
build=${MIST_BUILD:-build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
out=${2:-$folder/out.csv}
page=${3:-}
known='Well-known runs'
mkdir "$folder/plans"
: > "$folder/runs"
: > "$folder/layers"

# Lines "set|run|measured_s|cluster|family layers hidden heads kv_heads ffn vocab seq bias tied|
#   framework attention recompute|global_batch micro_batch tp[,cp] pp dp chunks zero sequence_parallel gradients dtype ends
#   flag|of"
# become plans, and lines "plan|set|run|measured|recompute|of" of $folder/runs. dtype: bf16 where it is left out. ends:
# blocks that the first and the last stage have less than the others (0). flag: keys of the job that are true, or
# key=number, joined by "+". of: what was measured; nothing: an iteration, else see predicted().
plans() {
    awk -F'|' -v folder="$folder" -v start="$(wc -l < "$folder/runs")" '
        function stage(layers) {
            split(p[3], cut, ","); n = p[5] * cut[1] * (cut[2] > 1 ? cut[2] : 1); match($4, /:[0-9]+x[0-9]+/); split(substr($4, RSTART, RLENGTH), c, "x")
            return sprintf("{\"layers\": %d, \"mesh_nodes\": %d, \"mesh_devices\": %d, \"micro_batch\": %d, \"dp\": %d, " \
                "\"tp\": %d, \"cp\": %d, \"zero\": %d, \"sequence_parallel\": %s, \"checkpointed_layers\": 0}", layers,
                n > c[2] ? n / c[2] : 1, n > c[2] ? c[2] : n, p[2], p[5], cut[1], cut[2] > 1 ? cut[2] : 1, p[7],
                p[8] ? "true" : "false")
        }
        {
            split($5, m, " "); split($6, f, " "); split($7, p, " ")
            if (p[10] == "") p[10] = "bf16"
            if ((m[2] + 2 * p[11]) % (p[4] * p[6]) || p[1] % (p[2] * p[5])) {
                print "published: " $1 ", " $2 ": not a plan: left out" | "cat >&2"
                next
            }
            file = sprintf("%s/plans/%05d.json", folder, start + ++n_plans)
            printf "{\"format\": 1, \"model\": {\"name\": \"published\", \"family\": \"%s\", \"n_layers\": %d, " \
                "\"hidden\": %d, \"n_heads\": %d, \"n_kv_heads\": %d, \"head_dim\": %d, \"ffn\": %d, \"vocab\": %d, " \
                "\"max_seq\": %d, \"has_bias\": %s, \"ties_embeddings\": %s, \"norm_epsilon\": 1e-5, \"rope_theta\": %s},\n",
                m[1], m[2], m[3], m[4], m[5], m[3] / m[4], m[6], m[7], (m[1] == "gpt" ? m[8] : 0),
                (m[9] ? "true" : "false"), (m[10] ? "true" : "false"), (m[1] == "gpt" ? "0.0" : "5e5") > file
            n_flags = split(p[12], flags, "+"); job = ""
            for (i = 1; i <= n_flags; i++)
                job = job (split(flags[i], key, "=") > 1 ? ", \"" key[1] "\": " key[2] : ", \"" flags[i] "\": true")
            printf "\"job\": {\"global_batch\": %d, \"seq_len\": %d, \"dtype\": \"%s\", \"gradient_dtype\": \"%s\", " \
                "\"gpu\": true, \"framework\": \"%s\", \"attention\": \"%s\"%s},\n", p[1], m[8], p[10], p[9], f[1], f[2],
                job > file
            printf "\"cluster\": {\"trace_set\": \"%s\", \"fingerprint\": \"%016d\", \"device_memory_bytes\": 0},\n",
                $4, 0 > file
            printf "\"pipeline\": \"%s\", \"chunks\": %d, \"n_micro_batches\": %d, \"stages\": [",
                (p[6] > 1 ? "interleaved" : "1f1b"), p[6], p[1] / (p[2] * p[5]) > file
            for (i = 0; i < p[4]; i++)
                printf "%s%s", (i ? ",\n" : ""),
                    stage((m[2] + 2 * p[11]) / p[4] - p[11] * ((i == 0) + (i == p[4] - 1))) > file
            print "]}" > file
            close(file)
            print file "|" $1 "|" $2 "|" $3 "|" f[3] "|" $8 >> (folder "/runs")
        }'
}

# has FILE: whether DATA has it; else says so.
has() {
    [ -r "$data/$1" ] && return 0
    echo "published: skipped: there is no $data/$1" >&2
    return 1
}

# ------------------------------------------------------------------------------------------------------------ runs
# vTrain (Bang et al., MICRO 2024): Megatron-DeepSpeed on a node of A100, fp16, one width for calibration. They are said to
# be measured (data/README.md), but are sums of kernels that it profiled once, gaps between them included, and of its table
# of all-reduces: 76 pairs of runs that differ in dp alone differ by what that table says, to the last digit (src/predictor.py,
# compute_comm_time). Times are those of runs without recomputation, whatever the column says, of its program's vocabulary
# (src/config.py, src/model/gpt_modeling.py), 50,257 by tp, rounded down and not padded, so that products of one rank have
# rows of an odd number of logits, which are slow; and of its loss, which works on logits in fp16 (src/trainer.py).
if has vtrain/single_node_a100.csv; then
    awk -F, '$1 == "A100" {
        set = "vTrain, other widths"
        if ($4 == 2048) set = "vTrain, hidden 2048 (calibration)"
        printf "%s|%s x %s, tp %s dp %s pp %s, %s of %s|%.9f|a100-80:1x8|", set, $3, $4, $8, $9, $10, $11, $12, $15 / 1000
        printf "gpt %d %d %d %d %d %d %d 1 1|deepspeed fused none|", $3, $4, $5, $5, 4 * $4, int(50257 / $8) * $8, $6
        printf "%d %d %d %d %d 1 0 0 fp16 fp16 0 fp16_loss\n", $11, $12, $8, $10, $9 }' "$data/vtrain/single_node_a100.csv" | plans
fi
# Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", table 5, and section 6.3
if has megatron/megatron_seqpar_2205.05198_table5.csv; then
    awk -F, '$11 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ {
        selective = ($0 ~ /selective/); mode = selective ? "selective, sequence parallel" : "full"
        printf "Megatron, 22B to 1T|%s, %s GPUs, %s|%s|a100-80:%dx8|", $1, $10, mode, $(NF - 2), $10 / 8
        printf "gpt %d %d %d %d %d %d %d 1 1|megatron fused %s|", $4, $3, $2, $2, 4 * $3, $6, $5,
            (selective ? "selective" : "full")
        printf "%d %d %d %d %d %d 0 %d fp32\n", $11, $12, $7, $8, $9, $13, selective }' \
        "$data/megatron/megatron_seqpar_2205.05198_table5.csv" | plans
fi
# llm-foundry, scripts/train/benchmarking: MPT with PyTorch FSDP; ALiBi taken as learned positions. Those of
# 1b on H100 calibrate its sustained_frac and the rate of its attention of 2022 (up to 64 GPUs). Its scripts say
# which attention (submit_benchmarks.py: Triton's, of 2022; sweep.py, of 128 GPUs and more: FlashAttention-2 but for 13b
# and 30b); a mode of "DEFAULT" reduces gradients in fp32, "PURE" in bf16. A precision of fp8 is Transformer Engine's, in products of
# blocks.
if has end_to_end/llmfoundry_mpt_fsdp_a100_h100.csv; then
    sed 's/^"[^"]*"/large/' "$data/end_to_end/llmfoundry_mpt_fsdp_a100_h100.csv" | awk -F, '
        BEGIN {
            split("125m 12 768 12,350m 24 1024 16,760m 24 1536 12,1b 24 2048 16,3b 32 2560 20,7b 32 4096 32,13b 40 5120 40,30b 48 7168 56,70b 80 8192 64", list, ",")
            for (i in list) { split(list[i], m, " "); shape[m[1]] = m[2] " " m[3] " " m[4] " " m[4] " " 4 * m[3] }
            cluster["a100_80gb"] = "a100-80"; cluster["a100_40gb"] = "a100-40"; cluster["h100_80gb"] = "h100-sxm"
        }
        $2 in shape && $5 in cluster && $16 ~ /bf16|fp8/ && $20 == "False" {
            n = $4; mb = $9; gbs = $11
            if (gbs % (n * mb)) next
            set = "MPT, " substr($5, 1, 4) ($16 ~ /fp8/ ? ", FP8" : $2 == "1b" && $5 ~ /h100/ ? ", 1b (calibration)" : "")
            printf "%s|%s, %s GPUs, seq %s, %s of %s%s|%.9f|%s:%dx%d|", set, $2, n, $3, gbs, mb,
                ($19 == "True" ? ", full" : ""), gbs * $3 / $13, cluster[$5], (n > 8 ? n / 8 : 1), (n > 8 ? 8 : n)
            printf "gpt %s 50368 %d 0 1|llm-foundry %s %s|", shape[$2], $3,
                ($1 == "large" && $2 !~ /^(13b|30b)$/ ? "flash" : "flash1"), ($19 == "True" ? "full" : "none")
            printf "%d %d 1 1 %d 1 %d 0 %s bf16 0 %s\n", gbs, mb, n, ($18 == "FULL_SHARD" ? 3 : 2),
                ($17 == "PURE" ? "bf16" : "fp32"), ($16 ~ /fp8/ ? "fp8" : "") }' | plans
fi
# BigScience's runs before BLOOM: Megatron and Megatron-DeepSpeed, fp16, full recomputation, nodes of four V100 on Jean
# Zay. Its network as measured there (experiments/bandwidth, all_reduce_bench: a node reaches 10.6 GB/s where there are
# four, 6.9 where there are 16). Median of each log, and the most that rank 0 allocated (but where the log says it after
# the first iteration, before which there is no state of Adam: ds-off, 20 bytes a parameter); of the table, whose runs
# varied twofold with the network, the fastest of a plan.
# Where Megatron-DeepSpeed ran without DeepSpeed ("ds-off", "N"), the pipeline is Megatron's; DeepSpeed's runs of 07-10
# had ZeRO-1 (experiments/gpt2.md).
bloom() { # SET FILE: name, layers, hidden, framework, micro-batch, batch, tp, pp, dp, zero, measured, of
    awk -F, -v set="$1" '{
        n = $7 * $8 * $9
        printf "%s|%s|%s|v100:%dx4,nic=4x%sGb/s|gpt %d %d 32 32 %d 50688 1024 1 1|%s fused full|", set, $1, $11, n / 4,
            (n < 64 ? 27 : 17.2), $2, $3, 4 * $3, $4
        printf "%d %d %d %d %d 1 %d 0 fp16 fp16|%s\n", $6, $5, $7, $8, $9, $10, $12 }' "$2" | plans
}
if has end_to_end/bigscience_v100_megatron_runs.csv; then
    awk -F, -v OFS=, '$9 ~ /^[0-9]+$/ && $5 == 1024 {
        run = $1; sub(/.*\//, "", run); framework = $1 ~ /-ds-/ && $1 !~ /ds-off/ ? "deepspeed-2021" : "megatron-2021"
        print run, $2, $3, framework, $6, $7, $8, $9, $10, 0, $15 / 1000, ""
        if ($19 > 0 && $1 !~ /ds-off/)
            print run, $2, $3, framework, $6, $7, $8, $9, $10, 0, $19 / 1024, "peak" > (folder "/allocated") }' \
        folder="$folder" "$data/end_to_end/bigscience_v100_megatron_runs.csv" > "$folder/logs"
    bloom "BLOOM, V100, logs" "$folder/logs"
    bloom "BLOOM, V100, allocated" "$folder/allocated"
fi
# On 05-26 and 05-28 the 52B plan took 217 and 225 s, on 05-25 and 05-27 129 and 125 s. So the table comes twice: all of
# it, and without these two days. Of rows of one plan, the least mean error of any prediction is that of their best
# constant, which is one of them.
bloom_table() { # LEFT_OUT: days, an expression
    awk -F, -v OFS=, -v days="$1" '{ sub(/\r$/, "") }
        $5 ~ /^[0-9]+$/ && $8 ~ /^[0-9]+$/ && $7 * $8 * $9 == $2 && $12 == $10 * $11 * $9 &&
        $16 !~ days {
        framework = $1 ~ /Deepspeed/ && $6 != "N" ? "deepspeed-2021" : "megatron-2021"
        key = framework " " $3 ", " $2 " GPUs, " $12 " of " $11 ", tp " $7 " pp " $8 " dp " $9
        times[key, ++n[key]] = $13; n_rows++
        if (!(key in best) || $13 < best[key]) {
            best[key] = $13
            row[key] = $5 "," $4 "," framework "," $11 "," $12 "," $7 "," $8 "," $9 "," (framework $16 == "deepspeed-202107-10")
        } }
        END {
            for (key in best) {
                name = key; gsub(/,/, "", name); print name, row[key], best[key], ""
                least = 0
                for (i = 1; i <= n[key]; i++) {
                    sum = most = 0
                    for (j = 1; j <= n[key]; j++) {
                        e = times[key, i] / times[key, j] - 1; sum += e < 0 ? -e : e
                        if (times[key, j] > most) most = times[key, j]
                    }
                    if (i == 1 || sum < least) least = sum
                }
                all += least
                if (least > worst) {
                    worst = least; what = sprintf("%s: %d runs of %s to %s s, at least %.1f %%", key, n[key], best[key],
                        most, 100 * least / n[key])
                } }
            if (days == "none") printf "Whatever is predicted for a plan of the table, its %d runs are off by at least " \
                "%.1f %% in the mean, most of it by one plan (%s).\n", n_rows, 100 * all / n_rows, what > "/dev/stderr"
        }' "$data/end_to_end/bigscience_v100_megatron_tables.csv" 2>> "$folder/repeats" | sort
}
if has end_to_end/bigscience_v100_megatron_tables.csv; then
    bloom_table none > "$folder/table"
    bloom_table '^05-2[68]$' > "$folder/other_days"
    bloom "BLOOM, V100, table" "$folder/table"
    bloom "BLOOM, V100, table without two days" "$folder/other_days"
fi
# BigScience, train/tr11-176B-ml/chronicles-prequel.md: how BLOOM's plan was chosen, its second iteration each, from
# 2022-02-25 on (the hosts had become faster) what cuts blocks evenly: fp16, and from 02-28 on bf16 with embedding and loss
# as a block each. Megatron-DeepSpeed, ZeRO-1, full recomputation; 48 nodes on Jean Zay with four Omni-Path of 100 Gb/s,
# of which NCCL reaches 5.07 GB/s each (experiments/bandwidth, all_reduce_bench: rings of 16 and of 32 ranks through one);
# ALiBi as learned positions. CUDA_LAUNCH_BLOCKING was set, without which so many hung. Memory is nvidia-smi's, in GB
# taken as GiB, of the nodes with the embedding.
awk '{
    n = $6 * $7 * $8; is_cut = $2 == "bf16"
    run = sprintf("%d x %d, %d heads, dp %d tp %d pp %d, %d of %d, %s", $3, $4, $5, $6, $7, $8, $10, $9, $2)
    rest = sprintf("a100-80:%dx8,nic=4x51Gb/s|gpt %d %d %d %d %d 250880 2048 1 1|deepspeed fused full|" \
        "%d %d %d %d %d 1 %d 0 %s %s %d launch_blocking", n / 8, $3, $4, $5, $5, 4 * $4, $10, $9, $7, $8, $6, $6 > 1,
        (is_cut ? "fp32" : "fp16"), $2, is_cut)
    print "BLOOM, A100|" run "|" $1 "|" rest
    if ($11 > 0) print "BLOOM, A100, nvidia-smi|" run "|" $11 "|" rest "|device" }' <<'END' | plans
114.11 fp16 72 14336 64 8 8 6 4 2048 55
113.01 fp16 72 14336 64 8 8 6 4 1568 56
123.57 fp16 72 14336 64 8 8 6 6 2016 66
92.75 fp16 72 14336 64 4 8 12 4 1568 0
117.07 fp16 72 14336 64 4 8 12 4 2048 49
99.93 fp16 72 14336 64 4 8 12 2 1568 0
128.82 fp16 72 14336 64 4 8 12 2 2048 0
113.16 fp16 72 14336 64 6 8 8 4 2016 52
125.52 fp16 72 14336 64 12 8 4 2 2016 53
114.81 fp16 72 14336 64 12 8 4 4 2016 59
145.45 fp16 72 14336 64 24 8 2 1 2016 65
136.13 fp16 72 14336 64 24 8 2 2 2016 76
111.89 fp16 72 14336 64 8 4 12 4 2048 60
110.48 fp16 72 14336 64 8 4 12 2 2048 44
117.11 fp16 72 14336 64 16 4 6 4 2048 75
111.71 fp16 72 14336 64 16 4 6 2 2048 57
112.50 fp16 72 14336 64 16 2 12 2 2048 63
119.53 fp16 72 14336 64 8 2 24 1 2048 44
122.75 fp16 72 14336 64 8 2 24 2 2048 53
130.60 fp16 72 14336 64 4 4 24 1 2048 0
142.17 fp16 96 12288 64 8 1 48 1 2048 58
114.02 fp16 72 14336 128 8 4 12 2 2048 0
137.53 fp16 72 14336 128 8 4 12 4 2048 0
116.06 fp16 72 14336 128 8 8 6 4 2048 0
103.82 fp16 84 13312 64 8 4 12 2 2048 0
113.21 fp16 84 13312 64 8 4 12 4 2048 0
129.61 fp16 84 13312 64 8 8 6 2 2048 0
133.57 fp16 78 13824 96 8 8 6 2 2048 0
118.24 fp16 78 13824 96 8 8 6 4 2048 59
115.55 fp16 78 13824 96 16 4 6 4 2048 75
116.54 bf16 106 12288 64 8 4 12 2 2048 67
118.79 bf16 106 12288 96 8 4 12 2 2048 65
121.42 bf16 106 12288 128 8 4 12 2 2048 67
120.34 bf16 106 12288 96 8 4 12 4 2048 79
139.72 bf16 100 12288 64 8 8 6 2 2048 61
120.96 bf16 100 12288 64 8 8 6 4 2048 72
111.79 bf16 82 13312 64 4 8 12 4 2048 52
104.45 bf16 82 13312 64 8 4 12 2 2048 63
123.71 bf16 82 13312 104 8 4 12 2 2048 62
108.78 bf16 82 13312 128 8 4 12 2 2048 60
104.82 bf16 82 13312 64 8 4 12 4 2048 74
124.10 bf16 94 13312 128 8 4 12 2 2048 67
121.63 bf16 70 14336 64 4 8 12 2 2048 40
102.03 bf16 70 14336 64 8 4 12 2 2048 59
104.50 bf16 70 14336 112 8 4 12 2 2048 59
105.89 bf16 70 14336 128 8 4 12 2 2048 60
102.27 bf16 70 14336 64 8 4 12 4 2048 73
END
# Aceso (Liu et al., EuroSys 2024): what its profiler measured of each operator of Megatron-LM v2, fp16, summed up to the
# forward of a micro-batch of 24 layers, its all-reduces included. Their backward lacks a product on all but A10G; the
# smallest model's first batch was profiled cold. Of L4, A10G and V100 the share of the peak that products reach, and of
# L4 that rings reach of PCIe, were fitted to the same.
if has aceso/op_profiles.csv.gz; then
    gzip -dc "$data/aceso/op_profiles.csv.gz" | awk -F, '
        BEGIN { split("a100-sxm4-40gb a100-40 a100-sxm4-40gb-larger-model a100-40 l4 l4 a10g a10g v100-sxm2-32gb-seq2048 v100", x, " ")
                for (i = 1; i in x; i += 2) preset[x[i]] = x[i + 1] }
        $5 == 0 && $1 in preset && !($3 == 1 && $2 == ($1 ~ /larger/ ? "2_6B" : "1_3B")) {
            key = $1 "," $2 "," $3 "," $4; if (!(key in us)) order[++n] = key
            is_end = $6 ~ /^(encoder-embedding|final-layernorm|gpt-post-process)$/
            us[key] += $7 * (is_end ? 1 : 24); mib[key, $6, "w"] = $11; mib[key, $6, "a"] = $12; mib[key, $6, "o"] = $10 }
        END { for (i = 1; i <= n; i++) {
            key = order[i]; split(key, k, ","); b = k[3]; tp = k[4]
            h = int(sqrt(mib[key, "enc-attention-qkv", "w"] * 2 ^ 20 * tp / 6) + 0.5)
            s = int(mib[key, "encoder-embedding", "o"] * 2 ^ 20 / (2 * b * h) + 0.5)
            a = int(mib[key, "enc-attention-score", "a"] * 2 ^ 20 * tp / (2 * b * s * s) + 0.5)
            v = int(mib[key, "gpt-post-process", "w"] * 2 ^ 20 * tp / (2 * h) + 0.5)
            if (a < 1 || h % a || a % tp) continue
            printf "Aceso, forward, %s|%s, tp %d, batch %d (%s)|%.9f|%s:1x8|", preset[k[1]], k[2], tp, b, k[1], us[key] / 1e6,
                preset[k[1]]
            printf "gpt 24 %d %d %d %d %d %d 1 0|megatron fused none|%d %d %d 1 1 1 0 0 fp32 fp16|forward\n", h, a, a, 4 * h, v,
                s, b, b, tp } }' | plans
fi
# Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", table 2:
# TFLOP/s on each GPU, by its equation 3; torchtitan, docs/performance.md: tokens/s on each GPU, sequences of 8,192 (Llama 3)
# and 4,096 (Llama 2); batch of a GPU; its H100 have 2.4 TB/s (and 500 W)
awk -F, '{
    if ($1 == "gpt") {
        flop = 96 * $6 * 2048 * $2 * $3 ^ 2 * (1 + 2048 / (6 * $3) + 51200 / (16 * $2 * $3))
        printf "Megatron, 2021|%dB, %d GPUs|%.6f|a100-80:%dx8|gpt %d %d %d %d %d 51200 2048 1 1|megatron-2021 fused full|" \
            "%d 1 8 %d %d 1 0 0 bf16\n", ($3 == 12288 ? 175 : 530), $7, flop / $7 / ($8 * 1e12), $7 / 8, $2, $3, $4, $4,
            4 * $3, $6, $5, $7 / 8 / $5
    } else
        printf "torchtitan|%s, %d %s, %s|%.6f|%s:%dx8%s|llama %s 0 0|torchtitan flash %s|%d %d 1 1 %d 1 3 0 fp32\n", $1, $6,
            $5, $8, $4 * $7 / $9, $5, $6 / 8, ($5 ~ /h100/ ? ",memory-rate=2.4TB/s,power=500W" : ""), $2 " " $3 " " $4, $8, $6 * $7, $7, $6 }' <<'END' | plans
gpt,96,12288,96,12,1536,384,153
gpt,96,12288,96,12,1536,768,149
gpt,96,12288,96,12,1536,1536,141
gpt,105,20480,128,35,2240,560,171
gpt,105,20480,128,35,2240,1120,167
gpt,105,20480,128,35,2240,2240,159
Llama 3 8B,32 4096 32 8 14336,128256,8192,a100-80,64,1,selective,2973
Llama 3 70B,80 8192 64 8 28672,128256,8192,a100-80,64,1,full,331
Llama 2 13B,40 5120 40 40 13824,32000,4096,a100-80,64,2,none,2162
Llama 2 13B,40 5120 40 40 13824,32000,4096,a100-80,64,2,selective,1904
Llama 2 70B,80 8192 64 8 28672,32000,4096,a100-80,64,1,selective,355
Llama 2 70B,80 8192 64 8 28672,32000,4096,a100-80,64,2,full,353
Llama 3 8B,32 4096 32 8 14336,128256,8192,h100-sxm,128,2,selective,5605
END

# The same paper's table 1, by what its authors ran it with (Megatron-LM, examples/sc21/run_table_1.sh): layers, hidden,
# heads, tp, pp, chunks, micro-batch, batch, GPUs, TFLOP/s on each.
awk '{
    flop = 96 * $8 * 2048 * $1 * $2 ^ 2 * (1 + 2048 / (6 * $2) + 51200 / (16 * $1 * $2))
    printf "Megatron, 2021, 1.7B to 1T|%d x %d, %d GPUs|%.6f|a100-80:%dx8|gpt %d %d %d %d %d 51200 2048 1 1|" \
        "megatron-2021 fused full|%d %d %d %d %d %d 0 0 fp16 fp16\n", $1, $2, $9, flop / $9 / ($10 * 1e12), $9 / 8, $1, $2,
        $3, $3, 4 * $2, $8, $7, $4, $5, $9 / $4 / $5, $6 }' <<'END' | plans
24 2304 24 1 1 1 16 512 32 137
30 3072 32 2 1 1 16 512 64 138
36 4096 32 4 1 1 16 512 128 142
40 6144 48 8 1 1 8 1024 256 135
48 8192 64 8 2 1 4 1536 512 138
60 10240 80 8 4 3 2 1792 1024 140
80 12288 96 8 8 2 2 2304 1536 148
96 16384 128 8 16 2 1 2160 1920 155
105 20480 128 8 35 3 1 2520 2520 163
128 25600 160 8 64 1 1 3072 3072 163
END

# DLPerf (OneFlow), Megatron-LM/README.md of May 2021: fp16, full recomputation, nodes of eight V100 of 16 GB with one
# adapter of 100 Gb/s; dp, tp, pp, micro-batch, batch, layers, hidden, heads, ms of an iteration, MiB by nvidia-smi.
awk '{
    n = $1 * $2 * $3
    run = sprintf("%d x %d, dp %d tp %d pp %d, %d of %d", $6, $7, $1, $2, $3, $5, $4)
    rest = sprintf("v100:%dx%d,nic=1x100Gb/s,memory=16GiB|gpt %d %d %d %d %d 51200 2048 1 1|megatron-2021 fused full|" \
        "%d %d %d %d %d 1 0 0 fp16 fp16", (n > 8 ? n / 8 : 1), (n > 8 ? 8 : n), $6, $7, $8, $8, 4 * $7, $5, $4, $2, $3, $1)
    printf "DLPerf, V100|%s|%.5f|%s\n", run, $9 / 1000, rest
    printf "DLPerf, V100, nvidia-smi|%s|%.3f|%s 0 |device\n", run, $10 / 1024, rest }' <<'END' | plans
1 1 1 2 2 16 1536 16 464.12 14362
8 1 1 2 16 16 1536 16 480.96 14938
16 1 1 2 32 16 1536 16 664.46 14508
32 1 1 2 64 16 1536 16 683.51 14508
1 1 1 8 8 12 768 12 611.2 9810
1 8 1 16 16 16 1536 16 692.44 12684
1 16 1 16 16 16 3072 32 5610.23 12150
1 32 1 16 16 32 3072 32 13037.85 8834
2 4 1 8 16 16 1536 16 576.48 9104
4 2 1 4 16 16 1536 16 593.68 9642
2 8 1 8 16 24 2304 24 1313.52 14928
4 8 1 8 32 24 2304 24 1508.48 15004
8 1 4 2 512 16 1536 16 4893.55 7130
1 8 4 16 512 24 2304 24 22166.85 14204
2 4 4 8 512 24 2304 24 15331.23 10018
2 8 2 8 512 24 2304 24 16281.51 10554
END

# FlagPerf (training/nvidia/*/README.md): what a GPU holds, in whole GiB of its tables' column "mem": Megatron-LM core 0.6
# and FlagScale (Llama 3 8B and 70B, Llama 2 70B), DeepSpeed's ZeRO-3 with FlashAttention-2 in transformers, fp16 (Llama 2
# 7B).  Their times are among the well-known runs. Left out: its Megatron-DeepSpeed,
# whose script loses all arguments behind a "#", and Baichuan 2 13B, whose attention and network are not said.
llama2_7b="llama 32 4096 32 32 11008 32000 4096 0 0"
llama2_70b="llama 80 8192 64 8 28672 32000 4096 0 0"
llama3_8b="llama 32 4096 32 8 14336 128256 8192 0 1"
plans <<END
FlagPerf, nvidia-smi|Llama 3 8B, 8 A800, PP 2|76|a800:1x8|$llama3_8b|megatron flash selective|512 1 1 2 4 1 1 0 fp32 bf16 0 no_dropout|device
FlagPerf, nvidia-smi|Llama 3 8B, 8 H100, TP 2|71|h100-sxm:1x8|$llama3_8b|megatron flash selective|512 1 2 1 4 1 1 1 fp32 bf16 0 no_dropout|device
FlagPerf, nvidia-smi|Llama 3 8B, 16 H100, TP 2|62|h100-sxm:2x8|$llama3_8b|megatron flash selective|512 1 2 1 8 1 1 1 fp32 bf16 0 no_dropout|device
FlagPerf, nvidia-smi|Llama 3 70B, 64 H100, TP 8, PP 4|55|h100-sxm:8x8|llama 80 8192 64 8 28672 128256 8192 0 1|megatron flash selective|512 1 8 4 2 1 1 1 fp32 bf16 0 no_dropout|device
FlagPerf, nvidia-smi|Llama 2 70B, 32 H800, TP 8, PP 4|62|h800:4x8,nic=8x200Gb/s|$llama2_70b|megatron flash none|44 1 8 4 1 1 1 1 fp32 bf16 0 no_dropout|device
FlagPerf, nvidia-smi|Llama 2 70B, 32 H800, TP 4, PP 8|74|h800:4x8,nic=8x200Gb/s|$llama2_70b|megatron flash none|44 1 4 8 1 1 1 1 fp32 bf16 0 no_dropout|device
FlagPerf, nvidia-smi|Llama 2 7B, 8 A800, ZeRO-3|57|a800:1x8|$llama2_7b|deepspeed flash none|8 1 1 1 8 1 3 0 fp16 fp16 0 no_dropout+overlap+reduce_bucket=10000000|device
FlagPerf, nvidia-smi|Llama 2 7B, 8 H800, ZeRO-3|59|h800:1x8|$llama2_7b|deepspeed flash none|8 1 1 1 8 1 3 0 fp16 fp16 0 no_dropout+overlap+reduce_bucket=10000000|device
END

# torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: what the allocator reserved at the most, in GiB; H100 of 96 GB.
llama3_8b="llama 32 4096 32 8 14336 128256 8192 0 0"
eight=h100-sxm:1x8,memory=95GiB
plans <<END
torchtitan, reserved|Llama 3 8B, 8 H100|82.4|$eight|$llama3_8b|torchtitan flash selective|16 2 1 1 8 1 3 0 fp32|reserved
torchtitan, reserved|Llama 3 8B, 8 H100, compiled|77.0|$eight|$llama3_8b|torchtitan-compiled flash selective|16 2 1 1 8 1 3 0 fp32|reserved
torchtitan, reserved|Llama 3 8B, 8 H100, compiled, FP8|76.8|$eight|$llama3_8b|torchtitan-compiled flash selective|16 2 1 1 8 1 3 0 fp32 bf16 0 fp8|reserved
torchtitan, reserved|Llama 3 8B, 128 H100|67.0|h100-sxm:16x8,memory=95GiB|$llama3_8b|torchtitan flash selective|256 2 1 1 128 1 3 0 fp32|reserved
torchtitan, reserved|Llama 3 8B, 128 H100, compiled|62.0|h100-sxm:16x8,memory=95GiB|$llama3_8b|torchtitan-compiled flash selective|256 2 1 1 128 1 3 0 fp32|reserved
torchtitan, reserved|Llama 3 8B, 128 H100, compiled, FP8|61.8|h100-sxm:16x8,memory=95GiB|$llama3_8b|torchtitan-compiled flash selective|256 2 1 1 128 1 3 0 fp32 bf16 0 fp8|reserved
torchtitan, reserved|Llama 3 70B, 256 H100, TP 8, FP8|71.9|h100-sxm:32x8,memory=95GiB|llama 80 8192 64 8 28672 128256 8192 0 0|torchtitan-compiled flash full|512 16 8 1 32 1 3 1 fp32 bf16 0 fp8|reserved
torchtitan, reserved|Llama 3 8B, 8 H100, 32,768 tokens, FP8|83.9|$eight|llama 32 4096 32 8 14336 128256 32768 0 0|torchtitan-compiled flash full|8 1 1 1 8 1 3 0 fp32 bf16 0 fp8|reserved
END

# Qi et al. 2024, "Zero Bubble Pipeline Parallelism", tables 3 to 5, 1F1B: what a stage between the first and the last
# takes for a micro-batch (its passes' profiled times) and what was allocated, GB taken as GiB; Megatron-LM, fp16. The
# vocabulary, of which neither depends, is not said.
if has pipeline_timings/zero_bubble_tables.csv; then
    awk -F, '$9 == "1F1B" && $15 > 0 {
        rest = sprintf("a100-80:%dx8|gpt %d %d %d %d %d 51200 %d 1 0|megatron fused none|%d %d 1 %d 1 1 0 0 fp32 fp16 1 ",
            $6 / 8, $2, $4, $3, $3, 4 * $4, $5, $7 * $8, $7, $6)
        printf "Zero bubble, a stage|%s, %d micro-batches|%.6f|%s|stage %d\n", $1, $8, ($10 + $11 + $12) / 1000, rest, $8
        if (!seen[$1]++) printf "Zero bubble, allocated|%s|%d|%s|peak\n", $1, $17, rest }' \
        "$data/pipeline_timings/zero_bubble_tables.csv" | plans
fi

# Runs of models that many know, on the page of `make published-page`: what is run, on what, in tokens/s of a GPU,
# TFLOP/s of a GPU by equation 3 of Narayanan et al. (T) or seconds of an iteration (s); its source. FSDP is zero 3.
# GPT-NeoX-20B's 117 TFLOP/s are those of gpt-neox (megatron/logging.py, get_flops: of a token 6 for each parameter and
# 60 s h l): 43.85 s; its 150,000 steps in 1,830 hours make 43.9.
# torchtitan's H100 are slower than the preset's: 500 W, 2.4 TB/s. NVIDIA's runs sum gradients in bf16 (grad_sync_dtype of
# its launcher's scripts), and with tensor parallelism send parts of products beside the others (ub_tp_comm_overlap,
# --tp-comm-overlap); losses of Megatron-Bridge's are Transformer Engine's (recipes/llama/llama3.py), and GPT 175B on 512 H100
# is an entry of MLPerf.
well_known() { # SET
    awk -F'|' -v folder="$folder" -v known="$1" '
        NF < 6 { print "published: " $1 ": not a plan: " $2 | "cat >&2"; next }
        {
            split($3, m, " "); split($5, p, " ")
            split(p[3], cut, ","); n = cut[1] * (cut[2] > 1 ? cut[2] : 1) * p[4] * p[5]; tokens = p[1] * m[8]
            flop = 96 * m[2] * m[3] ^ 2 * (1 + m[8] / (6 * m[3]) + m[7] / (16 * m[2] * m[3]))
            value = $6 + 0; unit = $6; gsub(/[0-9.]/, "", unit)
            s = unit == "s" ? value : unit == "T" ? flop * tokens / n / (value * 1e12) : tokens / n / value
            print known "|" $1 "|" s "|" $2 "|" $3 "|" $4 "|" $5
            printf "%s|%.0f tokens/s of a GPU; %s\n", $1, tokens / n / s, $7 >> (folder "/notes")
        }' | plans
}
well_known "$known" <<'END'
Llama 3 8B, 8 H100, FSDP|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan flash selective|16 2 1 1 8 1 3 0 fp32|5762|torchtitan, docs/performance.md
Llama 3 8B, 128 H100, FSDP|h100-sxm:16x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan flash selective|256 2 1 1 128 1 3 0 fp32|5605|torchtitan, docs/performance.md
Llama 3 8B, 8 H100, FSDP, compiled|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|16 2 1 1 8 1 3 0 fp32|6667|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 128 H100, FSDP, compiled|h100-sxm:16x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|256 2 1 1 128 1 3 0 fp32|6514|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 64 H100, TP 8, FSDP|h100-sxm:8x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|96 12 8 1 8 1 3 1 fp32|4378|torchtitan, asynchronous TP, June 2025
Llama 3 70B, 256 H100, TP 8, FSDP|h100-sxm:32x8,memory-rate=2.4TB/s,power=500W|llama 80 8192 64 8 28672 128256 8192 0 0|torchtitan-compiled flash full|512 16 8 1 32 1 3 1 fp32|597.3|torchtitan, asynchronous TP, June 2025
Llama 3 405B, 128 H100, TP 8, FSDP|h100-sxm:16x8,memory-rate=2.4TB/s,power=500W|llama 126 16384 128 8 53248 128256 8192 0 0|torchtitan flash full|32 2 8 1 16 1 3 1 fp32|109|torchtitan, docs/performance.md of 2024
Llama 3 8B, 8 H100, FSDP, compiled, FP8|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|16 2 1 1 8 1 3 0 fp32 bf16 0 fp8|8532|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 128 H100, FSDP, compiled, FP8|h100-sxm:16x8,memory-rate=2.4TB/s,power=500W|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|256 2 1 1 128 1 3 0 fp32 bf16 0 fp8|8380|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 70B, 256 H100, TP 8, FSDP, FP8|h100-sxm:32x8,memory-rate=2.4TB/s,power=500W|llama 80 8192 64 8 28672 128256 8192 0 0|torchtitan-compiled flash full|512 16 8 1 32 1 3 1 fp32 bf16 0 fp8|829|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 32 H200, FSDP, compiled, FP8|h200-sxm:4x8|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|64 2 1 1 32 1 3 0 fp32 bf16 0 fp8|10938|torchtitan, benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md
Llama 3 8B, 64 H200, FSDP, compiled, FP8|h200-sxm:8x8|llama 32 4096 32 8 14336 128256 8192 0 0|torchtitan-compiled flash selective|128 2 1 1 64 1 3 0 fp32 bf16 0 fp8|10753|torchtitan, benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md
Llama 3 8B, 8 B200, Megatron-Bridge, FP8|b200-sxm:1x8|llama 32 4096 32 8 14336 128256 8192 0 0|megatron cudnn none|128 2 1 1 8 1 1 0 bf16 bf16 0 fp8+fused_loss+no_dropout|30624|NVIDIA Megatron-Bridge, docs/performance-summary.md, 25.11
GPT-3 5B, 64 H100, NeMo, FP8|h100-sxm:8x8|gpt 24 4096 32 32 16384 51200 2048 1 1|megatron cudnn none|2048 4 1 1 64 1 1 0 bf16 bf16 0 fp8+overlap|23406|NVIDIA NeMo, performance summary, 24.09
GPT-3 20B, 64 H100, NeMo, TP 2, FP8|h100-sxm:8x8|gpt 44 6144 48 48 24576 51200 2048 1 1|megatron cudnn none|256 2 2 1 32 1 1 1 bf16 bf16 0 fp8+overlap+tp_overlap|5851|NVIDIA NeMo, performance summary, 24.09
GPT-3 175B, 128 H100, NeMo, TP 4, PP 8, FP8|h100-sxm:16x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron cudnn none|256 1 4 8 4 6 1 1 bf16 bf16 0 fp8+overlap+tp_overlap|716|NVIDIA NeMo, performance summary, 24.09
GPT-3 175B, 512 H100, NeMo, TP 4, PP 8, FP8|h100-sxm:64x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron cudnn none|2048 2 4 8 16 6 1 1 bf16 bf16 0 fp8+overlap+tp_overlap|825|NVIDIA NeMo, performance summary, 24.09
Llama 2 7B, 8 H100, NeMo, FP8|h100-sxm:1x8|llama 32 4096 32 32 11008 32000 4096 0 0|megatron cudnn none|128 1 1 1 8 1 1 0 bf16 bf16 0 fp8+overlap+no_dropout|16934|NVIDIA NeMo, performance summary, 24.09
Llama 2 13B, 16 H100, NeMo, PP 4, FP8|h100-sxm:2x8|llama 40 5120 40 40 13824 32000 4096 0 0|megatron cudnn none|128 1 1 4 4 10 1 0 bf16 bf16 0 fp8+overlap+no_dropout|8715|NVIDIA NeMo, performance summary, 24.09
Llama 2 70B, 64 H100, NeMo, TP 4, PP 4, FP8|h100-sxm:8x8|llama 80 8192 64 8 28672 32000 4096 0 0|megatron cudnn none|128 1 4 4 4 20 1 1 bf16 bf16 0 fp8+overlap+tp_overlap+no_dropout|1728|NVIDIA NeMo, performance summary, 24.09
Nemotron 8B, 64 H100, NeMo, TP 2, FP8|h100-sxm:8x8|nemotron 32 4096 32 32 16384 256000 4096 0 0|megatron cudnn none|256 4 2 1 32 1 1 1 bf16 bf16 0 fp8+overlap+tp_overlap+no_dropout|12507|NVIDIA NeMo, performance summary, 24.09
Nemotron 22B, 64 H100, NeMo, TP 2, PP 4, FP8|h100-sxm:8x8|nemotron 40 6144 48 48 24576 256000 4096 0 0|megatron cudnn none|256 2 2 4 8 10 1 1 bf16 bf16 0 fp8+overlap+tp_overlap+no_dropout|4256|NVIDIA NeMo, performance summary, 24.07
Llama 3 8B, 8 B200, NeMo, FP8|b200-sxm:1x8|llama 32 4096 32 8 14336 128256 8192 0 0|megatron cudnn none|128 2 1 1 8 1 1 0 bf16 bf16 0 fp8+overlap+no_dropout|26006|NVIDIA NeMo, performance summary, 25.02
Llama 3 70B, 64 H100, Megatron-Bridge, TP 4, PP 8, FP8|h100-sxm:8x8|llama 80 8192 64 8 28672 128256 8192 0 0|megatron cudnn none|128 1 4 8 2 5 1 1 bf16 bf16 0 fp8+fused_loss+overlap+tp_overlap+no_dropout|1602|NVIDIA Megatron-Bridge, docs/performance-summary.md, 25.11
Llama 3 70B, 64 H100, Megatron-Bridge, batch of 256, FP8|h100-sxm:8x8|llama 80 8192 64 8 28672 128256 8192 0 0|megatron cudnn none|256 1 4 8 2 5 1 1 bf16 bf16 0 fp8+fused_loss+overlap+tp_overlap+no_dropout|1621|NVIDIA Megatron-Bridge, docs/performance-summary-archive.md, 26.02
Llama 3 8B, 8 H100, Megatron-Bridge, FSDP, FP8|h100-sxm:1x8|llama 32 4096 32 8 14336 128256 8192 0 0|megatron cudnn none|128 1 1 1 8 1 3 0 bf16 bf16 0 fp8+fused_loss+overlap+no_dropout|14451|NVIDIA Megatron-Bridge, docs/performance-summary.md, 25.11
GPT-3 175B, 512 B200, NeMo, TP 4, PP 4, FP8|b200-sxm:64x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron cudnn none|2048 2 4 4 32 6 1 1 bf16 bf16 0 fp8+overlap+tp_overlap|1600|NVIDIA NeMo, performance summary, 25.02
Llama 3 8B, 8 H100, 32,768 tokens, FP8|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W,memory=95GiB|llama 32 4096 32 8 14336 128256 32768 0 0|torchtitan-compiled flash full|8 1 1 1 8 1 3 0 fp32 bf16 0 fp8|3890|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 8 H100, NeMo, CP 2, FP8|h100-sxm:1x8|llama 32 4096 32 8 14336 128256 8192 0 0|megatron cudnn none|128 1 1,2 1 4 1 1 0 bf16 bf16 0 fp8+overlap+no_dropout|12036|NVIDIA NeMo, performance summary, 24.07
Llama 3 70B, 64 H100, NeMo, TP 4, PP 4, CP 2, FP8|h100-sxm:8x8|llama 80 8192 64 8 28672 128256 8192 0 0|megatron cudnn none|128 1 4,2 4 2 5 1 1 bf16 bf16 0 fp8+overlap+tp_overlap+no_dropout|1533|NVIDIA NeMo, performance summary, 24.07
Llama 3 8B, 8 H100, 65,536 tokens, CP 2, FP8|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W,memory=95GiB|llama 32 4096 32 8 14336 128256 65536 0 0|torchtitan-compiled flash full|4 1 1,2 1 4 1 3 0 fp32 bf16 0 fp8|2540|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 8 H100, 131,072 tokens, CP 4, FP8|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W,memory=95GiB|llama 32 4096 32 8 14336 128256 131072 0 0|torchtitan-compiled flash full|2 1 1,4 1 2 1 3 0 fp32 bf16 0 fp8|1071|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 8B, 8 H100, 262,144 tokens, CP 8, FP8|h100-sxm:1x8,memory-rate=2.4TB/s,power=500W,memory=95GiB|llama 32 4096 32 8 14336 128256 262144 0 0|torchtitan-compiled flash full|1 1 1,8 1 1 1 3 0 fp32 bf16 0 fp8|548|torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
Llama 3 405B, 8,192 H100, TP 8, PP 16|chunks of unequal layers (Llama Team 2024, table 4)
Llama 3 405B, 16,384 H100, 131,072 tokens|chunks of unequal layers (Llama Team 2024, table 4)
Nemotron 340B, 128 H100, NeMo, TP 8, PP 8, FP8|h100-sxm:16x8|nemotron 96 18432 96 8 73728 256000 4096 0 0|megatron cudnn none|32 1 8 8 2 12 1 1 bf16 bf16 0 fp8+overlap+tp_overlap+no_dropout|322|NVIDIA NeMo, performance summary, 24.07
Nemotron 15B, 64 B200, NeMo, FP8|b200-sxm:8x8|nemotron 32 6144 48 8 24576 256000 4096 0 0|megatron cudnn none|256 2 1 1 64 1 1 0 bf16 bf16 0 fp8+overlap+no_dropout|14760|NVIDIA NeMo, performance summary, 25.02
Nemotron 340B, 128 B200, NeMo, TP 8, PP 4, FP8|b200-sxm:16x8|nemotron 96 18432 96 8 73728 256000 4096 0 0|megatron cudnn none|32 1 8 4 4 12 1 1 bf16 bf16 0 fp8+overlap+tp_overlap+no_dropout|602|NVIDIA NeMo, performance summary, 25.02
GPT-3 175B, 384 A100, TP 8, PP 12|a100-80:48x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron-2021 fused full|1536 1 8 12 4 1 0 0 bf16|153T|Narayanan et al. 2021, table 2
GPT-3 175B, 768 A100, TP 8, PP 12|a100-80:96x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron-2021 fused full|1536 1 8 12 8 1 0 0 bf16|149T|Narayanan et al. 2021, table 2
GPT-3 175B, 1,536 A100, TP 8, PP 12|a100-80:192x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron-2021 fused full|1536 1 8 12 16 1 0 0 bf16|141T|Narayanan et al. 2021, table 2
GPT-3 175B, 64 A100, interleaved, full|a100-80:8x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron fused full|64 1 8 8 1 3 0 0 fp32|18.13s|Korthikanti et al. 2022, table 5
GPT-3 175B, 64 A100, interleaved, selective|a100-80:8x8|gpt 96 12288 96 96 49152 51200 2048 1 1|megatron fused selective|64 1 8 8 1 3 0 1 fp32|13.75s|Korthikanti et al. 2022, table 5
Llama 2 7B, 128 A100, FSDP|a100-80:16x8,nic=4x100Gb/s|llama 32 4096 32 32 11008 32000 4096 0 0|torchtitan flash none|256 2 1 1 128 1 3 0 bf16|3760|fms-fsdp, README.md (replicas of nodes)
Llama 2 13B, 128 A100, FSDP|a100-80:16x8,nic=4x100Gb/s|llama 40 5120 40 40 13824 32000 4096 0 0|torchtitan flash none|128 1 1 1 128 1 3 0 bf16|1700|fms-fsdp, README.md (replicas of nodes)
Llama 2 34B, 128 A100, FSDP|a100-80:16x8,nic=4x100Gb/s|llama 48 8192 64 8 22016 32000 4096 0 0|torchtitan flash full|1024 8 1 1 128 1 3 0 bf16|772|fms-fsdp, README.md
Llama 2 70B, 128 A100, FSDP|a100-80:16x8,nic=4x100Gb/s|llama 80 8192 64 8 28672 32000 4096 0 0|torchtitan flash full|768 6 1 1 128 1 3 0 bf16|380|fms-fsdp, README.md
Llama 2 7B, 96 H100, FSDP|h100-sxm:12x8,nic=8x100Gb/s|llama 32 4096 32 32 11008 32000 4096 0 0|torchtitan flash none|192 2 1 1 96 1 3 0 bf16|7500|fms-fsdp, README.md of 2024 (replicas of nodes)
Llama 2 34B, 96 H100, FSDP|h100-sxm:12x8,nic=8x100Gb/s|llama 48 8192 64 8 22016 32000 4096 0 0|torchtitan flash full|192 2 1 1 96 1 3 0 bf16|1550|fms-fsdp, README.md of 2024
BLOOM 176B, 384 A100, TP 4, PP 12|a100-80:48x8,nic=4x51Gb/s|gpt 70 14336 112 112 57344 250880 2048 1 1|deepspeed fused full|2048 2 4 12 8 1 1 0 fp32 bf16 1 launch_blocking|104.5s|BigScience, tr11-176B-ml/chronicles-prequel.md
MT-NLG 530B, 2,240 A100, TP 8, PP 35|a100-80:280x8|gpt 105 20480 128 128 81920 50304 2048 1 1|deepspeed-2021 fused full|1920 1 8 35 8 1 0 0 fp32|60.1s|Smith et al. 2022, section 2.4
MT-NLG 530B, 3,360 A100, TP 8, PP 35|a100-80:420x8|gpt 105 20480 128 128 81920 50304 2048 1 1|deepspeed-2021 fused full|1920 1 8 35 12 1 0 0 fp32|44.4s|Smith et al. 2022, section 2.4
GPT-NeoX-20B, 96 A100 of 40 GB, TP 2, PP 4|a100-40:12x8,nic=4x200Gb/s|gpt_neox 44 6144 64 64 24576 50432 2048 1 0|deepspeed fused full|1536 4 2 4 12 1 1 0 fp16 fp16|43.85s|Black et al. 2022: 117 TFLOP/s as gpt-neox counts them
TinyLlama 1.1B, 16 A100 of 40 GB, FSDP|a100-40:2x8|llama 22 2048 32 4 5632 32000 2048 0 0|torchtitan-compiled flash none|1024 8 1 1 16 1 3 0 bf16|24000|TinyLlama, README.md (fused norms, rotations, gates, losses)
Llama 3 8B, 8 A100, Megatron-LM, PP 2|a800:1x8|llama 32 4096 32 8 14336 128256 8192 0 1|megatron flash selective|512 1 1 2 4 1 1 0 fp32|3698.7|FlagPerf, llama3_8B-megatron (A800)
Llama 3 8B, 8 H100, Megatron-LM, TP 2|h100-sxm:1x8|llama 32 4096 32 8 14336 128256 8192 0 1|megatron flash selective|512 1 2 1 4 1 1 1 fp32|8103|FlagPerf, llama3_8B-megatron
Llama 3 8B, 16 H100, Megatron-LM, TP 2|h100-sxm:2x8|llama 32 4096 32 8 14336 128256 8192 0 1|megatron flash selective|512 1 2 1 8 1 1 1 fp32|7914|FlagPerf, llama3_8B-megatron
Llama 3 70B, 64 H100, Megatron-LM, TP 8, PP 4|h100-sxm:8x8|llama 80 8192 64 8 28672 128256 8192 0 1|megatron flash selective|512 1 8 4 2 1 1 1 fp32|851|FlagPerf, llama3_70B-megatron
Llama 2 70B, 32 H800, Megatron-LM, TP 8, PP 4|h800:4x8,nic=8x200Gb/s|llama 80 8192 64 8 28672 32000 4096 0 0|megatron flash none|44 1 8 4 1 1 1 1 fp32 bf16 0 no_dropout|641.93|FlagPerf, llama2_70B-megatron
Llama 2 70B, 32 H800, Megatron-LM, TP 4, PP 8|h800:4x8,nic=8x200Gb/s|llama 80 8192 64 8 28672 32000 4096 0 0|megatron flash none|44 1 4 8 1 1 1 1 fp32 bf16 0 no_dropout|791.37|FlagPerf, llama2_70B-megatron
Llama 2 7B, 8 A800, DeepSpeed ZeRO-3|a800:1x8|llama 32 4096 32 32 11008 32000 4096 0 0|deepspeed flash none|8 1 1 1 8 1 3 0 fp16 fp16 0 no_dropout+overlap+reduce_bucket=10000000|3583|FlagPerf, llama2_7b-deepspeed
Llama 2 7B, 8 H800, DeepSpeed ZeRO-3|h800:1x8|llama 32 4096 32 32 11008 32000 4096 0 0|deepspeed flash none|8 1 1 1 8 1 3 0 fp16 fp16 0 no_dropout+overlap+reduce_bucket=10000000|7151|FlagPerf, llama2_7b-deepspeed
Llama 3 70B, 64 H100, NeMo AutoModel, TP 2, FSDP|h100-sxm:8x8|llama 80 8192 64 8 28672 128256 8192 0 0|torchtitan-compiled cudnn full|128 1 2 1 32 1 3 1 bf16|866.77|NVIDIA NeMo AutoModel, docs/performance-summary.md
MPT-7B, 8 A100, FSDP|a100-80:1x8|gpt 32 4096 32 32 16384 50368 2048 0 1|llm-foundry flash1 none|96 6 1 1 8 1 3 0 fp32|4641.25|llm-foundry, benchmarking/README.md
MPT-13B, 8 A100, FSDP|a100-80:1x8|gpt 40 5120 40 40 20480 50368 2048 0 1|llm-foundry flash1 none|48 2 1 1 8 1 3 0 fp32|2262.1|llm-foundry, benchmarking/README.md
MPT-30B, 8 A100, FSDP|a100-80:1x8|gpt 48 7168 56 56 28672 50368 2048 0 1|llm-foundry flash1 full|504 3 1 1 8 1 3 0 fp32|916.25|llm-foundry, benchmarking/README.md
MPT-70B, 64 A100, FSDP|a100-80:8x8|gpt 80 8192 64 64 32768 50368 2048 0 1|llm-foundry flash1 full|2048 8 1 1 64 1 3 0 fp32|410.5|llm-foundry, benchmarking/README.md
MPT-7B, 8 H100, FSDP|h100-sxm:1x8|gpt 32 4096 32 32 16384 50368 2048 0 1|llm-foundry flash1 none|48 6 1 1 8 1 3 0 fp32|10643|llm-foundry, benchmarking/README.md
MPT-13B, 8 H100, FSDP|h100-sxm:1x8|gpt 40 5120 40 40 20480 50368 2048 0 1|llm-foundry flash1 none|16 2 1 1 8 1 3 0 fp32|4792|llm-foundry, benchmarking/README.md
MPT-30B, 16 H100, FSDP|h100-sxm:2x8|gpt 48 7168 56 56 28672 50368 2048 0 1|llm-foundry flash1 full|480 10 1 1 16 1 3 0 fp32|2263|llm-foundry, benchmarking/README.md
MPT-70B, 64 H100, FSDP|h100-sxm:8x8|gpt 80 8192 64 64 32768 50368 2048 0 1|llm-foundry flash1 full|2048 8 1 1 64 1 3 0 fp32|1039.4|llm-foundry, benchmarking/README.md
END

# Biderman et al. 2023, "Pythia", appendix: GPU hours of whole trainings, by GPUs and 143,000 steps, so checkpoints and waits
# are in them; settings from EleutherAI/pythia, models/*/*.yml: gpt-neox, fp16, ZeRO-1, full recomputation, attention of 2022
# (but with the heads of 256 of 1B), A100 of 40 GB on AWS's p4d. The model is a pipeline of one stage, whose sums wait.
well_known "Pythia, A100" <<'END'
160M, 32 A100|a100-40:4x8,nic=4x100Gb/s|gpt_neox 12 768 12 12 3072 50304 2048 1 0|deepspeed flash1 full|1024 32 1 1 32 1 1 0 fp16 fp16 0 no_dropout|0.810s|Biderman et al. 2023, GPU hours; pythia-160m.yml
410M, 32 A100|a100-40:4x8,nic=4x100Gb/s|gpt_neox 24 1024 16 16 4096 50304 2048 1 0|deepspeed flash1 full|1024 32 1 1 32 1 1 0 fp16 fp16 0 no_dropout|1.998s|Biderman et al. 2023, GPU hours; pythia-410m.yml
1B, 64 A100|a100-40:8x8,nic=4x100Gb/s|gpt_neox 16 2048 8 8 8192 50304 2048 1 0|deepspeed fused full|1024 16 1 1 64 1 1 0 fp16 fp16 0 no_dropout|1.900s|Biderman et al. 2023, GPU hours; pythia-1b.yml
1.4B, 64 A100|a100-40:8x8,nic=4x100Gb/s|gpt_neox 24 2048 16 16 8192 50304 2048 1 0|deepspeed flash1 full|1024 16 1 1 64 1 1 0 fp16 fp16 0 no_dropout|2.801s|Biderman et al. 2023, GPU hours; pythia-1.4b.yml
2.8B, 64 A100|a100-40:8x8,nic=4x100Gb/s|gpt_neox 32 2560 32 32 10240 50304 2048 1 0|deepspeed flash1 full|1024 16 1 1 64 1 1 0 fp16 fp16 0 no_dropout|5.601s|Biderman et al. 2023, GPU hours; pythia-2.8b.yml
6.9B, 128 A100, TP 2|a100-40:16x8,nic=4x100Gb/s|gpt_neox 32 4096 32 32 16384 50432 2048 1 0|deepspeed flash1 full|1024 8 2 1 64 1 1 0 fp16 fp16 0 no_dropout|6.589s|Biderman et al. 2023, GPU hours; pythia-6.9b.yml
12B, 256 A100, TP 4|a100-40:32x8,nic=4x100Gb/s|gpt_neox 36 5120 40 40 20480 50688 2048 1 0|deepspeed flash1 full|1024 8 4 1 64 1 1 0 fp16 fp16 0 no_dropout|7.110s|Biderman et al. 2023, GPU hours; pythia-12b.yml
END

# Korthikanti et al. 2022, figure 7: activations of a layer in percent of those of tensor parallelism alone, from what
# plans of two and four layers need.
if has megatron/megatron_seqpar_2205.05198_fig7_act_pct.csv; then
    awk -F, 'BEGIN { split("6144 64 12288 96 20480 128 25600 160", x, " "); split("none none selective selective full", mode, " ") }
        /^[a-z0-9]+-[0-9]/ { sub(/\r$/, ""); k++; h = x[2 * k - 1]; a = x[2 * k]
            for (i = 1; i <= 5; i++) for (layers = 2; layers <= 4; layers += 2) {
                cut = i == 2 || i == 4
                printf "Megatron, activations|%s, %s%s|%s|a100-80:1x8|gpt %d %d %d %d %d 51200 2048 1 0|", $1, mode[i],
                    (cut ? ", sequence parallel" : ""), $(i + 1), layers, h, a, a, 4 * h
                printf "megatron fused %s|1 1 8 1 1 1 0 %d fp32|layers %d\n", mode[i], cut, h } }' \
        "$data/megatron/megatron_seqpar_2205.05198_fig7_act_pct.csv" | plans
fi

# ----------------------------------------------------------------------------------------------------- predictions
value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$2" | head -n 1; }

# predicted OF: of $folder/result, in the unit of what was measured, and the half width of its bar.
predicted() {
    case $1 in
    stage*) # the second one's computation, of one micro-batch
        awk -v n="${1#* }" '/"compute_s":/ && ++stages == 2 { c = $2 / n } /"iteration_s":/ { i = $2 + 0 }
            /"error_s":/ { e = $2 + 0 } END { printf "%.9g,%.9g", c, c * e / i }' "$folder/result" ;;
    peak) awk '/"what": "(arena|kept beside it)"/ { is_there = 1 } /"bytes":/ && is_there { b += $2; is_there = 0 }
            END { printf "%.9g,0", b / 2 ^ 30 }' "$folder/result" ;;
    reserved) awk '/"what": "(arena|kept beside it|held beyond it)"/ { is_there = 1 }
            /"bytes":/ && is_there { b += $2; is_there = 0 } END { printf "%.9g,0", b / 2 ^ 30 }' "$folder/result" ;;
    device) awk '/"device_bytes":/ { printf "%.9g,0", $2 / 2 ^ 30; exit }' "$folder/result" ;;
    forward) # sums over tensor-parallel ranks are one half each of forward and backward
        awk '/"task":/ { part = $2 ~ /"forward"/ ? 1 : $2 ~ /"tp_/ ? 0.5 : 0 } /"time_s":/ { s += part * $2; part = 0 }
            /"iteration_s":/ { i = $2 + 0 } /"error_s":/ { e = $2 + 0 } END { printf "%.9g,%.9g", s, s * e / i }' "$folder/result"
        ;;
    *) echo "$(value iteration_s "$folder/result"),$(value error_s "$folder/result")" ;;
    esac
}
echo plan,predicted_s,measured_s,error_bar_s > "$out"
while IFS='|' read -r plan set run measured recompute of; do
    [ -z "$page" ] || [ "$set" = "$known" ] || continue
    if ! "$build/mist-sim" "$plan" -q --json --recompute "$recompute" > "$folder/result" 2> "$folder/error"; then
        echo "published: $set, $run: not predicted: $(head -n 1 "$folder/error")" >&2
    elif [ "${of%% *}" = layers ]; then
        echo "$set: $run|$measured|${of#* }|$(value peak_bytes "$folder/result")" >> "$folder/layers"
    else
        p=$(predicted "$of")
        echo "\"$set: $run\",${p%,*},$measured,${p#*,}" >> "$out"
    fi
done < "$folder/runs"
# A layer of two plans: their difference without its parameters, 18 bytes each; the first of a model is 100 percent.
awk -F'|' 'NR % 2 { two = $4; next }
    { kept = ($4 - two) / 2 - 18 * (12 * $3 ^ 2 / 8 + 7 * $3 / 8 + 6 * $3); if ($2 == 100) { all = kept; next }
      printf "\"%s\",%.6g,%s,0\n", $1, 100 * kept / all, $2 }' "$folder/layers" >> "$out"

if [ -n "$page" ]; then
    awk -F'|' -v known="$known" '
        BEGIN { print "plan,predicted_s,measured_s,error_bar_s,note" }
        FILENAME ~ /notes$/ { note[$1] = $2; next }
        { split($0, text, "\""); run = text[2]
          if (run in note || sub("^" known ": ", "", run)) print "\"" run "\"" text[3] ",\"" note[run] "\"" }
        ' "$folder/notes" "$out" > "$page"
fi

# ---------------------------------------------------------------------------------------------------------- tables
awk '
    function sort(a, n,  i, j, x) {
        for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j >= 1 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
    }
    # Kendall tau; pairs of runs that measured the same within 2 % have no order.
    function tau(s,  i, j, pairs, sum, d) {
        for (i = 1; i <= n[s]; i++) for (j = i + 1; j <= n[s]; j++) {
            if (m[s, i] < 1.02 * m[s, j] && m[s, j] < 1.02 * m[s, i]) continue
            d = (p[s, i] - p[s, j]) * (m[s, i] - m[s, j]); pairs++; sum += d > 0 ? 1 : d < 0 ? -1 : 0
        }
        return pairs ? sum / pairs : 1
    }
    function table(title, of_memory,  s, set, c, i, list, middle) {
        print "| " title " | number | median error | mean | worst | mean, with sign | Kendall tau |" \
            (of_memory ? "" : " inside the bars |")
        print "|---|---|---|---|---|---|---|" (of_memory ? "" : "---|")
        for (s = 1; s <= n_sets; s++) {
            set = order[s]; c = n[set]
            if ((has_bar[set] == 0) != of_memory) continue
            for (i = 1; i <= c; i++) list[i] = a[set, i]
            sort(list, c)
            middle = c % 2 ? list[(c + 1) / 2] : (list[c / 2] + list[c / 2 + 1]) / 2
            printf "| %s | %d | %.1f %% | %.1f %% | %.1f %% | %+.1f %% | %.2f |", set, c, middle, sum[set] / c, list[c],
                bias[set] / c, tau(set)
            print of_memory ? "" : sprintf(" %.0f %% |", 100 * inside[set] / c)
        }
    }
    NR > 1 {
        split($0, text, "\""); set = text[2]; sub(/: .*/, "", set); split(text[3], x, ",")
        if (!(set in n)) order[++n_sets] = set
        k = ++n[set]; p[set, k] = x[2]; m[set, k] = x[3]; e = 100 * (x[2] / x[3] - 1)
        a[set, k] = e < 0 ? -e : e; sum[set] += a[set, k]; bias[set] += e; has_bar[set] += x[4] > 0
        inside[set] += (x[2] - x[3]) ^ 2 <= x[4] ^ 2
    }
    END { table("runs", 0); print ""; table("memory", 1) }' "$out"
[ -n "$page" ] || [ ! -s "$folder/repeats" ] || { echo; cat "$folder/repeats"; }

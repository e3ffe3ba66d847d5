#!/bin/sh
# Clusters that nobody has profiled: by name instead of a folder, with what can be wrong about it, and what comes
# out for two runs that others have published.
. tests/cli/lib.sh

begin 'presets are listed with the source of every figure'
run mist-sim --presets --csv
expect_exit 0
expect_stderr_empty
for preset in v100-sxm a100-40 a100-80 a800 a10g l4 l40s h100-sxm h800-sxm h200-sxm b200-sxm rtx4090; do
    expect_stdout "^$preset,"
done
awk -F, 'NR > 1 && NF && !/^figure,/ && $NF == "" { exit 1 }' "$out" || fail 'a figure has no source'
expect_stdout '^h100-sxm,rate of memory,3350000000000,'
begin 'the same as JSON'
run mist-sim --presets --json
expect_exit 0
expect_json
begin 'behind them a line for each'
run mist-sim --presets
expect_exit 0
expect_stdout '^h100-sxm +h100 +8 +989 TFLOP/s +79\.6 GiB +NVSwitch.* 400 GB/s +2\.00 TiB +DGX H100$'
expect_stdout '^rtx4090 .* - +512 GiB +8 RTX 4090$'
refuse 'presets of a plan' 2 '^mist-sim: --presets lists presets and takes no PLAN$' mist-sim --presets plan.json
refuse 'neither' 2 '^mist-sim: PLAN is missing' mist-sim

job='--model llama3-8b --global-batch 512 --seq-len 8192 --dtype bf16'
# cluster NAME REASON CLUSTER: refused, by a dry run, too
cluster() {
    refuse "$1" 3 "^mist-tune: cluster$2" mist-tune $job --cluster "$3"
    refuse "$1: dry run" 3 "^mist-tune: cluster$2" mist-tune -n $job --cluster "$3"
}
cluster 'an unknown preset: the nearest comes first' \
    ' h100-smx: no preset has that name; presets, the nearest first: h100-sxm, .*rtx4090' h100-smx:8x8
begin 'a name in capitals'
run mist-tune -n $job --cluster H100-SXM:8x8,nic=8x400Gb/s
expect_exit 0
cp "$out" "$scratch/io/capitals"
run mist-tune -n $job --cluster h100-sxm:8x8,nic=8x400Gb/s
expect_same "$out" "$scratch/io/capitals"
begin 'another preset than that of a plan is no surprise'
run mist-tune $job --cluster h100-sxm:8x8,nic=8x400Gb/s --space 3d,zero -q -o preset.json
expect_exit 0
run mist-sim preset.json --cluster b200:8x8,nic=8x400Gb/s
expect_exit 0
expect_stderr_empty
rm preset.json
cluster 'a name of nothing' ' h100-smx: there is no such folder, and no preset of that name; .* h100-sxm, ' h100-smx
cluster 'devices of no whole nodes' ' h100-sxm:63: 63 devices are no whole nodes of 8; 56 and 64 are' h100-sxm:63
cluster 'a node that is too large' ' h100-sxm:1x63: nodes of 63 devices; a node has at most 16' h100-sxm:1x63
for dry in '' -n; do
    refuse "ranks that no samples go round to $dry" 4 "^mist-tune: 512 samples and 32 layers can't be spread over 63 ranks, .*what could help" \
        mist-tune $job --cluster h100-sxm:9x7 $dry
done
cluster 'no topology' ' h100-sxm:8by8: expected nodes and the devices of each, such as h100-sxm:8x8' h100-sxm:8by8
cluster 'a rate without its unit' ': nic=400: .*400Gb/s \(bits\) or 25GB/s' h100-sxm:8x8,nic=8x400
cluster 'a rate that can not be meant' ": nic=400b/s can't be meant; expected a rate of 1MB/s" h100-sxm:8x8,nic=8x400b/s
refuse 'a format that a device does not compute in' 3 \
    '^mist-sim: cluster v100-sxm has no rate of bf16; expected a format that it computes in: fp32, fp16$' \
    mist-sim --cluster v100:1x8 --framework torchtitan --model llama3-8b --seq-len 2048 --micro-batch 1 --zero 3
refuse 'arguments that nobody reads' 2 '^mist-sim: --list --framework: arguments of llm-foundry are not read' \
    mist-sim --list --framework llm-foundry
cluster 'bytes where bits are meant' ": nic=8x400GB/s: adapters of 3200 Gb/s each can't be meant" h100-sxm:8x8,nic=8x400GB/s
cluster 'no adapters' ': nic=0x..: expected 1 to 64 adapters of a node' h100-sxm:8x8,nic=0x400Gb/s
cluster 'a latency without its unit' ': nic=..@5: .*expected a time' h100-sxm:8x8,nic=400Gb/s@5
cluster 'a key twice' ': nic= comes twice' h100-sxm:8x8,nic=4Gb/s,nic=4Gb/s
cluster 'an unknown key' ': unknown key nick; there are nic, link' h100-sxm:8x8,nick=4Gb/s
cluster 'no memory' ': memory=0GiB: expected more than 0' h100-sxm:8x8,memory=0GiB
cluster 'a memory without its unit' ": memory=80 is 80 bytes, which can't be meant; .*: 80GiB" h100-sxm:8x8,memory=80
cluster 'a rate of the host with a latency' ': host=1GB/s@5us: expected a rate alone' h100-sxm:8x8,host=1GB/s@5us
cluster 'nodes that nothing connects' \
    ' rtx4090: nothing says how fast all_reduce is between nodes; declare it .*rtx4090:2x8,nic=8x400Gb/s$' rtx4090:2x8
refuse 'number formats that a device lacks' 3 '^mist-tune: cluster v100-sxm does not compute in bf16: .* there is for fp32, fp16$' \
    mist-tune $job --cluster v100:64

begin 'a job that nobody gave a number format is told what fp32 costs'
run mist-tune --model gpt3-1.3b --cluster h100-sxm:1x2 --global-batch 8 --seq-len 1024 --space 3d -o none.json -n
expect_exit 0
expect_stderr '^mist-tune: the job computes in fp32; this device computes 14\.8 times as fast in bf16 \(--dtype bf16\)'
begin 'and one in bf16 is not'
run mist-tune --model gpt3-1.3b --cluster h100-sxm:1x2 --global-batch 8 --seq-len 1024 --space 3d -o none.json -n \
    --dtype bf16
expect_exit 0
! grep -q 'fp32' "$err" || fail "$(cat "$err")"

begin 'an answer without any profile'
run mist-tune $job --cluster h100-sxm:8x8,nic=8x400Gb/s --space 3d,zero -o llama.json
expect_exit 0
grep -q '"trace_set": "h100-sxm:8x8,nic=8x400Gb/s"' llama.json || fail 'the plan does not say its cluster'
begin 'the same cluster again, from the plan'
run mist-sim llama.json --json
expect_exit 0
expect_stderr_empty
cp "$out" llama.out
field() { sed -n "s/^ *\"$2\": \([0-9.e+-]*\),*\$/\1/p" "$1" | head -n 1; }
[ "$(grep -c '"preset_frac": 1' llama.out)" -ge 5 ] || fail "prices: $(grep preset_frac llama.out | head -n 5)"
begin 'its bar is that of an unprofiled machine'
awk -v i="$(field llama.out iteration_s)" -v e="$(field llama.out error_s)" 'BEGIN { exit !(e > 0.05 * i && e < 0.6 * i) }' ||
    fail "$(field llama.out error_s) of $(field llama.out iteration_s)"
# torchtitan measured 5,605 (128 GPUs) to 6,667 (8, compiled) tokens/s on each H100 of 500 W and 2.4 TB/s, with
# selective recomputation and by PyTorch (docs/performance.md); NVIDIA 12,273 in fp8 (NeMo 24.12 performance
# summary). A plan of ours without recomputation lies between these and the peak.
begin 'Llama-3-8B on 64 H100: between what others measured and the peak'
awk -v t="$(field llama.out tokens_per_s)" 'BEGIN { exit !(t / 64 > 6000 && t / 64 < 15000) }' ||
    fail "$(field llama.out tokens_per_s) tokens/s"
begin 'what if: a declared link a tenth as fast'
run mist-sim llama.json -q --json --what-if link.node=0.1x
expect_exit 0
awk -v i="$(field llama.out iteration_s)" -v w="$(field "$out" iteration_s)" 'BEGIN { exit !(w > 1.05 * i) }' ||
    fail "$(field "$out" iteration_s) instead of $(field llama.out iteration_s)"
begin 'more nodes than are connected, by a dry run of mist-sim'
run mist-sim -n llama.json --cluster rtx4090:8x8
expect_exit 3
expect_stderr '^mist-sim: cluster rtx4090: nothing says how fast .* between nodes; declare it'

refuse 'ranks of no whole nodes' 3 "^mist-sim: llama\.json: the plan's 64 ranks are no whole nodes of 7 devices, .*63 and 70 are" \
    mist-sim llama.json --what-if cluster.devices_per_node=7,cluster.nodes=10
refuse 'ranks of no whole nodes: dry run' 3 "^mist-sim: llama\.json: the plan's 64 ranks are no whole nodes of 7" \
    mist-sim -n llama.json --what-if cluster.devices_per_node=7,cluster.nodes=10

# Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM": 138 to 153
# TFLOP/s on each of about 1,024 A100 for GPT-3 175B, TP 8, PP 16, with full recomputation, counted by their equation 3.
begin 'GPT-3 175B on 1,024 A100: what Megatron reached lies within the bar, or near it'
run mist-tune --model gpt3-175b --cluster a100-80:128x8 --global-batch 1536 --seq-len 2048 --dtype bf16 --space 3d,zero,ckpt \
    --top 1 -q -o gpt.json
expect_exit 0
perl -MJSON::PP -e '
    local $/;
    my $plan = decode_json(<STDIN>);
    my $stage = $plan->{stages}[0];
    @$stage{qw(layers mesh_nodes mesh_devices dp tp zero checkpointed_layers)} = (6, 8, 8, 8, 8, 0, 6);
    $plan->{stages} = [($stage) x 16];
    $plan->{n_micro_batches} = 192;
    $plan->{pipeline} = "1f1b";
    delete @$plan{qw(predicted chunks)};
    my $text = JSON::PP->new->canonical->encode($plan);
    $text =~ s/^\{/{"format": 1, / if $text =~ s/"format":1,?//;
    print $text' < gpt.json > megatron.json
run mist-sim megatron.json --cluster a100-80:128x8 -q --json
expect_exit 0
cp "$out" gpt.out
# their FLOP of an iteration: 96 B s l h^2 (1 + s / 6h + V / 16lh)
awk -v i="$(field gpt.out iteration_s)" -v e="$(field gpt.out error_s)" 'BEGIN {
    flop = 96 * 1536 * 2048 * 96 * 12288 ^ 2 * (1 + 2048 / (6 * 12288) + 50257 / (16 * 96 * 12288))
    high = flop / 1024 / (i - e) / 1e12; mid = flop / 1024 / i / 1e12; low = flop / 1024 / (i + e) / 1e12
    printf "# %.0f TFLOP/s, bar %.0f to %.0f; published 138 to 153\n", mid, low, high
    exit !(low < 153 && high > 138 && mid < 200) }' || fail "$(field gpt.out iteration_s) +- $(field gpt.out error_s)"
# ------------------------------------------------------------------------------------------ rows instead of presets
begin 'products of a table become rows of linear layers, each for its three uses'
printf 'm,n,k,time_us,dtype\n4096,1024,512,100,bf16\n4096,1024,512,300,bf16\n64,128,256,10,fp32\n' > gemm.csv
run mist-profile --import gemm-csv gemm.csv --cluster h100-sxm:2x8,nic=8x200Gb/s -o mine
expect_exit 0
expect_once '^mist-profile: 6 rows of gemm\.csv added to mine$'
for row in 'forward,rows=4096;n_in=512;n_out=1024' 'backward_input,rows=4096;n_in=1024;n_out=512' \
    'backward_weight,rows=512;n_in=4096;n_out=1024'; do # the mean of 100 and 300, 2 m n k and 2 (m k + k n + m n)
    grep -q "^linear,bf16,$row,200,100,2,4294967296,13631488\$" mine/kernels.csv || fail "no $row: $(cat mine/kernels.csv)"
done
expect_once '^mist-profile: products reach 2\.2 % of the peak at most$' # 2^32 FLOP in 200 us, of 989 TFLOP/s
[ "$(wc -l < mine/kernels.csv)" -eq 7 ] || fail "$(wc -l < mine/kernels.csv) lines"
begin 'times in nanoseconds are asked about, those of small products are not'
printf 'm,n,k,time_us\n8192,8192,8192,1700000\n16,16,16,4\n' > ns.csv
run mist-profile --import gemm-csv ns.csv --cluster h100-sxm -n
expect_exit 0
expect_once '^mist-profile: products reach 0\.065 % of the peak at most: are the times those of this cluster, in microseconds\?$'
printf 'm,n,k,time_us\n16,16,16,4\n' > tiny.csv
run mist-profile --import gemm-csv tiny.csv --cluster h100-sxm -n
expect_exit 0
expect_once 'of the peak at most$'
begin 'a log of nccl-tests on top, and the links that were not measured stay declared'
run mist-profile --import nccl-tests "$root/tests/data/nccl_all_reduce_2x4.log" --cluster mine -o mine --force
expect_exit 0
expect_once 'added to mine$'
expect_once '^mist-profile: messages reach [0-9.]* GB/s at most \(bytes over time\)$'
grep -q '^all_reduce,2,4,1,4194304,131,' mine/links.csv || fail "$(cat mine/links.csv)"
grep -q '"adapters": 8' mine/cluster.json || fail 'nothing is declared any more'
begin 'what is measured and what is preset stand side by side'
run mist-tune --model llama3-8b --global-batch 64 --seq-len 4096 --dtype bf16 --cluster mine --space 3d,zero,ckpt -q -o mixed.json
expect_exit 0
run mist-sim mixed.json --json
expect_exit 0
perl -MJSON::PP -e 'local $/; my %kinds = map { $_->{task} => $_ } @{decode_json(<STDIN>)->{prices}};
    my $forward = $kinds{forward};
    exit !($forward->{preset_frac} > 0 && $forward->{preset_frac} < 1 && $forward->{extrapolated_frac} > 0)' < "$out" ||
    fail "$(grep -A5 forward "$out" | head -n 12)"

begin 'traces of torch.profiler, of two ranks: operators, messages and copies'
# trace RANK MM_US ALL_REDUCE_US
trace() {
    cat << END > rank$1.json
{"schemaVersion": 1,
"traceEvents": [
{"ph": "M", "name": "process_name"},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 100.5, "dur": 50,
 "args": {"Input Dims": [[4096, 512], [512, 1024]], "Input type": ["c10::Half", "c10::Half"]}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 7, "ts": 110, "dur": 5, "args": {"correlation": 3}},
{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 115, "dur": $2, "args": {"correlation": 3}},
{"ph": "X", "cat": "kernel", "name": "other", "ts": 120, "dur": 300, "args": {"correlation": 4}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "ts": 120, "dur": $3, "args": {"Collective name": "allreduce",
 "In msg nelems": 1048576, "dtype": "Half", "Group size": 8, "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}}
]}
END
}
trace 0 80 200
trace 1 120 90
run mist-profile --import torch-profiler rank0.json rank1.json --cluster a100-80 -o torch
expect_exit 0
expect_once '^mist-profile: 4 rows of rank0\.json and others added to torch$'
expect_once "^mist-profile: 25 % of the kernels' time is in rows"
grep -q '^linear,fp16,forward,rows=4096;n_in=512;n_out=1024,100,20,2,' torch/kernels.csv || fail "$(cat torch/kernels.csv)"
grep -q '^all_reduce,1,8,1,2097152,90,0,2$' torch/links.csv || fail "$(cat torch/links.csv)"
begin 'its rows of fp16 stand in for bf16'
run mist-tune --model llama3-8b --global-batch 8 --seq-len 4096 --dtype bf16 --cluster torch --space 3d -n
expect_exit 0
expect_once '^mist-tune: torch/kernels\.csv:2: 3 rows of fp16, which has the peak rate of bf16, stand in where'
begin 'and those of bf16 for fp16'
run mist-tune --model llama3-8b --global-batch 64 --seq-len 4096 --dtype fp16 --cluster mine --space 3d -n
expect_exit 0
expect_once '^mist-tune: mine/kernels\.csv:[0-9]+: 3 rows of bf16, which has the peak rate of fp16, stand in where'
begin 'a memory in GiB where bytes are counted, by a dry run, too'
cp -R mine small
sed 's/"device_memory_bytes": [0-9]*/"device_memory_bytes": 80/' mine/cluster.json > small/cluster.json
for dry in '' -n; do
    run mist-tune --model llama3-8b --global-batch 64 --seq-len 4096 --dtype bf16 --cluster small $dry
    expect_exit 3
    expect_stderr "^mist-tune: small/cluster\.json:[0-9]+:[0-9]+: device_memory_bytes is 80, which can't be meant: .* 80 GiB are 85899345920"
done
head -n 4 rank0.json > cut.json
refuse 'a trace that was cut' 3 '^mist-profile: cut\.json:4: the file ends inside of this event' \
    mist-profile --cluster a100-80 -n --import torch-profiler cut.json
begin 'copies of a report of Nsight Systems'
printf '%s\n' 'Start (ns),Duration (ns),Bytes (MB),SrcMemKd,DstMemKd,Name' \
    '1,400000,8.389,Pinned,Device,[CUDA memcpy HtoD]' '9,3000,,,,gemm' > nsys.csv
run mist-profile --import nsys nsys.csv --cluster torch -o torch --force
expect_exit 0
expect_once '^mist-profile: 1 row of nsys\.csv added to torch$'
grep -q '^host_to_device,1,1,1,8389000,400,0,1$' torch/links.csv || fail "$(cat torch/links.csv)"

import='mist-profile --cluster h100-sxm -o new --import'
refuse 'no file' 2 '^mist-profile: --import gemm-csv needs the FILE to read$' $import gemm-csv
refuse 'no cluster' 2 '^mist-profile: --import gemm-csv needs --cluster' mist-profile --import gemm-csv gemm.csv -o new
refuse 'no output' 2 '^mist-profile: --import gemm-csv needs -o' mist-profile --import gemm-csv gemm.csv --cluster h100
refuse 'an unknown format' 2 '^mist-profile: --import' $import kineto gemm.csv
refuse 'a file without a format' 2 '^mist-profile: unexpected argument .gemm.csv.: nothing is read without --import' mist-profile gemm.csv -o new
refuse 'a set that is there' 2 '^mist-profile: mine/.*--force replaces' mist-profile --import gemm-csv gemm.csv --cluster h100 -o mine
refuse 'an unknown cluster' 3 '^mist-profile: cluster h101: .* h100-sxm' mist-profile --import gemm-csv gemm.csv --cluster h101 -o new
# gemm NAME REASON CONTENT
gemm() {
    printf %b "$3" > bad.csv
    refuse "$1" 3 "^mist-profile: bad\\.csv:$2" $import gemm-csv bad.csv
}
gemm 'milliseconds' '1: .*time_ms' 'm,n,k,time_ms\n1,1,1,1\n'
gemm 'no product' ' the table has no product' 'm,n,k,time_us\n'
gemm 'a size of 0' '2: .*' 'm,n,k,time_us\n0,1,1,1\n'
gemm 'a negative time' '2: time_us: -3 is not above 0' 'm,n,k,time_us\n1,1,1,-3\n'
gemm 'a time that can not be true' '2: .*beyond reason' 'm,n,k,time_us\n8192,8192,8192,1\n'
gemm 'another word for a format' '2: .*half' 'm,n,k,time_us,dtype\n8,8,8,1,half\n'
begin 'a log of nccl-tests before 2.17 says nothing of its program, its name does'
grep -v 'Collective test' "$root/tests/data/nccl_all_reduce_2x4.log" > all_reduce_old.log
cp all_reduce_old.log old.log
run mist-profile --import nccl-tests all_reduce_old.log --cluster h100-sxm:2x4 -o old
expect_exit 0
grep -q '^all_reduce,2,4,1,4194304,131,' old/links.csv || fail "$(cat old/links.csv)"
refuse 'one that says nothing at all' 3 '^mist-profile: old\.log:[0-9]+: .* before version 2\.17; .*all_reduce\.log' \
    $import nccl-tests old.log
begin 'under mpirun: one rank imports, with the rows of one alone'
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-profile" --import nccl-tests all_reduce_old.log --cluster h100-sxm:2x4 -o both
expect_exit 0
expect_once '^mist-profile: .* rows of all_reduce_old\.log added to both$'
expect_same both/links.csv old/links.csv
begin 'under mpirun: one rank says what is wrong'
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-profile" --import nccl-tests none.log --cluster h100-sxm:2x4 -o neither
expect_exit 5
expect_once '^mist-profile: none\.log: '
nothing_written
refuse 'a set that is there: said before anything is read' 2 '^mist-profile: both/.*: exists; --force replaces' \
    mist-profile --import nccl-tests none.log --cluster h100-sxm:2x4 -o both
cp all_reduce_old.log both/links.csv
refuse 'what is imported is in the set that it would become' 2 '^mist-profile: --import and --output are both both/links\.csv; ' \
    mist-profile --import nccl-tests both/links.csv --cluster h100-sxm:2x4 -o both --force
begin 'what was imported, as JSON'
run mist-profile --import nccl-tests all_reduce_old.log --cluster h100-sxm:2x4 -o told --json
expect_exit 0
expect_json
expect_stdout '"format": "nccl-tests"'
expect_stdout '"file": "all_reduce_old.log"'
expect_stdout '"kernels_added": 0'
expect_stdout '"links_added": 2'
expect_stdout '"rows_added": 2'
expect_stdout '"cluster": "h100-sxm:2x4"'
expect_stdout '"output": "told"'
begin 'what can be imported, of two files, and of which the second has nothing new'
printf 'm,n,k,time_us\n4096,4096,4096,300\n' > one.csv
printf 'm,n,k,time_us\n4096,4096,4096,310\n' > other.csv
run mist-profile --import gemm-csv one.csv other.csv --cluster h100-sxm:2x4 -n --json -q
expect_exit 0
expect_json
[ "$(grep -c '"file"' "$out")" -eq 2 ] || fail "$(cat "$out")"
expect_stdout '"rows_added": 3' # forward, and the gradients of input and weight
expect_stdout '"output": null'
expect_stderr_empty
for option in --quick '--model gpt3-125m' '--seconds 3' '--ranks 2' --resume --kernels '--backend cpu'; do
    # shellcheck disable=SC2086
    refuse "an import that is told how to measure: $option" 2 \
        "^mist-profile: ${option%% *}: --import nccl-tests does not use it" $import nccl-tests all_reduce_old.log $option
done
refuse 'a number format where none is missing' 2 '^mist-profile: --dtype: .*only --import gemm-csv does' \
    $import nccl-tests all_reduce_old.log --dtype fp32
begin 'a log with a report by iteration: columns are found by their names'
awk '/size  / { gsub("#wrong", "#wrong i_min i_max") } /float/ { $9 = $9 " 1 99"; $13 = $13 " 1 99" } { print }' \
    "$root/tests/data/nccl_all_reduce_2x4.log" > by_iteration.log
run mist-profile --import nccl-tests by_iteration.log --cluster h100-sxm:2x4 -o by_iteration
expect_exit 0
expect_same by_iteration/links.csv old/links.csv
begin 'the same log twice is measured twice'
run mist-profile --import nccl-tests all_reduce_old.log by_iteration.log --cluster h100-sxm:2x4 -o twice
expect_exit 0
grep -q '^all_reduce,2,4,1,4194304,131,0,40$' twice/links.csv || fail "$(cat twice/links.csv)"
refuse 'nodes that have fewer devices' 3 '^mist-profile: all_reduce_old\.log:[0-9]+: .* 1 x 4 ranks on a node, the cluster has 2' \
    mist-profile --import nccl-tests all_reduce_old.log --cluster h100-sxm:4x2 -o fewer
sed 's/ time/ cputime/g' "$root/tests/data/nccl_all_reduce_2x4.log" > cputime.log
refuse 'one of times of the processor' 3 '^mist-profile: cputime\.log:[0-9]+: .*cputime.*, expected time' \
    $import nccl-tests cputime.log
refuse 'no log' 3 '^mist-profile: gemm\.csv:' $import nccl-tests gemm.csv
finish

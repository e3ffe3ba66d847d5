#!/bin/sh
# mist-profile: wrong requests. (Measuring takes too long here; see slow_profile.t.)
. tests/cli/lib.sh

profile() {
    name=$1 want=$2 reason=$3
    shift 3
    refuse "$name" "$want" "^mist-profile: $reason" mist-profile --backend cpu --quick -o set "$@"
}
refuse 'no folder' 2 '^mist-profile: --output: give a folder' mist-profile --quick
profile 'an unknown preset' 3 "model 'gpt5' is unknown; presets, the nearest first: gpt2 " --model gpt5
profile 'a missing config.json' 5 'none\.json: ' --model none.json
profile 'a config.json that is none' 3 './plan\.json:1' --model ./plan.json
profile 'a sequence longer than the positions' 3 'sequences of 4096 tokens, .* 1024 positions' --seq-len 4096
profile 'a sequence of 0' 2 '--seq-len: 0 is not within' --seq-len 0
profile 'text behind a number' 2 "--seq-len: '128x'" --seq-len 128x
profile 'a model larger than the memory' 3 '.*llama3-405b .* needs .*this machine has' --model llama3-405b --seq-len 4096
profile 'too many sizes' 2 '--micro-batches: 17 sizes, at most 16' --micro-batches 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17
profile 'too many ranks' 2 '--ranks: 2000 is not within' --ranks 2000

MIST_CUDA_PLUGIN=nowhere.so
export MIST_CUDA_PLUGIN
refuse 'a GPU that is not to be had' 1 '^mist-profile: MIST_CUDA_PLUGIN names no file: nowhere\.so' \
    mist-profile --backend cuda --dry-run
unset MIST_CUDA_PLUGIN
profile 'cuDNN on the CPU' 2 '--attention cudnn needs a GPU' --backend cpu --ranks 1 --attention cudnn
profile 'an unknown format' 2 "--dtype: " --dtype fp8

echo > ops.csv
profile 'a table of kernels that exists' 2 'ops\.csv: exists already; --force' --ranks 1 --kernels-csv ops.csv
rm ops.csv
mkdir set
profile 'a table of kernels into the trace set' 2 '--kernels-csv and --output are both set/kernels\.csv; name' \
    --ranks 1 --kernels-csv set/kernels.csv --force
rm -r set

begin 'several ranks without an mpirun'
run env PATH=/nowhere "$MIST_BUILD/mist-profile" --backend cpu --quick --ranks 2 -o set
expect_exit 1
expect_stderr '^mist-profile: mpirun is not installed, .*; or use --ranks 1$'
expect_one_line
expect_stdout_empty
nothing_written

begin 'a wrong option, on ranks that mpirun started: one says so'
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-profile" --backend cpu --quick --threads x -o set
expect_exit 2
expect_once "^mist-profile: --threads: 'x': expected a whole number$"
expect_stdout_empty
nothing_written

begin 'another number of ranks than mpirun started'
run mpirun -n 1 "$MIST_BUILD/mist-profile" --backend cpu --quick --ranks 2 -o set
expect_exit 2
expect_once '^mist-profile: --ranks 2, but mpirun started 1'
expect_stdout_empty
nothing_written

mkdir set.partial
echo > set.partial/journal
profile 'a session that was stopped is not thrown away' 2 'set: a session was stopped here; --resume'
begin 'a journal that is none'
run mist-profile --backend cpu --quick --resume --ranks 1 -o set
expect_exit 3
expect_once '^mist-profile: set\.partial/journal: is of another session'
expect_stdout_empty
nothing_written
rm -r set.partial

begin 'Falcon, tied, with tensor parallelism'
cat > falcon.json << 'JSON'
{"model_type": "falcon", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 250,
 "multi_query": true, "parallel_attn": true, "new_decoder_architecture": false, "bias": false, "alibi": false,
 "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true}
JSON
run mist-profile --backend cpu --dry-run --quick --model falcon.json --seq-len 32 --micro-batches 1,2 --ranks 2
expect_exit 0
expect_stderr_empty
expect_stdout '^tensor parallelism up to +2$'

begin 'a dry run says what would be measured and measures nothing'
run mist-profile --backend cpu --dry-run --quick --micro-batches 2 -o set
expect_exit 0
expect_stderr_empty
expect_stdout '^in all, about'
expect_stdout '^micro-batches +2$'
expect_stdout '^number format +fp32$'
expect_stdout '^backend +cpu$'
nothing_written

begin '--seconds: the parts share what is left of them'
run mist-profile --backend cpu --dry-run --quick --seconds 20 --model falcon.json --seq-len 32 --micro-batches 1 --ranks 2
expect_exit 0
expect_stdout '^for operators, up to +5\.[0-9]+ s$' # 28 of 67 of the 13 after setting up and 13 probes
expect_stdout '^for mixtures +[23]\.[0-9]+ s$'
expect_stdout '^for plans to check by +2\.[0-9]+ s$'
expect_stdout '^in all, about +20\.0 s$'
run mist-profile --backend cpu --dry-run --quick --seconds 0
expect_exit 2
finish

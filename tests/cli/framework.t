#!/bin/sh
# Jobs of other frameworks: predicted by mist-sim, not run by mist-exec.
. tests/cli/lib.sh

field() { sed -n "s/^ *\"$2\": \"*\([0-9a-z.e+-]*\)\"*,*\$/\1/p" "$1" | head -n 1; }
job='--model gpt3-1.3b --global-batch 32 --seq-len 1024 --dtype bf16 --cluster a100-80:1x8'
begin 'a plan of ours'
run mist-tune $job --space 3d -q -o ours.json
expect_exit 0
grep -q framework ours.json && fail 'it names a framework'
run mist-sim ours.json --json
expect_exit 0
expect_stdout '"task": "forward"'
cp "$out" ours.out
begin 'the same said'
run mist-sim ours.json --framework ours --attention flash --json
expect_same "$out" ours.out

# slower A B: an iteration takes longer by B than by A
slower() {
    awk -v a="$(field "$1" iteration_s)" -v b="$(field "$2" iteration_s)" 'BEGIN { exit !(b > a) }' ||
        fail "$(field "$1" iteration_s) and $(field "$2" iteration_s)"
}
begin 'by another framework: its constants are printed, each with its source'
run mist-sim ours.json --framework megatron --json
expect_once '^mist-sim: attention is the fused softmax .*--attention flash'
expect_exit 0
expect_json
cp "$out" megatron.out
[ "$(field "$out" framework)" = megatron ] || fail "framework $(field "$out" framework)"
[ "$(field "$out" attention)" = fused ] || fail "attention $(field "$out" attention)"
expect_stdout '"figure": "host, a launch"'
slower ours.out megatron.out
begin 'what attention was taken is said of DeepSpeed, too, whose JSON never says'
run mist-sim ours.json --framework deepspeed --json
expect_once '^mist-sim: attention is the fused softmax of Megatron-DeepSpeed .*--attention flash'
run mist-sim ours.json --framework deepspeed --attention flash --json
expect_stderr_empty
begin 'the framework that a plan has changes nothing of it'
sed 's/"dtype": "bf16"/"dtype": "bf16", "framework": "deepspeed", "no_dropout": true/' ours.json > deepspeed.json
run mist-sim deepspeed.json --json
cp "$out" deepspeed.out
run mist-sim deepspeed.json --framework deepspeed --json
expect_stderr_empty
expect_same "$out" deepspeed.out
begin 'attention by single kernels takes longer'
run mist-sim ours.json --framework megatron --attention unfused --json
cp "$out" unfused.out
slower megatron.out unfused.out
begin 'recomputation takes longer, that of everything more than that of attention'
run mist-sim ours.json --framework megatron --recompute none --json
cp "$out" none.out
run mist-sim ours.json --framework megatron --recompute selective --json
cp "$out" selective.out
run mist-sim ours.json --framework megatron --recompute full --json
cp "$out" full.out
slower none.out selective.out
slower selective.out full.out
begin 'in memory it is the other way round'
awk -v n="$(field none.out arena_bytes)" -v s="$(field selective.out arena_bytes)" -v f="$(field full.out arena_bytes)" \
    'BEGIN { exit !(n > s && s > f) }' ||
    fail "$(field none.out arena_bytes), $(field selective.out arena_bytes), $(field full.out arena_bytes)"

begin 'a plan says it, too'
sed 's/"dtype": "bf16"/"dtype": "bf16", "framework": "megatron", "attention": "fused"/' ours.json > megatron.json
run mist-sim megatron.json --json
expect_same "$out" megatron.out
refuse 'it is not run' 3 '^mist-exec: megatron\.json: the plan is for megatron, which mist-sim predicts' mist-exec megatron.json
refuse 'nor by a dry run' 3 '^mist-exec: megatron\.json: the plan is for megatron' mist-exec -n megatron.json
refuse 'our attention is one kernel' 3 "^mist-sim: attention is unfused, expected flash, or a framework" \
    mist-sim ours.json --attention unfused
refuse 'our backward does not repeat it' 3 '^mist-sim: recompute_attention is true' mist-sim ours.json --recompute selective
begin 'attention of one kernel: that of 2022 takes longer than FlashAttention-2, which takes no less than cuDNN'
for way in cudnn flash flash1; do
    run mist-sim ours.json --framework torchtitan --attention $way --cluster h100-sxm:1x8 --json
    expect_exit 0
    cp "$out" $way.out
done
slower cudnn.out flash.out
slower flash.out flash1.out
# Of fp16 gradients and their fp32 copies: 6 bytes a parameter, of the 12 h^2 + 13 h of each of a stage's 6 blocks.
begin 'gradients are kept beside the arena of the stage that has the parameters'
edit plan2.json 's/"dtype": "fp32"/"dtype": "bf16", "gradient_dtype": "bf16", "framework": "megatron-2021"/' > kept.json
kept() { grep -A1 '"what": "kept beside it"' "$out" | sed -n 's/^ *"bytes": \([0-9]*\),$/\1/p'; }
blocks_bytes=$((6 * 6 * (12 * 256 * 256 + 13 * 256)))
run mist-sim kept.json --cluster a100-80:1x2 --json
[ "$(kept)" -eq $((blocks_bytes + 6 * (256 * 256 + 1024 * 256))) ] || fail "$(kept) bytes beside blocks and embedding"
edit kept.json 's/"1f1b"/"zb_v"/' > folded.json # the first stage has the head, too, and not the largest arena
run mist-sim folded.json --cluster a100-80:1x2 --json
[ "$(kept)" -eq $blocks_bytes ] || fail "$(kept) bytes beside blocks alone"

begin 'fp16 takes a pass more, of loss scaling; it is not run'
sed 's/"dtype": "bf16"/"dtype": "fp16", "framework": "megatron", "attention": "fused"/' ours.json > fp16.json
run mist-sim fp16.json --json
expect_exit 0
cp "$out" fp16.out
slower megatron.out fp16.out
expect_stdout '"figure": "loss scaling in fp16, a parameter"'
sed 's/"dtype": "bf16"/"dtype": "fp16"/' ours.json > our_fp16.json
refuse 'fp16 is not run' 3 '^mist-exec: our_fp16\.json: the plan computes in fp16, which mist-sim predicts; expected fp32 or bf16' \
    mist-exec our_fp16.json
refuse 'nor is it by --verify' 2 '^mist-tune: --verify runs plans, which mist-exec does in fp32 and bf16' \
    mist-tune --model gpt3-1.3b --global-batch 32 --seq-len 1024 --dtype fp16 --cluster a100-80:1x8 --space 3d --verify 2
refuse 'gradients in another two-byte format' 2 '^mist-tune: --gradient-dtype is bf16 with --dtype fp16' \
    mist-tune --model gpt3-1.3b --global-batch 32 --seq-len 1024 --dtype fp16 --gradient-dtype bf16 --cluster a100-80:1x8
begin 'V100 computes in fp16'
run mist-tune --model gpt3-1.3b --global-batch 32 --seq-len 1024 --dtype fp16 --gradient-dtype fp16 --cluster v100 --space 3d -q -o v100.json
expect_exit 0
run mist-sim v100.json --json
expect_exit 0
expect_stdout '"model_flop_utilisation_frac": 0\.[2-7]'

refuse 'an unknown framework' 2 '^mist-sim: --framework' mist-sim ours.json --framework megatorn
sed 's/"dtype": "bf16"/"dtype": "bf16", "framework": "jax"/' ours.json > jax.json
refuse 'an unknown framework in a plan' 3 '^mist-sim: jax\.json:[0-9]+:[0-9]+: .*megatron' mist-sim jax.json
sed 's/"dtype": "bf16"/"dtype": "bf16", "attention": "fused"/' ours.json > fused.json
refuse 'attention without a framework' 3 '^mist-sim: fused\.json:[0-9]+:[0-9]+: attention is fused' mist-sim fused.json
finish

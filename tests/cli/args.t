#!/bin/sh
# Jobs without a plan: from options, from the arguments of Megatron-LM, DeepSpeed and torchtitan, and back.
. tests/cli/lib.sh

field() { sed -n "s/^ *\"$2\": \"*\([0-9a-z.e+-]*\)\"*,*\$/\1/p" "$1" | head -n 1; }
cluster='--cluster a100-80:1x8'
job="--model gpt3-1.3b --seq-len 1024 --tp 2 --pp 2 --micro-batch 2 --global-batch 16 $cluster"

begin 'a job of ours from options: its plan gives the same answer'
run mist-sim $job --zero 1 --json --save-plan ours.json
expect_exit 0
cp "$out" ours.out
grep -q '"zero": 1' ours.json || fail 'no ZeRO-1 in the plan'
grep -q '"dp": 2' ours.json || fail 'not all devices'
run mist-sim ours.json --json
expect_same "$out" ours.out

begin 'of Megatron-LM: written as its command line, read back to the bit'
run mist-sim $job --framework megatron --recompute full --json --export run.sh
expect_exit 0
cp "$out" megatron.out
grep -q -e '--tensor-model-parallel-size 2' run.sh || fail "$(cat run.sh)"
run mist-sim --framework megatron --from-args run.sh $cluster --json
expect_exit 0
expect_same "$out" megatron.out

begin 'of DeepSpeed: what the JSON leaves to the program is said'
run mist-sim $job --framework deepspeed --zero 1 --json --export ds.json
expect_exit 0
expect_stderr '^mist-sim: ds\.json does not say .*: --model gpt3-1\.3b --seq-len 1024 --attention fused'
cp "$out" deepspeed.out
run mist-sim --framework deepspeed --from-args ds.json --model gpt3-1.3b --seq-len 1024 $cluster --json
expect_same "$out" deepspeed.out

begin 'communication that overlaps is faster'
printf '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "overlap_comm": false}}' > turns.json
sed 's/false/true/' turns.json > overlap.json
for how in turns overlap; do
    run mist-sim --framework deepspeed --from-args $how.json --model gpt3-1.3b --seq-len 1024 $cluster --json --save-plan $how.plan
    expect_exit 0
    cp "$out" $how.out
done
awk -v a="$(field overlap.out iteration_s)" -v b="$(field turns.out iteration_s)" 'BEGIN { exit !(a < b) }' ||
    fail "$(field overlap.out iteration_s) and $(field turns.out iteration_s)"

begin 'pipelines of DeepSpeed do not, whatever the JSON says'
for how in turns overlap; do
    sed 's/"stage": 3/"stage": 1/; s/^{/{"pipeline": {"stages": 2}, /' $how.json > pipe.json
    run mist-sim --framework deepspeed --from-args pipe.json --model gpt3-1.3b --seq-len 1024 $cluster --json
    expect_exit 0
    cp "$out" pipe_$how.out
done
expect_same pipe_overlap.out pipe_turns.out

begin 'data-parallel messages of Megatron-LM go on beside those of tensor-parallel ranks'
run mist-sim --framework megatron --model gpt3-1.3b --seq-len 1024 --tp 2 --zero 1 --micro-batch 1 $cluster -o beside.csv
expect_exit 0
awk -F, '$1 == 0 && $3 == "reduce_gradient" && $2 != "shards" { wrong++ } $2 == "shards" { n++ }
    END { exit !(n && !wrong) }' beside.csv || fail "$(grep -c shards beside.csv) in shards"

begin 'ZeRO-3 of a plan and of options overlaps as that of a JSON does'
sed '/"framework"/d; /"attention"/d; /"overlap"/d; s/\("gpu": true\),/\1/' overlap.plan > zero3.json
run mist-sim zero3.json --framework deepspeed --attention fused $cluster --json
expect_exit 0
[ "$(field "$out" iteration_s)" = "$(field overlap.out iteration_s)" ] ||
    fail "$(field "$out" iteration_s), not $(field overlap.out iteration_s)"
sed 's/, "overlap_comm": true//' overlap.json > zero3.json
run mist-sim --framework deepspeed --from-args zero3.json --model gpt3-1.3b --seq-len 1024 $cluster --json
expect_same "$out" overlap.out
printf '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}' > zero3.json
run mist-sim --framework deepspeed --from-args zero3.json --model gpt3-1.3b --seq-len 1024 $cluster --json
cp "$out" zero3.out
run mist-sim --framework deepspeed --zero 3 --dtype bf16 --gradient-dtype bf16 --micro-batch 1 --model gpt3-1.3b \
    --seq-len 1024 $cluster --json
expect_same "$out" zero3.out

begin 'of torchtitan'
run mist-sim --framework torchtitan --model llama3-8b --seq-len 2048 --tp 2 --sequence-parallel --zero 3 --micro-batch 1 \
    $cluster --json --export train.toml
expect_exit 0
cp "$out" torchtitan.out
grep -q '^flavor = "8B"' train.toml || fail "$(cat train.toml)"
run mist-sim --framework torchtitan --from-args train.toml $cluster --json
expect_same "$out" torchtitan.out

begin 'what does not change the price is named'
echo 'python pretrain_gpt.py --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128
    --micro-batch-size 1 --lr 1e-4 --save here' > small.sh
run mist-sim --framework megatron --from-args small.sh $cluster -n
expect_exit 0
expect_stderr "^mist-sim: small\.sh: 2 arguments don't change the price: --lr --save\$"
nothing_written

begin 'one alone'
sed 's/ --save here//' small.sh > one.sh
run mist-sim --framework megatron --from-args one.sh $cluster -n
expect_stderr "^mist-sim: one\.sh: 1 argument doesn't change the price: --lr\$"
expect_stderr '^mist-sim: one\.sh: no --transformer-impl: attention as without'

begin 'many are named as a line has room for'
many='--lr --save --load --log-interval --save-interval --eval-interval --eval-iters --data-path --split --seed --min-lr
    --lr-decay-style --lr-warmup-fraction --weight-decay --adam-beta1 --adam-beta2 --clip-grad --train-iters --num-workers'
{ cat small.sh; for name in $many; do echo "    $name 1"; done; } | sed 's/--lr 1e-4 --save here//; $!s/$/ \\/' > many.sh
run mist-sim --framework megatron --from-args many.sh $cluster -n
expect_exit 0
expect_stderr "^mist-sim: many\.sh: 19 arguments don't change the price: --lr --save .* \.\.\. \(-v names all\)\$"
awk 'length > 160 { exit 1 }' "$err" || fail "$(cat "$err")"
begin 'and all with -v'
run mist-sim --framework megatron --from-args many.sh $cluster -n -v
expect_stderr "^mist-sim: many\.sh: 19 arguments don't change the price:\$"
[ "$(sed -n 's/^mist-sim:  *//p' "$err" | grep '^--' | tr '\n' ' ')" = "$(echo $many) " ] || fail "$(cat "$err")"
awk 'length > 100 { exit 1 }' "$err" || fail "$(cat "$err")"

begin 'all arguments are listed'
run mist-sim --list --framework deepspeed --json
expect_exit 0
expect_json
expect_stdout '"argument": "zero_optimization.stage"'

printf '%s\n' '--num-layers 4' '--num-experts 8' > bad.sh
refuse 'an argument that changes the price' 3 "^mist-sim: bad\.sh:2: --num-experts 8 can't be expressed: mixtures" \
    mist-sim --framework megatron --from-args bad.sh $cluster
echo '{"zero_optimization": {"stage": 1}, "no_such": 1}' > bad.json
refuse 'an unknown one' 3 '^mist-sim: bad\.json:1: no_such is not known' \
    mist-sim --framework deepspeed --from-args bad.json $cluster
refuse 'a file and an option that contradict' 3 '^mist-sim: run\.sh:[0-9]+: --tensor-model-parallel-size 2 contradicts the command line' \
    mist-sim --framework megatron --from-args run.sh --tp 4 $cluster
refuse 'arguments of ours' 2 '^mist-sim: arguments are read of megatron, deepspeed or torchtitan' \
    mist-sim --from-args run.sh $cluster
refuse 'no file' 5 '^mist-sim: none\.sh: ' mist-sim --framework megatron --from-args none.sh $cluster
refuse 'no cluster' 2 '^mist-sim: a job without a plan needs --cluster' mist-sim --model gpt3-1.3b --tp 2
refuse 'a plan and a job' 2 '^mist-sim: PLAN says the job' mist-sim ours.json --tp 2
refuse 'more devices than there are' 3 '^mist-sim: the job: the plan needs 16 ranks' mist-sim $job --dp 4
refuse 'devices that are not cut' 3 '^mist-sim: 8 devices are no whole number of times tp 3' \
    mist-sim --model gpt3-1.3b --seq-len 1024 --tp 3 --micro-batch 1 $cluster
refuse 'no model' 3 "^mist-sim: the model's layers is not said" mist-sim --tp 2 --seq-len 8 --micro-batch 1 $cluster
refuse 'what can not be expressed' 3 "^mist-sim: megatron can't express the plan: zero is 3|^mist-sim: megatron can't express the plan: stage 0: zero is 3" \
    mist-sim $job --framework megatron --zero 3 --export no.sh
refuse 'the arguments of our own' 3 '^mist-sim: the plan is ours' mist-sim ours.json --export no.sh

begin 'the best plan that Megatron-LM can express, as its arguments: the same price'
tune="--model gpt3-1.3b --dtype bf16 --global-batch 16 --seq-len 1024 $cluster"
run mist-tune --target megatron $tune --export best.sh -o best.json
expect_exit 0
expect_stdout '^iteration, by replay '
run mist-sim best.json --json
cp "$out" best.out
run mist-sim --framework megatron --from-args best.sh $cluster --json
expect_exit 0
expect_same "$out" best.out
begin 'of torchtitan'
run mist-tune --target torchtitan --model llama3-8b --dtype bf16 --global-batch 16 --seq-len 1024 $cluster -q --json \
    --export best.toml
expect_exit 0
expect_json
expect_file best.toml
begin 'of torchtitan compiled: its arguments say so, and price what was tuned'
run mist-tune --target torchtitan-compiled --model llama3-8b --dtype bf16 --global-batch 16 --seq-len 1024 $cluster -q \
    --export compiled.toml -o compiled.json
expect_exit 0
grep -q '^compile = true$' compiled.toml || fail "$(cat compiled.toml)"
run mist-sim compiled.json --json
cp "$out" compiled.out
run mist-sim --framework torchtitan --from-args compiled.toml $cluster --json
expect_stdout '"framework": "torchtitan-compiled"'
[ "$(sed -n 's/^ *"iteration_s": //p' "$out")" = "$(sed -n 's/^ *"iteration_s": //p' compiled.out)" ] ||
    fail "$(grep iteration_s "$out"), tuned: $(grep iteration_s compiled.out)"
begin 'of DeepSpeed'
run mist-tune --target deepspeed $tune --export best_ds.json
expect_exit 0
run mist-sim --framework deepspeed --from-args best_ds.json --model gpt3-1.3b --seq-len 1024 --attention flash \
    --no-dropout $cluster
expect_exit 0
begin "a plan fits with what DeepSpeed keeps beside its arena, as mist-sim says"
tune_deepspeed="--target deepspeed --model gpt3-2.7b --dtype bf16 --global-batch 64 --seq-len 2048 --cluster a100-40:1x4"
run mist-tune $tune_deepspeed -o fits.json
expect_exit 0
expect_stdout "^its framework's beside it "
run mist-sim fits.json -v
expect_exit 0
expect_stdout '^kept beside it '
expect_stderr_empty
short="$tune_deepspeed --fix dp=4 --max zero=1 --device-memory 30GiB"
refuse 'no plan fits, and what could help' 4 \
    '^mist-tune: no plan that deepspeed can express fits the device memory: the closest needs 32\.[0-9] GiB, limit 28\.5 GiB \(3\.[0-9]+ GiB too much\); what could help: --gradient-dtype bf16, to go without --fix dp=4 and --max zero=1, more devices, shorter sequences$' \
    mist-tune $short -q
begin 'it does help'
run mist-tune $short --gradient-dtype bf16
expect_exit 0
run mist-tune $tune_deepspeed --device-memory 30GiB
expect_exit 0
run mist-tune $short --device-memory 34GiB
expect_exit 0
begin 'within the bounds: of ZeRO, and of the schedule and its chunks'
run mist-tune --target megatron $tune --fix zero=1,pp=2,chunks=6 --fix schedule=interleaved -o best.json --force
expect_exit 0
expect_stdout '^its chunks +6$'
perl -MJSON::PP -0ne '$s = decode_json($_)->{stages}; exit(@$s != 2 || grep({ $_->{zero} != 1 } @$s))' best.json ||
    fail "$(cat best.json)"
begin 'a dry run'
run mist-tune --target megatron $tune --export no.sh -n
expect_exit 0
expect_stderr '^mist-tune: the job can be tuned for megatron; '
nothing_written
refuse 'a target that can not hold the model' 4 '^mist-tune: torchtitan can express no plan' \
    mist-tune --target torchtitan $tune -q --export no.toml
refuse 'bounds that it can not express' 4 \
    "^mist-tune: deepspeed can express no plan of 16 samples and 24 layers on 8 devices; the reason for one: .*sequence.*; what could help: to go without --fix sequence=true\$" \
    mist-tune --target deepspeed $tune -q --fix sequence=1 --export no.json
refuse 'a target without memory' 4 '^mist-tune: no plan that megatron can express fits the device memory' \
    mist-tune --target megatron --model llama3-70b --dtype bf16 --global-batch 16 --seq-len 1024 $cluster -q --export no.sh
refuse 'arguments of no target' 2 '^mist-tune: --export writes the arguments of --target' mist-tune $tune --export no.sh
refuse 'a space of our own' 2 '^mist-tune: --target has a search of its own' \
    mist-tune --target megatron $tune --space 3d
finish

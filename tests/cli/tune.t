#!/bin/sh
# mist-tune: wrong questions, questions without an answer, and the same answer every time.
. tests/cli/lib.sh

# tune NAME CODE REASON OPTIONS...: the question below, with one thing changed.
tune() {
    name=$1 want=$2 reason=$3
    shift 3
    refuse "$name" "$want" "^mist-tune: $reason" mist-tune --model gpt3-demo --cluster traces \
        --global-batch 4 --seq-len 128 -o best.json "$@"
}
refuse 'no model' 2 '^mist-tune: --model NAME is required' mist-tune --cluster traces --global-batch 4 --seq-len 128
refuse 'no cluster' 2 '^mist-tune: --cluster CLUSTER is required' mist-tune --model gpt3-demo --global-batch 4 --seq-len 128
refuse 'no batch' 2 '^mist-tune: --global-batch N is required' mist-tune --model gpt3-demo --cluster traces --seq-len 128
tune 'an unknown preset' 3 "model 'gpt5' is unknown; presets, the nearest first: gpt2 " --model gpt5
tune 'a missing config.json' 5 'none\.json: ' --model none.json
tune 'a config.json that is none' 3 './plan\.json:1' --model ./plan.json
head -n 5 plan.json > broken.json
tune 'a truncated config.json' 3 './broken\.json:[56]' --model ./broken.json
tune 'no trace set' 3 'cluster none: there is no such folder' --cluster none
cp -R traces bad
edit traces/kernels.csv '1s/time_us/time_ms/' > bad/kernels.csv
tune 'a wrong trace set' 3 'bad/kernels\.csv:1: .*time_ms' --cluster bad
tune 'a batch of 0' 2 '--global-batch: 0 is not within' --global-batch 0
tune 'a batch with a fraction' 2 '--global-batch: .*4\.5' --global-batch 4.5
tune 'a sequence longer than the positions' 2 '--seq-len is 4096; gpt3-demo has 1024 positions' --seq-len 4096
tune 'a sequence of 0' 2 '--seq-len: 0 is not within' --seq-len 0
tune 'more ranks than devices' 2 '--ranks is 3; the cluster has' --ranks 3
tune 'a negative number of nodes' 2 '--nodes: -1 is not within' --nodes=-1
tune 'an unknown unit of memory' 2 "--device-memory: '1YiB': expected a size" --device-memory 1YiB
tune 'a time as memory' 2 '--device-memory: ' --device-memory 10ms
tune 'a negative memory' 2 '--device-memory: ' --device-memory=-1MiB
tune 'an unknown group of knobs' 2 ".*no group '4d'; expected 3d" --space 4d
tune 'an unknown group after a known one' 2 ".*no group 'tp'; expected 3d, zero, ckpt, offload, " --space 3d,tp
tune 'an unknown number format' 2 "--dtype: 'fp8' is none of fp32, bf16" --dtype fp8
tune 'an unknown number format of gradients' 2 "--gradient-dtype: 'fp8' is none of fp32, bf16" --gradient-dtype fp8
tune 'gradients in bf16 without the rest' 2 '--gradient-dtype is bf16 with --dtype fp32; it needs --dtype bf16' \
    --gradient-dtype bf16
tune 'an unknown solver' 2 "--solver: 'cplex' is none of exact, glpk, both" --solver cplex
tune 'a time limit without a unit' 2 "--glpk-time: '3': expected a time" --solver glpk --glpk-time 3
tune 'a time limit for nobody' 2 '--glpk-time needs --solver WHICH or --constraint SUM<=SUM$' --glpk-time 3s
tune 'no best plan' 2 '--top: 0 is not within' --top 0
tune 'an argument that nobody expects' 2 'unexpected argument .plan\.json.' plan.json
refuse 'samples without a folder' 2 '^mist-tune: --sample-plans needs --plans DIR$' \
    mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --sample-plans 3
tune 'samples have no best plan' 2 '--sample-plans searches for no best plan' --sample-plans 3 --plans plans

# --------------------------------------------------------------------- valid, but no answer
tune 'no plan fits: says what is lacking' 4 'no plan fits .*the closest needs .*, limit 4\.00 MiB' --device-memory 4MiB
tune 'no plan fits: says what could help' 4 'no plan .*limit 40\.0 MiB .*help: zero, ckpt, lean, offload in --space, more devices' \
    --device-memory 40MiB --space 3d
tune 'no plan fits a mebibyte' 4 'no plan fits ' --device-memory 1MiB
tune 'a memory without its unit' 2 '--device-memory is 80 bytes, which can.t be meant; a unit .*: 80GiB$' --device-memory 80
tune 'ranks that are no whole nodes' 2 '--ranks is 63, which are no whole nodes of 8 devices; 56 and 64 are ' --nodes 8 --devices-per-node 8 --ranks 63
tune 'more ranks than the job can use' 4 '4 samples and 12 layers' -q --nodes 64 --devices-per-node 8 --space 3d,zero
cp -R traces small
edit traces/cluster.json 's/"device_memory_bytes": 4294967296/"device_memory_bytes": 1048576/' > small/cluster.json
tune 'no plan fits what the trace set says' 4 'no plan fits ' --cluster small
tune 'no plan fits: no folder is left' 4 'no plan fits ' --device-memory 1MiB --plans new/plans
begin 'a config.json of a model that can be run'
cat > tiny.json <<'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "max_position_embeddings": 256}
END
run mist-tune --model tiny.json --cluster traces --global-batch 2 --seq-len 32 --dry-run
expect_exit 0
expect_stdout '^ranks +2$'
nothing_written
sed 's/"num_attention_heads": 4/"num_attention_heads": 5/' tiny.json > bad.json
tune 'a config.json whose heads do not divide the width' 3 './bad\.json:1:[0-9]+: .*heads' --model ./bad.json
sed 's/"vocab_size": 256,/&\
 "vocab_size": 512,/' tiny.json > bad.json
tune 'a config.json with a key twice' 3 './bad\.json:3(:[0-9]+)?: duplicate.*vocab_size' --model ./bad.json
rm -r bad small tiny.json bad.json broken.json

# ---------------------------------------------------------------------------- updates on the host
begin 'updates on the host, on a machine that is no CPU'
cp -r traces gpu
sed 's/"backend": "cpu"/"backend": "datasheet"/' traces/cluster.json > gpu/cluster.json
run mist-tune --model gpt3-demo --cluster gpu --global-batch 4 --seq-len 128 --dry-run
expect_exit 0
expect_stderr '^mist-tune: the trace set has no adamw_host'
printf 'adamw_host,fp32,optimizer,elements=%d,%d,0,10,0,0\n' 1024 2 16777216 32768 >> gpu/kernels.csv
run mist-tune --model gpt3-demo --cluster gpu --global-batch 4 --seq-len 128 --device-memory 92MiB -o host.json
expect_exit 0
expect_stdout 'optimizer 100 %.*; updated on the host'
sed -i '/^adamw_host/d' gpu/kernels.csv
run mist-sim host.json --cluster gpu
expect_exit 3
expect_stderr '^mist-sim: .*no fp32 adamw_host in kernels\.csv'
rm -r gpu host.json
presets='--model gpt3-2.7b --global-batch 16 --seq-len 1024 --dtype bf16 --fix dp=2 --fix update-on=host'
run mist-tune $presets --cluster a10g:1x2
expect_exit 4
expect_stderr '^mist-tune: --fix update-on=host: .*a preset: no host-adamw='
for rate in 1e9/s 4G/s; do
    run mist-tune $presets --cluster "a10g:1x2,host-adamw=$rate" --json
    expect_exit 0
    expect_stdout '"update_on": "host"'
    sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1 >> seconds
done
awk 'NR == 1 { first = $1 } END { exit !(NR == 2 && $1 < first) }' seconds || fail "$(cat seconds), the second is no faster"
rm seconds

# --------------------------------------------------------------------------------- bounds
tune 'an unknown knob' 2 "--fix: 'ep=2' is no knob=value; knobs are pp, micro-batches, " --fix ep=2
tune 'a knob without a value' 2 "--max: 'tp' is no knob=value" --max tp
tune 'a level of ZeRO that there is not' 2 "--fix zero=4: expected 0 to 3" --fix zero=4
tune 'a schedule that there is not' 2 "--fix schedule=gpipe: expected 1f1b or interleaved" --fix schedule=gpipe
tune 'the most of what has no order' 2 '.*--max schedule=zb_v: .*expected --fix schedule=zb_v' --max schedule=zb_v
tune 'bounds that contradict one another' 2 '.*--max tp=1 contradicts --fix tp=2' --fix tp=2 --max tp=1
tune 'a schedule without so many chunks' 2 '--fix chunks=4 contradicts --fix schedule=1f1b: it has 1' \
    --fix schedule=1f1b --fix chunks=4
tune 'a schedule with more chunks than are allowed' 2 \
    '--max chunks=1 contradicts --fix schedule=interleaved: it has at least 2' --fix schedule=interleaved --max chunks=1
tune 'a bound that needs a group that is off' 2 '--fix zero=1 needs the group zero' --space 3d --fix zero=1
tune 'bounds that ranks do not allow' 4 '.*2 ranks.* and --fix pp=2 --fix dp=2; they can without --fix pp=2 or --fix dp=2' \
    --fix pp=2,dp=2
tune 'a bound that no plan keeps to' 4 '.* and --fix tp=5; they can without --fix tp=5' --fix tp=5
tune 'a bound that costs too much memory' 4 'no plan fits .*to go without --fix zero=0' \
    --device-memory 40MiB --space 3d,zero --fix zero=0
tune 'updates on the host of a host' 4 '--fix update-on=host: the trace set has no adamw_host' --fix update-on=host
tune 'a part that is none' 2 "--prefer-simple: '2 percent': expected a part such as 2%" --prefer-simple '2 percent'
tune 'a log of stages that are priced together' 2 '--uniform prices all stages together' --uniform --log log.csv

# held OPTIONS REGEX...: the best plan of a job with these options has lines of each kind, and none that begins with !.
held() {
    begin "held to $1"
    options=$1
    shift
    # shellcheck disable=SC2086 # words of options
    run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 -o best.json --force -q $options
    expect_exit 0
    for line; do
        case $line in
        !*) if grep -Eq "${line#!}" best.json; then fail "has ${line#!}"; fi ;;
        *) grep -Eq "$line" best.json || fail "lacks $line" ;;
        esac
    done
    rm -f best.json
}
held '--fix tp=2' '"tp": 2' '!"tp": 1'
held '--fix cp=2' '"cp": 2' '"dp": 1'
held '--fix pp=2,schedule=zb_h1 --max micro-batches=2' '"pipeline": "zb_h1"' '"n_micro_batches": [12]'
held '--fix pp=2,ckpt=all,layers=6' '"checkpointed_layers": 6' '!"layers": [57]'
held '--fix dp=2,zero=3,offload-optimizer=0.5' '"zero": 3' '"offload_optimizer_frac": 0.5'
held '--uniform --fix pp=2' '"layers": 6' '!"layers": [57]'

begin 'the simplest plan'
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --prefer-simple 30%
expect_exit 0
expect_stdout '^ *why this plan  +(fewest techniques \([0-9]+: .*\) within 30 % of the fastest, which has [0-9]+|the fastest, and none within 30 % is simpler)'

# ------------------------------------------------------------------------------ groups of knobs
# space GROUPS REGEX: no line of the best plan's json has what belongs to another group.
space() {
    begin "--space $1"
    run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --device-memory 120MiB \
        --space "$1" -o best.json --force
    expect_exit 0
    if grep -E "$2" best.json > "$scratch/io/grep"; then fail "$(head -n 2 "$scratch/io/grep")"; fi
    rm -f best.json
}
zero='"zero": [1-9]' offload='offload_[a-z]*_frac": (0\.[0-9]*[1-9]|1)' ckpt='"checkpointed_layers": [1-9]'
sequence='"sequence_parallel": true' schedule='"pipeline": "[zi]'
space 3d,ckpt "$zero|$offload|$sequence|$schedule"
space 3d,offload "$zero|$ckpt|$sequence|$schedule"
space zero,ckpt,imbalance,mesh "$offload|$sequence|$schedule"
space zero,ckpt,offload,imbalance,mesh,sequence "$schedule"
begin 'a tight memory makes it offload'
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --device-memory 30MiB -o best.json
expect_exit 0
grep -Eq "$offload" best.json || fail 'nothing is offloaded'
begin 'what it offloads can be run'
run mist-sim best.json
expect_exit 0
rm best.json
begin 'a thorough search of a tiny question has an end'
cat > tiny.json <<'END'
{"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
 "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
 "tie_word_embeddings": false}
END
run mist-tune --thorough --model ./tiny.json --cluster l4:1x4,memory=1.52GiB,host-memory=200MiB --global-batch 16 \
    --seq-len 128 --json -o best.json
expect_exit 0
n=$(sed -n 's/.*"n_searches": \([0-9]*\).*/\1/p' "$out")
[ "$n" -gt 100 ] && [ "$n" -lt 2000 ] || fail "$n searches, expected no more than 2000"
rm best.json
# Between 6.00 and 7.00 MiB are needed.
tight='mist-tune --model ./tiny.json --global-batch 8 --seq-len 128 -q --cluster l4:1x2,memory=1.505GiB'
begin 'the host memory that is said to be lacking is enough, and little less is not'
# shellcheck disable=SC2086
run $tight,host-memory=6MiB
expect_exit 4
needed=$(sed -n 's/^mist-tune: no plan fits the device memory: .* help: \([0-9.]*\) MiB of host memory of a node, which has 6\.00 MiB, more .*/\1/p' "$err")
# shellcheck disable=SC2086
run $tight,host-memory="$(awk -v n="$needed" 'BEGIN { print 1.01 * n }')MiB"
expect_exit 0
# shellcheck disable=SC2086
run $tight,host-memory="$(awk -v n="$needed" 'BEGIN { print 0.9 * n }')MiB"
expect_exit 4
rm tiny.json
begin 'gradients in bf16 are in the plan, and only if asked for'
cp -R traces wide
edit traces/cluster.json 's/"peak_flop_per_s": {/& "bf16": 2e11,/' > wide/cluster.json
run mist-tune --model gpt3-demo --cluster wide --global-batch 4 --seq-len 128 --dtype bf16 -o best.json
expect_exit 0
if grep -q gradient_dtype best.json; then fail 'nobody asked for it'; fi
run mist-tune --model gpt3-demo --cluster wide --global-batch 4 --seq-len 128 --dtype bf16 --gradient-dtype bf16 \
    -o best.json --force
expect_exit 0
grep -q '"gradient_dtype": "bf16"' best.json || fail 'the plan says nothing of it'
run mist-sim best.json
expect_exit 0
rm -r best.json wide
begin 'without host memory nothing is offloaded, which is said'
cp -R traces poor
edit traces/cluster.json '/"host_memory_bytes_per_node"/d' > poor/cluster.json
run mist-tune --model gpt3-demo --cluster poor --global-batch 4 --seq-len 128 --device-memory 120MiB -o best.json
expect_exit 0
expect_stderr '^mist-tune: the trace set says nothing of host memory: nothing is offloaded$'
if grep -Eq "$offload" best.json; then fail 'something is offloaded'; fi
rm -r best.json poor

begin 'too little host memory for what is asked for'
cp -R traces poor
edit traces/cluster.json 's/"host_memory_bytes_per_node": [0-9]*/"host_memory_bytes_per_node": 1000000/' > poor/cluster.json
run mist-tune --model gpt3-demo --cluster poor --global-batch 4 --seq-len 128 --fix offload-optimizer=1 -o best.json
expect_exit 4
expect_stderr '^mist-tune: no plan fits the host memory of a node: the closest needs [0-9.]+ MiB, limit 977 KiB \([0-9.]+ MiB too much\); what could help: to go without --fix offload-optimizer=1, more '
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --fix dp=1 --fix zero=1 -o best.json
expect_exit 4
expect_stderr '^mist-tune: no plan can be priced; what could help: to go without --fix dp=1 and --fix zero=1, '
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --fix schedule=interleaved,chunks=5 -o best.json
expect_exit 4
expect_stderr '^mist-tune: 4 samples and .* within the search space and --fix schedule=interleaved --fix chunks=5; they can without --fix chunks=5'
rm -r poor

# ------------------------------------------------------------------------- always the same answer
question='mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --device-memory 60MiB'
begin 'one thread and two write the same plan, log, frontiers and plans'
for jobs in 1 2; do
    mkdir "j$jobs"
    # shellcheck disable=SC2086
    run $question -j $jobs -o "j$jobs/plan.json" --log "j$jobs/log.csv" --pareto "j$jobs/pareto.csv" --plans "j$jobs/plans"
    expect_exit 0
    expect_file "j$jobs/plans/plan_001.json"
done
diff -r j1 j2 > "$scratch/io/diff" || fail "$(head -n 5 "$scratch/io/diff")"
rm -r j2
begin 'the best plan is the first of the best plans'
expect_same_plan j1/plan.json j1/plans/plan_001.json
begin 'mist-sim predicts for the plan what mist-tune wrote into it'
told=$(sed -n 's/^ *"iteration_s": \(.*\),$/\1/p' j1/plan.json)
run mist-sim j1/plan.json --json
replayed=$(sed -n 's/^ *"iteration_s": \(.*\),$/\1/p' "$out")
[ "$told" = "$replayed" ] || fail "mist-tune says $told s, mist-sim $replayed s"
begin 'threads are part of the plan: mist-sim plans the memory that mist-tune planned'
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --ranks 1 --space 3d \
    --threads 3 -o j1/three.json
expect_exit 0
grep -q '"threads": 3$' j1/three.json || fail 'j1/three.json says nothing of 3 threads'
told=$(sed -n 's/^ *"peak_bytes": \([0-9]*\).*/\1/p' j1/three.json)
run mist-sim j1/three.json --json
planned=$(sed -n 's/^ *"arena_bytes": \([0-9]*\).*/\1/p' "$out")
[ "$told" = "$planned" ] || fail "mist-tune says $told bytes, mist-sim $planned"
run mist-sim j1/three.json --json --threads 1
one=$(sed -n 's/^ *"arena_bytes": \([0-9]*\).*/\1/p' "$out")
[ "$told" != "$one" ] || fail "3 threads need $told bytes, 1 needs $one"
begin 'mist-plot reads the frontiers'
run mist-plot pareto j1/pareto.csv -o pareto.svg
expect_exit 0
expect_file pareto.svg
rm -r j1 pareto.svg
begin 'the same seed draws the same plans, another one others'
for seed in 1 1b 2; do
    # shellcheck disable=SC2086
    run $question -q --sample-plans 4 --plans "s$seed" --seed "${seed%b}"
    expect_exit 0
done
diff -r s1 s1b > "$scratch/io/diff" || fail "$(head -n 5 "$scratch/io/diff")"
if diff -r s1 s2 > /dev/null; then fail 'seeds 1 and 2 draw the same'; fi
rm -r s1b s2

# ------------------------------------------------------------------------------- a folder of plans
# shellcheck disable=SC2086
refuse 'plans that are there' 2 '^mist-tune: s1/plan_001\.json: exists already; --force' $question --plans s1
rm s1/plan_001.json s1/plan_003.json
# shellcheck disable=SC2086
refuse 'one plan that is there' 2 '^mist-tune: s1/plan_002\.json: exists already; --force' $question --plans s1
# shellcheck disable=SC2086
refuse 'a dry run sees what could not be written' 2 '^mist-tune: s1/plan_002\.json: exists already' \
    $question --plans s1 --dry-run
# shellcheck disable=SC2086
refuse 'a dry run sees a missing folder' 5 '^mist-tune: none/log\.csv: ' $question --log none/log.csv --dry-run
# shellcheck disable=SC2086
refuse 'a dry run sees a file for a folder' 5 '^mist-tune: plan\.json/x' $question --plans plan.json/x --dry-run
begin '--force replaces plans, removes those that were more and nothing else'
touch s1/plan_0007.json s1/plan_7.json s1/plan_017.json.bak s1/plan_017.json
# shellcheck disable=SC2086
run $question -q --sample-plans 2 --plans s1 --force
expect_exit 0
left=$(ls s1 | tr '\n' ' ')
[ "$left" = 'plan_0007.json plan_001.json plan_002.json plan_017.json.bak plan_7.json ' ] || fail "s1 has $left"
rm -r s1

# ----------------------------------------------------------------------------------------- Ctrl-C
begin 'Ctrl-C ends the search, which says what it saved'
command_line='mist-tune --model gpt3-1.3b, interrupted'
"$MIST_BUILD/mist-tune" --model gpt3-1.3b --cluster traces --nodes 16 --devices-per-node 4 --global-batch 5040 \
    --seq-len 1024 --device-memory 8TiB --progress always -o best.json --log log.csv > "$out" 2> "$err" &
pid=$!
i=0
while ! grep -q searching "$err" && [ $((i += 1)) -lt 200 ]; do sleep 0.1; done
kill -INT $pid
wait $pid
code=$?
expect_exit 130
if [ -s best.json ]; then
    expect_stderr 'mist-tune: interrupted: the best .* saved: best\.json, log\.csv$'
    expect_file log.csv
else
    expect_stderr 'mist-tune: interrupted before a plan was found; nothing was saved$'
    [ ! -e log.csv ] || fail 'log.csv is there'
fi
begin 'dropout that a config asks for is said'
printf '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 256, "n_positions": 128, "resid_pdrop": 0.1}' > config.json
run mist-tune --model config.json --cluster traces --global-batch 4 --seq-len 128 --space 3d
expect_exit 0
expect_stderr ': its dropout \(resid_pdrop\) is left out of our plans'
sed 's/0\.1/0/' config.json > other.json
run mist-tune --model other.json --cluster traces --global-batch 4 --seq-len 128 --space 3d
expect_exit 0
if grep -q dropout "$err"; then fail "$(cat "$err")"; fi
finish

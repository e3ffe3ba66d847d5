#!/bin/sh
# mist-tune --sweep: each row is what a run of its own says; what is wrong with a point is known before the first search.
. tests/cli/lib.sh

tune='mist-tune --model gpt3-demo --cluster traces -q'
job='--global-batch 4 --seq-len 128'

# sweep NAME CODE REASON OPTIONS...
# shellcheck disable=SC2086
sweep() {
    name=$1 want=$2 reason=$3
    shift 3
    refuse "$name" "$want" "^mist-tune: $reason" $tune $job -o best.json "$@"
}
sweep 'no values' 2 '--sweep nodes: expected NAME=V1:V2:\.\., such as nodes=1:2:4' --sweep nodes
sweep 'no name' 2 '--sweep =1:2: expected NAME=V1' --sweep =1:2
sweep 'an empty value' 2 '--sweep nodes=1::2: expected NAME=V1' --sweep nodes=1::2
sweep 'an unknown name' 2 '--sweep gpus: unknown name; there are nodes, devices-per-node, ranks, memory, batch, ' \
    --sweep gpus=1:2
sweep 'a name twice' 2 '--sweep: nodes is swept twice' --sweep nodes=1:2 --sweep nodes=4
sweep 'one option by two names' 2 '--sweep: memory and device-memory are the same' --sweep memory=1GiB,device-memory=2GiB
sweep 'an option that is given, too' 2 '--global-batch contradicts --sweep batch' --sweep batch=4:8
sweep 'a value that is none, behind a good one' 2 '--sweep nodes=x: --nodes: .x.: expected a whole number' --sweep nodes=1:x
sweep 'a value out of range' 2 '--sweep nodes=-1: --nodes: -1 is not within' --sweep nodes=1:-1
refuse 'a point that contradicts the model' 2 '^mist-tune: --sweep seq-len=4096: --seq-len is 4096; gpt3-demo has 1024' \
    $tune --global-batch 4 --sweep seq-len=128:4096
sweep 'a point that contradicts the cluster' 2 '--sweep ranks=3: --ranks is 3; the cluster has' --sweep ranks=1:3
sweep 'a device in place of a trace set' 2 '--sweep device: --cluster traces is a trace set; expected a preset' \
    --sweep device=l4:a100-80
sweep 'the search log of many' 2 '--sweep has a plan for each of its points; leave --log' --sweep nodes=1:2 --log log.csv
sweep 'an ablation of many' 2 '--sweep has a plan for each of its points; leave .*--ablate' --sweep nodes=1:2 --ablate
sweep 'a price that is none' 2 "--price-per-device-hour is 'free'; expected a price" --price-per-device-hour free
sweep 'a price of another device' 2 '--price-per-device-hour has no price for traces' --price-per-device-hour l4=1
sweep 'a dry run checks all points' 2 '--sweep ranks=3: ' --sweep ranks=1:3 --dry-run
for name in nodes devices-per-node ranks memory batch seq-len; do
    refuse "none: $name=0" 2 "^mist-tune: --sweep $name=0: expected a number above 0\$" \
        mist-tune --model gpt3-demo --cluster traces --sweep $name=0
done
refuse 'nobody says the batch' 2 '^mist-tune: --sweep nodes=1: --global-batch N is required, or in --sweep' \
    mist-tune --model gpt3-demo --cluster traces --seq-len 128 --sweep nodes=1:2
refuse 'an unknown device' 3 '^mist-tune: --sweep device=l5: cluster l5: no preset has that name' \
    mist-tune --model gpt3-demo --cluster l4:1x2 --global-batch 4 --seq-len 128 --sweep device=l4:l5
refuse 'a file that is there' 2 '^mist-tune: plan\.json: exists already' mist-tune --model gpt3-demo --cluster traces \
    --global-batch 4 --seq-len 128 --sweep ranks=1:2 -o plan.json

# single OPTIONS...: the iteration of the best plan; field COLUMN ROW: a cell of table.csv.
# shellcheck disable=SC2086
single() { run $tune "$@" --json; sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1; }
field() {
    awk -F, -v name="$1" -v row="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) column = i }
        NR == row + 1 { print $column }' table.csv
}

begin 'two sweeps: all combinations, each as a run of its own'
# shellcheck disable=SC2086
run $tune --seq-len 128 --sweep ranks=1:2,batch=4:8 --csv -o best.json --price-per-device-hour 3600
expect_exit 0
expect_stderr_empty
cp "$out" table.csv
[ "$(cut -d, -f1,2 table.csv | tr '\n' ' ')" = 'ranks,batch 1,4 1,8 2,4 2,8 ' ] || fail "$(cat table.csv)"
row=0
for ranks in 1 2; do
    for batch in 4 8; do
        row=$((row + 1))
        want=$(single --seq-len 128 --ranks $ranks --global-batch $batch)
        [ "$(field iteration_s $row)" = "$want" ] || fail "ranks $ranks, batch $batch: $want, not $(field iteration_s $row)"
        [ "$(field devices $row)" = "$ranks" ] || fail "devices of row $row: $(field devices $row)"
        # 1e9 tokens at batch * 128 tokens an iteration; an hour of a device costs as much as it has seconds
        awk -v time="$want" -v tokens=$((batch * 128)) -v ranks=$ranks -v cost="$(field cost $row)" \
            -v hours="$(field device_hours $row)" -v mine="$(field tokens_per_s_per_device $row)" \
            'BEGIN { want = 1e9 / tokens * time * ranks
                     exit !((cost / want - 1) ^ 2 < 1e-18 && (hours * 3600 / want - 1) ^ 2 < 1e-18 &&
                            (mine / (tokens / time / ranks) - 1) ^ 2 < 1e-18) }' ||
            fail "row $row: cost $(field cost $row), device-hours $(field device_hours $row)"
    done
done
begin 'the best point has the fastest training, and its plan is written'
best=$(awk -F, 'NR > 1 { print NR - 1 }' table.csv | while read -r row; do echo "$(field training_s "$row") $row"; done |
    LC_ALL=C sort -g | sed -n '1s/.* //p')
[ "$(field is_best "$best")" = true ] || fail "row $best is the best: $(cat table.csv)"
[ "$(grep -c ',true,' table.csv)" -eq 1 ] || fail "$(cat table.csv)"
told=$(sed -n 's/^ *"iteration_s": \(.*\),$/\1/p' best.json)
[ "$told" = "$(field iteration_s "$best")" ] || fail "the plan takes $told s"
rm best.json
begin 'it is drawn'
run mist-plot rent table.csv
expect_exit 0
expect_stdout 'cost of the training'
expect_stdout 'MFU'
run mist-plot rent table.csv -o table.svg
expect_exit 0
expect_file table.svg
rm table.svg

begin 'a point without a plan says why, and is drawn'
# shellcheck disable=SC2086
run $tune $job --sweep memory=1MiB:100MiB --csv
expect_exit 0
cp "$out" table.csv
case $(field why 1) in 'no plan fits the device memory'*) ;; '"no plan fits the device memory'*) ;;
*) fail "why: $(field why 1)" ;; esac
[ -z "$(field iteration_s 1)" ] || fail "time of row 1: $(field iteration_s 1)"
[ "$(field iteration_s 2)" = "$(single --global-batch 4 --seq-len 128 --device-memory 100MiB)" ] || fail "$(cat table.csv)"
run mist-plot rent table.csv -o table.svg
expect_exit 0
grep -q 'no plan' table.svg || fail 'nothing is said in the picture'
rm table.svg table.csv
begin 'a point that can not be spread, in the table'
# shellcheck disable=SC2086
run ${tune% -q} $job --sweep nodes=1:64 --devices-per-node 8 --space 3d,zero
expect_exit 0
expect_stdout '^1 .* ms '
expect_stdout '^64 .*4 samples and 12 layers can.t be spread over 512 ranks'
begin 'no point has a plan'
# shellcheck disable=SC2086
run $tune $job --sweep memory=1MiB:2MiB -o best.json
expect_exit 4
expect_stderr '^mist-tune: no point of the sweep has a plan$'
expect_one_line
nothing_written

begin 'devices of presets, each at its price'
preset='mist-tune --model gpt3-1.3b --global-batch 16 --seq-len 1024 --dtype bf16 --space 3d,zero,ckpt -q'
# shellcheck disable=SC2086
run $preset --cluster l4:1x4 --sweep device=l4:a100-80 --price-per-device-hour l4=1 \
    --price-per-device-hour a100-80=4 --csv
expect_exit 0
cp "$out" table.csv
for row in 1 2; do
    awk -v cost="$(field cost $row)" -v hours="$(field device_hours $row)" -v price=$((row * row)) \
        'BEGIN { exit !((cost / hours / price - 1) ^ 2 < 1e-18) }' || fail "$(cat table.csv)"
done
# shellcheck disable=SC2086
run $preset --cluster a100-80:1x4 --json
[ "$(field iteration_s 2)" = "$(sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1)" ] || fail "$(cat table.csv)"
rm table.csv
# ------------------------------------------------------------------------- the best point, and what may be spent
sweep 'a cost without a price' 2 '--sweep ranks=1: --objective cost needs --price-per-device-hour' --sweep ranks=1:2 --objective cost
sweep 'a budget without a price' 2 '--budget needs --price-per-device-hour PRICE$' --budget 10
refuse 'tokens that no cost is for' 2 '^mist-tune: --train-tokens needs --sweep .* or --price-per-device-hour PRICE$' \
    mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --train-tokens 1e9
sweep 'a budget below 0' 2 '--budget: -1 is not within' --budget=-1 --price-per-device-hour 1
sweep 'an unknown objective' 2 "--objective: 'energy' is none of time, cost" --objective energy
sweep 'a budget for an ablation' 2 '--budget is for a best plan' --budget 1 --price-per-device-hour 1 --ablate
# best OPTIONS...: the points of the best rows of a sweep of presets; 2 and 4 nodes take less time and cost more.
# shellcheck disable=SC2086
best() {
    run $preset --cluster l4:1x4 --sweep nodes=1:2:4 --price-per-device-hour 2 --csv -o best.json --force "$@"
    cp "$out" table.csv
    awk -F, 'NR > 1 && $2 == "true" { print $1 }' table.csv
}
begin 'by time, and by cost'
[ "$(best)" = 4 ] || fail "$(cat table.csv)"
[ "$(best --objective cost)" = 1 ] || fail "$(cat table.csv)"
told=$(sed -n 's/^ *"iteration_s": \(.*\),$/\1/p' best.json)
[ "$told" = "$(field iteration_s 1)" ] || fail "the plan takes $told s"
begin 'the fastest within the budget'
two=$(field cost 2)
[ "$(best --budget "$two")" = 2 ] || fail "$(cat table.csv)"
one=$(field cost 1)
[ "$(best --budget "$(awk -v one="$one" -v two="$two" 'BEGIN { print (one + two) / 2 }')")" = 1 ] || fail "$(cat table.csv)"
begin 'the plan of a point names its cluster, by which mist-sim prices it alike'
[ "$(best)" = 4 ] || fail "$(cat table.csv)"
grep -q '"trace_set": "l4:4x4"' best.json || fail "$(grep trace_set best.json)"
told=$(sed -n 's/^ *"iteration_s": \(.*\),$/\1/p' best.json)
run mist-sim best.json --json
expect_exit 0
expect_stderr_empty
grep -q "\"iteration_s\": $told" "$out" || fail "$(grep '"iteration_s"' "$out") instead of $told"
rm best.json
begin 'nothing within the budget: says what the cheapest costs'
rm table.csv
# shellcheck disable=SC2086
run $preset --cluster l4:1x4 --sweep nodes=1:2 --price-per-device-hour 2 --budget 0.1 -o best.json
expect_exit 4
expect_stderr '^mist-tune: no point of the sweep is within --budget 0\.1: the cheapest, nodes=1, costs '
expect_one_line
nothing_written
# shellcheck disable=SC2086
refuse 'one plan above the budget' 4 '^mist-tune: training on 1e\+09 tokens costs .* by the best plan, --budget is 0\.1' \
    $preset --cluster l4:1x4 --price-per-device-hour 2 --budget 0.1 -o best.json
begin 'one plan within it: what its training costs'
# shellcheck disable=SC2086
run $preset --cluster l4:1x4 --price-per-device-hour 2 --budget 1e6 --train-tokens 2e9 --json
expect_exit 0
expect_json
twice=$(sed -n 's/^ *"cost": \(.*\),$/\1/p' "$out")
awk -v one="$one" -v twice="$twice" 'BEGIN { exit !((twice / one / 2 - 1) ^ 2 < 1e-18) }' || fail "$twice, not twice $one"
begin 'what two points have to say is said once'
run mist-tune --model gpt3-1.3b --cluster l4:2x4 --global-batch 16 --seq-len 512 --dtype bf16 --space 3d \
    --sweep nodes=2:4 --dry-run
expect_exit 0
[ "$(sort "$err" | uniq -d | wc -l)" -eq 0 ] || fail "$(cat "$err")"
begin 'JSON is the same each time'
# shellcheck disable=SC2086
run $tune $job --sweep ranks=1:2 --json
expect_json
cp "$out" first.json
# shellcheck disable=SC2086
run $tune $job --sweep ranks=1:2 --json -j 1
expect_same "$out" first.json
rm first.json
begin 'what other frameworks can express'
# shellcheck disable=SC2086
run $tune $job --target megatron --sweep ranks=1:2 --csv
expect_exit 0
cp "$out" table.csv
[ "$(field iteration_s 2)" = "$(single --global-batch 4 --seq-len 128 --target megatron)" ] || fail "$(cat table.csv)"
finish

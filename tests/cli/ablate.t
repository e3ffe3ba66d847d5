#!/bin/sh
# mist-tune --ablate: each row says which plan a search with these groups takes, and no group makes the fastest slower.
. tests/cli/lib.sh

tune='mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --device-memory 100MiB -q'
begin 'a row for each group'
# shellcheck disable=SC2086
run $tune --ablate --csv
expect_exit 0
expect_stderr_empty
cp "$out" ablation.csv
[ "$(cut -d, -f1 ablation.csv | tr '\n' ' ')" = 'added 3d zero ckpt offload imbalance mesh sequence schedule lean ' ] ||
    fail "$(cat ablation.csv)"
begin 'none slower than the one before, and how much faster'
awk -F, 'NR == 2 { first = $3 }
    NR > 2 && ($3 > before || ($5 - before / $3 + 1) ^ 2 > 1e-18 || ($6 - first / $3) ^ 2 > 1e-18) { print; bad = 1 }
    { before = $3 } END { exit bad || !(before < first) }' ablation.csv > "$scratch/io/awk" || fail "$(cat "$scratch/io/awk")"
groups=
for group in 3d zero ckpt offload; do
    groups=${groups:+$groups,}$group
    begin "the row of $group is that of --space $groups"
    # shellcheck disable=SC2086
    run $tune --space $groups --json
    expect_exit 0
    want=$(sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1)
    [ "$(sed -n "s/^$group,\([^,]*,\)\{5\}\([^,]*\),.*/\2/p" ablation.csv)" = "$want" ] || fail "$want"
done
begin 'within --fix'
# shellcheck disable=SC2086
run $tune --ablate --fix tp=2 --csv
expect_exit 0
cp "$out" fixed.csv
! grep -q ',dp2' fixed.csv || fail "$(cat fixed.csv)"
# shellcheck disable=SC2086
run $tune --space 3d,zero,ckpt,offload --fix tp=2 --json
want=$(sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1)
[ "$(sed -n 's/^offload,\([^,]*,\)\{5\}\([^,]*\),.*/\2/p' fixed.csv)" = "$want" ] || fail "$want, $(cat fixed.csv)"
begin 'of --space alone'
# shellcheck disable=SC2086
run ${tune% -q} --ablate --space 3d,ckpt
expect_exit 0
[ "$(sed -n 's/^\([a-z0-9]*\)  *[^ ].* ms .*/\1/p' "$out" | tr '\n' ' ')" = '3d ckpt ' ] || fail "$(cat "$out")"
begin 'JSON is the same each time'
# shellcheck disable=SC2086
run $tune --ablate --json
expect_json
cp "$out" first.json
# shellcheck disable=SC2086
run $tune --ablate --json
expect_same "$out" first.json
begin 'groups with which nothing fits yet'
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --device-memory 40MiB --ablate
expect_exit 0
expect_stdout '^3d +none fits the memory '
begin 'it is drawn'
run mist-plot ablation ablation.csv
expect_exit 0
expect_stdout ' offload '
expect_stdout '1\.00x'
begin 'nothing fits, whatever is added'
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --device-memory 4MiB --ablate
expect_exit 4
expect_stdout '^lean  *none fits the memory  *-  *-  *-  *-  *-  *-  *[0-9.]* [mu]*s$'
expect_stderr '^mist-tune: no plan fits the device memory: the closest needs .*, limit 4\.00 MiB '
# shellcheck disable=SC2086
refuse 'there is no one plan' 2 '^mist-tune: --ablate looks for a plan of every space' $tune --ablate -o best.json

# What was published for L4 (tests/bench/bench_claims.sh), where it is quick: the direction of it.
claims='mist-tune --model gpt3-1.3b --cluster l4:1x2 --global-batch 32 --seq-len 2048 --dtype bf16 --gradient-dtype bf16 -q'
for framework in megatron deepspeed; do
    begin "from the best plan of $framework to ours, no step slower"
    # shellcheck disable=SC2086
    run $claims --ablate --target $framework --csv
    expect_exit 0
    expect_stderr_empty
    cp "$out" ablation.csv
    [ "$(cut -d, -f1 ablation.csv | tr '\n' ' ')" = \
        "added $framework our executor its best plan there all its knobs offload imbalance mesh lean " ] || fail "$(cat ablation.csv)"
    awk -F, 'NR > 2 && $3 > before { print; bad = 1 } { before = $3 } END { exit bad }' ablation.csv > "$scratch/io/awk" ||
        fail "$(cat "$scratch/io/awk")"
    begin "the first row is what --target $framework finds, the last what we find"
    # shellcheck disable=SC2086
    run $claims --target $framework -o plan.json --force --json
    theirs=$(sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1)
    [ "$(sed -n "s/^$framework,\([^,]*,\)\{5\}\([^,]*\),.*/\2/p" ablation.csv)" = "$theirs" ] || fail "$theirs"
    # shellcheck disable=SC2086
    run $claims --json
    ours=$(sed -n 's/^    "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1)
    awk -F, -v ours="$ours" 'END { exit !($7 == ours && $3 <= ours && $6 > 1.1) }' ablation.csv || fail "$ours, $(cat ablation.csv)"
    begin "the second row is the plan of $framework as one of ours"
    run mist-sim plan.json --framework ours --json -q
    expect_exit 0
    same=$(sed -n 's/^  "iteration_s": \(.*\),$/\1/p' "$out" | head -n 1)
    [ "$(sed -n "s/^our executor,[^,]*,\([^,]*\),.*/\1/p" ablation.csv)" = "$same" ] || fail "$same, $(cat ablation.csv)"
    rm plan.json
done
begin 'of the groups that are asked for'
# shellcheck disable=SC2086
run $claims --ablate --target megatron --space 3d,zero --csv
expect_exit 0
[ "$(cut -d, -f1 "$out" | tr '\n' ' ')" = 'added megatron our executor its best plan there all its knobs ' ] || fail "$(cat "$out")"
finish

#!/bin/sh
# --explain of mist-sim and mist-tune: times add up to the iteration, memory to the arena, in every format; what is
# printed by default and what under -v.
. tests/cli/lib.sh

tune='mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128'

# column NAME: its number in the CSV of $out.
column() { head -n 1 "$out" | tr , '\n' | grep -n "^$1\$" | cut -d: -f1; }

# adds_up: of every stage in the CSV, times make the iteration within 0.1 %, device memory the arena in $1 (JSON of stages).
adds_up() {
    awk -F, -v stage="$(column stage)" -v of="$(column of)" -v time="$(column time_s)" -v bytes="$(column bytes)" \
        -v iteration="$(column iteration_s)" -v arenas="$1" '
        NR > 1 && $of == "time" { seconds[$stage] += $time; want = $iteration }
        NR > 1 && $of == "device memory" { arena[$stage] += $bytes }
        END {
            n = split(arenas, a, " ")
            for (s = 0; s < n; s++) {
                if (seconds[s] < want * 0.999 || seconds[s] > want * 1.001) bad = bad " time of stage " s ": " seconds[s]
                if (arena[s] != a[s + 1]) bad = bad " memory of stage " s ": " arena[s] ", not " a[s + 1]
            }
            if (n == 0 || bad != "") { print "stages " n bad; exit 1 }
        }' "$out" > "$scratch/io/sums" || fail "$(cat "$scratch/io/sums")"
}
# arenas KEY: all values of a key of $out, JSON
arenas() { sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$out" | tr '\n' ' '; }

for plan in plan.json plan2.json; do
    begin "mist-sim --explain: $plan adds up"
    run mist-sim $plan --json
    expect_exit 0
    bytes=$(arenas arena_bytes)
    run mist-sim $plan --explain --csv
    expect_exit 0
    expect_stderr_empty
    adds_up "$bytes"
done
begin 'it is drawn'
cp "$out" explained.csv
run mist-plot breakdown explained.csv
expect_exit 0
expect_stdout 'matrix products'
expect_stdout 'optimizer state'
begin 'a job of another framework, too'
run mist-sim plan.json --framework megatron --explain --csv
cp "$out" explained.csv
run mist-plot breakdown explained.csv
expect_exit 0
expect_stdout 'matrix products'
rm explained.csv
begin 'what its allocator holds and it keeps of the iteration before is part of what a device needs'
edit plan2.json 's/"dtype": "fp32"/"dtype": "bf16", "gradient_dtype": "bf16", "framework": "megatron-2021"/' > kept.json
run mist-sim kept.json --cluster a100-80:1x2 --json
needed=$(grep -A1 '"what": "all"' "$out" | sed -n 's/^ *"bytes": \([0-9]*\),$/\1/p')
run mist-sim kept.json --cluster a100-80:1x2 --explain --csv
for part in 'kept by the framework' 'held by the allocator' runtime; do expect_stdout "beside the arena,$part"; done
awk -F, -v stage="$(column stage)" -v of="$(column of)" -v part="$(column part)" -v bytes="$(column bytes)" \
    -v needed="$needed" '
    $of == "device memory" || $of == "beside the arena" { sum[$stage] += $bytes }
    $of == "device memory" || $part == "kept by the framework" { used[$stage] += $bytes }
    $part == "held by the allocator" { held[$stage] += $bytes }
    END { # of what is used, a fifth
        for (s in used) if (held[s] != int(used[s] / 5)) { print held[s] " held beyond " used[s]; exit 1 }
        for (s in sum) most = sum[s] > most ? sum[s] : most
        if (most != needed) { print most ", not " needed; exit 1 }
    }' "$out" > "$scratch/io/sums" || fail "$(cat "$scratch/io/sums")"
begin 'it holds no more than there is room for, too little of which is said; what is allocated has to fit'
bytes() { grep -A1 "\"what\": \"$1\"" "$out" | sed -n 's/^ *"bytes": \([0-9]*\),$/\1/p'; }
run mist-sim kept.json --cluster a100-80:1x2 --json
held=$(bytes 'held beyond it')
there=$(((needed - 1048576) / 1024))KiB
run mist-sim kept.json --cluster "a100-80:1x2,memory=$there" --json
expect_stderr_empty
[ "$(bytes all)" = "$(bytes 'a device has')" ] || fail "$(bytes all) of $(bytes 'a device has')"
run mist-sim kept.json --cluster "a100-80:1x2,memory=$(((needed - held + held / 4) / 1024))KiB" --json
expect_once '^mist-sim: stage [01] leaves .* of device memory to holes between .*, usually .*: it may run out of memory, or slow down while its allocator frees what it kept$'
[ "$(bytes all)" = "$(bytes 'a device has')" ] || fail "$(bytes all) of $(bytes 'a device has')"
run mist-sim kept.json --cluster "a100-80:1x2,memory=$(((needed - held - 1048576) / 1024))KiB" --json
expect_once '^mist-sim: stage [01] needs .* of device memory, there are '
[ "$(bytes all)" = $((needed - held)) ] || fail "$(bytes all), not $((needed - held))"
rm kept.json
begin 'attention of one kernel computes its scores again anyway: no work that --recompute selective adds'
frac() { sed -n "s/^ *\"$1_flop_utilisation_frac\": \(.*\),$/\1/p" "$out"; }
edit plan2.json 's/"dtype": "fp32"/"dtype": "bf16"/' > half.json
for way in flash flash1 cudnn fused; do
    run mist-sim half.json --framework megatron --attention $way --recompute selective --cluster a100-80:1x2 --json
    expect_exit 0
    [ "$way" = fused ] || [ "$(frac hardware)" = "$(frac model)" ] || fail "$way: $(frac hardware), not $(frac model)"
done
[ "$(frac hardware)" != "$(frac model)" ] || fail 'fused: nothing is computed again'
rm half.json
begin 'devices of a stage that differ: the busiest is what is explained'
run mist-sim plan2.json --explain
expect_stdout 'mean of all devices'
run mist-sim plan2.json --explain --what-if rank.0=0.5x
expect_stdout "mean of the stages' busiest devices"
begin 'and in JSON'
run mist-sim plan2.json --explain --json
expect_exit 0
expect_json
expect_stdout '"part": "matrix products"'
expect_stdout '"tensor": "qkv"'
for key in tokens_per_s_per_device flop_per_s_per_device model_flop_utilisation_frac hardware_flop_utilisation_frac; do
    grep -q "\"$key\"" "$out" || fail "no $key"
done
begin 'for people: two tables'
run mist-sim plan2.json --explain
expect_exit 0
expect_stdout '^Where the time goes, mean of all devices$'
expect_stdout '^What is in device memory at its peak, stage [01]$'
expect_stdout '^optimizer state '
begin 'no explanation unless asked for'
run mist-sim plan2.json
if grep -q 'Where the time goes\|^Stages' "$out"; then fail "$(cat "$out")"; fi
expect_stdout '^tokens/s of a device '
expect_stdout '^memory of a device '
begin 'all tables'
run mist-sim plan2.json -v
expect_stdout '^Stages$'
expect_stdout '^What prices rest on$'
refuse 'a sweep has no one explanation' 2 '^mist-sim: --sweep: has no one timeline' mist-sim plan.json --explain --sweep link.all=1x:2x

begin 'mist-tune: what one decides by'
# shellcheck disable=SC2086
run $tune
expect_exit 0
expect_stdout '^iteration, by replay '
expect_stdout '^its error bar'
expect_stdout '^tokens/s of a device '
expect_stdout '^Runners-up$'
if grep -q '^Search$\|^Comparison$\|^Best plans$\|Where the time goes' "$out"; then fail "$(cat "$out")"; fi
[ "$(sed -n '/^Runners-up$/,/^$/p' "$out" | grep -c '^ *[0-9][0-9]* ')" = 3 ] || fail 'not three'
begin 'why they lost'
sed -n '/^Runners-up$/,$p' "$out" | grep -Eq 'more (computation|recomputation|optimizer step|communication|copies|bubble) \(|as fast' ||
    fail "$(sed -n '/^Runners-up$/,$p' "$out")"
begin 'mist-tune -v: all tables'
# shellcheck disable=SC2086
run $tune -v
for title in Search Comparison 'Best plans' Stages; do expect_stdout "^$title\$"; done
begin 'mist-tune --explain adds up as mist-sim does'
# shellcheck disable=SC2086
run $tune -q --explain --json -o best.json
expect_exit 0
expect_json
run mist-sim best.json --json
bytes=$(arenas arena_bytes)
# shellcheck disable=SC2086
run $tune -q --explain --csv
expect_exit 0
head -n 1 "$out" | sed 's/best\.iteration_s/iteration_s/' > "$scratch/io/csv"
tail -n +2 "$out" >> "$scratch/io/csv"
cp "$scratch/io/csv" "$out"
adds_up "$bytes"
finish

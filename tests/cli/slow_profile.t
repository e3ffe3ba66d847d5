#!/bin/sh
# mist-profile measures: a trace set appears that the other tools can use, or, interrupted, nothing does.
. tests/cli/lib.sh

cat > tiny.json <<'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "max_position_embeddings": 256}
END
profile='mist-profile --backend cpu --quick --model tiny.json --seq-len 32 --micro-batches 1 --progress never'

# keys TABLE: what its rows are of, without times.
keys() {
    case $1 in
        */kernels.csv) cut -d, -f1-4 "$1" ;;
        */links.csv) cut -d, -f1-5 "$1" ;;
        *) cut -d, -f1-3 "$1" ;;
    esac
}

# journal_beyond BYTES: waits until the journal of the session that runs is longer; five minutes at most.
journal_beyond() {
    i=0
    while [ "$(cat set.partial/journal 2> /dev/null | wc -c)" -le "$1" ] && [ $((i += 1)) -lt 3000 ]; do sleep 0.1; done
}

begin 'an interrupted run leaves its journal and no trace set'
command_line="$profile, interrupted"
# shellcheck disable=SC2086
"$MIST_BUILD"/$profile --ranks 1 -o set > "$out" 2> "$err" &
pid=$!
journal_beyond 1000
kill -TERM $pid
wait $pid 2> /dev/null
code=$?
[ "$code" -ge 128 ] || fail "exit code $code, expected 128 or more"
expect_stdout_empty
[ ! -e set ] || fail "left: $(find set)"
expect_file set.partial/journal
size=$(wc -c < set.partial/journal)

begin 'another session does not go on from it'
# shellcheck disable=SC2086
run ${profile%--micro*} --micro-batches 2 --resume --ranks 1 -o set
expect_exit 3
expect_stderr 'set\.partial/journal: is of another session'
nothing_written

begin 'it goes on, killed once more'
# shellcheck disable=SC2086
"$MIST_BUILD"/$profile --resume --ranks 1 -o set > "$out" 2> "$err" &
pid=$!
journal_beyond "$size"
kill -KILL $pid
wait $pid 2> /dev/null
[ "$(wc -c < set.partial/journal)" -gt "$size" ] || fail 'the journal has not grown'
[ ! -e set ] || fail "left: $(find set)"

begin 'it goes on to the end'
# shellcheck disable=SC2086
run $profile --seconds 12 --resume --ranks 1 -q -o set
expect_exit 0
expect_stderr_empty
[ ! -e set.partial ] || fail "left: $(find set.partial)"
mv set resumed

begin 'a trace set of one rank'
# shellcheck disable=SC2086
run $profile --seconds 12 --ranks 1 -q --json --kernels --kernels-csv ops.csv -o set
expect_exit 0
expect_json
expect_stderr_empty
expect_stdout '"operators": \['
[ "$(wc -l < ops.csv)" -eq "$(wc -l < set/kernels.csv)" ] || fail "$(wc -l ops.csv set/kernels.csv)"
rm ops.csv
expect_stdout '"drift_frac": [0-9.e-]+'
grep -q '"drift_frac": [0-9]' set/cluster.json || fail 'cluster.json has no drift_frac'
grep -q '"probe_us": [1-9]' set/cluster.json || fail 'cluster.json has no probe_us'
grep -q '"how_measured": ".* on [0-9]* processors each' set/cluster.json || fail 'cluster.json does not say on how many processors'
grep -q '"mpi": "[A-Z]' set/cluster.json || fail 'cluster.json names no MPI library'
[ "$(ls set | sort | tr '\n' ' ')" = 'cluster.json interference.csv kernels.csv links.csv ' ] || fail "$(ls set)"

begin 'a resumed session has the same rows'
for table in kernels links interference; do
    keys resumed/$table.csv > "$scratch/io/resumed"
    keys set/$table.csv > "$scratch/io/whole"
    expect_same "$scratch/io/resumed" "$scratch/io/whole"
done

begin 'plans are tuned for it, replayed and run'
run mist-tune --model tiny.json --cluster set --ranks 1 --global-batch 2 --seq-len 32 -o plan1.json
expect_exit 0
run mist-sim plan1.json
expect_exit 0
run mist-exec plan1.json --iterations 2 --probe --json
expect_exit 0
expect_stdout '"level": [0-9]'
expect_stdout '"predicted_at_level_s": [0-9]'

begin 'two ranks, with tensor parallelism'
# shellcheck disable=SC2086
run $profile --seconds 20 --ranks 2 --json -o pair
expect_exit 0
expect_json
grep -q '^all_reduce,1,2,1,' pair/links.csv || fail 'links.csv has no message of two ranks'
grep -q '^compute+gpu_gpu,' pair/interference.csv || fail 'interference.csv has no mixture with messages'
# Where others have the processors, a plan can take a hundred times what it should, which is said then.
expected=mechanism n=0
for mechanism in pipeline data_parallel zero3 tensor_parallel sequence_parallel offload; do
    grep -q "no check of $mechanism: measured_us is .*, beyond reason" "$err" && continue
    expected="$expected $mechanism" n=$((n + 1))
done
grep -v '^mist-profile: ' "$err" && fail "$(cat "$err")"
if [ $n -gt 0 ]; then
    expect_stdout '"doubt_frac": [0-9]'
    [ "$(cut -d, -f1 pair/checks.csv | tr '\n' ' ')" = "$expected " ] || fail "$(cat pair/checks.csv)"
    grep -q "\"checks.csv\": $n" pair/cluster.json || fail 'cluster.json does not count the checks'
fi
run mist-tune --model tiny.json --cluster pair --global-batch 2 --seq-len 32 -o pair.json
expect_exit 0
run mist-sim pair.json
expect_exit 0

begin 'a session on emulated CUDA has the same rows'
if [ -x "$MIST_BUILD/tests/unit/test_profile_device" ]; then
    run env MIST_SLOW=1 "$MIST_BUILD/tests/unit/test_profile_device"
    expect_exit 0
fi

begin 'it is not overwritten'
# shellcheck disable=SC2086
run $profile --ranks 1 -o set
expect_exit 2
expect_stderr '^mist-profile: set/kernels\.csv: .*--force'
nothing_written
finish

#!/bin/sh
# mist-exec --probe: the level of the machine in the report, and not a bit of the run changed. How long anything
# takes is nobody's test.
. tests/cli/lib.sh
tiny_inputs

# predicted PLAN PROBE_S > NEW: the plan with a prediction of 20 ms.
predicted() {
    sed '$d' "$1"
    stage='{"peak_bytes": 1, "stable_s": 0, "extra_s": 0}'
    [ "$1" = one.json ] || stage="$stage, $stage"
    printf '  ,"predicted": {"iteration_s": 0.02, "error_s": 0.001, "extrapolated_frac": 0%s,\n' "${2:+, \"probe_s\": $2}"
    printf '    "stages": [%s]}\n}\n' "$stage"
}
predicted one.json 0.01 > known1.json
predicted two.json 0.01 > known2.json
predicted two.json '' > unknown2.json

# What a run found out that does not depend on time: losses, norms, parameters.
results() { grep -E '"(loss|gradient_norm|parameters)' "$1"; }
# check EXPRESSION: true of the numbers in the JSON document on stdout, $j.
check() {
    perl -MJSON::PP -e 'local $/; my $j = JSON::PP->new->decode(<STDIN>); exit !(eval shift)' "$1" < "$out" ||
        fail "not true: $1: $(grep -E 'probe|level|predict' "$out")"
}

# probe NAME RANKS PLAN ITERATIONS: with and without; leaves the report with probes in $out.
probe() {
    begin "$1"
    launch=
    [ "$2" = 1 ] || launch="mpirun -n $2"
    # shellcheck disable=SC2086
    run $launch "$MIST_BUILD/mist-exec" "$3" --data text.txt --iterations "$4" -q --json
    expect_exit 0
    results "$out" > "$scratch/io/plain"
    if grep -Eq 'probe|level' "$out"; then fail "nobody asked for probes: $(grep -E 'probe|level' "$out")"; fi
    # shellcheck disable=SC2086
    run $launch "$MIST_BUILD/mist-exec" "$3" --data text.txt --iterations "$4" -q --json --probe
    expect_exit 0
    expect_json
    expect_stderr_empty
    nothing_written
    results "$out" > "$scratch/io/probed"
    expect_same "$scratch/io/plain" "$scratch/io/probed"
    expect_file "$scratch/io/plain"
    check '$j->{probe_s} > 0 && $j->{level_spread_frac} >= 0'
}

for ranks in 1 2; do
    probe "the same losses with probes, and the level: ranks: $ranks" $ranks known$ranks.json 6
    check 'abs($j->{level} / ($j->{probe_s} / 0.01) - 1) < 1e-9'
    check 'abs($j->{predicted_at_level_s} / (0.02 * $j->{level}) - 1) < 1e-9'
    check 'abs($j->{prediction_error_at_level_frac} + 1 - $j->{predicted_at_level_s} / $j->{iteration_s}) < 1e-9'
    check 'abs($j->{prediction_error_frac} + 1 - 0.02 / $j->{iteration_s}) < 1e-9'
    check '$j->{predicted_iteration_s} == 0.02'
done

probe 'one iteration has a level, too' 1 known1.json 1
check 'abs($j->{level} / ($j->{probe_s} / 0.01) - 1) < 1e-9'

probe 'a plan without a probe has no level' 2 unknown2.json 4
check '!exists $j->{level} && !exists $j->{predicted_at_level_s} && !exists $j->{prediction_error_at_level_frac}'
check 'exists $j->{prediction_error_frac}'

begin 'that a plan has no probe is said once'
run mpirun -n 2 "$MIST_BUILD/mist-exec" unknown2.json --data text.txt --iterations 1 --probe
expect_exit 0
expect_once '^mist-exec: the plan was predicted without a probe'
expect_stdout '^a probe, between steps +[0-9]'
run mpirun -n 2 "$MIST_BUILD/mist-exec" unknown2.json --data text.txt --iterations 1
if grep -q 'probe' "$err"; then fail "nobody asked for probes: $(grep probe "$err")"; fi

begin 'a table of the level'
run mpirun -n 2 "$MIST_BUILD/mist-exec" known2.json --data text.txt --iterations 1 --probe
expect_exit 0
expect_stdout '^level, 1: as when profiled +[0-9]'
expect_stdout '^iteration, predicted at that level +[0-9]'
if grep -q 'without a probe' "$err"; then fail "it has one: $(grep probe "$err")"; fi

begin 'another number of threads has another level'
run mist-exec known1.json --data text.txt --iterations 1 --probe --threads 2
expect_exit 0
expect_once '^mist-exec: the plan was predicted without a probe of as many ranks and threads'

begin 'plans take the probe over from the trace set'
edit traces/cluster.json 's/"launch_us": 0.1/"probe_us": 10000.0, "launch_us": 0.1/' > "$scratch/io/cluster.json"
cp "$scratch/io/cluster.json" traces/cluster.json
run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 -q -o tuned.json
expect_exit 0
grep -q '^ *"probe_s": 0\.01,*$' tuned.json || fail "$(grep -A6 predicted tuned.json)"
run mist-tune --model gpt3-demo --cluster traces --ranks 1 --global-batch 4 --seq-len 128 -q -o alone.json
expect_exit 0
if grep -q probe_s alone.json; then fail 'a plan of one rank has the probe of two'; fi

begin 'nothing left to do, nothing to probe'
run mist-exec one.json --data text.txt --iterations 1 --checkpoint run -q
run mist-exec one.json --data text.txt --iterations 1 --checkpoint run --resume auto -q --json --probe
expect_exit 0
expect_json
if grep -q probe "$out"; then fail "$(grep probe "$out")"; fi

finish

#!/bin/sh
# Jobs as users start them: by mpirun with its own binding, two at once, more ranks than processors, several
# threads a rank, and nodes whose folders are not shared.
. tests/cli/lib.sh

tiny_inputs
edit one.json 's/"global_batch": 4/"global_batch": 9/; s/"n_micro_batches": 2/"n_micro_batches": 1/
    s/"mesh_devices": 1/"mesh_devices": 9/; s/"dp": 1/"dp": 9/; s/"micro_batch": 2/"micro_batch": 1/; s/"zero": 0/"zero": 1/' > nine.json
edit one.json 's/"global_batch": 4/"global_batch": 9/; s/"n_micro_batches": 2/"n_micro_batches": 9/
    s/"micro_batch": 2/"micro_batch": 1/' > alone.json
exec="$MIST_BUILD/mist-exec" options='--data text.txt --iterations 4 -q'
n=$(nproc)

begin 'one rank, left alone'
# shellcheck disable=SC2086
run mist-exec one.json $options --log want.csv
expect_exit 0
begin 'two jobs at once, two ranks each, bound to the same processors by their launchers'
command_line='two mpirun -n 2 at once'
enough=
[ "$n" -ge 2 ] || enough=--oversubscribe
mkdir first second # a TMPDIR each, as schedulers give it (tests/tap.sh says why)
# shellcheck disable=SC2086
TMPDIR=$PWD/first mpirun $enough -n 2 "$exec" two.json $options --log a.csv > "$out.a" 2> "$err.a" < /dev/null &
first=$!
# shellcheck disable=SC2086
TMPDIR=$PWD/second mpirun $enough -n 2 "$exec" two.json $options --log b.csv > "$out.b" 2> "$err.b" < /dev/null &
second=$!
wait $first
code=$?
[ $code -eq 0 ] || fail "the first ends with $code: $(head -n 5 "$err.a")"
wait $second
code=$?
[ $code -eq 0 ] || fail "the second ends with $code: $(head -n 5 "$err.b")"
for log in a b; do [ "$(losses $log.csv)" = "$(losses want.csv)" ] || fail "$log: $(losses $log.csv)"; done
begin 'two ranks of two threads, as mpirun binds them'
# shellcheck disable=SC2086
run mpirun $enough -n 2 "$exec" two.json $options --threads 2 --log threads.csv
expect_exit 0
[ "$(losses threads.csv)" = "$(losses want.csv)" ] || fail "$(losses threads.csv)"
begin 'one rank of two threads, bound to a core'
# shellcheck disable=SC2086
run mpirun -n 1 "$exec" one.json $options --threads 2 --log core.csv
expect_exit 0
[ "$(losses core.csv)" = "$(losses want.csv)" ] || fail "$(losses core.csv)"

begin 'nine ranks on few processors: the losses of one'
# shellcheck disable=SC2086
run mist-exec alone.json $options --log alone.csv
expect_exit 0
# shellcheck disable=SC2086
run mpirun --oversubscribe -n 9 "$exec" nine.json $options --log nine.csv --checkpoint saved
expect_exit 0
expect_stdout '^fingerprint of the parameters '
paste -d, alone.csv nine.csv | awk -F, 'NR > 1 { d = $2 / $10 - 1; if ($1 != $9 || d > 1e-6 || d < -1e-6) exit 1 } END { exit NR != 5 }' ||
    fail "$(losses nine.csv)"
[ "$(ls saved/step-00000004 | grep -c '^rank-')" -eq 9 ] || fail "$(ls saved/step-00000004)"
begin 'and their checkpoint goes on under one rank'
run mist-exec alone.json --data text.txt -q --iterations 6 --resume auto --checkpoint saved
expect_exit 0
finish

#!/bin/sh
# Where ranks run: as the launcher binds them by default, with more threads than it thought of, and as told.
. tests/cli/lib.sh

tiny_inputs
one="$MIST_BUILD/mist-exec one.json --data text.txt --iterations 2"
two="$MIST_BUILD/mist-exec two.json --data text.txt --iterations 2"
widened='^mist-exec: runs on processors [0-9,-]+, since [0-9]+ threads work at once and the launcher bound rank 0 to [0-9,-]+ '
n=$(nproc) all=$(getconf _NPROCESSORS_ONLN) # processors that this test may use, and that there are
first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')

# expect_silence: nothing about processors.
expect_silence() { ! grep -q 'processor' "$err" || fail "stderr: $(grep processor "$err")"; }

begin 'alone, as started'
run $one
expect_exit 0
expect_silence
begin 'alone, with more threads than processors'
run $one --threads $((all + 1))
expect_exit 0
expect_once "^mist-exec: $((all + 1)) busy threads on this node's $all processors?: start fewer\$"
run $one --threads $((all + 1)) --bind none
expect_exit 0
expect_silence

if [ "$n" -lt 2 ]; then
    begin 'ranks bound by the launcher'
    skip 'one processor'
    finish
fi
begin 'within what taskset leaves'
run taskset -c "$first" $one --threads 2
expect_exit 0
expect_once '^mist-exec: 2 busy threads of a rank on processor [0-9]+: start fewer, or let it have more \(mpirun --bind-to none or --map-by slot:PE=2, '
begin 'one rank that mpirun bound to a core'
run mpirun -n 1 $one --threads 2
expect_exit 0
if [ "$n" -eq "$all" ]; then
    expect_once "$widened"
fi
run mpirun -n 1 $one --threads 2 --bind none
expect_exit 0
expect_silence
begin 'mpirun that binds nobody, and somebody who does'
run mpirun --bind-to none -n 1 $one --threads 2
expect_exit 0
expect_silence
if mpirun --version 2>&1 | grep -q '(Open MPI) 4'; then # which says whether it has bound a rank
    run mpirun --bind-to none -n 1 taskset -c "$first" $one --threads 2
    expect_exit 0
    expect_once "^mist-exec: 2 busy threads of a rank on processor $first: "
fi
begin 'two ranks as mpirun binds them'
run mpirun -n 2 $two --log a.csv
expect_exit 0
[ "$n" -eq 2 ] && expect_silence
[ "$n" -ge 4 ] && [ "$n" -eq "$all" ] && expect_once "$widened"
begin 'two ranks of two threads: the same losses, and a word about the processors'
run mpirun -n 2 $two --threads 2 --log b.csv
expect_exit 0
[ "$all" -lt 4 ] && expect_once "^mist-exec: 4 busy threads on this node's $all processors: start fewer\$"
[ "$n" -ge 4 ] && [ "$n" -eq "$all" ] && expect_once "$widened"
[ "$(losses a.csv)" = "$(losses b.csv)" ] || fail "$(losses b.csv)"
begin 'threads that do not know of other ranks would wait awake: how they sleep'
if [ "$n" -eq "$all" ] && [ "$all" -le 8 ]; then
    busy="^mist-exec: $((2 * all)) busy threads on this node's $all processors: start fewer"
    run env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT mpirun --bind-to none -n 2 $two --threads "$all"
    expect_exit 0
    expect_once "$busy, or give all ranks OMP_WAIT_POLICY=passive: "
    run env OMP_WAIT_POLICY=passive mpirun --bind-to none -n 2 $two --threads "$all"
    expect_exit 0
    expect_once "$busy\$"
else
    skip 'not all processors, or so many that it would take long'
fi
finish

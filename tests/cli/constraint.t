#!/bin/sh
# mist-tune --constraint: plans keep to it, and what is wrong with one is said.
. tests/cli/lib.sh

tune='mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 -q'
kept="$tune --glpk-time 10min" # for GLPK is asked where sums take too many values
# wrong NAME REASON CONSTRAINT OPTIONS...
# shellcheck disable=SC2086
wrong() {
    name=$1 reason=$2 constraint=$3
    shift 3
    refuse "$name" 2 "^mist-tune: $reason" $kept -o best.json --constraint "$constraint" "$@"
}
wrong 'an unknown quantity' ".*'stage <= 8' at 'stage <= 8': expected stages, micro-batches, layers" 'stage <= 8'
wrong 'no comparison' ".*'stages' at '': expected \+, -, <=, >= or =" 'stages'
wrong 'less than' ".*at '< 8': expected \+, -, <=, >= or =" 'stages < 8'
wrong 'nothing to compare with' ".*at '': expected stages" 'stages <='
wrong 'a number that is none' ".*at '1\.2\.3': expected a number" 'stages <= 1.2.3'
wrong 'a unit that is none' ".*at '8x': expected a number, or a size such as 60GiB" 'stages <= 8x'
wrong 'words behind it' ".*at 'or more': expected \+, - or the end" 'stages >= 8 or more'
wrong 'a product of two' ".*at '\* tp <= 8': expected" 'dp * tp <= 8'
wrong 'a stage without an end' ".*expected the number of a stage and \]" 'layers[0 <= 8'
wrong 'a stage that is none' ".*expected the number of a stage, 0 for the first or -1 for the last" 'layers[x] <= 8'
wrong 'a sum without an end' ".*expected \)" 'sum(layers <= 8'
wrong 'a sum of what plans have one of' ".*expected a quantity of a stage inside of sum\(\)" 'sum(stages) <= 8'
wrong 'nothing of a plan' ".*'1 <= 2' says nothing of a plan" '1 <= 2'
wrong 'a size and a number' ".*'stages <= 8GiB' compares a size with what is none" 'stages <= 8GiB'
wrong 'memory with something else' ".*: memory goes alone, has a unit and is limited from above, as in 'memory <= 60GiB'" 'memory + layers <= 60GiB'
wrong 'memory without a unit' ".*: memory goes alone" 'memory <= 60'
wrong 'memory at least' ".*: memory goes alone, has a unit and is limited from above, as in 'memory <= 60GiB' or 'memory\[0\] <= 16GiB'" 'memory[0] >= 1GiB'
wrong 'memory of stages together' ".*: memory goes alone" 'sum(memory) <= 60GiB'
wrong 'memory of one of stages alike' ".* is about one stage; with --uniform" 'memory[0] <= 1GiB' --uniform
wrong 'what the search leaves out of a stage' ".*\(of other knobs see --fix and --max\)" 'zero[0] <= 1'
wrong 'with --target' '--constraint is for the search of our own plans' 'stages <= 8' --target megatron
wrong 'with --sample-plans' '--constraint is for the search of our own plans' 'stages <= 8' --sample-plans 4 --plans plans

# none NAME REASON OPTIONS...
# shellcheck disable=SC2086
none() {
    name=$1 reason=$2
    shift 2
    refuse "$name" 4 "^mist-tune: $reason" $tune -o best.json "$@"
}
none 'no plan keeps to it' 'no plan keeps to --constraint stages <= 0$' --constraint 'stages <= 0'
none 'which has to go' 'no plan keeps to --constraint stages = 2 and dp >= 2; there are plans without stages = 2 or dp >= 2$' \
    --constraint 'stages = 2,dp >= 2'
none 'too little for a stage' 'no plan keeps to --constraint memory\[-1\] <= 4MiB$' --constraint 'memory[-1] <= 4MiB'
none 'too little memory' 'no plan fits the device memory: .*limit 4\.00 MiB' --constraint 'memory <= 4MiB'

value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$out" | head -n 1; }
begin 'one that the best plan keeps to changes nothing'
# shellcheck disable=SC2086
run $tune --json
free=$(value iteration_s)
# shellcheck disable=SC2086
run $kept --json --constraint 'stages <= 8'
expect_exit 0
[ "$(value iteration_s)" = "$free" ] || fail "$(value iteration_s), not $free"
[ "$(value proven_gap_frac)" = 0.0 ] || fail "gap $(value proven_gap_frac)"

# same NAME CONSTRAINT OPTIONS...: what another option says as well. Of plans that take the same time
# but for a hundredth of a percent, the two ways may come upon different ones.
# shellcheck disable=SC2086
same() {
    begin "as $3 $4: $2"
    run $tune --json "$3" "$4"
    want=$(value iteration_s)
    run $kept --json --constraint "$2"
    expect_exit 0
    echo "$want $(value iteration_s)" | awk '{ exit !(($1 - $2) ^ 2 <= ($1 * 1e-4) ^ 2) }' ||
        fail "$(value iteration_s), not $want"
    case $(value proven_gap_frac) in 0.0 | '') ;; *) fail "gap $(value proven_gap_frac)" ;; esac
}
same 'the number of stages' 'stages = 2' --fix pp=2
same 'tp of all stages' 'sum(tp) >= 2 * stages' --fix tp=2
same 'micro-batches' 'micro-batches <= 1' --max micro-batches=1
same 'by another name' 'pp = 2' --fix pp=2
same 'with another sign' 'sum(micro_batch) <= stages' --fix micro-batch=1
same 'memory' 'memory <= 40MiB' --device-memory 40MiB
same 'memory from the other side' '40 MiB >= memory' --device-memory 40MiB
same 'memory, stage by stage' 'memory[0] <= 40MiB,memory[-1] <= 40MiB' --device-memory 40MiB

begin 'GLPK finds the same'
# shellcheck disable=SC2086
run $kept --json --constraint 'layers[0] + 2 <= layers[-1]'
expect_exit 0
want=$(value iteration_s)
# shellcheck disable=SC2086
run $kept --json --constraint 'layers[0] + 2 <= layers[-1]' --solver both
expect_exit 0
[ "$(value iteration_s)" = "$want" ] || fail "$(value iteration_s), not $want"
[ "$(value glpk_different)" = 0 ] || fail "GLPK differs in $(value glpk_different) cases"
begin 'a point of a sweep that no plan of keeps to it'
# shellcheck disable=SC2086
run $kept --constraint 'stages = 2' --sweep ranks=1:2 --csv
expect_exit 0
expect_stdout '^1,false,1,.*no plan keeps to --constraint stages = 2$'
expect_stdout '^2,true,2,[0-9]'
begin 'memory of one stage'
# shellcheck disable=SC2086
run $kept -o best.json --constraint 'memory[0] <= 40MiB,stages = 2'
expect_exit 0
peaks=$(sed -n 's/^ *"peak_bytes": \([0-9]*\),*$/\1/p' best.json | tr '\n' ' ')
# shellcheck disable=SC2086
set -- $peaks
[ "$1" -le 41943040 ] && [ "$2" -gt 41943040 ] || fail "arenas of $peaks"
rm best.json
begin 'layers that differ between stages'
# shellcheck disable=SC2086
run ${tune% -q} -o best.json --constraint 'layers[0] + 4 <= layers[-1],stages = 2'
expect_exit 0
expect_stdout '^ *proven gap under constraints, closed form +0\.0 %$'
layers=$(sed -n 's/^ *"layers": \([0-9]*\),.*/\1/p' best.json | tr '\n' ' ')
case $layers in *'4 8 ' | *'3 9 ' | *'2 10 ' | *'1 11 ') ;; *) fail "layers $layers" ;; esac
rm best.json
finish

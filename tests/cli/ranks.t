#!/bin/sh
# Ranks of one run that were told different things: refused before training, where they would go on without a
# word and their replicas would drift apart; and what may differ from rank to rank.
. tests/cli/lib.sh

tiny_inputs
for i in 0 1; do
    mkdir $i && cp two.json $i/plan.json && cp text.txt $i
done
# each PLAN0 OPTION... : PLAN1 OPTION...: two ranks, each with a command line of its own.
each() {
    for word in "$@"; do
        shift
        if [ "$word" = : ]; then
            set -- "$@" : -n 1 "$MIST_BUILD/mist-exec" --deadline 20s --data 1/text.txt
        else
            set -- "$@" "$word"
        fi
    done
    run mpirun --oversubscribe -n 1 "$MIST_BUILD/mist-exec" --data text.txt --deadline 20s "$@"
}

# differ NAME REGEX OPTION... : OPTION...: refused by all, said by one, and nothing is left.
differ() {
    begin "$1"
    regex=$2
    shift 2
    each two.json -q --iterations 3 "$@"
    expect_exit 3
    expect_once "^mist-exec: the ranks $regex\$"
    expect_stdout_empty
    nothing_written
}
options='were given different options; all need the same'

# ------------------------------------------------------------------------------------- options
differ 'learning rates' "$options --lr" --lr 1e-3 --checkpoint run : two.json --iterations 3 --lr 1e-2 --checkpoint run
differ 'seeds' "$options --seed" --seed 1 : two.json --iterations 3 --seed 2
differ 'one that was not given' "$options --clip" : two.json --iterations 3 --clip 0
differ 'lengths' "$options --iterations" : two.json --iterations 4
differ 'ways with NaN' "$options --on-nan" : two.json --iterations 3 --on-nan skip
differ 'times to save' "$options --save-every" --checkpoint run : two.json --iterations 3 --checkpoint run --save-every 1
differ 'saving and not' "$options --checkpoint" --checkpoint run : two.json --iterations 3
differ 'numbers to keep' "$options --keep" --checkpoint run : two.json --iterations 3 --checkpoint run --keep 1
differ 'beginning and going on' "$options --resume" --resume auto --checkpoint run : two.json --iterations 3 --checkpoint run
differ 'dry and wet' "$options --dry-run" : two.json --iterations 3 --dry-run
differ 'timed and not' "$options --timed-iterations, with --timeline or --kernels" --timeline t.csv : two.json --iterations 3
differ 'numbers of timed iterations' "$options --timed-iterations, .*" \
    --timeline t.csv : two.json --iterations 3 --timeline t.csv --timed-iterations 2
differ 'validating and not' "$options --validation-frac" --validation-frac 0.1 : two.json --iterations 3
differ 'validation data and none' "$options --validation-batches, and the same --validation-data" \
    --validation-data text.txt : two.json --iterations 3
sed 's/same/SAME/' text.txt > other.txt
differ 'two files of validation data' "$options --validation-batches, and the same --validation-data" \
    --validation-data text.txt : two.json --iterations 3 --validation-data other.txt
differ 'exporting and not' "$options --export" --export hf : two.json --iterations 3

wrong="^mist-exec: --iterations: 'x': expected a whole number\$"
begin 'a wrong option of all: one says so'
run mpirun --oversubscribe -n 3 "$MIST_BUILD/mist-exec" two.json --iterations x
expect_exit 2
expect_once "$wrong"
expect_stdout_empty
nothing_written
begin 'a wrong option of the second'
each two.json --iterations 3 --checkpoint run : two.json --iterations x
expect_exit 2
expect_once "$wrong"
expect_stdout_empty
nothing_written

# --------------------------------------------------------------------------------------- plans
plans='read different plans; all must be given the same plan\.json'
# plan NAME SED_SCRIPT: the second rank's plan is another one.
plan() {
    edit two.json "$2" > other.json
    differ "$1" "$plans" : other.json --iterations 3
}
plan 'an epsilon' 's/"norm_epsilon": [^,]*/"norm_epsilon": 0.5/'
plan 'a global batch' 's/"global_batch": 4/"global_batch": 8/; s/"n_micro_batches": 2/"n_micro_batches": 4/'
plan 'micro-batches' 's/"n_micro_batches": 2/"n_micro_batches": 1/; s/"micro_batch": 2/"micro_batch": 4/'
plan 'a ZeRO level' 's/"zero": 0/"zero": 1/'
plan 'the number format of gradients' 's/"dtype": "fp32"/"dtype": "bf16"/'

# --------------------------------------------------------------------------------- checkpoints
begin 'settings of the checkpoint, and one that is given'
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json --data text.txt -q --iterations 2 --lr 0.02 --checkpoint run
expect_exit 0
differ 'the same as the default is not the same as the checkpoint has' "$options --lr" \
    --resume run : two.json --iterations 3 --resume run --lr 1e-3
begin '--verify: one looks through them'
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" --verify run --json
expect_exit 0
[ "$(grep -c 'step-00000002' "$out")" -eq 1 ] || fail "$(cat "$out")"
printf x | dd of=run/step-00000002/rank-00001.bin bs=1 seek=100 conv=notrunc 2> /dev/null
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" --verify run
expect_exit 6
expect_once '^mist-exec: run: '

# ------------------------------------------------------------------------------ what may differ
begin 'paths, threads, words, and a value that is also the default'
each 0/plan.json --iterations 2 --threads 2 --log log.csv --tensorboard board --lr 1e-3 : \
    1/plan.json --iterations 2 -q --deadline 30s --delay-seed 3
expect_exit 0
expect_file log.csv
finish

#!/bin/sh
# Every tool, with each call for memory and each call on a file failing in turn (tests/faults/README.md):
# the exit code, one line of message, old files or new ones, nothing left, no memory lost.
# MIST_FAULTS=all: every call instead of a sample of the many; MIST_SEED: of the sample (1).
. tests/cli/lib.sh

if grep -q __tsan_init "$MIST_BUILD/mist-sim"; then
    echo '1..0 # SKIP the thread sanitizer has its own malloc'
    exit 0
fi
export ASAN_OPTIONS=verify_asan_link_order=0 # the address sanitizer's comes behind the one that fails
data=$scratch/here      # templates: what a tool finds
tiny=$scratch/tiny      # for training
profiled=$scratch/prof  # a session of mist-profile that is all but saved
mkdir "$tiny" "$profiled"
echo old > out.csv
echo old > out.svg
cp out.csv "$tiny/"
for plan in plan plan2; do
    edit $plan.json 's/layers": 12/layers": 2/; s/"layers": 6/"layers": 1/; s/"hidden": 256/"hidden": 32/
        s/"head_dim": 64/"head_dim": 8/; s/"ffn": 1024/"ffn": 128/; s/"seq_len": 128/"seq_len": 16/
        s/"trace_set": "traces"/"trace_set": ""/' > "$tiny/$plan.json"
done
head -c 20000 "$root/tests/README.md" "$root/README.md" > "$tiny/text.txt"

# sweep NAME TEMPLATE OPTION... -- COMMAND...: see tests/faults/sweep.c
sweep() {
    begin "$1"
    name=$1
    template=$2 options=
    shift 2
    while [ "$1" != -- ]; do options="$options $1" && shift; done
    shift
    # shellcheck disable=SC2086
    TMPDIR=$scratch/io run "$MIST_BUILD/tests/faults/sweep" $options "$template" "$@"
    [ "$code" -eq 0 ] || fail "$(grep -v '^sweep: .* seed' "$out" | head -n 20)"
    say "$name: $(tail -n 1 "$out")"
    cat "$out" >> "$scratch/io/all"
}
sim=$MIST_BUILD/mist-sim plot=$MIST_BUILD/mist-plot tune=$MIST_BUILD/mist-tune exec=$MIST_BUILD/mist-exec
profile=$MIST_BUILD/mist-profile

"$sim" plan2.json -q -o measured.csv > "$out" || exit 1
sweep 'mist-sim -o, a file that is replaced' "$data" -- "$sim" plan2.json -q -f -o out.csv
sweep 'mist-sim --chrome, a new file' "$data" -n 30 -- "$sim" plan.json -q --chrome new.json
sweep 'mist-sim --json --compare' "$data" -n 30 -- "$sim" plan2.json --json --compare measured.csv
sweep 'mist-sim --sweep' "$data" -n 20 -- "$sim" plan2.json --sweep link.all=1x:2x
sweep 'mist-sim --explain' "$data" -n 30 -- "$sim" plan2.json --explain --csv

sweep 'mist-plot timeline, a picture that is replaced' "$data" -- "$plot" timeline timeline.csv -f -o out.svg
sweep 'mist-plot pareto, a new picture' "$data" -- "$plot" pareto pareto.csv -o new.svg
sweep 'mist-plot compare -o -' "$data" -- "$plot" compare compare.csv -o -
sweep 'mist-plot timeline -o -' "$data" -- "$plot" timeline timeline.csv -o -
sweep 'mist-plot chrome' "$data" -n 20 -- "$plot" chrome timeline.csv -f -o out.csv

job='--model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 -q'
# shellcheck disable=SC2086
sweep 'mist-tune, all outputs' "$data" -n 30 -x stdout -- \
    "$tune" $job -f -o new.json --log out.csv --pareto new.csv
# shellcheck disable=SC2086
sweep 'mist-tune --explain' "$data" -n 30 -x stdout -- "$tune" $job --explain -j 1
# shellcheck disable=SC2086
sweep 'mist-tune --ablate' "$data" -n 20 -x stdout -- "$tune" $job --ablate --space 3d,zero -j 1
# shellcheck disable=SC2086
sweep 'mist-tune --plans' "$data" -n 30 -x stdout -- "$tune" $job --plans plans -j 1

printf '%s\n' '#!/bin/sh' "echo '{\"iteration_s\": 0.1}'" > launch
chmod +x launch
# shellcheck disable=SC2086
sweep 'mist-tune --verify' "$data" -n 20 -x stdout -- "$tune" $job -f -o out.csv --verify 1 --launch ./launch

train="plan.json --data text:text.txt -q --iterations 2"
# Every row of the log was written and looked at before the log is closed; it has the rows of the steps that
# are done.
# shellcheck disable=SC2086
sweep 'mist-exec, its tables and export' "$tiny" -n 7 -t open,close -x stdout,out.csv,new.csv -g out.csv -- \
    "$exec" $train -f --log out.csv --timeline new.csv --export exported
# What is no longer needed may fail to be looked at or removed, and stays; a folder that is there may fail to
# be made; a job ends without the thread that would end it late.
saves='-t malloc,open,read,close,rename,mkdir,thread -l saved/step-0000000[12]/*,saved/step-0000000[12].old/*
    -x stdout,saved/step*'
# shellcheck disable=SC2086
sweep 'mist-exec --checkpoint' "$tiny" -n 6 $saves -- \
    "$exec" $train --checkpoint saved --save-every 1 --keep 1
# One that fails may end the others, as a kill does, and the next run clears up; where what it writes fails, all
# know and nothing is left in the way.
train2='mpirun --oversubscribe -n 2'
for rank in 0 1; do
    # shellcheck disable=SC2086
    sweep "mist-exec of two ranks: rank $rank" "$tiny" -r $rank -n 2 $saves -l saved/lock,saved/*.partial/* -- \
        $train2 "$exec" plan2.json --data text:text.txt -q --iterations 1 --checkpoint saved
    # shellcheck disable=SC2086
    sweep "what it writes: rank $rank" "$tiny" -r $rank -n 4 $saves -c mkdir,write,fsync -- \
        $train2 "$exec" plan2.json --data text:text.txt -q --iterations 1 --checkpoint saved
done

begin 'a session of mist-profile, up to where it is saved'
cd "$profiled" || exit 1
cat > tiny.json << 'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "max_position_embeddings": 256}
JSON
session='--backend cpu --quick --model tiny.json --seq-len 32 --micro-batches 1 --ranks 1 -q -o set'
# shellcheck disable=SC2086
MIST_FAULT_PROGRAM=mist-profile MIST_FAULT_FOLDER=$PWD MIST_FAULT_CALL=rename MIST_FAULT_N=1 \
    LD_PRELOAD=$MIST_BUILD/tests/faults/inject.so run "$profile" $session
expect_exit 5
expect_one_line
expect_file set.partial/journal
cd "$data" || exit 1
# shellcheck disable=SC2086
sweep 'mist-profile --resume' "$profiled" -n 4 -t mkdir -x stdout,set/cluster.json -- "$profile" $session --resume

say "in all: $(awk '/ runs, / { n += $2 } END { print n }' "$scratch/io/all") runs"
finish

#!/bin/sh
# The same bytes whatever the language: decimal commas (de_DE) and another upper case of i (tr_TR) change
# neither what is read nor what is written. The locales are made in the scratch folder.
. tests/cli/lib.sh

mkdir "$scratch/locales"
LOCPATH=$scratch/locales
export LOCPATH
for name in de_DE tr_TR; do
    localedef -i $name -f UTF-8 "$LOCPATH/$name.UTF-8" > "$scratch/io/localedef" 2>&1
done
# A locale is in effect: its decimal point is a comma.
has_locale() { [ "$(LC_ALL=$1 locale decimal_point 2> /dev/null)" = , ]; }
if ! has_locale de_DE.UTF-8 || ! has_locale tr_TR.UTF-8; then
    begin 'three locales'
    skip 'localedef makes no de_DE or tr_TR; on Debian: apt-get install locales'
    finish
fi
edit plan2.json 's/"micro_batch": 2/"micro_batch": 1/; s/"n_micro_batches": 2/"n_micro_batches": 4/' > small.json
mkdir "$scratch/C"

# same NAME FILES COMMAND...: exit 0, and stdout, stderr and FILES are what they are in C.
same() {
    name=$1 files=$2
    shift 2
    for locale in C de_DE.UTF-8 tr_TR.UTF-8; do
        begin "$name: $locale"
        run env "LC_ALL=$locale" "$@"
        expect_exit 0
        for file in "$out" "$err" $files; do
            if [ "$locale" = C ]; then
                cp "$file" "$scratch/C/$(basename "$file")" || fail "no $file"
            else
                expect_same "$file" "$scratch/C/$(basename "$file")"
            fi
        done
        # shellcheck disable=SC2086
        rm -f $files
    done
}
sim=$MIST_BUILD/mist-sim tune=$MIST_BUILD/mist-tune plot=$MIST_BUILD/mist-plot exec=$MIST_BUILD/mist-exec
same 'mist-sim: table, timeline, Chrome trace' 'out.csv out.json' \
    "$sim" small.json -o out.csv --chrome out.json --jitter 0.01
same 'mist-sim: JSON and edits with decimals' '' \
    "$sim" plan2.json --json --what-if kernel.all=0.75x,link.all=1.5x --what-if rank.1=1.25x
same 'mist-sim: CSV of a sweep' '' "$sim" plan2.json --csv --sweep kernel.attention=0.5x:1.5x
run mist-sim plan2.json -q -o whole.csv
same 'mist-sim: a comparison' '' "$sim" plan2.json --compare whole.csv
same 'mist-tune: plan, search log, frontiers' 'best.json log.csv front.csv' sh -c \
    '"$@" > searched.txt; code=$?; rm searched.txt; exit $code' sh \
    "$tune" --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --space 3d --top 2 \
    --device-memory 1.5GiB -o best.json --log log.csv --pareto front.csv
same 'mist-tune: the space as JSON' '' \
    "$tune" --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 -n --json
for kind in 'timeline timeline.csv --from 1ms --to 0.005s' 'memory timeline.csv --limit 1.5GiB' 'compare compare.csv' \
    'pareto pareto.csv' 'links links_fit.csv'; do
    # shellcheck disable=SC2086
    same "mist-plot in the terminal: $kind" '' "$plot" $kind
    # shellcheck disable=SC2086
    same "mist-plot: $kind" out.svg "$plot" $kind -o out.svg
done
same 'mist-plot: a Chrome trace' out.json "$plot" chrome timeline.csv -o out.json
same 'mist-exec: a plan that is checked' '' "$exec" -n plan.json --lr 0.0015
# Times differ from run to run; steps, losses, norms and rates don't.
same 'mist-exec: losses' 'losses.csv' sh -c \
    '"$@" --log all.csv > /dev/null && cut -d, -f1-4 all.csv > losses.csv; code=$?; rm all.csv; exit $code' sh \
    "$exec" -q --iterations 2 --lr 0.0015 plan.json
same 'mist-exec: losses as JSON' 'losses.txt' sh -c \
    '"$@" --log all.jsonl > /dev/null && grep -o "\"loss\": *[0-9.]*" all.jsonl > losses.txt; code=$?; rm all.jsonl; exit $code' sh \
    "$exec" -q --iterations 2 --lr 0.0015 plan.json
finish

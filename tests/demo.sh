#!/bin/sh
# The whole loop on this machine: profile, tune, simulate, train, compare, plot.
#
#   tests/demo.sh DIR     writes everything into DIR (replaced)
set -eu
out=$1
build=${MIST_BUILD:-build}
here=$(dirname "$0")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
started=$(date +%s)

step() { printf '\n== %s\n' "$*"; }
run() { printf '$ %s\n' "$*" | sed "s#$build/##g"; "$@"; }
into() { # FILE COMMAND...
    file=$1
    shift
    printf '$ %s > %s\n' "$*" "$file" | sed "s#$build/##g"
    "$@" > "$file"
}

mkdir -p "$out"
run "$build/mist-profile" --backend cpu --quick --force -o "$out/traces"
step "the best plan for 2 ranks with ${MIST_DEMO_MEMORY:=96MiB} of device memory each, of the 4 best as measured"
run "$build/mist-tune" --model gpt3-demo --cluster "$out/traces" --ranks 2 --global-batch 16 \
    --seq-len 128 --device-memory "$MIST_DEMO_MEMORY" --verify 4 --log "$out/search.csv" \
    --pareto "$out/pareto.csv" --force -o "$out/plan.json"
step "what the plan will do"
run "$build/mist-sim" "$out/plan.json" --unfolded -o "$out/predicted.csv" --force
step "30 iterations of training"
run mpirun -n 2 "$build/mist-exec" "$out/plan.json" --iterations 30 \
    --timeline "$out/measured.csv" --log "$out/losses.csv" --force
step "predicted beside measured"
run "$build/mist-sim" "$out/plan.json" --compare "$out/measured.csv" > "$out/report.txt"
cat "$out/report.txt"
step "other plans, predicted and measured"
rm -rf "$out/plans"
run "$build/mist-tune" --model gpt3-demo --cluster "$out/traces" --ranks 2 --global-batch 16 \
    --seq-len 128 --device-memory 250MiB --plans "$out/plans" --sample-plans 8 --force
run "$here/accuracy.sh" "$out/plans" "$out/compare.csv" > "$out/accuracy.txt"
cat "$out/accuracy.txt"
step "pictures"
# of the measured iterations the last one, as long as the predicted one
awk -F, 'NR == 1 || $6 == 29' "$out/measured.csv" > "$out/measured_last.csv"
run "$build/mist-plot" timeline "$out/predicted.csv" "$out/measured_last.csv" \
    --title "gpt3-demo on 2 ranks: predicted and measured" -o "$out/timeline.png" --force
run "$build/mist-plot" memory "$out/measured.csv" --limit "$MIST_DEMO_MEMORY" -o "$out/memory.png" --force
run "$build/mist-plot" compare "$out/compare.csv" -o "$out/compare.png" --force
run "$build/mist-plot" pareto "$out/pareto.csv" -o "$out/pareto.png" --force
into "$out/breakdown.csv" "$build/mist-sim" "$out/plan.json" --explain --csv
into "$out/differences.csv" "$build/mist-sim" "$out/plan.json" --compare "$out/measured.csv" --csv
into "$out/links.csv" "$build/mist-sim" --list --cluster "$out/traces" --csv
for kind in breakdown differences links; do
    run "$build/mist-plot" $kind "$out/$kind.csv" -o "$out/$kind.png" --force
done
run "$build/mist-plot" timeline "$out/measured_last.csv" -o -
step "done in $(($(date +%s) - started)) s; see $out/report.txt and the pictures, $out/*.png"

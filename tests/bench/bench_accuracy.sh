#!/bin/sh
# How well predictions hold on this machine: profiles it, draws 48 plans for gpt3-demo on 2 ranks from the
# whole space, runs each and compares the iteration times, by kind of plan. Takes about 10 minutes; the
# machine should have nothing else to do.
set -eu
build=${MIST_BUILD:-build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/mist-profile" --backend cpu --quick -q -o "$folder/traces" > /dev/null
"$build/mist-tune" --model gpt3-demo --cluster "$folder/traces" --ranks 2 --global-batch 16 --seq-len 128 \
    --device-memory 250MiB --plans "$folder/plans" --sample-plans 48 --seed 3 > "$folder/table.txt"
cat "$folder/table.txt"
"$(dirname "$0")/../accuracy.sh" "$folder/plans" "$folder/compare.csv" 6

#!/bin/sh
# That predictions hold on the machine they were made on, roughly: profiles it for 12 s, draws eight plans of all
# kinds for 2 ranks, runs them and compares (accuracy.sh). The median error, at the level of probes or as the plans say
# it, has to be below LIMIT %, which a machine with other work passes and a broken model does not; above it everything
# is done once more, since times are not ours to command. Part of `make test`, alone on the machine.
set -eu
LIMIT=15
build=${MIST_BUILD:-build}
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

if [ "$(nproc)" -lt 2 ]; then
    echo "predictions: skipped: two ranks need two processors, this machine has $(nproc)"
    exit 0
fi
for attempt in 1 2; do
    "$build/mist-profile" --backend cpu --quick --seconds 12 -q --force -o "$folder/traces" > "$folder/profile.txt"
    "$build/mist-tune" --model gpt3-demo --cluster "$folder/traces" --ranks 2 --global-batch 16 --seq-len 128 \
        --device-memory 250MiB --plans "$folder/plans" --sample-plans 8 --force > "$folder/table.txt"
    "$here/accuracy.sh" "$folder/plans" "$folder/compare.csv" 6 1 > "$folder/accuracy.txt"
    tail -n 2 "$folder/accuracy.txt"
    median=$(sed -n 's/^[0-9]* plans\(, without probes\)*: median error \([0-9.]*\) %.*/\2/p' "$folder/accuracy.txt" |
        sort -n | head -n 1)
    if awk -v m="${median:-1e9}" -v limit=$LIMIT 'BEGIN { exit !(m < limit) }'; then exit 0; fi
    [ $attempt = 2 ] || echo "predictions: the median error of $median % is not below $LIMIT %: once more" >&2
done
cat "$folder/accuracy.txt" >&2
echo "predictions: the median error of $median % is not below $LIMIT %" >&2
exit 1

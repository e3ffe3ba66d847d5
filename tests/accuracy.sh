#!/bin/sh
# Runs every plan of a folder and compares the predicted with the measured iteration time.
#
#   tests/accuracy.sh PLANS OUT.csv [ITERATIONS]
#
# Writes OUT.csv (plan,predicted_s,measured_s,error_bar_s: what mist-plot compare draws) and prints the
# table, the median and the worst absolute error, and Kendall's tau of the order of the plans.
set -eu
plans=$1 out=$2 iterations=${3:-8}
build=${MIST_BUILD:-build}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$2" | head -n 1; }

result=$(mktemp)
trap 'rm -f "$result"' EXIT
echo plan,predicted_s,measured_s,error_bar_s > "$out"
for plan in "$plans"/*.json; do
    name=$(basename "$plan" .json)
    ranks=$("$build/mist-exec" --dry-run "$plan" 2>&1 | sed -n 's/.*the plan needs \([0-9]*\) ranks.*/\1/p')
    if [ "${ranks:-1}" -gt 1 ]; then launch="mpirun -n $ranks"; else launch=; fi
    # shellcheck disable=SC2086
    $launch "$build/mist-exec" "$plan" -q --json --iterations "$iterations" > "$result"
    echo "$name,$(value predicted_iteration_s "$result"),$(value iteration_s "$result"),$(value predicted_error_s "$result")" >> "$out"
done
awk -F, '
    NR == 1 { printf "%-40s %12s %12s %9s\n", "plan", "predicted ms", "measured ms", "error %"; next }
    {
        n++; p[n] = $2; m[n] = $3; e[n] = 100 * ($2 / $3 - 1); a[n] = e[n] < 0 ? -e[n] : e[n]
        printf "%-40s %12.1f %12.1f %+9.1f\n", $1, $2 * 1e3, $3 * 1e3, e[n]
    }
    END {
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) {
            s = (p[i] - p[j]) * (m[i] - m[j]); pairs++; tau += s > 0 ? 1 : s < 0 ? -1 : 0
        }
        for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j >= 1 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
        median = n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
        printf "%d plans: median error %.1f %%, worst %.1f %%, Kendall tau %.2f\n", n, median, a[n], pairs ? tau / pairs : 1
    }' "$out"

#!/bin/sh
# Runs every plan of a folder and compares the predicted with the measured iteration time.
#
#   tests/accuracy.sh PLANS OUT.csv [ITERATIONS [ROUNDS]]
#
# Every plan is run in every round (2), with probes between its steps. What is predicted and what is measured are means of
# the rounds: the best of them by either would be off to one side. Writes OUT.csv (plan,predicted_s,measured_s,error_bar_s: what
# mist-plot compare draws), predicted_s being at the level of the machine that the probes found; where the plan has
# no probe, as the plan says it. Prints the table, the errors by kind (of all plans with tensor parallelism, with
# ZeRO-3, and so on), and the median and the worst absolute error and Kendall's tau of the order of the plans, first
# at the level of the probes, then as the plans say it. Pairs of plans that take the same time within 2 % have no
# order and are left out of tau. A plan that can't be run is said and left out.
set -eu
plans=$1 out=$2 iterations=${3:-8} rounds=${4:-2}
build=${MIST_BUILD:-build}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$2" | head -n 1; }

# The words of tune/plan_label.h for plan.json; of what differs between stages the most.
label() {
    awk '
        function text() { v = $2; gsub(/[",]/, "", v); return v }
        function most(key) { if (text() + 0 > top[key]) top[key] = text() + 0 }
        $1 == "\"stages\":" { part++ }
        $1 == "\"pipeline\":" { pipeline = text() }
        $1 == "\"layers\":" && part == 1 { n_stages++ }
        $1 == "\"dp\":" { most("dp") }
        $1 == "\"tp\":" { most("tp") }
        $1 == "\"zero\":" { most("z") }
        $1 == "\"sequence_parallel\":" && text() == "true" { sequence = 1 }
        $1 == "\"checkpointed_layers\":" { most("ck") }
        $1 == "\"lean_layers\":" { most("ln") }
        $1 == "\"offload_weights_frac\":" { most("ow") }
        $1 == "\"offload_gradients_frac\":" { most("og") }
        $1 == "\"offload_optimizer_frac\":" { most("oo") }
        $1 == "\"offload_activations_frac\":" { most("oa") }
        END {
            s = n_stages > 1 ? " S" n_stages : ""
            if (top["dp"] > 1) s = s " dp" top["dp"]
            if (top["tp"] > 1) s = s " tp" top["tp"]
            if (sequence) s = s " sp"
            if (top["z"] > 0) s = s " z" top["z"]
            split("ow og oo oa", names, " ")
            for (i = 1; i <= 4; i++) if (top[names[i]] > 0) {
                ratio = sprintf("%.3g", top[names[i]]); sub(/^0/, "", ratio); s = s " " names[i] ratio
            }
            if (top["ck"] > 0) s = s " ck"
            if (top["ln"] > 0) s = s " ln"
            if (pipeline != "1f1b") s = s " " pipeline
            print s == "" ? "S1" : substr(s, 2)
        }' "$1"
}

result=$(mktemp) both=$(mktemp) means=$(mktemp)
trap 'rm -f "$result" "$both" "$means"' EXIT

for round in $(seq "$rounds"); do
    for plan in "$plans"/*.json; do
        name="$(basename "$plan" .json) $(label "$plan")"
        ranks=$("$build/mist-exec" --dry-run "$plan" 2>&1 | sed -n 's/.*the plan needs \([0-9]*\) ranks.*/\1/p')
        if [ "${ranks:-1}" -gt 1 ]; then launch="mpirun -n $ranks"; else launch=; fi
        # shellcheck disable=SC2086
        if ! $launch "$build/mist-exec" "$plan" -q --json --probe --iterations "$iterations" > "$result"; then
            [ "$round" = 1 ] && echo "$name: mist-exec failed" >&2
            continue
        fi
        raw=$(value predicted_iteration_s "$result") at_level=$(value predicted_at_level_s "$result")
        echo "$name,${at_level:-$raw},$(value iteration_s "$result"),$(value predicted_error_s "$result"),$raw"
    done
done > "$both"
awk -F, -v OFS=, '
    BEGIN { print "plan", "predicted_s", "measured_s", "error_bar_s", "raw_s" }
    !($1 in n_runs) { order[++n] = $1 }
    { n_runs[$1]++; for (f = 2; f <= 5; f++) sum[$1, f] += $f }
    END {
        for (i = 1; i <= n; i++) {
            printf "%s", order[i]
            for (f = 2; f <= 5; f++) printf ",%.9g", sum[order[i], f] / n_runs[order[i]]
            print ""
        }
    }' "$both" > "$means"
cut -d, -f1-4 "$means" > "$out"
awk -F, '
    function sort(a, n,  i, j, x) {
        for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j >= 1 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
    }
    function middle(a, n) { return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2 }
    function kind_line(name, what,  k, i, c, list, words, sum) {
        for (i = 1; i <= n; i++) {
            words = " " kind[i] " "
            if (words ~ what) { list[++c] = a[i]; sum += e[i] }
        }
        if (c == 0) return
        sort(list, c)
        printf "%-28s %5d %9.1f %9.1f %+9.1f\n", name, c, middle(list, c), list[c], sum / c
    }
    # Kendall tau of predictions p[n] and m[n].
    function tau(p,  i, j, s, pairs, sum) {
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) {
            if (m[i] < 1.02 * m[j] && m[j] < 1.02 * m[i]) continue
            s = (p[i] - p[j]) * (m[i] - m[j]); pairs++; sum += s > 0 ? 1 : s < 0 ? -1 : 0
        }
        return pairs ? sum / pairs : 1
    }
    # Median and worst error of predictions p[n], and tau.
    function verdict(p,  i, sorted, x) {
        for (i = 1; i <= n; i++) { x = 100 * (p[i] / m[i] - 1); sorted[i] = x < 0 ? -x : x }
        sort(sorted, n)
        return sprintf("median error %.1f %%, worst %.1f %%, Kendall tau %.2f", middle(sorted, n), sorted[n], tau(p))
    }
    NR == 1 { printf "%-44s %12s %12s %9s\n", "plan", "predicted ms", "measured ms", "error %"; next }
    {
        n++; p[n] = $2; m[n] = $3; raw[n] = $5; e[n] = 100 * ($2 / $3 - 1); a[n] = e[n] < 0 ? -e[n] : e[n]
        kind[n] = $1; sub(/^[^ ]* /, "", kind[n])
        bars += $4 > 0 && ($2 - $3) * ($2 - $3) <= $4 * $4
        printf "%-44s %12.1f %12.1f %+9.1f\n", $1, $2 * 1e3, $3 * 1e3, e[n]
    }
    END {
        if (n == 0) { print "no plan was run"; exit 1 }
        printf "\n%-28s %5s %9s %9s %9s\n", "kind", "plans", "median %", "worst %", "mean %"
        kind_line("one stage", "^ [^S]| S1 ")
        kind_line("pipeline", " S([2-9]|1[0-9])")
        kind_line("pipeline, 1f1b", "^ S([2-9]|1[0-9])[^_]*$")
        kind_line("pipeline, zb_h1", " zb_h1 ")
        kind_line("pipeline, zb_v", " zb_v ")
        kind_line("pipeline, interleaved", " interleaved ")
        kind_line("data parallel", " dp")
        kind_line("tensor parallel", " tp")
        kind_line("sequence parallel", " sp ")
        kind_line("ZeRO-1", " z1 ")
        kind_line("ZeRO-2", " z2 ")
        kind_line("ZeRO-3", " z3 ")
        kind_line("offload weights", " ow")
        kind_line("offload gradients", " og")
        kind_line("offload optimizer", " oo")
        kind_line("offload activations", " oa")
        kind_line("checkpointing", " ck ")
        kind_line("lean blocks", " ln ")
        printf "\n%d plans: %s, %.0f %% within the error bars\n", n, verdict(p), 100 * bars / n
        printf "%d plans, without probes: %s\n", n, verdict(raw)
    }' "$means"

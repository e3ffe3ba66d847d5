#!/bin/sh
# identical.sh FOLDER FOLDER...: what the tools of the first folder print and write, the tools
# of the others have to print and write, byte for byte, whatever compiler made them, at
# whatever level of optimisation, and with any number of threads. Speaks TAP.
#
# Left out of the comparison is what was measured: times of day, rates and spans.
. tests/cli/lib.sh
first=$1

# results FOLDER THREADS DIR: small jobs of the three tools that compute, into DIR.
results() {
    tools=$1 threads=$2 dir=$3
    mkdir "$dir"
    "$tools/mist-tune" --model gpt3-demo --cluster traces --ranks 2 --global-batch 16 --seq-len 128 -j "$threads" \
        --json --log "$dir/search.csv" --pareto "$dir/pareto.csv" -o "$dir/tuned.json" > "$dir/tune" 2> /dev/null
    echo "$?" >> "$dir/codes"
    for plan in plan.json plan2.json; do
        name=$(basename $plan .json)
        for how in '' '--jitter 0.1 --seed 3' '--what-if link.all=2x,kernel.attention=0.7x'; do
            # shellcheck disable=SC2086 # options
            "$tools/mist-sim" $plan $how --json >> "$dir/$name.sim" 2> /dev/null
            echo "$?" >> "$dir/codes"
        done
        "$tools/mist-sim" $plan --unfolded -o "$dir/$name.timeline.csv" --chrome "$dir/$name.trace.json" > /dev/null 2>&1
        echo "$?" >> "$dir/codes"
    done
    "$tools/mist-exec" plan.json --threads "$threads" --data text:text.txt --iterations 3 --checkpoint "$dir/run" \
        --log "$dir/losses.csv" --export "$dir/weights" > /dev/null 2> "$dir/exec.err" ||
        cat "$dir/exec.err"
    echo "$?" >> "$dir/codes"
    rm -f "$dir/exec.err"
    # what a step took is measured; the first four columns are not
    [ -f "$dir/losses.csv" ] && untimed "$dir/losses.csv" > "$dir/losses"
    rm -rf "$dir/losses.csv" "$dir/run"
}

# untimed CSV: without the columns that were measured, by name.
untimed() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i !~ /_s$|per_s|time|bytes/) keep[i] = 1 }
        { line = ""; for (i = 1; i <= NF; i++) if (keep[i]) line = line $i ","; print line }' "$1"
}

# Times that searching took are in what mist-tune prints.
settle() { sed -E 's/"(search|elapsed|wall|replay|solve|total)[a-z_]*_s": *[-+0-9.e]+/"\1_s": 0/' "$1"; }

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 200 > text.txt
results "$first" 1 one
for tools in "$@"; do
    for threads in 1 2 3 4; do
        [ "$tools" = "$first" ] && [ $threads -eq 1 ] && continue
        # corners take time: the first folder with all counts, the others with 1 and 3
        [ "$tools" != "$first" ] && [ $((threads % 2)) -eq 0 ] && continue
        begin "$(basename "$tools"), $threads threads"
        command_line="$tools, $threads threads"
        rm -rf other
        results "$tools" $threads other
        for file in $(cd one && find . -type f | sort); do
            settle "one/$file" > a
            settle "other/$file" > b
            cmp -s a b || fail "$file: $(diff a b | head -n 4)"
        done
    done
done
begin 'there was something to compare'
[ "$(grep -c '^0$' one/codes)" -ge 10 ] || fail "exit codes: $(tr '\n' ' ' < one/codes)"
[ -s one/losses ] && [ -s one/weights/model.safetensors ] || fail 'mist-exec wrote nothing'
finish

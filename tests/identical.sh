#!/bin/sh
# identical.sh FOLDER FOLDER...: what the tools of the first folder print and write with one
# thread, the tools of all folders have to print and write, byte for byte, with 1 to 4: one
# result whatever compiler made them, at whatever level of optimisation. Speaks TAP.
#
# Left out, by name, are what was measured (spans, rates, resident memory), what a plan says of
# the count of threads (that, and the memory they need), and a run's random id with the sums that
# it is part of.
. tests/cli/lib.sh
first=$1
tools=

# note NAME COMMAND...: stdout, stderr and exit code, in $into.
note() {
    name=$1
    shift
    "$@" > "$into/$name.out" 2> "$into/$name.err" < /dev/null
    echo "$name $?" >> "$into/codes"
}

# ------------------------------------------------------------------ jobs that don't train

simulate() { # THREADS: of no matter
    for plan in plan plan2 offloads; do
        note $plan "$tools/mist-sim" $plan.json --unfolded -o "$into/$plan.csv" --chrome "$into/$plan.trace.json"
        note $plan.json "$tools/mist-sim" $plan.json --json --jitter 0.1 --seed 3
        note $plan.what_if "$tools/mist-sim" $plan.json --json --what-if link.all=1.7x,kernel.attention=0.7x
        note $plan.sweep "$tools/mist-sim" $plan.json --csv --sweep launch=0.5x:3x --threads 4
    done
    note compare "$tools/mist-sim" plan2.json --compare "$into/plan2.csv" --json
}

plot() {
    for kind in 'timeline timeline.csv' 'memory timeline.csv --limit 1.5GiB' 'compare compare.csv' 'pareto pareto.csv' \
        'links links_fit.csv'; do
        note "${kind%% *}" "$tools/mist-plot" $kind -o "$into/${kind%% *}.svg"
    done
    note terminal "$tools/mist-plot" timeline timeline.csv
    note chrome "$tools/mist-plot" chrome timeline.csv -o "$into/chrome.json"
}

tune() { # THREADS
    job="--model gpt3-demo --cluster traces --ranks 2 --global-batch 16 --seq-len 128 --progress never"
    note best "$tools/mist-tune" $job -j "$1" --json --log "$into/search.csv" --pareto "$into/pareto.csv" -o "$into/best.json"
    note small "$tools/mist-tune" $job -j "$1" --device-memory 90MiB --log "$into/small.csv" -o "$into/small.json"
    note plans "$tools/mist-tune" $job -j "$1" --plans "$into/plans" --sample-plans 5 --seed 3
    sed -i '/^time of the search /d' "$into/small.out" "$into/plans.out"
}

# ------------------------------------------------------------------------- jobs that train

# without NAMES CSV: the table without these columns.
without() {
    awk -F, -v names=",$1," 'NR == 1 { for (i = 1; i <= NF; i++) drop[i] = index(names, "," $i ",") }
        { line = ""; for (i = 1; i <= NF; i++) if (!drop[i]) line = line $i ","; print line }' "$2"
}

# payload FILE: a rank's file of a checkpoint (exec/checkpoint/checkpoint_internal.h) without the run's id
# and without the last sum, which the id is part of.
payload() {
    head -c 32 "$1"
    tail -c +41 "$1" | head -c -16
    tail -c 8 "$1"
}

# train PLAN THREADS COMMAND...: COMMAND starts the ranks of the plan.
train() {
    plan=$1 threads=$2
    shift 2
    mkdir "$into/$plan"
    "$@" "$tools/mist-exec" $plan.json --backend cpu --threads "$threads" --data text:text.txt --iterations 2 --warm-up 1 \
        --lr-min 0.0001 --validation-frac 0.2 --validation-batches 1 --checkpoint run --json \
        --log losses.csv --timeline tasks.csv --export "$into/$plan/weights" > "$scratch/io/report" 2> "$err" < /dev/null
    echo "$plan $?" >> "$into/codes"
    grep -Ev '"(start_s|iteration_s|tokens_per_s|mfu_frac|resident_bytes|products|planned_bytes|allocated_bytes)":' \
        "$scratch/io/report" > "$into/$plan/report"
    without step_s,tokens_per_s losses.csv > "$into/$plan/losses"
    without start_s,end_s,device_live_bytes tasks.csv | sort > "$into/$plan/tasks" # were in the order of their times
    for step in run/step-*; do
        grep -Ev '"(checksum|run|table_checksum)":' "$step/manifest.json" > "$into/$plan/${step#run/}.manifest"
        for file in "$step"/rank-*; do
            payload "$file" > "$into/$plan/${step#run/}.$(basename "$file")"
        done
    done
    rm -rf run losses.csv tasks.csv
}

train_alone() { # THREADS
    train gpt "$1"
    train llama "$1"
}

train_together() { # THREADS
    for plan in dp2_gpt dp2_llama tp2_gpt tp2_llama pp2_gpt pp2_llama; do
        train $plan "$1" mpirun --oversubscribe -n 2
    done
}

edit plan.json 's/"mesh_devices": 1/"mesh_devices": 2/; s/"tp": 1/"tp": 2, "sequence_parallel": true/; s/frac": 0.0/frac": 0.3/' \
    > offloads.json
# GPT in fp32, and Llama in bf16 with odd widths, grouped queries and half of all in the host's memory.
write_text > text.txt
edit plan.json 's/layers": 12/layers": 2/; s/"max_seq": 1024/"max_seq": 128/' > gpt.json
llama='s/"gpt"/"llama"/; s/"hidden": 256/"hidden": 96/; s/"head_dim": 64/"head_dim": 24/; s/"n_kv_heads": 4/"n_kv_heads": 2/
    s/"ffn": 1024/"ffn": 250/; s/"max_seq": 128/"max_seq": 0/; s/"has_bias": true/"has_bias": false/
    s/"rope_theta": 0.0/"rope_theta": 10000.0/; s/"fp32"/"bf16", "gradient_dtype": "bf16"/
    s/frac": 0.0/frac": 0.5/; s/checkpointed_layers": 0/checkpointed_layers": 1/'
edit gpt.json "$llama" > llama.json
small='s/"hidden": 256/"hidden": 64/; s/"head_dim": 64/"head_dim": 16/; s/"ffn": 1024/"ffn": 200/; s/"seq_len": 128/"seq_len": 64/'
edit gpt.json "$small" > small_gpt.json
edit llama.json 's/"seq_len": 128/"seq_len": 64/' > small_llama.json
for model in gpt llama; do
    edit small_$model.json 's/"mesh_devices": 1/"mesh_devices": 2/; s/"dp": 1/"dp": 2/; s/"micro_batch": 2/"micro_batch": 1/
        s/"zero": 0/"zero": 3/' > dp2_$model.json
    edit small_$model.json 's/"mesh_devices": 1/"mesh_devices": 2/; s/"tp": 1/"tp": 2, "sequence_parallel": true/' > tp2_$model.json
done
edit plan2.json "s/layers\": 12/layers\": 2/; s/\"layers\": 6/\"layers\": 1/; s/\"max_seq\": 1024/\"max_seq\": 128/" > wide_pp2.json
edit wide_pp2.json "$small; s/1f1b/zb_h1/" > pp2_gpt.json
edit wide_pp2.json "$llama; s/\"seq_len\": 128/\"seq_len\": 64/; s/n_layers\": 2/n_layers\": 4/; s/\"layers\": 1/\"layers\": 2/
    s/1f1b/zb_v/" > pp2_llama.json

# ---------------------------------------------------------------------------- comparisons

# compare WHAT JOB THREADS: of $tools with the first folder's, one thread.
compare() {
    begin "$(basename "$tools"): $1"
    into=other/$2 # as deep: plans say where their trace set lies from there
    mkdir -p "$into"
    $2 "$3"
    command_line="$tools: $2, $3 threads"
    diff -r "reference/$2" "$into" > "$scratch/io/differences" 2>&1 || fail "$(head -n 5 "$scratch/io/differences")"
    rm -rf other
}

tools=$first
begin 'there is something to compare'
for job in simulate plot tune train_alone train_together; do
    into=reference/$job
    mkdir -p "$into"
    command_line=$job
    $job 1
    grep -v ' 0$' "$into/codes" && fail "these failed"
done
grep -q loss_last reference/train_together/tp2_llama/report || fail "no report: $(cat "$err")"
expect_file reference/train_together/tp2_llama/step-00000002.rank-00001.bin
expect_file reference/train_together/tp2_llama/weights/model.safetensors

place=0
for tools in "$@"; do
    place=$((place + 1))
    if [ "$tools" != "$first" ]; then
        compare 'mist-sim' simulate 1
        compare 'mist-plot' plot 1
        compare "mist-exec on two ranks of $place threads" train_together $place
    fi
    for threads in 1 2 3 4; do
        [ "$tools" = "$first" ] && [ $threads -eq 1 ] && continue
        compare "mist-tune, $threads threads" tune $threads
        compare "mist-exec, $threads threads" train_alone $threads
    done
done
tools=$first
compare 'mist-exec on two ranks of 4 threads' train_together 4
finish

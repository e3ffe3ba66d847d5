#!/bin/sh
# A random rank is killed at a random moment of a run that saves often: the job ends within 30 s and says
# which rank it was, nothing of it is left running, no checkpoint is lost, all are whole, and the run that goes on
# from the newest has the losses of one that was never interrupted, bit for bit.
# Only the launcher may outlive its ranks: see below.
# MIST_KILLS: how many times (6); MIST_SEED: of the moments (1).
. tests/cli/lib.sh

kills=${MIST_KILLS:-6} seed=${MIST_SEED:-1} steps=400
say "MIST_KILLS=$kills MIST_SEED=$seed"
if [ ! -r /proc/self/task/self/children ] && [ ! -r /proc/$$/task/$$/children ]; then
    echo '1..0 # SKIP no /proc/PID/task/PID/children here'
    exit 0
fi

tiny plan2.json > pipeline.json
tiny plan.json | sed 's/"mesh_devices": 1/"mesh_devices": 2/; s/"dp": 1/"dp": 2/; s/"zero": 0/"zero": 1/
    s/"micro_batch": 2/"micro_batch": 1/' > sharded.json
launch="mpirun --oversubscribe --bind-to none -n 2 $MIST_BUILD/mist-exec"

# A random number of 0 .. N-1, by seed and place.
draw() { awk -v s="$seed" -v i="$1" -v n="$2" 'BEGIN { srand(s * 1000003 + i); rand(); print int(rand() * n) }'; }
now_ms() { date +%s%3N; }

for plan in pipeline sharded; do
    begin "$plan: a run that is left alone"
    start=$(now_ms)
    run $launch $plan.json -q --iterations $steps --checkpoint alone --save-every 3 --log $plan.csv
    duration=$(($(now_ms) - start))
    expect_exit 0
    rm -rf alone
done

# True while one of the processes runs (one that nobody has waited for does not).
any_runs() {
    for pid; do
        case $(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null) in '' | Z* | X*) ;; *) return 0 ;; esac
    done
    return 1
}

last=$(printf 'run/step-%08d' $steps)
newest() { ls -d run/step-*[0-9] 2> /dev/null | tail -n 1; } # by name: of the highest step

# Runs the plan in the background, kills a rank after $1 ms; $code as of run, $took in ms, $before: the
# newest checkpoint at that moment.
run_and_kill() {
    command_line="$launch $plan.json, a rank killed after $1 ms"
    $launch $plan.json -q --iterations $steps --checkpoint run --save-every 3 --log log.csv \
        > "$out" 2> "$err" < /dev/null &
    job=$!
    case $1 in
    last) until [ -e "$last" ] || ! any_runs $job; do :; done ;;
    *) sleep "$(awk -v t="$1" 'BEGIN { print t / 1000 }')" ;;
    esac
    before=$(newest)
    ranks=$(cat /proc/$job/task/$job/children 2> /dev/null)
    # shellcheck disable=SC2086
    set -- $ranks
    [ $# -eq 0 ] || shift "$(draw $((2 * i + 1)) $#)"
    victim=${1:-}
    [ -z "$victim" ] || kill -9 "$victim" 2> /dev/null || victim=
    # a job without a victim goes on to its end
    [ -n "$victim" ] && limit=30000 || limit=600000
    start=$(now_ms)
    # shellcheck disable=SC2086
    while any_runs $job $ranks && [ $(($(now_ms) - start)) -lt $limit ]; do sleep 0.05; done
    took=$(($(now_ms) - start))
    # Open MPI's launcher may deadlock in PMIx_server_finalize() when a rank died while it was connecting; its
    # ranks are gone then, and it has said who died
    # shellcheck disable=SC2086
    if [ $took -ge $limit ] && ! any_runs $ranks && grep -q 'PMIX ERROR: UNREACHABLE' "$err"; then
        stuck=$((stuck + 1)) took=0
    fi
    kill -9 $job 2> /dev/null
    wait $job 2> /dev/null
    code=$?
    cp "$err" "$scratch/io/killed"
}

# What there is to know about a kill that came out wrong.
explain() {
    [ -n "$case_fails" ] || return 0
    say "kill $((i + 1)): victim ${victim:-none} of [$ranks], job $job ended with $killed_code after $took ms"
    say "newest checkpoint at the kill: ${before:-none}; now: $(newest)"
    say "the folder: $(find run -printf '%P ' 2> /dev/null)"
    say "lines of the log: $(wc -l < log.csv 2> /dev/null), of the whole run: $(wc -l < $plan.csv)"
    say "load: $(cat /proc/loadavg)"
    say 'the killed job said:'
    head -n 30 "$scratch/io/killed" | sed 's/^/#   /'
    say "the last command ($command_line) ended with $code and said:"
    head -n 30 "$err" | sed 's/^/#   /'
}

# One kill, at a moment in ms or after the last checkpoint.
try() {
    rm -rf run log.csv
    run_and_kill "$1"
    killed_code=$code
    [ $took -lt $limit ] || fail "the job had not ended $took ms after the kill"
    [ -z "$victim" ] || [ $took -le $slowest ] || slowest=$took
    if [ "$code" -eq 0 ]; then # it was over before
        over=$((over + 1))
    else
        [ -z "$victim" ] || expect_stderr 'rank [01] .*signal 9'
        after=$(newest)
        if [ "$(printf '%s\n' "$before" "$after" | sort | tail -n 1)" != "$after" ]; then
            lost=$((lost + 1))
            fail "$before is gone"
        fi
        if [ -n "$after" ]; then
            run mist-exec --verify run
            [ "$code" -eq 0 ] || lost=$((lost + 1))
            expect_exit 0
        fi
        run $launch $plan.json -q --iterations $steps --resume run --checkpoint run --save-every 50 --log log.csv
        if [ "$code" -eq 0 ]; then
            resumed=$((resumed + 1))
        else # killed before the first checkpoint
            [ -z "$after" ] || fail "exit code $code with $after: $(head -n 3 "$err")"
            restarted=$((restarted + 1))
            rm -rf run log.csv
            run $launch $plan.json -q --iterations $steps --checkpoint run --save-every 50 --log log.csv
        fi
        expect_exit 0
    fi
    if [ "$(losses log.csv)" != "$(losses $plan.csv)" ]; then fail 'losses differ'; fi
    explain
}

i=0 resumed=0 restarted=0 over=0 stuck=0 slowest=0 lost=0
while [ $i -lt "$kills" ]; do
    [ $((i % 2)) -eq 0 ] && plan=pipeline || plan=sharded
    begin "$plan: kill $((i + 1))"
    try "$(draw $((2 * i)) $duration)"
    i=$((i + 1))
done
for plan in pipeline sharded; do
    begin "$plan: a kill between the last checkpoint and the end"
    try last
    i=$((i + 1))
done
end_case
say "$i kills: $resumed runs went on from a checkpoint, $restarted had none yet," \
    "$over were over; $lost checkpoints lost; the slowest job ended $slowest ms after its kill;" \
    "$stuck times mpirun itself did not end"
finish

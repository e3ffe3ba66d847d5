#!/bin/sh
# What signals leave: SIGTERM and SIGUSR1, which schedulers send before the time limit, and SIGINT save what
# there is and end with 128 + n; SIGXFSZ, the limit of a file's size, is a failed write.
. tests/cli/lib.sh

tiny_inputs
options='--data text.txt --iterations 1000000 --resume auto --checkpoint run --log log.csv'

# wait_for PATTERN FILE: until a line matches; at most five minutes.
wait_for() {
    i=0
    while ! grep -q "$1" "$2" 2> /dev/null && [ $((i += 1)) -lt 3000 ]; do sleep 0.1; done
    grep -q "$1" "$2" || fail "nothing in $2 matches $1: $(head -n 5 "$err")"
}

# start COMMAND...: in the background, as $pid; under nohup, too, SIGHUP is what it is.
start() {
    command_line="$*, and a signal"
    : > "$err" # nothing that the one before said
    env --default-signal=HUP "$@" > "$out" 2> "$err" < /dev/null &
    pid=$!
}

# ended CODE: the process has come to its end.
ended() {
    wait $pid
    code=$?
    expect_exit "$1"
}

# saved SIGNAL: the run said after which step it stopped, that is the newest checkpoint, and its log ends there.
saved() {
    expect_once "^mist-exec: $1: stopped after step [0-9]+ of 1000000; it is saved in run, --resume auto goes on\$"
    step=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' "$err")
    [ -s "run/step-$(printf %08d "${step:-0}")/manifest.json" ] || fail "step $step: $(ls run)"
    [ "$(tail -n 1 log.csv | cut -d, -f1)" = "$step" ] || fail "step $step: $(tail -n 1 log.csv)"
    expect_stdout_empty
}

for signal in TERM USR1 INT HUP; do
    begin "SIG$signal: a checkpoint, and 128 + its number"
    # shellcheck disable=SC2086
    start "$MIST_BUILD/mist-exec" one.json $options --force
    wait_for '^training' "$err"
    kill -$signal $pid
    case $signal in TERM) ended 143 ;; USR1) ended 138 ;; INT) ended 130 ;; HUP) ended 129 ;; esac
    saved SIG$signal
done
begin 'the run that goes on has the losses of one that was left alone'
run mist-exec one.json --data text.txt -q --iterations $((step + 3)) --resume auto --checkpoint run --log log.csv
expect_exit 0
run mist-exec one.json --data text.txt -q --iterations $((step + 3)) --log alone.csv
expect_exit 0
[ "$(losses log.csv)" = "$(losses alone.csv)" ] || fail "$(losses log.csv | diff - alone.csv | head -n 5)"
rm -r run log.csv

begin 'in a validation: it stops there, a checkpoint is saved, and the losses go on as they would have'
i=0
while [ $((i += 1)) -le 2000 ]; do cat text.txt; done > long.txt
start mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json --data text.txt --iterations 9 --resume auto \
    --checkpoint run --log log.csv --validation-data long.txt --validation-batches 40000 --validate-every 2
wait_for '^ *1 ' "$err"
sleep 0.5
kill -USR1 $pid
ended 138
expect_once '^mist-exec: SIGUSR1: stopped after step 2 of 9, without its validation; it is saved in run, '
[ -s run/step-00000002/manifest.json ] || fail "$(ls run)"
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json --data text.txt --iterations 5 --resume auto \
    --checkpoint run --log log.csv
expect_exit 0
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json --data text.txt --iterations 5 --log alone.csv --force
expect_exit 0
[ "$(losses log.csv)" = "$(losses alone.csv)" ] || fail "$(losses log.csv | diff - alone.csv | head -n 5)"
begin 'a run without steps to do validates, and a signal stops that, too'
run mist-exec one.json --data text.txt --resume run --validation-data long.txt --validation-batches 3 --json
expect_exit 0
expect_stdout '"validation_loss_last": [0-9.]+'
validated=$(sed -n 's/.*"validation_loss_last": \([0-9.]*\).*/\1/p' "$out")
start "$MIST_BUILD/mist-exec" one.json --data text.txt --resume run --validation-data long.txt --validation-batches 40000
wait_for '^memory' "$err"
kill -TERM $pid
ended 143
expect_once '^mist-exec: SIGTERM: stopped after step 5 of 5, without its validation; '
run mist-exec one.json --data text.txt --iterations 5 --validation-data long.txt --validation-batches 3 --json
expect_exit 0
expect_stdout "\"validation_loss_last\": $validated"
rm -r run log.csv alone.csv long.txt

begin 'who reads what is printed goes away: the run stops and is saved'
mkfifo pipe
: > "$err"
"$MIST_BUILD/mist-exec" one.json --data text.txt --iterations 1000000 --checkpoint run --log log.csv 2> pipe > "$out" &
pid=$!
grep -m 1 '^ *3 ' < pipe > printed
command_line='a run whose output is a pipe without a reader'
ended 141
step=$(tail -n 1 log.csv | cut -d, -f1)
[ -s "run/step-$(printf %08d "${step:-0}")/manifest.json" ] || fail "step $step: $(ls run)"
expect_stdout_empty
rm -r run log.csv pipe printed
begin 'no standard streams: nothing that is printed gets into a file'
"$MIST_BUILD/mist-exec" one.json --data text.txt --iterations 3 --checkpoint run --log log.csv <&- >&- 2>&-
code=$?
expect_exit 5
[ "$(cut -d, -f1 log.csv | tr '\n' ' ')" = 'step 1 2 3 ' ] || fail "$(cat log.csv)"
run mist-exec --verify run
expect_exit 0
rm -r run log.csv
begin 'nowhere to save: that is said'
start "$MIST_BUILD/mist-exec" one.json --data text.txt --iterations 1000000 --log log.csv
wait_for '^ *3 ' "$err"
kill -TERM $pid
ended 143
expect_once '^mist-exec: SIGTERM: stopped after step [0-9]+ of 1000000; nothing is saved without --checkpoint DIR$'
expect_stdout_empty
rm log.csv
begin 'mpirun forwards SIGUSR1 to all ranks: one checkpoint of all'
# shellcheck disable=SC2086
start mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json $options
wait_for '^ *3 ' "$err"
kill -USR1 $pid
ended 138
saved SIGUSR1
begin 'one rank alone has the signal: all stop after the same step'
# shellcheck disable=SC2086
start mpirun --oversubscribe -n 2 sh -c 'echo $$ > rank$OMPI_COMM_WORLD_RANK; exec "$@"' sh "$MIST_BUILD/mist-exec" \
    two.json $options
wait_for "^ *$((step + 3)) " "$err"
kill -TERM "$(cat rank1)"
ended 143
saved SIGTERM
rm -r run log.csv rank0 rank1

begin 'a signal in the last step changes nothing'
start "$MIST_BUILD/mist-exec" one.json --data text.txt --iterations 1 --json
wait_for '^training' "$err"
kill -USR1 $pid 2> /dev/null # unless it is over
ended 0
expect_json

# arrived: the process has taken the first SIGINT, as it no longer catches it.
arrived() {
    i=0
    while caught=$(sed -n 's/^SigCgt:.*\(.\)$/\1/p' /proc/$pid/status 2> /dev/null) &&
        case $caught in [2367abefABEF]) true ;; *) false ;; esac && [ $((i += 1)) -lt 600 ]; do
        sleep 0.1
    done
}
begin 'a second SIGINT ends a run at once, within its step: the newest checkpoint stays'
run mist-exec one.json --data text.txt -q --iterations 1 --checkpoint run
expect_exit 0
sed 's/"global_batch": 4/"global_batch": 200000/; s/"n_micro_batches": 2/"n_micro_batches": 100000/' one.json > long.json
start "$MIST_BUILD/mist-exec" long.json --data text.txt --iterations 9 --resume auto --checkpoint run --force \
    --timeline new.csv
wait_for '^training' "$err"
kill -INT $pid
arrived
kill -INT $pid
ended 130
grep -q 'stopped after' "$err" && fail "it went on to the end of its step: $(cat "$err")"
expect_stdout_empty
[ ! -e new.csv ] || fail 'new.csv is there'
run mist-exec --verify run
expect_exit 0
run mist-exec one.json --data text.txt --iterations 2 --resume auto --checkpoint run
expect_exit 0
expect_stderr 'goes on from run/step-00000001$'
rm -r run long.json

# ------------------------------------------------------------------------- the other tools
# A search of some seconds that has begun: before, a shell's background job ignores SIGINT.
start_search() {
    start "$MIST_BUILD/mist-tune" --model gpt3-1.3b --cluster traces --nodes 16 --devices-per-node 4 \
        --global-batch 5040 --seq-len 1024 --device-memory 8TiB --progress always -o best.json --log log.csv
    wait_for searching "$err"
}
begin 'mist-tune: SIGUSR1 ends the search, which says what it saved'
start_search
kill -USR1 $pid
ended 138
if [ -s best.json ]; then
    expect_stderr 'mist-tune: interrupted: the best .* saved: best\.json, log\.csv$'
else
    expect_stderr 'mist-tune: interrupted before a plan was found; nothing was saved$'
fi
rm -f best.json log.csv

begin 'mist-tune: a second SIGINT leaves whole files or none'
start_search
kill -INT $pid
kill -INT $pid
ended 130
[ -z "$(ls | grep tmp)" ] || fail "left: $(ls)"
if [ -e best.json ]; then expect_json best.json; fi
[ -e best.json ] || [ ! -e log.csv ] || fail 'log.csv without best.json'
rm -f best.json log.csv

cat > tiny.json <<'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "max_position_embeddings": 256}
END
begin 'mist-profile: SIGTERM ends the session behind a record of its journal'
start "$MIST_BUILD/mist-profile" --backend cpu --quick --model tiny.json --seq-len 32 --micro-batches 1 --progress never \
    --ranks 1 -o set --resume
i=0
while [ "$(cat set.partial/journal 2> /dev/null | wc -c)" -lt 100 ] && [ $((i += 1)) -lt 300 ]; do sleep 0.1; done
kill -TERM $pid
ended 143
expect_once '^mist-profile: SIGTERM: stopped; --resume goes on from what is measured$'
expect_once '^mist-profile: set: nothing to resume: no session was stopped here, one begins anew$'
expect_stdout_empty
expect_file set.partial/journal
[ ! -e set ] || fail "left: $(find set)"
begin 'mist-profile: a second SIGINT leaves a journal to go on from'
start "$MIST_BUILD/mist-profile" --backend cpu --quick --model tiny.json --seq-len 32 --micro-batches 1 --progress never \
    --ranks 1 -o set --resume
wait_for 'operator shapes' "$err"
kill -INT $pid
kill -INT $pid
ended 130
! grep 'nothing to resume' "$err" || fail 'there was a session to resume'
[ ! -e set ] || fail "left: $(find set)"
expect_file set.partial/journal
rm -r set.partial

# start_session OPTIONS: with ranks that the tool itself starts, in a process group as a shell makes it for what it
# has in the foreground, until the journal has records and signals are caught (a background job ignores SIGINT).
start_session() {
    # shellcheck disable=SC2086
    start setsid "$MIST_BUILD/mist-profile" --backend cpu --quick --model tiny.json --seq-len 32 --micro-batches 1 \
        --progress never --ranks 2 -o set "$@"
    i=0
    while [ "$(cat set.partial/journal 2> /dev/null | wc -c)" -lt 1000 ] && [ $((i += 1)) -lt 300 ]; do sleep 0.1; done
    wait_for 'operator shapes' "$err"
}

# nobody_left: no process of a session works in this folder any more.
nobody_left() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/cwd" 2> /dev/null)" = "$PWD" ] || continue
        case $(cat "$process/comm" 2> /dev/null) in
        mist-* | mpirun) fail "left: $(tr '\0' ' ' < "$process/cmdline")" ;;
        esac
    done
}
resume= # of the first there is none
for case in 'TERM 143 ' 'INT 130 ' 'INT 130 -'; do
    # shellcheck disable=SC2086
    set -- $case
    begin "mist-profile with ranks of its own: SIG$1 to ${3:+the group of }the process"
    start_session $resume
    resume=--resume
    size=$(wc -c < set.partial/journal)
    kill "-$1" "${3-}$pid"
    ended "$2"
    expect_once "^mist-profile: SIG$1: stopped; --resume goes on from what is measured\$"
    [ "$(wc -l < "$err")" -eq 2 ] || fail "$(cat "$err")"
    expect_stdout_empty
    [ ! -e set ] || fail "left: $(find set)"
    nobody_left
    [ "$(wc -c < set.partial/journal)" -ge "$size" ] || fail "the journal has shrunk"
done
begin 'mist-profile with ranks of its own: they hang, a second SIGINT ends them'
start_session --resume
for process in /proc/[0-9]*; do
    [ "$(readlink "$process/cwd" 2> /dev/null)" = "$PWD" ] && [ "$(cat "$process/comm")" = mist-profile ] &&
        [ "${process#/proc/}" != $pid ] && kill -STOP "${process#/proc/}"
done
kill -INT $pid
arrived
sleep 0.2
kill -INT $pid
ended 130
nobody_left
expect_file set.partial/journal
begin 'mist-profile with ranks of its own: killed, none of them stays'
start_session --resume
kill -KILL $pid
wait $pid 2> /dev/null
sleep 3 # mpirun gives them a second
nobody_left
rm -r set.partial

# The limit is that of the tool alone, and what it says goes through a pipe.
limited() {
    begin "$1 writes beyond the limit of a file's size: as to a full disk"
    limited_file=$2
    run sh -c "said=\$( (ulimit -S -f 0; exec \"\$MIST_BUILD\"/$3 2>&1 > /dev/null) ); code=\$?; echo \"\$said\" >&2; exit \$code"
    expect_exit 5
    expect_stderr "^$1: $limited_file.*: .*File too large"
    expect_one_line
    expect_stdout_empty
    nothing_written
}
limited mist-sim out.csv 'mist-sim plan.json -o out.csv'
limited mist-tune out.json 'mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 -q -o out.json'
limited mist-plot out.csv 'mist-plot chrome timeline.csv -o out.csv'
limited mist-exec out.csv 'mist-exec one.json --data text.txt -q --iterations 1 --timeline out.csv'
limited mist-profile set 'mist-profile --backend cpu --quick --ranks 1 -o set --progress never -q'
finish

#!/bin/sh
# mist-tune --verify: what can't be run is said before the search, plans are run in rounds, measurement
# chooses, plans that fail are left out, and nothing that was started outlives mist-tune.
. tests/cli/lib.sh

question='--model gpt3-demo --cluster traces --global-batch 4 --seq-len 128'
tune="mist-tune $question"

# -------------------------------------------------------------------- what is refused at once
# refused NAME CODE REASON OPTION...: also by a dry run, which does nothing else.
refused() {
    name=$1 refused_code=$2 reason=$3
    shift 3
    # shellcheck disable=SC2086
    refuse "$name" "$refused_code" "^mist-tune: $reason" $tune -o best.json "$@"
    # shellcheck disable=SC2086
    refuse "$name: a dry run" "$refused_code" "^mist-tune: $reason" $tune -o best.json -n "$@"
}
cp -R traces gpu
cp -R traces sheet
edit traces/cluster.json 's/"backend": "cpu"/"backend": "cuda"/' > gpu/cluster.json
edit traces/cluster.json 's/"backend": "cpu"/"backend": "datasheet"/' > sheet/cluster.json
printf 'adamw_host,fp32,optimizer,elements=1024,2,0,10,0,0\n' | tee -a gpu/kernels.csv >> sheet/kernels.csv
refused 'no plans' 2 '--verify: 0 is not within 1 \.\. 64' --verify 0
refused 'too many plans' 2 '--verify: 65 is not within 1 \.\. 64' --verify 65
refused 'one iteration, of which none would count' 2 '--verify-iterations: 1 is not within' --verify 2 --verify-iterations 1
refused 'a limit without a unit' 2 "--verify-limit: '3': expected a time" --verify 2 --verify-limit 3
refuse 'samples' 2 '^mist-tune: --sample-plans .* nothing to --verify' mist-tune --model gpt3-demo --cluster traces \
    --global-batch 4 --seq-len 128 --sample-plans 3 --plans plans --verify 2
refused 'a launcher for nothing' 2 '--launch needs --verify K$' --launch 'srun -n {ranks}'
refused 'iterations of no run' 2 '--verify-iterations needs --verify K$' --verify-iterations 9
refused 'a limit of no run' 2 '--verify-limit needs --verify K$' --verify-limit 9s
refused 'an empty launcher' 2 '--launch is empty' --verify 2 --launch ' '
refused 'a launcher that is not there' 2 "--launch: there is no program 'no-such-run'" --verify 2 --launch 'no-such-run -n 2'
refused 'a launcher that may not be run' 2 "--launch: there is no program './plan\.json'" --verify 2 --launch ./plan.json
refused 'a data sheet' 2 '--verify .* data sheet' --verify 2 --cluster sheet
refused 'a data sheet and a launcher' 2 '--verify .* data sheet' --verify 2 --cluster sheet --launch env
refused 'several nodes' 2 '--verify .* 4 ranks need more than one node of 2 devices; --launch' \
    -q --verify 2 --nodes 2
refused 'more devices than this machine has' 2 '--verify .* processors for 4000 ranks; --launch' \
    -q --verify 2 --devices-per-node 4000
if [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
    begin 'GPUs and a machine without'
    skip 'this one has a driver'
else
    refused 'GPUs and a machine without' 2 '--verify .* no NVIDIA driver' --verify 2 --cluster gpu
fi
mkdir alone
cp "$MIST_BUILD/mist-tune" alone/
# shellcheck disable=SC2086
refuse 'no mist-exec beside mist-tune' 5 '^mist-tune: .*/alone/mist-exec: is not there' alone/$tune --verify 2
ln -s "$(command -v sleep)" alone/sleep
# shellcheck disable=SC2086
refuse 'no mpirun' 1 '^mist-tune: mpirun is not installed' env PATH="$PWD/alone" "$MIST_BUILD"/$tune --verify 2
# shellcheck disable=SC2086
refuse 'no place for the plans' 5 '^mist-tune: /nowhere: .*folder for the plans' env TMPDIR=/nowhere "$MIST_BUILD"/$tune --verify 2
# shellcheck disable=SC2086
refuse 'mpirun around it' 2 '^mist-tune: --verify starts the ranks itself' \
    env OMPI_COMM_WORLD_SIZE=2 "$MIST_BUILD"/$tune --verify 2
printf '%s\n' '#!/bin/sh' 'exit 1' > alone/mpirun
chmod +x alone/mpirun
begin 'an mpirun that fails without a word, as it does where it finds too few slots'
# shellcheck disable=SC2086
run env PATH="$PWD/alone:$PATH" "$MIST_BUILD"/$tune --verify 1 -q
expect_exit 1
expect_stderr "the first: mpirun failed with exit code 1: it said nothing; does 'mpirun -n 2 hostname' work\\?"
nothing_written
rm -r gpu sheet alone

# ------------------------------------------------------------------------------- real runs
# json SCRIPT: prints what a Perl expression says of $d, the document on stdout.
json() {
    perl -MJSON::PP -e 'local $/; my $d = JSON::PP->new->decode(<STDIN>); print scalar(do { '"$1"' }), "\n"' < "$out"
}
# what EXPRESSION VALUE: the document says so.
what() {
    found=$(json "$1")
    [ "$found" = "$2" ] || fail "$1 is '$found', expected '$2'"
}
begin 'two ranks on this machine'
run mist-tune --model gpt3-demo --cluster traces --global-batch 2 --seq-len 32 --verify 2 --verify-iterations 2 --json \
    -o best.json
if [ "$(nproc)" -lt 2 ]; then
    skip 'this machine has one processor'
else
    expect_exit 0
    expect_stderr_empty
    expect_json
    what 'scalar @{$d->{verified}}' 2
    what 'join ",", map { scalar grep { $_ > 0 } @{$_->{times_s}} } @{$d->{verified}}' 3,3
    what 'scalar grep { $_->{is_chosen} } @{$d->{verified}}' 1
    what 'scalar grep { !defined $_->{failure} && $_->{measured_s} > 0 && $_->{spread_s} >= 0 } @{$d->{verified}}' 2
    what '$d->{choice}{n_rounds}' 3
    what '(grep { $_->{is_chosen} } @{$d->{verified}})[0]{measured_s} == $d->{best}{measured_s}' 1
fi
rm -f best.json
begin 'one rank needs no launcher'
# shellcheck disable=SC2086
run mist-tune --model gpt3-demo --cluster traces --ranks 1 --global-batch 1 --seq-len 32 --verify 1 --verify-iterations 2
expect_exit 0
expect_stderr_empty
expect_stdout '^Verified: the best plans, run$'
expect_stdout '<- chosen$'
expect_stdout 'the fastest, as predicted$'
nothing_written

# ------------------------------------------------------------------ a launcher that makes results up
# A call is one line in $calls. $tools/N.sh says what plan N does; without one it takes 100 + N ms.
tools=$scratch/tools calls=$scratch/io/calls
mkdir "$tools"
cat > "$tools/launch" <<'END'
#!/bin/sh
tools=$(dirname "$0")
echo "$*" >> "$tools/../io/calls"
number=${3##*/plan_} number=${number%.json} number=${number##0} number=${number##0}
round=$(grep -c "/plan_00$number.json" "$tools/../io/calls")
ms() { echo "{\"iterations\": 6, \"iteration_s\": $1e-3}"; }
if [ -e "$tools/$number.sh" ]; then . "$tools/$number.sh"; else ms $((100 + number)); fi
END
chmod +x "$tools/launch"
# plan N COMMAND: what it does from here on.
plan() { echo "$2" > "$tools/$1.sh"; }
# verify OPTION...: four plans.
verify() {
    rm -f "$calls"
    # shellcheck disable=SC2086
    run $tune --verify 4 --launch "$tools/launch {ranks}" -o best.json "$@"
}
# ends: forgets the case's plans and files.
ends() {
    rm -rf "$tools"/*.sh best.json log.csv plans
}
# In the order in which they are run: different kinds first. The launcher leaves the first one the best.
verify --plans unverified
rm best.json
[ "$(ls unverified | wc -l)" -ge 4 ] || { echo "Bail out! $(ls unverified | wc -l) plans"; exit 1; }
first=unverified/plan_001.json second=unverified/plan_002.json

begin 'the fastest as predicted stays the best'
verify
expect_exit 0
expect_stderr_empty
expect_same_plan best.json $first
expect_stdout '^iteration, measured +101 ms$'
expect_stdout 'the fastest, as predicted$'
ends
begin 'the plans are run in rounds, by the launcher, as asked for'
verify --verify-iterations 9 -q
order=$(sed 's/.*plan_00\(.\)\.json.*/\1/' "$calls" | tr -d '\n')
[ "$order" = 123412341234 ] || fail "the order is $order"
grep -Evq '^2 /.*/mist-exec /.*/mist-verify-.*/plan_00[1-4]\.json -q --json --data /.*/tokens\.u16 --iterations 9 --backend cpu --probe$' \
    "$calls" && fail "$(cat "$calls")"
ends
begin 'one that is faster than predicted is chosen, for all outputs'
plan 2 'ms 90'
verify --log log.csv --plans plans
expect_exit 0
expect_stdout '^iteration, measured +90.0 ms$'
expect_stdout 'the fastest as measured, 11.0 ms \+- 0 s ahead of '
expect_same_plan best.json $second
expect_same_plan plans/plan_001.json $second
expect_same_plan plans/plan_002.json $first
expect_same_plan plans/plan_003.json unverified/plan_003.json
expect_file log.csv
ends
begin 'predicted beside measured, and the error, as JSON'
plan 2 'ms $((90 + round * round))'
verify --json
expect_json
what 'join ",", map { 1e3 * $_ } @{$d->{verified}[1]{times_s}}' 91,94,99
what '$d->{verified}[1]{measured_s}' 0.094
what 'sprintf "%.6f", $d->{verified}[1]{spread_s}' 0.004000
what 'sprintf "%.6f", $d->{verified}[1]{predicted_s} / 0.094 - 1 - $d->{verified}[1]{prediction_error_frac}' 0.000000
what 'join ",", map { $_->{is_chosen} ? 1 : 0 } @{$d->{verified}}' 0,1,0,0
what '$d->{plans}[0]{iteration_s} == $d->{verified}[1]{predicted_s}' 1
ends
begin 'within the spread the predicted one stays, which is said'
plan 1 'ms 10$round'
plan 2 'case $round in 1) ms 97 ;; *) ms 105 ;; esac' # 4, -3, -2 ahead
plan 3 'case $round in 1) ms 96 ;; 2) ms 107 ;; 3) ms 100 ;; esac' # 5, -5, 3 ahead
verify
expect_exit 0
expect_same_plan best.json $first
expect_stdout 'predicted to be faster; that .* ran 3.00 ms \+- 5.00 ms ahead is within the spread$'
ends
begin 'fewer plans than asked for'
rm -f "$calls"
# shellcheck disable=SC2086
run $tune --top 3 --verify 64 --launch "$tools/launch {ranks}" -q
expect_exit 0
[ "$(wc -l < "$calls")" -eq 9 ] || fail "$(wc -l < "$calls") runs"
begin 'a dry run runs nothing'
rm -f "$calls"
# shellcheck disable=SC2086
run $tune --verify 4 --launch "$tools/launch {ranks}" -n
expect_exit 0
[ ! -e "$calls" ] || fail "it called $(cat "$calls")"
nothing_written
begin 'no word of a launcher is for a shell'
rm -f "$calls"
# shellcheck disable=SC2086
run $tune --verify 1 --launch "$tools/launch "'$(touch$IFS./made);>made' -q
expect_exit 0
grep -Fq '$(touch$IFS./made);>made /' "$calls" || fail "$(cat "$calls")"
nothing_written

# ----------------------------------------------------------------------------- plans that fail
begin 'a plan that fails is left out, with what it said last'
plan 1 'echo a long story >&2; echo "mist-exec: stage 0: no memory" >&2; exit 4'
verify
expect_exit 0
expect_one_line
expect_stderr '^mist-tune: .*, predicted [0-9.]+ ms, is left out: launch failed with exit code 4: a long story mist-exec: stage 0: no memory$'
expect_same_plan best.json $second
expect_stdout '^.* - +- +-  failed$'
[ "$(grep -c plan_001 "$calls")" -eq 1 ] || fail 'it was run again'
ends
begin 'and one that fails later'
plan 2 '[ $round -lt 3 ] && ms 1'
verify --json -q
expect_exit 0
expect_stderr_empty
what '$d->{verified}[1]{failure}' 'launch failed with exit code 1'
what 'scalar @{$d->{verified}[1]{times_s}}' 2
what 'defined $d->{verified}[1]{measured_s} ? 1 : 0' 0
expect_same_plan best.json $first
ends
begin 'what a plan printed is no result'
plan 1 'echo nonsense'
plan 2 'echo "{\"iterations\": 6}"'
plan 3 'echo "{\"iteration_s\": -1}"'
verify
expect_exit 0
[ "$(grep -c 'is left out: launch printed no result of mist-exec (.*)$' "$err")" -eq 3 ] || fail "$(cat "$err")"
expect_stderr 'iteration_s'
expect_same_plan best.json unverified/plan_004.json
ends
begin 'none can be run: nothing is written'
for i in 1 2 3 4; do plan $i 'kill -SEGV $$'; done
verify -q --log log.csv
expect_exit 1
expect_stderr '^mist-tune: --verify: none of the plans can be run; the first: launch was ended by signal 11$'
expect_one_line
expect_stdout_empty
nothing_written
ends
begin 'a run that hangs is ended'
plan 1 'echo $$ > "$tools/../io/pid"; exec sleep 1000'
verify --verify-limit 5s
expect_exit 0
expect_stderr 'is left out: launch took longer than 5.00 s \(see --verify-limit\)$'
expect_same_plan best.json $second
kill -0 "$(cat "$scratch/io/pid")" 2> /dev/null && fail 'it still runs'
ends

# ---------------------------------------------------------------------------------- signals
# start_verify OPTION...: in the background, as $pid; waits until $scratch/io/pid is there.
start_verify() {
    rm -f "$calls" "$scratch/io/pid"
    command_line="mist-tune --verify 4 $*, and a signal"
    # shellcheck disable=SC2086
    "$MIST_BUILD"/$tune --verify 4 -o best.json "$@" > "$out" 2> "$err" < /dev/null &
    pid=$!
    i=0
    while [ ! -s "$scratch/io/pid" ] && [ $((i += 1)) -lt 600 ]; do sleep 0.1; done
    [ -s "$scratch/io/pid" ] || fail "nothing was started: $(cat "$err")"
}
# ended CODE: mist-tune has come to its end, and so has what it started.
ended() {
    wait $pid
    code=$?
    expect_exit "$1"
    kill -0 "$(cat "$scratch/io/pid")" 2> /dev/null && fail 'what was started still runs'
    [ -z "$(ls | grep mist-verify)" ] || fail "left: $(ls)"
}
hangs='echo $$ > "$tools/../io/pid"; exec sleep 1000'
# ends when it is asked to, but not at once
lingers='trap "echo asked > \"$tools/../io/asked\"; sleep 1; exit" TERM; echo $$ > "$tools/../io/pid"
    while :; do sleep 0.1; done'
for signal in TERM USR1 INT; do
    begin "SIG$signal in the first round: the best by prediction"
    plan 2 'ms 1'
    plan 3 "$hangs"
    [ $signal = INT ] && plan 3 "$lingers"
    start_verify --launch "$tools/launch {ranks}"
    kill -$signal $pid
    if [ $signal = INT ]; then # a second one waits for the end of the run
        i=0
        while [ ! -e "$scratch/io/asked" ] && [ $((i += 1)) -lt 600 ]; do sleep 0.1; done
        kill -INT $pid
    fi
    case $signal in TERM) ended 143 ;; USR1) ended 138 ;; INT) ended 130 ;; esac
    expect_once '^mist-tune: interrupted: the best of what was predicted is printed and saved: best\.json$'
    expect_same_plan best.json $first
    expect_stdout 'the fastest by prediction; not all plans were run$'
    ends
done
begin 'SIGTERM in the second round: the best as measured in the first'
plan 2 'ms 1'
plan 4 "case \$round in 1) ms 200 ;; *) $hangs ;; esac"
start_verify --launch "$tools/launch {ranks}"
kill -TERM $pid
ended 143
expect_once '^mist-tune: interrupted: the best of what was measured is printed and saved: best\.json$'
expect_same_plan best.json $second
expect_stdout '^rounds +1$'
ends
begin 'SIGTERM while ranks run: mpirun ends them'
if [ "$(nproc)" -lt 2 ]; then
    skip 'this machine has one processor'
else
    mkdir "$scratch/bin" # mpirun, which says that it runs
    printf '%s\n' '#!/bin/sh' "echo \$\$ > $scratch/io/pid" "PATH=$PATH" 'exec mpirun "$@"' > "$scratch/bin/mpirun"
    chmod +x "$scratch/bin/mpirun"
    path=$PATH PATH=$scratch/bin:$PATH
    start_verify --verify-iterations 10000
    PATH=$path
    ranks() { ps -eo args | grep "mist-exec $scratch/[h]ere/mist-verify-"; }
    i=0
    while [ "$(ranks | grep -vc mpirun)" -lt 2 ] && [ $((i += 1)) -lt 600 ]; do sleep 0.1; done
    kill -TERM $pid
    ended 143
    expect_same_plan best.json $first
    ranks > "$scratch/io/ranks" && fail "$(cat "$scratch/io/ranks")"
fi
ends
finish

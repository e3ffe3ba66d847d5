#!/bin/sh
# Where results go: existing files, missing and read-only folders, full disks. Whatever fails, no file is
# left half written and no temporary file stays.
. tests/cli/lib.sh

edit plan.json 's/layers": 12/layers": 1/' > short.json # trains faster
echo precious > exists.csv
cp exists.csv exists.json
cp exists.csv exists.png
mkdir folder
tune='mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128'

# each NAME CODE REASON PATH: the outputs of every tool, PATH.
# $tune and its like are split into words on purpose.
each() {
    reason="$3" path=$4
    # shellcheck disable=SC2086
    while read -r command; do
        set -- "$1" "$2"
        refuse "$1: $command" "$2" "^${command%% *}: .*$reason" $command "$path"
    done <<END
mist-sim plan.json -o
mist-sim plan.json --chrome
mist-sim plan.json --dry-run -o
mist-exec plan.json --iterations 1 --timeline
mist-exec plan.json --iterations 1 --log
mist-exec plan.json --dry-run --log
mist-plot chrome timeline.csv -o
$tune -o
$tune --log
$tune --pareto
END
}
each 'a file that exists' 2 'exists\.csv: exists already; --force' exists.csv
each 'a folder that is missing' 5 'none/out: ' none/out
each 'a file for a folder' 5 'plan\.json/out: ' plan.json/out
each 'a folder for a file' 5 'folder: ' folder
if [ -d /proc/self ]; then each 'a folder that nobody can write to' 5 '/proc/out: ' /proc/out; fi

for command in 'mist-sim plan.json -o' 'mist-sim plan.json --chrome' 'mist-exec plan.json --iterations 1 --log' "$tune -o" "$tune --log" "$tune --plans" \
    'mist-exec plan.json --iterations 1 --checkpoint' 'mist-exec short.json --iterations 1 --export' 'mist-profile --backend cpu --quick --ranks 1 -o'; do
    # shellcheck disable=SC2086
    refuse "no file or folder is called -: $command" 2 "^${command%% *}: -: is no name for stdout here" $command -
done

for path in exists.png none/out.png plan.json/out.png; do
    case $path in exists*) want=2 ;; *) want=5 ;; esac
    refuse "mist-plot -o $path" $want "^mist-plot: .*${path%.png}" mist-plot timeline timeline.csv -o "$path"
done
mkdir kept && cp traces/cluster.json kept/
refuse 'a trace set that exists' 2 '^mist-profile: kept/cluster\.json: .*--force' mist-profile --quick -o kept
refuse 'a file for the folder of a trace set' 5 '^mist-profile: plan\.json' mist-profile --quick -o plan.json
refuse 'a folder below a file for a trace set' 5 '^mist-profile: plan\.json' mist-profile --quick -o plan.json/traces
# shellcheck disable=SC2086
refuse 'a file for the folder of plans' 5 '^mist-tune: plan\.json' $tune --plans plan.json
# shellcheck disable=SC2086
refuse 'the second output fails: the first is not written either' 5 '^mist-tune: none/log\.csv' $tune -o out.json --log none/log.csv
refuse 'the second output fails: the first is not written either' 5 '^mist-sim: none/out\.json' \
    mist-sim plan.json -o out.csv --chrome none/out.json

refuse 'two outputs into one file' 2 '^mist-sim: --output and --chrome are both same$' mist-sim plan.json -o same --chrome same
refuse 'two outputs into one file' 2 '^mist-tune: --output and --log are both \./same$' mist-tune --model gpt3-demo \
    --cluster traces --global-batch 4 --seq-len 128 -o same --log ./same
refuse 'two outputs into one file' 2 '^mist-exec: --timeline and --log are both same$' \
    mist-exec plan.json --iterations 1 --timeline same --log same

# No output takes the place of what is read, not by --force and not by another name. A name of the trace set is
# that of a file there, or of one that would be read as if it were.
mkdir model hf linked
echo '{}' > model/config.json
ln -s ../traces/links.csv linked/to
ln plan.json twin.json
cp short.json hf/config.json
echo 8 > lengths
tune_any="${tune#* } --force"
while read -r what path command; do
    # shellcheck disable=SC2086
    refuse "an output that is read: $command $path" 2 "^${command%% *}: --[a-z-]+ and ${what%:} are both $path; name" \
        $command "$path"
done <<END
PLAN: plan.json mist-sim plan.json --force -o
PLAN: twin.json mist-sim plan.json --force --save-plan
PLAN: ./plan.json mist-exec plan.json --iterations 1 --force --timeline
PLAN: plan.json mist-exec plan.json --iterations 1 --checkpoint run --resume auto --log
FILE timeline.csv mist-plot chrome timeline.csv --force -o
FILE timeline.csv mist-plot timeline links_fit.csv timeline.csv --force -o
--compare timeline.csv mist-sim plan.json --compare timeline.csv --force --chrome
--lengths lengths mist-sim plan.json --lengths lengths --force -o
--lengths lengths mist-tune $tune_any --lengths lengths -o
--model model/config.json mist-tune --model model --cluster traces --global-batch 4 --seq-len 8 --force -o
--retune plan.json mist-tune --retune plan.json --force -o
--import hf/config.json mist-exec plan.json --iterations 1 --import hf --force --timeline
END
for path in traces/links.csv linked/to; do
    for command in 'mist-sim plan.json --chrome' 'mist-exec plan.json --iterations 1 --kernels-csv' "$tune --log"; do
        # shellcheck disable=SC2086
        refuse "an output of the trace set: $command $path" 2 "^${command%% *}: --[a-z-]+ and the trace set are both $path; name" \
            $command $path --force
    done
done
seq 999 > '2 words.txt'
refuse 'an output that is read as data' 2 '^mist-exec: --log and the data are both 2 words\.txt; name' \
    mist-exec short.json --iterations 1 --data '2 w*.txt' --log '2 words.txt' --force
refuse 'an export into the folder of the weights' 2 '^mist-exec: --export and --import are both hf//model\.safetensors; name' \
    mist-exec short.json --iterations 1 --import ./hf --export hf/ --force
mkdir plans && cp plan.json plans/plan_002.json && cp plan.json plans/kept.json
refuse 'plans in the place of the one that is tuned again' 2 '^mist-tune: --plans and --retune are both plans/plan_002\.json; name' \
    mist-tune --retune plans/plan_002.json --plans plans --force
begin 'a plan of another name stays'
run mist-tune --retune plans/kept.json --cluster traces --plans plans --force --dry-run
expect_exit 0
nothing_written
rm -r plans model hf linked twin.json lengths '2 words.txt'

begin 'a training run that diverges leaves the rows of its steps behind'
run mist-exec short.json --lr 1000 --iterations 30 --log log.csv
[ "$(head -n 2 log.csv | tail -n 1 | cut -d, -f1)" = 1 ] || fail "$(cat log.csv)"
rm log.csv
expect_exit 1
expect_stderr '^mist-exec: rank 0, step [0-9]+, layer [0-9]+: the (loss|gradient).* is not finite'
expect_once '^mist-exec: '
expect_stdout_empty
nothing_written

# ------------------------------------------------------------------------------ a full disk
refuse 'mist-sim: the disk is full' 5 '^mist-sim: /dev/full: .*No space left' mist-sim plan.json -o /dev/full
refuse 'mist-sim --chrome: the disk is full' 5 '^mist-sim: /dev/full: .*No space left' mist-sim plan.json --chrome /dev/full
refuse 'mist-plot chrome: the disk is full' 5 '^mist-plot: /dev/full: .*No space left' mist-plot chrome timeline.csv -o /dev/full
for option in -o --log --pareto; do
    # shellcheck disable=SC2086
    refuse "mist-tune $option: the disk is full" 5 '^mist-tune: /dev/full: .*No space left' $tune $option /dev/full
done
begin 'mist-exec: the disk is full'
run mist-exec short.json -q --iterations 1 --log /dev/full
expect_exit 5
expect_stderr '^mist-exec: /dev/full: .*No space left'
expect_one_line
expect_stdout_empty
nothing_written

# stdout NAME COMMAND: its results go to a full disk.
to_full() {
    begin "results to a full disk: $1"
    run sh -c "\"\$MIST_BUILD\"/$1 > /dev/full"
    expect_exit 5
    expect_stderr "^${1%% *}: "
    expect_one_line
    nothing_written
}
to_full 'mist-sim plan.json'
to_full 'mist-sim plan.json --json'
to_full 'mist-sim plan.json --csv'
to_full 'mist-sim plan.json --sweep link.all=1x:2x'
to_full 'mist-exec short.json -q --iterations 1'
to_full 'mist-plot timeline timeline.csv'
to_full 'mist-plot compare compare.csv'
to_full 'mist-plot chrome timeline.csv'
to_full 'mist-profile --dry-run'
to_full "$tune"
to_full "$tune -q --json"

# A file system that ends in the middle of a file: sizes of files are limited to 1 or 2 KiB (the unit of
# `ulimit -f` differs between shells), and the signal that comes with it is ignored, so that writing fails.
limited() {
    begin "the disk fills up in the middle of a file: $1"
    run sh -c "trap '' XFSZ; ulimit -S -f 2; exec \"\$MIST_BUILD\"/$1"
    expect_exit 5
    expect_stderr "^${1%% *}: .*File too large"
    expect_stdout_empty
    nothing_written
}
limited 'mist-sim plan2.json -o out.csv'
limited 'mist-sim plan2.json --chrome out.json'
limited "$tune -q --log out.csv"
limited 'mist-sim plan2.json -f -o exists.csv'
for suffix in png svg pdf; do
    begin "the disk fills up in the middle of a picture: $suffix"
    run sh -c "trap '' XFSZ; ulimit -S -f 2; exec \"\$MIST_BUILD\"/mist-plot timeline timeline.csv -o out.$suffix"
    expect_exit 5
    expect_stderr '^mist-plot: .*(picture is not whole|temporary file|File too large)'
    expect_one_line
    nothing_written
done

begin 'a file that could not be replaced is what it was'
[ "$(cat exists.csv)" = precious ] || fail 'exists.csv has changed'

begin 'a signal in the middle of a run leaves nothing behind'
listing > "$scratch/io/before"
command_line='mist-exec --iterations 100000, interrupted'
"$MIST_BUILD/mist-exec" plan.json -q --iterations 100000 --timeline out.csv > "$out" 2> "$err" &
pid=$!
sleep 0.5
kill -TERM $pid
wait $pid 2> /dev/null
code=$?
[ "$code" -ge 128 ] || fail "exit code $code, expected 128 or more"
expect_stdout_empty
nothing_written

# ------------------------------------------------------------------------------------ success
begin '--force replaces'
run mist-sim plan.json -q --force -o exists.csv
expect_exit 0
head -n 1 exists.csv | grep -q '^rank,stream,kind,' || fail 'exists.csv is no timeline'
begin '--force makes what is not there'
run mist-sim plan.json -q --force -o new.csv
expect_exit 0
expect_same exists.csv new.csv
begin 'a picture replaces one'
run mist-plot timeline timeline.csv --force -o exists.png
expect_exit 0
expect_stdout_empty
expect_stderr_empty
head -c 8 exists.png | grep -q PNG || fail 'exists.png is no PNG'
begin 'gnuplot takes no name for a command'
run mist-plot compare compare.csv -o '|touch touched;.png'
expect_exit 0
expect_file '|touch touched;.png'
rm -f '|touch touched;.png'
begin 'a name of two lines'
run mist-plot compare compare.csv -o 'one
two.png'
expect_exit 0
expect_file 'one
two.png'
rm -f 'one
two.png'
begin 'a long path of the folder for temporary files'
mkdir "folder/$(printf '%0100d' 1)"
run env TMPDIR="$PWD/folder/$(printf '%0100d' 1)" "$MIST_BUILD/mist-plot" compare compare.csv -o long.svg
expect_exit 0
rm -r "folder/$(printf '%0100d' 1)" long.svg
begin 'mist-plot, ended by a signal, leaves nothing behind'
printf '#!/bin/sh\nsleep 5\n' > "$scratch/io/gnuplot" && chmod +x "$scratch/io/gnuplot"
listing > "$scratch/io/before"
command_line='mist-plot, interrupted'
PATH="$scratch/io:$PATH" "$MIST_BUILD/mist-plot" compare compare.csv -o ended.png > "$out" 2> "$err" &
pid=$!
sleep 0.5
kill -TERM $pid
wait $pid 2> /dev/null
code=$?
[ "$code" -ge 128 ] || fail "exit code $code, expected 128 or more"
nothing_written
begin 'nothing else has appeared'
ls > "$scratch/io/after"
printf '%s\n' compare.csv exists.csv exists.json exists.png folder kept links_fit.csv new.csv pareto.csv plan.json \
    plan2.json short.json timeline.csv traces > "$scratch/io/before"
nothing_left=$(diff "$scratch/io/before" "$scratch/io/after") || fail "$nothing_left"
finish

#!/bin/sh
# What tools say on stderr: --quiet leaves errors alone, and names of others move no cursor.
. tests/cli/lib.sh

# loud_and_quiet NAME REGEX CODE COMMAND...: says something that matches, and with -q nothing of it; the
# same result. Code 0: nothing at all on stderr; else one line.
loud_and_quiet() {
    begin "$1"
    loud_regex=$2 loud_code=$3
    shift 3
    run "$@"
    expect_exit "$loud_code"
    expect_stderr "$loud_regex"
    cp "$out" "$scratch/io/loud"
    run "$@" -q
    expect_exit "$loud_code"
    grep -Eq -e "$loud_regex" "$err" && fail "in spite of -q: $(cat "$err")"
    [ "$loud_code" -eq 0 ] && expect_stderr_empty
    [ "$loud_code" -eq 0 ] || expect_one_line
    expect_same "$out" "$scratch/io/loud"
}
for tool in $TOOLS; do
    begin "$tool: --quiet is an option, and errors are printed in spite of it"
    run "$tool" --help
    expect_stdout '^  -q, --quiet +print errors only'
    run "$tool" --quiet --no-such-option
    expect_exit 2
    expect_stderr "^$tool: .*--no-such-option"
    expect_one_line
done
loud_and_quiet 'mist-sim: a dry run' 'plan\.json can be replayed' 0 mist-sim -n plan.json
cp -R traces small
edit traces/cluster.json 's/4294967296/104857600/' > small/cluster.json
loud_and_quiet 'mist-sim: too little memory of both kinds' 'of (device|host) memory' 0 \
    mist-sim plan2.json --cluster small --json
edit traces/cluster.json '/host_memory/d' > small/cluster.json
tune='mist-tune --model gpt3-demo --cluster small --global-batch 4 --seq-len 128 -n --progress=always --json'
loud_and_quiet 'mist-tune: nothing is offloaded' 'says nothing of host memory' 0 $tune
begin 'tables are for people: without them, and without a word'
for command in 'mist-sim plan2.json --explain' 'mist-sim plan2.json --sensitivity' "${tune% -n *}"; do
    run $command -q
    expect_exit 0
    expect_stdout_empty
    expect_stderr_empty
done
begin 'mist-tune: no progress either'
run ${tune% -n *} --json --progress=always -q
expect_exit 0
expect_stderr_empty
loud_and_quiet 'mist-exec: a dry run' 'plan\.json can be run' 0 mist-exec -n plan.json
loud_and_quiet 'mist-exec: two ranks' 'plan2\.json can be run' 0 \
    mpirun -n 2 "$MIST_BUILD/mist-exec" -n plan2.json
loud_and_quiet 'mist-profile: what is to come' 'operator shapes' 5 \
    mist-profile --backend cpu --quick --ranks 1 -o /proc/none --progress=always
begin 'mist-plot: nothing but the picture'
run mist-plot timeline timeline.csv -q
expect_exit 0
expect_stderr_empty
expect_stdout 'forward'

# ---------------------------------------------------------------------------------- control characters
esc=$(printf '\033') csi=$(printf '\302\233') nl='
'
# clean NAME REGEX COMMAND...: nothing but printable text is said, and it matches.
clean() {
    begin "$1"
    clean_regex=$2
    shift 2
    run "$@"
    expect_stderr "$clean_regex"
    expect_one_line
    LC_ALL=C grep -q "[^ -~$(printf '\303\266\303\237')]" "$err" && fail "raw bytes: $(od -c "$err" | head -n 5)"
    LC_ALL=C grep -q "$csi" "$out" "$err" && fail 'C1 on stdout or stderr'
    LC_ALL=C grep -q "$esc" "$out" && fail "escape on stdout: $(od -c "$out" | head -n 5)"
    nothing_written
}
bad="${esc}[2J${nl}gr"$(printf '\303\266\303\237')"er${csi}"
shown='\\x1b\[2J\\ngrößer\\u009b'
clean 'mist-sim: a plan that is not there' "^mist-sim: $shown: " mist-sim "$bad"
clean 'mist-exec: a plan that is not there' "^mist-exec: $shown: " mist-exec "$bad"
clean 'mist-tune: an unknown model' "$shown" mist-tune --model "$bad" --cluster traces --global-batch 4 --seq-len 128
clean 'mist-profile: an unknown model' "$shown" mist-profile --model "$bad" --quick --ranks 1 -o set
clean 'mist-plot: an unknown kind' "$shown" mist-plot "$bad" timeline.csv
for tool in $TOOLS; do
    clean "$tool: an unknown option" "^$tool: .*--$shown" "$tool" "--$bad"
done
cp plan.json "$bad"
clean 'mist-sim: a note' "^mist-sim: $shown can be replayed" mist-sim -n "$bad"
clean 'mist-exec: a note' "^mist-exec: $shown can be run" mist-exec -n "$bad"
rm "$bad"
rm -r small
cp -R traces small
edit traces/kernels.csv "3s/embedding/e${esc}mb/" > small/kernels.csv
clean 'an operator of a table' '^mist-sim: small/kernels\.csv:3: op: .*e\\x1bmb' mist-sim plan.json --cluster small
edit traces/kernels.csv "1s/shape/sh${csi}/" > small/kernels.csv
clean 'a column of a table' 'sh\\u009b' mist-sim plan.json --cluster small
edit traces/kernels.csv "5s/rows/r\\xffs/" > small/kernels.csv
clean 'a dimension that is no UTF-8' 'r\\xffs' mist-sim plan.json --cluster small
rm -r small
cp -R traces "$bad"
begin 'results: tables and CSV spell names out, JSON escapes'
run mist-sim plan.json --cluster "$bad" --sweep "kernel.attention=1x:2x"
expect_exit 0
cp timeline.csv "$bad.csv"
for options in '' '--title='"$bad"; do
    run mist-plot timeline "$bad.csv" ${options:+"$options"} --no-color
    expect_exit 0
    expect_stdout "^$shown\\.csv: "
    LC_ALL=C grep -q "$esc" "$out" && fail "escape on stdout: $(od -c "$out" | head -n 5)"
done
expect_stdout "^$shown\$"
finish

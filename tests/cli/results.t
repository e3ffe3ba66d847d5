#!/bin/sh
# Right input: results on stdout, everything else on stderr; JSON is one document; the same input gives the
# same output, byte for byte; a dry run does nothing; no tool needs what it does not use.
. tests/cli/lib.sh

# Train faster: two layers on one stage or on two.
edit plan.json 's/layers": 12/layers": 2/' > short.json
edit plan2.json 's/layers": 12/layers": 2/; s/layers": 6/layers": 1/' > short2.json

tune='mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128'

# json NAME COMMAND...: exits with 0, prints one JSON document and writes nothing.
json() {
    begin "one JSON document: $1"
    shift
    run "$@"
    expect_exit 0
    expect_json
    expect_stderr_empty
    nothing_written
}
json 'mist-sim' mist-sim plan2.json --json
json 'mist-sim --sweep' mist-sim plan2.json --json --sweep link.all=1x:2x
json 'mist-exec' mist-exec short.json -q --json --iterations 1
# shellcheck disable=SC2086
json 'mist-tune' $tune --json
# shellcheck disable=SC2086
json 'mist-tune --solver both' $tune --json --solver both
# shellcheck disable=SC2086
json 'mist-tune --dry-run' $tune --json --dry-run
json 'mist-profile --dry-run' mist-profile --dry-run --json
json 'mist-plot chrome' sh -c '"$MIST_BUILD/mist-plot" chrome timeline.csv | cat'
json 'mist-plot chrome, redirected' mist-plot chrome timeline.csv

begin 'mist-sim --csv: every row has as many cells'
run mist-sim plan2.json --csv
expect_exit 0
expect_stderr_empty
nothing_written

# ------------------------------------------------------------------------------- a dry run
# dry COMMAND...
dry() {
    begin "a dry run does nothing: $*"
    run "$@"
    expect_exit 0
    nothing_written
}
dry mist-sim plan.json --dry-run -o out.csv --chrome out.json
dry mist-exec plan.json --dry-run --timeline out.csv --log log.csv
expect_stderr '^mist-exec: plan\.json can be run$'
expect_stdout_empty
# shellcheck disable=SC2086
dry $tune --dry-run -o out.json --log log.csv --pareto pareto_out.csv --plans plans
dry mist-profile --dry-run -o set
begin 'a dry run on two ranks'
run mpirun -n 2 "$MIST_BUILD/mist-exec" plan2.json --dry-run
expect_exit 0
expect_once '^mist-exec: plan2\.json can be run$'
expect_stdout_empty
nothing_written

# --------------------------------------------------------------------------- the same, again
begin 'mist-sim twice: the same results, timeline and Chrome trace'
for i in 1 2; do
    run mist-sim plan2.json --jitter 0.1 --seed 7 -o "timeline$i.csv" --chrome "chrome$i.json"
    expect_exit 0
    mv "$out" "$scratch/io/result$i"
done
expect_same "$scratch/io/result1" "$scratch/io/result2"
expect_same timeline1.csv timeline2.csv
expect_same chrome1.json chrome2.json
expect_json chrome1.json
begin 'another seed, another jitter'
run mist-sim plan2.json --jitter 0.1 --seed 8 -o timeline3.csv
if cmp -s timeline1.csv timeline3.csv; then fail 'seeds 7 and 8 give the same timeline'; fi
begin 'mist-plot draws what mist-sim wrote, the same twice'
for i in 1 2; do
    run mist-plot timeline "timeline$i.csv" -o "timeline$i.svg" --title same
    expect_exit 0
done
expect_file timeline1.svg
sed 's/timeline[12]/timeline/g' timeline1.svg > "$scratch/io/a"
sed 's/timeline[12]/timeline/g' timeline2.svg > "$scratch/io/b"
expect_same "$scratch/io/a" "$scratch/io/b"
rm timeline[123].csv chrome[12].json timeline[12].svg

begin 'mist-exec: losses on stderr, the report on stdout, the same loss on one rank and on two'
run mist-exec short.json --iterations 2 --log log1.csv
expect_exit 0
expect_stderr '^ +2 +[0-9.]+ +[0-9.]+ +0\.001 +[0-9]+ +[0-9.]+ +[0-9.]+ %$'
expect_stdout '^loss, last  +[0-9.]+$'
loss=$(sed -n 's/^loss, last *//p' "$out")
run mpirun -n 2 "$MIST_BUILD/mist-exec" short2.json --iterations 2 --timeline measured.csv
expect_exit 0
expect_stdout "^loss, last  +$loss\$"
begin 'mist-sim lays a measured timeline beside the prediction'
run mist-sim short2.json --compare measured.csv --json
expect_exit 0
expect_json
expect_stdout '"compare"'
rm log1.csv measured.csv
begin 'mist-plot: every kind of picture in the terminal, nothing on stderr'
for kind in 'timeline timeline.csv' 'memory timeline.csv' 'compare compare.csv' 'pareto pareto.csv' 'links links_fit.csv'; do
    # shellcheck disable=SC2086
    run mist-plot $kind
    expect_exit 0
    expect_stderr_empty
    [ -s "$out" ] || fail "mist-plot $kind draws nothing"
    nothing_written
done
begin 'mist-plot: every kind of file'
for suffix in png svg pdf; do
    run mist-plot compare compare.csv -o "out.$suffix"
    expect_exit 0
    expect_file "out.$suffix"
    rm -f "out.$suffix"
done
begin 'mist-plot: no colours where there is no terminal'
run mist-plot timeline timeline.csv
if grep -q "$(printf '\033')" "$out"; then fail 'escape sequences in a pipe'; fi

# ------------------------------------------------------------------------------ odd, but right
begin 'names with blanks and quotes'
mkdir "a b" && cp -R traces "a b/it's" && cp timeline.csv "a b/time \"line\".csv"
run mist-sim plan.json --cluster "a b/it's" -o 'a b/$out.csv'
expect_exit 0
expect_file 'a b/$out.csv'
run mist-plot timeline 'a b/time "line".csv' --title 'it'\''s "a" $(touch bad) `touch bad` @a_b^c{' -o "a b/it's.svg"
expect_exit 0
expect_stderr_empty
expect_file "a b/it's.svg"
[ ! -e bad ] || fail 'the title was run by a shell'
rm -r 'a b'
begin 'lines that end as on Windows, and a byte order mark'
{ printf '\357\273\277'; sed "s/\$/$(printf '\r')/" timeline.csv; } > bom.csv
run mist-plot timeline bom.csv
sed -i 1d "$out"
cp "$out" "$scratch/io/bom"
run mist-plot timeline timeline.csv
sed -i 1d "$out"
expect_exit 0
expect_same "$out" "$scratch/io/bom"
rm bom.csv
for command in 'mist-sim plan.json' "$tune -q --json" 'mist-plot timeline timeline.csv' 'mist-profile --dry-run'; do
    begin "stdout is closed: ${command%% *}"
    run sh -c "\"\$MIST_BUILD\"/$command >&-"
    expect_exit 5
    expect_one_line
    nothing_written
done

# ------------------------------------------------------------------------- what tools are made of
begin 'only mist-tune is linked with GLPK, only mist-exec and mist-profile with MPI, none needs CUDA'
for tool in $TOOLS; do
    needed=$(readelf -d "$MIST_BUILD/$tool" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | tr '\n' ' ')
    case $tool in mist-tune) ;; *) case $needed in *glpk*) fail "$tool needs $needed" ;; esac ;; esac
    case $tool in mist-exec | mist-profile) ;; *) case $needed in *mpi*) fail "$tool needs $needed" ;; esac ;; esac
    case $needed in *cuda* | *nccl* | *cublas*) fail "$tool needs $needed" ;; esac
done
begin 'every tool starts in an empty environment'
for tool in $TOOLS; do
    run env -i "$MIST_BUILD/$tool" --version
    expect_exit 0
    expect_stderr_empty
done
finish

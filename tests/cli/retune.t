#!/bin/sh
# mist-tune --what-if and --retune: an edited cluster gives what a trace set that was edited by hand gives, and a
# plan's job is that of the options that it was made with.
. tests/cli/lib.sh

question='--model gpt3-demo --global-batch 4 --seq-len 128 --device-memory 96MiB'
tune="mist-tune $question --cluster traces"

value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$out" | head -n 1; }

# answer OPTION...: everything that mist-tune says, but for the edits.
answer() {
    run mist-tune "$@" --json
    expect_exit 0
    expect_stderr_empty
    grep -v '"what_if"' "$out"
}

# same NAME A B
same() {
    [ -s "$2" ] || fail "$1: no answer"
    diff "$2" "$3" > "$scratch/io/difference" || fail "$1: $(head -n 6 "$scratch/io/difference")"
}

begin 'an edited cluster is a trace set that was edited by hand'
cp -R traces edited
# columns: time_us and deviation_us
awk -F, -v OFS=, 'NR > 1 && $1 ~ /^(attention|adamw)$/ { $5 /= 2; $6 /= 2 } 1' CONVFMT=%.17g OFMT=%.17g traces/kernels.csv > edited/kernels.csv
awk -F, -v OFS=, 'NR > 1 { $6 *= 4; $7 *= 4 } 1' CONVFMT=%.17g OFMT=%.17g traces/links.csv > edited/links.csv
sed 's/"launch_us": 0.1/"launch_us": 40/' traces/cluster.json > edited/cluster.json
# shellcheck disable=SC2086
{
    answer $question --cluster traces > "$scratch/io/plain"
    answer $question --cluster edited > "$scratch/io/by_hand"
    answer $question --cluster traces --what-if kernel.attention=2x,kernel.adamw=2x,link.all=0.25x --what-if launch=40us > "$scratch/io/edited"
}
same 'by hand' "$scratch/io/by_hand" "$scratch/io/edited"
! cmp -s "$scratch/io/plain" "$scratch/io/edited" || fail 'the edits changed nothing'
rm -r edited
begin 'the edits are said'
# shellcheck disable=SC2086
run $tune --what-if kernel.products=2x,launch=40us
expect_stdout '^what if  *kernel\.products=2x,launch=40us$'

begin 'a plan is tuned again with what it was made with'
# shellcheck disable=SC2086
run $tune -o limited.json
expect_exit 0
answer --retune limited.json > "$scratch/io/again"
same 'again' "$scratch/io/plain" "$scratch/io/again"
begin 'its limit of memory can be edited'
# shellcheck disable=SC2086
{
    answer --model gpt3-demo --global-batch 4 --seq-len 128 --cluster traces --device-memory 192MiB > "$scratch/io/more"
    answer --retune limited.json --what-if device.memory=2x > "$scratch/io/again"
}
same 'more memory' "$scratch/io/more" "$scratch/io/again"
begin 'options change the job'
# shellcheck disable=SC2086
{
    answer --model gpt3-demo --global-batch 8 --seq-len 64 --cluster traces --device-memory 96MiB --ranks 1 > "$scratch/io/other"
    answer --retune limited.json --global-batch 8 --seq-len 64 --ranks 1 > "$scratch/io/again"
}
same 'another job' "$scratch/io/other" "$scratch/io/again"
begin 'and so does a sweep'
run mist-tune --retune limited.json --sweep batch=4:8 --csv
expect_exit 0
[ "$(grep -c '^[0-9]' "$out")" -eq 2 ] || fail "$(cat "$out")"
begin 'from another folder'
mkdir elsewhere
cp "$scratch/io/plain" "$scratch/io/again" # a plan names its trace set from its own place
(cd elsewhere && "$MIST_BUILD/mist-tune" --retune ../limited.json --json) > "$scratch/io/again" || fail 'no plan'
same 'elsewhere' "$scratch/io/plain" "$scratch/io/again"
begin 'a plan and its trace set can be moved together'
mkdir plans moved
# shellcheck disable=SC2086
run $tune -q -o plans/best.json
expect_exit 0
grep -q '"trace_set": "\.\./traces"' plans/best.json || fail "$(grep trace_set plans/best.json)"
cp -R plans traces moved/
mv traces away
run mist-sim moved/plans/best.json --json
mv away traces
expect_exit 0
moved=$(value iteration_s)
run mist-sim plans/best.json --json
[ "$(value iteration_s)" = "$moved" ] || fail "$moved s, not $(value iteration_s) s"
begin 'a path from the current folder, as older plans have it, is one where there is nothing else'
edit plans/best.json 's|"\.\./traces"|"traces"|' > plans/older.json
run mist-sim plans/older.json --json
expect_exit 0
[ "$(value iteration_s)" = "$moved" ] || fail "$moved s, not $(value iteration_s) s"
begin 'more nodes than the plan has ranks are all used'
run mist-tune --retune limited.json --what-if cluster.devices_per_node=1 --json
expect_exit 0
[ "$(value ranks)" = 1 ] || fail "$(value ranks) ranks"

refuse 'an edit of a rank' 2 '^mist-tune: what-if rank\.1: what a rank does is a plan.s to say' $tune --what-if rank.1=2x
for edit in link.all=1x kernel.all=1x launch=1x device.memory=1x; do
    refuse "an edit of nothing: $edit" 2 "^mist-tune: what-if $edit changes nothing: 1x is as fast, or as much, as it is\$" $tune --what-if $edit
done
refuse 'as many nodes' 2 '^mist-tune: what-if cluster\.nodes=1 changes nothing: there are so many, ' $tune --what-if link.all=2x,cluster.nodes=1
refuse 'an edit that nobody knows' 2 '^mist-tune: what-if speed: unknown name' $tune --what-if speed=2x
refuse 'a run on what there is not' 2 '^mist-tune: --verify runs plans on the cluster that there is; leave --what-if' \
    $tune --verify 2 --what-if launch=2x
refuse 'no such plan' 5 '^mist-tune: nowhere\.json: ' mist-tune --retune nowhere.json
edit limited.json 's/"trace_set": "[^"]*"/"trace_set": ""/' > bare.json
refuse 'a plan of no cluster' 2 '^mist-tune: bare\.json names no trace set; give one with --cluster' \
    mist-tune --retune bare.json
finish

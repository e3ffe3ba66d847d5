#!/bin/sh
# mist-sim: edits by name, sweeps, the replay's options.
. tests/cli/lib.sh

# bad NAME EDIT REASON
bad() { refuse "what-if: $1" 2 "^mist-sim: what-if .*$3" mist-sim plan.json --what-if "$2"; }

bad 'no value' 'kernel.attention' 'expected NAME=VALUE'
bad 'no name' '=2x' 'expected NAME=VALUE'
bad 'an unknown name' 'kernels.attention=2x' 'kernels\.attention: unknown name; there are kernel\.OP'
bad 'an unknown operator' 'kernel.atention=2x' 'no operator atention'
bad 'an unknown link' 'link.nvlink=2x' 'no link nvlink'
bad 'a link that was not measured' 'link.inter_node=2x' 'no link inter_node'
bad 'a factor without x' 'kernel.attention=0.7' 'expected a factor'
bad 'a factor of 0' 'kernel.attention=0x' 'expected a factor'
bad 'a negative factor' 'kernel.all=-2x' 'expected a factor'
bad 'a factor that is no number' 'kernel.all=nanx' 'expected a factor'
bad 'a hexadecimal factor' 'kernel.all=0x2x' 'expected a factor'
bad 'an infinite factor' 'kernel.all=1e999x' 'expected a factor'
bad 'another unit for a rate' 'link.all_reduce=40ms' 'a rate such as 400Gb/s'
bad 'a negative rate' 'link.all_reduce=-4Gb/s' 'a rate such as 400Gb/s'
bad 'half an interference' 'interference=half' 'expected none'
bad 'no nodes' 'cluster.nodes=0' 'a whole number from 1'
bad 'half a node' 'cluster.nodes=1.5' 'a whole number from 1'
bad 'a straggler that is not there' 'straggler.rank1=2x' 'ranks 0 to 0'
bad 'a straggler without a number' 'straggler.rankx=2x' 'no such rank'
bad 'a straggler without a factor' 'straggler.rank0=2' 'expected a factor'
for edit in kernel.all link.all launch straggler.rank0; do
    bad "$edit beyond all reason" "$edit=1e300x" 'an edit that leaves every time within 1e-9 \.\. 1e15 us'
done
bad 'trailing text' 'launch=2x ' 'expected a factor'
refuse 'what-if: an empty item' 2 '^mist-sim: --what-if: ' mist-sim plan.json --what-if 'launch=2x,'
refuse 'what-if: checked by a dry run' 2 '^mist-sim: what-if ' mist-sim plan.json --dry-run --what-if nothing=1

sweep() { refuse "sweep: $1" 2 "^mist-sim: $3" mist-sim plan.json --sweep "$2"; }
sweep 'no values' 'link.all' '--sweep link\.all: expected NAME=V1:V2'
sweep 'nothing behind =' 'link.all=' '--sweep link\.all=: expected NAME=V1:V2'
sweep 'no name' '=1x:2x' '--sweep =1x:2x: expected NAME=V1:V2'
sweep 'an empty value' 'link.all=1x::2x' '--sweep .*: expected NAME=V1:V2'
sweep 'an unknown name' 'link=1x:2x' 'what-if link: unknown name'
sweep 'a wrong value behind a good one' 'link.all=1x:2y' 'what-if link\.all=2y: expected'
refuse 'sweep: of several timelines none is written' 2 '^mist-sim: --sweep: ' \
    mist-sim plan.json --sweep link.all=1x:2x -o out.csv
refuse 'sweep: checked by a dry run' 2 '^mist-sim: (what-if|--sweep)' \
    mist-sim plan.json --dry-run --sweep link.all=oops

# ------------------------------------------------------------------- plans that the cluster is too small for
cp -R traces small
edit traces/cluster.json 's/"devices_per_node": 2/"devices_per_node": 1/' > small/cluster.json
refuse 'a plan for more ranks than devices' 3 '^mist-sim: plan2\.json: the plan needs 2 ranks, small has 1 x 1 devices' \
    mist-sim plan2.json --cluster small
begin 'a larger cluster by what-if'
run mist-sim plan2.json --cluster small --what-if cluster.devices_per_node=2
expect_exit 0
expect_stderr_empty
begin 'more nodes: their links are priced by those inside of one, and that is said once'
run mist-sim plan2.json --cluster small --what-if cluster.nodes=2 --sweep launch=1x:2x
expect_exit 0
expect_once '^mist-sim: small/links\.csv: no group has ranks on several nodes: .* or declare "node" in cluster\.json$'
expect_one_line
begin 'too little memory is said, the prediction made'
edit traces/cluster.json 's/"device_memory_bytes": 4294967296/"device_memory_bytes": 104857600/' > small/cluster.json
run mist-sim plan2.json --cluster small
expect_exit 0
expect_once '^mist-sim: stage 0 needs .* of device memory, there are 100 MiB$'
expect_one_line
begin 'a plan that was tuned for other measurements is said'
cp traces/cluster.json small/
run mist-tune --model gpt3-demo --cluster small --global-batch 4 --seq-len 128 -q -o tuned.json
expect_exit 0
run mist-sim tuned.json
expect_exit 0
expect_stderr_empty
edit traces/links.csv '2s/3.024/3.124/' > small/links.csv
run mist-sim tuned.json
expect_exit 0
expect_stderr '^mist-sim: tuned\.json was tuned for another model, job or trace set: .* what small is now$'
expect_one_line
run mist-sim tuned.json --cluster ./small --sweep launch=1x:2x
expect_stderr 'does not match what \./small is now$'
expect_one_line
run mist-sim tuned.json --cluster traces
expect_stderr_empty
run mpirun -n 2 "$MIST_BUILD/mist-exec" -n tuned.json
expect_exit 0
expect_stderr '^mist-exec: tuned\.json was tuned for another model, job or trace set: .* what small is now$'
rm -r small tuned.json

# ------------------------------------------------------------------- replays that this machine is too small for
# refuse_memory NAME REASON OPTIONS...: with 40 MB of address space a replay of 65,536 ranks is refused before it begins.
edit plan2.json 's/"global_batch": 4/"global_batch": 131072/; s/"dp": 1/"dp": 32768/; s/"mesh_nodes": 1/"mesh_nodes": 32768/' > big.json
limit='ulimit -v 40000; exec "$@"'
refuse_memory() {
    begin "too much memory: $1"
    reason=$2
    shift 2
    run sh -c "$limit" sh "$MIST_BUILD/mist-sim" big.json -q --what-if cluster.nodes=32768 "$@"
    expect_exit 4
    expect_stderr "^mist-sim: $reason"
    expect_one_line
    expect_stdout_empty
    nothing_written
}
if sh -c "$limit" sh "$MIST_BUILD/mist-sim" plan.json > /dev/null 2>&1; then
    ranks='replaying 2 iterations of 65536 ranks takes about [56][0-9]\.[0-9] MiB of memory, [0-9.]* MiB are available'
    refuse_memory 'unfolded' "$ranks; one rank would do for each stage, but it is asked for unfolded" --unfolded
    refuse_memory 'jitter' "$ranks; one rank would do for each stage, but there is jitter" --jitter 0.1
    refuse_memory 'a dry run says it, too' 'checking the schedules of 65536 ranks .*; fewer micro-batches need less' -n
    refuse_memory 'a sweep' "$ranks" --unfolded --sweep launch=1x:2x
    refuse_memory 'a timeline' \
        'replaying 2 iterations of 65536 ranks takes about [0-9.]* MiB .*; without a timeline it takes less' \
        --unfolded -o out.csv
    begin 'enough memory for one rank of each stage'
    run sh -c "$limit" sh "$MIST_BUILD/mist-sim" big.json --what-if cluster.nodes=32768
    expect_exit 0
    begin 'too much memory: schedules that could never be built, before one is'
    edit plan2.json 's/"global_batch": 4/"global_batch": 1073741824/; s/"n_micro_batches": 2/"n_micro_batches": 536870912/' > vast.json
    run mist-sim vast.json
    expect_exit 4
    expect_stderr '^mist-sim: the schedule of a rank takes [0-9.]* TiB of memory at least'
    run mpirun -n 2 "$MIST_BUILD/mist-exec" -n vast.json
    expect_exit 4
    expect_stderr '^mist-exec: the schedule of a rank takes [0-9.]* TiB of memory at least'
else
    begin 'too much memory'
    skip 'the tools do not start with 40 MB of address space (sanitizers)'
fi
rm -f big.json vast.json

# --------------------------------------------------------------------------- what it is good for
value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$out" | head -n 1; }

begin 'slower operators take longer, in proportion'
run mist-sim plan.json --json
base=$(value iteration_s)
run mist-sim plan.json --json --what-if kernel.all=2x
expect_exit 0
awk -v a="$base" -v b="$(value iteration_s)" 'BEGIN { exit !(b > 1.9 * a && b < 2.1 * a) }' ||
    fail "$base s became $(value iteration_s) s with operators twice as slow"

begin 'a factor of 1 changes nothing'
run mist-sim plan.json --json
cp "$out" a.json
run mist-sim plan.json --json --what-if kernel.all=1x,link.all=1x,launch=1x --what-if straggler.rank0=1x
expect_exit 0
expect_same "$out" a.json
rm a.json

begin 'a rate is that of the fastest row, wherever it stands'
run mist-sim plan2.json --json --what-if link.all_reduce=1GB/s
first=$(value iteration_s)
cp -R traces turned
{ head -n 1 traces/links.csv; tail -n +2 traces/links.csv | tac; } > turned/links.csv
run mist-sim plan2.json --json --cluster turned --what-if link.all_reduce=1GB/s
expect_exit 0
[ "$(value iteration_s)" = "$first" ] || fail "the same rows in another order: $(value iteration_s) s, not $first s"
rm -r turned

# The same by hand, in the tables.
begin 'without interference what runs together takes as long as the longest of it alone'
edit plan2.json 's/"offload_activations_frac": 0\.0/"offload_activations_frac": 1.0/' > offloads.json
cp -R traces alone
cp -R traces mixed # two mixtures of each kind, which is what a fit takes
awk -F, -v OFS=, '{ print } NR > 1 { for (i = 4; i < 9; i++) $i *= 2; print }' \
    traces/interference.csv > mixed/interference.csv
awk -F, -v OFS=, 'NR > 1 { $8 = 0; for (i = 4; i < 8; i++) if ($i > $8) $8 = $i } { print }' \
    mixed/interference.csv > alone/interference.csv
run mist-sim offloads.json --json --cluster mixed
base=$(value iteration_s)
run mist-sim offloads.json --json --cluster alone
by_hand=$(value iteration_s)
run mist-sim offloads.json --json --cluster mixed --what-if interference=none
expect_exit 0
[ "$(value iteration_s)" = "$by_hand" ] || fail "$(value iteration_s) s, by hand $by_hand s"
[ "$by_hand" != "$base" ] || fail "$base s with interference, too"
rm -r mixed

begin 'links within a node are all but copies'
awk -F, -v OFS=, 'NR > 1 && $1 !~ /host/ { $6 /= 4; $7 /= 4 } { print }' traces/links.csv > alone/links.csv
cp traces/interference.csv alone/
run mist-sim offloads.json --json
base=$(value iteration_s)
run mist-sim offloads.json --json --cluster alone
by_hand=$(value iteration_s)
run mist-sim offloads.json --json --what-if link.intra_node=4x
expect_exit 0
[ "$(value iteration_s)" = "$by_hand" ] || fail "$(value iteration_s) s, by hand $by_hand s"
[ "$by_hand" != "$base" ] || fail "$base s with slower links, too"
rm -r alone offloads.json

begin 'a sweep has one row per value, the same as one by one'
run mist-sim plan2.json --json --what-if link.all=0.5x
one=$(value iteration_s)
run mist-sim plan2.json --json --sweep link.all=0.25x:0.5x:1x
expect_exit 0
expect_json
[ "$(grep -c '"iteration_s"' "$out")" -eq 3 ] || fail 'not three rows'
[ "$(sed -n 's/^ *"iteration_s": \([^,]*\),*$/\1/p' "$out" | sed -n 2p)" = "$one" ] || fail "the row of 0.5x is not $one"

begin 'a straggler in a pipeline delays it'
run mist-sim plan2.json --json
base=$(value iteration_s)
run mist-sim plan2.json --json --what-if straggler.rank1=2x
expect_exit 0
awk -v a="$base" -v b="$(value iteration_s)" 'BEGIN { exit !(b > 1.2 * a) }' ||
    fail "$base s became $(value iteration_s) s with one rank twice as slow"
finish

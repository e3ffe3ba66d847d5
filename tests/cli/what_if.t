#!/bin/sh
# mist-sim: edits by name, studies of them, the replay's options.
. tests/cli/lib.sh

# bad NAME EDIT REASON
bad() { refuse "what-if: $1" 2 "^mist-sim: what-if .*$3" mist-sim plan.json --what-if "$2"; }

bad 'no value' 'kernel.attention' 'expected NAME=VALUE'
bad 'no name' '=2x' 'expected NAME=VALUE'
bad 'an unknown name' 'kernels.attention=2x' 'kernels\.attention: unknown name; there are kernel\.NAME'
bad 'an unknown operator' 'kernel.atention=2x' 'no operator atention'
bad 'an unknown link' 'link.nvlink=2x' 'no link nvlink'
bad 'a link that was not measured' 'link.node=2x' 'no link node'
bad 'adapters of which nobody knows how many there are' 'link.nic=400Gb/s' 'how many adapters a node has'
bad 'the rate of an operation' 'link.all_reduce=1GB/s' 'a factor such as 2x, twice as fast'
bad 'a factor without x' 'kernel.attention=0.7' 'expected a factor'
bad 'a factor of 0' 'kernel.attention=0x' 'expected a factor'
bad 'a negative factor' 'kernel.all=-2x' 'expected a factor'
bad 'a factor that is no number' 'kernel.all=nanx' 'expected a factor'
bad 'a hexadecimal factor' 'kernel.all=0x2x' 'expected a factor'
bad 'an infinite factor' 'kernel.all=1e999x' 'expected a factor'
bad 'another unit for a rate' 'link.device=40ms' 'a rate such as 400Gb/s'
bad 'a negative rate' 'link.device=-4Gb/s' 'a rate such as 400Gb/s'
bad 'a size of no bytes' 'device.memory=0GiB' 'a size such as 160GiB'
bad 'another unit for a size' 'device.memory=3ms' 'a size such as 160GiB'
bad 'another unit for a cost' 'launch=3GiB' 'a time such as 2us, or none'
bad 'a device that is not there' 'device=h2000' 'no preset of that name; presets, the nearest first: h200'
bad 'a device with nodes' 'device=h200:8x8' 'the name of a preset'
bad 'the host of another framework' 'framework.dispatch=2x' 'of no other framework'
bad 'half an interference' 'interference=half' 'expected none'
bad 'no nodes' 'cluster.nodes=0' 'a whole number from 1'
bad 'half a node' 'cluster.nodes=1.5' 'a whole number from 1'
bad 'a rank that is not there' 'rank.1=2x' 'ranks 0 to 0'
bad 'a rank without a number' 'rank.x=2x' 'no such rank'
bad 'a rank without a factor' 'rank.0=2' 'expected a factor'
for edit in kernel.all link.all device.memory rank.0; do
    bad "$edit beyond all reason" "$edit=1e300x" 'a factor from 0\.000001x to 1000000x'
done
bad 'a launch beyond all reason' 'launch=1e-300x' 'an edit that leaves every time within 1e-9 \.\. 1e15 us'
bad 'trailing text' 'launch=2x ' 'expected a factor'
refuse 'what-if: an empty item' 2 '^mist-sim: --what-if: ' mist-sim plan.json --what-if 'launch=2x,'
nothing() { bad "changes nothing: $1" "$2" "changes nothing: $3"; }
nothing 'a factor of 1' kernel.all=1x '1x is as fast, or as much, as it is'
nothing 'an operator of other models' kernel.swiglu=2x 'the plan runs no such operator'
nothing 'a message of other plans' link.all_gather=2x 'the plan sends nothing that way'
begin 'more than the peak: said once, unless the peak goes with it'
run mist-sim plan.json --what-if kernel.all=1000x,launch=2x
expect_exit 0
expect_once '^mist-sim: MFU is above 100 %: operators are faster'
expect_one_line
run mist-sim plan.json --what-if launch=2x
expect_stderr_empty
nothing 'what there is' device.memory=4GiB 'it is so already'
nothing 'nodes that the plan does not use' cluster.nodes=4 'there are so many, or the plan keeps its ranks'
nothing 'one of two' launch=2x,link.all_gather=2x 'the plan sends nothing that way'
refuse 'what-if: checked by a dry run' 2 '^mist-sim: what-if ' mist-sim plan.json --dry-run --what-if nothing=1

sweep() { refuse "sweep: $1" 2 "^mist-sim: $3" mist-sim plan.json --sweep "$2"; }
sweep 'no values' 'link.all' '--sweep link\.all: expected NAME=V1:V2'
sweep 'nothing behind =' 'link.all=' '--sweep link\.all=: expected NAME=V1:V2'
sweep 'no name' '=1x:2x' '--sweep =1x:2x: expected NAME=V1:V2'
sweep 'an empty value' 'link.all=1x::2x' '--sweep .*: expected NAME=V1:V2'
sweep 'an unknown name' 'link=1x:2x' 'what-if link: unknown name'
sweep 'one of two that changes nothing' 'launch=1x:2x,link.all_gather=1x:2x' 'what-if link\.all_gather=2x changes nothing'
sweep 'a wrong value behind a good one' 'link.all=1x:2y' 'what-if link\.all=2y: expected'
refuse 'sweep: of several timelines none is written' 2 '^mist-sim: --sweep: ' \
    mist-sim plan.json --sweep link.all=1x:2x -o out.csv
for study in --sweep=launch=2x:3x --sensitivity; do
    refuse "$study explains no one timeline" 2 '^mist-sim: --s[a-z]*: has no one timeline' mist-sim plan.json $study --explain
done
refuse 'two studies' 2 '^mist-sim: --sensitivity and --sweep are two studies' \
    mist-sim plan.json --sensitivity --sweep launch=2x:3x
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
begin 'in one line for all stages, of that which needs the most'
run mist-sim plan2.json --cluster small --what-if device.memory=0.25x
expect_exit 0
expect_once '^mist-sim: stage 0 needs .* of device memory, there are 25\.0 MiB; so it is with 2 stages$'
expect_one_line
begin 'so is too little host memory, in one line for all nodes'
edit plan2.json 's/"offload_optimizer_frac": 0.0/"offload_optimizer_frac": 1.0/' > host.json
run mist-sim host.json --cluster a100-80:2x1,nic=1x100Gb/s,host-memory=20MiB
expect_exit 0
expect_once '^mist-sim: node 0 needs ([0-9.]+) MiB of host memory, there are 20\.0 MiB; so it is with 2 nodes$'
expect_stdout '^host memory of a node +3[0-9.]+ MiB$'
begin 'a sweep of host memory says what a node needs of it: what the arenas of its ranks take'
run mist-sim host.json --csv
arenas=$(awk -F, 'NR > 1 { sum += $NF } END { print sum }' "$out")
run mist-sim host.json --sweep node.host_memory=0.001x:1x --csv
expect_exit 0
[ "$arenas" -gt 0 ] && [ "$(awk -F, '{ print $(NF - 1), $NF }' "$out")" = "host_bytes host_memory_bytes
$arenas 4294967296
$arenas 4294967
$arenas 4294967296" ] || fail "the ranks of a node need $arenas bytes"
run mist-sim plan2.json --sweep node.host_memory=0.001x:1x
expect_stdout '^what if .* it has$' # none is needed
begin 'two edits of which one makes a difference only beside the other'
run mist-sim --model gpt3-1.3b --seq-len 2048 --zero 1 --micro-batch 1 --cluster h100-sxm:2x8 --save-plan two.json
expect_exit 0
run mist-sim two.json --what-if cluster.nodes=4,cluster.devices_per_node=4 --csv
expect_exit 0
tail -n 1 "$out" | cut -d, -f 3 > narrow
run mist-sim two.json --cluster h100-sxm:4x4 --csv
[ "$(tail -n 1 "$out" | cut -d, -f 1)" = "$(cat narrow)" ] || fail "nodes of 4 by what-if: $(cat narrow) s"
run mist-sim two.json --what-if cluster.nodes=4,link.device=2x
expect_exit 2
expect_stderr 'cluster\.nodes=4 changes nothing'
rm host.json two.json narrow
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
    ranks='replaying 2 iterations of 65536 ranks takes about [67][0-9]\.[0-9] MiB of memory, [0-9.]* MiB are available'
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
run mist-sim plan.json --json --what-if kernel.all=0.5x
expect_exit 0
awk -v a="$base" -v b="$(value iteration_s)" 'BEGIN { exit !(b > 1.9 * a && b < 2.1 * a) }' ||
    fail "$base s became $(value iteration_s) s with operators twice as slow"

begin 'a rate is that of the fastest row, wherever it stands'
run mist-sim plan2.json --json --what-if link.device=1GB/s
first=$(value iteration_s)
cp -R traces turned
{ head -n 1 traces/links.csv; tail -n +2 traces/links.csv | tac; } > turned/links.csv
run mist-sim plan2.json --json --cluster turned --what-if link.device=1GB/s
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
run mist-sim offloads.json --json --what-if link.device=4x
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
[ "$(grep -c '"iteration_s"' "$out")" -eq 4 ] || fail 'not three rows and the baseline'
[ "$(sed -n 's/^ *"iteration_s": \([^,]*\),*$/\1/p' "$out" | sed -n 3p)" = "$one" ] || fail "the row of 0.5x is not $one"

# column NAME: its number in the CSV of $out.
column() { head -n 1 "$out" | tr , '\n' | grep -n "^$1\$" | cut -d: -f1; }

begin 'several sweeps: every combination, the last one fastest'
run mist-sim plan2.json --csv --sweep launch=1x:2x --sweep kernel.products=0.5x:1x:2x
expect_exit 0
[ "$(sed -n 's/^"\(launch[^"]*\)".*/\1/p' "$out" | tr '\n' ' ')" = 'launch=1x,kernel.products=0.5x launch=1x,kernel.products=1x launch=1x,kernel.products=2x launch=2x,kernel.products=0.5x launch=2x,kernel.products=1x launch=2x,kernel.products=2x ' ] ||
    fail "$(cat "$out")"
cp "$out" sweep.csv
begin 'it is drawn'
run mist-plot sweep sweep.csv
expect_exit 0
expect_stdout 'kernel.products=0.5x'
rm sweep.csv

refuse 'a memory without its unit' 2 "^mist-sim: what-if device\.memory=80 is 80 bytes, which can't be meant; .*: 80GiB" \
    mist-sim plan2.json --what-if device.memory=80
begin 'a what-if: the baseline, each edit alone, all of them; differences of time, tokens/s and memory'
run mist-sim plan2.json --json
base=$(value iteration_s)
run mist-sim plan2.json --csv --what-if kernel.products=2x,device.memory=8GiB
expect_exit 0
awk -F, -v OFS='|' -v base="$base" -v iteration="$(column iteration_s)" -v change="$(column iteration_change_s)" \
    -v tokens="$(column tokens_per_s_change_frac)" -v has="$(column device_memory_bytes)" '
    { sub(/^"[^"]*"/, "all") } # has a comma
    NR > 1 { at = NR - 1; t[at] = $iteration; d[at] = $change; f[at] = $tokens; m[at] = $has }
    function same(a, b) { return a - b < 1e-9 && b - a < 1e-9 }
    END { exit !(NR == 5 && t[1] == base && d[1] == 0 && t[2] < base && t[3] == base && t[4] == t[2] &&
        same(d[4], t[4] - base) && same(f[4], base / t[4] - 1) && m[1] == 2 ^ 32 && m[2] == 2 ^ 32 && m[3] == 2 ^ 33 && m[4] == 2 ^ 33) }' \
    "$out" || fail "$(cat "$out")"
run mist-sim plan2.json --what-if kernel.products=2x
expect_stdout '^what if  *iteration  *\+-  *difference'
expect_stdout '^baseline '
expect_stdout '^kernel\.products=2x '

begin 'sensitivity: what helps most comes first, as each what-if says'
run mist-sim plan2.json --csv --sensitivity
expect_exit 0
expect_stderr_empty
awk -F, -v t="$(column more_iteration_s)" 'NR > 1 { if ($t < before) bad = 1; before = $t } END { exit bad || NR < 6 }' "$out" ||
    fail "$(cat "$out")"
products=$(awk -F, -v t="$(column more_iteration_s)" -v c="$(column change)" '$c == "kernel.products" { print $t }' "$out")
cp "$out" sensitivity.csv
run mist-sim plan2.json --json --what-if kernel.products=1.1x
[ "$(value iteration_s)" = "$products" ] || fail "$(value iteration_s) s, not $products s"
begin 'it is drawn'
run mist-plot sensitivity sensitivity.csv
expect_exit 0
expect_stdout 'kernel.products'

begin 'and the best plan for each change: never slower than this one, and as mist-tune says'
run mist-sim plan2.json --csv --sensitivity --retune
expect_exit 0
expect_stderr_empty
awk -F, -v m="$(column more_iteration_s)" -v r="$(column retuned_iteration_s)" -v b="$(column best_iteration_s)" \
    -v d="$(column retuned_change_s)" -v f="$(column retuned_change_frac)" '
    function same(x, y) { return x - y < 1e-9 && y - x < 1e-9 }
    NR > 1 { if ($r > $m || $r < before || !same($d, $r - $b) || !same($f, $r / $b - 1)) bad = 1; before = $r }
    END { exit bad || NR < 6 }' "$out" || fail "$(cat "$out")"
awk -F, -v OFS=, -v c="$(column change)" -v m="$(column more_iteration_s)" -v l="$(column less_iteration_s)" \
    'NR > 1 { print $c, $m, $l }' "$out" | sort > kept
awk -F, -v OFS=, -v c="$(awk -F, '{ for (i = 1; i <= NF; i++) if ($i == "change") print i; exit }' sensitivity.csv)" \
    'NR > 1 { print $c }' sensitivity.csv | sort > levers
cut -d, -f1 kept | diff levers - || fail 'other levers'
for lever in kernel.products device.memory; do
    best=$(awk -F, -v c="$(column change)" -v r="$(column retuned_iteration_s)" -v l=$lever '$c == l { print $r }' "$out")
    cp "$out" retuned.csv
    run mist-tune --model gpt3-demo --cluster traces --global-batch 4 --seq-len 128 --threads 1 --ranks 2 --json --what-if $lever=1.1x
    expect_exit 0
    [ "$(value iteration_s)" = "$best" ] || fail "$lever: $(value iteration_s) s, not $best s"
    cp retuned.csv "$out"
done
cp "$out" sensitivity.csv
run mist-plot sensitivity sensitivity.csv
expect_exit 0
expect_stdout 'best plan'
rm sensitivity.csv retuned.csv kept levers
refuse 'no sensitivity' 2 '^mist-sim: --retune needs --sensitivity$' mist-sim plan2.json --retune
refuse 'a job without a plan' 2 '^mist-sim: --retune plans again for the job of a PLAN; --save-plan' \
    mist-sim --model gpt3-1.3b --seq-len 512 --micro-batch 1 --cluster l4:1x2 --sensitivity --retune
mkdir alone
cp "$MIST_BUILD/mist-sim" alone/
refuse 'no mist-tune beside mist-sim' 5 '^mist-sim: .*/alone/mist-tune: is not there' \
    alone/mist-sim plan2.json --sensitivity --retune
printf '%s\n' '#!/bin/sh' 'echo "mist-tune: out of luck" >&2' 'exit 1' > alone/mist-tune
chmod +x alone/mist-tune
refuse 'a mist-tune that fails' 1 '^mist-sim: --retune: mist-tune failed with exit code 1: mist-tune: out of luck' \
    alone/mist-sim plan2.json --sensitivity --retune
rm -r alone

begin 'a class of operators is its operators'
run mist-sim plan.json --json --what-if kernel.products=2x
one=$(value iteration_s)
run mist-sim plan.json --json --what-if kernel.linear_bias=2x,kernel.linear_gelu=2x,kernel.linear_residual=2x
expect_exit 0
[ "$(value iteration_s)" = "$one" ] || fail "$(value iteration_s) s, not $one s"

begin 'a preset: adapters of the rate of the data sheet, and other devices'
cp plan2.json preset.json
refuse 'an adapter of the rate that it has' 2 'link\.nic=400Gb/s changes nothing: ' \
    mist-sim preset.json -q --cluster h100-sxm:2x1,nic=400Gb/s --what-if link.nic=400Gb/s
run mist-sim preset.json --json --cluster h100-sxm:2x1,nic=400Gb/s --what-if link.nic=200Gb/s
half=$(value iteration_s)
run mist-sim preset.json --json --cluster h100-sxm:2x1,nic=400Gb/s --what-if link.node=0.5x
[ "$(value iteration_s)" = "$half" ] || fail "$(value iteration_s) s, not $half s"
run mist-sim preset.json --json --cluster h200:1x2
other=$(value iteration_s)
run mist-sim preset.json --json --cluster h100-sxm:1x2 --what-if device=h200
expect_exit 0
[ "$(value iteration_s)" = "$other" ] || fail "$(value iteration_s) s, not $other s"
rm preset.json
begin 'a sweep leaves out what is impossible, and says why'
run mist-sim plan2.json --csv --cluster a100-80:1x2 --sweep cluster.devices_per_node=1:2
expect_exit 0
expect_stderr '^mist-sim: cluster\.devices_per_node=1: the plan needs 2 ranks'
expect_stdout '^cluster\.devices_per_node=1,,'
expect_stdout '^cluster\.devices_per_node=2,[0-9.]+,'
run mist-sim plan2.json --cluster a100-80:1x2 --sweep cluster.devices_per_node=1
expect_exit 3
expect_stderr '^mist-sim: --sweep: the plan runs with no value'
for dry in '' --dry-run; do
    refuse "two tables in CSV $dry" 2 '^mist-sim: --csv is one table' \
        mist-sim plan2.json --csv --explain --causes --what-if rank.0=0.5x $dry
    refuse "no timeline of a study $dry" 2 '^mist-sim: --sensitivity: ' mist-sim plan2.json --sensitivity --explain $dry
    refuse "ranks of other plans $dry" 2 '^mist-sim: --retune: ' \
        mist-sim plan2.json --sensitivity --retune --what-if rank.0=0.5x $dry
done
refuse 'a rank as fast as it is' 2 'rank\.0=1\.0x changes nothing' mist-sim plan2.json --what-if rank.0=1.0x
begin 'a slow rank in a pipeline delays it'
run mist-sim plan2.json --json
base=$(value iteration_s)
run mist-sim plan2.json --json --what-if rank.1=0.5x
expect_exit 0
awk -v a="$base" -v b="$(value iteration_s)" 'BEGIN { exit !(b > 1.2 * a) }' ||
    fail "$base s became $(value iteration_s) s with one rank twice as slow"
finish

#!/bin/sh
# Wrong trace sets and timelines: refused with file, line and reason. Read by mist-sim and mist-plot.
. tests/cli/lib.sh

# bad FILE NAME SED_SCRIPT LINE REASON: a trace set with FILE edited. LINE @: the edited one.
bad() {
    rm -rf bad && cp -R traces bad
    edit "traces/$1" "$3" > "bad/$1"
    line=$4
    [ "$line" != @ ] || line=$(changed_line "traces/$1" "bad/$1")
    refuse "$1: $2" 3 "^mist-sim: bad/$1:$line(:[0-9]+)?: .*$5" mist-sim plan.json --cluster bad
}

refuse 'no trace set' 3 '^mist-sim: cluster none: there is no such folder, and no preset of that name; presets' mist-sim plan.json --cluster none
refuse 'no trace set at a path' 5 '^mist-sim: no/set/cluster\.json: ' mist-sim plan.json --cluster no/set
refuse 'a file as trace set' 5 '^mist-sim: plan\.json/cluster\.json: ' mist-sim plan.json --cluster plan.json
mkdir empty
refuse 'an empty folder as trace set' 5 '^mist-sim: empty/cluster\.json: ' mist-sim plan.json --cluster empty

bad cluster.json 'truncated' '9,$d' '[89]' ''
bad cluster.json 'a wrong format number' 's/"format": 1/"format": 0/' @ 'format'
bad cluster.json 'an unknown key' 's/"nodes"/"hosts"/' @ 'hosts'
bad cluster.json 'a duplicate key' 's/"nodes": 1,/"nodes": 1, "nodes": 2,/' @ 'nodes'
bad cluster.json 'no devices' 's/"devices_per_node": 2/"devices_per_node": 0/' @ 'devices_per_node'
bad cluster.json 'a negative memory' 's/4294967296/-1/' @ 'device_memory_bytes'
bad cluster.json 'a rate of 0' 's/"memory_bytes_per_s": 20000000000/"memory_bytes_per_s": 0/' '(1|15)' 'memory_bytes_per_s'
bad cluster.json 'a negative drift' 's/"launch_us": 0.1/"drift_frac": -0.1/' @ 'drift_frac'
bad cluster.json 'a drift in percent' 's/"launch_us": 0.1/"drift_frac": "2 %"/' @ 'drift_frac'
bad cluster.json 'another unit' 's/"memory_bytes_per_s"/"memory_gb_per_s"/' @ 'memory_gb_per_s'
bad cluster.json 'an unknown backend' 's/"cpu"/"tpu"/' @ 'tpu'
bad cluster.json 'an unknown dtype' 's/"fp32"/"fp33"/' @ 'fp33'

bad kernels.csv 'empty' '1,$d' '[01]' ''
bad kernels.csv 'truncated in a row' '10s/,[^,]*$//; 11,$d' 10 ''
bad kernels.csv 'an unknown column' '1s/bytes/octets/' 1 'octets'
bad kernels.csv 'a column twice' '1s/bytes/flop/' 1 'flop'
bad kernels.csv 'another unit in a column' '1s/time_us/time_ms/' 1 'time_ms.*time_us'
bad kernels.csv 'a column too many' '5s/$/,7/' @ ''
bad kernels.csv 'a negative time' '7s/,[0-9.]*,/,-5,/' @ 'time_us'
bad kernels.csv 'a time of 0' '7s/,[0-9][0-9.]*,/,0,/' @ 'time_us'
bad kernels.csv 'NaN' '7s/,[0-9][0-9.]*,/,nan,/' @ 'time_us.*nan'
bad kernels.csv 'infinity' '7s/,[0-9][0-9.]*,/,inf,/' @ 'time_us.*inf'
bad kernels.csv 'a hexadecimal number' '7s/,[0-9][0-9.]*,/,0x10,/' @ 'time_us.*0x10'
bad kernels.csv 'text behind a number' '7s/,[0-9][0-9.]*,/,5us,/' @ 'time_us.*5us'
bad kernels.csv 'an empty cell' '7s/,[0-9][0-9.]*,/,,/' @ 'time_us'
bad kernels.csv 'an open quote' '4s/^/"/' '4' ''
bad kernels.csv 'a quote that opens inside a cell' '4s/,fp32/,fp"32/' @ ''
bad kernels.csv 'an unknown phase' '4s/forward/sideways/' @ 'sideways'
bad kernels.csv 'a shape without a number' '4s/rows=256/rows=/' @ 'rows'
bad kernels.csv 'a shape with a negative number' '4s/rows=256/rows=-256/' @ 'rows'
bad kernels.csv 'one row twice' '4p' '(4|5)' ''
bad links.csv 'an unknown operation' '3s/all_reduce/all_to_all/' @ 'all_to_all'
bad links.csv 'bytes with a fraction' '3s/65536/65536.5/' @ 'bytes'
bad links.csv 'no ranks' '3s/all_reduce,1,2/all_reduce,1,0/' @ 'ranks_per_node'
bad links.csv 'another unit in a column' '1s/,bytes/,kib/' 1 'kib'
bad interference.csv 'an unknown channel' '2s/gpu_gpu/nvlink/' @ 'nvlink'
bad interference.csv 'one channel alone' '2s/compute+gpu_gpu/compute/' @ 'channels'
bad interference.csv 'a time for a channel that is not named' '2s/5000,0,0/5000,7,0/' @ 'host_to_device_us'
bad interference.csv 'no time for a channel that is named' '2s/6000,5000/6000,0/' @ 'gpu_gpu_us'
# Times that nothing takes: another unit in a column, or a slip of the hand.
bad kernels.csv 'a launch that takes more than a day' '7s/,[0-9][0-9.]*,/,1e11,/' @ 'time_us is 1e\+11, beyond reason'
bad kernels.csv 'milliseconds in a column of microseconds' '5s/,1008,/,1.008,/' @ 'time_us is 1\.008, beyond reason: flop'
bad kernels.csv 'bytes a thousand times too many' '4s/524288,524288/524288,1e12/' @ 'beyond reason: bytes'
bad kernels.csv 'a deviation of more than a day' '4s/,0.27,/,1e11,/' @ 'deviation_us'
bad links.csv 'a message faster than memory' '5s/4196/0.004196/' @ 'beyond reason: bytes'
bad interference.csv 'together in a tenth of the time alone' '2s/8500/85/' @ 'together_us is 85, beyond reason'
bad cluster.json 'a peak that no device has' 's/100000000000$/1e19/' '(1|15)' 'peak_flop_per_s is 1e\+19, beyond reason'
bad cluster.json 'a launch of two days' 's/"launch_us": 0.1/"launch_us": 2e11/' '(1|15)' 'launch_us'

# ------------------------------------------------------------------------------------------- plans that were run

checks_head=mechanism,predicted_us,bar_us,measured_us,deviation_us,repetitions

# bad_check NAME ROW REASON: a set with that row behind a good one.
bad_check() {
    rm -rf checked && cp -R traces checked
    printf '%s\n%s\n%s\n' "$checks_head" pipeline,98000,3000,100000,1000,10 "$2" > checked/checks.csv
    refuse "checks.csv: $1" 3 "^mist-sim: checked/checks\.csv:3(:[0-9]+)?: .*$3" mist-sim plan.json --cluster checked
}
bad_check 'an unknown mechanism' telepathy,1,0,1,0,1 'telepathy'
bad_check 'a mechanism twice' pipeline,1,0,1,0,1 'pipeline comes twice'
bad_check 'nothing predicted' zero3,0,0,1,0,1 'predicted_us is 0'
bad_check 'nothing measured' zero3,1,0,0,0,1 'measured_us is 0'
bad_check 'no run' zero3,1,0,1,0,0 'repetitions'
bad_check 'milliseconds beside microseconds' zero3,98000,0,98,0,4 'measured_us is 98, beyond reason'

begin 'checks widen error bars'
printf '%s\n%s\n' "$checks_head" data_parallel,110000,0,100000,0,10 > checked/checks.csv
run mist-tune --model gpt3-demo --cluster traces --global-batch 16 --seq-len 128 --space 3d -q -o bar.json
expect_exit 0
narrow=$(sed -n 's/.*"error_s": \([0-9.e-]*\),*/\1/p' bar.json)
run mist-tune --model gpt3-demo --cluster checked --global-batch 16 --seq-len 128 --space 3d -q -o bar2.json
expect_exit 0
wide=$(sed -n 's/.*"error_s": \([0-9.e-]*\),*/\1/p' bar2.json)
time=$(sed -n 's/.*"iteration_s": \([0-9.e-]*\),*/\1/p' bar2.json)
awk -v n="$narrow" -v w="$wide" -v t="$time" 'BEGIN { e = sqrt(n * n + 0.04 * t * t); exit !(w > 0.999 * e && w < 1.001 * e) }' ||
    fail "$narrow became $wide of $time"

# ---------------------------------------------------------------------------------- files that were cut
# "rows" of cluster.json, which mist-profile writes; sets without it are edited freely, as all those above.
rm -rf bad && cp -R traces counted
edit traces/cluster.json '2a "rows": {"kernels.csv": 38, "links.csv": 24, "interference.csv": 11},' > counted/cluster.json
begin 'tables of as many rows as cluster.json says'
run mist-sim -q -n plan.json --cluster counted
expect_exit 0
expect_stderr_empty
# cut NAME FILE LINE REASON COMMAND...: FILE of a set is what COMMAND leaves of it.
cut_file() {
    name=$1 file=$2 line=$3 reason=$4
    shift 4
    rm -rf bad && cp -R counted bad
    "$@" "counted/$file" > "bad/$file"
    refuse "$file: $name" 3 "^mist-sim: bad/$file:$line: $reason" mist-sim plan.json --cluster bad
    refuse "$file: $name: mist-tune" 3 "^mist-tune: bad/$file:$line: $reason" \
        mist-tune --model gpt3-demo --cluster bad --global-batch 4 --seq-len 128
    begin "$file: $name: mist-exec says it, and trains without"
    sed 's|"trace_set": "traces"|"trace_set": "bad"|' plan.json > other.json
    run mist-exec -n other.json
    expect_exit 0
    expect_once "^mist-exec: bad/$file:$line: $reason"
    rm other.json
}
cut_file 'cut at a row' kernels.csv 21 'the file ends after 20 rows, expected 38 .* put 20 there' head -n 21
cut_file 'cut at its last row' links.csv 24 'the file ends after 23 rows, expected 24' head -n 24
cut_file 'a row too many' interference.csv 13 'the file ends after 12 rows, expected 11' \
    sed '$p;$s/6000/6001/'
cut_file 'cut behind the header' links.csv 1 'the file ends after 0 rows, expected 24' head -n 1
cut_file 'cut inside of its last number' kernels.csv 39 'the file ends inside of this row' head -c -3
cut_file 'cut at the last end of line' links.csv 25 'the file ends inside of this row' head -c -1
rm -rf bad && cp -R counted bad && rm bad/links.csv
refuse 'a table that is gone' 3 '^mist-sim: bad/links\.csv: the file is not there, expected 24 rows' \
    mist-sim plan.json --cluster bad
begin 'an edit by hand: the number that the message names'
head -n 21 traces/kernels.csv > bad/kernels.csv
edit counted/cluster.json 's/"kernels.csv": 38/"kernels.csv": 20/' > bad/cluster.json
cp counted/links.csv bad
run mist-sim -q -n plan.json --cluster bad
expect_exit 0
expect_stderr_empty
edit counted/cluster.json 's/kernels.csv/kernel.csv/' > bad/cluster.json
refuse 'rows of a file that is none' 3 '^mist-sim: bad/cluster\.json:3:[0-9]+: .*kernel\.csv' \
    mist-sim plan.json --cluster bad

# ---------------------------------------------------------------------------------- words of no use
begin 'unknown operators and formats are said, once each, with file and line'
rm -rf bad && cp -R traces bad
edit traces/kernels.csv '5,8s/linear_bias/linear_bais/; 9s/fp32/tf32/; 12s/^[a-z_]*/linaer/' > bad/kernels.csv
run mist-sim plan.json --cluster bad --sweep launch=1x:2x
expect_exit 0
expect_once '^mist-sim: bad/kernels\.csv:5: no operator is called linear_bais: 2 rows not used; known are embedding, .*, adamw_host, head_norm, .*kv_order$'
expect_once '^mist-sim: bad/kernels\.csv:12: no operator is called linaer: 1 row not used'
expect_once '^mist-sim: bad/kernels\.csv:9: no job computes in tf32: 1 row not used; known are fp32, bf16, fp16$'
[ "$(wc -l < "$err")" -eq 3 ] || fail "$(cat "$err")"
begin 'the same by mist-tune and mist-exec'
run mist-tune --model gpt3-demo --cluster bad --global-batch 4 --seq-len 128 -n
expect_exit 0
expect_once '^mist-tune: bad/kernels\.csv:5: no operator is called linear_bais'
expect_once '^mist-tune: bad/kernels\.csv:9: no job computes in tf32'
sed 's|"trace_set": "traces"|"trace_set": "bad"|' plan.json > other.json
run mist-exec -n other.json
expect_once '^mist-exec: bad/kernels\.csv:5: no operator is called linear_bais'
expect_once '^mist-exec: bad/kernels\.csv:9: no job computes in tf32'
begin 'rows of another format than the job computes in'
edit traces/kernels.csv 's/fp32/bf16/' > bad/kernels.csv
run mist-sim plan.json --cluster bad
expect_exit 0
expect_once '^mist-sim: bad/kernels\.csv: no row of fp32, which the job computes in; there are 38 rows of bf16'
expect_one_line
begin 'a phase that the operator is never run in, and what no kernel does'
edit traces/kernels.csv '8s/,forward,/,optimizer,/; 5s/^[a-z_]*/tp_all_reduce/' > bad/kernels.csv
run mist-sim plan.json --cluster bad
expect_exit 0
expect_once '^mist-sim: bad/kernels\.csv:8: residual_layer_norm has no phase optimizer: 1 row not used \(mist-sim --list\)$'
expect_once '^mist-sim: bad/kernels\.csv:5: no operator is called tp_all_reduce: 1 row not used'
bad kernels.csv 'a dimension that the operator does not have' '5s/n_in=256/n_im=256/' @ 'linear_bias has the shape .*n_im'
rm -rf bad counted other.json

# ---------------------------------------------------------------------------------- timelines
# bad_timeline NAME SED_SCRIPT LINE REASON
bad_timeline() {
    edit timeline.csv "$2" > bad.csv
    line=$3
    [ "$line" != @ ] || line=$(changed_line timeline.csv bad.csv)
    refuse "timeline: $1" 3 "^mist-plot: bad\\.csv:$line(:[0-9]+)?: .*$4" mist-plot timeline bad.csv
}
refuse 'timeline: missing' 5 '^mist-plot: none\.csv: ' mist-plot timeline none.csv
bad_timeline 'empty' '1,$d' '[01]' ''
bad_timeline 'truncated' '$s/,[^,]*,[^,]*$//' @ ''
head -c -2 timeline.csv > bad.csv
refuse 'timeline: cut inside of its last number' 3 '^mist-plot: bad\.csv:[0-9]+: the file ends inside of this row' \
    mist-plot timeline bad.csv
bad_timeline 'an unknown column' '1s/bytes/octets/' 1 'octets'
bad_timeline 'another unit' '1s/start_s/start_ms/' 1 'start_ms.*start_s'
bad_timeline 'a negative time' '2s/,0,0.001,/,-0.1,0.001,/' @ 'start_s'
bad_timeline 'an end before its start' '5s/0.004,0.006/0.006,0.004/' @ ''
bad_timeline 'NaN' '2s/,0.001,/,nan,/' @ 'end_s'
bad_timeline 'an unknown stream' '2s/compute/tensor/' @ 'tensor'
bad_timeline 'an unknown kind' '2s/forward/upward/' @ 'upward'
bad_timeline 'a negative rank' '2s/^0/-1/' @ 'rank'
bad_timeline 'one task twice' '4s/,0,2,/,0,0,/' '[24]' ''
bad_timeline 'two tasks of a stream at once' '4s/,0.001,/,0.0005,/' '[24]' ''
refuse 'compare: a column is missing' 3 '^mist-plot: timeline\.csv:1: ' mist-plot compare timeline.csv
edit compare.csv '3s/0.200/0/' > bad.csv
refuse 'compare: a time of 0' 3 '^mist-plot: bad\.csv:3: ' mist-plot compare bad.csv
edit pareto.csv '3s/,1$/,2/' > bad.csv
refuse 'pareto: chosen is neither 0 nor 1' 3 '^mist-plot: bad\.csv:3: chosen' mist-plot pareto bad.csv
edit links_fit.csv '2s/2.5/-2.5/' > bad.csv
head -c -1 pareto.csv > bad2.csv
refuse 'pareto: cut at its last end of line' 3 '^mist-plot: bad2\.csv:[0-9]+: the file ends inside of this row' \
    mist-plot pareto bad2.csv
refuse 'links: a negative time' 3 '^mist-plot: bad\.csv:2: measured_us' mist-plot links bad.csv
head -n 1 compare.csv > bad.csv
refuse 'compare: a header alone' 3 '^mist-plot: bad\.csv' mist-plot compare bad.csv
head -n 1 timeline.csv > bad.csv
for kind in timeline memory chrome; do
    refuse "$kind: a header alone" 3 '^mist-plot: bad\.csv:1: no task' mist-plot $kind bad.csv
done
refuse 'mist-sim --compare: a header alone' 3 '^mist-sim: bad\.csv:1: no task' mist-sim plan.json --compare bad.csv
refuse 'mist-sim --compare: missing' 5 '^mist-sim: none\.csv: ' mist-sim plan.json --compare none.csv
refuse 'mist-sim --compare: missing, by a dry run' 5 '^mist-sim: none\.csv: ' mist-sim plan.json --compare none.csv -n
run mist-sim plan2.json -q -o whole.csv
begin 'mist-sim --compare: a whole timeline'
run mist-sim plan2.json --compare whole.csv
expect_exit 0
expect_stderr_empty
head -n -1 whole.csv > bad.csv
refuse 'mist-sim --compare: a timeline without its last row' 3 \
    '^mist-sim: bad\.csv: the timeline has the end of 0 of 1 iterations on rank 1: was the file cut' \
    mist-sim plan2.json --compare bad.csv
grep -v '^1,' whole.csv > bad.csv
refuse 'mist-sim --compare: a timeline cut between two ranks' 3 \
    "^mist-sim: bad\.csv: the timeline has 1 of the plan's 2 ranks: is it of another plan, or was the file cut" mist-sim plan2.json --compare bad.csv
awk -F, -v OFS=, 'NR == 1 || $7 != 3 { print; next } { $4 += 1; print }' whole.csv > bad.csv
refuse 'mist-sim --compare: a task of another layer' 3 \
    '^mist-sim: bad\.csv: task 3 of rank 0 is [a-z_]* of layer [0-9]*, .* in the plan it is .*: the timeline is of another plan' \
    mist-sim plan2.json --compare bad.csv
edit plan2.json 's/"hidden": 256/"hidden": 128/; s/"head_dim": 64/"head_dim": 32/' > other.json
run mist-sim other.json -q -o other.csv
refuse 'mist-sim --compare: a timeline of another model' 3 \
    '^mist-sim: other\.csv: task [0-9]* of rank 0, .* bytes, in the plan [0-9]*: the timeline is of another model or job' \
    mist-sim plan2.json --compare other.csv
edit plan2.json 's/"global_batch": 4/"global_batch": 8/; s/"dp": 1/"dp": 2/; s/"mesh_devices": 1/"mesh_devices": 2/' > wide.json
run mist-sim wide.json -q --unfolded --what-if cluster.nodes=2 -o wide.csv
grep -v '^1,' wide.csv > bad.csv
refuse 'mist-sim --compare: another number of ranks' 3 "^mist-sim: bad\.csv: the timeline has 3 of the plan's 4 ranks" \
    mist-sim wide.json -q --what-if cluster.nodes=2 --compare bad.csv
begin 'mist-sim --compare: one rank of each stage, with all kinds of tasks of each, the largest difference first'
run mist-sim wide.json -q --what-if cluster.nodes=2 -o folded.csv
awk -F, -v OFS=, -v CONVFMT=%.12f '$1 == 2 { $8 *= 1.5; $9 *= 1.5 } { print }' folded.csv > slow.csv
run mist-sim wide.json --what-if cluster.nodes=2,launch=1.5x --compare slow.csv
expect_exit 0
expect_stdout '^tasks  *stage  *rank  *predicted  *measured  *difference'
grep -A 2 '^Where they differ' "$out" | tail -n 1 | grep -Eq '^backward  *1  *2 ' || fail "$(grep -A 3 '^Where' "$out")"
rm whole.csv other.json other.csv wide.json wide.csv folded.csv slow.csv
refuse 'mist-sim --compare: a timeline of another plan' 3 '^mist-sim: timeline\.csv' mist-sim plan.json --compare timeline.csv
finish

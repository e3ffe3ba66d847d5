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

refuse 'no trace set' 5 '^mist-sim: none/cluster\.json: ' mist-sim plan.json --cluster none
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
rm -rf bad

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
refuse 'links: a negative time' 3 '^mist-plot: bad\.csv:2: measured_us' mist-plot links bad.csv
head -n 1 compare.csv > bad.csv
refuse 'compare: a header alone' 3 '^mist-plot: bad\.csv' mist-plot compare bad.csv
head -n 1 timeline.csv > bad.csv
for kind in timeline memory chrome; do
    refuse "$kind: a header alone" 3 '^mist-plot: bad\.csv:1: no task' mist-plot $kind bad.csv
done
refuse 'mist-sim --compare: a header alone' 3 '^mist-sim: bad\.csv:1: no task' mist-sim plan.json --compare bad.csv
refuse 'mist-sim --compare: missing' 5 '^mist-sim: none\.csv: ' mist-sim plan.json --compare none.csv
refuse 'mist-sim --compare: a timeline of another plan' 3 '^mist-sim: timeline\.csv' mist-sim plan.json --compare timeline.csv
finish

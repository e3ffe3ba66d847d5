#!/bin/sh
# mist-sim --replay: jobs that were recorded elsewhere.
. tests/cli/lib.sh

# Two stages, one micro-batch; the second stage began 2 us after it had received.
cat > ops.csv << 'END'
step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us
7,0,0,forward-compute,0,0,0,compute,100,10
7,0,0,forward-send,0,0,-1,pp-comm,110,5
7,0,1,forward-recv,0,0,-1,pp-comm,100,15
7,0,1,forward-compute,0,0,0,compute,117,20
7,0,1,backward-compute,0,0,0,compute,137,40
7,0,1,backward-send,0,0,-1,pp-comm,177,5
7,0,0,backward-recv,0,0,-1,pp-comm,110,72
7,0,0,backward-compute,0,0,0,compute,182,10
END

# value KEY: of the JSON that was printed
value() { perl -MJSON::PP -e 'local $/; my $value = decode_json(<STDIN>)->{$ARGV[0]};
    printf $value =~ /,/ ? "%s\n" : "%.9g\n", $value' "$1" < "$out"; }
expect_value() { [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), expected $2"; }

begin 'unchanged, without gaps, even'
run mist-sim --replay ops.csv --json
expect_exit 0
expect_json
expect_value recorded_s 9.2e-05
expect_value replayed_s 9.2e-05
expect_value replayed_worst_frac 0
expect_value without_gaps_s 9e-05
expect_value even_s 9e-05

begin 'as edited: a message lasts from when all are there'
run mist-sim --replay ops.csv --json --what-if kernel.backward-compute=2x,launch=none,link.forward-send=0.5x
expect_exit 0
expect_value edited_s 6.5e-05
expect_value edited_change_s -2.7e-05
expect_value edited_change_frac -0.293478261
run mist-sim --replay ops.csv --json --what-if link.forward-send=0.5x,link.forward-recv=0.5x
expect_value edited_s 9.7e-05
run mist-sim --replay ops.csv --json --what-if rank.1=0.5x
expect_value edited_s 0.000152

begin 'as CSV: stages, replicas and operations'
run mist-sim --replay ops.csv --csv
expect_exit 0
for row in 'stage,0,' 'stage,1,' 'replica,' 'operation,.*,forward-compute' 'operation,.*,backward-recv'; do
    expect_stdout "^1,1,2,8,.*,$row"
done
begin 'packed, for people'
gzip -k ops.csv
run mist-sim --replay ops.csv.gz
expect_exit 0
expect_stderr_empty
expect_stdout '^iteration, recorded  *92.0 us$'
expect_stdout '^slowest workers  *[01]$'
expect_stdout '^operation  *alone, slowdown  *iteration without it$'
run mist-sim --replay ops.csv.gz --dry-run
expect_exit 0
expect_stdout_empty
expect_stderr '^mist-sim: ops\.csv\.gz can be replayed$'
rm ops.csv.gz

# 3,000 replicas of one stage, of which every thirtieth takes twice as long.
awk 'BEGIN {
    print "step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us"
    for (i = 0; i < 3000; i++) {
        took = i % 30 == 7 ? 20 : 10
        print "7," i ",0,forward-compute,0,0,0,compute,100," took
        print "7," i ",0,backward-compute,0,0,0,compute," 100 + took "," took
    }
}' > wide.csv
begin 'many slowest workers: programs see all of them, people the first, and how many there are'
run mist-sim --replay wide.csv --json
expect_exit 0
[ "$(value slowest_workers)" = "$(seq -s ', ' 7 30 2700)" ] || fail "$(value slowest_workers)"
run mist-sim --replay wide.csv --csv
expect_stdout "\"$(seq -s ', ' 7 30 2700)\""
run mist-sim --replay wide.csv
expect_stdout "^slowest workers  *$(seq -s ', ' 7 30 460) and 74 more\$"
rm wide.csv

# 40,000 steps, their rows far apart: what was read is sorted on the disk.
awk -F, -v OFS=, 'NR == 1 { print; next } { rest = substr($0, 2); for (i = 1; i <= 40000; i++) print i rest }' ops.csv > long.csv
limit='ulimit -v 60000; exec "$@"'
begin 'a long table in little memory'
if sh -c "$limit" sh "$MIST_BUILD/mist-sim" --version > /dev/null 2>&1; then
    run sh -c "$limit" sh "$MIST_BUILD/mist-sim" --replay long.csv --json
    expect_exit 0
    expect_value steps 40000
    expect_value replayed_s 9.2e-05
    expect_value even_s 9e-05
    run env TMPDIR=/nowhere "$MIST_BUILD/mist-sim" --replay long.csv
    expect_exit 5
    expect_stderr '^mist-sim: /nowhere: can.t make a temporary file: '
else
    skip 'the tools do not start with 60 MB of address space (sanitizers)'
fi
rm long.csv

refuse 'a plan beside it' 2 '^mist-sim: --replay: a recording has no use for PLAN' mist-sim plan.json --replay ops.csv
for option in --cluster=traces --framework=megatron --attention=flash --recompute=full --lengths=none \
    --jitter=0.1 --iterations=3 --threads=2 --unfolded --sweep=launch=2x --sensitivity --explain --causes \
    --compare=none --output=new --chrome=new --save-plan=new --export=new --list --presets; do
    refuse "$option beside it" 2 "^mist-sim: --replay: a recording has no use for ${option%%=*}; leave it out\$" \
        mist-sim --replay ops.csv "$option"
done
refuse 'a job beside it' 2 '^mist-sim: --replay: a recording has no use for --model; leave it out' mist-sim --replay ops.csv --model gpt3-demo
for edit in launch rank.0 kernel.forward-compute link.all; do
    refuse "an edit of nothing: $edit=1x" 2 "^mist-sim: what-if $edit=1x changes nothing" \
        mist-sim --replay ops.csv --what-if $edit=1x
done
refuse 'an edit of nothing' 2 '^mist-sim: what-if kernel.matmul=2x changes nothing: ' \
    mist-sim --replay ops.csv --what-if kernel.matmul=2x
refuse 'a file that is not there' 5 '^mist-sim: none\.csv: can.t open: No such file or directory$' mist-sim --replay none.csv
refuse 'nor is it beside a plan' 5 '^mist-sim: none\.csv: can.t open: No such file or directory$' mist-sim plan.json --replay none.csv
mkfifo pipe
refuse 'a pipe' 5 '^mist-sim: pipe: is a pipe, expected a file' mist-sim --replay pipe
rm pipe
refuse 'another table' 3 '^mist-sim: traces/kernels\.csv:1: unknown column' mist-sim --replay traces/kernels.csv
sed '/forward-send/d' ops.csv > lost.csv
refuse 'a message that nobody sent' 3 '^mist-sim: lost\.csv:3: optype: forward-recv 0 of dp_rank 0, stage 1 has no forward-send' \
    mist-sim --replay lost.csv
# Two ranks' traces of a profiler: a kernel, then a sum that rank 1 comes to 4 us later.
trace() { # trace RANK KERNEL_US
    cat << END
{"distributedInfo": {"rank": $1, "world_size": 2},
"traceEvents": [
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 9, "ts": 100, "dur": 3, "args": {"correlation": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "tid": 9, "ts": 103, "dur": 0, "args": {"correlation": 2}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "tid": 9, "ts": 104, "dur": 2, "args": {"correlation": 3}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "tid": 9, "ts": 107, "dur": 33, "args": {"correlation": 4}},
{"ph": "X", "cat": "kernel", "name": "sgemm", "ts": 105, "dur": $2, "args": {"correlation": 1, "stream": 7}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": $((106 + $2)), "dur": $((33 - $2)), "args": {"correlation": 3, "stream": 24}}
]}
END
}
mkdir job
trace 0 10 > job/a.json
trace 1 14 | gzip > job/b.json.gz

begin 'traces of a profiler'
run mist-sim --replay job --json
expect_exit 0
expect_json
expect_value ranks 2
expect_value messages 1
expect_value recorded_s 4e-05
expect_value replayed_s 4e-05
expect_value unmatched 0
run mist-sim --replay job --csv
expect_exit 0
for row in 'rank,0,' 'rank,1,' 'operation,.*,matmul,kernel,2,' 'operation,.*,all_reduce,link,2,'; do
    expect_stdout "^2,.*,$row"
done
run mist-sim --replay 'job/*.json*' --json --what-if launch=none
expect_value edited_s 3.3e-05
run mist-sim --replay job/b.json.gz --replay job/a.json --json --what-if kernel.matmul=2x
expect_value edited_s 3.3e-05
run mist-sim --replay job --what-if rank.0=0.5x
expect_exit 0
expect_stderr_empty
expect_stdout '^iteration, as edited  *46.0 us$'
expect_stdout '^difference  *6.00 us$'
expect_stdout '^of it  *15.0 %$'
expect_stdout '^matmul  *kernel  *2  '
run mist-sim --replay job/a.json --json
expect_value unmatched 1

head -c 600 job/a.json > job/b.json
rm job/b.json.gz
refuse 'a trace that was cut' 3 '^mist-sim: job/b\.json:7: the file ends inside of this event: it was cut$' mist-sim --replay job
trace 0 10 > job/b.json
refuse 'a rank twice' 3 '^mist-sim: job/b\.json: is of rank 0, as job/a\.json; ' mist-sim --replay job
trace 2 10 | sed 's/"world_size": 2/"world_size": 3/' > job/b.json
sed -i 's/"world_size": 2/"world_size": 3/' job/a.json
refuse 'a rank that is missing' 3 '^mist-sim: job/a\.json: is of a job of 3 ranks, and the trace of rank 1 is missing; ' mist-sim --replay job
refuse 'a pattern of nothing' 3 '^mist-sim: none\*\.json: there are no such files$' mist-sim --replay 'none*.json'
rm -r job

begin 'a timeline of a plan, with two iterations'
run mist-sim plan2.json -q -o once.csv
awk -F, -v OFS=, 'NR == 1 { print; next } { print; $6++; $8 += 1; $9 += 1; print }' once.csv > twice.csv
run mist-sim plan2.json --replay once.csv --json
expect_exit 0
once=$(value recorded_s)
expect_value replayed_s "$once"
expect_value messages 5
run mist-sim plan2.json --replay twice.csv --json --what-if launch=none
expect_value messages 10
awk -v a="$(value edited_s)" -v b="$once" 'BEGIN { exit !(a > 1.9999 * b && a < 2.0001 * b) }' ||
    fail "two iterations take $(value edited_s), one $once"

# 3,000 iterations, their rows far apart. A second of each passes from one to the next.
awk -F, -v OFS=, -v OFMT=%.15g 'NR == 1 { print; next } { for (i = 0; i < 3000; i++) { $6 = i + 1; print $1, $2, $3, $4, $5, $6, $7, $8 + i, $9 + i, $10, $11 } }' \
    once.csv > long.csv
begin 'a long timeline in little memory'
if sh -c "$limit" sh "$MIST_BUILD/mist-sim" --version > /dev/null 2>&1; then
    gzip -k long.csv
    run sh -c "$limit" sh "$MIST_BUILD/mist-sim" plan2.json --replay long.csv.gz --json
    expect_exit 0
    expect_stderr_empty
    expect_value operations 288000
    expect_value messages 15000
    awk -v a="$(value recorded_s)" -v b="$once" 'BEGIN { exit !(a > 2998.9999 + b && a < 2999.0001 + b) }' ||
        fail "3,000 iterations take $(value recorded_s), one $once"
    expect_value replayed_s "$(value recorded_s)"
    run env TMPDIR=/nowhere "$MIST_BUILD/mist-sim" plan2.json --replay long.csv
    expect_exit 5
    expect_stderr '^mist-sim: /nowhere: can.t make a temporary file: '
    head -c 100000 long.csv.gz > cut.csv.gz
    rm long.csv.gz
else
    skip 'the tools do not start with 60 MB of address space (sanitizers)'
    gzip -c once.csv | head -c 1000 > cut.csv.gz
fi
rm long.csv

refuse 'a timeline without its plan' 2 '^mist-sim: --replay: once\.csv is a timeline of a plan; name this PLAN, too$' mist-sim --replay once.csv
refuse 'a timeline of another plan' 3 '^mist-sim: once\.csv: has rank 1, the plan 1 ranks; ' mist-sim plan.json --replay once.csv
grep -v '^1,' once.csv > less.csv
refuse 'a timeline without a rank' 3 '^mist-sim: less\.csv: has no task of rank 1; ' mist-sim plan2.json --replay less.csv
sed 's/^0,compute,forward,2,/0,compute,forward,3,/' once.csv > other.csv
refuse 'a timeline of other tasks' 3 '^mist-sim: other\.csv: task [0-9]+ of rank 0 is forward of layer 3, micro-batch 0, which the plan does not have there; ' \
    mist-sim plan2.json --replay other.csv
grep -v '^0,host_to_device,load_batch,' once.csv > lost.csv
refuse 'a timeline without a task' 3 '^mist-sim: lost\.csv: iteration 1 of rank 0 has no task [0-9]+ \(load_batch\), expected all tasks$' \
    mist-sim plan2.json --replay lost.csv
refuse 'a packed timeline that was cut' 3 '^mist-sim: cut\.csv\.gz: begins like a gzip file, but is damaged or cut off$' \
    mist-sim plan2.json --replay cut.csv.gz
sed '$p' twice.csv > again.csv
refuse 'a task twice' 3 "^mist-sim: again\.csv:194: task: comes twice in this rank and iteration, expected once\$" \
    mist-sim plan2.json --replay again.csv
awk -F, -v OFS=, '$6 == 2 { $6 = 1 } { print }' twice.csv > mixed.csv
refuse 'two iterations with one number' 3 '^mist-sim: mixed\.csv:[0-9]+: task: comes twice in this rank and iteration, expected once$' \
    mist-sim plan2.json --replay mixed.csv
awk -F, -v OFS=, '$6 == 1 { $6 = 3 } { print }' twice.csv > turned.csv
refuse 'a later iteration that was before' 3 \
    '^mist-sim: turned\.csv:[0-9]+: start_s: 0\.[0-9]+ is before 1\.[0-9]+, where task [0-9]+ of an iteration before ends on the same rank and stream$' \
    mist-sim plan2.json --replay turned.csv
awk -F, -v OFS=, '$6 == 2 && $2 == "compute" && $4 == 2 { $9 += 0.5 } { print }' twice.csv > beside.csv
refuse 'tasks of a stream at once' 3 \
    '^mist-sim: beside\.csv:[0-9]+: start_s: [0-9.]+ is before [0-9.]+, where task [0-9]+ of the same rank and stream ends$' \
    mist-sim plan2.json --replay beside.csv
awk -F, '$6 != 2 || $1 != 1 || $3 != "recv_activation"' twice.csv > lost.csv
refuse 'an iteration without a task' 3 '^mist-sim: lost\.csv: iteration 2 of rank 1 has no task [0-9]+ \(recv_activation\), expected all tasks$' \
    mist-sim plan2.json --replay lost.csv
last=$(awk -F, '$1 == 1 && $7 > last { last = $7 } END { print last }' once.csv)
awk -F, -v last="$last" '$6 != 2 || $1 != 1 || $7 != last' twice.csv > lost.csv
refuse 'an iteration without its last task, for which none waits' 3 \
    "^mist-sim: lost\.csv: iteration 2 of rank 1 has no task $last \([a-z_]+\), expected all tasks\$" \
    mist-sim plan2.json --replay lost.csv
for rank in 0 1; do
    awk -F, -v rank=$rank '$6 != 2 || $1 != rank' twice.csv > lost.csv
    refuse "an iteration without rank $rank" 3 "^mist-sim: lost\.csv: iteration 2 has no task of rank $rank, expected those of all ranks\$" \
        mist-sim plan2.json --replay lost.csv
done
begin 'a run begins without an update, and has a whole one later or none'
update=$(awk -F, '$3 == "optimizer" && $1 == 0 { print $7; exit }' once.csv)
awk -F, '$6 != 1 || $3 != "optimizer"' twice.csv > begun.csv
run mist-sim plan2.json --replay begun.csv
expect_exit 0
awk -F, -v update="$update" '$6 != 2 || $1 != 0 || $7 != update' begun.csv > lost.csv
refuse 'an iteration with a part of an update' 3 \
    "^mist-sim: lost\.csv: iteration 2 of rank 0 has no task $update \(optimizer\), expected all tasks\$" \
    mist-sim plan2.json --replay lost.csv
begin 'rows in another order'
(head -n 1 twice.csv && sed 1d twice.csv | sort -t, -k8,8g -r) > sorted.csv
run mist-sim plan2.json --replay twice.csv --json
cp "$out" answer.json
run mist-sim plan2.json --replay sorted.csv --json
expect_exit 0
expect_same "$out" answer.json
finish

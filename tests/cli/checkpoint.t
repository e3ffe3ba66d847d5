#!/bin/sh
# Folders of checkpoints: one job at a time, the same folder for all ranks, damage and what is gone on from
# instead, --verify, old formats, what can't be deleted.
. tests/cli/lib.sh

tiny_inputs
exec="mist-exec one.json --data text.txt"
two="$MIST_BUILD/mist-exec $PWD/two.json --data $PWD/text.txt"
mpi2="mpirun --oversubscribe -n 2 $two"

# damage FILE: changes a byte in the middle.
damage() {
    printf '\377\376\375' | dd of="$1" bs=1 seek=$(($(wc -c < "$1") / 2)) conv=notrunc 2> /dev/null
}

# ---------------------------------------------------------------------------------- one job at a time
begin 'a run leaves its checkpoints and nothing else'
run $exec -q --iterations 3 --checkpoint kept --save-every 1
expect_exit 0
[ "$(ls kept | tr '\n' ' ')" = 'step-00000001 step-00000002 step-00000003 ' ] || fail "$(ls kept)"

cp -R kept held
echo 'run 0123456789abcdef, process 77 on a host, since 2026-01-02 03:04:05 UTC' > held/lock
refuse 'another job saves there: who, and since when' 5 \
    '^mist-exec: held/lock: another job saves its checkpoints here: run 0123456789abcdef, process 77 on a host, since 2026-01-02 03:04:05 UTC$' \
    flock held/lock "$MIST_BUILD"/$exec -q --iterations 4 --resume held --checkpoint held --deadline 0.2s
begin 'the same on two ranks: one says it'
run flock held/lock $mpi2 -q --iterations 4 --resume held --checkpoint held --deadline 1s
expect_exit 5
expect_once '^mist-exec: held/lock: another job saves its checkpoints here: run 0123456789abcdef,'
expect_once '^mist-exec: '
expect_stdout_empty
nothing_written
begin 'a dry run and one that saves elsewhere do not mind'
run flock held/lock "$MIST_BUILD"/$exec -n --iterations 4 --resume held --checkpoint held
expect_exit 0
run flock held/lock "$MIST_BUILD"/$exec -q --iterations 4 --resume held --checkpoint elsewhere
expect_exit 0
printf 'run x\033[2J\001, since \377\n' > held/lock
refuse 'a text that a terminal would obey' 5 ': run x\\x1b\[2J\\x01, since ' \
    flock held/lock "$MIST_BUILD"/$exec -q --iterations 4 --resume held --checkpoint held --deadline 0.1s
rm -r held elsewhere

begin 'a job before this one that is still at it is waited for'
cp -R kept held
flock held/lock sleep 2 &
until ! flock -n held/lock true; do sleep 0.02; done
run $exec --iterations 4 --resume held --checkpoint held --deadline 60s
expect_exit 0
expect_once '^mist-exec: held/lock: another job saves its checkpoints here: .*; waits up to 60 s for it$'
expect_once '^mist-exec: goes on from held/step-00000003$'
wait
begin 'a signal ends the wait'
perl -e 'open F, ">>", "held/lock"; flock F, 2; sleep 100' &
other=$!
until ! flock -n held/lock true; do sleep 0.02; done
command_line='a job that waits, and SIGTERM'
"$MIST_BUILD"/$exec --iterations 5 --resume held --checkpoint held > "$out" 2> "$err" &
waiting=$!
i=0
until grep -q 'waits up to 120 s' "$err" || [ $i -ge 1000 ]; do
    i=$((i + 1))
    sleep 0.02
done
kill -TERM $waiting
wait $waiting
code=$?
expect_exit 143
expect_stderr '^mist-exec: held/lock: another job saves its checkpoints here: [^;]*$'
kill $other
wait $other 2> /dev/null
begin 'the file of a job that was killed is no obstacle'
echo 'run 0123456789abcdef, process 77 on a host, since 2026-01-02 03:04:05 UTC' > held/lock
run $exec --iterations 5 --resume held --checkpoint held
expect_exit 0
if grep -q 'another job' "$err"; then fail "$(cat "$err")"; fi
[ ! -e held/lock ] || fail 'its lock is still there'

begin 'two jobs at a time: the second is refused, the first goes on'
"$MIST_BUILD"/$exec -q --iterations 20000 --checkpoint both --save-every 1 > /dev/null 2> "$scratch/io/first" &
first=$!
i=0
until grep -q "process $first on" both/lock 2> /dev/null || [ $i -ge 1000 ]; do
    i=$((i + 1))
    sleep 0.02
done
run $mpi2 -q --iterations 5 --checkpoint both --deadline 0.2s
expect_exit 5
expect_once "^mist-exec: both/lock: another job .*: run [0-9a-f]{16}, process $first on [^ ]+, since 20"
expect_once '^mist-exec: '
kill -0 $first || fail "the first has ended: $(cat "$scratch/io/first")"
kill -9 $first
wait $first 2> /dev/null
begin 'and once it was killed the folder is free'
run $exec -q --resume both --checkpoint both --iterations 1 # or more, or none were done
case $code in 0 | 2 | 3) ;; *) fail "exit code $code: $(cat "$err")" ;; esac
if grep -q 'another job' "$err"; then fail "$(cat "$err")"; fi
run mist-exec --verify both
[ "$code" -eq 0 ] || [ "$code" -eq 3 ] || fail "exit code $code: $(cat "$out" "$err")"
rm -r both held

# under NAME TAKE COMMAND...: a run that saves all the time ends when TAKE has taken its folder away.
under() {
    begin "$1"
    take=$2
    shift 2
    command_line="$*, and $take"
    mkdir under && "$@" -q --iterations 1000000 --checkpoint under/run --save-every 1 > "$out" 2> "$err" &
    pid=$!
    i=0
    until [ -e under/run/step-00000002 ] || [ $((i += 1)) -gt 3000 ]; do sleep 0.02; done
    eval "$take"
    i=0
    while kill -0 $pid 2> /dev/null && [ $((i += 1)) -le 3000 ]; do sleep 0.02; done
    kill -0 $pid 2> /dev/null && fail 'it trains on' && kill -9 $pid
    wait $pid
    code=$?
    expect_exit 5
    expect_once '^mist-exec: under/run/lock: is no longer this run.s: the folder was removed or replaced under the run;'
    expect_once '^mist-exec: '
}
under 'a folder that is moved away under the run' 'mv under/run under/moved' "$MIST_BUILD"/$exec
[ -z "$(ls under/run 2> /dev/null)" ] || fail "left there: $(ls under/run)"
rm -r under
under 'one of two ranks, with another in its place' 'mkdir under/new; mv under/run under/moved; mv under/new under/run' $mpi2
[ -z "$(find under/run -name 'step-*')" ] || fail "left there: $(ls under/run)"
rm -r under
under 'a lock that is removed' 'rm under/run/lock' "$MIST_BUILD"/$exec
rm -r under

# ---------------------------------------------------------------------------------- one folder for all
begin 'ranks that see different folders are refused before training'
mkdir node0 node1
cat > apart.sh << 'EOF'
cd "node$OMPI_COMM_WORLD_RANK" && exec "$@"
EOF
run mpirun --oversubscribe -n 2 sh apart.sh $two --iterations 2 --checkpoint run --deadline 2s
expect_exit 5
expect_once "^mist-exec: run: rank 1 on [^ ]+, in $PWD/node1 does not see the folder that rank 0 saves in: all ranks need the same"
expect_once '^mist-exec: '
expect_stdout_empty
nothing_written
begin 'one that only rank 0 can make'
mkdir node0/here
run mpirun --oversubscribe -n 2 sh apart.sh $two -q --iterations 2 --checkpoint here/run --deadline 2s
expect_exit 5
expect_once '^mist-exec: here/run: rank 1 on '
nothing_written
begin 'the same folder under different names is fine'
ln -s ../node0/here node1/here
run mpirun --oversubscribe -n 2 sh apart.sh $two -q --iterations 2 --checkpoint here/run
expect_exit 0
[ "$(ls node0/here/run)" = step-00000002 ] || fail "$(ls node0/here/run)"

# ---------------------------------------------------------------------------------- damage
begin 'a damaged payload in the newest: the one before, and that is said'
cp -R kept bits
damage bits/step-00000003/rank-00000.bin
run $exec --resume bits --iterations 4
expect_exit 0
expect_once '^mist-exec: bits/step-00000003/rank-00000\.bin: damaged: the checksum of block '
expect_once '^mist-exec: goes on from bits/step-00000002$'
begin 'one that saves there goes on, too, and leaves whole ones'
run $exec --resume auto --checkpoint bits --iterations 4 --save-every 1 --log bits.csv
expect_exit 0
expect_once '^mist-exec: goes on from bits/step-00000002$'
run mist-exec --verify bits
expect_exit 0
run $exec -q --iterations 4 --log alone.csv
[ "$(losses alone.csv | sed 2,3d)" = "$(losses bits.csv)" ] || fail "$(losses alone.csv | diff - bits.csv)"
begin 'also one whose folder has another name, and that does not save where the damaged one lies'
damage bits/step-00000004/rank-00000.bin
ln -s bits linked
run $exec --resume linked --checkpoint bits --iterations 5
expect_exit 0
expect_once '^mist-exec: goes on from linked/step-00000003$'
expect_once '^mist-exec: linked/step-00000004/rank-00000\.bin: damaged: '
[ -d bits/step-00000005 ] || fail "$(ls bits)"
begin 'on two ranks, too, and all go on from the same'
run $mpi2 -q --iterations 3 --checkpoint pair --save-every 1
expect_exit 0
for rank in 0 1; do
    rm -rf bits
    cp -R pair bits
    damage bits/step-00000003/rank-0000$rank.bin
    damage bits/step-00000002/rank-00000.bin
    run $mpi2 --resume bits --iterations 4
    expect_exit 0
    expect_once "^mist-exec: bits/step-00000003/rank-0000$rank\.bin: damaged: "
    expect_once '^mist-exec: bits/step-00000002/rank-00000\.bin: damaged: '
    expect_once '^mist-exec: goes on from bits/step-00000001$'
done
damage bits/step-00000001/rank-00001.bin
begin 'all are damaged'
run $mpi2 -q --resume bits --iterations 4
expect_exit 3
expect_once '^mist-exec: bits: holds no whole checkpoint$'
expect_stdout_empty
begin 'a damaged one that is asked for by name'
run $exec -q --resume bits/step-00000003 --iterations 4
expect_exit 3
expect_once '^mist-exec: bits/step-00000003/rank-00001\.bin: damaged: '

# ---------------------------------------------------------------------------------- --verify
begin '--verify: all are whole'
run mist-exec --verify pair
expect_exit 0
expect_stderr_empty
expect_stdout '^checkpoint +step +run +ranks +size +whole +problem$'
for step in 1 2 3; do expect_stdout "^step-0000000$step +$step +[0-9a-f]{16} +2 +[0-9.]+ [KM]iB +yes +-$"; done
nothing_written
begin '--verify: one of them by itself, as JSON'
run mist-exec --verify pair/step-00000002 --json
expect_exit 0
expect_json
expect_stdout '"is_whole": true'
expect_stdout '"ranks": 2'
begin '--verify: what is damaged, and where'
run mist-exec --verify bits
expect_exit 6
expect_stderr '^mist-exec: bits: 3 of 3 checkpoints are not whole$'
expect_one_line
expect_stdout '^step-00000003 +3 .* no +rank-00001\.bin: damaged: the checksum of block 0 of '
run mist-exec --verify bits --json
expect_exit 6
expect_json
begin '--verify: a file, a manifest, a byte that are missing'
cp -R pair/. gone
rm gone/step-00000001/rank-00001.bin gone/step-00000002/manifest.json
truncate -s -1 gone/step-00000003/rank-00000.bin
run mist-exec --verify gone
expect_exit 6
expect_stdout '^step-00000001 +- +- +- +- +no +rank-00001\.bin: can.t be looked at: No such file'
expect_stdout '^step-00000002 +- +- +- +- +no +manifest\.json: can.t open: No such file'
expect_stdout '^step-00000003 .* no +rank-00000\.bin: damaged: has [0-9]+ bytes, expected '
begin '--verify: what was not finished is no checkpoint'
mkdir -p none/step-00000004.0123456789abcdef.partial none/step-00000005.old
run mist-exec --verify none
expect_exit 3
expect_stderr '^mist-exec: none: holds no checkpoint$'
expect_stdout_empty
refuse '--verify: no folder' 5 '^mist-exec: nowhere: ' mist-exec --verify nowhere
refuse '--verify: takes no plan' 2 '^mist-exec: --verify takes no PLAN$' mist-exec --verify pair one.json
refuse '--verify: nothing is trained' 2 '^mist-exec: --data: --verify does not use it, as it trains nothing$' \
    mist-exec --verify pair --data text.txt
refuse 'no plan' 2 '^mist-exec: expected PLAN: ' mist-exec --iterations 2

# ---------------------------------------------------------------------------------- deleting
begin 'what can not be deleted does not end the run, and is said once'
cp -R kept stays
mkdir stays/step-00000002/rank-00007.bin
run $exec --resume stays --checkpoint stays --iterations 7 --save-every 1 --keep 2
expect_exit 0
expect_once '^mist-exec: stays/step-00000002\.old/rank-00007\.bin: can.t remove: Is a directory$'
expect_once '^mist-exec: [^ ]*stays/'
[ "$(ls stays | tr '\n' ' ')" = 'step-00000002.old step-00000006 step-00000007 ' ] || fail "$(ls stays)"
run mist-exec --verify stays
expect_exit 0

# ---------------------------------------------------------------------------------- known at the start
begin 'a link to nothing at a name of a checkpoint makes room'
cp -R kept link
ln -s nowhere link/step-00000004
ln -s nowhere link/step-00000004.old
run $exec -q --resume link --checkpoint link --iterations 4
expect_exit 0
[ "$(ls link | tr '\n' ' ')" = 'step-00000002 step-00000003 step-00000004 ' ] || fail "$(ls -l link)"
run mist-exec --verify link/step-00000004
expect_exit 0
begin 'what an attempt before did not finish is in nobody.s way'
mkdir link/step-00000009.0123456789abcdef.partial
: > link/step-00000009.0123456789abcdef.partial/rank-00000.bin
run $exec -q --resume link --checkpoint link --iterations 4
expect_exit 0
[ ! -e link/step-00000009.0123456789abcdef.partial ] || fail 'it is still there'
ln -s nowhere dangling
for option in --checkpoint --export --tensorboard; do
    refuse "$option: a link to nothing" 5 "^mist-exec: dangling: (can't make the directory: )?No such file" $exec -q --iterations 1 $option dangling
done
mkdir -p taken/one/model.safetensors taken/two/config.json
refuse '--export: a folder at the name of the weights' 5 '^mist-exec: taken/one/model\.safetensors: .*directory$' \
    $exec -q --iterations 1 --export taken/one
refuse '--export: a folder at the name of the config' 5 '^mist-exec: taken/two/config\.json: .*directory$' \
    $exec -q --iterations 1 --export taken/two
long=$(printf 'x%.0s' $(seq 200))
while [ ${#long} -lt 4040 ]; do long=./$long; done
refuse 'names of files that get too long' 5 'File name too long$' $exec -q --iterations 1 --checkpoint "$long"
if unshare -rm true 2> /dev/null; then
    begin 'a disk without room for one checkpoint'
    mkdir small
    cat > mounted.sh << 'EOF'
mount -t tmpfs -o size="$1" none small && shift && exec "$@"
EOF
    run unshare -rm sh mounted.sh 64k "$MIST_BUILD"/$exec -q --iterations 1 --checkpoint small/run
    expect_exit 5
    expect_stderr '^mist-exec: small/run: a checkpoint takes [0-9.]+ [KM]iB, the disk has [0-9.]+ KiB left$'
    expect_stdout_empty
    run unshare -rm sh mounted.sh 64k "$MIST_BUILD"/$exec -q --iterations 1 --export small/weights
    expect_exit 5
    expect_stderr '^mist-exec: small/weights: the export takes [0-9.]+ [KM]iB, the disk has [0-9.]+ KiB left$'
    expect_stdout_empty
    begin 'and one with room for a single one'
    room=$(($(du -sk kept/step-00000003 | cut -f1) + 16))k
    run unshare -rm sh mounted.sh "$room" "$MIST_BUILD"/$exec -q --iterations 1 --checkpoint small/run
    expect_exit 0
    begin 'checkpoints that are kept: one more, before the oldest goes'
    one=$(du -sk kept/step-00000003 | cut -f1)
    small() { run unshare -rm sh mounted.sh "$((one * 5 / 2))k" "$MIST_BUILD"/$exec -q --save-every 1 --checkpoint small/run "$@"; }
    small --iterations 4
    expect_exit 5
    expect_stderr '^mist-exec: small/run: 4 more checkpoints at a time \(--keep 3\) take [0-9.]+ [KM]iB, the disk has [0-9.]+ [KM]iB left$'
    expect_stdout_empty
    small --iterations 3
    expect_stderr '^mist-exec: small/run: 3 more checkpoints at a time '
    small --iterations 2
    expect_exit 0
    small --iterations 4 --keep 2
    expect_exit 5
    small --iterations 4 --keep 1
    expect_exit 0
    cat > twice.sh << 'EOF'
"$@" --iterations 2 && exec "$@" --iterations 4 --resume auto
EOF
    begin 'and no more room for those that are there'
    run unshare -rm sh mounted.sh "$((one * 7 / 2))k" sh twice.sh "$MIST_BUILD"/$exec -q --save-every 1 --keep 2 --checkpoint small/run
    expect_exit 0
    begin 'a rank that can not write there'
    mkdir shared
    cat > readonly.sh << 'EOF'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec unshare -rm sh -c 'mount --bind -o ro shared shared && exec "$@"' sh "$@"
exec "$@"
EOF
    run mpirun --oversubscribe -n 2 sh readonly.sh $two -q --iterations 1 --checkpoint shared
    expect_exit 5
    expect_once '^mist-exec: shared: rank 1 can.t save there: can.t (create|make the directory): Read-only file system$'
    nothing_written
fi

# ---------------------------------------------------------------------------------- old formats
# Made by the last version that wrote format 1: mpirun -n 2 mist-exec plan.json --data text.txt --iterations 2
begin 'a checkpoint of format 1 is whole and gone on from'
cp -R "$root/tests/data/checkpoint_1" old
run mist-exec --verify old
expect_exit 0
expect_stdout '^step-00000002 +2 +- +2 '
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" old/plan.json --data old/text.txt --resume old --iterations 3 --checkpoint old
expect_exit 0
expect_stderr '^mist-exec: goes on from old/step-00000002$'
run mist-exec --verify old
expect_exit 0
expect_stdout '^step-00000003 +3 +[0-9a-f]{16} +2 '
begin 'one of a format to come: refused by its number'
sed -i '2s/2/7/' old/step-00000003/manifest.json
run mist-exec --verify old/step-00000003
expect_exit 6
expect_stdout 'manifest\.json: is of format 7, expected 1 to 2$'
finish

#!/bin/sh
# One command line for the first start of a run and for every one after it: what is gone on from, what the
# log, the event files and the weights are then, and what a crash leaves of them.
. tests/cli/lib.sh

tiny_inputs

refuse 'auto without a folder' 2 '^mist-exec: --resume auto needs --checkpoint DIR' \
    mist-exec one.json --data text.txt --resume auto
begin 'a run that is left alone'
run mist-exec one.json --data text.txt --iterations 6 --export alone --log whole.csv
expect_exit 0

# ------------------------------------------------------------------------------ one command
command='one.json --data text.txt --resume auto --checkpoint run --save-every 2 --iterations 6 --log log.csv --export hf'
begin 'the first start'
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
! grep -q 'goes on from' "$err" || fail 'goes on from nothing'
[ "$(losses log.csv)" = "$(losses whole.csv)" ] || fail "$(cat log.csv)"
expect_same hf/model.safetensors alone/model.safetensors
cp -R run kept
begin 'once more: it is finished, and nothing changes'
cp log.csv "$scratch/io/log"
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
expect_once '^mist-exec: the run is finished: 6 of 6 steps are done$'
expect_once '^mist-exec: hf/config\.json is there: not written again without --force$'
expect_stdout '^fingerprint of the parameters '
nothing_written
begin 'as JSON, without a word'
# shellcheck disable=SC2086
run mist-exec $command -q --json
expect_exit 0
expect_stderr_empty
expect_json
expect_stdout '"steps_done": 6'
begin 'a finished run writes the weights that are missing, or half-written'
rm -r hf
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
expect_same hf/model.safetensors alone/model.safetensors
rm hf/config.json
echo > hf/model.safetensors
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
expect_same hf/model.safetensors alone/model.safetensors
expect_same hf/config.json alone/config.json
run mist-exec one.json --data text.txt --resume kept --export hf2
expect_exit 0
expect_once '^mist-exec: the run is finished: 6 of 6 steps are done$'
expect_same hf2/model.safetensors alone/model.safetensors
begin 'fewer steps are asked for than are done'
run mist-exec one.json --data text.txt --resume kept --iterations 4 --timeline none.csv --kernels
expect_exit 0
expect_once '^mist-exec: the run is finished: 6 of 4 steps are done$'
nothing_written

begin 'behind a crash: its last rows are done again, the one that was cut off goes'
rm -r hf run/step-00000006
head -n 6 whole.csv > log.csv
printf '6,5.12' >> log.csv
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
expect_once '^mist-exec: goes on from run/step-00000004$'
expect_once '^mist-exec: log\.csv: goes on behind step 4, rows of later steps cut: 1$'
[ "$(losses log.csv)" = "$(losses whole.csv)" ] || fail "$(cat log.csv)"
expect_same hf/model.safetensors alone/model.safetensors
begin 'an older log: the rows that it lacks are said'
rm -r hf run/step-00000006
head -n 3 whole.csv > log.csv
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
expect_once '^mist-exec: log\.csv: ends with step 2, the run goes on behind step 4: rows between them are missing$'
[ "$(cut -d, -f1 log.csv | xargs)" = 'step 1 2 5 6' ] || fail "$(cat log.csv)"
begin 'the same on two ranks, with a log that lost power behind the checkpoint'
rm -r hf run/step-00000006
head -n 5 whole.csv > log.csv
head -c 300 /dev/zero >> log.csv
# shellcheck disable=SC2086
run mpirun --oversubscribe -n 2 "$MIST_BUILD"/mist-exec two$(echo "$command" | cut -c 4-)
expect_exit 0
expect_once '^mist-exec: goes on from run/step-00000004$'
[ "$(losses log.csv)" = "$(losses whole.csv)" ] || fail "$(cat log.csv)"
begin 'behind a crash before the first checkpoint'
rm -r run hf
head -n 2 whole.csv > log.csv
# shellcheck disable=SC2086
run mist-exec $command
expect_exit 0
[ "$(losses log.csv)" = "$(losses whole.csv)" ] || fail "$(cat log.csv)"
rm -r run hf
# shellcheck disable=SC2086
refuse 'a log of another run' 2 '^mist-exec: log\.csv: has 6 steps, after 2 of which .* of another run; --force' \
    mist-exec $command -q
cp kept/step-00000006/manifest.json log.csv
# shellcheck disable=SC2086
refuse 'a log that is none' 3 '^mist-exec: log\.csv:1: is no log of mist-exec' mist-exec $command -q
head -n 2 whole.csv | sed '2s/,/;/' > log.csv
# shellcheck disable=SC2086
refuse 'a row that is none' 3 '^mist-exec: log\.csv:2: is no row of a log' mist-exec $command -q
rm log.csv
begin 'weights to begin with serve the first start alone'
run mist-exec one.json --data text.txt --import hf2 --resume auto --checkpoint fine --iterations 1 --lr 0
expect_exit 0
run mist-exec one.json --data text.txt --import nowhere --resume auto --checkpoint fine --iterations 1
expect_exit 0
expect_once '^mist-exec: the run is finished'
rm -r fine
begin 'checkpoints that are all damaged are no reason to begin again'
cp -R kept bad
for manifest in bad/*/manifest.json; do printf x >> "$manifest"; done
run mist-exec one.json --data text.txt -q --resume auto --checkpoint bad --iterations 7
expect_exit 3
expect_stderr '^mist-exec: bad: holds no whole checkpoint$'
expect_one_line
expect_stdout_empty
nothing_written

begin 'ranks that see different folders'
mkdir here there
cp -R kept here/run
for place in here there; do cp two.json text.txt $place; done
# apart OPTION...: each of two ranks in a folder of its own, as on nodes that share none.
apart() {
    run mpirun --oversubscribe -n 1 -wdir "$PWD/here" "$MIST_BUILD/mist-exec" two.json --data text.txt "$@" : \
        -n 1 -wdir "$PWD/there" "$MIST_BUILD/mist-exec" two.json --data text.txt "$@"
}
apart --iterations 7 --resume auto --checkpoint run
expect_exit 5
expect_once '^mist-exec: run: rank 1 .* does not see the folder that rank 0 saves in'
expect_stdout_empty
begin 'ranks that read different data'
seq 2 4001 > there/text.txt
apart --iterations 2
expect_exit 3
expect_once '^mist-exec: the ranks read different data; all nodes must see the same files$'
expect_stdout_empty
cp text.txt there
apart --iterations 2 -q
expect_exit 0
rm -r here there

# ------------------------------------------------------------------------------------- rows
begin 'JSON lines say the same as CSV'
run mist-exec one.json --data text.txt -q --iterations 5 --lr 1e18 --clip 0 --on-nan skip --validation-frac 0.1 \
    --validate-every 2 --log log.csv
expect_exit 0
run mist-exec one.json --data text.txt -q --iterations 5 --lr 1e18 --clip 0 --on-nan skip --validation-frac 0.1 \
    --validate-every 2 --log log.jsonl
expect_exit 0
perl -MJSON::PP -e '
    open(my $csv, "<", "log.csv") or die; open(my $lines, "<", "log.jsonl") or die;
    my @keys = split /,/, <$csv> =~ s/\n//r;
    while (my $line = <$lines>) {
        my $row = JSON::PP->new->decode($line);
        my @cells = split /,/, <$csv> =~ s/\n//r, -1;
        die "keys: @{[sort keys %$row]}" if "@{[sort keys %$row]}" ne "@{[sort @keys]}";
        for my $i (0 .. $#keys) {
            next if $keys[$i] =~ /step_s|per_s/;
            my $value = $row->{$keys[$i]} // "";
            die "$keys[$i]: $cells[$i], $value" if $cells[$i] ne $value && $cells[$i] != $value;
        }
    }
    die "more rows" if defined <$csv>;' 2> "$scratch/io/perl" || fail "$(head -n 2 "$scratch/io/perl")"
begin 'JSON lines are cut like CSV'
rm -rf run && run mist-exec one.json --data text.txt -q --iterations 4 --checkpoint run --save-every 2
rm -r run/step-00000004
run mist-exec one.json --data text.txt -q --iterations 4 --log log.jsonl --force
expect_exit 0
printf '{"step": 5, "lo' >> log.jsonl
run mist-exec one.json --data text.txt --iterations 4 --resume run --log log.jsonl
expect_exit 0
expect_once '^mist-exec: log\.jsonl: goes on behind step 2, rows of later steps cut: 2$'
[ "$(sed 's/,.*//' log.jsonl | tr -d '\n')" = '{"step": 1{"step": 2{"step": 3{"step": 4' ] || fail "$(cat log.jsonl)"
begin 'what has been printed is in the log, whatever happens then'
command_line='a run that is killed'
"$MIST_BUILD/mist-exec" one.json --data text.txt --iterations 1000000 --log killed.csv > "$out" 2> "$err" &
pid=$!
i=0
while [ "$(grep -c '^ *[0-9]' "$err")" -lt 20 ] && [ $((i += 1)) -lt 600 ]; do sleep 0.05; done
kill -9 $pid
wait $pid 2> /dev/null
printed=$(sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' "$err" | tail -n 1)
rows=$(tail -n +2 killed.csv | grep -c '[01]$')
[ "${printed:-0}" -ge 20 ] || fail "only ${printed:-0} steps in 30 s"
[ "$rows" -ge "$printed" ] || fail "$printed steps were printed, $rows are in the log"
begin 'a disk that fills up ends the run, and its last row is cut off, not its log'
rm -rf run
run sh -c "ulimit -S -f 2; exec \"\$MIST_BUILD\"/mist-exec one.json --data text.txt -q --iterations 400 --log full.csv"
expect_exit 5
expect_stderr '^mist-exec: full\.csv: .*File too large'
expect_one_line
expect_stdout_empty
[ "$(head -n 3 full.csv | cut -d, -f1 | tr '\n' ' ')" = 'step 1 2 ' ] || fail "$(head -n 3 full.csv)"

# ------------------------------------------------------------------------------ event files
# An independent reader: sums bit by bit, and only what an event may hold.
cat > "$scratch/io/events.pl" <<'END'
use strict;
sub crc32c {
    my $crc = 0xffffffff;
    for my $byte (unpack "C*", $_[0]) {
        $crc ^= $byte;
        $crc = $crc & 1 ? ($crc >> 1) ^ 0x82f63b78 : $crc >> 1 for 1 .. 8;
    }
    return $crc ^ 0xffffffff;
}
# RFC 3720, B.4, and the usual check value
die "reader: crc" if crc32c("123456789") != 0xe3069283 || crc32c("\0" x 32) != 0x8a9136aa;
sub check {
    my ($bytes, $sum, $what) = @_;
    my $crc = crc32c($bytes);
    die "sum of $what" if $sum != ((($crc >> 15 | $crc << 17) + 0xa282ead8) & 0xffffffff);
}
sub varint {
    my ($value, $shift) = (0, 0);
    while (1) {
        my $byte = ord substr ${$_[0]}, 0, 1, "";
        $value |= ($byte & 127) << $shift;
        return $value if $byte < 128;
        $shift += 7;
    }
}
sub fields { # [number, value] ...
    my ($bytes) = @_;
    my @fields;
    while (length $bytes) {
        my $key = varint(\$bytes);
        my $type = $key & 7;
        my $value = $type == 0 ? varint(\$bytes) : $type == 1 ? unpack("d<", substr $bytes, 0, 8, "")
            : $type == 2 ? do { my $n = varint(\$bytes); die "short" if $n > length $bytes; substr $bytes, 0, $n, "" }
            : $type == 5 ? unpack("f<", substr $bytes, 0, 4, "") : die "wire type $type";
        push @fields, [$key >> 3, $value];
    }
    return @fields;
}
for my $path (@ARGV) {
    open(my $file, "<:raw", $path) or die;
    my $all = do { local $/; <$file> };
    while (length $all) {
        my $length = unpack "Q<", $all;
        check(substr($all, 0, 8), unpack("L<", substr $all, 8, 4), "a length");
        my $event = substr $all, 12, $length;
        check($event, unpack("L<", substr $all, 12 + $length, 4), "an event");
        substr $all, 0, 16 + $length, "";
        my %event = map { @$_ } fields($event);
        die "time $event{1}" if abs($event{1} - time) > 600;
        print "version $event{3}\n" if exists $event{3};
        print "session $event{2} ", join(" ", map { @$_ } fields($event{7})), "\n" if exists $event{7};
        for (exists $event{5} ? fields($event{5}) : ()) {
            my %value = map { @$_ } fields($_->[1]);
            printf "%d %s %.4f\n", $event{2}, $value{1}, $value{2};
        }
    }
}
END
begin 'an event file of TensorBoard says what the log says'
run mist-exec one.json --data text.txt -q --iterations 300 --validation-frac 0.1 --log log.csv --force --tensorboard board
expect_exit 0
perl "$scratch/io/events.pl" board/events.out.tfevents.* > "$scratch/io/events" 2> "$scratch/io/perl" ||
    fail "$(head -n 2 "$scratch/io/perl")"
[ "$(head -n 2 "$scratch/io/events" | tr '\n' ' ')" = 'version brain.Event:2 session 1 1 1 ' ] || fail "$(head -n 2 "$scratch/io/events")"
awk -F, 'NR == 1 { split($0, key); next }
    { for (i = 2; i <= 7; i++) if (key[i] != "step_s" && $i != "") printf "%d %s %.3f\n", $1, key[i], $i }' log.csv > "$scratch/io/want"
awk 'NR > 2 { printf "%d %s %.3f\n", $1, $2, $3 }' "$scratch/io/events" > "$scratch/io/have"
# numbers of four bytes: compared by their size
paste -d ' ' "$scratch/io/want" "$scratch/io/have" | awk '{ d = $3 - $6; if (d < 0) d = -d; s = $3 < 0 ? -$3 : $3
        if ($1 != $4 || $2 != $5 || d > 0.002 + 1e-6 * s) { print; exit 1 } n++ }
    END { exit n != 300 * 4 + 1 }' > "$scratch/io/differs" || fail "$(cat "$scratch/io/differs") $(wc -l < "$scratch/io/have")"
begin 'a run that goes on has a file of its own, which says from where'
rm -rf run
run mist-exec one.json --data text.txt -q --iterations 2 --checkpoint run
run mist-exec one.json --data text.txt -q --iterations 3 --resume run --tensorboard more
expect_exit 0
perl "$scratch/io/events.pl" more/* > "$scratch/io/events" 2> "$scratch/io/perl" || fail "$(head -n 2 "$scratch/io/perl")"
grep -q '^session 3 1 1$' "$scratch/io/events" || fail "$(cat "$scratch/io/events")"
[ "$(sed -n 's/ loss .*//p' "$scratch/io/events")" = 3 ] || fail "$(cat "$scratch/io/events")"
refuse 'a file for the folder of event files' 5 '^mist-exec: plan\.json.* is no folder$' \
    mist-exec one.json --data text.txt --tensorboard plan.json
if unshare -rm true 2> /dev/null; then
    begin 'a log that gets no room ends the run behind a checkpoint'
    mkdir small
    run unshare -rm sh -c 'mount -t tmpfs -o size=4k none small && exec "$@"' sh mpirun --oversubscribe -n 2 \
        "$MIST_BUILD/mist-exec" two.json --data text.txt -q --iterations 500 --log small/log.csv --checkpoint full
    expect_exit 5
    expect_stdout_empty
    expect_once '^mist-exec: small/log\.csv: can.t write: No space left on device$'
    expect_once '^mist-exec: the log failed: stopped after step [0-9]+ of 500; it is saved in full, --resume auto goes on$'
    step=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' "$err")
    [ "$(ls full)" = "step-$(printf %08d "$step")" ] || fail "$(ls full)"
    run mist-exec --verify full
    expect_exit 0
fi
finish

#!/bin/sh
# Training data that is not what it was, or not what the model can read.
. tests/cli/lib.sh

tiny plan.json > one.json
tiny plan2.json > two.json

# shrinks NAME FILE COMMAND...: the file is cut to nothing while the command trains on it.
shrinks() {
    begin "$1"
    shrinking=$2
    shift 2
    command_line="$*, its data cut meanwhile"
    : > "$err"
    "$@" > "$out" 2> "$err" < /dev/null &
    pid=$!
    i=0
    while ! grep -q '^ *3 ' "$err" && [ $((i += 1)) -lt 600 ]; do sleep 0.1; done
    : > "$shrinking"
    wait $pid
    code=$?
    expect_exit 5
    expect_stderr "mist-exec: $shrinking: has shrunk: it had [0-9]+ bytes, now it ends at byte"
    expect_stdout_empty
}
seq 1 40000 > text.txt
shrinks 'a text that shrinks under a run' text.txt "$MIST_BUILD/mist-exec" one.json --data text.txt --iterations 1000000
expect_once '^mist-exec: '
perl -e 'print pack "v*", map { $_ % 256 } 1 .. 40000' > ids.u16
shrinks 'ids that shrink under two ranks' ids.u16 mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json \
    --data ids.u16 --iterations 1000000

edit one.json 's/"vocab": 256/"vocab": 300/' > wide.json
text="^mist-exec: wide\\.json: text is read as bytes, a vocabulary of 256, and the model has one of 300: make a token file"
seq 1 2000 > text.txt
refuse 'text and another vocabulary' 3 "$text" mist-exec wide.json --data text.txt --iterations 1
refuse 'text by its prefix' 3 "$text" mist-exec wide.json --data text:text.txt --iterations 1
refuse 'the default text' 3 "$text" mist-exec wide.json --iterations 1
begin 'ids of such a vocabulary'
perl -e 'print pack "v*", map { $_ % 300 } 1 .. 2000' > ids.u16
run mist-exec wide.json --data ids.u16 --iterations 1 -q
expect_exit 0
# losses_of OPTION...: of two steps, in $losses
losses_of() {
    run mist-exec "$plan" --iterations 2 -q --json "$@"
    expect_exit 0
    losses=$(grep '"losses"' "$out")
}
begin 'a pattern stands for all files that it fits, more than options could name, in the order of their names'
mkdir 'a b' && perl -e 'for $i (0 .. 99) { open $f, ">", "a b/part-$i.u16"; print $f pack "v*", map { ($_ * $i) % 300 } 1 .. 50 + $i }'
(cd 'a b' && LC_ALL=C && cat part-*.u16) > whole.u16
plan=wide.json
losses_of --data whole.u16
whole=$losses
losses_of --data 'a b/part-*.u16'
[ "$losses" = "$whole" ] || fail "$losses, expected $whole"
mv 'a b/part-7.u16' 'a b/part-7.ids' && perl -e 'open $f, "<", "a b/part-7.ids"; read $f, $_, 1e6; print pack "V*", unpack "v*"' > '[x].u32'
losses_of --data 'a b/part-[0-6]*.u16' --data '[x].u32' --data 'uint16:a b/part-7?.u16' --data 'a b/part-[89]*.u16'
[ "$losses" = "$whole" ] || fail "$losses, expected $whole"
refuse 'a pattern that fits nothing' 5 '^mist-exec: a b/none\*: there is no file of such a name$' \
    mist-exec one.json --data 'a b/none*' --iterations 1
refuse 'a pattern that fits what is no token file' 3 '^mist-exec: .*part-7\.ids: is no text \(it has bytes of 0\), expected' \
    mist-exec one.json --data 'a b/part-[67]*' --iterations 1
begin 'a file of a name with a comma, and another'
seq 1 2000 > 'one,two.txt' && seq 1 300 > more.txt
plan=one.json
losses_of --data more.txt --data 'one,two.txt' --validation-data 'one,two.txt'
commas=$losses
cat more.txt 'one,two.txt' > both.txt
losses_of --data both.txt --validation-data 'one,two.txt'
[ "$losses" = "$commas" ] || fail "$losses, expected $commas"
gzip -k more.txt
refuse 'a compressed text' 3 '^mist-exec: more\.txt\.gz: is compressed \(gzip\), expected plain text or a token file' \
    mist-exec one.json --data more.txt.gz --iterations 1
begin 'the message names a part of the README that is there'
grep -q '^##* Token files$' "$root/README.md" || fail 'README.md has no such part'
finish

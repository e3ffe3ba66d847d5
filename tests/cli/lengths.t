#!/bin/sh
# Sequences of other lengths than samples: mist-sim --lengths, and what slows iterations down.
. tests/cli/lib.sh

echo 128 > full.txt
printf 'length,count\n100,3\n20,5\n' > some.txt
printf '100\nmany\n' > wrong.txt

refuse 'lengths: a word in a file' 3 \
    "^mist-sim: wrong\\.txt:2: 'many' is no length in tokens" mist-sim plan.json --lengths wrong.txt
refuse 'lengths: no file' 5 '^mist-sim: .*nowhere\.txt' mist-sim plan.json --lengths nowhere.txt
refuse 'lengths: a distribution alone' 2 '^mist-sim: lengths lognormal: expected a file or lognormal:median' \
    mist-sim plan.json --lengths lognormal
refuse 'lengths: half a distribution' 2 '^mist-sim: lengths lognormal:median=5: expected a file or lognormal' \
    mist-sim plan.json --lengths lognormal:median=5
refuse 'lengths: an unknown rule' 2 '^mist-sim: --packing: ' mist-sim plan.json --lengths some.txt --packing tight
refuse 'lengths: a rule for nothing' 2 '^mist-sim: --packing needs --lengths LENGTHS$' mist-sim plan.json --packing pad
refuse 'lengths: of a recording' 2 '^mist-sim: --replay: ' mist-sim --replay some.txt --lengths some.txt

# value KEY: of the last JSON
value() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$out" | head -n 1; }

begin 'full samples: the plain iteration, to the bit'
for plan in plan.json plan2.json; do
    run mist-sim $plan --json
    plain=$(value iteration_s)
    [ -n "$plain" ] || fail 'no iteration_s'
    for rule in none pad first-fit sorted; do
        run mist-sim $plan --json --lengths full.txt --packing $rule --iterations 2
        expect_exit 0
        [ "$(value iteration_s)" = "$plain" ] || fail "$plan, $rule: $(value iteration_s), expected $plain"
        [ "$(value filled_frac)" = 1.0 ] || fail "$plan, $rule: filled $(value filled_frac)"
    done
done

begin 'quantiles of the iterations, and what they hold'
run mist-sim plan2.json --lengths some.txt
expect_exit 0
expect_stdout '^mean of iterations +100$'
expect_stdout '^half of them take up to +[0-9]'
expect_stdout '^99 of 100 take up to +[0-9]'
expect_stdout '^its sequences +[0-9]'
expect_stdout '^sequences that are cut +0\.0 %$'
grep -A1 '^error bar' "$out" | grep -q '^of it not measured' || fail 'what is not measured does not stand beside the iteration'

begin 'padding takes longer than none, and packing holds more'
run mist-sim plan2.json --json --lengths some.txt
none=$(value iteration_s) none_filled=$(value filled_frac)
run mist-sim plan2.json --json --lengths some.txt --packing pad
pad=$(value iteration_s)
run mist-sim plan2.json --json --lengths some.txt --packing sorted
awk -v none="$none" -v pad="$pad" -v a="$none_filled" -v b="$(value filled_frac)" \
    'BEGIN { exit !(pad > none && b > a) }' || fail "$none $pad $none_filled $(value filled_frac)"

begin 'the same seed: the same, byte for byte; another: another'
for seed in 1 1 2; do
    run mist-sim plan2.json --json --lengths lognormal:median=60,sigma=1 --packing first-fit --jitter 0.05 \
        --iterations 5 --seed $seed
    expect_exit 0
    cp "$out" "$scratch/io/last$seed"
    [ $seed = 2 ] || [ ! -f "$scratch/io/first" ] || expect_same "$scratch/io/first" "$scratch/io/last$seed"
    [ -f "$scratch/io/first" ] || cp "$out" "$scratch/io/first"
done
if cmp -s "$scratch/io/first" "$scratch/io/last2"; then fail 'seeds 1 and 2 give the same'; fi

begin 'what-if holds for the same iterations'
run mist-sim plan2.json --lengths some.txt --what-if kernel.products=2x
expect_exit 0
expect_stdout '^kernel\.products=2x '

begin 'causes: a slow rank, by itself and as part of its stage'
run mist-sim plan2.json --lengths some.txt --iterations 5 --what-if rank.1=0.5x --causes
expect_exit 0
expect_stdout '^slowdown by unevenness +[1-9]'
expect_stdout '^speed of rank 1 +[1-9][0-9.]* +[0-9.]+ [mu]*s +[0-9.]+ %$'
expect_stdout '^stage 1 +[1-9]'
expect_stdout '^lengths +[1-9]'
begin 'causes: a slow link, in JSON'
run mist-sim plan2.json --what-if rank.1.link=0.1x --causes --json
expect_exit 0
expect_json
expect_stdout '"cause": "links of rank 1"'
begin 'causes: as CSV, with the iteration, of an edit and of lengths'
for uneven in '--what-if rank.1=0.5x' '--lengths some.txt --iterations 5'; do
    run mist-sim plan2.json $uneven --causes --csv
    expect_exit 0
    head -n 1 "$out" | grep -q 'even_s,.*iteration_s,.*cause,alone_slowdown,without_s,saved_frac$' || fail "$(cat "$out")"
    [ "$(wc -l < "$out")" -gt 2 ] || fail "$(cat "$out")"
done
refuse 'causes: of what is even' 2 '^mist-sim: everything is even' mist-sim plan2.json --causes
refuse 'causes: in a study' 2 '^mist-sim: --sweep: ' mist-sim plan2.json --causes --sweep link.all=1x:2x

# ------------------------------------------------------------------------------- mist-tune
job='--model gpt3-1.3b --seq-len 2048 --global-batch 32 --dtype bf16 --cluster a100-80:1x4 -q'
drawn='--lengths lognormal:median=500,sigma=1 --packing pad'
# drawn_s PLAN: an iteration of it, as mist-tune draws them
drawn_s() {
    "$MIST_BUILD/mist-sim" "$1" $drawn --iterations 33 --json 2> "$scratch/io/err" > "$scratch/io/drawn" ||
        fail "$1: $(cat "$scratch/io/err")"
    sed -n 's/^ *"iteration_s": \([-0-9.e+]*\),*$/\1/p' "$scratch/io/drawn" | head -n 1
}

begin 'mist-tune chooses for the distribution: what mist-sim says, and faster than for full samples'
run mist-tune $job -o plain.json
expect_exit 0
for i in 1 2; do
    run mist-tune $job $drawn --json -o "drawn$i.json"
    expect_exit 0
    cp "$out" "$scratch/io/tuned$i"
done
expect_same "$scratch/io/tuned1" "$scratch/io/tuned2"
expect_same drawn1.json drawn2.json
chosen=$(drawn_s drawn1.json)
[ "$(value iteration_s)" = "$chosen" ] || fail "mist-tune says $(value iteration_s), mist-sim $chosen"
expect_stdout '"lengths": "lognormal:median=500,sigma=1"'
plain=$(drawn_s plain.json)
awk -v a="$chosen" -v b="$plain" 'BEGIN { exit !(a < 0.95 * b) }' || fail "$chosen, for full samples $plain"

begin 'mist-tune: no plan of 20 drawn at random is faster'
run mist-tune $job --sample-plans 20 --plans drawn
expect_exit 0
for plan in drawn/*.json; do
    awk -v a="$chosen" -v b="$(drawn_s "$plan")" 'BEGIN { exit !(a <= b) }' || fail "$plan is faster"
done

refuse 'mist-tune: lengths of a run' 2 \
    '^mist-tune: --lengths is for a best plan by replay' mist-tune $job $drawn --verify 2
refuse 'mist-tune: a rule for nothing' 2 '^mist-tune: --packing needs --lengths LENGTHS$' mist-tune $job --packing pad
refuse 'mist-tune: a word in a file' 3 \
    "^mist-tune: wrong\\.txt:2: 'many' is no length" mist-tune $job --lengths wrong.txt

finish

#!/bin/sh
# Pictures of 2 to 1,024 ranks: equal ranks are one row, labels are inside of their boxes, no text covers another, and
# the comparison of a prediction with a measurement is drawn.
. tests/cli/lib.sh

# svg.pl FILE: "row NAME" for each rank's row, "label N" for each label that is inside of one box, "out N" for the
# others, "thin" for each box that is narrower than a pixel and is not seen.
cat > "$scratch/io/svg.pl" << 'PERL'
my ($x, $y, $size, $anchor, @boxes, @labels);
while (<>) {
    if (/<polygon fill = '(.*?)' points = '(.*?)'/) {
        my ($color, @points) = ($1, split /[ ,]+/, $2);
        my @xs = sort { $a <=> $b } @points[grep { $_ % 2 == 0 } 0 .. $#points];
        my @ys = sort { $a <=> $b } @points[grep { $_ % 2 } 0 .. $#points];
        print "thin $points[0]\n" if $xs[-1] - $xs[0] < 0.9;
        push @boxes, [$xs[0], $xs[-1], $ys[0], $ys[-1]] unless $color =~ /rgb\(230, 230, 230\)|rgb\(255, 255, 255\)/;
    }
    ($x, $y, $size, $anchor) = ($1, $2, $3, $4) if /translate\((.*?),(.*?)\)".* font-size="(.*?)".*text-anchor="(.*?)"/;
    next unless /<text.*?>(.*?) *<\/text>/;
    my $text = $1;
    print "row $text\n" if $text =~ /^rank /;
    # numbers in the small letters of labels; digits are 0.64 as wide as high, and 0.73 high
    my $half = 0.32 * $size * length $text;
    push @labels, [$text, $x - $half, $x + $half, $y - 0.73 * $size, $y]
        if $text =~ /^\d+$/ && $anchor eq 'middle' && $size < 11;
}
for my $l (@labels) {
    my $inside = grep { $_->[0] <= $l->[1] && $l->[2] <= $_->[1] && $_->[2] <= $l->[3] && $l->[4] <= $_->[3] } @boxes;
    print $inside ? "label $l->[0]\n" : "out $l->[0]\n";
}
PERL

# texts.pl FILE: texts that leave the page, that cover each other, or that turned ones run over; letters are 0.58 as
# wide as high, in the mean.
cat > "$scratch/io/texts.pl" << 'PERL'
local $/;
my $svg = <>;
my ($width, $height) = $svg =~ /viewBox="0 0 (\d+) (\d+)"/ or die "no size\n";
my @texts;
my $place = qr/translate\((.*?),(.*?)\)( rotate\((.*?)\))?"/;
while ($svg =~ /<g transform="$place[^>]*font-size="(.*?)"\s+text-anchor="(\w+)">\s*<text.*?>(.*?)</g) {
    my ($x, $y, $turn, $size, $anchor, $text) = ($1, $2, $4 // 0, $5, $6, $7 =~ s/&\w+;/x/gr =~ s/^\s+|\s+$//gr);
    next if $text eq '' || abs($turn) > 80;
    my $length = 0.58 * $size * length $text;
    my ($cos, $sin) = (cos($turn * 0.0174533), sin($turn * 0.0174533));
    my ($u, $v) = ($x * $cos + $y * $sin, $y * $cos - $x * $sin); # along the text, and across
    my $left = $u - ($anchor eq 'end' ? $length : $anchor eq 'middle' ? $length / 2 : 0);
    push @texts, [$left, $left + $length, $v - 0.7 * $size, $v, $text, $turn];
    for ([$left, $v], [$left + $length, $v], [$left, $v - 0.7 * $size], [$left + $length, $v - 0.7 * $size]) {
        my ($at_x, $at_y) = ($_->[0] * $cos - $_->[1] * $sin, $_->[0] * $sin + $_->[1] * $cos);
        next if $at_x >= -1 && $at_x <= $width + 1 && $at_y >= -1 && $at_y <= $height + 1;
        print "$text leaves the page\n";
        last;
    }
}
print "no text\n" unless @texts > 5;
for my $i (0 .. $#texts) {
    my @a = @{$texts[$i]};
    for (grep { $_->[5] == $a[5] } @texts[0 .. $i - 1]) { # turned alike
        my @b = @$_;
        my $is_beside = $a[0] >= $b[1] - 1 || $b[0] >= $a[1] - 1 || $a[2] >= $b[3] - 1 || $b[2] >= $a[3] - 1;
        print "$a[4] covers $b[4]\n" unless $is_beside;
    }
    next if $a[5] == 0;
    my ($cos, $sin) = (cos($a[5] * 0.0174533), sin($a[5] * 0.0174533));
    for my $b (grep { $_->[5] == 0 } @texts) {
        my $middle = ($a[2] + $a[3]) / 2;
        my @inside = grep {
            my ($x, $y) = ($_ * $cos - $middle * $sin, $_ * $sin + $middle * $cos);
            $x > $b->[0] && $x < $b->[1] && $y > $b->[2] && $y < $b->[3];
        } $a[0] .. $a[1];
        print "$a[4] runs over $b->[4]\n" if @inside;
    }
}
PERL
# looks.pl FILE: how many curves of stages look different, by their colours, dashes and points.
cat > "$scratch/io/looks.pl" << 'PERL'
local $/;
my $svg = <>;
my %looks;
while ($svg =~ /<g id="gnuplot_plot_\d+" ><title>stage \d+<\/title>(.*?)(?=<g id="gnuplot_plot_|<\/svg>)/gs) {
    my $curve = $1;
    $looks{join ' ', map { $curve =~ /$_/ ? $& : '' } 'rgb\(.*?\)', "dasharray='.*?'", 'gpPt\d+'} = 1;
}
print scalar(keys %looks), "\n";
PERL
# legible KIND FILE: the picture of a table or timeline, under a case; also in the terminal its axes have units.
legible() {
    run mist-plot "$1" "$2"
    expect_exit 0
    grep -q '([mu]*s)\|([GM]iB)\|(%)\||0[mu]*s' "$out" || fail "no unit: $(head -n 8 "$out")"
    for e in png pdf; do
        run mist-plot "$1" "$2" -o texts.$e -f
        expect_exit 0
        rm -f texts.$e
    done
    run mist-plot "$1" "$2" -o texts.svg -f
    expect_exit 0
    perl "$scratch/io/texts.pl" texts.svg > "$scratch/io/bad" 2>&1
    [ ! -s "$scratch/io/bad" ] || fail "$1 $2: $(head -n 5 "$scratch/io/bad")"
    rm -f texts.svg
}

# timeline NAME ROWS STANDS_FOR OPTION...: of a job, which has so many rows, each for so many ranks (", of 4").
timeline() {
    name=$1 n_rows=$2 row="rank [0-9]*$3\( \|\$\)"
    shift 3
    begin "$name"
    run mist-sim "$@" --dtype bf16 -o job.csv -f
    expect_exit 0
    run mist-plot timeline job.csv -o job.svg -f
    if grep -q 'gnuplot is not installed' "$err"; then skip 'gnuplot is not installed'; rm -f job.csv; return; fi
    expect_exit 0
    perl "$scratch/io/svg.pl" job.svg > "$scratch/io/seen"
    [ "$(grep -c '^row' "$scratch/io/seen")" -eq "$n_rows" ] || fail "rows: $(grep '^row' "$scratch/io/seen")"
    [ "$(grep -c "^row $row" "$scratch/io/seen")" -eq "$n_rows" ] || fail "$(head -n 3 "$scratch/io/seen")"
    grep -q '^label' "$scratch/io/seen" || fail 'no label'
    ! grep '^out' "$scratch/io/seen" > "$scratch/io/outside" || fail "labels outside: $(head "$scratch/io/outside")"
    ! grep '^thin' "$scratch/io/seen" > "$scratch/io/thin" || fail "too thin to be seen: $(head "$scratch/io/thin")"
    [ "$(wc -c < job.svg)" -lt 1000000 ] || fail "$(wc -c < job.svg) bytes"
    run mist-plot timeline job.csv
    [ "$(grep -c "^$row.*compute" "$out")" -eq "$n_rows" ] || fail "in the terminal: $(cat "$out")"
    legible timeline job.csv
    legible memory job.csv
    run mist-sim "$@" --dtype bf16 --explain --csv
    cp "$out" parts.csv
    legible breakdown parts.csv
    run mist-plot memory job.csv -o job.svg -f
    expect_exit 0
    [ "$(perl "$scratch/io/svg.pl" job.svg | grep -c "^row $row")" -eq "$n_rows" ] || fail 'memory'
    rm -f job.csv job.svg parts.csv
}
timeline '2 ranks, 2 stages' 2 '' \
    --model gpt3-1.3b --seq-len 2048 --pp 2 --micro-batch 2 --global-batch 16 --cluster h100-sxm:1x2
timeline '8 ranks, 2 stages' 2 ', of 4' \
    --model llama-7b --seq-len 4096 --tp 2 --pp 2 --zero 1 --micro-batch 1 --global-batch 16 --cluster h100-sxm:1x8
timeline '8 ranks, 2 stages, all of them replayed' 2 ', of 4' --unfolded \
    --model llama-7b --seq-len 4096 --tp 2 --pp 2 --zero 1 --micro-batch 1 --global-batch 16 --cluster h100-sxm:1x8
timeline '64 ranks, 4 stages' 4 ', of 16' \
    --model gpt3-22b --seq-len 2048 --tp 8 --pp 4 --micro-batch 1 --global-batch 32 --cluster h100-sxm:8x8,nic=8x400Gb/s
timeline '1,024 ranks, 16 stages' 16 ', of 64' --model gpt3-175b --seq-len 2048 --tp 8 --pp 16 --zero 1 \
    --micro-batch 2 --global-batch 256 --cluster h100-sxm:128x8,nic=8x400Gb/s

# --------------------------------------------------------------------------- predicted and measured
job='mist-sim --model gpt3-1.3b --seq-len 2048 --pp 2 --micro-batch 2 --global-batch 16 --cluster h100-sxm:1x4'
begin 'a timeline that differs where it was made to'
# shellcheck disable=SC2086
run $job --unfolded --what-if rank.3=0.5x -o slow.csv -f --save-plan job.json
expect_exit 0
run mist-sim job.json --cluster h100-sxm:1x4 --compare slow.csv --csv
expect_exit 0
cp "$out" differences.csv
run mist-plot differences differences.csv
if grep -q 'gnuplot is not installed' "$err"; then
    skip 'gnuplot is not installed'
else
    expect_exit 0
    [ "$(grep -o 'rank [0-9]' "$out" | head -n 1)" = 'rank 3' ] || fail "$(cat "$out")"
    [ "$(grep -o 'stage [0-9]' "$out" | head -n 1)" = 'stage 1' ] || fail "$(cat "$out")"
    expect_stdout ' backward  -'
    legible differences differences.csv
    run mist-sim job.json --cluster h100-sxm:1x4 --sensitivity --csv
    cp "$out" table.csv
    legible sensitivity table.csv
    n=$(($(wc -l < table.csv) - 1))
    run mist-plot sensitivity table.csv -o key.svg -f
    keys=$(grep -B 3 '>10 % [fs]' key.svg | grep -o 'translate([^)]*)' | cut -d, -f2 | sort -u)
    [ "$(echo "$keys" | wc -l)" -eq 1 ] || fail "the key is not one line: $keys"
    rm -f key.svg
    run mist-plot sensitivity table.csv
    [ "$(grep -c ' % |' "$out")" -eq $n ] || fail "a line for each of $n: $(cat "$out")"
    printf 'change,more_change_frac,less_change_frac\na,-0.3,0.4\nb,0,0\nc,-0.001,0.001\nd,-0.02,0.02\n' > table.csv
    run mist-plot sensitivity table.csv
    [ "$(grep -c '^ *[bc]  -*0\.[01] % | *| *$' "$out")" -eq 2 ] || fail "bars of nothing: $(cat "$out")"
    grep -q '^ *d  -2\.0 % | *\*\**|##* *$' "$out" || fail "no bars on both sides of zero: $(cat "$out")"
    printf 'task,stage,rank,predicted_s,measured_s\nforward,0,0,1,1\nbackward,0,0,1,1\n' > table.csv
    run mist-plot differences table.csv
    [ "$(grep -c ' +0 s | *| *$' "$out")" -eq 4 ] || fail "bars of nothing: $(cat "$out")"
    run mist-sim job.json --cluster h100-sxm:1x4 --sweep kernel.attention=0.5x:1x:2x --sweep launch=1x:2x:4x \
        --sweep link.all=1x:2x --csv
    cp "$out" table.csv
    legible sweep table.csv
    run mist-plot sweep table.csv
    [ "$(grep -c ' launch=[124]x,link.all=[12]x *$' "$out")" -eq 6 ] || fail "a line for each curve: $(cat "$out")"
    { echo change,iteration_s,error_s; echo baseline,0.5,0
      for d in a b c; do echo "\"device=$d,launch=1x\",0.5,0"; echo "\"device=$d,launch=2x\",0.7,0"; done; } > table.csv
    run mist-plot sweep table.csv
    grep -q ' 500 +-|\.\.*G\*\*\**G\*\*\**G\.' "$out" || fail "the baseline covers a curve: $(cat "$out")"
    printf 'added,iteration_s,error_s,speedup,search_s\n3d,,,,0.5\nzero,2,0.5,1.5,3\nckpt,1,0,3,30\n' > table.csv
    legible ablation table.csv
    printf 'added,iteration_s,error_s,speedup,search_s\n' > table.csv
    for row in megatron 'our executor' 'its best plan there' 'all its knobs' offload imbalance mesh lean; do
        echo "$row,0.7,0.05,1.07,0.124"
    done >> table.csv
    legible ablation table.csv
    run mist-plot ablation table.csv
    grep -q '^ *megatron  *its best plan there  *offload  *mesh *$' "$out" || fail "names cover each other: $(tail -n 8 "$out")"
    { echo nodes,batch,is_best,iteration_s,error_s,tokens_per_s_per_device,device_hours
      for i in 1 2 4 8 16 32; do for b in 128 1024; do echo "$i,$b,false,$b.5,1,1000$i,123$b"; done; done; } > table.csv
    legible rent table.csv
    for name in a100-40 'a model of a name that is longer than all of the others'; do
        { echo model,device,is_best,iteration_s,tokens_per_s_per_device,device_hours
          for i in 1 2 3 4 5 6 7; do echo "$name $i,h100-sxm,false,$i.5,1000$i,$i"; done; } > table.csv
        legible rent table.csv
        run mist-plot rent table.csv -o axis.svg
        [ "$(grep -c '> *model, device *<' axis.svg)" -eq 2 ] || fail 'no name of the axis'
        rm axis.svg
    done
    { echo plan,predicted_s,measured_s,note
      i=0; while [ $i -lt 40 ]; do i=$((i + 1)); echo "plan number $i at 5 %,1.$i,1.2,a note"; done; } > table.csv
    legible errors table.csv
    run mist-plot errors table.csv
    [ "$(grep -c 'plan number [0-9]* at 5 % ' "$out")" -eq 40 ] || fail "a line for each of 40: $(cat "$out")"
    legible compare table.csv
    printf 'plan,predicted_s,measured_s,error_bar_s\na,1,1.1,9\nb,2,2.2,0.1\n' > table.csv
    legible errors table.csv
    run mist-plot errors table.csv
    grep -q '^ *a <\*.*\*> *$' "$out" || fail "no sign of a bar that goes on: $(cat "$out")"
    { echo plan,predicted_s,measured_s
      for e in 5 3 1 0; do echo "p-$e,1e-$e,1.3e-$e"; echo "p$e,1e$e,1.3e$e"; done; echo most,1e6,1.3e6; } > table.csv
    legible compare table.csv
    { echo plan,predicted_s,measured_s
      i=0; while [ $i -lt 150 ]; do i=$((i + 1)); echo "plan $i,1,1.1"; done; } > table.csv
    legible errors table.csv
    { echo stage,of,part,time_s,bytes
      i=0; while [ $i -lt 40 ]; do echo "$i,time,gathers of parameters,1,"; echo "$i,device memory,weights,,9e9"; i=$((i + 1)); done; } > table.csv
    legible breakdown table.csv
    run mist-plot breakdown table.csv
    [ "$(grep -c '  \*\*\*\*\(gathers of parameters\|weights\) ' "$out")" -eq 2 ] || fail "no gap before the key: $(cat "$out")"
    rm table.csv
    legible compare compare.csv
    legible pareto pareto.csv
    { echo stage,t_s,d_s,chosen
      i=0; while [ $i -lt 64 ]; do echo "$i,0.$i,1,0"; echo "$i,2,0.$i,0"; i=$((i + 1)); done; } > table.csv
    legible pareto table.csv
    run mist-plot pareto table.csv
    [ "$(grep -c 'stage [0-9]* *$' "$out")" -eq 64 ] || fail "a line for each of 64 stages: $(cat "$out")"
    run mist-plot pareto table.csv -o looks.svg
    n=$(perl "$scratch/io/looks.pl" looks.svg)
    [ "$n" -eq 64 ] || fail "$n of 64 stages look different"
    rm looks.svg
    legible links links_fit.csv
    { echo name,bytes,measured_us,fitted_us
      i=0; while [ $i -lt 30 ]; do i=$((i + 1)); echo "all_reduce of $i x 8,4096,$i,$i"; done; } > table.csv
    legible links table.csv
    run mist-plot links table.csv
    [ "$(grep -c 'all_reduce of [0-9]* x 8' "$out")" -eq 30 ] || fail "a line for each of 30: $(cat "$out")"
    rm table.csv
fi
begin 'letters that the font lacks are question marks'
printf 'plan,predicted_s,measured_s\n模型 🚀,1,1.1\nb,2,2.2\n' > table.csv
printf 'plan,predicted_s,measured_s\n?? ?,1,1.1\nb,2,2.2\n' > marks.csv
run mist-plot compare table.csv -o letters.png --title '模 é α ж → ≤'
if grep -q 'gnuplot is not installed' "$err"; then
    skip 'gnuplot is not installed'
else
    expect_exit 0
    run mist-plot compare marks.csv -o marks.png --title '? é α ж → ≤'
    cmp letters.png marks.png || fail 'the letters are drawn'
    run mist-plot compare table.csv -o letters.svg
    grep -q '模型 🚀' letters.svg || fail 'an SVG lacks the letters'
    rm -f marks.png letters.png letters.svg
fi
rm table.csv marks.csv
begin 'names of plans stay as they are'
printf 'plan,predicted_s,measured_s\n"gpt ""x"" a\\nb",1,1.1\nb,2,2.2\n' > table.csv
run mist-plot compare table.csv -o names.svg
if grep -q 'gnuplot is not installed' "$err"; then
    skip 'gnuplot is not installed'
else
    expect_exit 0
    grep -qF '>gpt "x" a\nb<' names.svg || fail "$(grep 'gpt' names.svg)"
    rm -f names.svg
fi
rm table.csv
begin 'no share is less than zero by nothing'
run mist-sim job.json --cluster h100-sxm:1x4 --compare slow.csv
expect_exit 0
if grep -q ' -0\.0 %' "$out"; then fail "$(grep ' -0\.0 %' "$out")"; fi
expect_stdout '^iteration, low end  '
begin 'no end of the error bar is below zero'
sed -i 's/"launch_us"/"drift_frac": 3, &/' traces/cluster.json
run mist-sim plan.json -o once.csv -f
run mist-sim plan.json --compare once.csv
expect_exit 0
expect_stdout '^iteration, low end  *0 s '

refuse 'options of other pictures: a time axis' 2 '^mist-plot: --from: compare has none$' \
    mist-plot compare compare.csv --from 1s -o new.svg
refuse 'options of other pictures: ranks' 2 '^mist-plot: --ranks: chrome has none$' mist-plot chrome timeline.csv --ranks 0
refuse 'options of other pictures: memory' 2 '^mist-plot: --limit: timeline has none$' \
    mist-plot timeline timeline.csv --limit 80GiB -o new.svg
refuse 'a limit without its unit' 2 "^mist-plot: --limit is 80 bytes, which can't be meant" \
    mist-plot memory timeline.csv --limit 80 -o new.svg
refuse 'a kind that is misspelled' 2 "^mist-plot: 'timelin' is no kind of picture; did you mean timeline\\?\$" \
    mist-plot timelin timeline.csv -o new.svg
refuse 'a table of another command' 3 '^mist-plot: timeline\.csv:1: missing column "change" \(the table is that of mist-sim --sweep --csv\)$' \
    mist-plot sweep timeline.csv -o new.svg
refuse 'a time behind the end' 3 '^mist-plot: --from 50s: all ends at ' mist-plot timeline timeline.csv --from 50s -o new.svg
refuse 'the table of another picture' 3 '^mist-plot: compare\.csv:1: unknown column ".*", expected stage, t_s, d_s' \
    mist-plot pareto compare.csv -o new.svg
finish

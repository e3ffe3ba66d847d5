#!/bin/sh
# mist-plot and a gnuplot that is missing, breaks off or prints something else: one line of message, no
# picture, nothing left behind.
. tests/cli/lib.sh

tools=$scratch/tools # holds what is called gnuplot here, and what that needs
mkdir "$tools"
for tool in sh cat kill; do ln -s "$(command -v $tool)" "$tools/$tool" 2> /dev/null; done

# stand_in LINE...: what gnuplot does from now on.
stand_in() {
    printf '%s\n' '#!/bin/sh' "$@" > "$tools/gnuplot"
    chmod +x "$tools/gnuplot"
}
draw="env PATH=$tools $MIST_BUILD/mist-plot compare compare.csv"
# shellcheck disable=SC2086
without() { # NAME CODE REGEX: a picture and a drawing in the terminal
    for output in new.svg new.png -; do refuse "$1: -o $output" "$2" "$3" $draw -o $output; done
}

without 'no gnuplot' 1 '^mist-plot: gnuplot is not installed; .*apt-get install'
echo 'no program' > "$tools/gnuplot"
without 'one that may not be run' 1 '^mist-plot: gnuplot can.t be started: Permission denied$'
chmod +x "$tools/gnuplot"
without 'one that is no program' 1 '^mist-plot: gnuplot (can.t be started: Exec format error|failed: .*)$'

stand_in 'kill -SEGV $$'
without 'one that crashes' 1 '^mist-plot: gnuplot was ended by signal 11$'
stand_in 'echo "</svg>"' 'echo "line 1: all is well" >&2' 'kill -KILL $$'
without 'one that is killed when the picture is whole' 1 '^mist-plot: gnuplot was ended by signal 9: line 1: all is well *$'
stand_in 'exit 3'
without 'one that fails without a word' 1 '^mist-plot: gnuplot failed: it ended without a message$'
stand_in 'i=0; while [ $i -lt 500 ]; do printf "line $i\n\033[31mred\r\t" >&2; i=$((i + 1)); done; exit 1'
without 'one that complains at length, in colours' 1 '^mist-plot: gnuplot failed: [[:print:]]{100,400}$'

for output in new.svg new.png; do
    stand_in 'echo nonsense'
    # shellcheck disable=SC2086
    refuse "one that prints nonsense: -o $output" 5 '^mist-plot: gnuplot.s picture is not whole' $draw -o $output
    stand_in 'exec <&- >&-'
    # shellcheck disable=SC2086
    refuse "one that neither reads nor writes: -o $output" 5 '^mist-plot: gnuplot.s picture is not whole' $draw -o $output
done
stand_in ':'
# shellcheck disable=SC2086
refuse 'one that draws nothing in the terminal' 5 '^mist-plot: gnuplot.s picture is not whole' $draw -o -

stand_in 'echo "<svg></svg>"; echo "warning: a font is missing" >&2'
begin 'one that warns'
# shellcheck disable=SC2086
run $draw -o new.svg
expect_exit 0
expect_stderr_empty
[ "$(cat new.svg)" = '<svg></svg>' ] || fail "new.svg: $(head -c 100 new.svg)"
begin 'one that fails leaves the old picture'
stand_in 'echo "<svg>newer</svg>"; exit 1'
# shellcheck disable=SC2086
run $draw -f -o new.svg
expect_exit 1
expect_one_line
nothing_written
rm new.svg

begin 'a reader who has gone'
stand_in 'echo drawn'
# shellcheck disable=SC2086
run sh -c "trap '' PIPE; mkfifo ../io/pipe; : < ../io/pipe & exec 3> ../io/pipe; wait; $draw -o - >&3; echo \$? > ../io/code"
code=$(cat ../io/code)
expect_exit 5
expect_stderr '^mist-plot: standard output can.t be written'
expect_one_line
nothing_written
refuse 'a folder that nobody can write to' 5 '^mist-plot: /proc/new\.svg: ' mist-plot compare compare.csv -o /proc/new.svg
# ------------------------------------------------------------------------------- names that are long
# within NAME COMMAND...: a picture whose edges have nothing drawn on them, left and right.
cat > "$scratch/io/edges.pl" << 'PERL'
use Compress::Zlib;
local $/;
binmode STDIN;
my $png = <STDIN>;
my ($at, $data) = (8, '');
my ($width, $height, $bits, $type) = unpack 'x16NNCC', $png;
my $n = $type == 2 ? 3 : $type == 6 ? 4 : 0;    # bytes of a pixel
$bits == 8 && $n or die "neither RGB nor RGBA\n";
while ($at < length $png) {
    my ($length, $kind) = unpack 'Na4', substr $png, $at, 8;
    $data .= substr $png, $at + 8, $length if $kind eq 'IDAT';
    $at += 12 + $length;
}
my @rows = unpack "(Ca@{[$n * $width]})$height", uncompress $data;
my @above = (0) x ($n * $width);
for my $y (0 .. $height - 1) {
    my ($filter, @row) = ($rows[2 * $y], unpack 'C*', $rows[2 * $y + 1]);
    for my $i (0 .. $#row) {
        my ($a, $b, $c) = ($i < $n ? 0 : $row[$i - $n], $above[$i], $i < $n ? 0 : $above[$i - $n]);
        my ($pa, $pb, $pc) = (abs($b - $c), abs($a - $c), abs($a + $b - 2 * $c));
        my $paeth = $pa <= $pb && $pa <= $pc ? $a : $pb <= $pc ? $b : $c;
        $row[$i] = ($row[$i] + (0, $a, $b, int(($a + $b) / 2), $paeth)[$filter]) % 256;
    }
    @above = @row;
    for my $x (0 .. 3, $width - 4 .. $width - 1) {
        die "something stands at $x,$y of $width x $height\n" if grep { $_ != 255 } @row[$n * $x .. $n * $x + $n - 1];
    }
}
PERL
within() {
    begin "long names: $1"
    shift
    run "$@" -o long.png
    if grep -q 'gnuplot is not installed' "$err"; then skip 'gnuplot is not installed'; return; fi
    expect_exit 0
    perl "$scratch/io/edges.pl" < long.png > "$scratch/io/edges" 2>&1 || fail "$(cat "$scratch/io/edges")"
    rm -f long.png
}
# the longest names that a table takes, of letters that are wide for their kind, near both edges
for letter in 5 W '…'; do
    n=63
    [ "$letter" = '…' ] && n=21 # bytes count
    name=$(printf "%${n}s" '' | sed "s/ /$letter/g")
    printf 'plan,predicted_s,measured_s\n%s,1.9,2\n%s,1,1.9\n%s,0.1,0.2\n%s,1.8,0.9\n' "$name" "$name" "$name" "$name" > long.csv
    within "plans of letters like $letter" mist-plot compare long.csv
done
file=$(printf '%240s' '' | tr ' ' 5).csv
title=$(printf '%300s' '' | tr ' ' W)
cp timeline.csv "$file"
within 'a timeline' mist-plot timeline "$file" --title "$title"
within 'memory' mist-plot memory "$file" --title "$title" --limit 80GiB
within 'frontiers' mist-plot pareto pareto.csv --title "$title"
within 'links' mist-plot links links_fit.csv --title "$title"
finish

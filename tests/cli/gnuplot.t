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
run sh -c "trap '' PIPE; { $draw -o -; echo \$? > ../io/code; } | :"
code=$(cat ../io/code)
expect_exit 5
expect_stderr '^mist-plot: standard output can.t be written'
expect_one_line
nothing_written
refuse 'a folder that nobody can write to' 5 '^mist-plot: /proc/new\.svg: ' mist-plot compare compare.csv -o /proc/new.svg
finish

#!/bin/sh
# The man pages: whole, clean to their readers, and true: what their examples show is what the tools print, but for
# figures.
. tests/cli/lib.sh

page=$scratch/io/page
print_page() { # TOOL: its page, or the overview
    if [ "$1" = mist ]; then
        sed 's/@VERSION@/0.0.0/; s/@DATE@/2000-01-01/' "$root/core/manual/mist.man" "$root/core/manual/words.man"
    else
        "$MIST_BUILD/$1" --man
    fi
}

for tool in mist $TOOLS; do
    print_page "$tool" > "$page"
    begin "$tool: every section is there, and every word"
    sections='NAME DESCRIPTION EXAMPLES FILES WORDS SEE.ALSO'
    [ "$tool" = mist ] || sections="$sections SYNOPSIS OPTIONS EXIT.STATUS"
    for section in $sections; do
        [ "$(grep -c "^\.SH $section\$" "$page")" -eq 1 ] || fail "$section: $(grep -c "^\.SH $section\$" "$page") times"
    done
    for word in plan t d exposed bubble arena; do
        grep -A 1 '^\.TP$' "$page" | grep -qE "^\.BR? ($word|$word \", .*)\$" || fail "$word is not explained"
    done

    begin "$tool: groff finds nothing to complain about"
    command -v groff > /dev/null || skip 'groff is missing'
    for width in 80 100; do
        [ -n "$case_skip" ] || groff -ww -b -z -man -Tutf8 -rLL=${width}n "$page" 2> "$err" || fail "$(cat "$err")"
        [ ! -s "$err" ] || fail "$(head -n 5 "$err")"
    done

    begin "$tool: nor does mandoc, but for the length of lines that nobody sees"
    if command -v mandoc > /dev/null; then
        mandoc -T lint < "$page" 2>&1 | grep -v 'longer than 80 bytes' > "$out" && fail "$(head -n 5 "$out")"
    else
        skip 'mandoc is missing'
    fi
done

# labels: what a line says before its figures, one blank for several; all of a line without figures.
labels() {
    sed -E '/[0-9]/s/([0-9]|  ).*//; s/ +/ /g; s/^ //; s/ $//' | grep -v '^$'
}

# Examples begin with "$ command"; "..." stands for lines that are left out.
for tool in $TOOLS; do
    "$MIST_BUILD/$tool" --man | awk '/^\.EX/ { inside = 1; next } /^\.EE/ { inside = 0 } inside' |
        sed 's/\\-/-/g; s/\\(aq/'\''/g; s/\\(ti/~/g; s/\\&//g; s/\\e/\\/g' > "$page"
    rm -f "$scratch"/io/example_*
    awk -v to="$scratch/io/example_" '/^\$ / { n++ } n { print > (to n) }' "$page"
    for example in "$scratch"/io/example_*; do
        command=$(sed -n '1s/^\$ //p' "$example")
        begin "$tool: $command"
        run sh -c "PATH=$MIST_BUILD:\$PATH; $command 2>&1"
        expect_exit 0
        labels < "$out" > "$scratch/io/printed"
        sed 1d "$example" | grep -v '^\.\.\.$' | labels > "$scratch/io/shown"
        [ -s "$scratch/io/shown" ] || fail 'the page shows no output'
        lost=$(awk 'NR == FNR { shown[++n] = $0; next } i < n && $0 == shown[i + 1] { i++ } END { print shown[i + 1] }' \
            "$scratch/io/shown" "$scratch/io/printed")
        [ -z "$lost" ] || fail "the page shows, and the tool does not print: $lost"
    done
done

begin 'commands of mist(7) are those of the README'
awk '/^\.EX/ { inside = 1; next } /^\.EE/ { inside = 0 } inside' "$root/core/manual/mist.man" |
    sed 's/\\-/-/g; s/\\e$//; s/^ *//; s/ *$//' > "$scratch/io/commands"
while IFS= read -r command; do
    grep -qF -e "$command" "$root/README.md" || fail "$command"
done < "$scratch/io/commands"
finish

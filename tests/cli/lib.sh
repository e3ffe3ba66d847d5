# What the command-line tests share. Sourced: `. tests/cli/lib.sh` from the project's root.
#
# A test runs in a scratch folder of its own that holds a copy of tests/data/cli (plan.json, plan2.json,
# traces/, ...). It speaks TAP. One case is
#
#     begin 'what is tested'
#     run mist-sim --sweep nonsense plan.json
#     expect_exit 2
#     expect_stderr '^mist-sim: --sweep nonsense: '
#     expect_stdout_empty
#     nothing_written
#
# or, as wrong input always has to end like this, in short
#
#     refuse 'what is tested' 2 '^mist-sim: --sweep nonsense: ' mist-sim --sweep nonsense plan.json
#
# and the file ends with `finish`. Expectations report what they found as TAP comments.
set -u

MIST_BUILD=${MIST_BUILD:-$PWD/build}
case $MIST_BUILD in /*) ;; *) MIST_BUILD=$PWD/$MIST_BUILD ;; esac
root=$PWD
LC_ALL=C TZ=UTC
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MIST_BUILD LC_ALL TZ OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
unset NO_COLOR MAKEFLAGS MFLAGS MAKELEVEL 2>/dev/null
TOOLS='mist-exec mist-plot mist-profile mist-sim mist-tune'

scratch=$(mktemp -d "${TMPDIR:-/tmp}/mist_cli_XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$scratch/here" "$scratch/io" # io: what the tools print, outside of what is listed
cp -R tests/data/cli/. "$scratch/here/" || exit 1
cd "$scratch/here" || exit 1
TMPDIR=$scratch/here # so that left-over temporary files are seen
export TMPDIR

n_cases=0   # cases begun
n_failed=0  # cases that failed
case_name=  # of the case under way; empty: none
case_fails= # not empty: it failed
case_skip=  # not empty: the reason why it was skipped

# Every file, folder and link below a folder, with sizes and checksums.
listing() {
    find "${1:-.}" -exec ls -dln --time-style=+ {} + | awk '{ $1 = $2 = ""; print }' | LC_ALL=C sort
    find "${1:-.}" -type f -exec cksum {} + | LC_ALL=C sort
}

say() { printf '%s\n' "$*" | sed 's/^/# /'; }

end_case() {
    [ -n "$case_name" ] || return 0
    n_cases=$((n_cases + 1))
    if [ -n "$case_skip" ]; then
        echo "ok $n_cases - $case_name # SKIP $case_skip"
    elif [ -n "$case_fails" ]; then
        n_failed=$((n_failed + 1))
        echo "not ok $n_cases - $case_name"
    else
        echo "ok $n_cases - $case_name"
    fi
    case_name=
}

# begin NAME: ends the case before.
begin() {
    end_case
    case_name=$1 case_fails='' case_skip=''
}

# skip REASON: the case under way is not judged.
skip() { case_skip=$1; }

# Ends the last case and the file.
finish() {
    end_case
    echo "1..$n_cases"
    [ "$n_failed" -eq 0 ]
    exit
}

# fail WHAT: the case under way has failed; shows what ran and what it said.
fail() {
    [ -n "$case_fails" ] || say "ran: $command_line"
    case_fails=yes
    say "$*"
}

command_line=
# run COMMAND...: a tool by its name, or any other command. Its output is in $out and $err.
out=$scratch/io/stdout err=$scratch/io/stderr
run() {
    command_line=$*
    listing > "$scratch/io/before"
    case $1 in mist-*) set -- "$MIST_BUILD/$@" ;; esac
    "$@" > "$out" 2> "$err" < /dev/null
    code=$?
}

expect_exit() {
    [ "$code" -eq "$1" ] || fail "exit code $code, expected $1; stderr: $(head -n 5 "$err")"
}

# One line of stderr must match the extended regular expression.
expect_stderr() {
    grep -Eq -e "$1" "$err" || fail "stderr: $(head -n 5 "$err"); expected: $1"
}

expect_stdout() {
    grep -Eq -e "$1" "$out" || fail "stdout: $(head -n 5 "$out"); expected: $1"
}

# The regular expression matches one line of stderr and no more.
expect_once() {
    [ "$(grep -Ec -e "$1" "$err")" -eq 1 ] || fail "$(grep -Ec -e "$1" "$err") lines match $1"
}

expect_one_line() {
    [ "$(wc -l < "$err")" -eq 1 ] || fail "stderr has $(wc -l < "$err") lines: $(head -n 5 "$err")"
}

expect_stdout_empty() { [ ! -s "$out" ] || fail "stdout: $(head -n 5 "$out"), expected nothing"; }
expect_stderr_empty() { [ ! -s "$err" ] || fail "stderr: $(head -n 5 "$err"), expected nothing"; }

# nothing_written [DIR]: the folder (default: the test's) is what it was before `run`.
nothing_written() {
    [ $# -eq 0 ] || fail 'nothing_written takes no folder here'
    listing > "$scratch/io/after"
    cmp -s "$scratch/io/before" "$scratch/io/after" ||
        fail "changed: $(diff "$scratch/io/before" "$scratch/io/after" | grep '^[<>]' | head -n 5)"
}

# stdout is one JSON document, strictly.
expect_json() {
    perl -MJSON::PP -e 'local $/; JSON::PP->new->utf8->decode(<STDIN>)' < "${1:-$out}" 2> "$scratch/io/perl" ||
        fail "${1:-stdout} is not one JSON document: $(head -n 2 "$scratch/io/perl")"
}

# Of plans in different folders, which name their trace set from there.
expect_same_plan() {
    grep -v '"trace_set"' "$1" > "$scratch/io/plan"
    grep -v '"trace_set"' "$2" | cmp -s - "$scratch/io/plan" || fail "$(basename "$1") and $(basename "$2") differ"
}

expect_same() { cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }
expect_file() { [ -s "$1" ] || fail "$1 is missing or empty"; }

# refuse NAME CODE REGEX COMMAND...: wrong input ends with this code and one line on stderr that
# matches, nothing on stdout and nothing written.
refuse() {
    begin "$1"
    refuse_code=$2 refuse_regex=$3
    shift 3
    run "$@"
    expect_exit "$refuse_code"
    expect_stderr "$refuse_regex"
    expect_one_line
    expect_stdout_empty
    nothing_written
}

# changed_line OLD NEW: the number of the first line of NEW that is not in OLD.
changed_line() { diff "$1" "$2" | sed -n 's/^[0-9,]*[acd]\([0-9]*\).*/\1/p; q'; }

# edit FILE SED_SCRIPT > NEW: like sed, but a script that changes nothing is an error in the test.
edit() {
    sed "$2" "$1" > "$scratch/io/edited"
    if cmp -s "$1" "$scratch/io/edited"; then
        echo "Bail out! the edit '$2' leaves $1 as it is"
        exit 1
    fi
    cat "$scratch/io/edited"
}

# tiny PLAN > NEW: the plan of a small model: two layers of width 32, sequences of 16.
tiny() {
    sed 's/layers": 12/layers": 2/; s/"layers": 6/"layers": 1/; s/"hidden": 256/"hidden": 32/
        s/"head_dim": 64/"head_dim": 8/; s/"ffn": 1024/"ffn": 128/; s/"seq_len": 128/"seq_len": 16/' "$1"
}

# 400 lines to train on.
write_text() {
    line=0
    while [ $line -lt 400 ]; do
        echo "line $line of a text that says the same thing over and over, and again: $((line * line))"
        line=$((line + 1))
    done
}

# What tests of training begin with: plans of the small model for one rank and for two, and a text.
tiny_inputs() {
    tiny plan.json > one.json
    tiny plan2.json > two.json
    write_text > text.txt
}

# losses LOG: what does not depend on time.
losses() { cut -d, -f1-4,7,8 "$1"; }

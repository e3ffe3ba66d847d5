#!/bin/sh
# What all tools share: help, version, man page, completion; wrong options.
. tests/cli/lib.sh

for tool in $TOOLS; do
    begin "$tool --help"
    run "$tool" --help
    expect_exit 0
    expect_stderr_empty
    expect_stdout "^$tool: "
    expect_stdout '^Examples:$'
    expect_stdout "^  (mpirun .*)?$tool "
    expect_stdout '^Exit codes:$'
    for exit_code in 0 1 2 3 5; do expect_stdout "^  $exit_code  "; done
    nothing_written

    begin "$tool --version"
    run "$tool" --version
    expect_exit 0
    expect_stderr_empty
    expect_stdout "^$tool [0-9]+\.[0-9]+\.[0-9]+\$"
    nothing_written

    case $tool in mist-exec | mist-profile)
        for option in --version --help; do
            begin "$tool $option on two ranks: one prints"
            run "$tool" $option
            cp "$out" "$scratch/io/alone"
            run mpirun --oversubscribe -n 2 "$MIST_BUILD/$tool" $option
            expect_exit 0
            expect_stderr_empty
            expect_same "$out" "$scratch/io/alone"
        done
        ;;
    esac

    begin "$tool --man: a page with every option of the help"
    run "$tool" --man
    expect_exit 0
    expect_stderr_empty
    expect_stdout '^\.TH '
    cp "$out" "$scratch/io/man"
    run "$tool" --help
    for option in $(sed -n 's/^.*  *--\([a-z-]*\).*  .*$/\1/p' "$out"); do
        sed 's/\\-/-/g' "$scratch/io/man" | grep -q -e "--$option" || fail "--$option is not in the man page"
    done
    nothing_written

    begin "$tool --help into a full disk"
    run sh -c "\"\$MIST_BUILD/$tool\" --help > /dev/full"
    expect_exit 5
    expect_stderr "^$tool: .*No space left"
    expect_one_line
    nothing_written

    refuse "$tool: an unknown option" 2 "^$tool: unknown option --nonsense" "$tool" --nonsense
    refuse "$tool: a misspelled option" 2 "^$tool: unknown option --forse; did you mean --force\\?" "$tool" --forse
    refuse "$tool: an unknown letter" 2 "^$tool: unknown option -Z" "$tool" -Z
    refuse "$tool: a value for a flag" 2 "^$tool: --force: takes no value" "$tool" --force=yes
    refuse "$tool: nothing given" 2 "^$tool: " "$tool"
done

for tool in mist-exec mist-sim; do
    refuse "$tool: an empty name" 2 "^$tool: an argument is empty, expected PLAN$" "$tool" ''
done
for option in checkpoint resume import export log tensorboard timeline kernels-csv; do
    refuse "mist-exec: an empty --$option" 2 "^mist-exec: --$option: the value is empty, expected [A-Z]+$" \
        mist-exec plan.json --iterations 1 --$option ''
done

begin 'no heading'
run mist-plot timeline timeline.csv --title '' -o bare.svg
expect_exit 0
rm bare.svg

begin 'a part, in percent'
run mist-sim plan2.json --jitter 0.05 --json
cp "$out" part.out
run mist-sim plan2.json --jitter 5% --json
expect_exit 0
expect_same "$out" part.out
expect_stderr '^mist-sim: with jitter .* one counts; --iterations 101 '
run mist-sim plan2.json --jitter 5% --iterations 3
expect_exit 0
expect_stderr_empty
rm part.out

# wrong NAME REASON COMMAND...
wrong() {
    name=$1 reason=$2
    shift 2
    refuse "$1: $name" 2 "^$1: $reason" "$@"
}
wrong 'a value is missing at the end' '--cluster: expected a value' mist-sim plan.json --cluster
wrong 'an option for a value' '--cluster: expected a value .*--json' mist-sim plan.json --cluster --json
wrong 'an argument where options alone are' "unexpected argument 'plan\.json': expected options alone" mist-tune plan.json
wrong 'a part that is none' "--jitter: 'some': expected a part such as 2% or 0\.02" mist-sim plan.json --jitter some
wrong 'a number below the range' '--iterations: 0 is not within 1 \.\. 1000' mist-sim plan.json --iterations 0
wrong 'a number above the range' '--iterations: 1001 is not within' mist-sim plan.json --iterations=1001
wrong 'text for a number' '--iterations: .*ten' mist-sim plan.json --iterations ten
wrong 'text behind a number' '--iterations: .*10x' mist-sim plan.json --iterations 10x
wrong 'a hexadecimal number' '--iterations: .*0x10' mist-sim plan.json --iterations 0x10
wrong 'a number beyond 64 bits' '--seed: .*99999999999999999999' mist-sim plan.json --seed 99999999999999999999
wrong 'NaN' '--jitter: .*nan' mist-sim plan.json --jitter nan
wrong 'an empty number' '--jitter: ' mist-sim plan.json --jitter=
wrong 'a negative amount' "--jitter: '-0\.1': expected a part such as" mist-sim plan.json --jitter=-0.1
wrong 'two plans' 'unexpected argument .plan2\.json.' mist-sim plan.json plan2.json
wrong 'options that exclude each other' '--csv and --json' mist-sim plan.json --csv --json
wrong 'a time without a unit' '--deadline: .*5' mist-exec plan.json --deadline 5
wrong 'a size as time' '--deadline: .*5GiB' mist-exec plan.json --deadline 5GiB
wrong 'a time below the range' '--deadline: ' mist-exec plan.json --deadline 0s
wrong 'a learning rate that is no number' '--lr: .*fast' mist-exec plan.json --lr fast
wrong 'a negative learning rate' '--lr: ' mist-exec plan.json --lr=-1
wrong 'a moment that does not decay' '--beta2: 1 is not within' mist-exec plan.json --beta2 1
wrong 'a negative number of threads' '--threads: -1 is not within' mist-exec plan.json --threads=-1
wrong 'two plans' 'unexpected argument .plan2\.json.' mist-exec plan.json plan2.json
wrong 'an unknown kind of picture' "'pie' is no kind of picture, expected timeline" mist-plot pie timeline.csv
wrong 'a kind without a file' 'expected KIND FILE' mist-plot timeline
wrong 'two tables' 'compare takes one file, not 2' mist-plot compare compare.csv compare.csv
wrong 'an unknown suffix' '.*out\.gif.*\.png' mist-plot timeline timeline.csv -o out.gif
wrong 'ranks that are no numbers' '.*one' mist-plot timeline timeline.csv --ranks one
wrong 'ranks from the end to the begin' '.*3-1' mist-plot timeline timeline.csv --ranks 3-1
wrong 'an end before the begin' '--to 0\.1s is not after --from 0\.2s' mist-plot timeline timeline.csv --from 200ms --to 0.1s
wrong 'a nonsense unit' '--limit: .*80GIB' mist-plot memory timeline.csv --limit 80GIB
wrong 'a negative size' '--limit: .*-1' mist-plot memory timeline.csv --limit=-1MiB
wrong 'an unknown backend' '--backend: .tpu. is none of auto, cpu, cuda' mist-profile --backend tpu -o out
wrong 'no ranks' '--ranks: 0 is not within' mist-profile --ranks 0 -o out
wrong 'micro-batches that are no numbers' '--micro-batches: .two. is no number' mist-profile --micro-batches 1,two -o out
wrong 'a micro-batch twice' '--micro-batches: 2 comes twice' mist-profile --micro-batches 2,1,2 -o out
wrong 'a micro-batch of 0' '--micro-batches: .0. is no number' mist-profile --micro-batches 0 -o out
wrong 'an empty item' '--micro-batches: ' mist-profile --micro-batches 1,,2 -o out
wrong 'an unknown word for progress' '--progress: .often. is none of auto, always, never' mist-profile --progress often -o out
wrong 'an argument that nobody expects' 'unexpected argument .here.' mist-profile here -o out
finish

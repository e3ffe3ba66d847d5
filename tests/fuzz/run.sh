#!/bin/bash
# Runs fuzz targets, two at a time, and prints a line for each. Called by fuzz.mk:
#
#     run.sh FOLDER SECONDS fixed|grow TARGET ...      from the root of the project
#
# FOLDER holds the fuzzers. fixed: a fixed seed, and only what the project holds to start
# from. grow: inputs that reached something new are kept in FOLDER/grown and are the start
# of the next time. Exit code 1: something was found; the line says which file it is.
# FUZZ_JOBS: at a time (2). FUZZ_NICE: niceness. No input takes 0.1 s, but a process that
# others keep from running may stand still for 10.
cd "$(dirname "$0")/../.." || exit 1
folder=$1 seconds=$2 mode=$3
shift 3

scratch=$(mktemp -d /dev/shm/mist_fuzz.XXXXXX 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

# The last number behind a word that libFuzzer prints: last "cov:" log.
last() { grep -ao "$1 *[0-9]*" "$2" | tail -1 | grep -o "[0-9]*$"; }

run_one() {
    local target=$1 fuzzer=$folder/$1 found=$folder/found log=$folder/$1.log work=$scratch/$1
    local grown=$work/grown seed=1 words=
    mkdir -p "$work/seeds" "$work/files" "$found"
    if [ "$mode" = grow ]; then grown=$folder/grown/$target seed=0; fi
    mkdir -p "$grown"
    "$fuzzer" --seeds "$work/seeds" || return 1
    set -- "$grown" "$work/seeds"
    [ -d "tests/fuzz/finds/$target" ] && set -- "$@" "tests/fuzz/finds/$target"
    [ -f "tests/fuzz/dictionaries/$target" ] && words=-dict=tests/fuzz/dictionaries/$target
    FUZZ_SCRATCH=$work/files UBSAN_OPTIONS=print_stacktrace=1 \
        nice -n "${FUZZ_NICE:-0}" "$fuzzer" -max_total_time="$seconds" -seed=$seed -max_len=8192 \
        -timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1 -close_fd_mask=1 \
        -artifact_prefix="$found/$target-" $words "$@" >"$log" 2>&1
    local code=$? runs
    runs=$(last stat::number_of_executed_units: "$log")
    printf '%-12s %10s runs %8s/s  coverage %5s  ' "$target" "${runs:-?}" \
        "$(last stat::average_exec_per_sec: "$log")" "$(last cov: "$log")"
    if [ $code = 0 ]; then echo 'nothing found'; return 0; fi
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    echo "FOUND ${input:-nothing that was kept} (see $log; repeat: $fuzzer ${input:-...})"
    return 1
}
export -f run_one last
export folder seconds mode scratch

printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-2}" -I{} bash -c 'run_one {}' || exit 1

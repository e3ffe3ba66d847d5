#!/bin/sh
# tests/gpu: the three calls for a machine with a GPU, tried out on the processor with tiny models.
. tests/cli/lib.sh
gpu=$root/tests/gpu

# A checkout that has the scripts and no pack, and a driver's tool that knows of a GPU.
mkdir -p checkout/tests driver
cp -R "$gpu" "$root/tests/tap.sh" checkout/tests/
cp -R "$root/core" checkout/
cat > driver/nvidia-smi <<'END'
#!/bin/sh
case "$*" in
-L) echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)' ;;
*query-gpu=name,driver_version,memory.total,clocks*) echo 'NVIDIA H100 80GB HBM3, 580.1, 81559 MiB, 345 MHz, 1980 MHz' ;;
*query-gpu=name*) echo 'NVIDIA H100 80GB HBM3' ;;
*query-gpu=memory*) echo 81559 ;;
esac
END
chmod +x driver/nvidia-smi
call() { run env PATH="$PWD/driver:$PATH" MIST_GPU_TINY=1 checkout/tests/gpu/run "$@"; }
# Call CALL, into DIR, has passed, or what became of its parts is said.
expect_passed() { [ "$code" -eq 0 ] || fail "exit code $code: $(cat "$2/summary-$1.txt")"; }
expect_line() { grep -Eq "$2" "$1" || fail "$1 has no $2: $(head -n 20 "$1")"; }
in_results() { tar tzf "found/results-$1.tar.gz" "results/$2" > "$scratch/io/list" 2>&1 || fail "results-$1 lacks $2"; }

begin 'the plan of minutes: no call is longer than 8 minutes'
run checkout/tests/gpu/run --dry-run
[ "$code" -le 1 ] || fail "exit code $code" # 1: the tests of GPUs are not built here
for one in A B C; do
    expect_stdout "^call $one: at most [67] min [0-9]+ s of 7 min 50 s$"
done
expect_stdout '^  accuracy +[0-9]+ s  plans of every mechanism'
expect_stdout '^handed on to C: nothing yet'

begin 'what is missing is named'
run env MIST_BUILD="$PWD/nowhere" checkout/tests/gpu/run --dry-run B
expect_exit 1
expect_stdout '^  speed .*\[missing: tune exec\]$'

begin 'without a GPU nothing runs'
run env PATH=/usr/bin:/bin checkout/tests/gpu/run A found machine
if grep -q 'nvidia-smi lists none' "$out"; then expect_exit 77; else skip 'there is a GPU'; fi

begin 'wrong words'
run checkout/tests/gpu/run D found
expect_exit 2
run checkout/tests/gpu/run A found speed
expect_exit 2
expect_stderr 'call A has no part speed'

begin 'A: layers of the same width agree, what needs a GPU is said'
call A found
expect_passed A found
expect_line found/summary-A.txt '^on NVIDIA H100 80GB HBM3, 580\.1, .*, 20[0-9-]+$'
expect_line found/summary-A.txt '^width +passed .* off from the CPU: gpt3-1\.3b loss 0\.0e\+00 norm 0\.0e\+00; llama-7b'
expect_line found/summary-A.txt '^tests +skipped .* needs a GPU$'
in_results A machine.txt

begin 'B: profile, speed, timeline and accuracy'
call B found
expect_passed B found
expect_line found/summary-B.txt '^profile +passed '
expect_line found/summary-B.txt '^speed +passed .* tuned plan, .* ms/step.*; again [0-9.]+ ms, first step after [0-9.]+ and [0-9.]+ s, [-+][0-9.]+ % predicted'
expect_line found/summary-B.txt '^accuracy +passed .* 1[0-9] plans: median error [0-9.]+ %'
for file in traces/h100-1/kernels.csv plans/speed.json accuracy.csv accuracy_bytes.csv timeline_measured.csv; do in_results B $file; done

begin 'a part that overruns is ended, and the rest still runs'
run env PATH="$PWD/driver:$PATH" MIST_GPU_TINY=1 MIST_GPU_SECONDS=6 checkout/tests/gpu/run B late
expect_exit 1
expect_line late/summary-B.txt '^profile +failed .* over its '
expect_line late/summary-B.txt '^accuracy +skipped .* no time left'

begin 'what B found is taken in: trace set, pictures, table'
run checkout/tests/gpu/take found
expect_exit 0
expect_file checkout/traces/sets/h100-1/kernels.csv
expect_file checkout/.gpu/results/accuracy.svg
expect_file checkout/.gpu/results/timeline.svg
expect_line checkout/traces/sets/h100-1/figures.md '^\* NVIDIA H100 80GB HBM3, 580\.1, '
expect_line checkout/traces/sets/h100-1/figures.md '^\| B \| speed \| tuned plan, '

begin 'C goes on with what B found'
run checkout/tests/gpu/run --dry-run C
expect_stdout '^handed on to C: .*/results-B\.tar\.gz$'
call C elsewhere llama torch nsight
expect_passed C elsewhere
expect_line elsewhere/summary-C.txt "^llama +passed .* of the optimizer in the host's memory: "

begin 'there is nothing to take in'
mkdir empty
run checkout/tests/gpu/take empty
expect_exit 5
expect_stderr '^take: empty holds no results-A, -B or -C\.tar\.gz$'
finish

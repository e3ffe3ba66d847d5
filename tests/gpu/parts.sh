#!/bin/sh
# The parts of tests/gpu/run, which calls `sh parts.sh NAME` with its environment. A part writes what it finds to
# $MIST_GPU_WORK and its main figure to .figure-NAME there. Exit code: 0 passed, 77 nothing to do here, else failed.
set -u
part=$1 work=$MIST_GPU_WORK
plans=$work/plans traces=$work/traces/h200-1
mkdir -p "$plans" "$work/traces"
cd "$MIST_GPU_ROOT" || exit 1

figure() { echo "$*" > "$work/.figure-$part"; }
skip() { figure "$*"; echo "$*"; exit 77; }
fail() { figure "$*"; echo "$*"; exit 1; }
# Algorithms that the profile or the benchmark finds are those of the runs behind them; tests take the first choices.
case $part in
tests | training | width | sanitizer) export MIST_CUDA_ALGORITHMS= ;;
*) export MIST_CUDA_ALGORITHMS="$work/cublaslt.json" ;;
esac
cuda() { LD_LIBRARY_PATH="$MIST_GPU_LIBRARIES" "$@"; }
# shellcheck disable=SC2153
mist() { name_of_tool=$1; shift; cuda "$MIST_GPU_BIN/mist-$name_of_tool" "$@"; }
program() { find "$MIST_GPU_TESTS" -name "$1" -type f -perm -u+x | head -n 1; }
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([-0-9a-z.e+]*\)\"\{0,1\},*\$/\1/p" "$2" | head -n 1; }
begun=$(date +%s)
left() { echo $((MIST_GPU_LIMIT - $(date +%s) + begun - 3)); } # seconds, to end before one is ended
calc() { awk "BEGIN { printf \"$1\", $2 }"; }

# -------------------------------------------------------------------------------------------------- models and plans
seq=2048 peak=989e12 # of an H200 in bf16, dense, as its datasheet says
if [ "${MIST_GPU_TINY:-}" ]; then seq=16; fi

model() { # NAME LAYERS
    case ${MIST_GPU_TINY:+tiny-}$1 in
    tiny-llama-7b) set -- llama-7b 2 llama 48 4 4 12 108 500 0 1e-6 10000.0 ;;
    tiny-*) set -- gpt3-demo 2 gpt 256 4 4 64 1024 256 1024 1e-5 0.0 ;;
    llama-7b) set -- "$1" "$2" llama 4096 32 32 128 11008 32000 0 1e-6 10000.0 ;;
    *) set -- "$1" "$2" gpt 2048 16 16 128 8192 50304 4096 1e-5 0.0 ;;
    esac
    bias=false
    [ "$1" != gpt3-demo ] || bias=true
    printf '{"name": "%s", "family": "%s", "n_layers": %d, "hidden": %d, "n_heads": %d, "n_kv_heads": %d, "head_dim": %d,
  "ffn": %d, "vocab": %d, "max_seq": %d, "has_bias": %s, "ties_embeddings": false, "norm_epsilon": %s, "rope_theta": %s}' \
        "$1" "$3" "$2" "$4" "$5" "$6" "$7" "$8" "$9" "${10}" "$bias" "${11}" "${12}"
}

# FILE MODEL LAYERS SEQ gpu|cpu MICRO_BATCH N_MICRO_BATCHES CHECKPOINTED WEIGHTS GRADIENTS OPTIMIZER ACTIVATIONS
write_plan() {
    layers=$3 device='"gpu": true'
    [ "$5" = gpu ] || device="\"threads\": $(nproc)"
    [ -z "${MIST_GPU_TINY:-}" ] || layers=2
    cat << END > "$1"
{"format": 1,
 "model": $(model "$2" "$layers"),
 "job": {"global_batch": $(($6 * $7)), "seq_len": $4, "dtype": "bf16", $device},
 "cluster": {"trace_set": "$([ -d "$traces" ] && echo "$traces")", "fingerprint": "0000000000000000", "device_memory_bytes": 0},
 "pipeline": "1f1b", "n_micro_batches": $7,
 "stages": [{"layers": $layers, "mesh_nodes": 1, "mesh_devices": 1, "micro_batch": $6, "dp": 1, "tp": 1, "zero": 0,
  "checkpointed_layers": $([ "$8" -le "$layers" ] && echo "$8" || echo "$layers"), "offload_weights_frac": $9, "offload_gradients_frac": ${10},
  "offload_optimizer_frac": ${11}, "offload_activations_frac": ${12}}]}
END
}

# Trains on the GPU: PLAN ITERATIONS RESULT [OPTION...]; what people read goes to the part's text.
train() {
    plan=$1 n=$2 result=$3
    shift 3
    mist exec "$plan" --backend cuda --data "text:$MIST_GPU_TEXT" --iterations "$n" --json --force "$@" > "$result"
}

# Speed of a result in words.
speed() {
    calc '%.1f ms/step, %.0f tokens/s, %.1f %% of %.0f TFLOP/s' "1e3 * $(value iteration_s "$1"), $(value tokens_per_s "$1"), \
        100 * $(value flop_per_token "$1") * $(value tokens_per_s "$1") / $peak, $peak / 1e12"
}

# ------------------------------------------------------------------------------------------------------------- parts
machine() {
    nvidia-smi 2>&1
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,pcie.link.gen.max,pcie.link.width.max,mig.mode.current,ecc.mode.current,temperature.gpu --format=csv 2>&1
    echo
    uname -a
    grep -m 1 'model name' /proc/cpuinfo
    echo "$(nproc) processors"
    head -n 1 /proc/meminfo
    grep 'locked memory' /proc/self/limits
    sed -n 1,2p /etc/os-release
    for tool in nvcc compute-sanitizer ncu nsys; do echo "$tool: $(command -v $tool || echo none)"; done
    python3 -c 'import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())' 2>&1
    echo "libraries: $MIST_GPU_LIBRARIES"
    cat "$MIST_GPU_VERSION"
    cuda ldd "$MIST_CUDA_PLUGIN"
    [ -n "$MIST_CUDA_GIVEN" ] || figure "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader)"
    ! cuda ldd "$MIST_CUDA_PLUGIN" | grep 'not found'
}

# Every test of tests/unit and tests/gpu, one after the other.
tests() {
    n=0 bad=
    for test in $(find "$MIST_GPU_TESTS" -name 'test_*' -type f -perm -u+x | grep -v test_cuda_training | sort); do
        echo "# $(basename "$test")"
        [ "$(left)" -ge 3 ] || { bad="$bad no time for $(basename "$test")"; break; }
        n=$((n + 1))
        cuda timeout -k 2 "$(left)" sh tests/tap.sh "$test" 2>&1 || bad="$bad $(basename "$test" | sed 's/^test_//')"
    done
    [ "$n" -gt 0 ] || fail 'no tests here: make -f Makefile -f tests/gpu/gpu.mk gpu-tests'
    figure "$n programs, $(grep -c '^ok' "$work/tests.txt") tests passed, $(grep -c '^not ok' "$work/tests.txt") failed${bad:+; bad:$bad}"
    [ -z "$bad" ]
}

# Plans of every sort on the GPU against the CPU: losses, and bits where those must be equal.
training() {
    test=$(program test_cuda_training)
    [ "$test" ] || fail 'test_cuda_training is not built'
    cuda sh tests/tap.sh "$test" 2>&1
    code=$?
    figure "$(sed -nE 's/^# (losses|[0-9]+ runs)/\1/p' "$work/training.txt" | awk '!seen[$0]++' | cut -d ';' -f 1 | tr '\n' ';')"
    return $code
}

kernels() {
    bench=$(program bench_cuda_kernels)
    [ "$bench" ] || fail 'bench_cuda_kernels is not built'
    if [ "${MIST_GPU_TINY:-}" ]; then skip 'not on tiny models'; fi
    cuda "$bench" 2>&1 || return 1
    figure "$(sed -n 's/^memory-bound: //p; s/^products: /products /p' "$work/kernels.txt" | tr '\n' ';')"
}

# The trace set of this machine for GPT-3 1.3B.
measure() { # DIR OPTION...
    at=$1
    shift
    if [ "${MIST_GPU_TINY:-}" ]; then # numbers of the processor in the place of those of a plugin that may be slow
        set -- "$@" --backend cpu --model gpt3-demo --micro-batches 1,2
    else
        set -- "$@" --backend cuda --model gpt3-1.3b --micro-batches 1,2,4,8
    fi
    mist profile --ranks 1 --seq-len $seq --dtype bf16 --progress never -f -o "$at" "$@" 2>&1
    code=$?
    [ -z "${MIST_GPU_TINY:-}" ] || sed -i 's/"cpu"/"cuda"/' "$at/cluster.json"
    figure "$([ -f "$at/kernels.csv" ] && wc -l < "$at/kernels.csv" || echo no) rows of kernels, $([ -f "$at/links.csv" ] && wc -l < "$at/links.csv" || echo no) of links"
    return $code
}
profile() { measure "$traces" --quick; }
profile_full() { measure "$work/traces/h200-1-full"; }

# GPT-3 1.3B, 16 samples a step: the plan that the tuner finds in the trace set, else one with nothing spared.
speed_plan=$plans/speed.json
speed_part() {
    how='shipped plan'
    if [ "${MIST_GPU_TINY:-}" ]; then name=gpt3-demo; else name=gpt3-1.3b; fi
    if [ -f "$traces/kernels.csv" ] && mist tune --model $name --cluster "$traces" --global-batch 16 --seq-len $seq \
        --dtype bf16 --progress never -f -o "$speed_plan" 2>&1; then
        how='tuned plan'
    else
        write_plan "$speed_plan" $name 24 $seq gpu 8 2 0 0 0 0 0
    fi
    train "$speed_plan" 12 "$work/speed.json" || return 1
    cat "$work/speed.json"
    predicted=$(value predicted_iteration_s "$work/speed.json")
    figure "$how, $(speed "$work/speed.json")"
    train "$speed_plan" 10 "$work/speed_atomics.json" --allow-atomics -q || return 1
    figure "$how, $(speed "$work/speed.json"), $(calc '%.1f ms with atomics' "1e3 * $(value iteration_s "$work/speed_atomics.json")")${predicted:+, $(calc '%+.1f %% predicted' "100 * ($predicted / $(value iteration_s "$work/speed.json") - 1)")}"
}

# The same step by PyTorch on the same GPU: weights all in bf16, then fp32 weights under autocast.
torch_size() { if [ "${MIST_GPU_TINY:-}" ]; then echo tiny; else echo gpt3-1.3b; fi; }
torch() {
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>&1 || skip 'no PyTorch with CUDA'
    python3 tests/gpu/torch_step.py --model "$(torch_size)" --batch 16 --micro-batch 8 --steps 10 2>&1 || return 1
    torch_s=$(sed -n 's/^step_s //p' "$work/torch.txt" | tail -n 1)
    figure "PyTorch $(calc '%.1f ms/step' "1e3 * $torch_s")$([ -s "$work/speed.json" ] &&
        calc ', %.3f times as long as mist' "$torch_s / $(value iteration_s "$work/speed.json")")"
    python3 tests/gpu/torch_step.py --model "$(torch_size)" --batch 16 --micro-batch 8 --steps 6 --autocast 2>&1
    autocast_s=$(sed -n 's/^autocast_step_s //p' "$work/torch.txt" | tail -n 1)
    [ -z "$autocast_s" ] || figure "$(cat "$work/.figure-torch"), autocast $(calc '%.1f ms' "1e3 * $autocast_s")"
}
torch_warm_up() {
    python3 tests/gpu/torch_step.py --model "$(torch_size)" --batch 16 --micro-batch 8 --steps 1
    python3 tests/gpu/torch_step.py --model "$(torch_size)" --batch 16 --micro-batch 8 --steps 1 --autocast
}

# Layers of real width on the GPU and on the CPU: losses within 2e-3, gradient norms within 5e-2.
width() {
    worst=0
    grep -qE 'avx512_bf16|amx_bf16|avx512f' /proc/cpuinfo || skip "this processor can't multiply bf16"
    for name in gpt3-1.3b llama-7b; do
        for where in gpu cpu; do
            write_plan "$plans/width-$name-$where.json" $name 2 $((seq / 4)) "$where" 1 1 0 0 0 0 0
            if [ "$where" = gpu ]; then backend=cuda; else backend=cpu; fi
            mist exec "$plans/width-$name-$where.json" --backend $backend --data "text:$MIST_GPU_TEXT" --iterations 3 -q --force \
                --log-csv "$work/width-$name-$where.csv" 2>&1 || fail "$name on the $where does not run"
        done
        paste -d , "$work/width-$name-gpu.csv" "$work/width-$name-cpu.csv"
        off=$(paste -d , "$work/width-$name-gpu.csv" "$work/width-$name-cpu.csv" | awk -F, '
            NR == 1 { n = NF / 2; for (i = 1; i <= n; i++) at[$i] = i; next }
            function off(name,  d) { d = $at[name] / $(at[name] + n) - 1; return d < 0 ? -d : d }
            { if (off("loss") > loss) loss = off("loss"); if (off("gradient_norm") > norm) norm = off("gradient_norm")
              rows++; bad += !(off("loss") <= 2e-3 && off("gradient_norm") <= 5e-2) }
            END { printf "loss %.1e norm %.1e", loss, norm; exit !(rows == 3 && bad == 0) }') || worst=1
        words="${words:-}${words:+; }$name $off"
    done
    figure "off from the CPU: $words"
    return $worst
}

# Llama 7B: half of the optimizer's state and its work's operands in the host's memory.
llama() {
    write_plan "$plans/llama-7b.json" llama-7b 32 $seq gpu 4 4 0 0 0 0.5 0
    train "$plans/llama-7b.json" 5 "$work/llama.json" || return 1
    cat "$work/llama.json"
    figure "$(speed "$work/llama.json")"
}

# Predicted and measured: 18 plans of 8 layers of GPT-3 1.3B, each way to spare memory.
accuracy() {
    [ -f "$traces/kernels.csv" ] || skip 'no trace set was measured'
    echo plan,predicted_s,measured_s,error_bar_s > "$work/accuracy.csv"
    while read -r b g ck ow og oo oa && [ "$(left)" -ge 8 ]; do
        name="b$b G$g$([ "$ck" = 0 ] || echo " ck$ck")$([ "$ow" = 0 ] || echo " ow$ow")$([ "$og" = 0 ] || echo " og$og")$([ "$oo" = 0 ] ||
            echo " oo$oo")$([ "$oa" = 0 ] || echo " oa$oa")"
        plan="$plans/accuracy-$(echo "$name" | tr ' ' -).json"
        if [ "${MIST_GPU_TINY:-}" ]; then b=$(((b + 3) / 4)) model=gpt3-demo; else model=gpt3-1.3b; fi
        write_plan "$plan" $model 8 $seq gpu "$b" "$g" "$ck" "$ow" "$og" "$oo" "$oa"
        if ! mist sim "$plan" --cluster "$traces" --json > "$work/predicted.json" || ! train "$plan" 6 "$work/measured.json" -q; then
            echo "$name: failed"
            continue
        fi
        echo "$name,$(value iteration_s "$work/predicted.json"),$(value iteration_s "$work/measured.json"),$(value error_s "$work/predicted.json")" |
            tee -a "$work/accuracy.csv"
        figure "$(awk -F, 'NR > 1 { n++; p[n] = $2; m[n] = $3; e = $2 / $3 - 1; a[n] = e < 0 ? -e : e }
            END { for (i = 1; i <= n; i++) for (j = 1; j < i; j++) { s = (p[i] - p[j]) * (m[i] - m[j]); t += s > 0 ? 1 : s < 0 ? -1 : 0 }
                for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j >= 1 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
                printf "%d plans: median error %.1f %%, worst %.1f %%, Kendall tau %.2f", n,
                    50 * (a[int((n + 1) / 2)] + a[int(n / 2) + 1]), 100 * a[n], (n > 1 ? 2 * t / n / (n - 1) : 1) }' "$work/accuracy.csv")"
    done << END
8 1 0 0 0 0 0
4 2 0 0 0 0 0
2 4 0 0 0 0 0
1 8 0 0 0 0 0
8 1 8 0 0 0 0
4 2 4 0 0 0 0
4 2 0 0 0 1 0
4 2 0 1 0 0 0
4 2 0 0 1 0 0
4 2 0 0 0 0 0.5
2 4 0 0 0 0.5 0
2 4 0 0.5 0 0 0
2 4 0 0 0 0 1
8 1 0 0 0 0.5 0.5
4 2 8 0 0 1 0
1 8 0 1 0 1 0
2 4 4 0.5 0.5 0.5 0.5
8 1 0 1 1 1 0
END
    rm -f "$work/predicted.json" "$work/measured.json"
    [ "$(wc -l < "$work/accuracy.csv")" -ge 16 ]
}

# A measured timeline of a run, and the simulated one beside it.
timeline() {
    plan=$speed_plan
    [ -f "$plan" ] || { plan=$plans/timeline.json; write_plan "$plan" gpt3-1.3b 24 $seq gpu 8 2 0 0 0 0 0; }
    train "$plan" 6 "$work/timeline.json" -q --timeline "$work/timeline_measured.csv" --timed-iterations 2 || return 1
    [ -f "$traces/kernels.csv" ] || { figure 'measured alone: no trace set'; return 0; }
    mist sim "$plan" --cluster "$traces" --compare "$work/timeline_measured.csv" -f -o "$work/timeline_predicted.csv" 2>&1 || return 1
    figure "$(wc -l < "$work/timeline_measured.csv") tasks"
}

# Out-of-bounds accesses and races in the small tests.
sanitizer() {
    tool=$(command -v compute-sanitizer || find /usr/local/cuda*/ /opt/nvidia -name compute-sanitizer \( -type f -o -type l \) -perm -u+x 2> /dev/null |
        head -n 1)
    [ "$tool" ] || skip 'no compute-sanitizer here'
    n=0 bad='' late=''
    for pair in memcheck:norm memcheck:loss racecheck:norm racecheck:loss memcheck:attention memcheck:optimizer racecheck:attention; do
        test=$(program "test_cuda_${pair#*:}")
        if [ -z "$test" ] || [ "$(left)" -lt 5 ]; then continue; fi
        limit=$(left)
        [ "$limit" -le 20 ] || limit=20
        echo "# ${pair%:*} ${pair#*:}"
        cuda timeout -k 2 "$limit" "$tool" --tool "${pair%:*}" --error-exitcode 99 "$test" 2>&1 | tail -n 30 > "$work/sanitizer.out"
        cat "$work/sanitizer.out"
        if grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$work/sanitizer.out"; then n=$((n + 1))
        elif grep -qE 'Device not supported|not supported' "$work/sanitizer.out"; then skip 'compute-sanitizer does not support this machine'
        elif grep -q SUMMARY "$work/sanitizer.out"; then bad="$bad $pair"
        else late="$late $pair"; fi
        figure "$n clean${bad:+; errors:$bad}${late:+; without an end:$late}"
    done
    rm -f "$work/sanitizer.out"
    [ -z "$bad" ] && [ "$n" -gt 0 ]
}

case $part in
speed) speed_part ;;
machine | tests | training | kernels | profile | profile_full | torch | torch_warm_up | width | llama | accuracy | timeline | sanitizer) "$part" ;;
*) fail "there is no part $part" ;;
esac

#!/bin/sh
# The parts of tests/gpu/run, which calls `sh parts.sh NAME` with its environment. A part writes what it finds to
# $MIST_GPU_WORK and its main figure to .figure-NAME there. Exit code: 0 passed, 77 nothing to do here, else failed.
set -u
part=$1 work=$MIST_GPU_WORK
plans=$work/plans
mkdir -p "$plans" "$work/traces"
cd "$MIST_GPU_ROOT" || exit 1

figure() { echo "$*" > "$work/.figure-$part"; }
skip() { figure "$*"; echo "$*"; exit 77; }
fail() { figure "$*"; echo "$*"; exit 1; }
# Algorithms that the profile finds are those of the runs behind it; tests take the first choices.
case $part in
tests | training | width | sanitizer) export MIST_CUDA_ALGORITHMS= ;;
*) export MIST_CUDA_ALGORITHMS="$work/cublaslt.csv" ;;
esac
cuda() { LD_LIBRARY_PATH="$MIST_GPU_LIBRARIES" "$@"; }
# shellcheck disable=SC2153
mist() { name_of_tool=$1; shift; cuda "$MIST_GPU_BIN/mist-$name_of_tool" "$@"; }
program() { find "$MIST_GPU_TESTS" -name "$1" -type f -perm -u+x | head -n 1; }
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([-0-9a-z.e+]*\)\"\{0,1\},*\$/\1/p" "$2" | head -n 1; }
begun=$(date +%s)
left() { echo $((MIST_GPU_LIMIT - $(date +%s) + begun - 3)); } # seconds, to end before one is ended
calc() { awk "BEGIN { printf \"$1\", $2 }"; }
on_gpu_only() { [ -z "${MIST_GPU_TINY:-}" ] || skip 'needs a GPU'; }

# ---------------------------------------------------------------------------------------------------------- device
# Its name, the folder of its trace set, its dense rate in bf16 by its datasheet (0: not known).
device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
case $device in
*H100*PCIe*) set_name=h100-pcie-1 peak=756e12 ;;
*H100*) set_name=h100-1 peak=989e12 ;;
*H200*) set_name=h200-1 peak=989e12 ;;
*) set_name=$(echo "${device:-cpu}" | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//; s/[^a-z0-9-]//g')-1 peak=0 ;;
esac
traces=$work/traces/$set_name seq=2048 backend=cuda
if [ "${MIST_GPU_TINY:-}" ]; then seq=16 backend=cpu; fi

# -------------------------------------------------------------------------------------------------- models and plans
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

# FILE MODEL LAYERS SEQ gpu|cpu [b=MICRO_BATCH] [G=MICRO_BATCHES] [ck=LAYERS] [ow=, og=, oo=, oa=FRAC: weights, gradients,
# optimizer, activations in the host's memory] [on=host|device: the update of what oo names] [grads=bf16|fp32] [memory=BYTES]
write_plan() {
    file=$1 name=$2 layers=$3 s=$4 device_words='"gpu": true'
    [ "$5" = gpu ] && [ -z "${MIST_GPU_TINY:-}" ] || device_words="\"threads\": $(nproc)"
    shift 5
    b=1 G=1 ck=0 ow=0 og=0 oo=0 oa=0 on=device grads=fp32 memory=0
    for word; do
        case $word in
        b=*) b=${word#*=} ;; G=*) G=${word#*=} ;; ck=*) ck=${word#*=} ;; ow=*) ow=${word#*=} ;; og=*) og=${word#*=} ;;
        oo=*) oo=${word#*=} ;; oa=*) oa=${word#*=} ;; on=*) on=${word#*=} ;; grads=*) grads=${word#*=} ;; memory=*) memory=${word#*=} ;;
        *) fail "a plan knows no $word" ;;
        esac
    done
    if [ "${MIST_GPU_TINY:-}" ]; then layers=2 b=$(((b + 3) / 4)); fi
    [ "$ck" -le "$layers" ] || ck=$layers
    cat << END > "$file"
{"format": 1,
 "model": $(model "$name" "$layers"),
 "job": {"global_batch": $((b * G)), "seq_len": $s, "dtype": "bf16"$([ "$grads" = fp32 ] || echo ", \"gradient_dtype\": \"$grads\""), $device_words},
 "cluster": {"trace_set": "$([ -d "$traces" ] && echo "$traces")", "fingerprint": "0000000000000000", "device_memory_bytes": $memory},
 "pipeline": "1f1b", "n_micro_batches": $G,
 "stages": [{"layers": $layers, "mesh_nodes": 1, "mesh_devices": 1, "micro_batch": $b, "dp": 1, "tp": 1, "zero": 0,
  "checkpointed_layers": $ck, "offload_weights_frac": $ow, "offload_gradients_frac": $og,
  "offload_optimizer_frac": $oo, "offload_activations_frac": $oa$([ "$on" = device ] || echo ", \"update_on\": \"$on\"")}]}
END
}

# Trains: PLAN ITERATIONS RESULT [OPTION...]; what people read goes to the part's text.
train() {
    plan=$1 n=$2 result=$3
    shift 3
    mist exec "$plan" --backend $backend --data "$MIST_GPU_IDS" --iterations "$n" --json --force "$@" > "$result"
}

# Speed of a result in words.
speed_of() {
    calc '%.1f ms/step, %.0f tokens/s' "1e3 * $(value iteration_s "$1"), $(value tokens_per_s "$1")"
    [ "$peak" = 0 ] || calc ', %.1f %% of %.0f TFLOP/s' \
        "100 * $(value flop_per_token "$1") * $(value tokens_per_s "$1") / $peak, $peak / 1e12"
}

# GPT-3 1.3B, 16 samples a step: the plan that the tuner found in the trace set, else one with nothing spared.
speed_plan=$plans/speed.json
ensure_speed_plan() {
    how='tuned plan'
    [ ! -f "$speed_plan" ] || return 0
    how='plan written by hand'
    write_plan "$speed_plan" gpt3-1.3b 24 $seq gpu b=8 G=2
}

# ---------------------------------------------------------------------------------------------------- A: is it right
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
    on_gpu_only
    cuda ldd "$MIST_CUDA_PLUGIN"
    figure "$(basename "$MIST_CUDA_PLUGIN") finds its libraries"
    ! cuda ldd "$MIST_CUDA_PLUGIN" | grep 'not found'
}

# Every test of tests/unit and tests/gpu, one after the other; none may take the time of all.
tests() {
    on_gpu_only
    n=0 bad=
    for test in $(find "$MIST_GPU_TESTS" -name 'test_*' -type f -perm -u+x | grep -v test_cuda_training | sort); do
        echo "# $(basename "$test")"
        limit=$(left)
        [ "$limit" -ge 3 ] || { bad="$bad no time for $(basename "$test")"; break; }
        [ "$limit" -le 45 ] || limit=45
        n=$((n + 1))
        cuda timeout -k 2 "$limit" sh tests/tap.sh "$test" 2>&1 || bad="$bad $(basename "$test" | sed 's/^test_//')"
    done
    [ "$n" -gt 0 ] || fail 'no tests here: make -f Makefile -f tests/gpu/gpu.mk gpu-tests'
    figure "$n programs, $(grep -c '^ok' "$work/tests.txt") tests passed, $(grep -c '^not ok' "$work/tests.txt") failed${bad:+; bad:$bad}"
    [ -z "$bad" ]
}

# Plans of every sort on the GPU against the CPU: losses, and bits where those must be equal.
training() {
    on_gpu_only
    test=$(program test_cuda_training)
    [ "$test" ] || fail 'test_cuda_training is not built'
    cuda sh tests/tap.sh "$test" 2>&1
    code=$?
    figure "$(sed -nE 's/^# (losses|[0-9]+ runs)/\1/p' "$work/training.txt" | awk '!seen[$0]++' | cut -d ';' -f 1 | tr '\n' ';')"
    return $code
}

# Layers of real width on the GPU and on the CPU: losses within 2e-3, gradient norms within 5e-2.
width() {
    worst=0
    for name in gpt3-1.3b llama-7b; do
        for where in gpu cpu; do
            write_plan "$plans/width-$name-$where.json" "$name" 2 "$((seq / 4))" "$where"
            if [ "$where" = gpu ]; then on=$backend; else on=cpu; fi
            mist exec "$plans/width-$name-$where.json" --backend $on --data "$MIST_GPU_IDS" --iterations 3 -q --force \
                --log "$work/width-$name-$where.csv" 2>&1 || fail "$name on the $where does not run"
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

kernels() {
    on_gpu_only
    bench=$(program bench_cuda_kernels)
    [ "$bench" ] || fail 'bench_cuda_kernels is not built'
    cuda "$bench" 2>&1 || return 1
    figure "$(sed -n 's/^memory-bound: //p; s/^products: /products /p' "$work/kernels.txt" | tr '\n' ';')"
}

# ------------------------------------------------------------------------------------- B: how fast, and as predicted?
# The trace set of this machine for GPT-3 1.3B.
profile() {
    sizes='--model gpt3-1.3b --micro-batches 1,2,4,8'
    [ -z "${MIST_GPU_TINY:-}" ] || sizes='--model gpt3-demo --micro-batches 1,2 --seconds 12'
    # shellcheck disable=SC2086
    mist profile --backend $backend --ranks 1 --seq-len $seq --dtype bf16 --progress never --quick -f -o "$traces" $sizes 2>&1
    code=$?
    figure "$([ -f "$traces/kernels.csv" ] && wc -l < "$traces/kernels.csv" || echo no) rows of kernels, $([ -f "$traces/links.csv" ] && wc -l < "$traces/links.csv" || echo no) of links"
    return $code
}

# Twice: a figure of one run is none. Then replayed as a graph, and with sums in any order.
speed() {
    name=gpt3-1.3b
    [ -z "${MIST_GPU_TINY:-}" ] || name=gpt3-demo
    if [ -f "$traces/kernels.csv" ]; then
        mist tune --model $name --cluster "$traces" --global-batch 16 --seq-len $seq --dtype bf16 --progress never -f \
            -o "$speed_plan" 2>&1 || echo 'no plan was found'
    fi
    ensure_speed_plan
    for run in 1 2; do
        train "$speed_plan" 12 "$work/speed-$run.json" || return 1
        cat "$work/speed-$run.json"
        figure "$how, $(speed_of "$work/speed-1.json")$([ $run = 1 ] ||
            calc '; again %.1f ms' "1e3 * $(value iteration_s "$work/speed-2.json")")"
    done
    figure "$(cat "$work/.figure-speed"), first step after $(calc '%.1f and %.1f s' "$(value start_s "$work/speed-1.json"), $(value start_s "$work/speed-2.json")")"
    predicted=$(value predicted_iteration_s "$work/speed-1.json")
    [ -z "$predicted" ] || figure "$(cat "$work/.figure-speed"), $(calc '%+.1f %% predicted' "100 * ($predicted / $(value iteration_s "$work/speed-1.json") - 1)")"
    for other in 'graphs --graphs on' 'atomics --allow-atomics'; do
        if [ "$backend" = cpu ] && [ "${other%% *}" = graphs ]; then continue; fi
        # shellcheck disable=SC2086
        train "$speed_plan" 10 "$work/speed-${other%% *}.json" -q ${other#* } || return 1
        figure "$(cat "$work/.figure-speed"), $(calc '%.1f ms' "1e3 * $(value iteration_s "$work/speed-${other%% *}.json")") with ${other%% *}"
    done
}

# A measured timeline of a run, and the simulated one beside it.
timeline() {
    ensure_speed_plan
    train "$speed_plan" 6 "$work/timeline.json" -q --timeline "$work/timeline_measured.csv" --timed-iterations 2 || return 1
    train "$speed_plan" 4 "$work/operators.json" --kernels-csv "$work/operators.csv" --timed-iterations 1 || return 1
    figure "$how, $(wc -l < "$work/timeline_measured.csv") tasks, $(wc -l < "$work/operators.csv") operators and kernels"
    [ -f "$traces/kernels.csv" ] || { figure 'measured alone: no trace set'; return 0; }
    mist sim "$speed_plan" --cluster "$traces" --compare "$work/timeline_measured.csv" -f -o "$work/timeline_predicted.csv" 2>&1
}

# Predicted and measured, in time and in memory: 8 layers of GPT-3 1.3B, one plan a mechanism first, mixtures behind.
accuracy() {
    [ -f "$traces/kernels.csv" ] || skip 'no trace set was measured'
    table=$work/accuracy.csv bytes=$work/accuracy_bytes.csv runtime=$(value runtime_memory_bytes "$traces/cluster.json")
    echo plan,predicted_s,measured_s,error_bar_s > "$table"
    echo plan,planned_bytes,allocated_bytes,predicted_device_bytes,used_device_bytes > "$bytes"
    bad=
    while read -r words && [ "$(left)" -ge 8 ]; do
        plan="$plans/accuracy-$(echo "$words" | tr ' =' -_).json"
        # shellcheck disable=SC2086
        write_plan "$plan" gpt3-1.3b 8 $seq gpu $words
        if ! mist sim "$plan" --cluster "$traces" --json > "$work/predicted.json" || ! train "$plan" 6 "$work/measured.json" -q; then
            bad="$bad; $words does not run"
            continue
        fi
        planned=$(value planned_bytes "$work/measured.json") allocated=$(value allocated_bytes "$work/measured.json")
        [ "$planned" = "$allocated" ] || bad="$bad; $words: planned $planned, allocated $allocated bytes"
        echo "$words,$(value iteration_s "$work/predicted.json"),$(value iteration_s "$work/measured.json"),$(value error_s "$work/predicted.json")" |
            tee -a "$table"
        echo "$words,$planned,$allocated,$((planned + ${runtime:-0})),$(value device_used_bytes "$work/measured.json")" | tee -a "$bytes"
        figure "$(awk -F, 'NR > 1 { n++; p[n] = $2; m[n] = $3; e = $2 / $3 - 1; a[n] = e < 0 ? -e : e; inside += a[n] * $3 <= $4 }
            END { for (i = 1; i <= n; i++) for (j = 1; j < i; j++) { s = (p[i] - p[j]) * (m[i] - m[j]); t += s > 0 ? 1 : s < 0 ? -1 : 0 }
                for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j >= 1 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
                printf "%d plans: median error %.1f %%, worst %.1f %%, %d inside their bars, Kendall tau %.2f", n,
                    50 * (a[int((n + 1) / 2)] + a[int(n / 2) + 1]), 100 * a[n], inside, (n > 1 ? 2 * t / n / (n - 1) : 1) }' "$table")$(awk -F, 'NR > 1 && $5 > 0 { e = $4 / $5 - 1; e = e < 0 ? -e : e; n++; if (e > worst) worst = e }
            END { if (n) printf ", memory off by %.1f %% at most", 100 * worst }' "$bytes")$bad"
    done << END
b=8
b=8 ck=8
b=8 oo=1
b=8 oo=1 on=host
b=8 grads=bf16
b=8 ow=1
b=8 og=1
b=8 oa=1
b=4 G=2
b=1 G=8
b=2 G=4
b=4 G=2 oo=0.5
b=4 G=2 oa=0.5
b=8 ck=4
b=4 G=2 ow=1 og=1 oo=1 on=host
b=4 G=2 ck=8 oo=1 on=host grads=bf16
b=1 G=8 ow=1 oo=1
b=2 G=4 ck=4 ow=0.5 og=0.5 oo=0.5 oa=0.5
b=8 ow=1 og=1 oo=1
END
    rm -f "$work/predicted.json" "$work/measured.json"
    [ -z "$bad" ] && [ "$(wc -l < "$table")" -ge 9 ]
}

# ------------------------------------------------------------------------------------- C: beside others, and in depth
# Out-of-bounds accesses and races in the small tests.
sanitizer() {
    on_gpu_only
    tool=$(command -v compute-sanitizer || find /usr/local/cuda*/ /opt/nvidia -name compute-sanitizer \( -type f -o -type l \) -perm -u+x 2> /dev/null |
        head -n 1)
    [ "$tool" ] || skip 'no compute-sanitizer here'
    n=0 bad='' late=''
    for pair in memcheck:norm memcheck:loss racecheck:norm racecheck:loss memcheck:attention memcheck:optimizer \
        memcheck:elementwise racecheck:attention racecheck:optimizer; do
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

# The same step by PyTorch on the same GPU, between two runs of ours: NAME OPTION... for each way to run it.
torch_ways='flash --attention flash
cudnn --attention cudnn
cudnn-autocast --attention cudnn --autocast
flash-eager --attention flash --eager'
torch_step() { # STEPS LIMIT OPTION...
    n=$1 limit=$2 size=gpt3-1.3b
    [ -z "${MIST_GPU_TINY:-}" ] || size=tiny
    shift 2
    timeout -k 2 "$limit" python3 tests/gpu/torch_step.py --model $size --batch 16 --micro-batch 8 --steps "$n" "$@" 2>&1
}
torch() {
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>&1 || skip 'no PyTorch with CUDA'
    ensure_speed_plan
    train "$speed_plan" 10 "$work/torch-mist-1.json" -q || return 1
    echo "$torch_ways" | while read -r way options; do
        [ "$(left)" -ge 25 ] || { echo "no time for $way"; continue; }
        limit=$(($(left) - 12)) # a run of ours is to follow
        # shellcheck disable=SC2086
        torch_step 10 $((limit > 60 ? 60 : limit)) $options > "$work/torch-$way.txt"
        cat "$work/torch-$way.txt"
    done
    train "$speed_plan" 10 "$work/torch-mist-2.json" -q || return 1
    ours=$(printf '%s\n' "$(value iteration_s "$work/torch-mist-1.json")" "$(value iteration_s "$work/torch-mist-2.json")" | awk '{ s += $1 / 2 } END { print s }')
    words=$(echo "$torch_ways" | while read -r way _; do
        took=$(sed -n 's/^step_s //p' "$work/torch-$way.txt" 2> /dev/null)
        [ -z "$took" ] || calc "$way %.1f ms (%.3f times ours); " "1e3 * $took, $took / $ours"
    done)
    figure "$how, mist $(calc '%.1f and %.1f ms' "1e3 * $(value iteration_s "$work/torch-mist-1.json"), 1e3 * $(value iteration_s "$work/torch-mist-2.json")"); PyTorch $words"
    [ "$words" ]
}
torch_warm_up() {
    torch_step 1 90 --attention flash
    torch_step 1 90 --attention cudnn
    torch_step 1 90 --attention cudnn --autocast
}

# Llama-2 7B: the smallest part of the optimizer's state goes to the host's memory with which it fits this device.
llama() {
    memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2> /dev/null | head -n 1)
    memory=$((${memory:-80000} * 1048576 - 3 * 1073741824))
    for oo in 0 0.125 0.25 0.375 0.5 0.625 0.75 0.875 1; do
        write_plan "$plans/llama-7b.json" llama-7b 32 $seq gpu b=4 G=4 oo=$oo memory="$memory"
        mist exec "$plans/llama-7b.json" --backend $backend --data "$MIST_GPU_IDS" --dry-run 2>&1 && break
        [ $? -eq 4 ] || return 1
    done
    train "$plans/llama-7b.json" 5 "$work/llama.json" || return 1
    cat "$work/llama.json"
    figure "$oo of the optimizer in the host's memory: $(speed_of "$work/llama.json")"
    [ "$oo" != 0 ] || return 0
    write_plan "$plans/llama-7b-host.json" llama-7b 32 $seq gpu b=4 G=4 oo="$oo" on=host memory="$memory"
    train "$plans/llama-7b-host.json" 5 "$work/llama-host.json" || return 1
    figure "$(cat "$work/.figure-llama"); updated there: $(speed_of "$work/llama-host.json")"
}

# Each kernel of a layer: time, share of the memory's bandwidth and of the processors' peak, by the hardware's counters.
nsight() {
    on_gpu_only
    tool=$(command -v ncu || find /opt/nvidia/nsight-compute /usr/local/cuda*/ -name ncu -perm -u+x 2> /dev/null | head -n 1)
    [ "$tool" ] || skip 'no Nsight Compute here'
    write_plan "$plans/nsight.json" gpt3-1.3b 2 $seq gpu b=8
    cuda timeout -k 2 "$(left)" "$tool" --clock-control none --csv --page raw --log-file "$work/nsight.csv" --launch-skip 60 --launch-count 60 \
        --metrics gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread \
        "$MIST_GPU_BIN/mist-exec" "$plans/nsight.json" --backend cuda --data "$MIST_GPU_IDS" --iterations 2 -q 2>&1
    n=$(grep -c '^"[0-9]' "$work/nsight.csv")
    figure "$n kernels, nsight.csv"
    [ "$n" -gt 0 ]
}

case $part in
machine | tests | training | width | kernels | profile | speed | timeline | accuracy | sanitizer | torch | torch_warm_up | llama | nsight) "$part" ;;
*) fail "there is no part $part" ;;
esac

#!/bin/sh
# Two hosts joined by a slow link: mist-profile sees what is inside a host and what is between them,
# mist-exec trains there to the same bits as on one host, mist-tune keeps what talks most inside a host.
. tests/cli/lib.sh
. "$root/tests/cli/two_hosts.sh"

missing=$(two_hosts_missing)
[ -n "${MIST_TWO_HOSTS:-}" ] || missing='takes minutes; MIST_TWO_HOSTS=1 runs it'
if [ -n "$missing" ]; then
    echo "1..0 # SKIP two hosts: $missing"
    exit 0
fi
trap 'two_hosts_stop; rm -rf "$scratch"' EXIT
mkdir "$scratch/hosts"
if ! two_hosts_start 200mbit "$scratch/hosts"; then # 25 MB/s
    echo 'Bail out! the two hosts are gone'
    exit 1
fi

cat > tiny.json << 'END'
{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "max_position_embeddings": 256}
END

# rate NODES RANKS_PER_NODE GROUPS: MB/s of the largest transfer of that shape in set/links.csv.
rate() {
    awk -F, -v nodes="$1" -v ranks="$2" -v groups="$3" '
        $1 == "send_recv" && $2 == nodes && $3 == ranks && $4 == groups && $5 > bytes { bytes = $5; time = $6 }
        END { printf "%g", bytes / (time + 1e-9) }' set/links.csv
}

# between VALUE LOW HIGH WHAT
between() {
    awk -v x="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(x >= low && x <= high) }' ||
        fail "$4: $1, expected $2 .. $3"
}

begin 'mist-profile measures two hosts'
run two_hosts_mpirun 2 "$MIST_BUILD/mist-profile" --quick --model tiny.json --seq-len 32 --micro-batches 1 \
    --progress never -o set
expect_exit 0
expect_stdout '^nodes +2$'
grep -q '"nodes": 2' set/cluster.json || fail 'cluster.json has not two nodes'
grep -q '"devices_per_node": 2' set/cluster.json || fail 'cluster.json has not two devices on each'
[ ! -e set.partial ] || fail "left: $(find set.partial)"

begin 'all groups are there, alone and together'
for shape in 1,2,1 2,1,1 2,1,2 2,2,1; do
    for operation in all_reduce all_gather reduce_scatter; do
        grep -q "^$operation,$shape," set/links.csv || fail "no $operation,$shape"
    done
done
grep -q '^all_reduce,2,2,1,64,' set/links.csv || fail 'no exchange of all ranks'

begin 'the link between them has its rate, memory is far faster'
between "$(rate 2 1 1)" 17.5 32.5 'MB/s between the hosts'
between "$(rate 1 2 1)" 250 1e9 'MB/s inside a host'
between "$(rate 2 1 2)" 8 17 'MB/s between the hosts, two at once'

# plan DP TP ZERO: two layers on both hosts.
plan() {
    edit plan.json "s/layers\": 12/layers\": 2/; s/\"dp\": 1/\"dp\": $1/; s/\"tp\": 1/\"tp\": $2/; s/zero\": 0/zero\": $3/
        s/mesh_nodes\": 1/mesh_nodes\": 2/; s/mesh_devices\": 1/mesh_devices\": 2/
        s/\"micro_batch\": 2/\"micro_batch\": 1/; s/global_batch\": 4/global_batch\": $((2 * $1))/"
}

# What a run computed: loss and gradient norm of its log, and the fingerprint of its parameters.
computed() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) keep[i] = $i == "step" || $i == "loss" || $i == "gradient_norm" }
        { for (i = 1; i <= NF; i++) if (keep[i]) printf "%s ", $i; print "" }' "$1"
    grep '^fingerprint of the parameters' "$out"
}

# same_bits DP TP ZERO: a plan trains to the same bits on two hosts as on one.
same_bits() {
    begin "mist-exec on two hosts: dp $1, tp $2, ZeRO $3"
    plan "$1" "$2" "$3" > both.json
    rm -f one.csv two.csv
    run mpirun --oversubscribe --bind-to none -n 4 "$MIST_BUILD/mist-exec" both.json -q --iterations 3 \
        --log one.csv
    expect_exit 0
    computed one.csv > "$scratch/io/one"
    run two_hosts_mpirun 2 "$MIST_BUILD/mist-exec" both.json -q --iterations 3 --log two.csv
    expect_exit 0
    computed two.csv > "$scratch/io/two"
    [ "$(grep -c '[0-9]\.[0-9]* [0-9]*\.[0-9]' "$scratch/io/one")" -eq 3 ] || fail "no three steps: $(cat "$scratch/io/one")"
    grep -q '^fingerprint' "$scratch/io/one" || fail 'no fingerprint of the parameters'
    expect_same "$scratch/io/one" "$scratch/io/two"
}
same_bits 4 1 0
same_bits 4 1 2
same_bits 2 2 0

# Tensor parallelism talks in every layer: over the slow link it can't pay.
begin 'mist-tune keeps tensor parallelism inside a host'
run mist-tune --model tiny.json --cluster set --ranks 4 --global-batch 8 --seq-len 32 -o tuned.json
expect_exit 0
for tp in $(sed -n 's/.*"tp": \([0-9]*\).*/\1/p' tuned.json 2> /dev/null); do
    [ "$tp" -le 2 ] || fail "tensor parallelism of $tp over hosts of 2"
done
finish

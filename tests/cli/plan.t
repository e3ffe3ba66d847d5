#!/bin/sh
# Wrong plans: every reader of plan.json refuses them with file, line and reason.
. tests/cli/lib.sh

# bad NAME SED_SCRIPT LINE REASON: plan.json, edited, is refused by mist-sim. LINE @: the edited one.
bad() {
    edit plan.json "$2" > bad.json
    line=$3
    [ "$line" != @ ] || line=$(changed_line plan.json bad.json)
    refuse "$1" 3 "^mist-sim: bad\.json:$line(:[0-9]+)?: .*$4" mist-sim bad.json
}

refuse 'a missing plan' 5 '^mist-sim: none\.json: ' mist-sim none.json
refuse 'a folder as plan' 5 '^mist-sim: traces: ' mist-sim traces
: > bad.json
refuse 'an empty plan' 3 '^mist-sim: bad\.json:1' mist-sim bad.json
head -n 20 plan.json > bad.json
refuse 'a truncated plan' 3 '^mist-sim: bad\.json:2[01](:[0-9]+)?: ' mist-sim bad.json
head -c 2 /dev/zero | cat plan.json - > bad.json
refuse 'zero bytes behind the plan' 3 '^mist-sim: bad\.json:4[78](:[0-9]+)?: ' mist-sim bad.json

bad 'trailing garbage' '$a x' @ ''
bad 'a second document' '$a {}' @ ''
bad 'an open quote' 's/"gpt3-demo"/"gpt3-demo/' @ ''
bad 'a missing comma' 's/"hidden": 256,/"hidden": 256/' '[78]' ''
bad 'a wrong format number' 's/"format": 1/"format": 2/' @ 'format: 2, expected 1$'
bad 'a format number as text' 's/"format": 1/"format": "1"/' @ 'format'
bad 'no format number' '/"format"/d' '[12]' 'format'
bad 'an unknown key' 's/"n_heads"/"heads"/' @ 'heads'
bad 'a duplicate key' 's/"dtype": "fp32"/"seq_len": 128, "dtype": "fp32"/' @ 'seq_len'
bad 'a missing key' '/"global_batch"/d' 19 'global_batch'
bad 'a number with a fraction for a count' 's/"layers": 12/"layers": 12.5/' @ 'layers'
bad 'a text for a number' 's/"hidden": 256/"hidden": "256"/' @ 'hidden'
bad 'a hexadecimal number' 's/"hidden": 256/"hidden": 0x100/' @ ''
bad 'NaN' 's/"norm_epsilon": 1e-05/"norm_epsilon": NaN/' @ ''
bad 'infinity by overflow' 's/"norm_epsilon": 1e-05/"norm_epsilon": 1e999/' @ ''
bad 'a negative size' 's/"hidden": 256/"hidden": -256/' '[37]' 'hidden'
bad 'a number beyond 64 bits' 's/"global_batch": 4/"global_batch": 99999999999999999999/' @ ''
bad 'a global batch of 0' 's/"global_batch": 4/"global_batch": 0/' @ 'global_batch'
bad 'heads that do not divide the width' 's/"n_heads": 4/"n_heads": 5/' '[38]' 'heads'
bad 'layers of stages that are not the model'\''s' 's/"layers": 12,/"layers": 11,/' 31 'layers, expected the model'\''s 12'
bad 'micro-batches that do not divide the batch' 's/"n_micro_batches": 2/"n_micro_batches": 3/' @ 'does not divide global_batch 4'
bad 'a micro-batch of another size than the batch asks' 's/"micro_batch": 2/"micro_batch": 1/' @ 'expected global_batch 4'
bad 'a mesh that is not dp times tp' 's/"mesh_devices": 1/"mesh_devices": 2/' @ 'mesh'
bad 'tp that does not divide the heads' 's/"tp": 1/"tp": 3/; s/"mesh_devices": 1/"mesh_devices": 3/' 38 'tp 3 does not divide n_heads 4'
bad 'an unknown ZeRO level' 's/"zero": 0/"zero": 4/' @ 'zero'
bad 'more lean layers than layers' 's/"checkpointed_layers": 0/&, "lean_layers": 13/' @ 'lean_layers is 13'
bad 'more checkpointed layers than layers' 's/"checkpointed_layers": 0/"checkpointed_layers": 13/' @ 'checkpointed_layers is 13'
bad 'an offload ratio above 1' 's/"offload_weights_frac": 0.0/"offload_weights_frac": 1.5/' @ 'offload_weights_frac'
bad 'a negative offload ratio' 's/"offload_activations_frac": 0.0/"offload_activations_frac": -0.1/' @ 'offload_activations_frac'
bad 'a sequence longer than the positions' 's/"seq_len": 128/"seq_len": 2048/' @ '1024'
bad 'an unknown family' 's/"family": "gpt"/"family": "rnn"/' @ 'rnn'
bad 'an unknown dtype' 's/"dtype": "fp32"/"dtype": "fp64"/' @ 'fp64'
bad 'gradients in a number format of their own' 's/"dtype": "fp32"/"dtype": "fp32", "gradient_dtype": "bf16"/' @ \
    'gradient_dtype is bf16 with dtype fp32, expected dtype bf16'
bad 'an unknown pipeline' 's/"1f1b"/"gpipe"/' @ 'gpipe'
bad 'a fingerprint that is too short' 's/"0000000000000000"/"00"/' @ 'fingerprint'
bad 'no stages' '/"stages": \[/,$c "stages": []}' 31 'stages'
bad 'another unit in a key' 's/"device_memory_bytes"/"device_memory_mib"/' @ 'device_memory_mib'

# ------------------------------------------------------- every knob is priced, and can be run
# knob NAME SED_SCRIPT RANKS: plan.json, edited, is a plan for that many ranks.
knob() {
    begin "mist-sim prices $1"
    edit plan.json "$2" > knob.json
    run mist-sim knob.json
    expect_exit 0
    expect_stdout '^iteration '
    begin "mist-exec would run $1"
    run mpirun -n "$3" "$MIST_BUILD/mist-exec" knob.json --dry-run
    expect_exit 0
    expect_stderr 'can be run'
    rm knob.json
}
knob 'tp 2' 's/"tp": 1/"tp": 2/; s/"mesh_devices": 1/"mesh_devices": 2/' 2
knob 'ZeRO-2' 's/"zero": 0/"zero": 2/' 1
knob 'ZeRO-3' 's/"zero": 0/"zero": 3/' 1
for part in weights gradients optimizer activations; do
    knob "offloaded $part" "s/\"offload_${part}_frac\": 0.0/\"offload_${part}_frac\": 0.5/" 1
done
edit plan.json 's/"fp32"/"bf16"/' > bf16.json
begin 'mist-exec would run bf16'
run mist-exec bf16.json --dry-run
expect_exit 0
rm bf16.json

# ------------------------------------------------------------------------- what is run with it
refuse 'mist-exec with too few ranks' 2 \
    '^mist-exec: the plan needs 2 ranks and 1 was started; use: mpirun -n 2 mist-exec plan2\.json' \
    mist-exec plan2.json
begin 'mist-exec with too many ranks'
run mpirun -n 2 "$MIST_BUILD/mist-exec" plan.json
expect_exit 2
expect_stderr '^mist-exec: the plan needs 1 rank and 2 were started'
expect_once '^mist-exec: '
expect_stdout_empty
nothing_written
begin 'a wrong plan under mpirun'
edit plan2.json 's/"format": 1/"format": 7/' > bad.json
run mpirun -n 2 "$MIST_BUILD/mist-exec" bad.json
expect_exit 3
expect_stderr '^mist-exec: bad\.json:2(:[0-9]+)?: '
expect_once '^mist-exec: '
expect_stdout_empty
nothing_written
edit plan.json 's/"trace_set": "traces"/"trace_set": ""/' > bad.json
refuse 'mist-sim with a plan that names no trace set' 2 '^mist-sim: bad\.json names no trace set' mist-sim bad.json
refuse 'mist-exec with a missing text' 5 '^mist-exec: none\.txt: ' mist-exec plan.json --data none.txt
: > empty.txt
refuse 'mist-exec with an empty text' 3 '^mist-exec: empty\.txt: the text has 0 tokens' mist-exec plan.json --data empty.txt
echo short > short.txt
refuse 'mist-exec with a text shorter than a sequence' 3 \
    '^mist-exec: short\.txt: the text has 6 tokens, one sample of 128 needs 129' mist-exec plan.json --data short.txt
refuse 'mist-exec with texts shorter than a sequence' 3 \
    '^mist-exec: short\.txt: the text, with that of 1 more file, has 12 tokens' \
    mist-exec plan.json --data short.txt --data short.txt
edit plan.json 's/"vocab": 256/"vocab": 100/' > bad.json
refuse 'mist-exec with text and a vocabulary that is not that of bytes' 3 '^mist-exec: bad\.json: .*vocabulary of 256, and the model has one of 100' mist-exec bad.json

begin 'a set without copies: the ids of a batch cost no more than their launch'
cp -R traces bare
grep -v '^host_to_device\|^device_to_host' traces/links.csv > bare/links.csv
run mist-sim plan.json --cluster bare
expect_exit 0
sed 's/"offload_optimizer_frac": 0.0/"offload_optimizer_frac": 0.5/' plan.json > moves.json
refuse 'what is offloaded needs them' 3 '^mist-sim: cluster .*no (host_to_device|device_to_host) in links\.csv' \
    mist-sim moves.json --cluster bare
finish

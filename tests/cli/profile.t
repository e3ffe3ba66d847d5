#!/bin/sh
# mist-profile: wrong requests. (Measuring takes too long here; see slow_profile.t.)
. tests/cli/lib.sh

profile() {
    name=$1 want=$2 reason=$3
    shift 3
    refuse "$name" "$want" "^mist-profile: $reason" mist-profile --quick -o set "$@"
}
refuse 'no folder' 2 '^mist-profile: --output: give a folder' mist-profile --quick
profile 'an unknown preset' 3 "model 'gpt5' is unknown; presets: gpt3-demo" --model gpt5
profile 'a missing config.json' 5 'none\.json: ' --model none.json
profile 'a config.json that is none' 3 './plan\.json:1' --model ./plan.json
profile 'a model that is not in the catalogue' 3 '.*Falcon' --model falcon-7b
profile 'a sequence longer than the positions' 3 'sequences of 4096 tokens, .* 1024 positions' --seq-len 4096
profile 'a sequence of 0' 2 '--seq-len: 0 is not within' --seq-len 0
profile 'text behind a number' 2 "--seq-len: '128x'" --seq-len 128x
profile 'a model larger than the memory' 3 '.*llama3-405b .* needs .*this machine has' --model llama3-405b --seq-len 4096
profile 'too many sizes' 2 '--micro-batches: 17 sizes, at most 16' --micro-batches 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17
profile 'too many ranks' 2 '--ranks: 2000 is not within' --ranks 2000

begin 'another number of ranks than mpirun started'
run mpirun -n 1 "$MIST_BUILD/mist-profile" --quick --ranks 2 -o set
expect_exit 2
expect_once '^mist-profile: --ranks 2, but mpirun started 1'
expect_stdout_empty
nothing_written

begin 'a dry run says what would be measured and measures nothing'
run mist-profile --dry-run --quick --micro-batches 2 -o set
expect_exit 0
expect_stderr_empty
expect_stdout '^in all, about'
expect_stdout '^micro-batches +2$'
nothing_written
finish

#!/bin/sh
# Training in earnest: options and wrong input, log lines and tables, validation, checkpoints and what is
# said when a run goes on from one, weights in and out, losses that are not finite, full disks.
. tests/cli/lib.sh

tiny_inputs
edit one.json 's/"global_batch": 4/"global_batch": 8/; s/"n_micro_batches": 2/"n_micro_batches": 4/' > batch.json
edit one.json 's/"ffn": 128/"ffn": 64/' > other.json
sed 's/same/other/' text.txt > other.txt
exec="mist-exec one.json --data text.txt"
mpi2="mpirun --oversubscribe --bind-to none -n 2 $MIST_BUILD/mist-exec two.json --data text.txt"

# ---------------------------------------------------------------------------------- wrong input
# wrong NAME REGEX OPTION...: a usage error.
wrong() {
    wrong_name=$1 wrong_regex=$2
    shift 2
    refuse "$wrong_name" 2 "^mist-exec: $wrong_regex" mist-exec one.json --data text.txt "$@"
}
validation='--validation-data FILE or --validation-frac FRAC'
wrong 'validation without data' "--validate-every needs $validation" --validate-every 2
wrong 'validation batches without data' "--validation-batches needs $validation" --validation-batches 2
wrong 'no data held out' '--validation-frac: 0 is not within' --validation-frac 0
wrong 'two sorts of validation data' '.*validation-frac.*validation-data.*together' \
    --validation-frac 0.1 --validation-data other.txt
wrong 'all data held out' '--validation-frac: 1 is not within' --validation-frac 1
wrong 'saving nowhere' '--save-every needs --checkpoint DIR' --save-every 2
wrong 'keeping what is not saved' '--keep needs --checkpoint DIR' --keep 2
wrong 'keeping less than nothing' '--keep: -1 is not within' --keep=-1
wrong 'a minimum above the learning rate' '--lr-min 0\.5 is above --lr 0\.001' --lr-min 0.5
wrong 'a warm-up longer than the decay' '--warm-up 5 leaves nothing of the 5 steps of --lr-decay-steps' \
    --warm-up 5 --lr-decay-steps 5
wrong 'a warm-up longer than the run' '--warm-up 30 leaves nothing of the 30 steps' --warm-up 30 --lr-min 1e-4
wrong 'a negative norm' '--clip: -1 is not within' --clip=-1
wrong 'an unknown way with NaN' '--on-nan: .*abort, skip' --on-nan hope
wrong 'an unknown type to export' '--export-dtype: .*fp32, bf16' --export x --export-dtype fp8
wrong 'a type and no export' '--export-dtype needs --export DIR' --export-dtype bf16
wrong 'a number of iterations to time nothing of' \
    '--timed-iterations needs --timeline FILE or --kernels or --kernels-csv FILE' --timed-iterations 1
wrong 'weights and a checkpoint' '--import and --resume can.t be given together, but for --resume auto' --import a --resume b
wrong 'no step between lines' '--log-every: 0 is not within' --log-every 0
wrong 'cuDNN on the CPU' '--attention cudnn needs a GPU' --backend cpu --attention cudnn
wrong 'graphs on the CPU' '--graphs on needs a GPU' --backend cpu --graphs on
wrong 'graphs at times' '--graphs: .*auto, on, off' --graphs sometimes
wrong 'graphs of one task at a time' '--graphs on can.t be had: one task at a time$' --graphs on --serial
wrong 'graphs with delays' '--graphs on can.t be had: delays between tasks$' --graphs on --delay-seed 3
begin 'graphs of two ranks'
run $mpi2 --graphs on
expect_exit 2
expect_once '^mist-exec: --graphs on can.t be had: more than one rank$'
expect_stdout_empty
wrong 'attention by nobody' '--attention: .*auto, cudnn, own' --attention fast
refuse 'validation data of less than a sample' 3 '^mist-exec: .*validation part of the data' $exec --validation-frac 0.0001
refuse 'more validation than there is' 3 \
    '^mist-exec: --validation-batches 1000: the validation data has [0-9]+ samples, [0-9]+ batches of 4$' \
    $exec --validation-frac 0.1 --validation-batches 1000
refuse 'no validation file' 5 '^mist-exec: none\.txt: ' $exec --validation-data none.txt
refuse 'no checkpoint there' 3 '^mist-exec: traces: ' $exec --resume traces
refuse 'no folder to resume from' 5 '^mist-exec: none: ' $exec --resume none
refuse 'no weights there' 3 '^mist-exec: traces: holds neither model\.safetensors' $exec --import traces
refuse 'a file for the folder of checkpoints' 5 "^mist-exec: plan\.json: can't make the directory: Not a directory\$" $exec --checkpoint plan.json
refuse 'a folder of checkpoints below a file' 5 '^mist-exec: plan\.json/run: ' $exec --checkpoint plan.json/run
refuse 'a file for the folder of weights' 5 '^mist-exec: plan\.json.* is no folder$' $exec --export plan.json
if [ -d /proc/self ]; then
    refuse 'a folder of checkpoints that nobody can make' 5 '^mist-exec: /proc/run' $exec --checkpoint /proc/run
fi
begin 'a dry run makes no folder'
run $exec --checkpoint run --save-every 1 --export hf --log log.csv --dry-run
expect_exit 0
expect_stderr '^mist-exec: one\.json can be run$'
nothing_written

# ---------------------------------------------------------------------------------------- logs
begin 'the help names the formats of data'
run mist-exec --help
expect_exit 0
for word in '\.u16' 'llm\.c' Megatron 'uint16:' --validation-frac --resume --import --on-nan --delay-seed; do
    grep -q -e "$word" "$out" || fail "the help does not say $word"
done
begin 'what is said before the first step'
run $exec --iterations 2
expect_exit 0
expect_stderr '^model +[0-9.]+ kFLOP per token \('
expect_stderr '^MFU +that x tokens/s / \(1 ranks x [0-9.]+ GFLOP/s, the fastest linear layer measured in traces\)$'
expect_stderr '^memory +largest rank: device arena [0-9.]+ [KM]iB planned, [0-9.]+ [KM]iB allocated, process [0-9.]+ MiB$'
epochs=$(wc -c < text.txt | awk '{ printf "%.3g epochs of %.1f k tokens", 2 * 4 / int(($1 - 1) / 16), $1 / 1e3 }')
expect_stderr "^training +steps 1 to 2, $epochs, gradients clipped to norm 1\$"
expect_once '^attention +own kernels'
expect_once '^products +oneDNN [0-9.]+, '
expect_once '^messages +none for one rank$'
! grep -q '^graphs' "$err" || fail 'the CPU replays nothing'
planned=$(sed -n 's/.*arena \(.*\) planned.*/\1/p' "$err")
expect_stderr "arena $planned planned, $planned allocated"
begin 'a line per step: step, loss, norm, rate, tokens/s, ms, MFU'
expect_once '^ +step +loss +grad norm +lr +tokens/s +ms/step +MFU$'
expect_once '^ +1 +[0-9.]+ +[0-9.]+ +0\.001 +[0-9]+ +[0-9.]+ +[0-9.]+ %$'
expect_once '^ +2 +[0-9.]+ +[0-9.]+ +0\.001 +[0-9]+ +[0-9.]+ +[0-9.]+ %$'
begin 'no MFU without a trace set'
sed 's/"trace_set": "traces"/"trace_set": "none"/' one.json > unknown.json
run mist-exec unknown.json --iterations 1 --clip 0
expect_exit 0
expect_stderr '^MFU +not known: no trace set in none$'
expect_stderr '^training +steps 1 to 1, .* tokens, gradients not clipped$'
expect_once '^ +1 +[0-9.]+ +[0-9.]+ +0\.001 +[0-9]+ +[0-9.]+$'
begin 'every third step and the last'
run $exec --iterations 7 --log-every 3
expect_exit 0
[ "$(sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' "$err" | tr '\n' ' ')" = '3 6 7 ' ] || fail "$(cat "$err")"
begin 'a run of a thousand million steps takes no more memory than a short one'
command_line='a run with 16 GiB of addresses, and SIGTERM'
sh -c "ulimit -S -v 16777216; exec \"\$MIST_BUILD\"/mist-exec one.json --data text.txt --iterations 1000000000" > "$out" 2> "$err" &
pid=$!
i=0
until grep -q '^ *2 ' "$err" || ! kill -0 $pid 2> /dev/null || [ $((i += 1)) -gt 1500 ]; do sleep 0.02; done
kill $pid 2> /dev/null
wait $pid 2> /dev/null
code=$?
expect_exit 143
expect_stderr '^training +steps 1 to 1000000000,'
if grep -q '__[at]san_init' "$MIST_BUILD/mist-exec"; then skip 'sanitizers take all addresses'; fi
begin 'quiet is quiet, JSON is one document'
run $exec -q --json --iterations 3 --validation-frac 0.1
expect_exit 0
expect_stderr_empty
expect_json
for key in first_step iterations skipped_steps loss_last validation_loss_last tokens_per_s mfu_frac \
    flop_per_token losses gradient_norms validations paths attention products collectives product_fallbacks; do
    grep -q "\"$key\"" "$out" || fail "no $key"
done
begin 'FLOP per token: 6 for each weight of a matrix, and attention'
# forward 2 and backward 4 times 2 layers of 12 h^2 and a head of 256 h; scores and values of attention over all of the
# 16 tokens: 12 h s per layer
flop=$(sed -n 's/^ *"flop_per_token": \(.*\),$/\1/p' "$out")
awk -v f="$flop" 'BEGIN { exit f != 6 * (2 * 12 * 32 * 32 + 256 * 32) + 2 * 12 * 32 * 16 }' ||
    fail "$flop FLOP per token"

begin 'at a learning rate of 0 a validation of the data that is trained on has the mean loss of an epoch'
head -c 3201 text.txt > epoch.txt # 200 windows of 16
run mist-exec one.json --data epoch.txt --validation-data epoch.txt --validation-batches 50 --lr 0 --iterations 50 --json
expect_exit 0
# The place of a sample in its batch changes its last bits on some processors: 8e-11 of the mean were seen.
perl -MJSON::PP -MList::Util=sum -e 'local $/; $d = JSON::PP->new->decode(<STDIN>); $mean = sum(@{$d->{losses}}) / 50;
    exit(abs($d->{validation_loss_last} / $mean - 1) > 1e-8)' < "$out" || fail "$(grep -A 51 validation_loss "$out")"
begin 'validation takes the samples behind the last whole batch, too: the mean of all, whatever the plan'
head -c 3233 text.txt > epoch.txt # 202 windows of 16
edit one.json 's/"global_batch": 4/"global_batch": 2/; s/"n_micro_batches": 2/"n_micro_batches": 1/' > pairs.json
edit one.json 's/"global_batch": 4/"global_batch": 400/; s/"n_micro_batches": 2/"n_micro_batches": 200/' > more.json
edit one.json 's/"dp": 1/"dp": 2/; s/"mesh_devices": 1/"mesh_devices": 2/; s/"micro_batch": 2/"micro_batch": 1/' > dp.json
edit one.json 's/"tp": 1/"tp": 2/; s/"mesh_devices": 1/"mesh_devices": 2/' > tp.json
run mist-exec pairs.json --data epoch.txt --lr 0 --iterations 101 --json
expect_exit 0
mean=$(perl -MJSON::PP -MList::Util=sum -e 'local $/; printf "%.17g", sum(@{JSON::PP->new->decode(<STDIN>)->{losses}}) / 101' \
    < "$out")
for plan in 'one 51 1' 'batch 26 1' 'more 0 1' 'two 51 2' 'dp 51 2' 'tp 51 2'; do
    # shellcheck disable=SC2086
    set -- $plan
    run mpirun --oversubscribe --bind-to none -n "$3" "$MIST_BUILD/mist-exec" "$1.json" --data text.txt --json --lr 0 \
        --iterations 1 --validation-data epoch.txt --validation-batches "$2"
    expect_exit 0
    expect_stderr '^validation +after the last step, 202 of 202 samples$'
    perl -MJSON::PP -e 'local $/; $d = JSON::PP->new->decode(<STDIN>);
        exit($d->{validation_samples} != 202 || abs($d->{validation_loss_last} / $ARGV[0] - 1) > 1e-6)' "$mean" < "$out" ||
        fail "$1: $(grep validation_ "$out"), expected $mean"
done
rm pairs.json more.json dp.json tp.json
rm epoch.txt
begin 'the table: columns, warm-up, decay, validation'
run $exec --iterations 6 --lr 0.01 --lr-min 0.001 --warm-up 2 --validation-data other.txt --validate-every 2 \
    --validation-batches 3 --log log.csv
expect_exit 0
expect_stderr '^validation +after every 2 steps and the last, 12 of [0-9]+ samples$'
expect_stderr '^ +4 .* validation [0-9.]+$'
[ "$(head -n 1 log.csv)" = step,loss,gradient_norm,lr,step_s,tokens_per_s,validation_loss,skipped ] ||
    fail "$(head -n 1 log.csv)"
awk -F, 'function near(a, b) { return a > b - 1e-9 && a < b + 1e-9 }
    NR > 1 { if ($1 != NR - 1 || $8 != 0 || ($7 == "") != ($1 % 2 == 1) || $6 * $5 < 63.9 || $6 * $5 > 64.1) exit 1
             lr[$1] = $4 }
    END { pi = atan2(0, -1)
          exit !(NR == 7 && near(lr[1], 0.005) && near(lr[2], 0.01) && near(lr[3], 0.01) &&
                 near(lr[5], 0.001 + 0.0045 * (1 + cos(pi / 2))) && near(lr[6], 0.001 + 0.0045 * (1 + cos(3 * pi / 4)))) }' log.csv ||
    fail "$(cat log.csv)"
refuse 'a table that exists' 2 '^mist-exec: log\.csv: exists already; --force' $exec --log log.csv
begin 'nothing that only re-times changes a loss'
run $exec -q --iterations 4 --log a.csv
expect_exit 0
for options in '--delay-seed 7' --serial '--threads 2'; do
    # shellcheck disable=SC2086
    run $exec -q --iterations 4 --log b.csv --force $options
    expect_exit 0
    [ "$(losses a.csv)" = "$(losses b.csv)" ] || fail "$options: $(losses b.csv)"
done
run $mpi2 -q --iterations 4 --log b.csv --force --delay-seed 3
expect_exit 0
[ "$(losses a.csv)" = "$(losses b.csv)" ] || fail "two ranks: $(losses b.csv)"
rm -f a.csv b.csv log.csv

begin 'what operators took: the same as JSON and as CSV, all of it, longest first'
run $exec -q --iterations 3 --timed-iterations 2 --kernels --kernels-csv ops.csv --json
expect_exit 0
expect_json
perl -MJSON::PP -e '
    my @rows = @{JSON::PP->new->decode(do { local $/; <STDIN> })->{operators}};
    open(my $file, "<", "ops.csv") or die;
    my @keys = split /,/, <$file> =~ s/\n//r;
    my ($shares, $calls, $before) = (0, 0, 1e99);
    for my $row (@rows) {
        my @cells = split /,/, <$file> =~ s/\n//r, -1;
        for my $i (0 .. $#keys) {
            my $cell = $row->{$keys[$i]} // "";
            die "$keys[$i]: $cells[$i], $cell" if $cells[$i] ne $cell && $cells[$i] != $cell;
        }
        die "not by time" if $row->{total_us} > $before;
        $before = $row->{total_us};
        $shares += $row->{share_frac};
        $calls += $row->{calls} if $row->{operator} eq "attention" && $row->{phase} eq "forward";
    }
    die "more in the table" if defined <$file>;
    die "shares: $shares, attention: $calls" if abs($shares - 1) > 1e-9 || $calls != 2 * 2 * 2;
' < "$out" 2> "$scratch/io/perl" || fail "$(head -n 2 "$scratch/io/perl")"
rm ops.csv
begin 'for people, of two ranks'
run $mpi2 -q --iterations 2 --kernels
expect_exit 0
expect_stdout '^Operators and their kernels in the last 2 steps$'
expect_stdout '^operator +calls +mean +share +rate +memory +of peak$'
expect_stdout '^linear_bias backward_weight 32x32x96 +[0-9]+ +[0-9.]+ .s +[0-9.]+ % +[0-9.]+ .FLOP/s +[0-9.]+ .B/s +([0-9.]+ %|-)$'
expect_stdout '^send_activation [0-9.]+ KiB +4 '
nothing_written
echo > ops.csv
refuse 'a table of operators that exists' 2 '^mist-exec: ops\.csv: exists already; --force' $exec --kernels-csv ops.csv
rm ops.csv
refuse 'two tables into one file' 2 '^mist-exec: --log and --kernels-csv are both same$' \
    $exec --log same --kernels-csv same
mkdir folder
ln -s folder link
refuse 'spelled in two ways' 2 '^mist-exec: --timeline and --log are both a\.csv$' $exec --log a.csv --timeline ./a.csv
refuse 'by a link and a whole path' 2 '^mist-exec: --log and --kernels-csv are both /.*/folder/a\.csv$' \
    $exec --log link/a.csv --kernels-csv "$PWD/folder/a.csv"
begin 'one name in two folders is fine'
run $exec -q --iterations 1 --log folder/a.csv --timeline a.csv
expect_exit 0
rm -r folder link a.csv

# --------------------------------------------------------------------------------- checkpoints
begin 'a run that saves, keeping two'
run $exec --iterations 6 --log whole.csv
expect_exit 0
run $exec --iterations 3 --checkpoint run --save-every 1 --keep 2 --log log.csv
expect_exit 0
expect_stderr '^checkpoint +after every step, in run$'
[ "$(ls run | tr '\n' ' ')" = 'step-00000002 step-00000003 ' ] || fail "$(ls run)"
losses whole.csv | head -n 4 > "$scratch/io/half"
losses log.csv | cmp -s - "$scratch/io/half" || fail 'saving changes losses'
cp -R run kept && cp log.csv kept.csv

begin 'a run that goes on: the same losses, and its table goes on, too'
run $exec --resume run --iterations 6 --log log.csv --checkpoint run
expect_exit 0
expect_stderr '^mist-exec: goes on from run/step-00000003$'
expect_stderr '^training +steps 4 to 6, '
[ "$(losses log.csv)" = "$(losses whole.csv)" ] || fail "$(losses log.csv)"
expect_file run/step-00000006/manifest.json
begin 'from a step of one'"'"'s choice, under another plan, on two ranks'
cp kept.csv log.csv
run $mpi2 --resume kept/step-00000002 --iterations 6 --log log.csv
expect_exit 0
expect_once '^mist-exec: goes on from kept/step-00000002$'
[ "$(losses log.csv)" = "$(losses whole.csv)" ] || fail "$(losses log.csv)"
begin 'a table of its own has the steps of its own'
run $exec --resume kept --iterations 5 --log part.csv
expect_exit 0
[ "$(cut -d, -f1 part.csv | tr '\n' ' ')" = 'step 4 5 ' ] || fail "$(cat part.csv)"
begin 'what is given and differs is said, what is given and the same is not'
run $exec --resume kept --iterations 4 --lr 0.5 --clip 1 --seed 1 --beta1=0.8
expect_exit 0
expect_once '^mist-exec: --lr 0\.5 instead of the checkpoint.s 0\.001$'
expect_once '^mist-exec: --beta1 0\.8 instead of the checkpoint.s 0\.9$'
expect_once '^mist-exec: --iterations 4 instead of the checkpoint.s 3$'
[ "$(grep -c '^mist-exec: --' "$err")" -eq 3 ] || fail "$(cat "$err")"
begin 'another number format is said'
edit one.json 's/"dtype": "fp32"/"dtype": "bf16"/' > bf16.json
run mist-exec bf16.json --data text.txt --resume kept --iterations 4
expect_exit 0
expect_once '^mist-exec: the plan trains in bf16 instead of the checkpoint.s fp32$'
begin 'a decay that ends with the run ends with a longer run, too, one that was given an end stays'
run $exec -q --iterations 6 --lr-min 1e-4 --log want.csv
run $exec -q --iterations 2 --lr-min 1e-4 --checkpoint short
run $exec -q --iterations 2 --lr-min 1e-4 --lr-decay-steps 2 --checkpoint fixed
for options in '' '--lr-min 1e-4'; do
    # shellcheck disable=SC2086
    run $exec --iterations 6 --resume short --log longer.csv --force $options
    expect_exit 0
    expect_once '^mist-exec: --'
    [ "$(tail -n 4 want.csv | cut -d, -f1,4)" = "$(tail -n 4 longer.csv | cut -d, -f1,4)" ] || fail "$(cat longer.csv)"
    # shellcheck disable=SC2086
    run $exec -q --iterations 4 --resume fixed --log longer.csv --force $options
    expect_exit 0
    [ "$(tail -n 2 longer.csv | cut -d, -f4 | tr '\n' ' ')" = '0.0001 0.0001 ' ] || fail "$(cat longer.csv)"
done
run $exec -q --iterations 6 --resume short --lr-decay-steps 3 --log longer.csv --force
[ "$(tail -n 3 longer.csv | cut -d, -f4 | tr '\n' ' ')" = '0.0001 0.0001 0.0001 ' ] || fail "$(cat longer.csv)"
rm -r short fixed want.csv longer.csv
begin 'what is not given is the checkpoint'"'"'s'
run $exec -q --iterations 2 --lr 0.02 --weight-decay 0 --clip 0.5 --seed 9 --checkpoint mine --log mine.csv
expect_exit 0
run $exec -q --iterations 4 --lr 0.02 --weight-decay 0 --clip 0.5 --seed 9 --log want.csv
expect_exit 0
run $exec -q --iterations 4 --resume mine --log mine.csv
expect_exit 0
expect_stderr_empty
[ "$(losses mine.csv)" = "$(losses want.csv)" ] || fail "$(losses mine.csv)"
begin 'nothing left to do is success'
run $exec --resume kept
expect_exit 0
expect_once '^mist-exec: the run is finished: 3 of 3 steps are done$'
refuse 'other data' 3 '^mist-exec: kept/step-00000003/manifest\.json:[0-9:]+ the run was trained on other data .*--force' \
    mist-exec one.json -q --data other.txt --resume kept --iterations 4
refuse 'another global batch' 3 '^mist-exec: .*manifest\.json:[0-9:]+ the run had a global batch of 4, the plan has 8; --force' \
    mist-exec batch.json -q --data text.txt --resume kept --iterations 4
begin 'other data, by force'
run mist-exec one.json --data other.txt --resume kept --iterations 4 --force
expect_exit 0
expect_once '^mist-exec: the run was trained on other data'
begin 'another global batch, by force: no sample comes again, none is left out'
# weights that stay what they are: a step's loss says which samples it had
run mist-exec batch.json --data text.txt -q --lr 0 --iterations 4 --log eight.csv # of 8 samples: 0 to 31
run mist-exec one.json --data text.txt -q --lr 0 --iterations 4 --checkpoint small # of 4: 0 to 15
run mist-exec batch.json --data text.txt --resume small --iterations 5 --checkpoint larger --log four.csv --force
expect_exit 0
expect_once '^mist-exec: the run had a global batch of 4, the plan has 8; --force goes on with that, behind the 16 samples taken so far$'
[ "$(tail -n 1 four.csv | cut -d, -f2)" = "$(sed -n 4p eight.csv | cut -d, -f2)" ] || fail "$(cat four.csv eight.csv)"
run mist-exec batch.json --data text.txt -q --resume larger --iterations 6 --log four.csv --force
expect_exit 0
[ "$(tail -n 1 four.csv | cut -d, -f2)" = "$(sed -n 5p eight.csv | cut -d, -f2)" ] || fail "$(cat four.csv eight.csv)"
rm -r small larger eight.csv four.csv
refuse 'another model' 3 '^mist-exec: .*ffn' mist-exec other.json -q --data text.txt --resume kept --iterations 4
refuse 'checkpoints of another run' 2 '^mist-exec: kept/step-00000003: is of another run: go on from it by --resume' \
    $exec --checkpoint kept
refuse 'a later checkpoint in the way' 2 '^mist-exec: kept/step-00000003: is later than the step 2 to go on from' \
    $exec -q --resume kept/step-00000002 --checkpoint kept --iterations 4
refuse 'a table that is none' 3 '^mist-exec: plan\.json' $exec -q --resume kept --iterations 4 --log plan.json
begin 'a damaged checkpoint is passed over, and that is said'
cp -R kept broken
printf x >> broken/step-00000003/manifest.json
run $exec --resume broken --iterations 4
expect_exit 0
expect_once '^mist-exec: .*step-00000003'
expect_once '^mist-exec: goes on from broken/step-00000002$'
begin 'a damaged checkpoint, asked for'
run $exec -q --resume broken/step-00000003 --iterations 4
expect_exit 3
expect_stderr '^mist-exec: broken/step-00000003'
begin 'a damaged tensor is found when it is read'
cp -R kept bits
size=$(wc -c < bits/step-00000003/rank-00000.bin)
printf 'x' | dd of=bits/step-00000003/rank-00000.bin bs=1 seek=$((size / 2)) conv=notrunc 2> /dev/null
run $exec -q --resume bits/step-00000003 --iterations 4
expect_exit 3
expect_stderr '^mist-exec: bits/step-00000003/'
expect_stdout_empty

# ------------------------------------------------------------------------------------- weights
begin 'weights out, in again, and out again: the same file'
run $exec -q --iterations 2 --export hf
expect_exit 0
expect_file hf/model.safetensors
expect_json hf/config.json
run $exec -q --iterations 1 --lr 0 --import hf --export hf2
expect_exit 0
expect_same hf/model.safetensors hf2/model.safetensors
run $mpi2 -q --iterations 1 --lr 0 --import hf/model.safetensors --export hf3
expect_exit 0
expect_same hf/model.safetensors hf3/model.safetensors
begin 'bf16 is half as large'
run $exec -q --iterations 2 --export hf --export-dtype bf16 --force
expect_exit 0
awk -v a="$(wc -c < hf/model.safetensors)" -v b="$(wc -c < hf2/model.safetensors)" 'BEGIN { exit !(a < 0.52 * b) }' ||
    fail 'bf16 is not half as large'
begin 'weights with RoPE say how long sequences may be: as those of the run, or as the weights it began with said'
echo '{"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64,
    "vocab_size": 256, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}' > config.json
run mist-sim --model config.json --dtype fp32 --seq-len 16 --micro-batch 2 --global-batch 4 --cluster a100-80:1x1 -q \
    --save-plan rope.json
expect_exit 0
for from in '' '--import began' '--import began --checkpoint rope --resume auto' '--import began --checkpoint rope --resume auto' \
    '--checkpoint rope --resume auto'; do
    # shellcheck disable=SC2086
    run mist-exec rope.json --data text.txt -q --iterations 1 --export hf4 --force $from
    expect_exit 0
    sed -n 's/.*"max_position_embeddings": \([0-9]*\).*/\1/p' hf4/config.json >> said
    [ -d began ] || { cp -R hf4 began && edit hf4/config.json 's/\("max_position_embeddings": \)16/\14096/' > began/config.json; }
done
[ "$(xargs < said)" = '16 4096 4096 4096 16' ] || fail "$(xargs < said)"
rm -rf rope.json began hf4 rope said config.json
refuse 'weights that exist' 2 '^mist-exec: hf/model\.safetensors: exists already; --force' $exec --export hf
refuse 'weights of another model' 3 '^mist-exec: hf2/config\.json:[0-9:]+ n_inner is 128, the plan.s model has 64$' mist-exec other.json --data text.txt --import hf2

# --------------------------------------------------------------------------------- what fails
begin 'a loss that is not finite ends the run'
run $exec -q --iterations 9 --lr 1e18 --clip 0
expect_exit 1
expect_once '^mist-exec: rank 0, step [0-9]+, layer [0-9]+: the (loss|gradient).* is not finite; lower --lr'
expect_stdout_empty
begin 'so does that of a validation, which says after which step'
run $exec --iterations 1 --lr 1e18 --clip 0 --validation-frac 0.1
expect_exit 1
expect_once '^mist-exec: rank 0, validation after step 1, layer 3: the loss is not finite; lower --lr'
expect_stdout_empty
begin 'or it is said, where steps are skipped'
run $exec --json --iterations 3 --lr 1e18 --clip 0 --on-nan skip --validation-frac 0.1 --validate-every 2
expect_exit 0
for step in 2 3; do expect_once "^ +$step .*  validation: not finite\$|^ +$step .*  validation: not finite  skipped: not finite\$"; done
expect_json
[ "$(grep -c '"loss": null' "$out")" = 2 ] || fail "$(cat "$out")"
begin 'on all ranks, within seconds'
start=$(date +%s)
run $mpi2 -q --iterations 9 --lr 1e18 --clip 0
[ $(($(date +%s) - start)) -le 20 ] || fail "took $(($(date +%s) - start)) s"
expect_exit 1
expect_stderr '^mist-exec: rank [01], step [0-9]+, layer [0-9]+: the (loss|gradient).* is not finite'
begin 'or its step is skipped and counted'
run $exec --iterations 5 --lr 1e18 --clip 0 --on-nan skip --log nan.csv
expect_exit 0
expect_stderr '^ +5 +- +- .* skipped: not finite$'
expect_stdout '^skipped steps +[34]$'
awk -F, 'NR > 3 && ($2 != "" || $3 != "" || $8 != 1) { exit 1 }' nan.csv || fail "$(cat nan.csv)"
begin 'a run of which nothing is finite any more ends'
rm nan.csv
run $mpi2 -q --iterations 1000 --lr 1e18 --clip 0 --on-nan skip --log nan.csv
expect_exit 1
expect_once '^mist-exec: none of the last 100 steps, to step 10[12], was finite'
tail -n 1 nan.csv | grep -q '^10[12],' || fail "$(tail -n 2 nan.csv)"
begin 'the same on two ranks, as JSON'
run $mpi2 -q --json --iterations 5 --lr 1e18 --clip 0 --on-nan skip
expect_exit 0
expect_json
expect_stdout '"skipped_steps": [34]'
expect_stdout '"collectives": "[A-Za-z ]+MPI'
begin 'a disk that fills up: the message names the file, the last checkpoint stays whole'
[ -z "${TSAN_OPTIONS:-}" ] || skip 'the thread sanitizer has a file that is over the limit'
cp -R kept full
run sh -c "trap '' XFSZ; ulimit -S -f 100; exec \"\$MIST_BUILD\"/$exec -q --resume full --checkpoint full --save-every 1 --iterations 5"
expect_exit 5
expect_stderr '^mist-exec: full/step-00000004\.[0-9a-f]{16}\.partial/rank-00000\.bin: .*File too large'
run $exec -q --resume full --checkpoint full --iterations 6 --json
expect_exit 0
expect_stdout '"first_step": 4'
[ -z "$(ls full | grep partial)" ] || fail "$(ls full)"
# The thread sanitizer writes a file of its own, which may not be limited.
if [ -z "${TSAN_OPTIONS:-}" ]; then
    begin 'one of two ranks can not write: it says so, and all end'
[ -z "${TSAN_OPTIONS:-}" ] || skip 'the thread sanitizer has a file that is over the limit'
    cat > limited.sh << 'EOF'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || { trap '' XFSZ; ulimit -S -f 100; }
exec "$@"
EOF
    start=$(date +%s)
    # messages by tcp: files that ranks share memory through would be over the limit, too
    run ${mpi2% -n 2*} --mca btl self,tcp -n 2 sh limited.sh ${mpi2#* -n 2 } -q --iterations 9 --checkpoint stuck --save-every 2
    [ $(($(date +%s) - start)) -le 20 ] || fail "took $(($(date +%s) - start)) s"
    expect_exit 5
    expect_once '^mist-exec: stuck/step-00000002\.[0-9a-f]{16}\.partial/rank-00001\.bin: .*File too large'
    expect_once '^mist-exec: '
    expect_stdout_empty
fi
finish

#!/bin/sh
# tests/accuracy.sh on runs that are made up: a mist-exec that says what is written beside each plan. The figures
# it should print are done by hand.
. tests/cli/lib.sh

mkdir fake plans
cat > fake/mist-exec <<'END'
#!/bin/sh
case " $* " in *' --dry-run '*) exit 0 ;; esac
case " $* " in *' --probe '*) ;; *) exit 2 ;; esac
for word; do case $word in *.json) plan=$word ;; esac; done
n=$(cat "$plan.runs" 2> /dev/null) || n=0
echo $((n + 1)) > "$plan.runs"
if [ "$n" = 1 ] && [ -e "$plan.says_then" ]; then exec cat "$plan.says_then"; fi
exec cat "$plan.says"
END
chmod +x fake/mist-exec

# made NAME RAW AT_LEVEL MEASURED BAR: a plan and what its run says; AT_LEVEL -: it has no probe.
made() {
    cp plan.json "plans/$1.json"
    {
        echo '{'
        echo "  \"iteration_s\": $4,"
        echo "  \"predicted_iteration_s\": $2,"
        echo "  \"predicted_error_s\": $5,"
        [ "$3" = - ] || echo "  \"predicted_at_level_s\": $3,"
        echo '  "losses": []'
        echo '}'
    } > "plans/$1.json.says"
}
accuracy() { run env MIST_BUILD="$PWD/fake" sh "$root/tests/accuracy.sh" plans out.csv; }

# At the level: +2 %, -5 %, 0, +10 %. As they say it: -8 %, -14.5 %, -10 %, +10 %.
made a 0.92 1.02 1.00 0.03
made b 1.71 1.90 2.00 0.03
made c 2.70 3.00 3.00 0.03
made d 3.345 - 3.0410 0.4

begin 'errors at the level of the probes, and as the plans say it'
accuracy
expect_exit 0
expect_stderr_empty
# of the six pairs c and d, 1.4 % apart, have no order; all others are in order
expect_stdout '^4 plans: median error 3\.5 %, worst 10\.0 %, Kendall tau 1\.00, 75 % within the error bars$'
expect_stdout '^4 plans, without probes: median error 10\.0 %, worst 14\.5 %, Kendall tau 1\.00$'
expect_stdout '^one stage +4 +3\.5 +10\.0 +\+1\.[78]$'

begin 'what is drawn is at the level of the probes'
cat > "$scratch/io/expected" <<'END'
plan,predicted_s,measured_s,error_bar_s
a S1,1.02,1,0.03
b S1,1.9,2,0.03
c S1,3,3,0.03
d S1,3.345,3.041,0.4
END
expect_same out.csv "$scratch/io/expected"

# c and d in the wrong order are still no pair; b before a and c before b are two of five.
made a 0.92 2.10 1.00 0.03
made b 1.71 1.90 2.00 0.03
made c 2.70 1.80 3.00 0.03
begin 'pairs that take the same time have no order'
accuracy
# a-b wrong, a-c wrong, b-c wrong, a-d and b-d right
expect_stdout '^4 plans: .*, Kendall tau -0\.20, '
expect_stdout '^4 plans, without probes: .*, Kendall tau 1\.00$'

# two rounds: 1.30 s predicted and 1.00 measured, 1.10 and 1.25: 1.20 and 1.125 in the mean, +6.7 %
begin 'means of the rounds count'
made a 1.00 1.30 1.00 0.03
mv plans/a.json.says plans/first
made a 1.00 1.10 1.25 0.03
mv plans/a.json.says plans/a.json.says_then
mv plans/first plans/a.json.says
rm -f plans/a.json.runs
accuracy
expect_stdout '^a S1 +1200\.0 +1125\.0 +\+6\.7$'

begin 'a plan that does not run is left out'
rm plans/a.json.says*
accuracy
expect_exit 0
expect_stderr '^a S1: mist-exec failed$'
expect_stdout '^3 plans: '

finish

#!/bin/sh
# mist-sim --list: the words of trace sets, and the same table in traces/README.md.
. tests/cli/lib.sh

begin 'operators with their phases, dimensions, and what a time includes'
run mist-sim --list --csv
expect_exit 0
expect_stderr_empty
expect_stdout '^linear,backward_weight,rows;n_in;n_out,'
expect_stdout '^attention,forward,batch;seq;heads;kv_heads;head_dim,'
! grep -q '^tp_' "$out" || fail 'communication has no rows'
[ "$(wc -l < "$out")" -gt 30 ] || fail "$(wc -l < "$out") lines"
perl -ne 'exit 1 if !/^[a-z_]+,[a-z_]+,[a-z_;]+,("[^"]+"|[^",]+)$/ && $. > 1' "$out" || fail 'a row is not whole'
begin 'traces/README.md has every row, and no other'
sed '1d; s/^\([^,]*\),\([^,]*\),\([^,]*\),"\{0,1\}\([^"]*\)"\{0,1\}$/| `\1` | \2 | `\3` | \4 |/' "$out" > operators
sed -n '/^| op | phase/,/^$/{/^| `/p}' "$root/traces/README.md" > documented
diff operators documented > difference || fail "$(head -n 6 difference)"
rm operators documented difference
begin 'links, too, as JSON and for people'
run mist-sim --list --json
expect_exit 0
expect_json
perl -MJSON::PP -e 'local $/; for (@{decode_json(<STDIN>)->{links}}) { print "| `$_->{operation}` | $_->{bytes} | $_->{includes} |\n" }' \
    < "$out" > links
sed -n '/^| operation | bytes/,/^$/{/^| `/p}' "$root/traces/README.md" > documented
[ -s links ] || fail 'no links'
diff links documented > difference || fail "$(head -n 6 difference)"
rm links documented difference
run mist-sim --list
expect_exit 0
expect_stdout '^host_to_device .*nodes;ranks_per_node;concurrent_groups'
begin 'links of a trace set: the line between the sizes around each one, which is drawn'
run mist-sim --list --cluster traces --csv
expect_exit 0
expect_stderr_empty
cp "$out" fits.csv
perl - traces/links.csv fits.csv << 'PERL' > difference || fail "$(cat difference)"
my (%sizes, %fitted, $n);
open my $links, '<', $ARGV[0];
while (<$links>) {
    my @row = split /,/;
    $sizes{"$row[0] of $row[1] x $row[2]"}{$row[4]} = $row[5] if $row[3] eq '1';
}
open my $fits, '<', $ARGV[1];
while (<$fits>) { $fitted{$1}{$2} = $3 if /^"?([^",]+)"?,(\d+),[^,]*,([^,]*),/ }
for my $link (keys %sizes) {
    my @bytes = sort { $a <=> $b } keys %{$sizes{$link}};
    for my $i (1 .. $#bytes - 1) {
        my ($low, $at, $high) = @bytes[$i - 1 .. $i + 1];
        my $wanted = $sizes{$link}{$low} + ($at - $low) / ($high - $low) * ($sizes{$link}{$high} - $sizes{$link}{$low});
        my $got = $fitted{$link}{$at} // 0;
        $n++;
        print("$link, $at bytes: $got, not $wanted\n"), exit 1 if abs($got - $wanted) > 1e-9 * $wanted;
    }
}
print("no link\n"), exit 1 unless $n > 4;
PERL
run mist-plot links fits.csv
grep -q 'gnuplot is not installed' "$err" || expect_exit 0
rm fits.csv difference
refuse 'a data sheet has no measured links' 3 '^mist-sim: h100-sxm:2x8: has no link with three measured sizes$' \
    mist-sim --list --cluster h100-sxm:2x8
refuse 'the words of a plan' 2 '^mist-sim: --list lists words and takes no PLAN$' mist-sim --list plan.json
for option in --lengths=none --sweep=launch=2x --what-if=launch=2x --model=gpt3-demo --compare=none --output=new; do
    refuse "a list with $option" 2 '^mist-sim: --list has no use for ' mist-sim --list "$option"
    refuse "presets with $option" 2 '^mist-sim: --presets has no use for ' mist-sim --presets "$option"
done
refuse 'both lists' 2 '^mist-sim: --presets lists presets and takes no --list$' mist-sim --list --presets
finish

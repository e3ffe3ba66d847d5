#!/bin/sh
# The README: every block of commands runs as it stands there; options, targets and files that it names exist.
#
# What a block needs is there, small: a trace set, plans, texts. Programs stand before the real ones in PATH that only
# make them short: mist-profile stops before it measures, mist-exec trains 2 steps (4 where a run goes on), mist-tune
# may replace the plan that is there, srun is mpirun, make looks whether there is such a target.
. tests/cli/lib.sh

readme=$root/README.md bin=$scratch/bin blocks=$scratch/io/blocks

# ------------------------------------------------------------------------------ stand-ins
mkdir "$bin" "$blocks" "$scratch/python"
for tool in mist-sim mist-plot; do ln -s "$MIST_BUILD/$tool" "$bin/$tool"; done
stand_in() { # NAME, its text on stdin
    { echo '#!/bin/sh' && cat; } > "$bin/$1"
    chmod +x "$bin/$1"
}
stand_in mist-profile << EOT
exec "$MIST_BUILD/mist-profile" "\$@" --force --dry-run
EOT
stand_in mist-tune << EOT
exec "$MIST_BUILD/mist-tune" "\$@" --force
EOT
# Where plans of every number of ranks are prepared, that of as many as were started takes the place of the README's.
stand_in mist-exec << EOT
mine=ranks_\${OMPI_COMM_WORLD_SIZE:-1}.json
[ -e \$mine ] && shift && set -- \$mine "\$@"
case "\$*" in *'--resume run'*) n=4 ;; *) n=2 ;; esac
exec "$MIST_BUILD/mist-exec" "\$@" --backend cpu --iterations \$n --warm-up 0
EOT
stand_in srun << 'EOT'
exec mpirun -n 2 "$@"
EOT
stand_in make << EOT
grep -q "^\$1:" "$root/Makefile" "$root"/.package/package.mk
EOT
# What the README's lines of Python import: tokenizers that know three tokens, and arrays of them.
cat > "$scratch/python/numpy.py" << 'EOT'
class array:
    def __init__(self, ids, dtype): self.bytes = b"".join(i.to_bytes(int(dtype[-1]), "little") for i in ids)
    def tofile(self, path): open(path, "wb").write(self.bytes)
EOT
cat > "$scratch/python/tiktoken.py" << 'EOT'
class get_encoding:
    def __init__(self, name): pass
    def encode_ordinary(self, text): return [1, 2, 3]
EOT
cat > "$scratch/python/transformers.py" << 'EOT'
class AutoTokenizer:
    @staticmethod
    def from_pretrained(path): return AutoTokenizer()
    def encode(self, text): return [1, 2, 3]
EOT
PATH=$bin:$PATH PYTHONPATH=$scratch/python PYTHONDONTWRITEBYTECODE=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PATH PYTHONPATH PYTHONDONTWRITEBYTECODE OMPI_MCA_rmaps_base_oversubscribe

# --------------------------------------------------------------------------------- inputs
mkdir inputs && cd inputs || exit 1
cp -R ../traces . && cp -R ../traces traces/mine
cp ../plan2.json plan.json
write_text > book.txt
perl -e 'print pack("v*", map { $_ % 250 } 1 .. 9000)' > mine.u16
perl -e 'print pack("V*", 20240520, 1, 9000, (0) x 253), pack("v*", map { $_ % 250 } 1 .. 9000)' > train.bin
mist-sim --framework torchtitan --model llama3-8b --seq-len 2048 --zero 3 --micro-batch 1 --cluster h100-sxm:1x8 \
    --export train.toml > /dev/null || exit 1
cd .. || exit 1

# Training begins with more ranks than plan.json has, and with weights of others.
cp -R inputs training && cd training || exit 1
for ranks in 1 2 4; do
    mist-sim --model gpt3-demo --dtype fp32 --seq-len 16 --dp $ranks --micro-batch 1 --global-batch 4 --cluster "a100-80:1x$ranks" \
        --save-plan ranks_$ranks.json > "$out" 2> "$err" || { cat "$err" && exit 1; }
done
cp ranks_2.json other_plan.json
mist-exec plan.json --export gpt2 > "$out" 2> "$err" || { cat "$err" && exit 1; }
cd .. || exit 1

# -------------------------------------------------------------------------------- commands
# Blocks that begin with a program are commands, the others show what is printed: $blocks/<number>, with its heading.
awk -v to="$blocks/" '
    /^#+ / && !inside { heading = $0; sub(/^#+ /, "", heading) }
    /^```/ { inside = !inside; first = inside; next }
    inside && first {
        first = 0; wanted = /^(mist-|mpirun|srun|make|python3|#!)/
        if (wanted) { n++; file = to sprintf("%02d", n); print heading > (file ".heading") }
    }
    inside && wanted { print > file }' "$readme"
for block in "$blocks"/??; do
    heading=$(cat "$block.heading")
    begin "$heading: $(head -n 1 "$block" | cut -c 1-60)"
    case $heading in Training | 'One command'*) from=training ;; *) from=inputs ;; esac
    grep -q '^python3' "$block" && ! command -v python3 > /dev/null && skip 'python3 is missing' && continue
    rm -rf at && cp -R $from at
    run sh -c "cd at && sh -e '$block'"
    expect_exit 0
done
rm -rf at inputs training

# ----------------------------------------------------------------------------------- names
begin 'every option that it names is an option of a tool'
for tool in $TOOLS; do "$MIST_BUILD/$tool" --help; done > "$scratch/io/help"
sed '/^#SBATCH/d; s/--mca//; s/--hostfile//' "$readme" | grep -oE -e '(^|[^-a-zA-Z0-9])--[a-z][a-z0-9-]*' |
    sed 's/^[^-]*//' | sort -u > "$scratch/io/named"
while read -r option; do
    grep -qE -e "$option([= ,]|\$)" "$scratch/io/help" || fail "$option"
done < "$scratch/io/named"
[ "$(wc -l < "$scratch/io/named")" -gt 30 ] || fail "only $(wc -l < "$scratch/io/named") options found"
begin 'every target of make, too'
for target in $(grep -oE '`make [a-z-]+' "$readme" | sed 's/.* //' | sort -u); do
    make "$target" || fail "make $target"
done
begin 'and every file'
files=$(grep -oE '`(\.package|[a-z]+)/[a-zA-Z0-9_./*-]+`|\]\([a-z/_.]+\)' "$readme" | tr -d '`]()' | sort -u)
for file in $files; do
    ls -d "$root"/$file > /dev/null 2>&1 || fail "$file"
done
finish

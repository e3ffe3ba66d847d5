#!/bin/sh
# `make install` with PREFIX and DESTDIR: what is installed runs; `make uninstall` removes it.
. tests/cli/lib.sh

command -v make > /dev/null || { begin 'make install'; skip 'make is missing'; finish; }
stage=$scratch/stage
begin 'make install writes below DESTDIR alone'
run make -C "$root" -s BUILD="$MIST_BUILD" PREFIX=/opt/mist DESTDIR="$stage" install
expect_exit 0
[ "$(cd "$stage" && find . -type f ! -name libmist_cuda.so | wc -l)" -eq 26 ] ||
    fail "not five files for each of five tools, and mist(7): $(find "$stage" -type f)"
nothing_written
for tool in $TOOLS; do
    begin "$tool, installed"
    run "$stage/opt/mist/bin/$tool" --version
    expect_exit 0
    expect_stdout "^$tool [0-9.]+\$"
    expect_file "$stage/opt/mist/share/man/man1/$tool.1"
    bash -n "$stage/opt/mist/share/bash-completion/completions/$tool" || fail 'the completion is no bash script'
    grep -q "^#compdef $tool\$" "$stage/opt/mist/share/zsh/site-functions/_$tool" || fail 'no completion for zsh'
    grep -q "^complete -c $tool " "$stage/opt/mist/share/fish/vendor_completions.d/$tool.fish" || fail 'no completion for fish'
done
begin 'mist(7), installed'
expect_file "$stage/opt/mist/share/man/man7/mist.7"
! grep '@' "$stage/opt/mist/share/man/man7/mist.7" > "$out" || fail "$(cat "$out")"
begin 'the installed tools do not need the folder they were built in'
mkdir "$scratch/elsewhere" && cp -R . "$scratch/elsewhere/"
run sh -c "cd '$scratch/elsewhere' && '$stage/opt/mist/bin/mist-plot' compare compare.csv && '$stage/opt/mist/bin/mist-sim' plan.json"
expect_exit 0
expect_stderr_empty
begin 'make uninstall removes every file'
run make -C "$root" -s BUILD="$MIST_BUILD" PREFIX=/opt/mist DESTDIR="$stage" uninstall
expect_exit 0
[ -z "$(find "$stage" -type f)" ] || fail "left: $(find "$stage" -type f)"
finish

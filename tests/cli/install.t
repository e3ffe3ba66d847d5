#!/bin/sh
# `make install` with PREFIX and DESTDIR: what is installed runs; `make uninstall` removes it. The Debian package does
# the same by dpkg. The Dockerfile asks for nothing that the Makefile does not.
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
begin 'a toolkit that is too old for the plugin is named, and all else is built'
mkdir "$scratch/toolkit"
for header in cuda_runtime_api.h cublasLt.h cudnn.h nccl.h cupti.h; do
    echo '#define CUDART_VERSION  12040' > "$scratch/toolkit/$header"
done
run make -C "$root" -n BUILD="$MIST_BUILD" NVCC=/bin/true CUDA_INCLUDE="$scratch/toolkit" all
expect_exit 0
expect_stdout '^make: no CUDA plugin: there is nvcc, but not CUDA 12.5 or newer$'
echo '#define CUDART_VERSION  12050' > "$scratch/toolkit/cuda_runtime_api.h"
run make -C "$root" -n BUILD="$MIST_BUILD" NVCC=/bin/true CUDA_INCLUDE="$scratch/toolkit" all
expect_exit 0
! grep -q 'no CUDA plugin' "$out" || fail "$(grep 'no CUDA plugin' "$out")"
begin 'make uninstall removes every file'
run make -C "$root" -s BUILD="$MIST_BUILD" PREFIX=/opt/mist DESTDIR="$stage" uninstall
expect_exit 0
[ -z "$(find "$stage" -type f)" ] || fail "left: $(find "$stage" -type f)"

# ------------------------------------------------------------------------ Debian's package
# dpkg installs below a folder, by a copy of this machine's list of packages, so that dependencies count.
package() {
    dpkg --instdir="$scratch/debian" --admindir="$scratch/dpkg" --force-not-root --log=/dev/null "$@"
}
begin 'make deb'
if command -v dpkg-shlibdeps > /dev/null; then
    deb=$(ls "$MIST_BUILD"/mist_*.deb 2> /dev/null) && rm -f $deb
    run make -C "$root" -s BUILD="$MIST_BUILD" deb-build
    expect_exit 0
    nothing_written
    deb=$(ls "$MIST_BUILD"/mist_*.deb)
    dpkg-deb --field "$deb" Depends > "$out"
    for name in libc6 libjansson4 libglpk40 libopenmpi3 $(sed -n 's/^PACKAGES_RUN *:= *//p' "$root/Makefile"); do
        grep -qE "(^|, )$name( |,|\$)" "$out" || fail "does not depend on $name: $(cat "$out")"
    done
    ! grep -q -e -dev "$out" || fail "depends on what only building needs: $(cat "$out")"
    begin 'the same tools give the same package'
    cp "$deb" "$scratch/io/first.deb"
    run make -C "$root" -s BUILD="$MIST_BUILD" deb-build
    expect_same "$deb" "$scratch/io/first.deb"
    begin 'dpkg installs it'
    mkdir -p "$scratch/debian" "$scratch/dpkg/updates" "$scratch/dpkg/info" && cp /var/lib/dpkg/status "$scratch/dpkg/"
    run package --install "$deb"
    expect_exit 0
    for tool in $TOOLS; do
        run "$scratch/debian/usr/bin/$tool" --version
        expect_exit 0
        gzip -dc "$scratch/debian/usr/share/man/man1/$tool.1.gz" | grep -q '^\.SH OPTIONS' || fail "no man page of $tool"
        expect_file "$scratch/debian/usr/share/zsh/vendor-completions/_$tool"
    done
    run "$scratch/debian/usr/bin/mist-sim" plan.json
    expect_exit 0
    begin 'and removes it'
    run package --purge mist
    expect_exit 0
    [ -z "$(find "$scratch/debian" -type f)" ] || fail "left: $(find "$scratch/debian" -type f)"
else
    skip 'dpkg-shlibdeps is missing'
fi

# ------------------------------------------------------------------------------ Dockerfile
begin 'the Dockerfile names no package that the Makefile lists, but for make itself'
packages=$(make -C "$root" -s --eval 'packages: ; @echo $(PACKAGES)' packages)
for package in $packages; do
    [ $package = make ] || ! sed 's/^#.*//' "$root/.package/Dockerfile" | grep -qw -e " $package" || fail "$package"
done
[ "$(echo $packages | wc -w)" -gt 10 ] || fail "packages: $packages"
begin 'what it copies and calls is there'
grep -q '^RUN make deb ' "$root/.package/Dockerfile" || fail 'does not make the package'
[ "$(grep -c '^FROM nvidia/cuda:' "$root/.package/Dockerfile")" -eq 2 ] || fail 'not two stages'
[ "$(sed -n 's/^FROM [^:]*:\([0-9.]*\)-.*-\(.*[0-9]\).*/\1 \2/p' "$root/.package/Dockerfile" | sort -u | wc -l)" -eq 1 ] ||
    fail 'stages of different versions of CUDA or of the system'
finish

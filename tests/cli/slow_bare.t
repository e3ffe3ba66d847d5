#!/bin/sh
# The Debian package in a bare Debian, which debootstrap makes: apt installs it with what it depends on, and the tools
# plan, train and draw there. MIST_BARE=1 asks for it: it needs root, the network, and minutes.
. tests/cli/lib.sh

begin 'the package is made'
[ -n "${MIST_BARE:-}" ] || { skip 'MIST_BARE=1 asks for it'; finish; }
command -v debootstrap > /dev/null || { skip 'debootstrap is missing'; finish; }
run make -C "$root" -s BUILD="$MIST_BUILD" deb-build
expect_exit 0

begin 'a bare Debian'
bare=$scratch/bare
run debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$bare"
expect_exit 0
cp /etc/resolv.conf "$bare/etc/"
cp "$MIST_BUILD"/mist_*.deb "$bare/tmp/"
cp -R . "$bare/root/here"

# inside COMMAND...: in a namespace of its own, so that nothing of this machine stays mounted there.
inside() {
    run unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && cd "$0" &&
        exec chroot . sh -c "cd /root/here && export TMPDIR=/tmp DEBIAN_FRONTEND=noninteractive && $1"' "$bare" "$*"
    expect_exit 0
}
begin 'apt installs it'
inside 'apt-get -q update && apt-get -q install -y --no-install-recommends /tmp/mist_*.deb'
begin 'mist-tune plans'
inside 'mist-tune --model gpt3-demo --cluster traces --ranks 2 --global-batch 4 --seq-len 128 -o tuned.json'
begin 'mist-exec trains'
inside 'mpirun --oversubscribe -n 2 mist-exec tuned.json --iterations 2 --timeline measured.csv'
begin 'mist-plot draws'
inside 'mist-plot timeline measured.csv -o run.png'
expect_file "$bare/root/here/run.png"
begin 'the manual is there'
inside 'gzip -dc /usr/share/man/man7/mist.7.gz | grep -q arena'
finish

#!/bin/sh
# Runs one test program for prove. cmocka 1.1 reports a skipped test as "not ok N # SKIP", which TAP
# counts as failed; a skipped test is "ok". Threads that wait do not spin: the processors may be shared.
# Each program has a place of its own for temporary files: two launchers of Open MPI 4 that begin or end at
# the same moment race for a folder there, and one gives up.
place=$(mktemp -d) || exit 1
mkdir "$place/tmp"
TMPDIR=$place/tmp OMP_WAIT_POLICY=passive CMOCKA_MESSAGE_OUTPUT=TAP "$@" > "$place/output"
code=$?
sed 's/^not ok \([0-9]*\) # SKIP/ok \1 # SKIP/' "$place/output" > "$place/tap"
# prove keeps to itself what a failed test says of its failure.
if [ "$code" -ne 0 ] || grep -q '^not ok' "$place/tap"; then
    grep -v '^ok ' "$place/tap" | sed "s|^#* *|# $(basename "$1"): |" >&2
fi
cat "$place/tap"
rm -rf "$place"
exit $code

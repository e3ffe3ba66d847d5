#!/bin/sh
# stage.sh NAME COMMAND...: runs a part of `make test`, then says what it took.
name=$1
shift
begin=$(date +%s)
"$@"
code=$?
took=$(mktemp) || exit 1
times > "$took" # not into a pipe, whose shell has no children
processors=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] } }
    END { printf "%.0f", s }' "$took")
rm -f "$took"
echo "== $name: $(($(date +%s) - begin)) s, processors $processors s"
exit $code

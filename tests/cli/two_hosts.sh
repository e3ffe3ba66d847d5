# Two hosts on one machine, for tests and by hand: network namespaces with host names of their own, joined
# by a link of a chosen rate. Sourced; needs root, ip, tc, unshare and Open MPI.
#
#     two_hosts_missing           prints what is missing, nothing when all is there
#     two_hosts_start 200mbit DIR makes them; DIR (existing) gets the script that stands in for ssh
#     two_hosts_mpirun N ARG...   mpirun of 2 N ranks, N on each host
#     two_hosts_stop              removes them; safe to call at any time, also twice
#
# A namespace has the machine's files, processors and clock; what differs is the host name, by which Open
# MPI tells nodes apart (and keeps shared memory to one of them), and the way to the other host.
two_hosts_id=$$
two_hosts_a=mist-a-$two_hosts_id two_hosts_b=mist-b-$two_hosts_id
two_hosts_subnet=10.213.$((two_hosts_id / 250 % 250)).0/24
two_hosts_net=${two_hosts_subnet%.0/24}

two_hosts_missing() {
    [ "$(id -u)" = 0 ] || { echo 'needs root'; return; }
    for two_hosts_tool in ip tc unshare mpirun; do
        command -v $two_hosts_tool > /dev/null || { echo "needs $two_hosts_tool"; return; }
    done
    two_hosts_error=$(two_hosts_start 1gbit "${TMPDIR:-/tmp}" 2>&1) || {
        echo "can't make two hosts: $(echo "$two_hosts_error" | head -n 1)"
    }
    two_hosts_stop
    rm -f "${TMPDIR:-/tmp}/two_hosts_rsh"
}

# One host: its end of the link, with a rate for what it sends.
two_hosts_join() {
    ip link set "$2" netns "$1" && ip -n "$1" addr add "$3" dev "$2" && ip -n "$1" link set lo up &&
        ip -n "$1" link set "$2" up &&
        ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$4" burst 64kb latency 200ms
}

# A namespace's host name belongs to processes, so every command gets it anew.
two_hosts_start() {
    ip netns add "$two_hosts_a" && ip netns add "$two_hosts_b" || return 1
    ip link add "mist0-$two_hosts_id" type veth peer name "mist1-$two_hosts_id" || return 1
    two_hosts_join "$two_hosts_a" "mist0-$two_hosts_id" "$two_hosts_net.1/24" "$1" || return 1
    two_hosts_join "$two_hosts_b" "mist1-$two_hosts_id" "$two_hosts_net.2/24" "$1" || return 1
    cat > "$2/two_hosts_rsh" << 'SCRIPT' || return 1
#!/bin/sh
# Stands in for ssh: HOST COMMAND... runs in the namespace of that name. Options come first.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host && exec $*"
SCRIPT
    chmod +x "$2/two_hosts_rsh"
    two_hosts_rsh=$2/two_hosts_rsh
}

two_hosts_mpirun() {
    two_hosts_n=$1
    shift
    "$two_hosts_rsh" "$two_hosts_a" mpirun --quiet --allow-run-as-root --oversubscribe --bind-to none \
        -host "$two_hosts_a:$two_hosts_n,$two_hosts_b:$two_hosts_n" -n $((2 * two_hosts_n)) \
        --mca plm_rsh_agent "$two_hosts_rsh" --mca plm_rsh_no_tree_spawn 1 --mca btl tcp,vader,self \
        --mca btl_tcp_if_include "$two_hosts_subnet" --mca oob_tcp_if_include "$two_hosts_subnet" "$@"
}

two_hosts_stop() {
    for two_hosts_ns in "$two_hosts_a" "$two_hosts_b"; do
        [ -e "/run/netns/$two_hosts_ns" ] || [ -e "/var/run/netns/$two_hosts_ns" ] || continue
        # what is left of a run that was stopped
        for two_hosts_pid in $(ip netns pids "$two_hosts_ns"); do kill -KILL "$two_hosts_pid"; done
        ip netns del "$two_hosts_ns" # and its end of the link with it
    done 2> /dev/null
    ip link del "mist0-$two_hosts_id" 2> /dev/null
    return 0
}

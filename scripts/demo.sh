#!/usr/bin/env bash
# The demo: two of our example programs over a capture of an edge port, no root, no kernel, no NIC.
#
# usage: demo.sh TOWPATH
set -euo pipefail
towpath=$(realpath "${1:?usage: demo.sh TOWPATH}")
cd "$(dirname "$0")/.."
out=build/demo
mkdir -p "$out"

bold= dim= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

# run NAME MAPS [OPTION...]: shows the command, then runs it.
run() {
    local name=$1 maps=$2
    shift 2
    local command=(run "build/programs/$name.o" --in tests/data/edge.pcap
        --map-init "tests/data/$name.json" --dump-maps="$maps" --out "$out/$name.pcapng" "$@")
    printf '%s$ towpath' "$dim"
    printf ' %s' "${command[@]}"
    printf '%s\n' "$plain"
    "$towpath" "${command[@]}"
    echo
}

echo "${bold}A stateless firewall${plain}: prefix lists, ports, counters by rule (programs/firewall.c)"
run firewall rule_stats,protocols
echo "${dim}rules: 1-6 blocked sources, 10-15 services, 20 closed ports, 56 malformed, 57 fragments," \
    "58 not IP,"
echo "59 ICMP, 60 everything else; protocols: 1 ICMP, 6 TCP, 17 UDP, 47 GRE, 58 ICMPv6$plain"
echo
echo "${bold}A layer-4 load balancer${plain}: Maglev hashing, IPIP towards the backends" \
    "(programs/load_balancer.c)"
run load_balancer service_stats,events,connections
echo "What survived, with verdicts: $out/firewall.pcapng, $out/load_balancer.pcapng (Wireshark" \
    "reads them)."

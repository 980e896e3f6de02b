#!/usr/bin/env bash
# The demo: two of our example programs over a capture of an edge port, no root, no kernel, no NIC.
#
# usage: demo.sh TOWPATH
set -euo pipefail
towpath=$(realpath "${1:?usage: demo.sh TOWPATH}")
cd "$(dirname "$0")/.."
out=build/demo

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

# run NAME MAPS: shows the command, then runs it.
run() {
    local input=("build/programs/$1.o" --in "$out/edge.pcap")
    local maps=(--map-init "tests/data/$1.json" "--dump-maps=$2")
    local output=(--out "$out/$1.pcapng")
    echo "$dim\$ towpath run ${input[*]} \\"
    echo "      ${maps[*]} \\"
    echo "      ${output[*]}$plain"
    "$towpath" run "${input[@]}" "${maps[@]}" "${output[@]}"
    echo
}

if [ ! -e "$out/edge.pcap" ]; then
    echo "${dim}making a capture: half a minute of an edge port (tests/data/make_capture.py)$plain"
    mkdir -p "$out"
    python3 tests/data/make_capture.py --out "$out" --packets 100000
fi

echo "${bold}A stateless firewall${plain}: prefix lists, ports, counters by rule" \
    "(programs/firewall.c)"
run firewall rule_stats,protocols
echo "${dim}rules: 1-6 blocked sources, 10-15 services, 20 closed ports, 56 malformed," \
    "57 fragments,"
echo "58 not IP, 59 ICMP, 60 no rule; protocols: 1 ICMP, 6 TCP, 17 UDP, 47 GRE, 58 ICMPv6$plain"
echo
echo "${bold}A layer-4 load balancer${plain}: Maglev hashing, IPIP to the backends" \
    "(programs/load_balancer.c)"
run load_balancer events,connections
echo "Wireshark reads what survived, verdicts included: $out/*.pcapng"
echo
echo "${bold}Next${plain}, with PATH=${towpath%/*}:\$PATH"
echo "  towpath new edge && cd edge && towpath test    a program of your own, and its tests"
echo "  towpath demo ipsec                             an IPsec tunnel between two gateways"
echo "  sudo towpath demo live                         two hosts, joined through the firewall"
echo "  sudo towpath bench --against kernel            all programs beside the running kernel"

#!/usr/bin/env python3
"""Writes the maps that programs start with over edge.pcap: NAME.json for programs/NAME.c.

usage: make_config.py [--out DIR]

It is also the control plane of programs/load_balancer.c in small: it fills the Maglev rings as the
paper does (Eisenbud et al., NSDI 2016, 3.4). Python's standard library only.
"""

import argparse
import hashlib
import ipaddress
import json
import socket
from pathlib import Path

RING_SLOTS = 1021
TCP, UDP = 6, 17

# Virtual service: address, port, protocol, flags, backend numbers. Flags are load_balancer.c's.
SERVICES = [
    ("203.0.113.10", 80, TCP, 0, [1, 2, 3]),
    ("203.0.113.20", 443, UDP, 0, [2, 3]),
    ("203.0.113.53", 53, UDP, 2, [4]),
    ("2001:db8:10::10", 80, TCP, 0, [1, 3, 5]),
    ("2001:db8:10::53", 53, UDP, 2, [5]),
]
BACKENDS = {1: "10.0.0.1", 2: "10.0.0.2", 3: "10.0.0.3", 4: "10.0.0.4", 5: "2001:db8:ff::5"}

DROP, PASS = "ACTION_DROP", "ACTION_PASS"
# Prefix, rule number, action. The longest match wins: one host of a blocked network is let in.
SOURCES = [
    ("192.0.2.0/24", 1, DROP),
    ("198.51.100.0/24", 2, DROP),
    ("100.64.0.0/10", 3, DROP),
    ("198.51.100.7/32", 4, PASS),
    ("10.0.0.0/8", 5, DROP),
    ("127.0.0.0/8", 5, DROP),
    ("224.0.0.0/3", 5, DROP),
    ("2001:db8:bad::/48", 6, DROP),
]
# Port, protocol, rule number, action.
PORTS = [
    (80, TCP, 10, PASS), (443, TCP, 11, PASS), (443, UDP, 12, PASS), (53, UDP, 13, PASS),
    (4789, UDP, 14, PASS), (6081, UDP, 15, PASS), (22, TCP, 20, DROP), (23, TCP, 20, DROP),
    (445, TCP, 20, DROP), (3389, TCP, 20, DROP),
]


def family(text: str) -> int:
    return socket.AF_INET6 if ":" in text else socket.AF_INET


def maglev_ring(backends: list[int]) -> list[int]:
    """A backend for each slot. Every backend walks all slots in an order of its own, in turns."""
    walks = []
    for backend in backends:
        digest = hashlib.sha256(f"backend-{backend}".encode()).digest()
        offset = int.from_bytes(digest[:8], "big") % RING_SLOTS
        skip = int.from_bytes(digest[8:16], "big") % (RING_SLOTS - 1) + 1
        walks.append(((offset + step * skip) % RING_SLOTS for step in range(RING_SLOTS)))
    ring: list[int | None] = [None] * RING_SLOTS
    filled = 0
    while filled < RING_SLOTS:
        for backend, walk in zip(backends, walks):
            slot = next((slot for slot in walk if ring[slot] is None), None)
            if slot is not None:
                ring[slot] = backend
                filled += 1
    return [backend for backend in ring if backend is not None]


def load_balancer() -> dict:
    services, rings, backends = [], [], []
    for number, (vip, port, protocol, flags, members) in enumerate(SERVICES):
        services.append({
            "key": {"address": vip, "port": port, "protocol": protocol, "family": family(vip)},
            "value": {"number": number, "flags": flags},
        })
        rings.append({"key": number, "value": {"backend": maglev_ring(members)}})
    for number, host in BACKENDS.items():
        mac = f"02:00:00:00:01:{number:02x}"
        value = {"address": host, "mac": mac, "family": family(host)}
        backends.append({"key": number, "value": value})
    return {"services": services, "backends": backends, "rings": rings}


def firewall() -> dict:
    maps = {"sources_v4": [], "sources_v6": [], "services": []}
    for prefix, rule, action in SOURCES:
        network = ipaddress.ip_network(prefix)
        maps[f"sources_v{network.version}"].append({
            "key": {"prefixlen": network.prefixlen, "address": str(network.network_address)},
            "value": {"number": rule, "action": action},
        })
    for port, protocol, rule, action in PORTS:
        maps["services"].append({
            "key": {"port": port, "protocol": protocol},
            "value": {"number": rule, "action": action},
        })
    return maps


def dns_filter() -> dict:
    """A domain is listed in wire form, zero-filled; 0 drops, 1 answers "no such name"."""
    def wire(name: str) -> str:
        labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        return "hex:" + labels.ljust(64, b"\0").hex()

    listed = {wire("malware.example"): 1, wire("tracker.example"): 0}
    return {
        "domain_filter": list(listed),
        "domains": [{"key": name, "value": {"action": action}} for name, action in listed.items()],
    }


def vlan() -> dict:
    members = [{"key": {"ifindex": 1, "id": vlan_id}, "value": 1} for vlan_id in (100, 200)]
    return {
        "ports": [{"key": 1, "value": {"id": 100, "priority": 3}}],
        "members": members,
        "translation": [{"key": 100, "value": 300}],
    }


def tenants() -> dict:
    web = {"address": "203.0.113.10", "port": 80, "protocol": TCP}
    totals = [{"key": 0, "value": {"packets": 0, "bytes": 0}}]
    return {
        "tenant_lists": [{"key": 100, "value": [{"key": web, "value": 1}]}],
        "tenant_totals": [{"key": 50, "value": totals}],
    }


def mark_meta() -> dict:
    rules = [(80, 80, TCP, 1), (443, 443, UDP, 2), (53, 53, UDP, 3), (1, 1023, 0, 4)]
    return {
        "rules": [{"key": number, "value": {"port_low": low, "port_high": high,
                                            "protocol": protocol, "class": kind}}
                  for number, (low, high, protocol, kind) in enumerate(rules)],
        "enabled": [{"key": 0, "value": (1 << len(rules)) - 1}],
    }


def cpu_spread() -> dict:
    return {
        "cpus": [{"key": cpu, "value": {"qsize": 192}} for cpu in (0, 1)],
        "cpu_list": [{"key": slot, "value": cpu} for slot, cpu in enumerate((0, 1))],
        "cpu_count": [{"key": 0, "value": 2}],
    }


CONFIGS = {
    "cpu_spread": cpu_spread(),
    "dns_filter": dns_filter(),
    "firewall": firewall(),
    "http_filter": {"hosts": [{"key": {"name": "tracker.example"}, "value": 1}]},
    "l2_switch": {"slots": [{"key": 1, "value": 0}]},
    "load_balancer": load_balancer(),
    "mark_meta": mark_meta(),
    "syn_cookie": {"protected": [{"key": 80, "value": 1}]},
    "tenants": tenants(),
    "tunnel_terminator": {"endpoints": [{"key": "203.0.113.254", "value": 1}]},
    "vlan": vlan(),
    "xsk_steer": {"udp_ports": [{"key": 443, "value": 2}]},
}


def as_text(maps: dict) -> str:
    """JSON with one entry a line."""
    lines = []
    for name, entries in maps.items():
        rows = ",\n".join("    " + json.dumps(entry) for entry in entries)
        lines.append(f"  {json.dumps(name)}: [\n{rows}\n  ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out
    for name, maps in CONFIGS.items():
        (out / f"{name}.json").write_text(as_text(maps))


if __name__ == "__main__":
    main()

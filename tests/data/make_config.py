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
FAR_NS = 1 << 62  # a time that no clock has reached

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


def maglev_ring(backends: list[int], slots: int = RING_SLOTS) -> list[int]:
    """A backend for each slot. Every backend walks all slots in an order of its own, in turns."""
    walks = []
    for backend in backends:
        digest = hashlib.sha256(f"backend-{backend}".encode()).digest()
        offset = int.from_bytes(digest[:8], "big") % slots
        skip = int.from_bytes(digest[8:16], "big") % (slots - 1) + 1
        walks.append(((offset + step * skip) % slots for step in range(slots)))
    ring: list[int | None] = [None] * slots
    filled = 0
    while filled < slots:
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


def mapped(prefix: str) -> tuple[int, str]:
    """An IPv4 prefix as one of IPv4-mapped addresses: length and address."""
    network = ipaddress.ip_network(prefix)
    if network.version == 6:
        return network.prefixlen, str(network.network_address)
    return 96 + network.prefixlen, f"::ffff:{network.network_address}"


def address(text: str) -> str:
    """As struct in6_addr."""
    return text if ":" in text else f"::ffff:{text}"


def flow(source: str, source_port: int, dest: str, dest_port: int, protocol: int) -> dict:
    return {"source": address(source), "dest": address(dest), "source_port": source_port,
            "dest_port": dest_port, "protocol": protocol, "family": family(source)}


def vip_balancer() -> dict:
    """Flags: 2 is "no connections", 4 "packets name servers", 16 GUE."""
    flags = [4, 4, 2, 16, 2]
    keys = [{"address": address(vip), "port": port, "protocol": protocol, "family": family(vip)}
            for vip, port, protocol, _, _ in SERVICES]
    reals = [{"key": number, "value": {"address": address(host), "family": family(host)}}
             for number, host in BACKENDS.items()]
    # Only IPv6 carries both families.
    members = [[5] if ":" in vip else backends for vip, _, _, _, backends in SERVICES]
    return {
        "vips": [{"key": key, "value": {"flags": flags[number], "number": number}}
                 for number, key in enumerate(keys)],
        "connections": [{"key": cpu, "value": []} for cpu in range(16)],
        "reals": reals,
        "server_ids": [{"key": 1000 + number, "value": number} for number in BACKENDS],
        "gateway": [{"mac": "02:00:00:00:00:01"}],
        "rings": [slot for backends in members for slot in maglev_ring(backends)],
    }


def service_pipeline() -> dict:
    """Flags: 1 is "for some sources only", 2 "clients stay with their backend"."""
    flags = [1, 2, 0, 1, 0]
    services, rings, addresses = [], [], []
    for number, (vip, port, protocol, _, backends) in enumerate(SERVICES):
        of_family = [b for b in backends if family(BACKENDS[b]) == family(vip)]
        where = {"address": address(vip), "port": port}
        services.append({"key": where | {"protocol": protocol},
                         "value": {"number": number, "flags": flags[number]}})
        ring = [{"key": 0, "value": maglev_ring(of_family, 251)}]
        rings.append({"key": number, "value": ring})
        addresses.append({"key": number, "value": where})
    ranges = [(0, "198.16.0.0/12"), (3, "2001:db8::/32"), (0, "10.0.0.0/8")]
    back = [("10.0.0.1", "203.0.113.1", "198.18.1.1", 0),
            ("2001:db8:ff::5", "2001:db8:10::1", "2001:db8:c::1", 3)]
    return {
        "denied": [{"key": dict(zip(("prefixlen", "address"), mapped(prefix))), "value": 1}
                   for prefix, _, action in SOURCES if action == DROP],
        "ranges": [{"key": {"prefixlen": 32 + mapped(prefix)[0], "service": number,
                            "address": mapped(prefix)[1]}, "value": 1}
                   for number, prefix in ranges],
        "services": services,
        "backends": [{"key": number, "value": {"address": address(host), "port": 8080}}
                     for number, host in BACKENDS.items()],
        "addresses": addresses,
        "rings": rings,
        "translations": [
            {"key": {"flow": flow(backend, 8080, node, 40001, TCP), "direction": 1},
             "value": {"endpoint": {"address": address(client), "port": 50000}, "service": number}}
            for backend, node, client, number in back],
        "connections": [
            {"key": {"flow": flow(client, 50000, SERVICES[number][0], 80, TCP), "direction": 0},
             "value": {"backend": 1, "seen": 1, "packets": 1}}
            for _, _, client, number in back],
    }


def nat_gateway() -> dict:
    """One session, and the ports that services.pcap's answers come to."""
    def pair(source: str, source_port: int, dest: str, dest_port: int, protocol: int) -> dict:
        return {"source": source, "dest": dest, "source_port": source_port,
                "dest_port": dest_port, "protocol": protocol}

    inside, outside, nat = "10.1.0.7", "198.18.3.3", "203.0.113.2"
    web = pair(inside, 50000, outside, 443, TCP)
    dns = pair(inside, 50001, outside, 53, UDP)
    hop = {"dest": "02:00:00:00:00:01", "source": "02:00:00:00:00:02"}
    return {
        "outward": [{"key": key, "value": {"address": nat, "port": port, "state": state,
                                           "last_ns": FAR_NS}}
                    for key, port, state in ((web, 40001, 2), (dns, 40002, 0))],
        "inward": [{"key": pair(outside, key["dest_port"], nat, port, key["protocol"]),
                    "value": {"address": inside, "port": key["source_port"]}}
                   for key, port in ((web, 40001), (dns, 40002))],
        "direct": [{"key": {"prefixlen": 12, "address": "172.16.0.0"}, "value": 1}],
        "hops": [hop, hop],
    }


def policy() -> dict:
    """Identities of clients, workloads behind the virtual addresses, and a policy for each."""
    def prefix(text: str) -> dict:
        length, at = mapped(text)
        return {"prefixlen": 32 + length, "family": family(text), "address": at}

    def rule(bits: int, identity: int, flags: int = 0, protocol: int = 0, port: int = 0) -> dict:
        key = {"prefixlen": bits, "identity": identity, "protocol": protocol, "port": port}
        return {"key": key, "value": {"flags": flags, "bits": bits}}

    networks = [("198.18.0.0/15", 100), ("198.18.64.0/18", 101), ("2001:db8:c::/48", 102),
                ("203.0.113.0/24", 200), ("2001:db8:10::/48", 201), ("10.1.0.0/16", 300)]
    blocked = [(text, 400 + rule_number) for text, rule_number, action in SOURCES if action == DROP]
    # 1 refuses, 2 is written to the log.
    rules = [rule(64, 100, 0, TCP, 80), rule(64, 101, 0, TCP, 80), rule(64, 102, 0, TCP, 80),
             rule(48, 102, 0, UDP), rule(64, 0, 0, UDP, 53), rule(56, 0, 0, UDP, 443),
             rule(32, 401, 1), rule(32, 402, 1), rule(48, 2, 1, TCP), rule(48, 0, 0, 1),
             rule(48, 0, 0, 58)]
    hosts = sorted({vip for vip, *_ in SERVICES})
    return {
        "identities": [{"key": prefix(text), "value": {"number": number}}
                       for text, number in networks + blocked],
        "workloads": [{"key": {"address": address(host), "family": family(host)},
                       "value": {"number": number + 1}} for number, host in enumerate(hosts)],
        "policies": [{"key": number + 1, "value": rules} for number in range(len(hosts))],
    }


def ipv6_gateway() -> dict:
    """Rules: 1 allow, 2 drop, 3 allow in front only, 4 allow if its options are."""
    pairs = [("2001:db8:10::10", "203.0.113.10"), ("2001:db8:10::53", "203.0.113.53")]
    clients = [("2001:db8:c::64", "192.0.2.64")]
    rules = {0: 3, 43: 1, 44: 1, 51: 1, 60: 4, 135: 2, 139: 2}
    return {
        "headers": [{"key": number, "value": rule} for number, rule in rules.items()],
        "hosts_v6": [{"key": v6, "value": v4} for v6, v4 in pairs + clients],
        "hosts_v4": [{"key": v4, "value": v6} for v6, v4 in pairs],
    }


CONFIGS = {
    "cpu_spread": cpu_spread(),
    "dns_filter": dns_filter(),
    "firewall": firewall(),
    "http_filter": {"hosts": [{"key": {"name": "tracker.example"}, "value": 1}]},
    "ipv6_gateway": ipv6_gateway(),
    "l2_switch": {"slots": [{"key": 1, "value": 0}]},
    "load_balancer": load_balancer(),
    "mark_meta": mark_meta(),
    "nat_gateway": nat_gateway(),
    "policy": policy(),
    "service_pipeline": service_pipeline(),
    "syn_cookie": {"protected": [{"key": 80, "value": 1}]},
    "tenants": tenants(),
    "tunnel_terminator": {"endpoints": [{"key": "203.0.113.254", "value": 1}]},
    "vip_balancer": vip_balancer(),
    "vlan": vlan(),
    "xsk_steer": {"udp_ports": [{"key": 443, "value": 2}]},
}


def as_text(maps: dict) -> str:
    """JSON with one entry a line; numbers without keys share one."""
    lines = []
    for name, entries in maps.items():
        if isinstance(entries[0], int):
            rows = "    " + json.dumps(entries)[1:-1]
        else:
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

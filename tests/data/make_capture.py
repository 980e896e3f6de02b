#!/usr/bin/env python3
"""Writes the captures of the demo and the tests: what an edge port sees in a bad minute.

usage: make_capture.py [--out DIR] [--packets N]

edge.pcap    flows to virtual services, scans and floods from blocked networks, DNS, pings, VLANs,
             IPv6 with extension headers, fragments, tunnels, and frames that are cut short
jumbo.pcap   frames of up to 9,000 bytes, some with a wrong checksum
services.pcap  what the larger programs do most work on: packets that name their server, errors that
             quote others, answers from backends, flows through a NAT, long IPv6 header chains

Python's standard library only. The same seed gives the same bytes: tests rely on it.
"""

import argparse
import ipaddress
import random
import struct
from pathlib import Path

SEED = 0x746F7770
START_SECONDS = 1_750_000_000

ROUTER_MAC = bytes.fromhex("020000000001")
EDGE_MAC = bytes.fromhex("020000000002")

ICMP, TCP, UDP, IPIP, IPV6_IN_IP, GRE, FRAGMENT, ICMPV6 = 1, 6, 17, 4, 41, 47, 44, 58
HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS = 0, 43, 51, 60
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

WEB_V4, WEB_V6 = "203.0.113.10", "2001:db8:10::10"
QUIC_V4, DNS_V4, DNS_V6 = "203.0.113.20", "203.0.113.53", "2001:db8:10::53"
TUNNEL_END = "203.0.113.254"
NODE_V4, NODE_V6, NAT_V4 = "203.0.113.1", "2001:db8:10::1", "203.0.113.2"
TRANSLATED_V6 = "2001:db8:c::64"


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def ethernet(payload: bytes, ethertype: int, tags: tuple[int, ...] = ()) -> bytes:
    """A frame; `tags` are VLAN ids, outermost first."""
    frame = EDGE_MAC + ROUTER_MAC
    for depth, tag in enumerate(tags):
        is_outer = depth == 0 and len(tags) > 1
        frame += struct.pack("!HH", 0x88A8 if is_outer else 0x8100, tag)
    return frame + struct.pack("!H", ethertype) + payload


def ipv4(source: str, dest: str, protocol: int, payload: bytes, *, ttl: int = 57,
         fragment: int = 0, ident: int = 0, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | words, 0, words * 4 + len(payload), ident, fragment,
                       ttl, protocol, 0, packed(source), packed(dest)) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def ipv6(source: str, dest: str, protocol: int, payload: bytes, *, hops: int = 57) -> bytes:
    return struct.pack("!IHBB16s16s", 0x6 << 28, len(payload), protocol, hops, packed(source),
                       packed(dest)) + payload


def pseudo(source: str, dest: str, protocol: int, length: int) -> bytes:
    addresses = packed(source) + packed(dest)
    if len(addresses) == 8:
        return addresses + struct.pack("!BBH", 0, protocol, length)
    return addresses + struct.pack("!IHBB", length, 0, 0, protocol)


def tcp(source: str, dest: str, source_port: int, dest_port: int, flags: int, *, sequence: int = 0,
        ack: int = 0, options: bytes = b"", payload: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack("!HHIIBBHHH", source_port, dest_port, sequence, ack, words << 4, flags,
                       64240, 0, 0) + options + payload
    total = checksum(pseudo(source, dest, TCP, len(head)) + head)
    return head[:16] + struct.pack("!H", total) + head[18:]


def udp(source: str, dest: str, source_port: int, dest_port: int, payload: bytes) -> bytes:
    head = struct.pack("!HHHH", source_port, dest_port, 8 + len(payload), 0) + payload
    total = checksum(pseudo(source, dest, UDP, len(head)) + head) or 0xFFFF
    return head[:6] + struct.pack("!H", total) + head[8:]


def packet(source: str, dest: str, protocol: int, payload: bytes, *, tags: tuple[int, ...] = (),
           **options: int) -> bytes:
    """An IP packet of the family of its addresses, in a frame; `options` go to ipv4() or ipv6()."""
    if ":" in source:
        return ethernet(ipv6(source, dest, protocol, payload, **options), 0x86DD, tags)
    return ethernet(ipv4(source, dest, protocol, payload, **options), 0x0800, tags)


def dns_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def dns_query(ident: int, name: str, kind: int = 1) -> bytes:
    return struct.pack("!HHHHHH", ident, 0x0100, 1, 0, 0, 0) + dns_name(name) + struct.pack(
        "!HH", kind, 1)


class Edge:
    """Generates frames kind by kind. One random source: the order of calls is part of the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.frames: list[bytes] = []

    def client(self, family: int = 4) -> str:
        if family == 6:
            return str(ipaddress.IPv6Address((0x20010DB8000C << 80) | self.random.getrandbits(32)))
        return f"198.18.{self.random.randrange(256)}.{self.random.randrange(1, 255)}"

    def blocked(self) -> str:
        """A source in one of the networks that firewall.json blocks."""
        network = self.random.choice(["192.0.2.", "198.51.100.", "100.64.7."])
        return network + str(self.random.randrange(1, 255))

    def port(self) -> int:
        return self.random.randrange(32768, 61000)

    def bytes(self, length: int) -> bytes:
        return self.random.randbytes(length)

    def web_flow(self, family: int, tags: tuple[int, ...] = ()) -> None:
        """A short HTTP conversation, the client's side of it."""
        source, dest = self.client(family), WEB_V4 if family == 4 else WEB_V6
        port, sequence, ack = self.port(), self.random.getrandbits(32), self.random.getrandbits(32)
        mss = (bytes.fromhex("020405b40402080a") + self.bytes(4) + bytes(4) +
               bytes.fromhex("01030307"))
        timestamps = bytes.fromhex("0101080a") + self.bytes(8)
        path = f"/page/{self.random.randrange(1000)}"
        host = self.random.choice(["shop.example", "www.example", "tracker.example"])
        request = (f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: demo/1\r\n"
                   f"Accept: */*\r\n\r\n").encode()

        def send(flags: int, offset: int, options: bytes, payload: bytes = b"") -> None:
            segment = tcp(source, dest, port, 80, flags, sequence=(sequence + offset) & 0xFFFFFFFF,
                          ack=ack if flags & ACK else 0, options=options, payload=payload)
            self.frames.append(packet(source, dest, TCP, segment, tags=tags))

        send(SYN, 0, mss)
        send(ACK, 1, timestamps)
        send(PSH | ACK, 1, timestamps, request)
        for _ in range(self.random.randrange(1, 6)):
            send(ACK, 1 + len(request), timestamps)
        send(FIN | ACK, 1 + len(request), timestamps)

    def quic_flow(self) -> None:
        source, port = self.client(), self.port()
        for size in [1200] + [self.random.randrange(60, 1200) for _ in range(3)]:
            first = 0xC3 if size == 1200 else 0x47
            payload = bytes([first]) + self.bytes(size - 1)
            datagram = udp(source, QUIC_V4, port, 443, payload)
            self.frames.append(packet(source, QUIC_V4, UDP, datagram))

    def dns(self, family: int) -> None:
        source, dest = self.client(family), DNS_V4 if family == 4 else DNS_V6
        name = self.random.choice([
            "www.example.com", "mail.example.org", "cdn.assets.example.net", "Malware.Example",
            "c2.botnet.malware.example", "ads.tracker.example", "a.b.c.d.e.example.com",
            "localhost",
        ])
        query = dns_query(self.random.getrandbits(16), name, self.random.choice([1, 28]))
        self.frames.append(packet(source, dest, UDP, udp(source, dest, self.port(), 53, query)))

    def syn_flood(self) -> None:
        """One SYN of many, from an address that may not exist."""
        source = str(ipaddress.IPv4Address(self.random.randrange(0x0B000000, 0xDF000000)))
        segment = tcp(source, WEB_V4, self.port(), 80, SYN, sequence=self.random.getrandbits(32),
                      options=bytes.fromhex("020405b4"))
        self.frames.append(packet(source, WEB_V4, TCP, segment, ttl=self.random.randrange(30, 255)))

    def scan(self) -> None:
        source, dest = self.blocked(), f"203.0.113.{self.random.randrange(1, 255)}"
        port = self.random.choice([21, 22, 23, 25, 445, 1433, 3306, 3389, 5900, 8080])
        segment = tcp(source, dest, self.port(), port, SYN, sequence=self.random.getrandbits(32))
        self.frames.append(packet(source, dest, TCP, segment, ident=self.random.getrandbits(16)))

    def ping(self, family: int) -> None:
        source, dest = self.client(family), WEB_V4 if family == 4 else WEB_V6
        body = struct.pack("!HH", self.random.getrandbits(16), 1) + self.bytes(56)
        if family == 4:
            total = checksum(b"\x08\0\0\0" + body)
            message = b"\x08\0" + struct.pack("!H", total) + body
            self.frames.append(packet(source, dest, ICMP, message))
            return
        total = checksum(pseudo(source, dest, ICMPV6, 4 + len(body)) + b"\x80\0\0\0" + body)
        message = b"\x80\0" + struct.pack("!H", total) + body
        self.frames.append(packet(source, dest, ICMPV6, message))

    def fragments(self) -> None:
        """A UDP datagram in three pieces."""
        source, ident = self.client(), self.random.getrandbits(16)
        datagram = udp(source, QUIC_V4, self.port(), 443, self.bytes(3200))
        for offset in range(0, len(datagram), 1480):
            piece = datagram[offset:offset + 1480]
            more = 0x2000 if offset + 1480 < len(datagram) else 0
            self.frames.append(packet(source, QUIC_V4, UDP, piece, ident=ident,
                                      fragment=more | offset // 8))

    def extension_headers(self) -> None:
        """UDP behind hop-by-hop and destination options, sometimes a fragment header."""
        source, dest = self.client(6), DNS_V6
        query = udp(source, dest, self.port(), 53, dns_query(7, "www.example.com"))
        options = bytes([UDP, 0]) + bytes.fromhex("010400000000")
        if self.random.random() < 0.3:
            options = bytes([FRAGMENT, 0]) + bytes.fromhex("010400000000") + bytes(
                [UDP, 0, 0, 1]) + self.bytes(4)
        chain = bytes([DESTINATION_OPTIONS, 0]) + bytes.fromhex("010400000000") + options
        self.frames.append(packet(source, dest, HOP_BY_HOP, chain + query))

    def tunnel(self) -> None:
        """An inner ping in IPIP, GRE, VXLAN or Geneve."""
        outer, inner_source = self.client(), f"10.1.0.{self.random.randrange(1, 255)}"
        body = struct.pack("!HH", 1, 1) + self.bytes(32)
        echo = b"\x08\0" + struct.pack("!H", checksum(b"\x08\0\0\0" + body)) + body
        inner = ipv4(inner_source, "10.2.0.1", ICMP, echo)
        network = self.random.randrange(1, 5)
        kind = self.random.choice(["ipip", "gre", "vxlan", "geneve"])
        if kind == "ipip":
            frame = packet(outer, TUNNEL_END, IPIP, inner)
        elif kind == "gre":
            head = struct.pack("!HHI", 0x2000, 0x0800, network)
            frame = packet(outer, TUNNEL_END, GRE, head + inner)
        elif kind == "vxlan":
            head = struct.pack("!II", 0x08000000, network << 8)
            payload = udp(outer, TUNNEL_END, self.port(), 4789, head + ethernet(inner, 0x0800))
            frame = packet(outer, TUNNEL_END, UDP, payload)
        else:
            head = struct.pack("!BBHI", 1, 0, 0x6558, network << 8) + self.bytes(4)
            payload = udp(outer, TUNNEL_END, self.port(), 6081, head + ethernet(inner, 0x0800))
            frame = packet(outer, TUNNEL_END, UDP, payload)
        self.frames.append(frame)

    def arp(self) -> None:
        body = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, ROUTER_MAC, packed("203.0.113.1"),
                           bytes(6), packed(WEB_V4))
        self.frames.append(ethernet(body, 0x0806) + bytes(18))

    def damaged(self) -> None:
        """A frame cut short, or whose IP header lies about its length."""
        source = self.client()
        frame = packet(source, WEB_V4, TCP, tcp(source, WEB_V4, self.port(), 80, ACK))
        if self.random.random() < 0.5:
            self.frames.append(frame[:self.random.randrange(14, len(frame))])
            return
        self.frames.append(frame[:16] + struct.pack("!H", 1500) + frame[18:])

    def anything(self) -> None:
        """One event of the minute, by how often such things happen."""
        kinds = [
            (18, lambda: self.web_flow(4)), (7, lambda: self.web_flow(6)),
            (2, lambda: self.web_flow(4, tags=(100,))),
            (1, lambda: self.web_flow(6, tags=(200, 100))),
            (6, self.quic_flow), (14, lambda: self.dns(4)), (5, lambda: self.dns(6)),
            (90, self.syn_flood), (45, self.scan), (4, lambda: self.ping(4)),
            (3, lambda: self.ping(6)), (2, self.fragments), (3, self.extension_headers),
            (6, self.tunnel), (2, self.arp), (2, self.damaged),
        ]
        weights = [weight for weight, _ in kinds]
        self.random.choices([make for _, make in kinds], weights)[0]()


def jumbo_frames(seed: int) -> list[bytes]:
    """UDP of growing size; every fifth frame has one payload bit wrong."""
    edge = Edge(seed)
    frames = []
    for index, size in enumerate([100, 1400, 3400, 3500, 3600, 4000, 7000, 8000, 8972, 8971] * 2):
        source = edge.client(4 if index % 2 else 6)
        dest = QUIC_V4 if index % 2 else WEB_V6
        size -= 20 if index % 2 == 0 and size > 8950 else 0
        frame = packet(source, dest, UDP, udp(source, dest, edge.port(), 443, edge.bytes(size)))
        if index % 5 == 4:
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        frames.append(frame)
    return frames


def option(kind: int, body: bytes) -> bytes:
    return bytes([kind, 2 + len(body)]) + body


def quic_id(server: int, version: int) -> bytes:
    """A connection id that names its server, in 16 bits or in 24, by the two bits in front."""
    if version == 1:
        return struct.pack("!I", 1 << 30 | server << 14)
    return struct.pack("!I", 2 << 30 | server)


def quoting(source: str, dest: str, quoted: bytes, size: int) -> bytes:
    """The ICMP error "too big" about a packet."""
    if ":" in source:
        message = bytes([2, 0, 0, 0]) + struct.pack("!I", size) + quoted
        total = checksum(pseudo(source, dest, ICMPV6, len(message)) + message)
        protocol = ICMPV6
    else:
        message = bytes([3, 4, 0, 0]) + struct.pack("!HH", 0, size) + quoted
        total, protocol = checksum(message), ICMP
    return packet(source, dest, protocol, message[:2] + struct.pack("!H", total) + message[4:])


def named_servers(edge: Edge) -> list[bytes]:
    """TCP and QUIC packets that name the server they are for; errors about such flows."""
    frames = []
    timestamps = bytes([1, 1]) + option(8, edge.bytes(8))
    for server in (1, 2, 3):
        client, port = edge.client(), edge.port()
        options = timestamps + option(0xB7, struct.pack("!I", 1000 + server)) + bytes([1, 1])
        segment = tcp(client, WEB_V4, port, 80, ACK | PSH, options=options, payload=edge.bytes(40))
        frames.append(packet(client, WEB_V4, TCP, segment))
        for version in (1, 2):
            identity = quic_id(1000 + server, version) + edge.bytes(4)
            short = udp(client, QUIC_V4, port, 443, b"\x47" + identity + edge.bytes(80))
            long = udp(client, QUIC_V4, port, 443, b"\xe0\0\0\0\x01\x08" + identity + bytes(80))
            frames += [packet(client, QUIC_V4, UDP, body) for body in (short, long)]
        answer = ipv4(WEB_V4, client, TCP, tcp(WEB_V4, client, 80, port, ACK)[:8])
        frames.append(quoting("198.51.100.9", WEB_V4, answer, 1400))
    client, port = edge.client(6), edge.port()
    answer = ipv6(WEB_V6, client, TCP, tcp(WEB_V6, client, 80, port, ACK))
    frames.append(quoting("2001:db8:9::9", WEB_V6, answer, 1400))
    segment = tcp(client, WEB_V6, port, 80, ACK, options=timestamps)
    return frames + [packet(client, WEB_V6, TCP, segment)]


def backend_answers(edge: Edge) -> list[bytes]:
    """From backends to the node that service_pipeline.json knows these translations of."""
    frames = []
    for flags, source, dest in ((ACK, "10.0.0.1", NODE_V4), (FIN | ACK, "10.0.0.1", NODE_V4),
                                (ACK, "2001:db8:ff::5", NODE_V6)):
        segment = tcp(source, dest, 8080, 40001, flags, payload=edge.bytes(100))
        frames.append(packet(source, dest, TCP, segment))
    return frames


def translated_flows(edge: Edge) -> list[bytes]:
    """From inside a NAT to outside, and back to it at ports that nat_gateway.json gives away."""
    inside, outside, frames = "10.1.0.7", "198.18.3.3", []
    for flags in (SYN, ACK, FIN | ACK):
        segment = tcp(inside, outside, 50000, 443, flags, payload=edge.bytes(60))
        frames.append(packet(inside, outside, TCP, segment))
        segment = tcp(outside, NAT_V4, 443, 40001, flags, payload=edge.bytes(60))
        frames.append(packet(outside, NAT_V4, TCP, segment))
    datagram = udp(inside, outside, 50001, 53, dns_query(7, "www.example.com"))
    frames.append(packet(inside, outside, UDP, datagram))
    frames.append(packet(outside, NAT_V4, UDP, udp(outside, NAT_V4, 53, 40002, bytes(40))))
    echo = b"\x08\0\0\0" + struct.pack("!HH", 77, 1) + edge.bytes(56)
    echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
    frames.append(packet(inside, outside, ICMP, echo))
    quoted = ipv4(NAT_V4, outside, TCP, tcp(NAT_V4, outside, 40001, 443, ACK)[:8])
    return frames + [quoting("198.51.100.9", NAT_V4, quoted, 1400)]


def header_chains(edge: Edge) -> list[bytes]:
    """TCP and UDP behind IPv6 extension headers, to an IPv4 host behind the translator too."""
    padding = bytes.fromhex("010400000000")

    def chain(protocol: int, payload: bytes, kinds: list[int]) -> tuple[int, bytes]:
        for kind in reversed(kinds):
            head = {
                FRAGMENT: bytes([protocol, 0, 0, 0]) + struct.pack("!I", 0x1234),
                AUTHENTICATION: bytes([protocol, 4]) + bytes(22),
            }.get(kind, bytes([protocol, 0]) + padding)
            protocol, payload = kind, head + payload
        return protocol, payload

    frames = []
    for dest in (WEB_V6, "64:ff9b::c633:6407"):
        for kinds in ([], [HOP_BY_HOP], [HOP_BY_HOP, DESTINATION_OPTIONS, ROUTING],
                      [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS]):
            source = TRANSLATED_V6 if dest.startswith("64:") else edge.client(6)
            segment = tcp(source, dest, edge.port(), 80, ACK, payload=edge.bytes(64))
            frames.append(packet(source, dest, *chain(TCP, segment, kinds)))
            datagram = udp(source, dest, edge.port(), 53, dns_query(7, "www.example.com"))
            frames.append(packet(source, dest, *chain(UDP, datagram, kinds)))
    return frames


def write_pcap(path: Path, frames: list[bytes], seed: int) -> None:
    """Classic pcap, microseconds, Ethernet; arrival times of a busy port."""
    clock = random.Random(seed)
    now_us = 0
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            now_us += int(clock.expovariate(1 / 250)) + 1
            seconds, micros = divmod(now_us, 1_000_000)
            out.write(struct.pack("<IIII", START_SECONDS + seconds, micros, len(frame), len(frame)))
            out.write(frame)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--packets", type=int, default=4000)
    arguments = parser.parse_args()

    edge = Edge(SEED)
    while len(edge.frames) < arguments.packets:
        edge.anything()
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_pcap(arguments.out / "edge.pcap", edge.frames[:arguments.packets], SEED)
    write_pcap(arguments.out / "jumbo.pcap", jumbo_frames(SEED), SEED)
    makers = (named_servers, backend_answers, translated_flows, header_chains)
    frames = [frame for make in makers for frame in make(Edge(SEED))]
    write_pcap(arguments.out / "services.pcap", frames, SEED)


if __name__ == "__main__":
    main()

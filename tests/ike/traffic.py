#!/usr/bin/env python3
"""Numbered datagrams, and a NAT in user space.

usage: traffic.py send FROM TO PORT RATE SECONDS   sends numbered datagrams; prints their number
       traffic.py receive ADDRESS PORT             counts them until SIGTERM; prints what came
       traffic.py tcp-serve ADDRESS PORT           takes one TCP connection, answers with the sum
       traffic.py tcp-send FROM TO PORT BYTES      sends bytes over TCP; prints whether they came
       traffic.py nat NEAR FAR SERVER              passes IKE and ESP in UDP from NEAR's side to
                                                   SERVER, as FAR; moves to other ports at SIGUSR1
       traffic.py watch INTERFACE HEX              counts frames that have these bytes until SIGTERM
"""

import hashlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

SO_RCVBUFFORCE = 33
ETH_P_ALL = 3
PAYLOAD = b"plain!" * 20


class Ended(Exception):
    """The end was asked for."""


def end(_signal, _frame):
    raise Ended


def send(source: str, to: str, port: int, rate: float, seconds: float) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((source, 0))
    sock.connect((to, port))
    start, number, count = time.monotonic(), 0, int(rate * seconds)
    # A sender that was held up catches up at twice the rate, and not at once.
    burst = max(1, int(rate / 500))
    while number < count:
        due = min(count, number + burst, int((time.monotonic() - start) * rate) + 1)
        while number < due:
            try:
                sock.send(struct.pack("!Q", number) + PAYLOAD)
                number += 1
            except OSError:  # no room now
                time.sleep(0.0005)
        time.sleep(0.001)
    print(json.dumps({"sent": number, "seconds": time.monotonic() - start}))


def receive(address: str, port: int) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    sock.bind((address, port))
    sock.settimeout(0.5)
    seen, repeated, late, last = set(), 0, 0, -1
    gaps: list[list] = []
    signal.signal(signal.SIGTERM, end)
    try:
        while True:
            try:
                data = sock.recv(2048)
            except TimeoutError:
                continue
            (number,) = struct.unpack_from("!Q", data)
            repeated += number in seen
            late += number < last
            if number > last + 1:
                gaps.append([time.time(), last, number])
            last = max(last, number)
            seen.add(number)
    except Ended:
        said = {"received": len(seen), "repeated": repeated, "late": late, "last": last}
        print(json.dumps({**said, "gaps": gaps[:20]}))


def tcp_serve(address: str, port: int) -> None:
    server = socket.create_server((address, port))
    sock, _ = server.accept()
    total = hashlib.sha256()
    while data := sock.recv(1 << 20):
        total.update(data)
    sock.sendall(total.digest())


def tcp_send(source: str, to: str, port: int, size: int) -> None:
    sock = socket.create_connection((to, port), timeout=60, source_address=(source, 0))
    sock.settimeout(60)
    total, left, start = hashlib.sha256(), size, time.monotonic()
    while left:
        data = os.urandom(min(left, 1 << 18))
        total.update(data)
        sock.sendall(data)
        left -= len(data)
    sock.shutdown(socket.SHUT_WR)
    answer = sock.recv(32, socket.MSG_WAITALL)
    # struct tcp_info
    again = struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 100)
    is_same, seconds = answer == total.digest(), time.monotonic() - start
    print(json.dumps({"is_same": is_same, "seconds": seconds, "retransmits": again[0]}))


def nat(near: str, far: str, server: str) -> None:
    """Clients are on the side of `near`; the server sees ports of `far`."""
    ports = (500, 4500)
    insides = {port: bound(near, port) for port in ports}
    outsides = {port: bound(far, 0) for port in ports}
    clients = {}
    moves = []
    signal.signal(signal.SIGUSR1, lambda *_: moves.append(1))
    signal.signal(signal.SIGTERM, end)
    try:
        while True:
            if moves:
                moves.clear()
                for port in ports:
                    outsides[port].close()
                    outsides[port] = bound(far, 0)
            every = [*insides.values(), *outsides.values()]
            for sock in select.select(every, [], [], 0.1)[0]:
                data, sender = sock.recvfrom(65536)
                for port in ports:
                    if sock is insides[port]:
                        clients[port] = sender
                        outsides[port].sendto(data, (server, port))
                    elif sock is outsides[port] and port in clients:
                        insides[port].sendto(data, clients[port])
    except Ended:
        pass


def bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    return sock


def watch(interface: str, text: str) -> None:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.bind((interface, 0))
    wanted, frames, plain = bytes.fromhex(text), 0, 0
    signal.signal(signal.SIGTERM, end)
    try:
        while True:
            data = sock.recv(65536)
            frames += 1
            plain += wanted in data
    except Ended:
        print(json.dumps({"frames": frames, "plain": plain}))


def main() -> None:
    match sys.argv[1:]:
        case ["send", source, to, port, rate, seconds]:
            send(source, to, int(port), float(rate), float(seconds))
        case ["receive", address, port]:
            receive(address, int(port))
        case ["tcp-serve", address, port]:
            tcp_serve(address, int(port))
        case ["tcp-send", source, to, port, size]:
            tcp_send(source, to, int(port), int(size))
        case ["nat", near, far, server]:
            nat(near, far, server)
        case ["watch", interface, text]:
            watch(interface, text)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

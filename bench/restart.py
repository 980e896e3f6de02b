#!/usr/bin/env python3
"""How long a port answers nothing when its daemon is stopped and started again.

A sender asks 1,000 times a second, the program `echo` answers. Meanwhile the daemon gets SIGTERM,
and is started again as soon as it has ended. The gap is the longest time between two answers around
that. Builds given take turns.

usage: bench/restart.py [--kind tap,packet,afxdp] [--rounds 7] TOWPATH [TOWPATH...]    (root)
"""

import argparse
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time

ECHO = os.path.join(os.path.dirname(__file__), "../build/programs/echo.o")
ETH_P_ALL = 3
OUTGOING = 4


def quietly(command: str) -> None:
    subprocess.run(command, shell=True, check=False, capture_output=True)


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def request() -> bytes:
    """An ICMP echo request of 42 bytes."""
    icmp = struct.pack("!BBHHH", 8, 0, 0, 1, 1)
    icmp = icmp[:2] + struct.pack("!H", checksum(icmp)) + icmp[4:]
    source, target = bytes([10, 9, 0, 2]), bytes([10, 9, 0, 1])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 1, 0) + source + target
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return bytes.fromhex("020000000001020000000002") + b"\x08\x00" + ip + icmp


class Traffic:
    """Requests on an interface, which may go and come back, and when answers came.

    Times are seconds of CLOCK_MONOTONIC.
    """

    def __init__(self, interface: str):
        self.interface, self.answers, self.ends = interface, [], False
        self.threads = [threading.Thread(target=it) for it in (self.send, self.receive)]
        for thread in self.threads:
            thread.start()

    def bound(self, protocol: int) -> socket.socket:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        sock.bind((self.interface, 0))
        sock.settimeout(0.05)
        return sock

    def send(self) -> None:
        sock, frame = None, request()
        while not self.ends:
            try:
                sock = sock or self.bound(0)
                sock.send(frame)
            except OSError:
                sock = None
            time.sleep(0.001)

    def receive(self) -> None:
        sock = None
        while not self.ends:
            try:
                sock = sock or self.bound(ETH_P_ALL)
                frame, address = sock.recvfrom(2048)
                if address[2] != OUTGOING and frame[12:14] == b"\x08\x00" and frame[34] == 0:
                    self.answers.append(time.monotonic())
            except TimeoutError:
                pass
            except OSError:
                sock = None
                time.sleep(0.002)

    def wait_for(self, count: int) -> None:
        """Waits for so many answers."""
        end = time.monotonic() + 20
        while len(self.answers) < count:
            assert time.monotonic() < end, "no answers"
            time.sleep(0.01)

    def stop(self) -> None:
        self.ends = True
        for thread in self.threads:
            thread.join()


class Daemon:
    """A daemon with one port and `echo` on it, in a folder of its own."""

    def __init__(self, towpath: str, kind: str):
        self.towpath, self.dir = towpath, tempfile.mkdtemp(prefix="restart-")
        quietly("ip link del rst0")
        self.outside = "rst0"
        if kind != "tap":
            quietly("ip link add rst0 type veth peer name rst1")
            quietly("ip link set rst0 up; ip link set rst1 up")
            self.outside = "rst1"
        with open(f"{self.dir}/c.toml", "w", encoding="utf-8") as config:
            config.write(
                f'[api]\nsocket = "{self.dir}/s"\n[state]\ndir = "{self.dir}/state"\n'
                f'[[port]]\nname = "p"\nkind = "{kind}"\ninterface = "rst0"\n'
                f'[[attach]]\nport = "p"\nobject = "{os.path.abspath(ECHO)}"\nprogram = "echo"\n'
            )
        self.start()
        while not os.path.exists(f"{self.dir}/s"):
            time.sleep(0.01)
        quietly("ip link set rst0 up; sysctl -qw net.ipv6.conf.rst0.disable_ipv6=1")

    def start(self) -> None:
        command = [self.towpath, "up", "-c", f"{self.dir}/c.toml"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def gap(self) -> float:
        """Milliseconds without an answer."""
        traffic = Traffic(self.outside)
        traffic.wait_for(300)
        before = len(traffic.answers)
        self.stop()
        self.start()
        traffic.wait_for(before + 300)
        traffic.stop()
        times = traffic.answers[before - 1 :]
        return max(next - one for one, next in zip(times, times[1:])) * 1000

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self.dir)
        quietly("ip link del rst0")


def main() -> None:
    text = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("towpath", nargs="+")
    parser.add_argument("--kind", default="tap,packet,afxdp")
    parser.add_argument("--rounds", type=int, default=7)
    wanted = parser.parse_args()
    for kind in wanted.kind.split(","):
        gaps = {towpath: [] for towpath in wanted.towpath}
        for _ in range(wanted.rounds):
            for towpath, all_gaps in gaps.items():
                daemon = Daemon(towpath, kind)
                all_gaps.append(daemon.gap())
                daemon.end()
        for towpath, all_gaps in gaps.items():
            middle = statistics.median(all_gaps)
            span = f"{min(all_gaps):.0f} to {max(all_gaps):.0f}"
            print(f"{kind:7} {middle:4.0f} ms ({span})  {towpath}")


main()

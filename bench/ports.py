#!/usr/bin/env python3
"""How long a daemon with many ports takes to start, to change one of them, and to stop.

A start is from the beginning of the process until it says that it is ready (`sd_notify`), a stop
from SIGTERM until the process has ended, a change from the request to the API until its answer:
each by the clock, and in processor time of all threads, which says more on a busy machine.
"A second" is what it takes afterwards, when nothing happens but what the kernel sends by itself.
Beside taps, the kernel's own time for as many: the same system calls in a process that does
nothing else (`/dev/net/tun`, `TUNSETIFF`, set up), and the end of that process.

usage: bench/ports.py [--kind sink,tap] [--count 1000] [--rounds 7] TOWPATH    (root)
"""

import argparse
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR, IFF_MULTI_QUEUE = 0x2, 0x1000, 0x4000, 0x100
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
CHANGES = 21
IDLE_SECONDS = 5
TICKS = os.sysconf("SC_CLK_TCK")


def processor(pid: int) -> float:
    """Seconds of processor time that a process took so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Daemon:
    """A daemon with so many ports of a kind."""

    def __init__(self, towpath: str, kind: str, count: int):
        self.towpath, self.dir = towpath, tempfile.mkdtemp(prefix="ports-")
        with open(f"{self.dir}/c.toml", "w", encoding="utf-8") as config:
            config.write(f'[api]\nsocket = "{self.dir}/s"\n')
            for number in range(count):
                config.write(f'[[port]]\nname = "tpb{number}"\nkind = "{kind}"\n')

    def start(self) -> float:
        """Seconds until it is ready."""
        path = f"{self.dir}/notify"
        ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ready.bind(path)
        ready.settimeout(60)
        start = time.monotonic()
        command = [self.towpath, "up", "-c", f"{self.dir}/c.toml"]
        self.process = subprocess.Popen(
            command, env={**os.environ, "NOTIFY_SOCKET": path}, stderr=subprocess.DEVNULL
        )
        while b"READY=1" not in ready.recv(4096):
            pass
        took = time.monotonic() - start
        ready.close()
        return took

    def change(self, name: str, up: bool) -> float:
        """Seconds that it takes to set a port up or down."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(f"{self.dir}/s")
        body = json.dumps({"up": up})
        start = time.monotonic()
        headers = {"Content-Type": "application/json"}
        connection.request("PATCH", f"/v1/ports/{name}", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        took = time.monotonic() - start
        assert answer.status == 200, text
        connection.close()
        return took

    def stop(self) -> float:
        """Seconds until it has ended."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        took = time.monotonic() - start
        shutil.rmtree(self.dir)
        return took


def kernel(count: int) -> tuple[float, float, float]:
    """Seconds in which a process makes so many taps, and in which it ends, and the first in
    processor time."""
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        start = time.monotonic()
        asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for number in range(count):
            name = f"tpk{number}".encode()
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE
            fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name, flags))
            request = fcntl.ioctl(asks, SIOCGIFFLAGS, struct.pack("16sH22x", name, 0))
            flags = struct.unpack("16sH22x", request)[1] | IFF_UP
            fcntl.ioctl(asks, SIOCSIFFLAGS, struct.pack("16sH22x", name, flags))
        os.write(said, struct.pack("d", time.monotonic() - start))
        signal.pause()
    made = struct.unpack("d", os.read(heard, 8))[0]
    took = processor(child)
    start = time.monotonic()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return made, time.monotonic() - start, took


def round_of(towpath: str, kind: str, count: int) -> dict[str, float]:
    """One of everything."""
    daemon = Daemon(towpath, kind, count)
    took = {"start": daemon.start()}
    pid = daemon.process.pid
    took["start, cpu"] = before = processor(pid)
    changes = [daemon.change(f"tpb{count // 2}", at % 2 == 1) for at in range(CHANGES)]
    took["change"] = statistics.median(changes)
    took["change, cpu"] = (processor(pid) - before) / CHANGES
    before = processor(pid)
    time.sleep(IDLE_SECONDS)
    took["a second, cpu"] = (processor(pid) - before) / IDLE_SECONDS
    took["stop"] = daemon.stop()
    if kind == "tap":
        took["kernel start"], took["kernel stop"], took["kernel start, cpu"] = kernel(count)
    return took


def main() -> None:
    text = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("towpath")
    parser.add_argument("--kind", default="sink,tap")
    parser.add_argument("--count", default="1000,2000")
    parser.add_argument("--rounds", type=int, default=7)
    wanted = parser.parse_args()
    for kind in wanted.kind.split(","):
        for count in map(int, wanted.count.split(",")):
            if kind == "tap":
                # A virtual machine gets memory when it is first used: not at our cost alone.
                kernel(count)
            rounds = [round_of(wanted.towpath, kind, count) for _ in range(wanted.rounds)]
            for what in rounds[0]:
                of_all = [took[what] * 1000 for took in rounds]
                span = f"{min(of_all):.1f} to {max(of_all):.1f}"
                print(f"{count} {kind:5} {what:17} {statistics.median(of_all):8.1f} ms ({span})")
                sys.stdout.flush()


main()

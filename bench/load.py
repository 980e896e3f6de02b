#!/usr/bin/env python3
"""Measures how long a running daemon takes to load a table of prefixes, and what look-ups lose.

A generator sends frames at full speed meanwhile; each is looked up in `sources_v4` of `firewall`
and dropped. Times are those of `towpath map load`, from its start to its end, with `[state]` on
disk. The peer, one request for each entry, is extrapolated from some thousand requests.

usage: bench/load.py [--rows 1000000] [--rounds 3] TOWPATH
"""

import argparse
import http.client
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import time

FIREWALL = os.path.abspath(os.path.join(os.path.dirname(__file__), "../build/programs/firewall.o"))
REQUESTS = 5000


def frame() -> str:
    """A UDP packet of 60 bytes from 198.18.0.1."""
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 46, 0, 0, 64, 17, 0)
    ip += bytes([198, 18, 0, 1, 10, 0, 0, 1])
    udp = struct.pack("!HHHH", 9, 9, 26, 0) + bytes(18)
    return (bytes.fromhex("020000000002020000000001") + b"\x08\x00" + ip + udp).hex()


class Local(http.client.HTTPConnection):
    """A connection to the daemon's socket."""

    def __init__(self, path: str):
        super().__init__("towpath")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method: str, path: str, body=None):
        text = None if body is None else json.dumps(body)
        self.request(method, path, text, {"content-type": "application/json"})
        answer = self.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)


class Daemon:
    """A daemon whose generator has the firewall on it."""

    def __init__(self, towpath: str, rows: int):
        self.towpath, self.dir = towpath, tempfile.mkdtemp(prefix="load-")
        self.socket = f"{self.dir}/s"
        with open(f"{self.dir}/c.toml", "w", encoding="utf-8") as config:
            config.write(
                f'[api]\nsocket = "{self.socket}"\n[state]\ndir = "{self.dir}/state"\n'
                f'[[port]]\nname = "gen"\nkind = "generator"\nframes = ["{frame()}"]\n'
            )
        command = [towpath, "up", "-c", f"{self.dir}/c.toml"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            time.sleep(0.01)
        size = f"sources_v4={rows + 1024}"
        self.run("load", "gen", FIREWALL, "-n", "firewall", "--map-size", size)
        self.api = Local(self.socket)
        maps = self.api.ask("GET", "/v1/maps")
        self.map = next(it["id"] for it in maps if it["name"] == "sources_v4")

    def run(self, *arguments: str) -> str:
        command = [self.towpath, *arguments, "--socket", self.socket]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def received(self) -> int:
        # The daemon closes connections that nobody uses for ten seconds.
        self.api.close()
        return self.api.ask("GET", "/v1/stats")["ports"]["gen"]["rx_packets"]

    def rate(self, seconds: float) -> float:
        """Millions of frames a second."""
        before, start = self.received(), time.monotonic()
        time.sleep(seconds)
        return (self.received() - before) / (time.monotonic() - start) / 1e6

    def load(self, path: str, *more: str) -> tuple[float, float]:
        """Seconds, and millions of frames a second meanwhile."""
        before, start = self.received(), time.monotonic()
        self.run("map", "load", "sources_v4", path, *more)
        seconds = time.monotonic() - start
        return seconds, (self.received() - before) / seconds / 1e6

    def singly(self, rows: list) -> float:
        """Seconds of so many requests for one entry each."""
        start = time.monotonic()
        for address, number in rows:
            value = {"number": number, "action": "ACTION_PASS"}
            row = {"key": f"{address}/24", "value": value}
            self.api.ask("POST", f"/v1/maps/{self.map}/update", row)
        return time.monotonic() - start

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir)


def table(rows: int) -> list:
    """Prefixes of 24 bits, each once, and numbers of rules."""
    prefixes = random.Random(1).sample(range(1 << 24), rows)
    text = lambda it: f"{it >> 16}.{it >> 8 & 255}.{it & 255}.0"
    return [(text(prefix), at % 100) for at, prefix in enumerate(prefixes)]


def write(path: str, rows: list) -> str:
    with open(path, "w", encoding="utf-8") as file:
        if path.endswith(".csv"):
            file.write("key,value.number,value.action\n")
            file.writelines(f"{address}/24,{number},ACTION_PASS\n" for address, number in rows)
        elif path.endswith(".json"):
            for address, number in rows:
                value = f'{{"number": {number}, "action": "ACTION_PASS"}}'
                file.write(f'{{"key": "{address}/24", "value": {value}}}\n')
    return path


def shown(times: list) -> str:
    return f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"


def main() -> None:
    text = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("towpath")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="rows-")
    rows = table(wanted.rows)
    changed = [(it[0], it[1] + 1) if at % 100 == 0 else it for at, it in enumerate(rows)]
    moved = table(wanted.rows + wanted.rows // 100)[wanted.rows // 100 :]
    files = {
        "JSON": write(f"{folder}/a.json", rows),
        "CSV": write(f"{folder}/a.csv", rows),
        "packed": f"{folder}/a.bin",
    }
    other = write(f"{folder}/b.json", changed)
    third = write(f"{folder}/c.json", moved)
    times, rates, before = {}, {}, []
    note = lambda what, it: (
        times.setdefault(what, []).append(it[0]),
        rates.setdefault(what, []).append(it[1]),
    )
    for _ in range(wanted.rounds):
        daemon = Daemon(wanted.towpath, wanted.rows)
        note("one request for each entry (extrapolated)", (
            daemon.singly(rows[:REQUESTS]) * wanted.rows / REQUESTS, 0))
        note("load, JSON", daemon.load(files["JSON"]))
        before.append(daemon.rate(3))
        if not os.path.exists(files["packed"]):
            with open(files["packed"], "wb") as packed:
                command = [daemon.towpath, "map", "dump", "sources_v4", "--format", "packed"]
                subprocess.run([*command, "--socket", daemon.socket], check=True, stdout=packed)
        note("replace, nothing changed", daemon.load(files["JSON"], "--replace"))
        note("replace, 1 % of the values changed", daemon.load(other, "--replace"))
        note("replace, 1 % of the prefixes changed", daemon.load(third, "--replace"))
        daemon.end()
        for name in ("CSV", "packed"):
            daemon = Daemon(wanted.towpath, wanted.rows)
            note(f"load, {name}", daemon.load(files[name]))
            daemon.end()
    for what, all_times in times.items():
        print(f"{what:40} {shown(all_times)}, {statistics.median(rates[what]):.1f} Mpps meanwhile")
    print(f"look-ups with nothing beside them: {statistics.median(before):.1f} Mpps")
    shutil.rmtree(folder)


main()

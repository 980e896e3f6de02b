#!/usr/bin/env python3
"""Times the example programs: nanoseconds a frame, and the verifier beside the running kernel's.

usage: bench/run.py [--towpath PATH] [--repeat N] [--json] [NAME...]

Frames come from tests/data/edge.pcap, maps from tests/data/NAME.json where there is one. Figures
are the best of three runs: on a shared machine the least is the least disturbed. The kernel's
verification time is that of `bpftool prog load` less the time it takes to load a program of a few
instructions; it needs root and is left out without.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
OBJECTS = TOP / "build" / "programs"
CAPTURE = TOP / "tests" / "data" / "edge.pcap"
ROUNDS = 3


def output_of(command: list[str | Path]) -> str | None:
    """What a command printed, or None when it failed."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def frame_ns(towpath: Path, program: dict, repeat: int) -> float | None:
    command = [towpath, "run", program["object"], "-n", program["program"], "--in", CAPTURE,
               "--repeat", str(repeat), "--json"]
    config = TOP / "tests" / "data" / (Path(program["object"]).stem.split("_unrolled")[0] + ".json")
    if config.exists():
        command += ["--map-init", config]
    runs = [output_of(command) for _ in range(ROUNDS)]
    times = [json.loads(run)["ns_per_frame"] for run in runs if run]
    return min(times) if times else None


def verified(towpath: Path, objects: list[Path]) -> list[dict]:
    """One entry for each program: what `towpath verify --json` says, with the least time."""
    best: dict[tuple[str, str], dict] = {}
    for _ in range(ROUNDS):
        command = [towpath, "verify", *objects, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            entry = json.loads(line)
            key = (entry["object"], entry["program"])
            if key not in best or entry["elapsed_us"] < best[key]["elapsed_us"]:
                best[key] = entry
    return list(best.values())


class Kernel:
    """The running kernel's verifier, by the time `bpftool prog load` takes."""

    def __init__(self) -> None:
        self.pins = tempfile.mkdtemp(prefix="towpath-bench-")
        self.floor_ms = 0.0
        mount = subprocess.run(["mount", "-t", "bpf", "none", self.pins], capture_output=True)
        self.is_there = mount.returncode == 0
        if self.is_there:
            self.floor_ms = self.load_ms(OBJECTS / "echo.o") or 0.0

    def load_ms(self, path: Path) -> float | None:
        """Milliseconds to load all programs of an object, or None if it is refused."""
        times = []
        for _ in range(ROUNDS if self.is_there else 0):
            pin = Path(self.pins) / path.stem
            started = time.perf_counter()
            done = subprocess.run(["bpftool", "prog", "loadall", path, pin], capture_output=True)
            times.append((time.perf_counter() - started) * 1000)
            subprocess.run(["rm", "-rf", pin], check=True)
            if done.returncode != 0:
                return None
        return max(min(times) - self.floor_ms, 0.0) if times else None

    def close(self) -> None:
        if self.is_there:
            subprocess.run(["umount", self.pins], check=True)
        os.rmdir(self.pins)


def measure(arguments: argparse.Namespace) -> list[dict]:
    names = arguments.names or sorted(path.stem for path in OBJECTS.glob("*.o"))
    objects = [OBJECTS / f"{name}.o" for name in names]
    kernel = Kernel()
    try:
        kernel_ms = {str(path): kernel.load_ms(path) for path in objects}
    finally:
        kernel.close()
    results = []
    for program in verified(arguments.towpath, objects):
        result = {"object": Path(program["object"]).stem, "program": program["program"],
                  "accepted": program["accepted"], "insns": program["insns"],
                  "verify_ms": program["elapsed_us"] / 1000,
                  "kernel_object_ms": kernel_ms.get(program["object"])}
        if program["accepted"]:
            result["frame_ns"] = frame_ns(arguments.towpath, program, arguments.repeat)
        results.append(result)
    return results


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}".replace(",", " ")


def show(results: list[dict]) -> None:
    """One line a program; the kernel's time is the object's, on its first line."""
    head = ("object", "program", "insns", "verify ms", "kernel ms", "ns/frame")
    print("{:<24} {:<22} {:>6} {:>10} {:>10} {:>9}".format(*head))
    former = None
    for result in results:
        name, is_first = result["object"], result["object"] != former
        former = name
        print(f"{name if is_first else '':<24} {result['program']:<22} {result['insns']:>6} "
              f"{number(result['verify_ms'], 1):>10} "
              f"{number(result['kernel_object_ms'], 1) if is_first else '':>10} "
              f"{number(result.get('frame_ns'), 0):>9}"
              f"{'' if result['accepted'] else '  refused'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towpath", type=Path, default=TOP / "target/release/towpath")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    arguments.towpath = arguments.towpath.resolve()
    results = measure(arguments)
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        show(results)
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What it costs to follow what programs never set: frames in the interpreter, with and without.

usage: sanitizer.py TOWPATH [--objects build/clang-19] > bench/results/sanitizer-DATE-MACHINE.json

Each program runs over two captures with `--sanitize=off` and `--sanitize=track`, in turns, so that
what else the machine does falls on both. The shortest time of each counts, and of the captures the
one with the larger ratio. It is meant to be 4 at most.
"""

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
CAPTURES = ("edge.pcap", "services.pcap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("towpath", type=Path)
    parser.add_argument("--objects", type=Path, default=TOP / "build/clang-19")
    parser.add_argument("--machine", default=model())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=20, help="passes over a capture")
    args = parser.parse_args()
    found = [(path.stem, costs(args, path)) for path in sorted(args.objects.glob("*.o"))]
    found = sorted(((name, it) for name, it in found if it), key=lambda it: -it[1][2])
    ratios = [ratio for _, (_, _, ratio) in found]
    result = {
        "benchmark": "sanitizer",
        "date": datetime.date.today().isoformat(),
        "machine": args.machine,
        "command": f"bench/sanitizer.py TOWPATH --rounds {args.rounds} --repeat {args.repeat}",
        "tables": [
            {
                "caption": "nanoseconds a frame in the interpreter",
                "columns": ["program", "without", "with the sanitizer", "ratio"],
                "rows": [
                    [name, f"{off:.0f}", f"{track:.0f}", f"{ratio:.2f}"]
                    for name, (off, track, ratio) in found
                ],
            }
        ],
        "notes": [
            f"The median ratio is {ratios[len(ratios) // 2]:.2f}, the largest {ratios[0]:.2f}."
        ],
    }
    json.dump(result, sys.stdout, indent=2, ensure_ascii=False)
    print()


def costs(args: argparse.Namespace, path: Path) -> "tuple[float, float, float] | None":
    """Times without and with, and their ratio; None for an object of several programs."""
    of_captures = [measured(args, path, TOP / "tests/data" / capture) for capture in CAPTURES]
    known = [(off, track, track / off) for off, track in filter(None, of_captures)]
    return max(known, key=lambda it: it[2], default=None)


def measured(
    args: argparse.Namespace, path: Path, capture: Path
) -> "tuple[float, float] | None":
    times: "dict[str, list[float]]" = {"off": [], "track": []}
    for _ in range(args.rounds):
        for how, all_times in times.items():
            command = [args.towpath, "run", path, "--in", capture, "--exec", "interp", "--json"]
            command += ["--repeat", str(args.repeat), "--clock", "machine", f"--sanitize={how}"]
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode not in (0, 1) or '"ns_per_frame"' not in ended.stdout:
                return None
            all_times.append(json.loads(ended.stdout)["ns_per_frame"])
    return min(times["off"]), min(times["track"])


def model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


if __name__ == "__main__":
    main()

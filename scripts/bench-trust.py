#!/usr/bin/env python3
"""What `--trust checked` costs: programs with run-time checks beside the same ones without.

usage: bench-trust.py TOWPATH OBJ... [-- ARGUMENT...]    arguments are those of `towpath bench`

Each object is measured twice each way, in turn, by each engine; of a way the faster one counts.
A program whose runs were given different frames is left out. Needs root.
"""

import json
import math
import pathlib
import subprocess
import sys

ENGINES = ("jit", "llvm")
WAYS = ("verified", "checked")


def measure(towpath, path, way, arguments):
    """Nanoseconds of the object's programs by name, engine and frame."""
    command = [towpath, "bench", path, "--against", "kernel", "--exec", ",".join(ENGINES)]
    command += ["--trust", way, "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{path}: {done.stderr.strip()}", file=sys.stderr)
        return {}
    found = json.loads(done.stdout)
    compiled = (it for it in found["programs"] + found["short"] if it["ran"] != "interp")
    return {(it["name"], it["exec"], it["frame_bytes"], it["verdict"]): it["ns"] for it in compiled}


def main():
    """Measures and prints."""
    words, arguments = sys.argv[1:], []
    if "--" in words:
        words, arguments = words[: words.index("--")], words[words.index("--") + 1 :]
    if len(words) < 2:
        sys.exit(__doc__)
    towpath, *paths = words
    costs = {engine: [] for engine in ENGINES}
    for path in paths:
        least = {way: {} for way in WAYS}
        for _ in range(2):
            for way in WAYS:
                for key, ns in measure(towpath, path, way, arguments).items():
                    least[way][key] = min(ns, least[way].get(key, ns))
        for key in least["verified"].keys() & least["checked"].keys():
            name, engine, *_frame = key
            without, checked = (least[way][key] for way in WAYS)
            costs[engine].append((checked / without, f"{pathlib.Path(path).stem}/{name}"))
            print(f"{costs[engine][-1][1]:40} {engine:5} {without:8.1f} -> {checked:8.1f} ns")
    for engine, found in costs.items():
        if found:
            mean = math.exp(sum(math.log(cost) for cost, _ in found) / len(found))
            print(f"{engine}: {mean:.2f} times as long with checks, geometric mean of {len(found)}")


if __name__ == "__main__":
    main()

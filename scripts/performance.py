#!/usr/bin/env python3
"""Makes docs/performance.md from the files in bench/results.

usage: performance.py [--check]

  --check  writes nothing; ends with status 1 if the page is not what the files say

A file is JSON: `benchmark`, `date`, `machine`, `command`, and what was measured: `tables` as they
are to be shown, `programs` and `helpers` in nanoseconds, or what `bench --bin scale --json` and
`towpath bench --json` (as `bench`) write. `notes` are sentences. Of a benchmark the page shows the
newest file of each machine, the newest first.
"""

import json
import math
import sys
import textwrap
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PAGE = TOP / "docs/performance.md"
RESULTS = TOP / "bench/results"

HEAD = """\
# Performance

Figures of Towpath beside what else could do the work, made by `scripts/performance.py` from the
files in [bench/results](../bench/results). [measuring.md](measuring.md) says how they are measured.
A ratio is the peer's time divided by ours, both in the same run: above 1 we are faster. Tier 1 is
Cranelift's code, tier 2 LLVM's.
"""

EVICTED = """\
The share of the newest entries of an LRU hash that was evicted too early, and how much younger
than the oldest 99 of 100 of these were at most, as a share of the table's age:
"""

# Programs below that are compared in nanoseconds.
SHORT_NS = 12

OFFLOAD = (
    "Frames a second that a program judges at the host, for its guest, beside the guest doing it:"
    " a driver that runs the same compiled program on its ring's own buffers, and DPDK's testpmd"
    " over `virtio_user`, which drops or sends back without a program."
)
VHOST = (
    "A program on every frame, beside DPDK's `net_vhost` without one; DPDK's `virtio_user` is the"
    " guest of either. Where the host sends, it makes its frames itself: the first rows say how"
    " many it makes where nobody takes them."
)

# Benchmark, heading, and what the figures are beside: the best that a user could run instead.
SECTIONS = [
    (
        "programs",
        "Programs beside the kernel",
        "The peer is the running kernel's JIT over the same object, frame and maps: what runs a"
        " program where Towpath doesn't.",
    ),
    (
        "corpus",
        "Programs of others",
        "Geometric means of ratios; the peer is the running kernel's JIT over the same objects.",
    ),
    (
        "frames",
        "One program, many frames",
        "`vip_balancer`, a balancer in the shape of Katran, beside the running kernel's JIT.",
    ),
    (
        "helpers",
        "Single helpers",
        "Nanoseconds of what the name says, beside the running kernel.",
    ),
    (
        "scale",
        "Many cores",
        "The peer is the kernel: one program object, run by as many threads over the same maps.",
    ),
    (
        "engine",
        "The engine",
        "Nothing else takes XDP objects to frames in memory, so the peer is the least that anything"
        " needs: a loop that takes frames, copies the packet in, runs the program and gives frames"
        " back.",
    ),
    (
        "spread",
        "One queue, several workers",
        "The peer is the same port on one worker. The program takes the time that is said, by itself.",
    ),
    (
        "timers",
        "Timers",
        "There is no peer: the kernel runs timers in softirqs, apart from its frames. What counts"
        " is how long frames wait.",
    ),
    (
        "veth",
        "Ports over an interface",
        "One veth: the kernel's native and generic XDP, our ports, DPDK's testpmd.",
    ),
    ("offload", "Guests' programs at the host", OFFLOAD),
    ("vhost", "Ports of virtual machines", VHOST),
    (
        "restart",
        "Stopping and starting again",
        "How long a port does not answer. There is no peer: a kernel that restarts is a reboot.",
    ),
    (
        "load",
        "Loading tables",
        "A million prefixes into the trie of `firewall` under full load, beside one request an entry.",
    ),
    (
        "sanitizer",
        "The sanitizer",
        "A frame in the interpreter with the sanitizer, beside the interpreter without it.",
    ),
    (
        "stacks",
        "Between two TCP stacks",
        "The peer is a Linux bridge between the same two namespaces.",
    ),
    (
        "ports",
        "Many ports",
        "The peer is the kernel, which makes and removes the same interfaces.",
    ),
    (
        "load",
        "Loading a map",
        "The peer is one request an entry, which is what there was.",
    ),
    (
        "neighbours",
        "Neighbours",
        "Frames of one virtual machine while another one attacks, beside the same without an"
        " attack.",
    ),
    (
        "bond",
        "Bonds",
        "The peer is DPDK's `net_bond`; the kernel's bonding driver needs devices that other hosts"
        " see.",
    ),
    (
        "xsk",
        "Sockets",
        "From a generator by a program to an application, on one core; the peers are bare rings and"
        " the kernel's sockets in copy mode.",
    ),
]


def main():
    page = made()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text() == page else f"{PAGE}: run scripts/performance.py")
    PAGE.write_text(page)


def made():
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    parts = [HEAD]
    for benchmark, heading, about in SECTIONS:
        mine = newest([it for it in results if it["benchmark"] == benchmark])
        if mine:
            parts += [f"## {heading}\n", *line(about), *SHOWN.get(benchmark, plain)(mine)]
    return "\n".join(parts)


def newest(results):
    """The newest result of each machine, the newest first."""
    by_machine = {}
    for result in sorted(results, key=lambda it: it["date"]):
        by_machine[result["machine"]] = result
    return sorted(by_machine.values(), key=lambda it: it["date"], reverse=True)


def where(result):
    """When, on what, and by which command."""
    command = result.get("command")
    if command is None:
        command = f"bench --bin {result['benchmark']} {result['options']}"
    return f"{result['date']}, {result['machine']}: `{command}`\n"


def table(columns, rows):
    """A table; a first column without a name has names of rows, all others have figures."""
    cells = [[escaped(cell) for cell in row] for row in [columns, *rows]]
    marks = ["---"] + ["---:" for _ in columns[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in [cells[0], marks, *cells[1:]])


def escaped(cell):
    return str(cell).replace("|", "\\|")


def notes(result):
    return ["".join(f"- {note}\n" for note in result["notes"])] if result.get("notes") else []


def line(text):
    """A paragraph, if there is something to say."""
    return [textwrap.fill(text, 100) + "\n"] if text else []


def plain(results):
    parts = []
    for result in results:
        parts.append(where(result))
        for shown in result["tables"]:
            caption = shown["caption"] and f"{shown['caption']}:"
            parts += [*line(caption), table(shown["columns"], shown["rows"])]
        parts += notes(result)
    return parts


def programs(results):
    """Means by machine, then every program with a column for each machine."""
    for result in results:
        result["programs"] = of_bench(result) if "bench" in result else result["programs"]
    rows = [[f"{it['date']}, {it['machine']}", *means(it)] for it in results]
    parts = [
        "Programs that take the kernel 12 ns or more: geometric means and the least ratios.\n",
        table(["machine", "programs", "tier 1", "tier 2", "least on tier 1, tier 2"], rows),
        *[where(it) for it in results],
        "Each program: ns in the kernel and on tier 1, and the ratios of tier 1 and tier 2.\n",
    ]
    names = {}
    for result in results:
        for program in result["programs"]:
            names.setdefault(program["name"], {}).setdefault(result["machine"], program)
    machines = [it["machine"] for it in results]
    rows = [
        [f"`{name}`", *[cell(of.get(machine)) for machine in machines]]
        for name, of in sorted(names.items())
    ]
    short = [machine.split(",")[0] for machine in machines]
    return [*parts, table(["program", *short], rows)]


def cell(program):
    if program is None:
        return ""
    ratio = program.get("jit_ratio") or program["kernel_ns"] / program["jit_ns"]
    llvm = program.get("llvm_ratio")
    if llvm is None and "llvm_ns" in program:
        llvm = program["kernel_ns"] / program["llvm_ns"]
    tiers = f"{ratio:.2f}" if llvm is None else f"{ratio:.2f}, {llvm:.2f}"
    return f"{program['kernel_ns']:.0f} / {program['jit_ns']:.0f} ({tiers})"


def means(result):
    """Number of programs, means of both tiers, and the least; as the run said, if it did."""
    if "means" in result:
        said = result["means"]
        least = [f"`{name}` ({a:.2f}, {b:.2f})" for name, (a, b) in said["least"].items()]
        return [said["programs"], f"{said['jit']:.2f}", f"{said['llvm']:.2f}", ", ".join(least)]
    # An access to a page of an arena that nobody touched is a fault in the kernel.
    long = [it for it in result["programs"] if it["kernel_ns"] >= SHORT_NS]
    long = [it for it in long if it["name"] != "arena_sketch"]
    tiers = ("jit_ratio", "llvm_ratio")
    mean = [math.exp(sum(math.log(it[tier]) for it in long) / len(long)) for tier in tiers]
    least = sorted(long, key=lambda it: it["jit_ratio"])
    least = [it for it in least if it["jit_ratio"] < 1] or least[:2]
    named = [f"`{it['name']}` ({it['jit_ratio']:.2f}, {it['llvm_ratio']:.2f})" for it in least]
    return [len(long), *[f"{it:.2f}" for it in mean], ", ".join(named)]


def of_bench(result):
    """The programs of what `towpath bench --exec jit,llvm --json` writes."""
    found = {}
    for row in result["bench"]["programs"] + result["bench"].get("short", []):
        if row.get("flows", 1) > 1:
            continue
        known = {"name": row["name"], "kernel_ns": row["peer_ns"]}
        program = found.setdefault(row["name"], known)
        program[f"{row['exec']}_ns"] = row["ns"]
        program[f"{row['exec']}_ratio"] = row["ratio"]
    return list(found.values())


def helpers(results):
    parts = []
    for result in results:
        listed = sorted(result["helpers"], key=lambda it: it["name"])
        rows = [[f"`{it['name']}`", it["here_ns"], it["kernel_ns"]] for it in listed]
        half = (len(rows) + 1) // 2
        beside = rows[half:] + [["", "", ""]]
        rows = [left + right for left, right in zip(rows[:half], beside)]
        columns = ["", "here", "kernel", "", "here", "kernel"]
        parts += [where(result), table(columns, rows), *notes(result)]
    return parts


def scale(results):
    parts = []
    for result in results:
        threads = [it["threads"] for it in result["programs"][0]["figures"]]
        rows = []
        for program in result["programs"]:
            figures = program["figures"]
            cells = [f"{three(it['here_mrps'])} / {three(it['kernel_mrps'])}" for it in figures]
            rows.append([program["about"], *cells, f"{figures[-1]['ratio']:.1f}"])
        parts += [
            where(result),
            "Millions of runs a second here and in the kernel, by threads, and the last ratio:\n",
            table(["", *threads, "ratio"], rows),
            EVICTED,
            table(
                ["threads", "here", "younger", "kernel", "younger"],
                [evicted(it) for it in result["evicted_too_early"]],
            ),
            "A new flow in an untouched table of 524,288 entries, one thread:\n",
            table(
                ["", "here, ns", "kernel, ns", "ratio"],
                [first(it) for it in result["first_insertions"]],
            ),
            *large(result.get("large_tables", [])),
            *notes(result),
        ]
    return parts


def evicted(row):
    figures = [row[side][of] for side in ("here", "kernel") for of in ("missing", "younger_p99")]
    return [row["threads"], *[f"{it * 100:.2f} %" for it in figures]]


def first(row):
    kind = "LRU hash" if row["program"].endswith("lru") else "hash"
    figures = [f"{row[side]:.0f}" for side in ("here_ns", "kernel_ns")]
    return [f"{kind}, {row['flows']:,} flows", *figures, f"{row['ratio']:.1f}"]


def large(rows):
    if not rows:
        return []
    sides = ("here_ns", "without_ahead_ns", "kernel_ns")
    cells = [
        [f"{it['kind']}, {it['flows']:,} flows", *[f"{it[side]:.0f}" for side in sides]]
        + [f"{it['share']:.2f}"]
        for it in rows
    ]
    return [
        "A look-up of a flow that comes with the packet, flows at random, one thread, and our share"
        " of the\nkernel's time:\n",
        table(["", "here, ns", "without looking ahead", "kernel, ns", "share"], cells),
    ]


def three(number):
    """At least two digits of a figure."""
    return f"{number:.1f}" if number < 100 else f"{number:.0f}"


SHOWN = {"programs": programs, "helpers": helpers, "scale": scale}

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes docs/performance.md from the files in bench/results.

usage: performance.py [--check]

  --check  writes nothing; ends with status 1 if the page is not what the files say

A file is JSON with `benchmark`, `date`, `machine`, `command` and results: `tables` in the form of
the page, `programs` and `helpers` in nanoseconds, or the output of `bench --bin scale --json` and
of `towpath bench --json` (as `bench`). `notes` are sentences below the tables. The page shows the
newest file of each benchmark and machine, the newest first.
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

Measured figures of Towpath and of its peer, the best that a user could run instead. Both sides are
measured in the same run, by the method in [measuring.md](measuring.md). A ratio is the peer's time
divided by ours: above 1, Towpath is faster. Tier 1 is Cranelift's code, tier 2 LLVM's
([compiler](compiler.md)). Each table has date, machine and command above it.

`scripts/performance.py` makes this page from the files in [bench/results](../bench/results).
"""

EVICTED = """\
Entries of an LRU hash evicted too early, as a share of the newest entries, and how much younger
than the oldest entry they were (99th percentile, as a share of the table's age):
"""

# Programs below that are compared in nanoseconds.
SHORT_NS = 12

# Benchmark, heading, and its peer.
SECTIONS = [
    (
        "programs",
        "Programs beside the kernel",
        "Peer: the running kernel's JIT with the same object, frame and maps.",
    ),
    (
        "corpus",
        "Programs of others",
        "Peer: the running kernel's JIT with the same objects. Figures are geometric means.",
    ),
    (
        "frames",
        "One program, many frames",
        "Peer: the running kernel's JIT. The program is `vip_balancer`, a balancer in the shape of"
        " Katran.",
    ),
    (
        "helpers",
        "Single helpers",
        "Peer: the running kernel. Figures are nanoseconds for one operation.",
    ),
    (
        "scale",
        "Many cores",
        "Peer: the kernel. One program object runs on several threads over the same maps.",
    ),
    (
        "engine",
        "The engine",
        "Peer: a bare loop that takes frames, copies the packet in, runs the program and gives the"
        " frames back. No other software runs XDP objects on frames in memory.",
    ),
    (
        "spread",
        "One queue, several workers",
        "Peer: the same port on one worker. The program takes a fixed time for each frame.",
    ),
    (
        "timers",
        "Timers",
        "No peer: the kernel runs timers in softirqs, apart from frames. The figures are the times"
        " that frames wait.",
    ),
    (
        "ipsec",
        "ESP by an accelerator",
        "Peer: the engine alone, which runs the same cryptography over packets in cache that have"
        " their headers.",
    ),
    (
        "udp",
        "UDP sockets of applications",
        "Peer: the kernel's UDP sockets, used in batches.",
    ),
    (
        "quic",
        "QUIC over UDP sockets",
        "Peer: quinn over the kernel's sockets.",
    ),
    (
        "veth",
        "Ports over an interface",
        "Peers: the kernel's native and generic XDP, and DPDK's testpmd, on one veth.",
    ),
    (
        "offload",
        "Guests' programs at the host",
        "Peer: the same program in the guest. One guest is a driver that runs the compiled program on"
        " its ring's own buffers; the other is DPDK's testpmd over `virtio_user`, which drops or sends"
        " back without a program.",
    ),
    (
        "vhost",
        "Ports of virtual machines",
        "Peer: DPDK's `net_vhost`, without a program; Towpath runs a program on every frame. DPDK's"
        " `virtio_user` is the guest of both. If the host sends, it also makes the frames.",
    ),
    (
        "queueing",
        "Queueing",
        "Peer: the same frames without a queue; for rates, the kernel's htb.",
    ),
    (
        "restart",
        "Stopping and starting again",
        "No peer: a kernel restarts by a reboot. The figures are the times without an answer from a"
        " port.",
    ),
    (
        "load",
        "Loading tables",
        "Peer: one request for each entry. A million prefixes enter the trie of `firewall` under"
        " full load.",
    ),
    (
        "tiers",
        "Tier 2 beside tier 1",
        "Peer: tier 1's code of the same programs.",
    ),
    (
        "sanitizer",
        "The sanitizer",
        "Peer: the interpreter without the sanitizer.",
    ),
    (
        "stacks",
        "Between two TCP stacks",
        "Peer: a Linux bridge between the same two namespaces.",
    ),
    (
        "ports",
        "Many ports",
        "Peer: the kernel, with a process that makes and removes the same interfaces.",
    ),
    (
        "neighbours",
        "Neighbours",
        "Peer: the same traffic without an attack. One virtual machine attacks its worker; the"
        " figures are the frames of its neighbour.",
    ),
    (
        "bond",
        "Bonds",
        "Peer: DPDK's `net_bond`. The kernel's bonding driver can't be compared: it needs devices"
        " connected to other hosts.",
    ),
    (
        "xsk",
        "Sockets",
        "Peers: bare rings, and the kernel's sockets in copy mode. Frames go from a generator through"
        " a program to an application on one core.",
    ),
]


def main():
    page = made()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text() == page else f"{PAGE}: run scripts/performance.py")
    PAGE.write_text(page)


def made():
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    measured = {it["benchmark"] for it in results}
    parts = [HEAD, contents([it for it in SECTIONS if it[0] in measured])]
    for benchmark, heading, about in SECTIONS:
        mine = newest([it for it in results if it["benchmark"] == benchmark])
        if mine:
            parts += [f"## {heading}\n", *line(about), *SHOWN.get(benchmark, plain)(mine)]
    return "\n".join(parts)


def contents(sections):
    """A table of the sections, with the peer that each begins with."""
    rows = []
    for _, heading, about in sections:
        anchor = heading.lower().replace(" ", "-").replace("'", "").replace(",", "")
        peer = about.split(". ")[0].rstrip(".").replace("No peer:", "none:")
        peer = peer.removeprefix("Peer: ").removeprefix("Peers: ")
        rows.append([f"[{heading}](#{anchor})", peer])
    marks = ["| --- | --- |"]
    lines = [f"| {name} | {peer} |" for name, peer in rows]
    return "\n".join(["| section | peer |", *marks, *lines]) + "\n"


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
    """A table: the first column has names of rows, all others have figures."""
    cells = [[escaped(cell) for cell in row] for row in [columns, *rows]]
    marks = ["---"] + ["---:" for _ in columns[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in [cells[0], marks, *cells[1:]])


def escaped(cell):
    return str(cell).replace("|", "\\|")


def notes(result):
    return ["".join(f"- {note}\n" for note in result["notes"])] if result.get("notes") else []


def line(text):
    """A paragraph, if the text is not empty."""
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
    """Means by machine, then a table of all programs with a column for each machine."""
    for result in results:
        result["programs"] = of_bench(result) if "bench" in result else result["programs"]
    rows = [[f"{it['date']}, {it['machine']}", *means(it)] for it in results]
    parts = [
        "Programs of 12 ns or more in the kernel: geometric means, and the least ratios.\n",
        table(["machine", "programs", "tier 1", "tier 2", "least on tier 1, tier 2"], rows),
        *[where(it) for it in results],
        "Each program: ns in the kernel / ns on tier 1 (ratios of tier 1, tier 2).\n",
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
    """Number of programs, means of both tiers, least ratios; the run's own if it has them."""
    if "means" in result:
        said = result["means"]
        least = [f"`{name}` ({a:.2f}, {b:.2f})" for name, (a, b) in said["least"].items()]
        return [said["programs"], f"{said['jit']:.2f}", f"{said['llvm']:.2f}", ", ".join(least)]
    # In the kernel each access to an untouched page of an arena is a fault.
    long = [it for it in result["programs"] if it["kernel_ns"] >= SHORT_NS]
    long = [it for it in long if it["name"] != "arena_sketch"]
    tiers = ("jit_ratio", "llvm_ratio")
    mean = [math.exp(sum(math.log(it[tier]) for it in long) / len(long)) for tier in tiers]
    least = sorted(long, key=lambda it: it["jit_ratio"])
    least = [it for it in least if it["jit_ratio"] < 1] or least[:2]
    named = [f"`{it['name']}` ({it['jit_ratio']:.2f}, {it['llvm_ratio']:.2f})" for it in least]
    return [len(long), *[f"{it:.2f}" for it in mean], ", ".join(named)]


def of_bench(result):
    """The programs in the output of `towpath bench --exec jit,llvm --json`."""
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
            "Millions of runs a second, here / in the kernel, by threads; the ratio is of the last:\n",
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
        "A look-up of the packet's flow, flows at random, one thread; the share is our part of the"
        " kernel's\ntime:\n",
        table(["", "here, ns", "without looking ahead", "kernel, ns", "share"], cells),
    ]


def three(number):
    """At least two digits of a figure."""
    return f"{number:.1f}" if number < 100 else f"{number:.0f}"


SHOWN = {"programs": programs, "helpers": helpers, "scale": scale}

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Packets a second through the Python package, one by one and in bursts, of one core.

usage: bench/python.py [OBJECT [PROGRAM]]
"""

import sys
import time

import numpy
import towpath

ROUNDS = 7
PACKETS = 200_000


def rate(count: int, work) -> str:
    """The median of some rounds, and their range, in millions a second."""
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - start) / 1e6)
    rates.sort()
    return f"{rates[len(rates) // 2]:6.2f} million/s ({rates[0]:.2f} to {rates[-1]:.2f})"


def measure(program: towpath.Program, packet: bytes, packets: numpy.ndarray) -> None:
    few = PACKETS // 20
    one_by_one = rate(few, lambda: [program.run(packet) for _ in range(few)])
    print(f"{program} on {len(packet)} bytes: {program.run(packet).verdict}")
    print("  run_burst          ", rate(PACKETS, lambda: program.run_burst(packets)))
    print("  run_burst with out ", rate(PACKETS, lambda: program.run_burst(packets, out=packets)))
    print("  run                ", one_by_one)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "build/programs/firewall.o"
    name = sys.argv[2] if len(sys.argv) > 2 else None
    packet = bytes(12) + b"\x08\0\x45" + bytes(8) + b"\x11" + bytes(40)
    packets = numpy.zeros((PACKETS, len(packet)), dtype=numpy.uint8)
    packets[:] = numpy.frombuffer(packet, dtype=numpy.uint8)
    for how in ("jit", "interp"):
        measure(towpath.Object(path, exec=how).program(name), packet, packets)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The accelerator beside DPDK's `dpdk-test-crypto-perf` with `crypto_aesni_mb`, in turn.

usage: bench/ipsec_dpdk.py [--rounds N] [--ipsec BINARY]

DPDK's program (Debian: dpdk-dev) encrypts buffers and nothing else: no headers, sequence numbers
or programs; it decrypts with an HMAC only what a file of vectors has. Both figures are processor
time for a packet on one core, so that other work on the machine counts little; DPDK's is that of
more packets less that of fewer, without its start. It runs without huge pages.
Debian does not package `dpdk-ipsec-secgw`, the example that forwards packets: build it from the
source package (dpdk, examples/ipsec-secgw) to compare with it.
"""

import argparse
import re
import resource
import shutil
import statistics
import subprocess
import sys

DPDK = "dpdk-test-crypto-perf"
EAL = "--no-huge -m 512 --no-pci --no-telemetry --no-shconf -l 0,1"
BYTES = 1408
OPERATIONS = 200_000
CBC = "--cipher-algo aes-cbc --cipher-key-sz 16 --cipher-iv-sz 16 --auth-algo sha1-hmac"
HMAC = "--auth-key-sz 20 --digest-sz 12"
AEAD = "--optype aead --aead-algo aes-gcm --aead-key-sz 16 --aead-iv-sz 12 --aead-aad-sz 8"
CASES = [
    (
        "AES-CBC-128 + HMAC-SHA1, ipsec-mb, 1428 B out",
        f"{CBC} {HMAC} --optype cipher-then-auth --cipher-op encrypt --auth-op generate",
    ),
    ("AES-GCM-128, 1428 B out", f"{AEAD} --aead-op encrypt --digest-sz 16"),
]


def processor_seconds(command: list[str]) -> float:
    """User and system time of a command, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dpdk_ns(options: str) -> float:
    def run(operations: int) -> float:
        own = f"--ptest throughput --devtype crypto_aesni_mb --buffer-sz {BYTES} --burst-sz 32"
        command = f"{DPDK} {EAL} --vdev crypto_aesni_mb0 -- {own} --silent"
        return processor_seconds(f"{command} --total-ops {operations} {options}".split())

    return (run(6 * OPERATIONS) - run(OPERATIONS)) / (5 * OPERATIONS) * 1e9


def our_ns(binary: str, name: str) -> float:
    """Program, accelerator and program for a packet of the case with this name."""
    command = [binary, "--rounds", "1", "--window", "200", "--only", name]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^\s+{re.escape(name)}\s+([\d.]+)", text, re.MULTILINE)
    if found is None:
        sys.exit(f"{binary} has no case {name}:\n{text}")
    return float(found.group(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ipsec", default="target/release/ipsec")
    args = parser.parse_args()
    if shutil.which(DPDK) is None:
        sys.exit(f"{DPDK} is missing: apt install dpdk-dev")
    for name, options in CASES:
        theirs, ours = [], []
        for _ in range(args.rounds):
            theirs.append(dpdk_ns(options))
            ours.append(our_ns(args.ipsec, name))
        their, our = statistics.median(theirs), statistics.median(ours)
        print(f"{name:46} ours {our:6.0f} ns   crypto-perf {their:6.0f} ns   {their / our:.2f}x")


if __name__ == "__main__":
    main()

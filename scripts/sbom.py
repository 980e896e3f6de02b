#!/usr/bin/env python3
"""Prints the bill of materials of what is released: CycloneDX 1.5, as JSON.

usage: sbom.py

Of `cargo metadata` and Cargo.lock: each crate that is compiled into the command, the libraries, the
Python package or the command for virtual machines, with its version, licence, checksum, and what it
depends on. The same commit gives the same bytes; SOURCE_DATE_EPOCH is its time.
"""

import datetime
import json
import os
import subprocess
import sys
import tomllib
import uuid

# What is built for a release (release.sh).
RELEASED = ["towpath-cli", "towpath-capi", "towpath-xsk-capi", "towpath-udp-capi",
            "towpath-python", "towpath-guest-client"]


def metadata() -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def reachable(nodes: dict, roots: list[str]) -> dict[str, list[str]]:
    """Packages by id, with what each is compiled with: neither tests nor what only they need."""
    found = {}
    waiting = list(roots)
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found[current] = [
            dependency["pkg"] for dependency in nodes[current]["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        ]
        waiting.extend(found[current])
    return found


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict, checksums: dict) -> dict:
    found = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["license"]:
        expression = package["license"].replace("/", " OR ")
        found["licenses"] = [{"expression": expression}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def main() -> None:
    with open("Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in locked}
    found = metadata()
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    roots = [it["id"] for it in found["packages"]
             if it["name"] in RELEASED and it["id"] in found["workspace_members"]]
    used = reachable(nodes, roots)
    version = packages[roots[0]]["version"]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    ordered = sorted(used, key=lambda it: (packages[it]["name"], packages[it]["version"]))
    components = [component(packages[it], checksums) for it in ordered]
    name = f"towpath-{version}:{json.dumps(components, sort_keys=True)}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "name": "towpath", "version": version,
                          "bom-ref": f"pkg:generic/towpath@{version}"},
        },
        "components": components,
        "dependencies": [
            {"ref": f"pkg:generic/towpath@{version}",
             "dependsOn": sorted(reference(packages[it]) for it in roots)},
            *({"ref": reference(packages[it]),
               "dependsOn": sorted({reference(packages[on]) for on in used[it]})}
              for it in ordered),
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()

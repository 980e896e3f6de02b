"""Compiles C files to object files with clang."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ._native import Error
from .files import missing

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True

_FLAGS = ("-O2", "-g", "-Wall", "-target", "bpf")


class CompileError(Error):
    """The error for a file that clang refuses, or for a missing clang."""


def compile(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    flags: Iterable[str] = (),
    clang: str | None = None,
) -> Path:
    """Compiles a C file for BPF, with line information, and returns the object's path.

    `clang` is the command to run; the default is the environment variable CLANG, else the newest
    clang on the path. Raises CompileError, and FileNotFoundError if the C file does not exist.
    """
    command = clang or os.environ.get("CLANG") or _newest()
    if command is None or shutil.which(command) is None:
        named = f"{command}: not found" if command else "no clang on the path"
        raise CompileError(f"{named}; install clang 14 or later (Debian: apt install clang)")
    if not os.path.exists(source):
        raise missing("C file", source)
    # Debian keeps <asm/types.h> in a folder for the processor, which clang omits for BPF.
    machine = f"/usr/include/{os.uname().machine}-linux-gnu"
    line = [command, *_FLAGS, "-I", machine, *flags, "-c", os.fspath(source), "-o", os.fspath(out)]
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise CompileError(f"{os.fspath(source)}: clang failed\n{run.stderr.rstrip()}")
    return Path(out)


def _newest() -> str | None:
    if shutil.which("clang"):
        return "clang"
    found = {}
    for folder in os.get_exec_path():
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if match := re.fullmatch(r"clang-(\d+)", name):
                found[int(match[1])] = name
    return found[max(found)] if found else None

"""Errors for missing files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True

_LISTED_MAX = 8


def missing(what: str, path: str | os.PathLike[str]) -> FileNotFoundError:
    """The error for a missing file; it lists the files of the same kind in the folder."""
    path = Path(path)
    folder, source = path.parent, path.with_suffix(".c")
    if not folder.is_dir():
        hint = f"there is no folder {folder}"
    elif path.suffix != ".c" and source.is_file():
        hint = f"{source.name} is there: compile it, or say xdp_object({source.name!r})"
    else:
        names = sorted(it.name for it in folder.iterdir() if it.suffix == path.suffix)
        more = ["..."] if len(names) > _LISTED_MAX else []
        listed = ", ".join([*names[:_LISTED_MAX], *more]) or f"no file *{path.suffix}"
        hint = f"in {folder} there is {listed}"
    return FileNotFoundError(errno.ENOENT, f"no such {what} ({hint})", os.fspath(path))

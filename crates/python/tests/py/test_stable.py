"""What docs/stability.md promises: what the last release had is still there."""

import inspect
import os
from pathlib import Path

import towpath
from towpath import pytest_plugin

FIXTURES = ("xdp_clock", "xdp_exec", "xdp_host", "xdp_object")
RELEASED = Path(os.environ.get("TOWPATH_STABLE", Path(__file__).parents[4] / "tests/stable"))


def said() -> list[str]:
    """Names, and parameters of functions and methods, a line each."""
    found = [f"fixture {name}" for name in FIXTURES]
    for name in towpath.__all__:
        found.append(name)
        value = getattr(towpath, name)
        members = vars(value) if inspect.isclass(value) else {"": value}
        for member, function in members.items():
            is_made_by_users = member == "__init__" and name not in ("Map", "Program")
            if member.startswith("_") and not is_made_by_users:
                continue
            found.append(f"{name} {member}".rstrip())
            if inspect.isfunction(function):
                parameters = inspect.signature(function).parameters
                found += [f"{name} {member} {it}" for it in parameters if it != "self"]
    return sorted(set(found))


def test_names_and_parameters_are_still_there():
    path = RELEASED / "python.txt"
    if "TOWPATH_BLESS" in os.environ:
        path.write_text("".join(f"{line}\n" for line in said()))
    gone = set(path.read_text().splitlines()) - set(said())
    assert not gone, f"see docs/stability.md: {sorted(gone)}"
    assert all(hasattr(pytest_plugin, name) for name in FIXTURES if name != "xdp_exec")

"""What the pytest plugin does about bytes that programs never set."""

from __future__ import annotations

import os
import random

import pytest

from . import Finding, Object, _native

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True


def chosen(config: pytest.Config) -> str:
    """`off`, `track` or `poison:SEED`; a seed that nobody chose is one for all tests."""
    if _CHOSEN not in config.stash:
        how = config.getoption("--xdp-sanitize") or config.getini("xdp_sanitize")
        if how == "poison":
            how = f"poison:{random.SystemRandom().randrange(1 << 32)}"
        seed = how[len("poison:") :] if how.startswith("poison:") else None
        is_seed = seed is not None and seed.isdecimal() and int(seed) < 1 << 32
        if how not in ("off", "track") and not is_seed:
            choices = "off, poison, poison:SEED (a number below 2^32), track"
            raise pytest.UsageError(f"xdp_sanitize: {how!r} is none of {choices}")
        config.stash[_CHOSEN] = how
    return config.stash[_CHOSEN]


def of_exec(config: pytest.Config, exec: str) -> str:
    """What is done where programs are executed this way: only the interpreter follows bytes."""
    how = chosen(config)
    return "off" if how == "track" and exec != "interp" else how


def watched(request: pytest.FixtureRequest, opened: Object) -> Object:
    """Notes that a test opened an object."""
    request.node.stash.setdefault(_OPENED, []).append(opened)
    return opened


def judge(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Fails a test that met a mistake; says it beside what failed, if something did."""
    opened = item.stash.get(_OPENED, [])
    found = [finding for each in opened for finding in each.findings()]
    _note(item.config, opened, found)
    told = list(dict.fromkeys(_from_here(it) for it in found if it.severity == "error"))
    if call.excinfo is None:
        if told:
            call.excinfo = _failure("\n".join(f"sanitizer: {text}" for text in told))
        return
    how = chosen(item.config)
    if opened and how.startswith("poison"):
        told.append(f"the stack began with other bytes: --xdp-sanitize={how} has the same again")
    if told:
        item.add_report_section("call", "sanitizer", "\n".join(told))


def _failure(text: str) -> pytest.ExceptionInfo[BaseException]:
    """What pytest notes of a test that fails with this text."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception:
        return pytest.ExceptionInfo.from_current()


def _note(config: pytest.Config, opened: list[Object], found: list[Finding]) -> None:
    """Keeps what fails no test, for the end."""
    notes = config.stash.setdefault(_NOTES, {})
    notes.update((_from_here(it), None) for it in found if it.severity == "note")
    tallies = config.stash.setdefault(_TALLIES, {})
    for each in opened:
        if each.sanitize == "track":
            tallies.setdefault(each.path, _native.Tally()).add(each._native)


def tell(reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tells what may be meant so, or how to see it."""
    tallies = config.stash.get(_TALLIES, {})
    of_all = (_from_here(it) for tally in tallies.values() for it in tally.findings())
    notes = list(dict.fromkeys([*config.stash.get(_NOTES, {}), *of_all]))
    if not notes:
        return
    if reporter.verbosity > 0:
        reporter.section("notes of the sanitizer")
        reporter.write_line("\n".join(notes))
    elif len(notes) == 1:
        reporter.write_line("a note of the sanitizer (-v shows it)")
    else:
        reporter.write_line(f"{len(notes)} notes of the sanitizer (-v shows them)")


def _from_here(finding: Finding) -> str:
    """Its file is named from the current directory on if it lies below."""
    return str(finding).removeprefix(os.getcwd() + "/")


_CHOSEN = pytest.StashKey[str]()
_NOTES = pytest.StashKey[dict[str, None]]()
_TALLIES = pytest.StashKey[dict[str, _native.Tally]]()
_OPENED = pytest.StashKey[list[Object]]()

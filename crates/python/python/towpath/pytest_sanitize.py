"""The sanitizer in the pytest plugin: treatment of bytes that programs never set."""

from __future__ import annotations

import os
import random

import pytest

from . import Finding, Object, _native

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True


def chosen(config: pytest.Config) -> str:
    """`off`, `track` or `poison:SEED`; a random seed is the same for all tests."""
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
    """The treatment for an executor: `track` only works in the interpreter."""
    how = chosen(config)
    return "off" if how == "track" and exec != "interp" else how


def watched(request: pytest.FixtureRequest, opened: Object) -> Object:
    """Records that a test opened an object."""
    request.node.stash.setdefault(_OPENED, []).append(opened)
    return opened


def judge(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Fails a test with a mistake; if the test failed already, adds the mistake to its report."""
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
        told.append(f"the stack began with random bytes: --xdp-sanitize={how} repeats them")
    if told:
        item.add_report_section("call", "sanitizer", "\n".join(told))


def _failure(text: str) -> pytest.ExceptionInfo[BaseException]:
    """The exception of a test that fails with this text."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception:
        return pytest.ExceptionInfo.from_current()


def _note(config: pytest.Config, opened: list[Object], found: list[Finding]) -> None:
    """Keeps notes, which fail no test, for the summary."""
    notes = config.stash.setdefault(_NOTES, {})
    notes.update((_from_here(it), None) for it in found if it.severity == "note")
    tallies = config.stash.setdefault(_TALLIES, {})
    for each in opened:
        if each.sanitize == "track":
            tallies.setdefault(each.path, _native.Tally()).add(each._native)


def tell(reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Shows the notes, which may be intended, or how to see them."""
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
    """The finding's text, with its file relative to the current directory if it is below."""
    return str(finding).removeprefix(os.getcwd() + "/")


_CHOSEN = pytest.StashKey[str]()
_NOTES = pytest.StashKey[dict[str, None]]()
_TALLIES = pytest.StashKey[dict[str, _native.Tally]]()
_OPENED = pytest.StashKey[list[Object]]()

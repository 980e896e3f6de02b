"""Fixtures for tests of XDP programs, and coverage of their C lines.

`xdp_object(path)` opens an object file, or compiles a C file first. Each test that uses it, or
`xdp_exec`, runs once for each executor in `--xdp-exec` (or `xdp_exec` in pytest's configuration);
the default is `interp,jit`.

A test also fails if the sanitizer finds a mistake that verifiers accept, as in `towpath test`. The
default of `--xdp-sanitize` (or `xdp_sanitize`) is `track`.

`--xdp-cov` shows the C lines and branches that tests reached, `--xdp-cov-lcov FILE` and
`--xdp-cov-html FILE` write them to a file, as `towpath test` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import Clock, Host, Object, _native, compile, process
from . import pytest_sanitize as sanitize

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True

_EXECS = ("interp", "jit", "llvm", "auto")
# Key of the coverage that a worker of pytest-xdist returns to the controller.
_DOCUMENT = "towpath_coverage"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("towpath", "XDP programs")
    text = "executors of programs, e.g. interp,jit,llvm"
    group.addoption("--xdp-exec", metavar="LIST", help=text)
    parser.addini("xdp_exec", text, default="interp,jit")
    text = "treatment of bytes that programs never set: off, poison[:SEED] or track"
    group.addoption("--xdp-sanitize", metavar="HOW", help=text)
    parser.addini("xdp_sanitize", text, default="track")
    parser.addini("xdp_cflags", "flags for clang", type="args", default=[])
    text = "show the C lines and branches that the interpreter reached"
    group.addoption("--xdp-cov", action="store_true", help=text)
    text = "write the coverage as an lcov tracefile, for genhtml and others"
    group.addoption("--xdp-cov-lcov", metavar="FILE", help=text)
    group.addoption("--xdp-cov-html", metavar="FILE", help="write the coverage as a page")


def pytest_configure(config: pytest.Config) -> None:
    options = ("--xdp-cov", "--xdp-cov-lcov", "--xdp-cov-html")
    wanted = any(config.getoption(option) for option in options)
    process.coverage = _native.Coverage() if wanted else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "xdp_exec" in metafunc.fixturenames:
        text = metafunc.config.getoption("--xdp-exec") or metafunc.config.getini("xdp_exec")
        execs = [name.strip() for name in text.split(",")]
        for unknown in set(execs).difference(_EXECS):
            raise pytest.UsageError(f"xdp_exec: {unknown!r} is none of {', '.join(_EXECS)}")
        looks = sanitize.chosen(metafunc.config) == "track" or process.coverage is not None
        if looks and "interp" not in execs:
            execs.append("interp")
        metafunc.parametrize("xdp_exec", execs)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds the coverage of a pytest-xdist worker that has ended."""
    document = getattr(node, "workeroutput", {}).get(_DOCUMENT)
    if process.coverage is not None and document is not None:
        process.coverage.merge(document)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    _write_coverage(session.config)


def _write_coverage(config: pytest.Config) -> None:
    coverage = process.coverage
    if coverage is None:
        return
    if hasattr(config, "workeroutput"):
        config.workeroutput[_DOCUMENT] = coverage.document()
        return
    for option, text in (("--xdp-cov-lcov", coverage.tracefile), ("--xdp-cov-html", coverage.page)):
        if path := config.getoption(option):
            Path(path).write_text(text(), encoding="utf-8")


def _tell_coverage(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    coverage = process.coverage
    if coverage is None or not config.getoption("--xdp-cov"):
        return
    terminalreporter.section("coverage of XDP programs")
    rows = [("file", "lines", "branches"), *coverage.rows()]
    if len(rows) == 1:
        why = "no program was interpreted that has line information (clang -g)"
        terminalreporter.write_line(f"nothing to show: {why}")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for file, lines, branches in rows:
        row = f"{file:{widths[0]}}  {lines:>{widths[1]}}  {branches:>{widths[2]}}"
        terminalreporter.write_line(row)
    for line in coverage.unreached():
        terminalreporter.write_line(f"  not reached  {line}")


@pytest.fixture
def xdp_host(request: pytest.FixtureRequest) -> Host:
    """The host that programs of `xdp_object` see; the test adds interfaces, routes, neighbours,
    sockets and connections. Paths for `load` are relative to the test file's folder."""
    host = Host()
    host._folder = request.path.parent
    return host


@pytest.fixture
def xdp_clock() -> Clock:
    """The clock that programs of `xdp_object` see. It stands still until the test calls `advance`.
    Without this fixture, programs see the machine's clock."""
    return Clock()


@pytest.fixture
def xdp_object(
    xdp_exec: str,
    xdp_host: Host,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Object]:
    """`xdp_object(path, **arguments of Object)` opens an object file, and compiles a C file first.
    The path is relative to the test file's folder."""
    objects = _objects(request.config)
    is_timed = "xdp_clock" in request.fixturenames
    clock: Clock | None = request.getfixturevalue("xdp_clock") if is_timed else None

    def opened(path: str | os.PathLike[str], **arguments: Any) -> Object:
        found = request.path.parent / path
        if found.suffix == ".c":
            if found not in objects:
                out = tmp_path_factory.mktemp("xdp") / (found.stem + ".o")
                flags = ["-I", str(found.parent), *request.config.getini("xdp_cflags")]
                objects[found] = compile(found, out, flags)
            found = objects[found]
        arguments.setdefault("host", xdp_host)
        arguments.setdefault("sanitize", sanitize.of_exec(request.config, xdp_exec))
        object = sanitize.watched(request, Object(found, exec=xdp_exec, **arguments))
        if clock is not None:
            clock.add(object)
        return object

    return opened


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Turns a mistake that the sanitizer found into a failure, before pytest reports the test."""
    if call.when == "call":
        sanitize.judge(item, call)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    sanitize.tell(terminalreporter, config)
    _tell_coverage(terminalreporter, config)


def _objects(config: pytest.Config) -> dict[Path, Path]:
    """Objects compiled in this session, by their C file."""
    return config.stash.setdefault(_COMPILED, {})


_COMPILED = pytest.StashKey[dict[Path, Path]]()

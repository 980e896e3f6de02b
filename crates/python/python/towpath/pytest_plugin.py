"""Fixtures for tests of XDP programs.

`xdp_object(path)` opens an object file, or compiles a C file first. Each test that asks for it, or
for `xdp_exec`, runs once for each way of executing programs that `--xdp-exec` (or `xdp_exec` in
pytest's configuration) lists: `interp,jit` unless it says otherwise.

A test fails, too, where the sanitizer finds a mistake that verifiers let pass, as `towpath test`
does: `--xdp-sanitize` (or `xdp_sanitize`) is `track` unless it says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from . import Object, compile
from . import pytest_sanitize as sanitize

_EXECS = ("interp", "jit", "llvm", "auto")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("towpath", "XDP programs")
    text = "how programs are executed, e.g. interp,jit,llvm"
    group.addoption("--xdp-exec", metavar="LIST", help=text)
    parser.addini("xdp_exec", text, default="interp,jit")
    text = "what is done about bytes that programs never set: off, poison[:SEED] or track"
    group.addoption("--xdp-sanitize", metavar="HOW", help=text)
    parser.addini("xdp_sanitize", text, default="track")
    parser.addini("xdp_cflags", "flags for clang", type="args", default=[])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "xdp_exec" in metafunc.fixturenames:
        text = metafunc.config.getoption("--xdp-exec") or metafunc.config.getini("xdp_exec")
        execs = [name.strip() for name in text.split(",")]
        for unknown in set(execs).difference(_EXECS):
            raise pytest.UsageError(f"xdp_exec: {unknown!r} is none of {', '.join(_EXECS)}")
        if sanitize.chosen(metafunc.config) == "track" and "interp" not in execs:
            execs.append("interp")
        metafunc.parametrize("xdp_exec", execs)


@pytest.fixture
def xdp_object(
    xdp_exec: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Object]:
    """`xdp_object(path, **arguments of Object)`; a path that isn't absolute is the test file's
    neighbour, a C file is compiled."""
    objects = _objects(request.config)

    def opened(path: str | os.PathLike[str], **arguments: Any) -> Object:
        found = request.path.parent / path
        if found.suffix == ".c":
            if found not in objects:
                out = tmp_path_factory.mktemp("xdp") / (found.stem + ".o")
                flags = ["-I", str(found.parent), *request.config.getini("xdp_cflags")]
                objects[found] = compile(found, out, flags)
            found = objects[found]
        arguments.setdefault("sanitize", sanitize.of_exec(request.config, xdp_exec))
        return sanitize.watched(request, Object(found, exec=xdp_exec, **arguments))

    return opened


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    sanitize.judge(item, (yield))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    sanitize.tell(terminalreporter, config)


def _objects(config: pytest.Config) -> dict[Path, Path]:
    """C files that were compiled in this session."""
    return config.stash.setdefault(_COMPILED, {})


_COMPILED = pytest.StashKey[dict[Path, Path]]()

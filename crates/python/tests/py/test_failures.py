"""What pytest shows of a test that fails: the test's own lines, and what to do."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# What a test does, and what is told of it.
FAILURES = {
    'xdp_object("metre.o")': ["no such object file (in * there is meter.o)", "metre.o"],
    'xdp_object("meter.o").program("metre")': [
        "meter.o: no program*metre*meter (xdp), refuse (xdp)"
    ],
    'xdp_object("meter.o").program()': ["meter.o: 2 programs match, choose one by name"],
    'xdp_object("meter.o").maps["flow"]': ["NoSuchMap: no map 'flow' in *did you mean \"flows\""],
    'xdp_object("meter.o").maps["flows"][{"prt": 1}]': ["ValueError: *prt*port"],
    'xdp_object("meter.o").maps["totals"][9]': ["KeyError: 9"],
    'xdp_object("none.c")': ["no such C file (in * there is careless.c"],
    'xdp_object("none/none.o")': ["there is no folder *none"],
    'xdp_object("careless.o")': [
        "careless.c is there: compile it, or say xdp_object('careless.c')"
    ],
    'xdp_object("careless.c").program()': ["VerifierError: program careless is rejected*data_end*"],
    'xdp_object("meter.o", globals={"limits": 1})': ["meter.o: *limits*limit"],
    'xdp_object("meter.o").program("meter").run("text")': ["TypeError: a packet is bytes*not str"],
    'xdp_object("meter.o").program("meter").run(bytes(60), cpu=3)': ["IndexError: CPU 3 of 1"],
}


@pytest.mark.parametrize("statement", FAILURES)
def test_only_the_tests_lines_are_shown(pytester, statement, xdp_object):
    meter = xdp_object("meter.c")
    (pytester.path / "meter.o").write_bytes(Path(meter.path).read_bytes())
    (pytester.path / "careless.c").write_text((TESTS / "careless.c").read_text())
    pytester.makepyfile(f"def test_it(xdp_object):\n    {statement}\n")
    options = ("-p", "towpath.pytest_plugin", "--xdp-exec", "interp")
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    for module in ("objects", "maps", "files", "compiler", "pytest_plugin"):
        assert f"{module}.py:" not in shown, shown
    assert len(re.findall(r"\.py:\d", shown)) == 1, shown
    told = " ".join(line.removeprefix("E").strip() for line in result.outlines)
    for text in FAILURES[statement]:
        assert matches(told, text), shown


def matches(told: str, pattern: str) -> bool:
    """Whether the parts of a pattern come one after the other."""
    at = 0
    for part in pattern.split("*"):
        at = told.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True

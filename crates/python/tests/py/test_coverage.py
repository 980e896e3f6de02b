"""Coverage: as `towpath test` has it, from several files and processes."""

import importlib.util

import pytest
from test_failures import TESTS

import towpath

METER = '''
from towpath import Action

PACKET = (bytes(12) + b"\\x08\\0" + b"\\x45" + bytes(8) + b"\\x11" + bytes(40))


def test_others(xdp_object, xdp_exec):
    program = xdp_object("meter.c").program("meter")
    assert program.exec == xdp_exec
    program.run(bytes(60))
'''
AGAIN = METER.replace("bytes(60)", "PACKET")


@pytest.fixture
def project(pytester):
    """Two files of tests, and the program that both test."""
    pytester.makefile(".c", meter=(TESTS / "meter.c").read_text())
    pytester.makepyfile(test_one=METER, test_two=AGAIN)
    return pytester


def run(project, *arguments):
    return project.runpytest_subprocess("-p", "towpath.pytest_plugin", *arguments)


def reached(path):
    """The file's lines, and those that were reached how often."""
    lines = [line[3:].split(",") for line in path.read_text().splitlines() if line[:3] == "DA:"]
    return {int(line): int(hits) for line, hits in lines}


def test_files_are_one_report(project):
    one = run(project, "--xdp-cov-lcov", "one.info", "test_one.py")
    one.assert_outcomes(passed=2)
    assert "coverage" not in one.stdout.str()
    both = run(project, "--xdp-cov", "--xdp-cov-lcov", "both.info", "--xdp-cov-html", "both.html")
    both.assert_outcomes(passed=4)
    one, all_lines = reached(project.path / "one.info"), reached(project.path / "both.info")
    assert one.keys() == all_lines.keys()
    assert sum(map(bool, one.values())) < sum(map(bool, all_lines.values())) < len(all_lines)
    shown = ["*coverage of XDP programs*", "file *lines *branches", "meter.c *%)"]
    both.stdout.fnmatch_lines(shown)
    not_reached = [line for line in both.outlines if line.startswith("  not reached  meter.c:")]
    assert len(not_reached) == list(all_lines.values()).count(0)
    assert "meter.c" in (project.path / "both.html").read_text()


def test_machine_code_alone_is_interpreted_as_well(project):
    result = run(project, "--xdp-cov", "--xdp-exec", "jit", "test_two.py")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["meter.c *"])


@pytest.mark.skipif(not importlib.util.find_spec("xdist"), reason="no pytest-xdist")
def test_processes_are_one_report(project):
    run(project, "--xdp-cov-lcov", "one.info").assert_outcomes(passed=4)
    run(project, "--xdp-cov-lcov", "two.info", "-n", "2").assert_outcomes(passed=4)
    one, two = ((project.path / name).read_text() for name in ("one.info", "two.info"))
    # They compile it in folders of their own, but its lines are of the same file.
    assert one == two


def test_what_is_no_document_is_refused():
    coverage = towpath._native.Coverage()
    with pytest.raises(ValueError, match="coverage"):
        coverage.merge("{}")
    assert coverage.rows() == [] and coverage.unreached() == []

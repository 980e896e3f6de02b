"""The sanitizer: by itself, and in the plugin."""

import shutil
from pathlib import Path

import pytest
from towpath import Action, Object

HERE = Path(__file__).parent
MESSAGE = (
    "padding.c:38: the key of map flows (argument 2 of bpf_map_update_elem, `&k`): "
    "the padding behind `proto` was never set (bytes 1 to 3) [undefined-key]"
)


@pytest.fixture
def padding(xdp_object):
    """The compiled object's path; nothing looks at what runs from it."""
    return xdp_object("padding.c", sanitize="off").path


def test_an_object_tells_what_was_found(padding):
    opened = Object(padding, exec="interp", sanitize="track")
    program = opened.program("padded")
    assert program.run(bytes(64)).verdict == Action.XDP_PASS
    [found] = opened.findings()
    assert (found.kind, found.severity, found.line) == ("undefined-key", "error", 38)
    assert found.program == "padded" and found.file.endswith("padding.c")
    assert found.source == "bpf_map_update_elem(&flows, &k, &one, BPF_ANY);"
    assert "__builtin_memset(&k, 0, sizeof(k));" in found.hint
    assert found.related == ["the rest was set in lines 36 and 37"]
    assert MESSAGE in str(found) and "Finding" in repr(found)
    program.run(bytes(64))
    opened.program("cleared").run(bytes(64))
    assert opened.findings() == []


@pytest.mark.parametrize("exec", ["interp", "jit"])
def test_a_poisoned_stack_has_other_bytes_each_time(padding, exec):
    def ran(sanitize):
        opened = Object(padding, exec=exec, sanitize=sanitize)
        program = opened.program("padded")
        verdicts = {program.run(bytes(64)).verdict for _ in range(3)}
        return verdicts, len(opened.maps["flows"])

    assert ran("off") == ({Action.XDP_PASS}, 1)
    assert ran("poison:1") == ({Action.XDP_DROP}, 3)
    assert ran("poison") == ({Action.XDP_DROP}, 3)


@pytest.mark.parametrize("how", [("jit", "track"), ("interp", "on"), ("jit", "poison:x")])
def test_what_can_not_be_done_is_refused(padding, how):
    with pytest.raises(ValueError, match="sanitize is"):
        Object(padding, exec=how[0], sanitize=how[1])


@pytest.fixture
def suite(pytester):
    """A test of each program, in a folder of its own."""
    shutil.copy(HERE / "padding.c", pytester.path)
    pytester.makeconftest('pytest_plugins = ["towpath.pytest_plugin"]')
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("name", ["padded", "cleared"])
        def test_a_packet_passes(xdp_object, name):
            assert xdp_object("padding.c").program(name).run(bytes(64)).verdict == 2
        """
    )
    return pytester


def test_a_mistake_fails_a_test_that_would_pass(suite):
    ended = suite.runpytest_subprocess("-p", "no:cacheprovider")
    ended.assert_outcomes(passed=3, failed=1)
    said = ended.stdout.str()
    assert f"sanitizer: {MESSAGE}" in said
    assert "the rest was set in lines 36 and 37" in said and "hint: set all of k first" in said
    assert "pytest_plugin.py" not in said


def test_it_is_found_where_only_compiled_code_was_asked_for(suite):
    ended = suite.runpytest_subprocess("--xdp-exec=jit")
    ended.assert_outcomes(passed=3, failed=1)


def test_it_can_be_left_out(suite):
    suite.makeini("[pytest]\nxdp_sanitize = off\nxdp_exec = jit\n")
    suite.runpytest_subprocess().assert_outcomes(passed=2)


def test_poison_tells_its_seed(suite):
    ended = suite.runpytest_subprocess("--xdp-sanitize=poison")
    ended.assert_outcomes(passed=2, failed=2)
    said = [line for line in ended.stdout.lines if "--xdp-sanitize=poison:" in line]
    how = said[0].split("--xdp-sanitize=")[1].split()[0]
    again = suite.runpytest_subprocess(f"--xdp-sanitize={how}")
    again.assert_outcomes(passed=2, failed=2)
    assert [line for line in again.stdout.lines if f"--xdp-sanitize={how}" in line]


def test_a_choice_that_is_none_is_refused(suite):
    ended = suite.runpytest_subprocess("--xdp-sanitize=all")
    assert "none of off, poison" in ended.stderr.str() + ended.stdout.str()

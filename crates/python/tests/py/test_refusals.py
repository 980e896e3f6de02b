"""What is refused, and what the exception says."""

import pytest
import towpath


def test_a_rejection_says_line_and_reason(xdp_object):
    careless = xdp_object("careless.c")
    with pytest.raises(towpath.VerifierError) as raised:
        careless.program()
    error = raised.value
    assert error.program == "careless" and error.errno == "EACCES"
    assert "invalid access to packet" in error.reason and "data_end" in error.hint
    assert error.file.endswith("careless.c") and "data[12]" in error.source
    assert error.line == 13
    with pytest.raises(towpath.VerifierError):
        careless.verify()


def test_files_that_are_no_objects(tmp_path):
    with pytest.raises(FileNotFoundError):
        towpath.Object(tmp_path / "none.o")
    (tmp_path / "text.o").write_text("no ELF")
    with pytest.raises(towpath.ObjectError, match="text.o"):
        towpath.Object(tmp_path / "text.o")


def test_a_program_must_be_named_among_several(xdp_object):
    with pytest.raises(towpath.ObjectError, match="refuse"):
        xdp_object("meter.c").program()
    with pytest.raises(towpath.ObjectError, match="metre"):
        xdp_object("meter.c").program("metre")


def test_c_that_does_not_compile(tmp_path):
    (tmp_path / "broken.c").write_text("int x = ;")
    with pytest.raises(towpath.CompileError, match="expected expression"):
        towpath.compile(tmp_path / "broken.c", tmp_path / "broken.o")
    with pytest.raises(towpath.CompileError, match="not found; install"):
        towpath.compile(tmp_path / "broken.c", tmp_path / "broken.o", clang="no-such-clang")

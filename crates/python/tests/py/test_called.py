"""Programs that users call, with a context."""

import struct

import pytest
from towpath import Action


def test_what_is_called_prepares_what_runs(xdp_object):
    called = xdp_object("called.c")
    judge, set_verdict = called.program("judge"), called.program("set_verdict")
    assert called.programs == {"judge": "xdp", "set_verdict": "syscall"}
    assert judge.run(bytes(64)).verdict == Action.XDP_ABORTED
    returned, context = set_verdict.call(struct.pack("II", Action.XDP_TX, 0))
    assert (returned, struct.unpack("II", context)) == (7, (Action.XDP_TX, Action.XDP_ABORTED))
    assert judge.run(bytes(64)).verdict == Action.XDP_TX
    _, context = set_verdict.call(struct.pack("III", Action.XDP_DROP, 0, 5))
    assert struct.unpack("III", context) == (Action.XDP_DROP, Action.XDP_TX, 5)


def test_what_cannot_be_called_says_why(xdp_object):
    called = xdp_object("called.c")
    with pytest.raises(ValueError, match="takes a context of 8 to 65535 bytes, not of 7"):
        called.program("set_verdict").call(bytes(7))
    with pytest.raises(ValueError, match='its section has to be "syscall"'):
        called.program("judge").call()
    with pytest.raises(IndexError):
        called.program("set_verdict").call(bytes(8), cpu=1)

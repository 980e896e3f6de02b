"""Tests for pytest: each runs in the interpreter and as machine code."""

from towpath import Action

DNS = {"port": 53, "protocol": 17, "zero": 0}
NOTHING = {"packets": 0, "bytes": 0}


def udp(port: int) -> bytes:
    ethernet = bytes(12) + b"\x08\x00"
    ipv4 = b"\x45" + bytes(8) + b"\x11" + bytes(10)
    return ethernet + ipv4 + b"\x04\x00" + port.to_bytes(2, "big") + bytes(22)


def test_blocked_services_are_dropped_and_counted(xdp_object):
    filter = xdp_object("../filter.o")
    filter.maps["blocked"][DNS] = NOTHING
    assert filter.program().run(udp(53)).verdict == Action.XDP_DROP
    assert filter.maps["blocked"][DNS] == {"packets": 1, "bytes": 60}


def test_others_pass(xdp_object):
    filter = xdp_object("../filter.o")
    filter.maps["blocked"][DNS] = NOTHING
    assert filter.program().run(udp(123)).verdict == Action.XDP_PASS
    assert filter.maps["blocked"][DNS] == NOTHING

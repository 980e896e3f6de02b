"""The host around programs, the ports, and the time: as a test says."""

import ipaddress
from pathlib import Path

import pytest
from towpath import Host, Object

HOUR = 3600 * 10**9
ROUTES = Path(__file__).parents[4] / "programs/routes.toml"


def tcp(source: str, destination: str, sport: int, dport: int) -> bytes:
    addresses = b"".join(ipaddress.ip_address(it).packed for it in (source, destination))
    headers = bytes(12) + b"\x08\0" + b"\x45" + bytes(7) + b"\x40\x06\0\0" + addresses
    return (headers + sport.to_bytes(2, "big") + dport.to_bytes(2, "big")).ljust(64, b"\0")


PACKET = tcp("192.0.2.1", "198.51.100.7", 1024, 80)


@pytest.fixture
def around(xdp_object):
    return xdp_object("around.c")


def told(around: Object, packet: bytes = PACKET, **arguments) -> dict:
    around.program().run(packet, **arguments)
    return around.maps["told"][0]


def test_nothing_is_known_unless_it_is_said(around):
    seen = told(around)
    assert seen["way"] != 0 and not seen["is_for_socket"] and not seen["is_tracked"]
    assert seen["hash_error"] == -95


def test_routes_and_neighbours(around, xdp_host):
    xdp_host.interface("eth0", 1, mac="02:00:00:00:00:01", forwarding=True)
    xdp_host.interface("eth1", 2, mac="02:00:00:00:00:02", addresses=["203.0.113.1"])
    xdp_host.route("198.51.100.0/24", via="203.0.113.254", dev="eth1")
    assert told(around)["way"] == 7, "BPF_FIB_LKUP_RET_NO_NEIGH"
    xdp_host.neighbour("203.0.113.254", dev=2, mac="02:00:00:00:00:99")
    seen = told(around)
    assert (seen["way"], seen["out"], seen["next_hop_mac"]) == (0, 2, 0x99)
    xdp_host.route(ipaddress.ip_network("198.51.100.7/32"), type="blackhole")
    assert told(around)["way"] == 1, "BPF_FIB_LKUP_RET_BLACKHOLE"


def test_tables_come_from_a_file(around, xdp_host, tmp_path):
    xdp_host.load(ROUTES)
    assert Host(ROUTES) is not None
    with pytest.raises(FileNotFoundError, match="no such file of tables"):
        xdp_host.load("none.toml")
    (tmp_path / "wrong.toml").write_text("[[route]]\nto = 'default'\ngateway = '192.0.2.1'\n")
    with pytest.raises(ValueError, match="wrong.toml: line 3.*route.*gateway"):
        xdp_host.load(tmp_path / "wrong.toml")


def test_sockets(around, xdp_host):
    xdp_host.socket("tcp", "198.51.100.7:80", mark=5)
    seen = told(around)
    assert (seen["is_for_socket"], seen["socket_mark"]) == (1, 5)
    assert not told(around, tcp("192.0.2.1", "198.51.100.7", 1024, 81))["is_for_socket"]


def test_connections_are_known_in_both_directions_and_for_a_time(around, xdp_host, xdp_clock):
    xdp_host.connection("tcp", "192.0.2.1:1024", "198.51.100.7:80", timeout="30s")
    assert told(around)["is_tracked"]
    assert told(around, tcp("198.51.100.7", "192.0.2.1", 80, 1024))["is_tracked"]
    xdp_clock.advance("29s")
    assert told(around)["is_tracked"]
    xdp_clock.advance(2)
    assert not told(around)["is_tracked"]
    xdp_host.connection("tcp", "192.0.2.1:1", "198.51.100.7:80")
    assert told(around, tcp("192.0.2.1", "198.51.100.7", 1, 80))["is_tracked"]
    xdp_host.connection("tcp", "198.51.100.7:80", "192.0.2.1:1")
    with pytest.raises(Exception, match="connection 3 of the host: .*these ends"):
        told(around)


def test_objects_of_a_test_share_time_and_host(xdp_object, xdp_host, xdp_clock):
    one, two = xdp_object("around.c"), xdp_object("around.c")
    xdp_host.socket("tcp", "0.0.0.0:80")
    assert told(one)["time"] == HOUR
    xdp_clock.advance("1500ms")
    xdp_clock.advance(0.5)
    assert told(one)["time"] == told(two)["time"] == xdp_clock.ns == HOUR + 2 * 10**9
    assert told(one)["is_for_socket"] and told(two)["is_for_socket"]
    one.advance("1us")
    assert one.clock == xdp_clock.ns + 1000
    with pytest.raises(ValueError, match="soon.*like 10s"):
        xdp_clock.advance("soon")


def test_ports_tell_what_they_know(around):
    seen = told(around, hints={"hash": 7, "hash_type": 9})
    assert (seen["hash"], seen["hash_error"]) == (7, 0)
    assert told(around, hints={"timestamp": 1})["hash_error"] == -61, "it tells none of this one"
    with pytest.raises(ValueError, match="hints.*\"hesh\".*\"hash\""):
        told(around, hints={"hesh": 7})


@pytest.mark.parametrize(
    ("what", "arguments", "message"),
    [
        ("interface", {"name": "eth0", "ifindex": 0}, "interface.*ifindex: 0, expected 1"),
        ("interface", {"name": "eth0", "ifindex": 1, "mac": "02:0"}, "interface.*mac.*six bytes"),
        ("route", {"to": "192.0.2.0/24"}, "route.*needs dev or next_hops"),
        ("route", {"to": "192.0.2.0/24", "dev": "eth0"}, "route.*no interface is called \"eth0\""),
        ("neighbour", {"address": "x", "dev": 1, "mac": "02:00:00:00:00:01"}, "neighbour.address"),
        ("socket", {"protocol": "sctp", "local": "[::]:1"}, "socket.protocol: .*\"sctp\""),
        ("socket", {"protocol": "tcp", "local": "::1"}, "socket: local .*address and a port"),
        (
            "connection",
            {"protocol": "udp", "source": "[::1]:1", "destination": "1.1.1.1:1"},
            "of two families",
        ),
    ],
)
def test_what_makes_no_sense_changes_nothing(around, what, arguments, message):
    host = Host()
    host.interface("lo", 9)
    with pytest.raises(ValueError, match=message):
        getattr(host, what)(**arguments)
    host.route("192.0.2.0/24", dev="lo")

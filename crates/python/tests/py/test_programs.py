"""Running programs, and what they leave behind."""

import threading

import pytest
from towpath import Action, Object


def udp(port: int, size: int = 64) -> bytes:
    """An IPv4 packet without checksums, which the program doesn't look at."""
    headers = bytes(12) + b"\x08\0" + b"\x45" + bytes(8) + b"\x11" + bytes(10)
    return (headers + bytes(2) + port.to_bytes(2, "big")).ljust(size, b"\0")


@pytest.fixture
def meter(xdp_object):
    return xdp_object("meter.c")


def test_an_object_says_what_is_in_it(meter):
    assert meter.programs == {"meter": "xdp", "refuse": "xdp"}
    assert meter.maps["flows"].kind == "hash" and meter.maps["flows"].max_entries == 4
    assert "flows" in repr(meter.maps["flows"])


def test_a_packet_comes_back_as_the_program_left_it(meter, xdp_exec):
    program = meter.program("meter")
    assert program.exec == xdp_exec
    result = program.run(udp(53))
    assert result.verdict == Action.XDP_PASS and result.data == udp(53)
    assert str(result.verdict) == "XDP_PASS" and result.target is None


def test_tail_calls_redirects_and_printed_lines(meter):
    meter.maps["stages"][0] = "refuse"
    meter.maps["ports"][1] = 7
    program = meter.program("meter")
    for _ in range(2):
        assert program.run(udp(53)).verdict == Action.XDP_PASS
    result = program.run(udp(53, 80))
    assert result.verdict == Action.XDP_REDIRECT and "7" in result.target
    assert result.data == udp(53, 80)[14:]
    assert result.printed == ["refused 80 bytes"]
    assert meter.maps["events"].records() == [(80).to_bytes(4, "little")]
    assert meter.maps["jobs"].pop_value() == 80 and meter.maps["jobs"].pop_value() is None
    assert dict(meter.maps["stages"]) == {0: "refuse"}
    assert dict(meter.maps["ports"]) == {1: 7}


def test_maps_are_dicts(meter):
    program, flows = meter.program("meter"), meter.maps["flows"]
    program.run(udp(53))
    assert flows[{"port": 53, "pad": 0}]["packets"] == 1
    assert len(flows) == 1 and {"port": 54, "pad": 0} not in flows
    flows[{"port": 53, "pad": 0}] = {"packets": 9, "last_ns": 0}
    assert program.run(udp(53)).verdict == Action.XDP_DROP
    assert [value["packets"] for value in flows.values()] == [10]
    assert flows.pop({"port": 53, "pad": 0})["packets"] == 10
    with pytest.raises(KeyError):
        del flows[{"port": 53, "pad": 0}]
    flows.update({port.to_bytes(2, "little") + bytes(2): bytes(16) for port in range(4)})
    assert sorted(key["port"] for key in flows) == [0, 1, 2, 3]
    with pytest.raises(Exception, match="E2BIG"):
        flows[{"port": 5, "pad": 0}] = bytes(16)
    with pytest.raises(ValueError, match="prot"):
        flows[{"prot": 5}] = bytes(16)


def test_per_cpu_values_are_lists(xdp_object):
    meter = xdp_object("meter.c", cpus=2)
    program, totals = meter.program("meter"), meter.maps["totals"]
    program.run(udp(53), cpu=1)
    assert totals[0] == [0, 1]
    totals[1] = [3, 4]
    assert totals[1] == [3, 4]
    totals[1] = 5
    assert list(totals.values()) == [[0, 1], [5, 5]]
    with pytest.raises(IndexError):
        program.run(udp(53), cpu=2)


def test_globals_and_sizes_are_set_before(xdp_object):
    meter = xdp_object("meter.c", globals={"limit": 1}, map_size={"flows": 1})
    program = meter.program("meter")
    assert [program.run(udp(53)).verdict for _ in range(2)] == [Action.XDP_PASS, Action.XDP_DROP]
    assert program.run(udp(54)).verdict == Action.XDP_PASS and len(meter.maps["flows"]) == 1
    with pytest.raises(ValueError, match="limit"):
        xdp_object("meter.c", globals={"limits": 1})


def test_time_is_the_tests(meter):
    program = meter.program("meter")
    meter.advance(0)
    start = meter.clock
    program.run(udp(53))
    meter.advance(1.5)
    program.run(udp(53))
    assert meter.maps["flows"][{"port": 53, "pad": 0}]["last_ns"] == start + 1_500_000_000
    meter.clock = None
    assert meter.clock is None


def test_bursts_are_arrays(meter):
    numpy = pytest.importorskip("numpy")
    packets = numpy.zeros((200, 80), dtype=numpy.uint8)
    packets[:, :64] = numpy.frombuffer(udp(53), dtype=numpy.uint8)
    meter.maps["stages"][0] = "refuse"
    meter.maps["ports"][1] = 7
    lengths = numpy.full(200, 64)
    out = numpy.zeros((200, 20), dtype=numpy.uint8)
    burst = meter.program("meter").run_burst(packets, lengths, out=out)
    assert (burst.verdicts[:2] == Action.XDP_PASS).all()
    assert (burst.verdicts[2:] == Action.XDP_REDIRECT).all()
    assert list(burst.lengths[:3]) == [64, 64, 50]
    assert bytes(out[0]) == udp(53)[:20] and bytes(out[2]) == udp(53)[14:34]
    with pytest.raises(ValueError, match="lengths"):
        meter.program("meter").run_burst(packets, lengths + 40)
    with pytest.raises(ValueError, match="dimensions"):
        meter.program("meter").run_burst(packets[0])
    with pytest.raises(ValueError, match="rows"):
        meter.program("meter").run_burst(packets, out=out[:3])


def test_scapys_packets_are_taken(meter):
    layers = pytest.importorskip("scapy.all")
    packet = layers.Ether() / layers.IP(src="10.0.0.1", dst="10.0.0.2") / layers.UDP(dport=99)
    meter.program("meter").run(packet)
    assert {"port": 99, "pad": 0} in meter.maps["flows"]


def test_threads_take_turns(meter):
    program = meter.program("meter")
    threads = [
        threading.Thread(target=lambda: [program.run(udp(53)) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.maps["totals"][0] == [800]


def test_what_is_no_packet_is_refused(meter):
    program = meter.program("meter")
    with pytest.raises(TypeError):
        program.run("abc")
    with pytest.raises(TypeError):
        program.run(5)
    with pytest.raises(ValueError):
        program.run(bytes(1 << 20))
    with pytest.raises(ValueError, match="14 bytes"):
        program.run(b"")


def test_maps_outlive_their_object(xdp_object):
    flows = xdp_object("meter.c").maps["flows"]
    flows[{"port": 1, "pad": 0}] = bytes(16)
    assert len(flows) == 1


@pytest.mark.parametrize("argument", [{"exec": "fast"}, {"cpus": 0}, {"map_size": {"no": 1}}])
def test_arguments_are_checked(tmp_path, xdp_object, argument):
    path = xdp_object("meter.c").path
    with pytest.raises(ValueError):
        Object(path, **argument)

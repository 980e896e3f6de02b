"""Objects, programs, and what running them gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from . import _native, process
from .files import missing
from .host import START_NS, Host, nanoseconds
from .maps import Map, Maps

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True


class Action(IntEnum):
    """`enum xdp_action`"""

    XDP_ABORTED = 0
    XDP_DROP = 1
    XDP_PASS = 2
    XDP_TX = 3
    XDP_REDIRECT = 4

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Result:
    """What a program did with a packet."""

    verdict: Action
    """What happens to it. What is no action counts as XDP_ABORTED."""
    data: bytes
    """The packet afterwards."""
    target: str | None = None
    """Where it is redirected to; None where it isn't, or leads nowhere."""
    metadata: bytes = b""
    """What stands in front of the packet (`data_meta`)."""
    returned: int = 0
    """The 32-bit number that the program returned."""
    printed: list[str] = field(default_factory=list)
    """Lines of `bpf_printk`."""


@dataclass(frozen=True)
class Burst:
    """What a program did with many packets: numpy arrays, one element a packet."""

    verdicts: Any
    """The numbers that were returned (uint32); compare with Action."""
    lengths: Any
    """Bytes of each packet afterwards (uint32), also of those that `out` has no room for."""


class Program:
    """A program that was verified and is ready to run: `Object.program`."""

    def __init__(self, native: _native.Program, owner: "Object") -> None:
        self._native = native
        self._owner = owner

    @property
    def name(self) -> str:
        """Its function's name in C."""
        return self._native.name

    @property
    def exec(self) -> str:
        """How it is really executed: `interp`, `jit` or `llvm`."""
        return self._native.exec()[0]

    @property
    def maps(self) -> dict[str, Map]:
        """The object's maps: `Object.maps`."""
        return self._owner.maps

    def run(
        self,
        packet: Any,
        *,
        ifindex: int = 1,
        queue: int = 0,
        cpu: int = 0,
        metadata: bytes = b"",
        hints: Mapping[str, int] | None = None,
    ) -> Result:
        """Runs it on one packet: bytes, or anything that `bytes()` takes (Scapy's packets, dpkt's,
        an array of uint8).

        `hints` is what the port knows of it: `hash`, `hash_type`, `timestamp` (nanoseconds),
        `vlan_tci`, `vlan_proto`. Without, it tells nothing.

        Raises ValueError for a packet too long for a frame, Fault for what no verified program can
        do.
        """
        known = None if hints is None else dict(hints)
        where = (ifindex, queue, cpu)
        run = self._native.run(_bytes(packet), _bytes(metadata), where, known)
        verdict = Action(run.returned) if run.returned in _ACTIONS else Action.XDP_ABORTED
        printed = self._owner.printed()
        return Result(verdict, run.data, run.target, run.metadata, run.returned, printed)

    def run_burst(
        self,
        packets: Any,
        lengths: Any = None,
        *,
        out: Any = None,
        ifindex: int = 1,
        queue: int = 0,
        cpu: int = 0,
    ) -> Burst:
        """Runs it on each row of a numpy array of uint8 of the shape (packets, bytes): the fast
        way. Needs numpy.

        `lengths` (uint32) says how long each packet is, if not as wide as the array. The packets
        as the program left them go to `out`, an array of as many rows, which may be `packets`
        itself; of a packet that is longer than a row, only the beginning.
        """
        import numpy

        array = numpy.ascontiguousarray(packets, dtype=numpy.uint8)
        if array.ndim != 2:
            raise ValueError(f"{array.ndim} dimensions; expected two: packets, and their bytes")
        count = len(array)
        if out is not None and (out.dtype != numpy.uint8 or out.ndim != 2 or len(out) != count):
            raise ValueError(f"out must be an array of uint8 of {count} rows")
        if lengths is not None:
            lengths = numpy.ascontiguousarray(lengths, dtype=numpy.uint32).tobytes()
        kept = None if out is None else out.tobytes()
        where = (ifindex, queue, cpu)
        *parts, kept = self._native.run_burst((array.tobytes(), count), lengths, kept, where)
        if kept is not None:
            out[:] = numpy.frombuffer(kept, dtype=numpy.uint8).reshape(out.shape)
        return Burst(*(numpy.frombuffer(part, dtype=numpy.uint32) for part in parts))

    def __repr__(self) -> str:
        return f"<towpath.Program {self.name!r}: {self.exec}>"


class Object:
    """A compiled XDP object file with its maps, which its programs share.

    `exec` is how programs are executed: `jit` (machine code), `llvm` (better machine code, which
    takes longer to make), `auto` or `interp` (checks every access). `cpus` is for how many CPUs
    per-CPU maps have values. `globals` sets global variables by name before anything runs,
    `map_size` the number of elements of maps. `host` is what programs are told of theirs.

    `sanitize` says what is done about bytes that programs never set, as `towpath test --sanitize`:
    `off`, `track` (they are followed, which needs `exec="interp"`; `findings` has the mistakes),
    `poison` or `poison:SEED` (the stack begins each run with other bytes).

    Raises OSError, ObjectError, Error (a map that can't be created), ValueError (an argument).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        exec: str = "jit",
        cpus: int = 1,
        globals: Mapping[str, int | bytes] | None = None,
        map_size: Mapping[str, int] | None = None,
        sanitize: str = "off",
        host: Host | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.sanitize = sanitize
        try:
            said = (dict(globals or {}), dict(map_size or {}))
            around = (process.coverage, (host or Host())._native)
            self._native = _native.Object(self.path, (exec, sanitize), cpus, said, around)
        except FileNotFoundError:
            raise missing("object file", self.path) from None
        self._maps = Maps((Map(native) for native in self._native.maps()), self.path)

    @property
    def programs(self) -> dict[str, str]:
        """Names of its programs, with their sections."""
        return dict(self._native.programs())

    @property
    def maps(self) -> dict[str, Map]:
        """Its maps by name, data sections (`.data`, `.bss`) too."""
        return self._maps

    def program(self, name: str | None = None) -> Program:
        """Verifies and compiles a program; without a name the only one.

        Raises VerifierError, or ObjectError where there is no such program or several.
        """
        return Program(self._native.program(name), self)

    def verify(self, name: str | None = None) -> None:
        """Verifies a program, or all of them. Raises VerifierError."""
        for each in [name] if name else self.programs:
            self._native.program(each)

    @property
    def clock(self) -> int | None:
        """The time that programs see, in nanoseconds; None while it is the machine's."""
        return self._native.clock or None

    @clock.setter
    def clock(self, ns: int | None) -> None:
        self._native.clock = ns or 0

    def advance(self, seconds: float | str) -> None:
        """Lets time pass for programs, seconds or a text like `500ms`: from then on they see a
        clock that stands still between calls."""
        self.clock = (self.clock or START_NS) + nanoseconds(seconds)

    def printed(self) -> list[str]:
        """What programs printed (`bpf_printk`) since the last run or call."""
        return self._native.printed()

    def findings(self) -> list[_native.Finding]:
        """What the sanitizer found since the last call: `str()` of each is for people."""
        return self._native.findings()

    def __repr__(self) -> str:
        return f"<towpath.Object {self.path!r}: {', '.join(self.programs)}>"


def _bytes(packet: Any) -> bytes:
    if isinstance(packet, (int, str)):
        raise TypeError(f"a packet is bytes, not {type(packet).__name__}")
    return bytes(packet)


_ACTIONS = frozenset(Action)

"""Objects, programs, and the results of runs."""

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
    """The result of a run on one packet."""

    verdict: Action
    """The program's verdict. A return value that is no action counts as XDP_ABORTED."""
    data: bytes
    """The packet after the run."""
    target: str | None = None
    """The redirect target; None if the packet is not redirected, or has no valid target."""
    metadata: bytes = b""
    """The metadata in front of the packet (`data_meta`)."""
    returned: int = 0
    """The 32-bit number that the program returned."""
    printed: list[str] = field(default_factory=list)
    """Lines that the program printed (`bpf_printk`)."""


@dataclass(frozen=True)
class Burst:
    """The result of a run on many packets: numpy arrays with an element for each packet."""

    verdicts: Any
    """Return values (uint32); compare them with Action."""
    lengths: Any
    """Length of each packet after the run (uint32), even if `out` has no room for it."""


class Program:
    """A program that was verified and is ready to run: `Object.program`."""

    def __init__(self, native: _native.Program, owner: "Object") -> None:
        self._native = native
        self._owner = owner

    @property
    def name(self) -> str:
        """The program's function name in C."""
        return self._native.name

    @property
    def exec(self) -> str:
        """The executor that runs the program: `interp`, `jit` or `llvm`."""
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
        """Runs the program on one packet: bytes, or anything that `bytes()` accepts (packets of
        Scapy or dpkt, an array of uint8).

        `hints` are the port's receive hints for the packet: `hash`, `hash_type`, `timestamp`
        (nanoseconds), `vlan_tci`, `vlan_proto`. Without it, the packet has no hints.

        Raises ValueError for a packet that is too long for a frame, and Fault for behaviour that is
        impossible for a verified program.
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
        """Runs the program on each row of a numpy array of uint8 with the shape (packets, bytes).
        This is faster than `run`, and needs numpy.

        `lengths` (uint32) has the length of each packet; by default, each packet is as long as a
        row. `out`, an array with the same number of rows, receives the packets as the program left
        them, cut to the length of a row; it may be `packets` itself.
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

    def call(self, context: Any = b"", *, cpu: int = 0) -> tuple[int, bytes]:
        """Calls it, if it is in section `syscall`: such programs set maps up for others. `context`
        is what it is given; gives what it returned, and the context as it left it.

        Raises ValueError for a program of another section, or a context of the wrong length, Fault
        for what no verified program can do.
        """
        return self._native.call(_bytes(context), cpu)

    def __repr__(self) -> str:
        return f"<towpath.Program {self.name!r}: {self.exec}>"


class Object:
    """A compiled XDP object file with its maps, which its programs share.

    `exec` is the executor: `jit` (machine code), `llvm` (better machine code, which takes longer to
    compile), `auto` or `interp` (checks every access). `cpus` is the number of CPUs for which
    per-CPU maps have values. `globals` sets global variables by name before any program runs,
    `map_size` sets the number of elements of maps by name. `host` is the host that programs see.

    `sanitize` is the treatment of bytes that programs never set, as in `towpath test --sanitize`:
    `off`, `track` (follows such bytes and reports mistakes in `findings`; needs `exec="interp"`),
    `poison` or `poison:SEED` (fills the stack with random bytes before each run).

    Raises OSError, ObjectError, Error (a map can't be created), ValueError (a wrong argument).
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
        """Names of the object's programs, with their sections."""
        return dict(self._native.programs())

    @property
    def maps(self) -> dict[str, Map]:
        """The object's maps by name, including data sections (`.data`, `.bss`)."""
        return self._maps

    def program(self, name: str | None = None) -> Program:
        """Verifies and compiles a program; without a name, the object's only one.

        Raises VerifierError, or ObjectError if no program or more than one matches.
        """
        return Program(self._native.program(name), self)

    def verify(self, name: str | None = None) -> None:
        """Verifies a program, or all programs of the object. Raises VerifierError."""
        for each in [name] if name else self.programs:
            self._native.program(each)

    @property
    def clock(self) -> int | None:
        """The clock that programs see, in nanoseconds; None for the machine's clock."""
        return self._native.clock or None

    @clock.setter
    def clock(self, ns: int | None) -> None:
        self._native.clock = ns or 0

    def advance(self, seconds: float | str) -> None:
        """Advances the clock that programs see, by a number of seconds or a text like `500ms`.
        From the first call on, that clock stands still between calls."""
        self.clock = (self.clock or START_NS) + nanoseconds(seconds)

    def printed(self) -> list[str]:
        """Lines that programs printed (`bpf_printk`) since the last run or call."""
        return self._native.printed()

    def findings(self) -> list[_native.Finding]:
        """Findings of the sanitizer since the last call; `str()` of a finding is its report."""
        return self._native.findings()

    def __repr__(self) -> str:
        return f"<towpath.Object {self.path!r}: {', '.join(self.programs)}>"


def _bytes(packet: Any) -> bytes:
    if isinstance(packet, (int, str)):
        raise TypeError(f"a packet is bytes, not {type(packet).__name__}")
    return bytes(packet)


_ACTIONS = frozenset(Action)

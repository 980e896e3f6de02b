"""The host around programs: what look-ups find, and what time it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from .files import missing

if TYPE_CHECKING:
    from .objects import Object

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True


class Host:
    """What programs are told of their host: interfaces, routes and neighbours
    (`bpf_fib_lookup`, `bpf_check_mtu`), sockets (`bpf_sk_lookup_tcp`), connections
    (`bpf_xdp_ct_lookup`). There are none at first.

    Words and defaults are those of files of cases and tables; a device is a name or an ifindex.
    What is added is there from the next run on. Everything raises ValueError for what makes no
    sense, and then changes nothing.
    """

    def __init__(self, tables: str | os.PathLike[str] | None = None) -> None:
        self._native = _native.Host()
        self._folder = Path()
        if tables is not None:
            self.load(tables)

    def load(self, tables: str | os.PathLike[str]) -> None:
        """Takes interfaces, routes and neighbours from a file, in place of those there are."""
        path = self._folder / tables
        if not path.exists():
            raise missing("file of tables", path)
        self._native.load(os.fspath(path))

    def interface(
        self,
        name: str,
        ifindex: int,
        *,
        mac: str | None = None,
        mtu: int | None = None,
        up: bool | None = None,
        forwarding: bool | None = None,
        forwarding_v4: bool | None = None,
        forwarding_v6: bool | None = None,
        addresses: Iterable[str] = (),
        vlan: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds an interface. `vlan` makes it one of a tag: `{"lower": "eth0", "id": 100}`."""
        self._add("interface", locals())

    def route(
        self,
        to: str,
        *,
        via: str | None = None,
        dev: str | int | None = None,
        next_hops: Iterable[Mapping[str, Any]] = (),
        type: str | None = None,
        table: int | None = None,
        metric: int | None = None,
        mtu: int | None = None,
        src: str | None = None,
    ) -> None:
        """Adds a route to a prefix or `default`, in the words of `ip route`."""
        self._add("route", locals())

    def neighbour(self, address: str, *, dev: str | int, mac: str) -> None:
        """Adds a neighbour whose Ethernet address is known."""
        self._add("neighbour", locals())

    def socket(
        self,
        protocol: str,
        local: str,
        *,
        remote: str | None = None,
        ifindex: int | None = None,
        mark: int | None = None,
    ) -> None:
        """Adds a socket of `tcp` or `udp`, bound to `ADDRESS:PORT`. Without `remote` it listens."""
        self._add("socket", locals())

    def connection(
        self,
        protocol: str,
        source: str,
        destination: str,
        *,
        timeout: str | None = None,
        assured: bool | None = None,
        mark: int | None = None,
    ) -> None:
        """Adds a connection that is tracked, for `timeout` (5 days) from the next run on."""
        self._add("connection", locals())

    def _add(self, what: str, said: dict[str, Any]) -> None:
        said.pop("self")
        entry = {key: _plain(value) for key, value in said.items() if value is not None}
        self._native.add(what, entry)


class Clock:
    """The time that programs of several objects see: an hour after the machine's start at first,
    and it stands still until it is told to advance."""

    def __init__(self) -> None:
        self._ns = START_NS
        self._objects: list[Object] = []

    @property
    def ns(self) -> int:
        """The time, in nanoseconds."""
        return self._ns

    @ns.setter
    def ns(self, ns: int) -> None:
        self._ns = ns
        for each in self._objects:
            each.clock = ns

    def advance(self, time: float | str) -> None:
        """Lets time pass: seconds, or a text like `500ms`."""
        self.ns += nanoseconds(time)

    def add(self, object: Object) -> None:
        """Has an object's programs see this time."""
        self._objects.append(object)
        object.clock = self._ns


def nanoseconds(time: float | str) -> int:
    """Of seconds, or a text like `500ms`."""
    return _native.nanoseconds(time) if isinstance(time, str) else round(time * 1e9)


def _plain(value: Any) -> Any:
    """Addresses become text (`ipaddress`), other iterables lists."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not hasattr(value, "compressed"):
        return [_plain(part) for part in value]
    return str(value)


# Programs that compare with a time of 0 in a map see that it is long ago.
START_NS = 3600 * 10**9

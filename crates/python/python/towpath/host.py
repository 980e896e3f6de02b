"""The host that programs see: its tables, and its clock."""

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
    """The host that programs see: interfaces, routes and neighbours (`bpf_fib_lookup`,
    `bpf_check_mtu`), sockets (`bpf_sk_lookup_tcp`), connections (`bpf_xdp_ct_lookup`). A new host
    has none.

    Names and defaults are those of case files and table files; a device is a name or an ifindex.
    Programs see new entries from their next run on. Each method raises ValueError for an impossible
    entry, and then changes nothing.
    """

    def __init__(self, tables: str | os.PathLike[str] | None = None) -> None:
        self._native = _native.Host()
        self._folder = Path()
        if tables is not None:
            self.load(tables)

    def load(self, tables: str | os.PathLike[str]) -> None:
        """Replaces all interfaces, routes and neighbours by those of a file."""
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
        """Adds an interface. `vlan` makes it a VLAN interface: `{"lower": "eth0", "id": 100}`."""
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
        """Adds a route to a prefix or `default`; the arguments have the names of `ip route`."""
        self._add("route", locals())

    def neighbour(self, address: str, *, dev: str | int, mac: str) -> None:
        """Adds a neighbour with its Ethernet address."""
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
        """Adds a `tcp` or `udp` socket, bound to `ADDRESS:PORT`. Without `remote`, it listens."""
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
        """Adds a tracked connection; `timeout` (default 5 days) begins at the next run."""
        self._add("connection", locals())

    def _add(self, what: str, said: dict[str, Any]) -> None:
        said.pop("self")
        entry = {key: _plain(value) for key, value in said.items() if value is not None}
        self._native.add(what, entry)


class Clock:
    """A clock for the programs of several objects. It begins one hour after the machine's start,
    and stands still except for `advance`."""

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
        """Advances the clock by a number of seconds, or by a text like `500ms`."""
        self.ns += nanoseconds(time)

    def add(self, object: Object) -> None:
        """Makes the programs of an object see this clock."""
        self._objects.append(object)
        object.clock = self._ns


def nanoseconds(time: float | str) -> int:
    """Nanoseconds of a time, which is a number of seconds or a text like `500ms`."""
    return _native.nanoseconds(time) if isinstance(time, str) else round(time * 1e9)


def _plain(value: Any) -> Any:
    """Converts addresses (`ipaddress`) to text, and other iterables to lists."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not hasattr(value, "compressed"):
        return [_plain(part) for part in value]
    return str(value)


# Programs that compare the clock with a time of 0 in a map see a long time between them.
START_NS = 3600 * 10**9

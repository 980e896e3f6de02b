"""Maps as dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from . import _native

# pytest shows no frames of this module below a failure.
__tracebackhide__ = True


class Map(MutableMapping[Any, Any]):
    """A map. Keys and values have the types of the object's BTF, and are bytes without BTF.

    Structs are dicts, arrays are lists, and addresses are text if their type marks them as
    addresses. An element of a per-CPU map is a list with a value for each CPU; a single value is
    stored for all CPUs. Values of program arrays are names of the object's programs, values of maps
    of maps are maps. Bytes are accepted for any type.
    """

    def __init__(self, native: _native.Map) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The map's name in C."""
        return self._native.name

    @property
    def kind(self) -> str:
        """The kernel's name of the map's kind: `hash`, `lru_hash`, `array`..."""
        return self._native.kind

    @property
    def max_entries(self) -> int:
        """Number of elements that the map has room for; the size in bytes of a ring buffer."""
        return self._native.max_entries

    def __getitem__(self, key: Any) -> Any:
        value = self._native.lookup(_plain(key))
        if value is None:
            raise KeyError(key)
        return Map(value) if isinstance(value, _native.Map) else value

    def __setitem__(self, key: Any, value: Any) -> None:
        value = dict(value) if isinstance(value, Map) else value
        self._native.store(_plain(key), _plain(value))

    def __delitem__(self, key: Any) -> None:
        if not self._native.delete(_plain(key)):
            raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return (_hashable(key) for key in self._native.keys())

    def __len__(self) -> int:
        return len(self._native.keys())

    def push(self, value: Any) -> None:
        """Adds a value to a queue, a stack or a bloom filter. Raises Error if the map is full."""
        self._native.push(_plain(value))

    def pop_value(self) -> Any:
        """Removes and returns the next value of a queue or stack; None if it is empty."""
        return self._native.pop()

    def peek(self) -> Any:
        """Returns the next value of a queue or stack, and keeps it; None if it is empty."""
        return self._native.peek()

    def records(self) -> list[bytes]:
        """Removes and returns the records that programs sent to a ring buffer or as perf events."""
        return self._native.records()

    def __repr__(self) -> str:
        return f"<towpath.Map {self.name!r}: {self.kind}, {self.max_entries} entries>"


class Maps(dict[str, Map]):
    """An object's maps by name."""

    def __init__(self, maps: Iterable[Map], path: str) -> None:
        super().__init__((each.name, each) for each in maps)
        self._path = path

    def __missing__(self, name: object) -> Map:
        raise NoSuchMap(f"no map {name!r} in {self._path}{_native.among(str(name), list(self))}")


class NoSuchMap(KeyError):
    """The error for a map that the object does not have; it lists the object's maps."""

    def __str__(self) -> str:
        return str(self.args[0])


class Struct(dict[str, Any]):
    """A struct as a key: a dict with a hash, so that it can be a key of other dicts."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


def _hashable(key: Any) -> Any:
    if isinstance(key, dict):
        return Struct(key)
    return tuple(key) if isinstance(key, list) else key


def _plain(value: Any) -> Any:
    """Converts a value for the native half: addresses to text, arrays and tuples to lists."""
    if value is None or isinstance(value, (bytes, str, int, float)):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):  # a number of numpy's
        return value.item()
    return str(value)

"""The native half: crates/python/src. Not for use by others."""

from typing import Any

__version__: str

class Error(Exception): ...
class ObjectError(Error): ...

class VerifierError(Error):
    program: str
    reason: str
    hint: str
    errno: str | None
    insn: int | None
    instruction: str | None
    file: str | None
    line: int | None
    column: int | None
    source: str | None
    registers: str

class Fault(Error): ...

class Finding:
    kind: str
    severity: str
    program: str
    insn: int
    file: str | None
    line: int | None
    source: str
    message: str
    related: list[str]
    hint: str

class Map:
    name: str
    kind: str
    max_entries: int
    key_size: int
    value_size: int
    is_keyless: bool
    def lookup(self, key: Any) -> Any: ...
    def store(self, key: Any, value: Any) -> None: ...
    def delete(self, key: Any) -> bool: ...
    def keys(self) -> list[Any]: ...
    def push(self, value: Any) -> None: ...
    def pop(self) -> Any: ...
    def peek(self) -> Any: ...
    def records(self) -> list[bytes]: ...

class Run:
    returned: int
    target: str | None
    data: bytes
    metadata: bytes

class Program:
    name: str
    def exec(self) -> tuple[str, str | None]: ...
    def run(self, packet: bytes, metadata: bytes, arrival: tuple[int, int, int]) -> Run: ...
    def run_burst(
        self,
        packets: tuple[bytes, int],
        lengths: bytes | None,
        out: bytes | None,
        arrival: tuple[int, int, int],
    ) -> tuple[bytes, bytes, bytes | None]: ...

class Tally:
    def add(self, object: Object) -> None: ...
    def findings(self) -> list[Finding]: ...

class Object:
    clock: int
    def __init__(
        self,
        path: str,
        exec: str,
        cpus: int,
        globals: dict[str, int | bytes],
        map_size: dict[str, int],
        sanitize: str,
    ) -> None: ...
    def programs(self) -> list[tuple[str, str]]: ...
    def program(self, name: str | None) -> Program: ...
    def maps(self) -> list[Map]: ...
    def printed(self) -> list[str]: ...
    def findings(self) -> list[Finding]: ...

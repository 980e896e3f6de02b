"""The native half: crates/python/src. Not for use by others."""

from typing import Any

__version__: str

def among(wanted: str, names: list[str]) -> str: ...
def nanoseconds(time: str) -> int: ...

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

class Coverage:
    def document(self) -> str: ...
    def merge(self, document: str) -> None: ...
    def rows(self) -> list[tuple[str, str, str]]: ...
    def unreached(self) -> list[str]: ...
    def tracefile(self) -> str: ...
    def page(self) -> str: ...

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

class Host:
    def add(self, what: str, entry: dict[str, Any]) -> None: ...
    def load(self, path: str) -> None: ...

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
    def run(
        self,
        packet: bytes,
        metadata: bytes,
        arrival: tuple[int, int, int],
        hints: dict[str, int] | None,
    ) -> Run: ...
    def run_burst(
        self,
        packets: tuple[bytes, int],
        lengths: bytes | None,
        out: bytes | None,
        arrival: tuple[int, int, int],
    ) -> tuple[bytes, bytes, bytes | None]: ...
    def call(self, context: bytes, cpu: int) -> tuple[int, bytes]: ...

class Tally:
    def add(self, object: Object) -> None: ...
    def findings(self) -> list[Finding]: ...

class Object:
    clock: int
    def __init__(
        self,
        path: str,
        how: tuple[str, str],
        cpus: int,
        set: tuple[dict[str, int | bytes], dict[str, int]],
        around: tuple[Coverage | None, Host],
    ) -> None: ...
    def programs(self) -> list[tuple[str, str]]: ...
    def program(self, name: str | None) -> Program: ...
    def maps(self) -> list[Map]: ...
    def printed(self) -> list[str]: ...
    def findings(self) -> list[Finding]: ...

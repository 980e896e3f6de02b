"""XDP in user space: test compiled XDP programs without root, a kernel or a NIC.

    >>> import towpath
    >>> firewall = towpath.Object("firewall.o").program()
    >>> firewall.run(packet).verdict
    <Action.XDP_PASS: 2>
"""

from ._native import Error, Fault, Finding, ObjectError, VerifierError, __version__
from .compiler import CompileError, compile
from .host import Clock, Host
from .maps import Map
from .objects import Action, Burst, Object, Program, Result

__all__ = [
    "Action",
    "Burst",
    "Clock",
    "CompileError",
    "Error",
    "Fault",
    "Finding",
    "Host",
    "Map",
    "Object",
    "ObjectError",
    "Program",
    "Result",
    "VerifierError",
    "__version__",
    "compile",
]

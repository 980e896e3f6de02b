"""What holds for all objects of this process."""

from __future__ import annotations

from . import _native

coverage: _native.Coverage | None = None
"""Where it is added what interpreted programs reach, if anybody wants to know."""

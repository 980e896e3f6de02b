"""Settings of all objects in this process."""

from __future__ import annotations

from . import _native

coverage: _native.Coverage | None = None
"""Collects the lines that interpreted programs reach; None if coverage is not requested."""

"""The fleet API for tests of parts that use one."""

from __future__ import annotations

from tests.cli.client.conftest import fleet

__all__ = ["fleet"]

"""Chromium, for tests that drive a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tools.services import debian


@contextmanager
def provide() -> Iterator[None]:
    """Install chromium if it is missing. Each test starts its own."""
    if shutil.which("chromium") is None:
        debian.install("chromium")
    yield

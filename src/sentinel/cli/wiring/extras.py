"""Optional dependencies: what to install is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sentinel.ports.errors import Misconfigured


@contextmanager
def extra(name: str, *, who: str) -> Iterator[None]:
    """Around an import that needs an extra; `who` asks for it, as the message begins."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Misconfigured(f"{who} needs {error.name}; install fleet-sentinel[{name}]") from error

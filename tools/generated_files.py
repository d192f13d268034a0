"""Writes files that a tool generates, or with --check verifies that they are up to date."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def write_or_check(files: Mapping[Path, str]) -> int:
    """Write the files that would change and return 0. With --check, name them, and return 1 if there is one."""
    outdated = {file: text for file, text in files.items() if not file.exists() or file.read_text() != text}
    for file, text in outdated.items():
        name = file.relative_to(ROOT)
        if "--check" in sys.argv:
            print(f"{name} is out of date; run `make docs`", file=sys.stderr)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        print(f"wrote {name}")
    return 1 if outdated and "--check" in sys.argv else 0

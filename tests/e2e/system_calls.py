"""Runs a `sentinel` command with the system calls that a unit of systemd permits, and kills it at another one.

    python -m tests.e2e.system_calls UNIT COMMAND…

No test can start systemd itself, but it says what is in its sets, and libseccomp, which it uses, enforces that.
"""

from __future__ import annotations

import ctypes
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

_ALWAYS_PERMITTED: Final = "@default"
_KILL: Final = 0x80000000
_ALLOW: Final = 0x7FFF0000
_UNKNOWN: Final = -1


def permitted(unit: Path) -> frozenset[str]:
    """Return the names of the system calls that a unit permits. Its first list has to be a positive one."""
    names = set(_expanded(_ALWAYS_PERMITTED))
    for line in unit.read_text().splitlines():
        key, _, value = line.partition("=")
        if key != "SystemCallFilter":
            continue
        listed = frozenset[str]().union(*(_expanded(each) for each in value.removeprefix("~").split()))
        names = names - listed if value.startswith("~") else names | listed
    return frozenset(names)


def restrict_to(names: frozenset[str]) -> None:
    """Kill this process, and those that it starts, at any other system call."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_KILL)))
    for name in names:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number != _UNKNOWN:
            library.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, 0)
    if code := library.seccomp_load(context):
        raise OSError(-code, "the filter cannot be loaded")


@cache
def _expanded(name: str) -> frozenset[str]:
    if not name.startswith("@"):
        return frozenset((name,))
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    members = (line.strip() for line in shown.splitlines()[1:])
    return frozenset[str]().union(*(_expanded(each) for each in members if each and not each.startswith("#")))


if __name__ == "__main__":
    restrict_to(permitted(Path(sys.argv.pop(1))))
    runpy.run_module("sentinel.cli", run_name="__main__", alter_sys=True)

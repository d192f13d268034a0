"""Executes a program that the kernel kills when our process dies. `child_process` runs this as a script.

`prctl(PR_SET_PDEATHSIG)` has to be called between fork and exec. A `preexec_fn` could call it, but in a process
with threads no Python code may run there: a lock that another thread holds at the fork is never released in the
child. So a fresh interpreter makes the call and then executes the program.

    python -I -S exec_with_parent.py PARENT_PID EXECUTABLE ARGV0 [ARGUMENT...]
"""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CANNOT_EXECUTE = 126
"""The exit code that shells use."""


def main() -> None:
    """Execute the program. Never returns."""
    parent, executable, *argv = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGKILL)  # the parent died before the call
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec inherits that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(executable, argv, _environment())  # noqa: S606  # no shell needed
    except OSError as error:
        sys.stderr.write(f"{executable}: {error.strerror}\n")
        sys.exit(_CANNOT_EXECUTE)


def _environment() -> Mapping[bytes, bytes]:
    """Return the original environment. Python sets LC_CTYPE at startup if the locale is C."""
    variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)


if __name__ == "__main__":
    main()

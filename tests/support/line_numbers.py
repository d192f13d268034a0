"""Line numbers for tracebacks that lack one.

A signal may interrupt Python 3.11 at an instruction that belongs to no line, such as the jump back of some loops.
`tb_lineno` is None there, and pytest ends with an internal error instead of naming the test that took too long.
"""

from __future__ import annotations

from types import TracebackType


def complete_line_numbers(error: BaseException) -> BaseException:
    """Give every entry of the tracebacks of an exception and of its causes a line number, and return it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _complete(current.__traceback__)
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
    return error


def _complete(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    completed: TracebackType | None = None
    for entry in reversed(entries):
        # The type says int, but an instruction without a line gives None.
        line = entry.tb_lineno or entry.tb_frame.f_code.co_firstlineno
        completed = TracebackType(completed, entry.tb_frame, entry.tb_lasti, line)
    return completed

"""A failure at an instruction without a line is reported like any other."""

from __future__ import annotations

import dis
import sys
from types import TracebackType

import pytest

from tests.support.line_numbers import complete_line_numbers


def _loop(stop: int) -> TracebackType:
    """Return a traceback that ends at the jump back of this loop, which belongs to no line before Python 3.12."""
    frame = sys._getframe()
    for number in range(stop):
        if number:
            stop += 1
    no_line = [
        each.offset for each in dis.get_instructions(frame.f_code) if each.positions and not each.positions.lineno
    ]
    if not no_line:
        pytest.skip("this Python gives every instruction a line")
    return TracebackType(None, frame, no_line[-1], -1)


def test_entries_without_a_line_get_the_line_of_their_function() -> None:
    trace = _loop(2)
    assert trace.tb_lineno is None
    cause = ValueError("cause").with_traceback(trace)
    error = RuntimeError("effect").with_traceback(TracebackType(trace, sys._getframe(), 0, 7))
    error.__cause__ = cause

    completed = complete_line_numbers(error)

    assert completed is error
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_lineno == 7
    assert error.__traceback__.tb_next is not None
    assert error.__traceback__.tb_next.tb_lineno == _loop.__code__.co_firstlineno
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_lineno == _loop.__code__.co_firstlineno
    assert pytest.ExceptionInfo.from_exception(error).getrepr(chain=True)

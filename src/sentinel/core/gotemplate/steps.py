"""The steps of a compiled template. Each acts on the run and returns the index of the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from sentinel.core.gotemplate import tree
from sentinel.core.gotemplate.errors import RenderError
from sentinel.core.gotemplate.evaluate import Evaluate, constant, pipeline
from sentinel.core.gotemplate.printer import go_string
from sentinel.core.gotemplate.quoting import quote
from sentinel.core.gotemplate.run import Loop, Run
from sentinel.core.gotemplate.values import Element, Int, Nothing, Slot, Value, to_value, type_name

MAX_CALL_DEPTH: Final = 1000
"""The maximum depth of nested template calls."""
_SORTED_KEYS_PER_STEP: Final = 8

END: Final = -1
"""The index that ends the run."""
Step: TypeAlias = Callable[[Run], int]


def write(text: str, following: int) -> Step:
    """Print a text."""

    def step(run: Run) -> int:
        run.out.write(text)
        return following

    return step


def print_value(evaluate: Evaluate, following: int) -> Step:
    """Print a value."""

    def step(run: Run) -> int:
        value = evaluate(run)
        if type(value) is str:
            run.out.write(value)
        elif not isinstance(value, Nothing):
            run.out.write(go_string(value))
        elif value is Nothing.ABSENT:
            run.has_missing = True
        return following

    return step


def discard(evaluate: Evaluate, following: int) -> Step:
    """Evaluate a pipeline that only sets variables."""

    def step(run: Run) -> int:
        evaluate(run)
        return following

    return step


def jump(target: int) -> Step:
    return lambda run: target


# Blocks.


def choose(evaluate: Evaluate, chosen: int, other: int) -> Step:
    """`if`"""
    return lambda run: chosen if evaluate(run) else other


def choose_dot(evaluate: Evaluate, chosen: int, other: int) -> Step:
    """`with`"""

    def step(run: Run) -> int:
        value = evaluate(run)
        if not value:
            return other
        run.dot = value
        return chosen

    return step


def enter(following: int) -> Step:
    """Open a scope: save dot and the number of variables."""

    def step(run: Run) -> int:
        run.scopes.append((run.dot, len(run.variables)))
        return following

    return step


def leave(following: int) -> Step:
    """Close a scope: restore dot and drop its variables."""

    def step(run: Run) -> int:
        run.dot, mark = run.scopes.pop()
        del run.variables[mark:]
        return following

    return step


# Templates.


def call(entries: Mapping[str, int], name: str, argument: tree.Pipe | None, following: int) -> Step:
    """`template`. Variables that its argument declares belong to the caller."""
    evaluate = constant(Nothing.NIL) if argument is None else pipeline(argument)

    def step(run: Run) -> int:
        entry = entries.get(name)
        if entry is None:
            raise RenderError(f"template {quote(name)} not defined")
        if len(run.calls) >= MAX_CALL_DEPTH:
            raise RenderError(f"exceeded maximum template depth ({MAX_CALL_DEPTH})")
        value = evaluate(run)
        run.calls.append((following, run.dot, run.variables))
        run.dot = value
        run.variables = [("$", value)]
        return entry

    return step


def return_from_call(run: Run) -> int:
    """Return to the caller at the end of a template."""
    if not run.calls:
        return END
    following, run.dot, run.variables = run.calls.pop()
    return following


# Loops.


def begin_loop(pipe: tree.Pipe, start: int, otherwise: int) -> Step:
    """`range`"""
    evaluate, at, is_paired = pipeline(pipe), pipe.at, len(pipe.variables) > 1

    def step(run: Run) -> int:
        value = evaluate(run)
        if isinstance(value, dict):
            run.spend(len(value) // _SORTED_KEYS_PER_STEP)
        members = _members(value, is_paired, at)
        run.loops.append(Loop(members or iter(()), len(run.variables), len(run.scopes)))
        return otherwise if members is None else start

    return step


def _members(value: Value, is_paired: bool, at: int) -> Iterator[tuple[Slot, Slot]] | None:
    """Return the pairs of index and element that a loop iterates over; None if there are none."""
    if isinstance(value, list):
        return ((Int(index), Element(to_value(item))) for index, item in enumerate(value)) if value else None
    if isinstance(value, dict):
        return ((key, Element(to_value(value[key]))) for key in sorted(value)) if value else None
    if isinstance(value, Nothing):
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise RenderError(f"range can't iterate over a value of type {type_name(value)}", at)
    if is_paired:
        raise RenderError("can't use an integer to iterate over more than one variable", at)
    kind = type(value)
    return ((Nothing.NIL, kind(number)) for number in range(value)) if value > 0 else None


def advance_loop(pipe: tree.Pipe, body: int, end: int) -> Step:
    """Start the next iteration, or end the loop."""
    names, is_assignment, at = pipe.variables, pipe.is_assignment, pipe.at
    skipped = 2 - len(names)  # a single variable is the element

    def step(run: Run) -> int:
        loop = run.loops[-1]
        # Drop the variables of the last iteration and, after a `continue`, the scopes of its blocks.
        del run.variables[loop.mark :]
        del run.scopes[loop.depth :]
        pair = next(loop.members, None)
        if pair is None:
            run.loops.pop()
            return end
        run.dot = pair[1]
        if is_assignment:
            for name, slot in zip(names, pair[skipped:], strict=True):
                run.set(name, slot, at)
        elif names:
            run.variables[-len(names) :] = zip(names, pair[skipped:], strict=True)
        return body

    return step


def end_loop(end: int) -> Step:
    """Leave a loop and the blocks within it."""

    def step(run: Run) -> int:
        del run.scopes[run.loops.pop().depth :]
        return end

    return step


def continue_loop(start: int, elses: int) -> Step:
    """Continue a loop from within the `else` of inner loops; `elses` is their number."""

    def step(run: Run) -> int:
        del run.loops[len(run.loops) - elses :]
        return start

    return step

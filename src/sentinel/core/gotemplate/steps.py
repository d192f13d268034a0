"""The steps that statements are made of: each does its work on the run, and says which step comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from sentinel.core.gotemplate import tree
from sentinel.core.gotemplate.errors import Trouble
from sentinel.core.gotemplate.evaluate import Evaluate, constant, pipeline
from sentinel.core.gotemplate.printer import go_string
from sentinel.core.gotemplate.quoting import quote
from sentinel.core.gotemplate.run import Loop, Run
from sentinel.core.gotemplate.values import Element, Int, Nothing, Slot, Value, taken, type_name

DEEPEST_CALL: Final = 1000
"""How many templates may be under way within each other."""
_SORTED_KEYS_PER_STEP: Final = 8

END: Final = -1
"""The step after the last."""
Step: TypeAlias = Callable[[Run], int]


def write(text: str, following: int) -> Step:
    """Prints a text."""

    def step(run: Run) -> int:
        run.out.write(text)
        return following

    return step


def print_value(evaluate: Evaluate, following: int) -> Step:
    """Prints a value."""

    def step(run: Run) -> int:
        value = evaluate(run)
        if type(value) is str:
            run.out.write(value)
        elif not isinstance(value, Nothing):
            run.out.write(go_string(value))
        elif value is Nothing.ABSENT:
            run.lacks = True
        return following

    return step


def discard(evaluate: Evaluate, following: int) -> Step:
    """Sets variables."""

    def step(run: Run) -> int:
        evaluate(run)
        return following

    return step


def jump(target: int) -> Step:
    """Goes elsewhere."""
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
    """Remembers dot, and which variables there are."""

    def step(run: Run) -> int:
        run.scopes.append((run.dot, len(run.variables)))
        return following

    return step


def leave(following: int) -> Step:
    """Goes back to what was remembered."""

    def step(run: Run) -> int:
        run.dot, mark = run.scopes.pop()
        del run.variables[mark:]
        return following

    return step


# Templates.


def call(entries: Mapping[str, int], name: str, argument: tree.Pipe | None, following: int) -> Step:
    """`template`. What is declared in the argument stays with the caller."""
    evaluate = constant(Nothing.NIL) if argument is None else pipeline(argument)

    def step(run: Run) -> int:
        entry = entries.get(name)
        if entry is None:
            raise Trouble(f"template {quote(name)} not defined")
        if len(run.calls) >= DEEPEST_CALL:
            raise Trouble(f"exceeded maximum template depth ({DEEPEST_CALL})")
        value = evaluate(run)
        run.calls.append((following, run.dot, run.variables))
        run.dot = value
        run.variables = [("$", value)]
        return entry

    return step


def come_back(run: Run) -> int:
    """The end of a template."""
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
    """What a loop goes through: index and element; None where there is nothing."""
    if isinstance(value, list):
        return ((Int(index), Element(taken(item))) for index, item in enumerate(value)) if value else None
    if isinstance(value, dict):
        return ((key, Element(taken(value[key]))) for key in sorted(value)) if value else None
    if isinstance(value, Nothing):
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Trouble(f"range can't iterate over a value of type {type_name(value)}", at)
    if is_paired:
        raise Trouble("can't use an integer to iterate over more than one variable", at)
    kind = type(value)
    return ((Nothing.NIL, kind(number)) for number in range(value)) if value > 0 else None


def advance_loop(pipe: tree.Pipe, body: int, end: int) -> Step:
    """The next round, or the end."""
    names, is_assignment, at = pipe.variables, pipe.is_assignment, pipe.at
    skipped = 2 - len(names)  # with one variable, it is the element

    def step(run: Run) -> int:
        loop = run.loops[-1]
        # What the last round declared goes, and after a `continue` the blocks that it was in.
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
    """Leaves a loop, and the blocks within it."""

    def step(run: Run) -> int:
        del run.scopes[run.loops.pop().depth :]
        return end

    return step


def continue_loop(start: int, elses: int) -> Step:
    """Goes on with a loop, from the `else` of so many within it."""

    def step(run: Run) -> int:
        del run.loops[len(run.loops) - elses :]
        return start

    return step

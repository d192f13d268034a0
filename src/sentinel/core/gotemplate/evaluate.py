"""Expressions, compiled into functions of a `Run`: fields, variables, constants and calls.

Go decides much of this by reflection at run time. Here everything that depends on the source alone is decided at
compile time. Errors are raised where Go raises them: at run time, and only if the expression is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, assert_never

from sentinel.core.gotemplate import tree
from sentinel.core.gotemplate.errors import RenderError
from sentinel.core.gotemplate.functions import FUNCTIONS, LAZY_FUNCTIONS, Builtin
from sentinel.core.gotemplate.run import Run
from sentinel.core.gotemplate.values import Element, Nothing, Slice, Slot, Value, describe_type, to_value, unwrap

_CHARACTERS_PER_STEP: Final = 128
_MEMBER_CHARACTERS_PER_STEP: Final = 8  # each member of a list or an object is printed separately

Evaluate: TypeAlias = Callable[[Run], Value]
_Stage: TypeAlias = Callable[[Run, Value], Value]


def pipeline(pipe: tree.Pipe) -> Evaluate:
    """Compile a pipeline. Evaluating it sets its variables."""
    first, *others = pipe.commands
    begin = _first(first)
    stages = [_stage(command) for command in others]
    names, at, is_assignment = pipe.variables, pipe.at, pipe.is_assignment
    if not stages and not names:
        return begin

    def evaluate(run: Run) -> Value:
        value = begin(run)
        for stage in stages:
            value = stage(run, value)
        for name in names:
            if is_assignment:
                run.set(name, value, at)
            else:
                run.variables.append((name, value))
        return value

    return evaluate


def _first(command: tree.Command) -> Evaluate:
    """Compile the first command of a pipeline."""
    word, *arguments = command.words
    match word:
        case tree.Function():
            return _call(word, arguments)
        case tree.Field(names=names) | tree.Variable(names=names) | tree.Chain(names=names) if names and arguments:
            return _field_with_arguments(word)
        case tree.Nil(at=at):
            return _failing("nil is not a command", at)
    if arguments:
        return _failing(f"can't give argument to non-function {tree.describe(word)}", word.at)
    return operand(word)


def _stage(command: tree.Command) -> _Stage:
    """Compile a later command. It gets the result of the one before as its last argument."""
    word, *arguments = command.words
    match word:
        case tree.Function():
            return _prepared(word, arguments, has_final=True)
        case tree.Field(names=names) | tree.Variable(names=names) | tree.Chain(names=names) if names:
            fail = _field_with_arguments(word)
        case _:
            fail = _failing(f"can't give argument to non-function {tree.describe(word)}", word.at)
    return lambda run, final: fail(run)


def operand(word: tree.Word) -> Evaluate:
    """Compile a word that is used as a value."""
    match word:
        case tree.Dot():
            return lambda run: unwrap(run.dot)
        case tree.Nil():
            return constant(Nothing.NIL)
        case tree.Bool(value=value) | tree.String(value=value):
            return constant(value)
        case tree.Number(at=at, text=text, value=number):
            return _failing(f"{text} overflows int", at) if number is None else constant(number)
        case tree.Field(at=at, names=names):
            return _field(names, at)
        case tree.Variable(at=at, names=names) | tree.Chain(at=at, names=names):
            receiver = _receiver(word)
            return lambda run: _members(receiver(run), names, at) if names else unwrap(receiver(run))
        case tree.Function():
            return _call(word, ())
        case tree.Pipe():
            return pipeline(word)
        case _:
            assert_never(word)


def constant(value: Value) -> Evaluate:
    """Compile a constant."""
    return lambda run: value


def _failing(problem: str, at: int) -> Evaluate:
    def evaluate(run: Run) -> Value:
        raise RenderError(problem, at)

    return evaluate


def _field(names: tuple[str, ...], at: int) -> Evaluate:
    if len(names) > 1:
        return lambda run: _members(run.dot, names, at)
    (name,) = names

    def member(run: Run) -> Value:
        # Fast path: most templates print strings at the top of the document.
        if type(run.dot) is dict and type(value := run.dot.get(name)) is str:
            return value
        return _members(run.dot, names, at)

    return member


def _receiver(word: tree.Field | tree.Variable | tree.Chain) -> Callable[[Run], Slot]:
    """Compile the value in which the names of the word are looked up."""
    match word:
        case tree.Field():
            return lambda run: run.dot
        case tree.Variable(at=at, name=name):
            return lambda run: run.get(name, at)
        case tree.Chain(inner=inner):
            return operand(inner)
        case _:
            assert_never(word)


def _members(slot: Slot, names: tuple[str, ...], at: int) -> Value:
    return to_value(_reach(slot, names, at))


def _reach(slot: Slot, names: Sequence[str], at: int) -> Value | None:
    """Return the member at the end of the path as the document has it: null is still None."""
    value: Value | None
    if isinstance(slot, Element):
        value = None if slot.value is Nothing.NIL else slot.value
    else:
        value = slot
    for name in names:
        if isinstance(value, dict):
            value = value.get(name, Nothing.ABSENT)
        elif isinstance(value, Nothing):
            return Nothing.ABSENT
        else:
            raise RenderError(f"can't evaluate field {name} in {describe_type(value)}", at)
    return value


def _field_with_arguments(word: tree.Field | tree.Variable | tree.Chain) -> Evaluate:
    """Compile `.a.b 1`. JSON has no methods, so this is absent if `.a` is, and an error otherwise."""
    *path, name = word.names
    receiver, at = _receiver(word), word.at

    def evaluate(run: Run) -> Value:
        if isinstance(_reach(receiver(run), path, at), Nothing):
            return Nothing.ABSENT
        raise RenderError(f"{name} is not a method but has arguments", at)

    return evaluate


# Calls.


def _call(word: tree.Function, words: Sequence[tree.Word]) -> Evaluate:
    stage = _prepared(word, words, has_final=False)
    return lambda run: stage(run, Nothing.NIL)


def _prepared(word: tree.Function, words: Sequence[tree.Word], *, has_final: bool) -> _Stage:
    name, at, count = word.name, word.at, len(words) + has_final
    function = FUNCTIONS.get(name)
    minimum, maximum = (function.min_arguments, function.max_arguments) if function else (1, None)
    if count < minimum or (maximum is not None and count > maximum):
        wanted = f"at least {minimum}" if maximum is None else f"{maximum}"
        fail = _failing(f"wrong number of args for {name}: want {wanted} got {count}", at)
        return lambda run, final: fail(run)
    if function is None:
        stops_at = LAZY_FUNCTIONS[name]
        return _short_circuit([operand(each) for each in words], stops_at=stops_at, has_final=has_final)
    arguments = [_argument(name, index, each) for index, each in enumerate(words)]
    return _applied(function, name, at, arguments, has_final)


def _applied(function: Builtin, name: str, at: int, arguments: list[Evaluate], has_final: bool) -> _Stage:
    apply, prints = function.run, function.prints

    def evaluate(run: Run, final: Value) -> Value:
        values = [argument(run) for argument in arguments]
        if has_final:
            values.append(final)
        size, per_step = 0, _CHARACTERS_PER_STEP
        for value in values:
            if isinstance(value, str):
                size += len(value)
            elif isinstance(value, list | dict):
                per_step = _MEMBER_CHARACTERS_PER_STEP
            elif prints and value is Nothing.ABSENT:
                run.has_missing = True
        try:
            result = apply(values)
        except RenderError as error:
            raise RenderError(f"error calling {name}: {error.problem}", at) from error
        if isinstance(result, str | Slice):
            size += len(result)
        run.spend(1 + size // per_step)
        return result

    return evaluate


def _short_circuit(arguments: list[Evaluate], *, stops_at: bool, has_final: bool) -> _Stage:
    def evaluate(run: Run, final: Value) -> Value:
        value: Value = Nothing.NIL
        for argument in arguments:
            value = argument(run)
            if bool(value) is stops_at:
                return value
        return final if has_final else value

    return evaluate


def _argument(function: str, index: int, word: tree.Word) -> Evaluate:
    if function == "printf" and index == 0 and isinstance(word, tree.Bool | tree.Number | tree.Nil):
        return _failing(f"expected string; found {tree.describe(word)}", word.at)
    if function == "slice" and index > 0:
        return _slice_index(word)
    return operand(word)


def _slice_index(word: tree.Word) -> Evaluate:
    """Compile an index of `slice`. Unlike for `index`, Go does not unwrap the interface that it may be in."""
    wrapped = "cannot index slice/array with type interface {}"
    match word:
        case tree.Dot(at=at):
            return lambda run: _bare(run.dot, wrapped, at)
        case tree.Variable(at=at, name=name, names=()):
            return lambda run: _bare(run.get(name, at), wrapped, at)
        case tree.Field(at=at) | tree.Variable(at=at) | tree.Chain(at=at):
            return _failing(wrapped, at)
    return operand(word)


def _bare(slot: Slot, problem: str, at: int) -> Value:
    if type(slot) is Element:
        raise RenderError(problem, at)
    return unwrap(slot)

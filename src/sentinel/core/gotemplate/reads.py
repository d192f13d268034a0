"""Which paths of a document a template may read, so that a server can be asked for just those.

The template is followed as if every branch were taken. A value that is only passed through on the way to one of
its members need not be fetched whole; one that is printed, compared, tested or looped over must. Where following
becomes guesswork, more is asked for rather than less. It holds for a server that leaves what stands in the way of
a path as it is (`a.b` where `a` is a string): then the template fails on its answer as it would on the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import TypeAlias

from sentinel.core.gotemplate import tree

Path: TypeAlias = tuple[str, ...]
_Places: TypeAlias = frozenset[Path]
"""The places in the document that a value may come from; none for a value that is fetched already."""

_FETCHED: _Places = frozenset()
_WHOLE: _Places = frozenset({()})
_MOST_CALLS = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def fields_read(templates: tree.Templates, main: str) -> frozenset[Path]:
    """The paths, none of which is part of another; the empty path is the whole document."""
    follower = _Follower(templates)
    follower.follow(main)
    touched, read = follower.touched, follower.read
    # What was looked at but never used is still looked at, and that may fail.
    on_the_way = {path[:size] for path in read for size in range(len(path))}
    read |= {path for path in touched if path not in on_the_way}
    return shortest(read)


def shortest(paths: Set[Path]) -> frozenset[Path]:
    """The paths without those that are part of another."""
    return frozenset(path for path in paths if not any(path[:size] in paths for size in range(len(path))))


class _Follower:
    def __init__(self, templates: tree.Templates) -> None:
        self.touched: set[Path] = set()
        self.read: set[Path] = set()
        self._templates = templates
        self._waiting: list[tuple[str, _Places, int]] = []
        self._seen: set[tuple[str, _Places]] = set()
        self._depth = 0
        self._dot = _FETCHED
        self._variables: list[tuple[str, _Places]] = []

    def follow(self, main: str) -> None:
        """Follows every template from the places that it is called with."""
        self._call(main, _WHOLE)
        while self._waiting:
            name, self._dot, self._depth = self._waiting.pop()
            self._variables = [("$", self._dot)]
            self._body(self._templates[name])

    def _call(self, name: str, dot: _Places) -> None:
        if self._depth >= len(self._templates) or len(self._seen) >= _MOST_CALLS:
            # It calls itself, by whatever detour, maybe with ever longer paths.
            dot = self._use(dot)
        if name in self._templates and (name, dot) not in self._seen:
            self._seen.add((name, dot))
            self._waiting.append((name, dot, self._depth + 1))

    def _use(self, places: _Places) -> _Places:
        """The value itself is needed, with all that is in it."""
        self.read |= places
        return _FETCHED

    # Statements.

    def _body(self, body: tree.Body) -> None:
        for statement in body:
            match statement:
                case tree.Action(pipe=pipe):
                    places = self._pipe(pipe)
                    if not pipe.variables:
                        self._use(places)
                case tree.Branch(sets_dot=sets_dot, arms=arms, otherwise=otherwise):
                    self._block(arms, otherwise, sets_dot=sets_dot)
                case tree.Range(pipe=pipe, body=inner, otherwise=otherwise):
                    self._block(((pipe, inner),), otherwise, sets_dot=True)
                case tree.Invoke(name=name, pipe=argument):
                    self._call(name, self._pipe(argument) if argument else _FETCHED)

    def _block(self, arms: Iterable[tuple[tree.Pipe, tree.Body]], otherwise: tree.Body, *, sets_dot: bool) -> None:
        dot, mark = self._dot, len(self._variables)
        for pipe, body in arms:
            fetched = self._use(self._pipe(pipe))
            if sets_dot:
                self._dot = fetched
            self._body(body)
            self._dot = dot
        self._body(otherwise)
        del self._variables[mark:]

    # Expressions.

    def _pipe(self, pipe: tree.Pipe) -> _Places:
        first, *others = pipe.commands
        places = self._command(first)
        for command in others:
            self._use(places)
            places = self._command(command, has_final=True)
        for name in pipe.variables:
            if pipe.is_assignment:
                # Whatever else the variable holds it keeps: the assignment may be in a branch that is not taken.
                places = self._use(places)
            else:
                self._variables.append((name, places))
        return places

    def _command(self, command: tree.Command, *, has_final: bool = False) -> _Places:
        word, *arguments = command.words
        if not isinstance(word, tree.Function):
            # Its arguments, if it has any, are never looked at.
            return self._word(word)
        if word.name == "index" and arguments and not has_final:
            return self._index(arguments[0], arguments[1:])
        for argument in arguments:
            self._use(self._word(argument))
        return _FETCHED

    def _index(self, item: tree.Word, keys: Iterable[tree.Word]) -> _Places:
        """`index .labels "region"` is as good as a path, if the key could be written as one."""
        places = self._word(item)
        for key in keys:
            if isinstance(key, tree.String) and _NAME.fullmatch(key.value):
                places = self._members(places, (key.value,))
            else:
                places = self._use(places)
                self._use(self._word(key))
        return places

    def _word(self, word: tree.Word) -> _Places:
        match word:
            case tree.Dot():
                return self._dot
            case tree.Field(names=names):
                return self._members(self._dot, names)
            case tree.Variable(name=name, names=names):
                held = frozenset[Path]().union(*(places for known, places in self._variables if known == name))
                return self._members(held, names)
            case tree.Chain(inner=inner, names=names):
                return self._members(self._word(inner), names)
            case tree.Pipe():
                return self._pipe(word)
        return _FETCHED

    def _members(self, places: _Places, names: Path) -> _Places:
        found = frozenset(path + names for path in places)
        self.touched |= found
        return found

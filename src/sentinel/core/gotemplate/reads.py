"""Which paths of a document a template may read, to request only those from a server.

The analysis assumes that every branch is taken. If only a member of a value is used, only that member is fetched.
A value that is printed, compared, tested or iterated over is fetched whole. If unsure, more is fetched. If a path
cannot be followed (`a.b` if `a` is a string), the server must return the value there whole, so that the template
fails as it would on the whole document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import TypeAlias

from sentinel.core.gotemplate import tree

Path: TypeAlias = tuple[str, ...]
_Paths: TypeAlias = frozenset[Path]
"""The paths that a value may come from; empty for a value that is fetched already."""

_FETCHED: _Paths = frozenset()
_WHOLE: _Paths = frozenset({()})
_MAX_CALLS = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def fields_read(templates: tree.Templates, main: str) -> frozenset[Path]:
    """Return the paths, none of which is below another. The empty path is the whole document."""
    analysis = _Analysis(templates)
    analysis.run(main)
    touched, read = analysis.touched, analysis.read
    # A value that is evaluated but not used may still fail to evaluate.
    parents = {path[:size] for path in read for size in range(len(path))}
    read |= {path for path in touched if path not in parents}
    return shortest(read)


def shortest(paths: Set[Path]) -> frozenset[Path]:
    """Return the paths that are not below another of them."""
    return frozenset(path for path in paths if not any(path[:size] in paths for size in range(len(path))))


class _Analysis:
    def __init__(self, templates: tree.Templates) -> None:
        self.touched: set[Path] = set()
        self.read: set[Path] = set()
        self._templates = templates
        self._pending: list[tuple[str, _Paths, int]] = []
        self._seen: set[tuple[str, _Paths]] = set()
        self._depth = 0
        self._dot = _FETCHED
        self._variables: list[tuple[str, _Paths]] = []

    def run(self, main: str) -> None:
        """Analyze every template with the paths that it is called with."""
        self._call(main, _WHOLE)
        while self._pending:
            name, self._dot, self._depth = self._pending.pop()
            self._variables = [("$", self._dot)]
            self._body(self._templates[name])

    def _call(self, name: str, dot: _Paths) -> None:
        if self._depth >= len(self._templates) or len(self._seen) >= _MAX_CALLS:
            # The template is recursive, possibly with longer and longer paths.
            dot = self._use(dot)
        if name in self._templates and (name, dot) not in self._seen:
            self._seen.add((name, dot))
            self._pending.append((name, dot, self._depth + 1))

    def _use(self, paths: _Paths) -> _Paths:
        """Mark a value as needed whole."""
        self.read |= paths
        return _FETCHED

    # Statements.

    def _body(self, body: tree.Body) -> None:
        for statement in body:
            match statement:
                case tree.Action(pipe=pipe):
                    paths = self._pipe(pipe)
                    if not pipe.variables:
                        self._use(paths)
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

    def _pipe(self, pipe: tree.Pipe) -> _Paths:
        first, *others = pipe.commands
        paths = self._command(first)
        for command in others:
            self._use(paths)
            paths = self._command(command, has_final=True)
        for name in pipe.variables:
            if pipe.is_assignment:
                # The variable keeps its paths, because the assignment may be in a branch that is not taken.
                paths = self._use(paths)
            else:
                self._variables.append((name, paths))
        return paths

    def _command(self, command: tree.Command, *, has_final: bool = False) -> _Paths:
        word, *arguments = command.words
        if not isinstance(word, tree.Function):
            # Go does not evaluate the arguments of a value that is not a function.
            return self._word(word)
        if word.name == "index" and arguments and not has_final:
            return self._index(arguments[0], arguments[1:])
        for argument in arguments:
            self._use(self._word(argument))
        return _FETCHED

    def _index(self, item: tree.Word, keys: Iterable[tree.Word]) -> _Paths:
        """`index .labels "region"` is the same as a path if the key is a valid name."""
        paths = self._word(item)
        for key in keys:
            if isinstance(key, tree.String) and _NAME.fullmatch(key.value):
                paths = self._members(paths, (key.value,))
            else:
                paths = self._use(paths)
                self._use(self._word(key))
        return paths

    def _word(self, word: tree.Word) -> _Paths:
        match word:
            case tree.Dot():
                return self._dot
            case tree.Field(names=names):
                return self._members(self._dot, names)
            case tree.Variable(name=name, names=names):
                held = frozenset[Path]().union(*(paths for known, paths in self._variables if known == name))
                return self._members(held, names)
            case tree.Chain(inner=inner, names=names):
                return self._members(self._word(inner), names)
            case tree.Pipe():
                return self._pipe(word)
        return _FETCHED

    def _members(self, paths: _Paths, names: Path) -> _Paths:
        found = frozenset(path + names for path in paths)
        self.touched |= found
        return found

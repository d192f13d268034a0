"""Parse the text form of a search.

Comparisons with `=`, `!=`, `in` and `not in` are joined by `and`, `or`, `not` and parentheses. `not` binds
strongest, `or` weakest. Keywords may have any case. Strings are in single quotes, and a quote in a string is
doubled. The limits keep a search from becoming an expensive query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sentinel.core.labels.syntax import excerpt, key_problem
from sentinel.core.search.expression import (
    CONDITIONS,
    GENERATION,
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Field,
    FieldKind,
)

MAX_LENGTH = 4096
"""The maximum number of characters of a search."""
MAX_COMPARISONS = 32
MAX_VALUES = 100
"""The maximum number of values in all comparisons together."""
MAX_DEPTH = 32
"""How deep parentheses may be nested."""

_LABELS = "labels."
_FIELDS = f"{_LABELS}<key>, name, id, {GENERATION} or {CONDITIONS}<Type>"
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_TOKEN = re.compile(
    r"(?P<text>'(?:[^']|'')*')|(?P<open>'[^']*)|(?P<symbol>!=|[=!(),<>])|(?P<word>[^ \t\r\n'=!(),<>]+)"
)
_CONDITION_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,315}")
_INTEGER = re.compile(r"-?[0-9]{1,63}")


class SearchError(ValueError):
    """A text that is not a search: what was expected, what was found, and where."""

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """Counted in characters, from 1."""


def parse(text: str) -> Expression | None:
    """Parse a search. Empty text selects everything, which is None. Raises `SearchError`."""
    if len(text) > MAX_LENGTH:
        raise SearchError(f"expected at most {MAX_LENGTH} characters, got {len(text)}", column=MAX_LENGTH + 1)
    if "\0" in text:
        # PostgreSQL cannot compare with it.
        raise SearchError("expected no NUL character", column=text.index("\0") + 1)
    tokens = _tokens(text)
    return _Parser(tokens).search() if len(tokens) > 1 else None


class _Token(NamedTuple):
    text: str
    """Empty at the end of the search."""
    column: int
    group: str | None = None

    @property
    def keyword(self) -> str:
        return self.text.lower() if self.group == "word" else ""

    def __str__(self) -> str:
        if self.group == "text":
            return excerpt(self.text)
        return f'"{excerpt(self.text)}"' if self.text else "the end"


def _tokens(text: str) -> list[_Token]:
    found = [_Token(each[0], each.start() + 1, each.lastgroup) for each in _TOKEN.finditer(text)]
    for token in found:
        if token.group == "open":
            raise SearchError("expected a closing quote for this string", column=token.column)
    return [*found, _Token("", len(text) + 1)]


class _Parser:
    """A predictive parser with one token of lookahead."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0
        self._comparisons = 0
        self._values = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._next
        self._index += 1
        return token

    def search(self) -> Expression:
        expression = self._alternatives()
        if self._next.text:
            raise _unexpected(self._next, "and, or, or the end")
        return expression

    def _alternatives(self) -> Expression:
        operands = [self._conjunction()]
        while self._next.keyword == "or":
            self._take()
            operands.append(self._conjunction())
        return _any_of(operands)

    def _conjunction(self) -> Expression:
        operands = [self._operand()]
        while self._next.keyword == "and":
            self._take()
            operands.append(self._operand())
        return _all_of(operands)

    def _operand(self) -> Expression:
        is_negated = False
        while self._next.keyword == "not":
            self._take()
            is_negated = not is_negated
        operand = self._in_parentheses() if self._next.text == "(" else self._comparison()
        return _negated(operand) if is_negated else operand

    def _in_parentheses(self) -> Expression:
        opening = self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SearchError(f"expected at most {MAX_DEPTH} nested parentheses", column=opening.column)
        expression = self._alternatives()
        closing = self._take()
        if closing.text != ")":
            raise _unexpected(closing, 'and, or, or ")"')
        self._depth -= 1
        return expression

    def _comparison(self) -> Comparison:
        name = self._take()
        if name.group != "word":
            raise _unexpected(name, 'a field, not or "("')
        field = _field(name)
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise SearchError(f"expected at most {MAX_COMPARISONS} comparisons", column=name.column)
        operator = self._take()
        if operator.text in ("=", "!="):
            return Comparison(field, (self._value(field),), is_negated=operator.text == "!=")
        is_negated = operator.keyword == "not"
        if is_negated:
            operator = self._take()
        if operator.keyword != "in":
            raise _unexpected(operator, "in" if is_negated else "one of =, !=, in, not in")
        return Comparison(field, self._list(field), is_negated=is_negated)

    def _list(self, field: Field) -> tuple[str, ...]:
        opening = self._take()
        if opening.text != "(":
            raise _unexpected(opening, '"("')
        values = set()
        while True:
            values.add(self._value(field))
            separator = self._take()
            if separator.text == ")":
                return tuple(sorted(values))
            if separator.text != ",":
                raise _unexpected(separator, 'a comma or ")"')

    def _value(self, field: Field) -> str:
        token = self._take()
        self._values += 1
        if self._values > MAX_VALUES:
            raise SearchError(f"expected at most {MAX_VALUES} values", column=token.column)
        text = token.text[1:-1].replace("''", "'") if token.group == "text" else token.text
        if field.key == GENERATION and field.kind is FieldKind.ATTRIBUTE:
            if not _INTEGER.fullmatch(text) or not _MIN_INTEGER <= int(text) <= _MAX_INTEGER:
                raise _unexpected(token, "an integer of at most 64 bits")
            return str(int(text))
        if token.group != "text":
            raise _unexpected(token, "a string in single quotes")
        return text


def _field(token: _Token) -> Field:
    name = token.text
    if name.startswith(_LABELS):
        key = name.removeprefix(_LABELS)
        if problem := key_problem(key):
            raise SearchError(problem, column=token.column)
        return Field(FieldKind.LABEL, key)
    if name in (FieldKind.NAME, FieldKind.ID):
        return Field(FieldKind(name))
    has_type = name.startswith(CONDITIONS) and _CONDITION_TYPE.fullmatch(name, len(CONDITIONS))
    if has_type or name == GENERATION:
        return Field(FieldKind.ATTRIBUTE, name)
    raise SearchError(f'unknown field "{excerpt(name)}"; expected {_FIELDS}', column=token.column)


def _negated(expression: Expression) -> Expression:
    """Return the opposite, by De Morgan's laws."""
    if isinstance(expression, Comparison):
        return Comparison(expression.field, expression.values, not expression.is_negated)
    operands = [_negated(each) for each in expression.operands]
    return _any_of(operands) if isinstance(expression, AllOf) else _all_of(operands)


def _all_of(operands: Sequence[Expression]) -> Expression:
    """Join by "and". Nested conjunctions become one, so that a database sees every condition at once."""
    flat: list[Expression] = []
    for each in operands:
        flat += each.operands if isinstance(each, AllOf) else (each,)
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def _any_of(operands: Sequence[Expression]) -> Expression:
    flat: list[Expression] = []
    for each in operands:
        flat += each.operands if isinstance(each, AnyOf) else (each,)
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def _unexpected(token: _Token, expected: str) -> SearchError:
    return SearchError(f"expected {expected}, got {token}", column=token.column)

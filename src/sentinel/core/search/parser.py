"""Parse the text form of a search.

Comparisons with `=`, `!=`, `in` and `not in` are joined by `and`, `or`, `not` and parentheses. `not` binds
strongest, `or` weakest. Keywords may have any case. Strings are in single quotes, and a quote in a string is
doubled. The limits keep a search from becoming an expensive query.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sentinel.core.labels.syntax import excerpt, key_problem
from sentinel.core.labels.tokens import TextError, Token, Tokens, tokenize
from sentinel.core.search.expression import (
    CONDITIONS,
    GENERATION,
    Comparison,
    Expression,
    Field,
    FieldKind,
    all_of,
    any_of,
    negated,
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


class SearchError(TextError):
    """A text that is not a search."""


def parse(text: str) -> Expression | None:
    """Parse a search. Empty text selects everything, which is None. Raises `SearchError`."""
    if len(text) > MAX_LENGTH:
        raise SearchError(f"expected at most {MAX_LENGTH} characters, got {len(text)}", column=MAX_LENGTH + 1)
    if "\0" in text:
        # PostgreSQL cannot compare with it.
        raise SearchError("expected no NUL character", column=text.index("\0") + 1)
    tokens = tokenize(text, _TOKEN)
    for token in tokens:
        if token.group == "open":
            raise SearchError("expected a closing quote for this string", column=token.column)
    return _Parser(Tokens(tokens, SearchError)).search() if len(tokens) > 1 else None


class _Parser:
    """A predictive parser with one token of lookahead."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._depth = 0
        self._comparisons = 0
        self._values = 0

    def search(self) -> Expression:
        expression = self._alternatives()
        if self._tokens.next.text:
            raise self._tokens.unexpected(self._tokens.next, "and, or, or the end")
        return expression

    def _alternatives(self) -> Expression:
        return any_of(self._joined_by("or", self._conjunction))

    def _conjunction(self) -> Expression:
        return all_of(self._joined_by("and", self._operand))

    def _joined_by(self, keyword: str, parse_operand: Callable[[], Expression]) -> list[Expression]:
        operands = [parse_operand()]
        while self._tokens.next.keyword == keyword:
            self._tokens.take()
            operands.append(parse_operand())
        return operands

    def _operand(self) -> Expression:
        is_negated = False
        while self._tokens.next.keyword == "not":
            self._tokens.take()
            is_negated = not is_negated
        operand = self._in_parentheses() if self._tokens.next.text == "(" else self._comparison()
        return negated(operand) if is_negated else operand

    def _in_parentheses(self) -> Expression:
        opening = self._tokens.take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SearchError(f"expected at most {MAX_DEPTH} nested parentheses", column=opening.column)
        expression = self._alternatives()
        closing = self._tokens.take()
        if closing.text != ")":
            raise self._tokens.unexpected(closing, 'and, or, or ")"')
        self._depth -= 1
        return expression

    def _comparison(self) -> Comparison:
        name = self._tokens.take()
        if not name.is_word:
            raise self._tokens.unexpected(name, 'a field, not or "("')
        field = _field(name)
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise SearchError(f"expected at most {MAX_COMPARISONS} comparisons", column=name.column)
        operator = self._tokens.take()
        if operator.text in ("=", "!="):
            return Comparison(field, (self._value(field),), is_negated=operator.text == "!=")
        is_negated = operator.keyword == "not"
        if is_negated:
            operator = self._tokens.take()
        if operator.keyword != "in":
            raise self._tokens.unexpected(operator, "in" if is_negated else "one of =, !=, in, not in")
        return Comparison(field, self._tokens.take_values(lambda: self._value(field)), is_negated=is_negated)

    def _value(self, field: Field) -> str:
        token = self._tokens.take()
        self._values += 1
        if self._values > MAX_VALUES:
            raise SearchError(f"expected at most {MAX_VALUES} values", column=token.column)
        text = token.text[1:-1].replace("''", "'") if token.group == "text" else token.text
        if field.key == GENERATION and field.kind is FieldKind.ATTRIBUTE:
            if not _INTEGER.fullmatch(text) or not _MIN_INTEGER <= int(text) <= _MAX_INTEGER:
                raise self._tokens.unexpected(token, "an integer of at most 64 bits")
            return str(int(text))
        if token.group != "text":
            raise self._tokens.unexpected(token, "a string in single quotes")
        return text


def _field(token: Token) -> Field:
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

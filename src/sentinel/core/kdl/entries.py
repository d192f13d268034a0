"""The arguments and properties of a node, with their types."""

from __future__ import annotations

import re
from typing import Final

from sentinel.core.kdl.characters import NEWLINES, SPACES
from sentinel.core.kdl.document import Annotation, Node, Place, Property, Value
from sentinel.core.kdl.lex import NODE_ENDS_OR_BLOCK, VALUES, Kind, Scanner
from sentinel.core.kdl.problems import Code, shortened
from sentinel.core.kdl.values import (
    COMMA,
    NO_COMMA,
    is_at_list,
    read_list,
    read_name,
    read_query,
    read_value,
    take,
)

_CALL: Final = re.compile(
    rf'\((?:[^(){{}};"{NEWLINES}]++|"[^"\\{NEWLINES}]*+")*+\)(?=[{SPACES}{NEWLINES};{{}}]|\Z)'
)
"""Parentheses directly after a word, as in `env("PORT")`, and nothing directly after them."""
_TYPE: Final = re.compile(rf"\([^(){{}};{NEWLINES}]*+\)")


class Draft:
    """A node while it is read."""

    def __init__(self) -> None:
        self.arguments: list[Value] = []
        self.properties: list[Property] = []
        self.children: tuple[Node, ...] = ()
        self.block: Place | None = None
        self.has_block = False
        """Whether it has a block. A block that is commented out counts, too."""
        self.is_damaged = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing but its name was read."""
        return not (self.arguments or self.properties or self.has_block or self.is_damaged)


def read_entry(scanner: Scanner, draft: Draft, *, is_spaced: bool) -> bool:
    """Read an argument or a property. Returns whether white space follows."""
    if not is_spaced and _is_glued(scanner, draft):
        return True
    annotation: Annotation | None = None
    place = (scanner.line, scanner.column)
    if scanner.kind is Kind.LEFT:
        annotation = read_annotation(scanner)
        scanner.skip_space()
        if annotation is None and scanner.kind in NODE_ENDS_OR_BLOCK:
            draft.is_damaged = True
            return False
    if not _is_at_value(scanner, "an argument or a property" if annotation is None else "a value"):
        draft.is_damaged = True
        return False
    if is_at_list(scanner):
        _list(scanner, draft)
        return False
    token = take(scanner)
    if scanner.kind is Kind.EQUALS and token.kind is Kind.OTHER and "?" in token.value:
        token = read_query(scanner, token)
    is_followed_by_space = scanner.skip_space()
    is_unreadable = scanner.is_unreadable(token.start, token.end)
    draft.is_damaged |= is_unreadable
    if scanner.kind is not Kind.EQUALS:
        value = read_value(scanner, token, annotation)
        if not is_unreadable:
            draft.arguments.append(value)
        return is_followed_by_space
    name = read_name(scanner, token, "the name of a property")
    if annotation is not None:
        written = shortened(f"({annotation.name})")
        message = f"expected a type before the value, got {written} before the name of a property"
        scanner.problems.add(Code.BAD_TYPE, place, message, f"write {shortened(name)}={written}…")
        annotation = None
    scanner.advance()
    scanner.skip_space()
    found = _property_value(scanner, name)
    if found is None:
        draft.is_damaged = True
    elif not is_unreadable:
        draft.properties.append(Property(name, found, token.line, token.column))
    return False


def skip_equals(scanner: Scanner, draft: Draft) -> None:
    """Report and skip a = after the name of a node, and the white space after it."""
    got = f"={scanner.text[scanner.end]}" if scanner.text.startswith((">", "="), scanner.end) else "="
    message = f"expected a value after the name of the node, got {got}"
    scanner.report_here(Code.BAD_PROPERTY, message, f"write the value after the name without {got}")
    scanner.move_to(scanner.start + len(got))
    scanner.edit(scanner.start, scanner.end, " ")
    scanner.advance()
    scanner.skip_space()
    draft.is_damaged = scanner.kind in NODE_ENDS_OR_BLOCK


def read_annotation(scanner: Scanner) -> Annotation | None:
    """Read a type annotation. Returns None after a problem."""
    line, column = scanner.line, scanner.column
    scanner.advance()
    scanner.skip_space()
    if scanner.kind in VALUES:
        token = take(scanner)
        scanner.skip_space()
        if scanner.kind is Kind.RIGHT:
            name = read_name(scanner, token, "the name of a type")
            scanner.advance()
            return Annotation(name, line, column)
    message = f"expected a type in parentheses, such as (u8), got {scanner.got()}"
    scanner.problems.add(Code.BAD_TYPE, (line, column), message, "write one name between ( and )")
    scanner.skip_to(NODE_ENDS_OR_BLOCK | {Kind.RIGHT})
    while scanner.skip(Kind.RIGHT):
        pass
    return None


def _property_value(scanner: Scanner, name: str) -> Value | None:
    annotation: Annotation | None = None
    if scanner.kind is Kind.LEFT:
        annotation = read_annotation(scanner)
        scanner.skip_space()
        if annotation is None and scanner.kind in NODE_ENDS_OR_BLOCK:
            return None
    if not _is_at_value(scanner, f"a value after {shortened(name)}=", Code.BAD_PROPERTY):
        return None
    if is_at_list(scanner):
        read_list(scanner, in_property=True)
        scanner.skip_to(NODE_ENDS_OR_BLOCK)
        return None
    token = take(scanner)
    value = read_value(scanner, token, annotation)
    return None if scanner.is_unreadable(token.start, token.end) else value


def _list(scanner: Scanner, draft: Draft) -> None:
    start = scanner.start
    values = read_list(scanner)
    if values is None:
        scanner.skip_to(NODE_ENDS_OR_BLOCK)
        draft.is_damaged = True
    elif scanner.is_unreadable(start, scanner.start):
        draft.is_damaged = True
    else:
        draft.arguments += values


def _is_glued(scanner: Scanner, draft: Draft) -> bool:
    """Whether a value follows another without white space. If so, report that and skip it."""
    if scanner.kind not in VALUES and scanner.kind is not Kind.LEFT:
        return False
    if scanner.kind is Kind.WORD and scanner.value == ",":
        scanner.report_here(Code.UNEXPECTED, COMMA, NO_COMMA)
        start, end = scanner.start, scanner.end
        scanner.advance()
        scanner.edit(start, end, "" if scanner.skip_space() else " ")
        return True
    if draft.is_empty and scanner.text.startswith('":', scanner.start - 1):
        _skip_colon(scanner)
        return True
    place, start, got = (scanner.line, scanner.column), scanner.start, scanner.got()
    if scanner.kind is Kind.LEFT and (call := _CALL.match(scanner.text, start)) is not None:
        _skip_call(scanner, call.end(), is_name=draft.is_empty)
        draft.is_damaged = True
        return True
    is_type = scanner.kind is Kind.LEFT
    if is_type and _TYPE.match(scanner.text, start) is None:
        return False  # which is reported where the type is read
    while scanner.kind in VALUES or scanner.kind is Kind.EQUALS:
        scanner.advance()
    if not scanner.has_open_string:  # otherwise a missing quote is the reason, which is reported already
        suggestion = "write a space before it, or quotes around the whole text" if got != ":" else "remove it"
        scanner.problems.add(Code.MISSING_SPACE, place, f"expected white space, got {got}", suggestion)
        scanner.edit(start, start, " ")
    draft.is_damaged |= not is_type
    return not is_type


def _skip_colon(scanner: Scanner) -> None:
    """Report and skip a : after the name of a node in quotes, as JSON has it."""
    message = "expected a value after the name of the node, got :"
    scanner.report_here(Code.BAD_PROPERTY, message, "write the value after the name without :")
    scanner.edit(scanner.start, scanner.start + 1, " ")
    scanner.move_to(scanner.start + 1)
    scanner.advance()


def _skip_call(scanner: Scanner, end: int, *, is_name: bool) -> None:
    """Report and skip parentheses that stand directly after a word."""
    got = shortened(scanner.text[scanner.start : end])
    suggestion = "write quotes around the whole text"
    if is_name:
        suggestion = "write the values after the name without parentheses"
    scanner.report_here(Code.MISSING_SPACE, f"expected white space, got {got}", suggestion)
    scanner.move_to(end)
    scanner.advance()


def _is_at_value(scanner: Scanner, expected: str, code: Code = Code.UNEXPECTED) -> bool:
    """Whether the current token is a value. If not, report that and go to the block or end of the node."""
    if scanner.kind in VALUES and (scanner.kind is not Kind.OTHER or scanner.value != "]"):
        return True
    suggestion = "write a value, or remove the parentheses" if expected == "a value" else None
    if scanner.kind is Kind.EQUALS:
        code, suggestion = (
            Code.BAD_PROPERTY,
            "write = between a name and a value, and quotes around a text with =",
        )
    scanner.report_here(code, f"expected {expected}, got {scanner.got()}", suggestion)
    scanner.skip_to(NODE_ENDS_OR_BLOCK)
    return False

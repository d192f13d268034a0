"""Documents mean the same to ckdl, an independent parser that passes the official suite."""

from __future__ import annotations

import re
from random import Random
from typing import Any, Final

import ckdl
import hypothesis
import pytest

from sentinel.core import kdl
from tests.core.kdl.documents import DOCUMENTS, change, spell
from tests.support.examples import examples

LAXER: Final = {
    "a node that is only a terminator": (";", "a;;b", "a\n;", "/-;a", "a /-;b"),
    "a slashdash of a slashdash": ("/-/-a", "a /-/-1", "a /- /- {}"),
    "a slashdash of nothing": ("/-a /-", "/-a { /- }", "/-a { b /- }"),
    "a type or a property without a value": ("a (t) {}", "a { (t) }", "a k= {}"),
    "a second type": ("(t)(t)a", "a (t)(t)1", "a k=(t)(t)1"),
    "a second block of what is commented out": ("/-a {} {}",),
    "a stray backslash before a name": ("\\a", '\\"a"', "/-\\a"),
    "an escape without digits, with seven, or over two lines": (r'"\u{}"', r'"\u{00000e9}"', '"\\u{e\\\n9}"'),
    "a vertical tab as white space": ("a\x0bk=1", '"\x0b"'),
}
"""What ckdl accepts and the grammar does not."""
STRICTER: Final = {
    "no white space before a slashdash": ("a/-1", 'a "x"/-1'),
    "no white space before a block": ("a{}", "a{b}"),
    "a continued line in or after a type, or after a slashdash": ("(t \\\n)a", "(t)\\\na", "a /-\\\n//\n1"),
}
"""What ckdl rejects and the grammar of 2.0 or 2.0.1 does not."""

_GLUED = re.compile(r"/-|(?<!u)\{")
_PIECES: Final = (
    *'ab1{}()=;[],/\\#" \n\té\u2028',
    *(
        ".5",
        "5.",
        "0x",
        "1__",
        "true",
        "-inf",
        "#yes",
        "#nan",
        "//",
        "/*",
        "*/",
        "/-",
        "(t)",
        "k=",
        "\\q",
        "[1, 2]",
    ),
    *('"\\u{zz}"', '"\\u{d800}"', '"""', '"""x"""', '#"', '"#', "\\\n", "{\n", "}", "\ufeff", "\x00", "\u202e"),
)
_LAX_MESSAGES: Final = re.compile(
    r"expected a node, got ;"
    r"|expected something to comment out after /-, got another /-"
    r"|expected (a node|an argument, a property or a block) after /-, got .*"
    r"|expected a value( after .*=)?, got [({]"
    r"|expected the end of the node after }, got a second block of children"
    r"|expected the name of a node, got ([(}]|\\.*)"
    r"|expected a quote, got .*"
    r"|expected an escape such as .*, got .u.*"
)
_CONTINUED: Final = re.compile(r"\([^()]*\\|(\)|/-)\s*\\")


def comparable(scalar: object) -> tuple[type, object]:
    """Return a scalar with its type. ckdl is not exact in the last digits of a float."""
    return type(scalar), f"{scalar:.12g}" if isinstance(scalar, float) else scalar


def from_ckdl(node: ckdl.Node) -> tuple[object, ...]:
    def value(each: Any) -> tuple[object, ...]:
        is_typed = isinstance(each, ckdl.Value)
        return *comparable(each.value if is_typed else each), each.type_annotation if is_typed else None

    return (
        node.name,
        node.type_annotation,
        [value(each) for each in node.args],
        {name: value(each) for name, each in node.properties.items()},
        [from_ckdl(child) for child in node.children],
    )


def from_ours(node: kdl.Node) -> tuple[object, ...]:
    def value(each: kdl.Value) -> tuple[object, ...]:
        return *comparable(each.value), each.type and each.type.name

    return (
        node.name,
        node.type and node.type.name,
        [value(each) for each in node.arguments],
        {each.name: value(each.value) for each in node.properties},
        [from_ours(child) for child in node.children],
    )


def trees(document: kdl.Document) -> list[tuple[object, ...]]:
    return [from_ours(node) for node in document.nodes]


def parse_with_ckdl(text: str) -> list[tuple[object, ...]] | None:
    try:
        return [from_ckdl(node) for node in ckdl.parse(text, version=2).nodes]
    except ckdl.ParseError:
        return None


@hypothesis.given(document=DOCUMENTS)
def test_ckdl_reads_a_printed_document_as_the_same(document: kdl.Document) -> None:
    assert parse_with_ckdl(kdl.print_document(document)) == trees(document)


def test_every_spelling_means_the_same_to_ckdl() -> None:
    for seed in range(examples(3_000)):
        text = spell(Random(seed))  # noqa: S311  # repeatable

        parsed = kdl.parse(text)

        assert parsed.problems == (), text
        assert parse_with_ckdl(text) == trees(parsed.document), text


def test_a_changed_spelling_gets_the_same_verdict() -> None:
    for seed in range(examples(6_000)):
        random = Random(seed)  # noqa: S311  # repeatable
        # Every version wants white space before a block and a slashdash.
        text = _GLUED.sub(r" \g<0>", change(random, spell(random, depth=1), _PIECES))

        parsed, theirs = kdl.parse(text), parse_with_ckdl(text)

        if parsed.is_valid:
            assert theirs == trees(parsed.document) or _CONTINUED.search(text), text
        elif not all(_LAX_MESSAGES.fullmatch(problem.message) for problem in parsed.problems):
            assert theirs is None, (text, parsed.problems)


@pytest.mark.parametrize("text", [text for texts in LAXER.values() for text in texts])
def test_where_ckdl_is_laxer_the_grammar_decides(text: str) -> None:
    assert not kdl.parse(text).is_valid
    assert parse_with_ckdl(text) is not None


@pytest.mark.parametrize("text", [text for texts in STRICTER.values() for text in texts])
def test_where_ckdl_is_stricter_the_grammar_decides(text: str) -> None:
    assert kdl.parse(text).is_valid
    assert parse_with_ckdl(text) is None

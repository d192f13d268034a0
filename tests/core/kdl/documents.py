"""Documents for property tests: made of values, and spelled in all the ways that the grammar allows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from sentinel.core import kdl

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(10**390, 10**420), st.floats(allow_nan=False), TEXTS
)
TYPES = st.none() | st.builds(kdl.Annotation, TEXTS)
VALUES = st.builds(kdl.Value, SCALARS, TYPES)
PROPERTIES = st.builds(kdl.Property, TEXTS, VALUES)


def _nodes(children: st.SearchStrategy[tuple[kdl.Node, ...]]) -> st.SearchStrategy[kdl.Node]:
    return st.builds(
        kdl.Node,
        TEXTS,
        st.lists(VALUES, max_size=3).map(tuple),
        st.lists(PROPERTIES, max_size=2).map(tuple),
        children,
        TYPES,
    )


NODES = st.recursive(
    _nodes(st.just(())), lambda inner: _nodes(st.lists(inner, max_size=3).map(tuple)), max_leaves=6
)
DOCUMENTS = st.builds(kdl.Document, st.lists(NODES, max_size=3).map(tuple))

SPACE_SPELLINGS = (" ", "  ", "\t", "\u3000", " /* c */ ", "/* /* \n */ */", " \\\n ", " \\ // c\r\n\t", "\\\n")
LINE_ENDS = ("\n", "\r\n", "\r", "\u0085", "\u000c", "\u2028", "\u2029", " // c\n", " //\n\n")
TEXT_SPELLINGS = (
    *("a", "b-c", "-", "+x", ".a", "é", "🎉", "<>", "truex", "r", "''"),
    *('"x"', '""', r'"\n\t\s\u{e9}\"\\"', '"a \\\n   b"', '"{/-;"', '#"raw \\"#', '##"a"#b"##', '"true"', '"10s"'),
    *('"""\n  x\n    y\n  """', '"""\n  "a" \\\n   b\\s\n\n  """', '#"""\n\t\\x\n\t"""#', '"""\r\n"""'),
)
NUMBER_SPELLINGS = ("0", "-2", "+7", "007", "1_000", "0x1F", "-0o17", "0b1_01", "2.50", "-1.5e3", "1E-3", "0.0_1")
KEYWORD_SPELLINGS = ("#true", "#false", "#null", "#inf", "#-inf")

SLASHDASHES = ("/-", "/- ", "/-\n", "/- // c\n", "/- /* c */")


_BLANKS = ("", "", " ", "\n", "\t", "// c\n", "/* c */")


def spell(random: Random, *, depth: int = 2) -> str:
    """Return a valid document, with every kind of white space, string, number and comment."""
    pieces = [random.choice(_BLANKS)]
    for _ in range(random.randrange(4)):
        pieces += (_spell_node(random, depth), random.choice((";", "; ", *LINE_ENDS)))
    return "".join(pieces)


def change(random: Random, text: str, pieces: Sequence[str]) -> str:
    """Return the text with a piece inserted, removed or replaced."""
    at = random.randint(0, len(text))
    removed = random.choice((0, 0, 1, 3))
    piece = random.choice(pieces) if not removed or random.random() < 0.5 else ""
    return text[:at] + piece + text[at + removed :]


def _spell_node(random: Random, depth: int) -> str:
    pieces = [_maybe(random, SLASHDASHES), _spell_type(random), random.choice(TEXT_SPELLINGS)]
    for _ in range(random.randrange(4)):
        entry = random.choice((_spell_value, _spell_property))(random)
        pieces += (random.choice(SPACE_SPELLINGS), _maybe(random, SLASHDASHES), entry)
    if depth:
        for hiding in random.choice(((), (), ("",), ("", "/-"), ("/- ", ""), ("/-\n", "", "/-"))):
            block = spell(random, depth=depth - 1)
            pieces += (random.choice(SPACE_SPELLINGS), hiding, "{", block, "}")
    return "".join((*pieces, _maybe(random, SPACE_SPELLINGS)))


def _spell_property(random: Random) -> str:
    spaces = _maybe(random, SPACE_SPELLINGS), _maybe(random, SPACE_SPELLINGS)
    return f"{random.choice(TEXT_SPELLINGS)}{spaces[0]}={spaces[1]}{_spell_value(random)}"


def _spell_value(random: Random) -> str:
    return _spell_type(random) + random.choice((*TEXT_SPELLINGS, *NUMBER_SPELLINGS, *KEYWORD_SPELLINGS))


def _spell_type(random: Random) -> str:
    """Return a type or, most of the time, nothing. ckdl rejects a continued line here, the grammar does not."""
    if random.random() < 0.8:
        return ""
    spaces = ("", "", "\u00a0", " /* c */")
    before, after, behind = (random.choice(spaces) for _ in range(3))
    return f"({before}{random.choice(TEXT_SPELLINGS)}{after}){behind}"


def _maybe(random: Random, choices: Sequence[str]) -> str:
    return "" if random.random() < 0.7 else random.choice(choices)

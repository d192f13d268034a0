"""What KDL 2 accepts and what it means, and what it rejects and where."""

from __future__ import annotations

import math

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Code

ACCEPTED = {
    # Nodes and their ends.
    "": "",
    "a": "a\n",
    "a;b;": "a\nb\n",
    "a\nb": "a\nb\n",
    "\n\n a \n": "a\n",
    "a { b; c }": "a {\n    b\n    c\n}\n",
    "a {\n  b {\n c\n }\n}": "a {\n    b {\n        c\n    }\n}\n",
    "a {}": "a\n",
    "a{b}": "a {\n    b\n}\n",
    "a {b};c": "a {\n    b\n}\nc\n",
    '"a b" 1': '"a b" 1\n',
    '"" ""': '"" ""\n',
    '"[" "[" "]"="["\n"]"': '"[" "[" "]"="["\n"]"\n',
    '"," ","': ', ","\n',
    # Newlines and white space.
    "a\r\nb\rc\u0085d\u000be\u000cf\u2028g\u2029h": "a\nb\nc\nd\ne\nf\ng\nh\n",
    "a\t1\u00a02\u16803\u20004\u200a5\u202f6\u205f7\u30008": "a 1 2 3 4 5 6 7 8\n",
    "\ufeffa 1": "a 1\n",
    "a \\\n 1": "a 1\n",
    "a \\ // more\n 1": "a 1\n",
    "a \\ /* x */ // more\n 1": "a 1\n",
    "a \\": "a\n",
    "a\\\n1": "a 1\n",
    "\\\na": "a\n",
    "a \\\n\\\n1": "a 1\n",
    # Comments.
    "// c\na // c\n//\nb //": "a\nb\n",
    "a /* x */ 1": "a 1\n",
    "a/* x */1": "a 1\n",
    "/* a /* b */ c */ d": "d\n",
    "/***/ a /* ** / */": "a\n",
    "a /*\n*/ 1": "a 1\n",
    # Slashdash.
    "/-a\nb": "b\n",
    "/- a { b }\nc": "c\n",
    "/-\n// x\n a\nb": "b\n",
    "/- kdl-version 2\na": "a\n",
    "a /-1 2": "a 2\n",
    "a /- k=1 2": "a 2\n",
    "a /- (t)1 2": "a 2\n",
    "a /- \\\n 1 2": "a 2\n",
    "a /-\n1 2": "a 2\n",
    'a "x"/-1': 'a "x"\n',
    "a /- { b }": "a\n",
    "a /- { b } { c } /- { d }": "a {\n    c\n}\n",
    "a /- { b }\nc": "a\nc\n",
    "a { /- b }": "a\n",
    "/- (t)a 1": "",
    # Arguments and properties.
    "a b c": 'a "b" "c"\n',
    "a 1 k=2 3": "a 1 3 k=2\n",
    "a k = 1": "a k=1\n",
    "a k=\\\n1": "a k=1\n",
    'a "k k"="v" #"r"#=1': 'a "k k"="v" r=1\n',
    "a k=1 k=2": "a k=1 k=2\n",
    # Types.
    "(t)a": "(t)a\n",
    '( "t t" ) a': '("t t")a\n',
    "a (u8)1 k=(t)v": 'a (u8)1 k=(t)"v"\n',
    "a ( t ) 1 k= ( t ) v": 'a (t)1 k=(t)"v"\n',
    "(t)\\\na": "(t)a\n",
    # Identifiers.
    "- -- + . .. -. -a +a .a -.a a.b <> , é 🎉 'a' ~!@$%^&*|: r": (
        '- "--" "+" "." ".." "-." "-a" "+a" ".a" "-.a" "a.b" "<>" "," "é" "🎉" "\'a\'" "~!@$%^&*|:" "r"\n'
    ),
    "truex nullx infx": 'truex "nullx" "infx"\n',
    '"true" "1" "a/b"': '"true" "1" "a/b"\n',
    # Numbers and keywords.
    "a 0 -0 +1 007 1_000 1__": "a 0 -0 +1 007 1_000 1__\n",
    "a 1.5 1e3 1E-3 1.5e+3 1_0.0_1e1_0": "a 1.5 1e3 1E-3 1.5e+3 1_0.0_1e1_0\n",
    "a 0xfF -0x1_f 0o17 0b1_0": "a 0xfF -0x1_f 0o17 0b1_0\n",
    "a 1e400 -1e400": "a 1e400 -1e400\n",
    "a #true #false #null #inf #-inf #nan": "a #true #false #null #inf #-inf #nan\n",
    # Strings.
    r'a "\n\r\t\\\"\b\f\s\u{e9}\u{10FFFF}\u{00e9}"': 'a "\\n\\r\\t\\\\\\"\\b\\f é\U0010ffffé"\n',
    'a "x \\   y"': 'a "x y"\n',
    'a "x\\\n\n   y"': 'a "xy"\n',
    'a "x\\\r\n y\\\\n"': 'a "xy\\\\n"\n',
    'a #"\\n"# ##"a"#b"## #""#': 'a "\\\\n" "a\\"#b" ""\n',
    'a "é 🎉 \t"': 'a "é 🎉 \\t"\n',
    'a """\n"""': 'a ""\n',
    'a """\n  """': 'a ""\n',
    'a """\n\n"""': 'a ""\n',
    'a """\n  x\n    y\n  """': 'a "x\\n  y"\n',
    'a """\n  x\n\n \n  y\n  """': 'a "x\\n\\n\\ny"\n',
    'a """\r\n x\r\ny\r\n"""': 'a " x\\ny"\n',
    'a """\n\t x\n\t """': 'a "x"\n',
    'a """\n"x" ""y""\n"""': 'a "\\"x\\" \\"\\"y\\"\\""\n',
    'a """\n \\"""\n """': 'a "\\"\\"\\""\n',
    'a """\n  x \\\n     y\n  """': 'a "x y"\n',
    'a """\n  x\n  \\   """': 'a "x"\n',
    'a """\n  x\\n\\s\n  \\n\n  """': 'a "x\\n \\n\\n"\n',
    'a #"""\n  x\\n\n  """#': 'a "x\\\\n"\n',
    'a ##"""\n"""#\n"""##': 'a "\\"\\"\\"#"\n',
    '"""\n a\n """ 1': "a 1\n",
}

REJECTED = {
    # Nodes.
    ";": (Code.UNEXPECTED, 1, 1),
    "a;;": (Code.UNEXPECTED, 1, 3),
    "}": (Code.UNOPENED_BLOCK, 1, 1),
    "a\n};": (Code.UNOPENED_BLOCK, 2, 1),
    "{ a }": (Code.MISSING_NAME, 1, 1),
    "=1": (Code.MISSING_NAME, 1, 1),
    ")": (Code.MISSING_NAME, 1, 1),
    "] x": (Code.MISSING_NAME, 1, 1),
    "a {": (Code.UNCLOSED_BLOCK, 1, 3),
    "a { b } c": (Code.MISSING_NEWLINE, 1, 9),
    "a { b } { c }": (Code.UNEXPECTED, 1, 9),
    "#true": (Code.NEEDS_QUOTES, 1, 1),
    "true 1": (Code.BARE_KEYWORD, 1, 1),
    "404 { }": (Code.NUMERIC_NAME, 1, 1),
    "1a": (Code.NUMERIC_NAME, 1, 1),
    "/x 1": (Code.NEEDS_QUOTES, 1, 1),
    "\\ a": (Code.NEEDS_QUOTES, 1, 1),
    # Entries.
    'a "b"c': (Code.MISSING_SPACE, 1, 6),
    'a "b""c"': (Code.MISSING_SPACE, 1, 6),
    'a b"c"=1 2': (Code.MISSING_SPACE, 1, 4),
    "a(t)1": (Code.MISSING_SPACE, 1, 2),
    'a "b", "c"': (Code.UNEXPECTED, 1, 6),
    "a =1": (Code.BAD_PROPERTY, 1, 3),
    "a k=": (Code.BAD_PROPERTY, 1, 5),
    "a k=\nb": (Code.BAD_PROPERTY, 1, 5),
    "a k=b=c": (Code.BAD_PROPERTY, 1, 6),
    "a )": (Code.UNEXPECTED, 1, 3),
    "a ]": (Code.UNEXPECTED, 1, 3),
    "a 1=2": (Code.NUMERIC_NAME, 1, 3),
    "a true=2": (Code.BARE_KEYWORD, 1, 3),
    "a #null=2": (Code.NEEDS_QUOTES, 1, 3),
    "a k=/-1 2": (Code.BAD_PROPERTY, 1, 5),
    # Types.
    "()a": (Code.BAD_TYPE, 1, 1),
    "( )a": (Code.BAD_TYPE, 1, 1),
    "(t": (Code.BAD_TYPE, 1, 1),
    "(t u)a": (Code.BAD_TYPE, 1, 1),
    "(t)": (Code.MISSING_NAME, 1, 4),
    "(t)(u)a": (Code.MISSING_NAME, 1, 4),
    "(1)a": (Code.NUMERIC_NAME, 1, 2),
    "a ()1": (Code.BAD_TYPE, 1, 3),
    "a (t)": (Code.UNEXPECTED, 1, 6),
    "a (t)k=1": (Code.BAD_TYPE, 1, 3),
    "a k=()1": (Code.BAD_TYPE, 1, 5),
    "a k=(t)": (Code.BAD_PROPERTY, 1, 8),
    "a (t": (Code.BAD_TYPE, 1, 3),
    "a k=(t": (Code.BAD_TYPE, 1, 5),
    "(t { b }": (Code.BAD_TYPE, 1, 1),
    # Slashdash.
    "/-": (Code.BAD_SLASHDASH, 1, 3),
    "/-;a": (Code.BAD_SLASHDASH, 1, 3),
    "/-/-a": (Code.BAD_SLASHDASH, 1, 3),
    "/- { a }": (Code.MISSING_NAME, 1, 4),
    "a /-": (Code.BAD_SLASHDASH, 1, 5),
    "a { b /- }": (Code.BAD_SLASHDASH, 1, 10),
    "a /-/-1 2": (Code.BAD_SLASHDASH, 1, 5),
    "a /- { b } 1": (Code.BAD_SLASHDASH, 1, 12),
    "a /- { b } /-1": (Code.BAD_SLASHDASH, 1, 14),
    "a { b } /-1": (Code.BAD_SLASHDASH, 1, 11),
    # Values.
    "a true": (Code.BARE_KEYWORD, 1, 3),
    "a -inf": (Code.BARE_KEYWORD, 1, 3),
    "a #True": (Code.UNKNOWN_KEYWORD, 1, 3),
    "a #yes": (Code.UNKNOWN_KEYWORD, 1, 3),
    "a #": (Code.UNEXPECTED, 1, 3),
    "a .5": (Code.NEEDS_QUOTES, 1, 3),
    "a 5.": (Code.NEEDS_QUOTES, 1, 3),
    "a 1.e5": (Code.NEEDS_QUOTES, 1, 3),
    "a 1e": (Code.NEEDS_QUOTES, 1, 3),
    "a 1._0": (Code.NEEDS_QUOTES, 1, 3),
    "a 0x": (Code.NEEDS_QUOTES, 1, 3),
    "a 0x_1": (Code.NEEDS_QUOTES, 1, 3),
    "a 0o8": (Code.NEEDS_QUOTES, 1, 3),
    "a 0b2": (Code.NEEDS_QUOTES, 1, 3),
    "a 0X1": (Code.NEEDS_QUOTES, 1, 3),
    "a 1.2.3": (Code.NEEDS_QUOTES, 1, 3),
    "a b#c": (Code.NEEDS_QUOTES, 1, 3),
    "a b/c": (Code.NEEDS_QUOTES, 1, 3),
    "a b\\c": (Code.NEEDS_QUOTES, 1, 3),
    "a [1]": (Code.ARRAY, 1, 3),
    "a [1": (Code.ARRAY, 1, 3),
    # Strings.
    'a "b': (Code.UNCLOSED_STRING, 1, 3),
    'a #"b': (Code.UNCLOSED_STRING, 1, 3),
    'a r#"b': (Code.UNCLOSED_STRING, 1, 3),
    'a """\nb': (Code.UNCLOSED_STRING, 1, 3),
    'a #"""\nb\n"""': (Code.UNCLOSED_STRING, 3, 1),
    'a "b\nc"': (Code.NEWLINE_IN_STRING, 1, 3),
    'a #"b\nc"#': (Code.NEWLINE_IN_STRING, 1, 3),
    'a "\\x"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\/"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u{}"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u{1234567}"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u{d800}"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u{dfff}"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u{00000e9}"': (Code.BAD_ESCAPE, 1, 4),
    'a "\\u{110000}"': (Code.BAD_ESCAPE, 1, 4),
    'a """\n b\\q\n """': (Code.BAD_ESCAPE, 2, 3),
    'a """b"""': (Code.BAD_MULTILINE_STRING, 1, 3),
    'a """b\nc\n"""': (Code.BAD_MULTILINE_STRING, 1, 3),
    'a """\nb"""': (Code.BAD_MULTILINE_STRING, 2, 2),
    'a """\n b\\\n """': (Code.BAD_MULTILINE_STRING, 3, 2),
    'a #"""#': (Code.UNCLOSED_STRING, 1, 3),
    'a """\n  b\n c\n  """': (Code.BAD_INDENTATION, 3, 1),
    'a """\n\tb\n  """': (Code.BAD_INDENTATION, 2, 1),
    'a #"""\n\\b\n  """#': (Code.BAD_INDENTATION, 2, 1),
    'a """\n b \\\n c\nd\n """': (Code.BAD_INDENTATION, 1, 3),
    'a r"b"': (Code.VERSION_1_RAW_STRING, 1, 3),
    # Comments.
    "a /* b": (Code.UNCLOSED_COMMENT, 1, 3),
    "a\n /* /* */": (Code.UNCLOSED_COMMENT, 2, 2),
    "a \\ b": (Code.NEEDS_QUOTES, 1, 3),
    # Characters.
    "a \x00b": (Code.DISALLOWED_CHARACTER, 1, 3),
    'a "\x7f"': (Code.DISALLOWED_CHARACTER, 1, 4),
    "// \u200e": (Code.DISALLOWED_CHARACTER, 1, 4),
    "a\n\ufeffb": (Code.DISALLOWED_CHARACTER, 2, 1),
    "a \ud800": (Code.DISALLOWED_CHARACTER, 1, 3),
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_document_of_the_grammar_has_its_meaning(text: str) -> None:
    parsed = kdl.parse(text)

    assert parsed.problems == ()
    assert kdl.print_document(parsed.document) == ACCEPTED[text]
    assert not parsed.document.is_damaged


@pytest.mark.parametrize("text", REJECTED)
def test_a_document_outside_the_grammar_has_exactly_one_problem(text: str) -> None:
    parsed = kdl.parse(text)

    assert [(problem.code, problem.line, problem.column) for problem in parsed.problems] == [REJECTED[text]]


def test_numbers_have_their_values() -> None:
    node = kdl.parse("a 0xfF -0x1_f 0o17 0b1_0 1_000 +1 1.5e3 -0.5 1e400 #-inf #nan").document.nodes[0]

    values = [argument.value for argument in node.arguments]
    assert values[:-1] == [255, -31, 15, 2, 1000, 1, 1500.0, -0.5, math.inf, -math.inf]
    assert [type(value) for value in values[4:7]] == [int, int, float]
    assert isinstance(values[-1], float)
    assert math.isnan(values[-1])


def test_everything_has_its_line_and_column() -> None:
    text = '\n(t)node 1 /* x\n */ "k"=(u8)2 """\n  é\n  """ k=v {\n\tb\n}'

    node = kdl.parse(text).document.nodes[0]

    assert (node.line, node.column) == (2, 4)
    assert node.type == kdl.Annotation("t", 2, 1)
    assert node.arguments == (kdl.Value(1, None, 2, 9), kdl.Value("é", None, 3, 15))
    assert node.properties == (
        kdl.Property("k", kdl.Value(2, kdl.Annotation("u8", 3, 9), 3, 13), 3, 5),
        kdl.Property("k", kdl.Value("v", None, 5, 9), 5, 7),
    )
    assert node.block == kdl.Place(5, 11)
    assert (node.children[0].line, node.children[0].column) == (6, 2)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\u0085", "\u000b", "\u000c", "\u2028", "\u2029"])
def test_every_line_end_counts_as_one_line(newline: str) -> None:
    nodes = kdl.parse(f"\ufeffa{newline}{newline}b").document.nodes

    assert [(node.name, node.line, node.column) for node in nodes] == [("a", 1, 1), ("b", 3, 1)]


@pytest.mark.parametrize(
    "code",
    [0x0, 0x8, 0xE, 0x1A, 0x1F, 0x7F, 0xD800, 0xDFFF, 0x200E, 0x200F, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF],
)
def test_a_disallowed_code_point_is_found_where_it_stands(code: int) -> None:
    problems = kdl.parse(f"a\n {chr(code)}").problems

    assert [(problem.code, problem.line, problem.column) for problem in problems] == [
        (Code.DISALLOWED_CHARACTER, 2, 2)
    ]


def test_the_last_of_two_equal_properties_counts() -> None:
    node = kdl.parse("a k=1 j=2 k=3").document.nodes[0]

    counting = node.property("k")

    assert counting is not None
    assert counting.value.value == 3
    assert node.property("x") is None


def test_bytes_and_text_give_the_same_document() -> None:
    text = "\ufeffa é {\n  b\n}"

    assert kdl.parse(text.encode()) == kdl.parse(text)


def test_lines_are_split_as_columns_are_counted() -> None:
    assert kdl.split_lines(b"\xef\xbb\xbfa\r\nb\xff\xfe\rc\xe2\x80\xa8\n") == ["a", "b\udcff\udcfe", "c", "", ""]

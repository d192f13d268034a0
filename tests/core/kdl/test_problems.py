"""What people really write, and what they are told."""

from __future__ import annotations

import pytest

from sentinel.core import kdl


def told(text: str | bytes) -> list[str]:
    return [str(problem) for problem in kdl.parse(text).problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a true", '1:3: expected a value, got the bare word true (write #true, or "true" if it is a text)'),
        ("a k=null", '1:5: expected a value, got the bare word null (write #null, or "null" if it is a text)'),
        ("true 1", '1:1: expected the name of a node, got the keyword true (write "true")'),
        ("a nan=1", '1:3: expected the name of a property, got the keyword nan (write "nan")'),
        ("a #TRUE", "1:3: expected #true, #false, #null, #inf, #-inf or #nan, got #TRUE (write #true)"),
        (
            "a #off",
            '1:3: expected #true, #false, #null, #inf, #-inf or #nan, got #off (write "#off" if it is a text)',
        ),
        (
            'a r#"x"y"#',
            '1:3: expected a raw string of KDL 2, got one of version 1: r#"x"y"# (write #"x"y"#)',
        ),
        ('a r"x"', '1:3: expected a raw string of KDL 2, got one of version 1: r"x" (write #"x"#)'),
        (
            'methods ["GET", "POST"]',
            '1:9: expected a value, got a list in brackets: ["GET", "POST"] '
            '(write the values one after the other: "GET" "POST")',
        ),
        (
            "a [1,2,3,4,5,6]",
            "1:3: expected a value, got a list in brackets: [1,2,3,4,5,6] "
            "(write the values one after the other: 1 2 3 4 5 …)",
        ),
        (
            'a k=["x"]',
            '1:5: expected a value, got a list in brackets: ["x"] '
            '(write a child node with the values instead of a property: name "x")',
        ),
        (
            "a [1 {\n}",
            "1:3: expected a value, got [, and KDL has no lists "
            "(write the values one after the other, without brackets)",
        ),
        ("404 { }", '1:1: expected the name of a node, got the number 404 (write "404")'),
        ("5xx 1", '1:1: expected the name of a node, got 5xx (write "5xx")'),
        ("a 10s", '1:3: expected a number or a string in quotes, got 10s (write "10s")'),
        (
            "a 127.0.0.1:80",
            '1:3: expected a number or a string in quotes, got 127.0.0.1:80 (write "127.0.0.1:80")',
        ),
        ("a 10.0.0.0/8", '1:3: expected a value, got 10.0.0.0/8 (write "10.0.0.0/8")'),
        ("a /api/v1", '1:3: expected a value, got /api/v1 (write "/api/v1")'),
        ("a path=/api", '1:8: expected a value, got /api (write "/api")'),
        ("a C:\\x", '1:3: expected a value, got C:\\x (write "C:\\\\x")'),
        ("a -.5", "1:3: expected a digit before the point, got -.5 (write -0.5)"),
        (
            "a k=v=w",
            "1:6: expected an argument or a property, got = (write = between a name and a value, "
            "and quotes around a text with =)",
        ),
        (
            "key=value",
            "1:4: expected a value after the name of the node, got = (write the value after the name without =)",
        ),
        (
            "key = 1 2",
            "1:5: expected a value after the name of the node, got = (write the value after the name without =)",
        ),
        (
            'a \\"x\\"',
            '1:3: expected a quote, got \\", which belongs inside of a string (write " without the backslash)',
        ),
        ("a 1, 2", "1:4: expected white space between values, got a comma (remove the comma)"),
        ("\ufeffa true\n".encode("utf-16-le"), "1:1: expected UTF-8, got UTF-16 (save the file as UTF-8)"),
        ("\ufeffa true\n".encode("utf-16-be"), "1:1: expected UTF-8, got UTF-16 (save the file as UTF-8)"),
        ("a []", "1:3: expected a value, got a list in brackets: [] (remove the brackets)"),
        (b"a \xff", "1:3: expected UTF-8, got the invalid byte 0xFF (save the file as UTF-8)"),
        ("a k=", "1:5: expected a value after k=, got the end of the file"),
        ("a k= // c", "1:6: expected a value after k=, got // c"),
        (
            "a (t)k=1",
            "1:3: expected a type before the value, got (t) before the name of a property (write k=(t)…)",
        ),
        ('a "b", "c"', "1:6: expected white space between values, got a comma (remove the comma)"),
        (
            'a "b"c',
            "1:6: expected white space, got c (write a space before it, or quotes around the whole text)",
        ),
        (
            '"a": 1',
            "1:4: expected a value after the name of the node, got : (write the value after the name without :)",
        ),
        (
            "a => 1",
            "1:3: expected a value after the name of the node, got => (write the value after the name without =>)",
        ),
        (
            'a("x")',
            '1:2: expected white space, got ("x") (write the values after the name without parentheses)',
        ),
        (
            'a env("x")',
            '1:6: expected white space, got ("x") (write quotes around the whole text)',
        ),
        ("a (t)", "1:6: expected a value, got the end of the file (write a value, or remove the parentheses)"),
        ("a [::1]:80", '1:3: expected a value, got [::1]:80 (write "[::1]:80")'),
        ("a '/x y/'", "1:3: expected a value, got '/x y/' (write \"/x y/\")"),
        ("'/x' 1", "1:1: expected the name of a node, got '/x' (write \"/x\")"),
        ('a “x"', '1:3: expected a quote before “x", got none (write "x")'),
        ('a "x”', '1:3: expected a quote after "x”, got none (write "x")'),
        ("a 1 */", '1:5: expected a value, got */ (write "*/")'),
        (
            "*/",
            "1:1: expected a node, got */ without a comment to close "
            "(remove it, or write /* where the comment starts)",
        ),
        ("a { }) b", "1:6: expected the end of the node after }, got ) (remove it)"),
        (
            "a\n  b\n}",
            "3:1: expected a node, got } without a block to close "
            "(remove it, or write { at the end of line 1: the next one is indented)",
        ),
        ("{ a }", '1:1: expected the name of a node, got { (write a name before {, such as "server" {)'),
        (
            "a { b } c",
            "1:9: expected the end of the node after }, got c (start a new line, or write ; after })",
        ),
        (
            "a {\n b {\n",
            "1:3: expected } for the block that starts on line 1, got the end of the file "
            "(write } where the block ends)",
        ),
        (
            'a "x\n',
            '1:3: expected a quote after "x, got none (write "x")',
        ),
        (
            'a "x\n y"',
            "1:3: expected the closing quote on the same line, got the end of the line "
            '(write \\n for a line end, or """ on lines of their own around the text)',
        ),
        (
            'a "C:\\x"',
            '1:6: expected an escape such as \\n, \\t, \\s, \\", \\\\ or \\u{e9}, got \\x '
            '(write \\\\ for a backslash, or a raw string: #"…"#)',
        ),
        (
            'a "\\u{zz}"',
            '1:4: expected an escape such as \\n, \\t, \\s, \\", \\\\ or \\u{e9}, got \\u{zz} '
            "(write one to six hexadecimal digits of a Unicode scalar value, such as \\u{e9})",
        ),
        (
            'a """x"""',
            '1:3: expected the end of the line after """, got text '
            "(write one quote on either side of a string on one line)",
        ),
        (
            'a """x\n"""',
            '1:3: expected the end of the line after """, got text (start the text on the line after """)',
        ),
        (
            "a \x00",
            "1:3: expected text, got U+0000, which a document may not contain "
            "(remove it, or write \\u{0} in a quoted string)",
        ),
        ("a \ud812", "1:3: expected text, got U+D812, which a document may not contain (remove it)"),
        ("a \udc80", "1:3: expected text, got U+DC80, which a document may not contain (remove it)"),
        (
            "a\n \ufeff",
            "2:2: expected a byte order mark only at the start of the file, got one here (U+FEFF) "
            "(remove this invisible character)",
        ),
        (b"a \xff\xfe", "1:3: expected UTF-8, got the invalid bytes 0xFF 0xFE (save the file as UTF-8)"),
        (
            b"\n\xff\xff\xff\xff\xff",
            "2:1: expected UTF-8, got the invalid bytes 0xFF 0xFF 0xFF 0xFF … (save the file as UTF-8)",
        ),
    ],
)
def test_a_mistake_is_explained(text: str | bytes, expected: str) -> None:
    assert expected in told(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "url http://x",
            '1:5: expected a URL in quotes, got http://x, in which // starts a comment (write "http://x")',
        ),
        (
            "a GET, POST",
            "1:3: expected white space between values, got a comma, which becomes part of the text GET, "
            '(remove the comma, or write "GET," if it is meant)',
        ),
        (
            "\na { u k=https://a.b/c?d e }",
            "2:9: expected a URL in quotes, got https://a.b/c?d, in which // starts a comment "
            '(write "https://a.b/c?d")',
        ),
    ],
)
def test_what_is_hardly_meant_is_a_warning(text: str, expected: str) -> None:
    assert [str(warning) for warning in kdl.parse(text).warnings] == [expected]


@pytest.mark.parametrize(
    "text", ["a // c", "a: // c", 'a "x:"// c', "a 1// c", "// c", '"http://x"', "://x", 'a ","', "a, b"]
)
def test_other_comments_and_commas_are_no_warning(text: str) -> None:
    assert kdl.parse(text).warnings == ()


@pytest.mark.parametrize("text", ["#" * 10_000 + '"x', "a (" + "t" * 10_000 + ")k=1", "a ." + "5" * 10_000])
def test_messages_are_short(text: str) -> None:
    assert all(len(problem.message) <= 400 for problem in kdl.parse(text).problems)
    assert all(len(problem.suggestion or "") <= 400 for problem in kdl.parse(text).problems)


def test_control_characters_of_types_are_escaped() -> None:
    text = 'a ("\\n")k=1'

    assert told(text)[0] == (
        "1:3: expected a type before the value, got (\\n) before the name of a property (write k=(\\n)…)"
    )


def test_problems_of_a_line_are_sorted_by_column() -> None:
    assert [problem.column for problem in kdl.parse("a { b true").problems] == [3, 7]


def test_positions_after_invalid_bytes_are_right() -> None:
    assert [problem.column for problem in kdl.parse(b"a \xff\xfe true").problems] == [3, 6]


def test_a_message_shows_the_text_on_one_line_and_shortened() -> None:
    problem = kdl.parse(f"a 1{'x' * 100}").problems[0]
    with_tab = kdl.parse('a r"x\ty"').problems[0]

    assert problem.message.endswith(f"got 1{'x' * 58}…")
    assert with_tab.message.endswith('r"x\\ty"')

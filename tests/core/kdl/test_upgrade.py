"""Documents of version 1 become documents of version 2 with the same layout and meaning."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Code


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a true k=false null // true", "a #true k=#false #null // true"),
        ('a r"x\\n" r#"y"z"# r##"a"#b"##', 'a #"x\\n"# #"y"z"# ##"a"#b"##'),
        ('a r#""x"#', 'a "\\"x"'),
        ('a r"x\ny"', 'a "x\\ny"'),
        ('a "x\ny" 1', 'a "x\\ny" 1'),
        ('a "x\n" "b\n c "\nd', 'a "x\\n" "b\\n c "\nd'),
        ('a "http:\\/\\/x"', 'a "http://x"'),
        ("inf 1 nan=2", '"inf" 1 "nan"=2'),
        ("a#b c#=1", '"a#b" "c#"=1'),
        (".1 2", '".1" 2'),
        ("/- kdl-version 1\na true", "/- kdl-version 2\na #true"),
        ("a\ufeff1", "a 1"),
        ('methods ["GET", "POST"]\n404 { }', 'methods "GET" "POST"\n"404" { }'),
        ('a "x","y", "z"', 'a "x" "y" "z"'),
        ('a "x"r"y"', 'a "x" #"y"#'),
        ("a;;b", "a;b"),
        ("a 1 # b\n## c", "a 1 // b\n// c"),
        ("a { },\nb { }, c", "a { }\nb { }; c"),
        ("a 10.0.0.1:80, /b, 1", 'a "10.0.0.1:80" "/b" 1'),
        ("a;;;;b", "a;b"),
        ("a=1", "a 1"),
        ("a 1, 2, 3", "a 1 2 3"),
        ('a \\"x\\" \\"y"', 'a "x" "y"'),
        ("a true /b/* c\nd e/*.f\n", 'a #true "/b/*" c\nd "e/*.f"\n'),
        ('"a": 1', '"a"  1'),
        ("a => 1", "a   1"),
        ("a == 1", "a   1"),
        ("a '/b c/' \"d\"", 'a "/b c/" "d"'),
        ("a [::1]:80 /b?c=d", 'a "[::1]:80" "/b?c=d"'),
        ("a /* c */ {\n\tb 1 // d\n}\n", "a /* c */ {\n\tb 1 // d\n}\n"),
    ],
)
def test_only_what_version_2_lacks_is_changed(before: str, after: str) -> None:
    upgraded = kdl.upgrade(before)

    assert upgraded.text == after
    assert upgraded.problems == ()


def test_a_document_of_version_2_stays_as_it_is() -> None:
    text = 'a #true "x" /- 1 {\n  b """\n    c\n    """\n}\n'

    assert kdl.upgrade(text) == kdl.Upgraded(text)
    assert kdl.upgrade(text.encode()) == kdl.Upgraded(text)


def test_what_cannot_be_upgraded_is_reported_in_the_new_text() -> None:
    upgraded = kdl.upgrade("a true false )")

    assert upgraded.text == "a #true #false )"
    assert upgraded.changes == 2
    assert [(problem.code, problem.column) for problem in upgraded.problems] == [(Code.UNEXPECTED, 16)]


@pytest.mark.parametrize("text", ['a "x\n\x00"', 'a r"\x00"', "a [1, \x00]", "a 1\x00"])
def test_a_piece_with_a_disallowed_character_stays_as_it_is(text: str) -> None:
    assert kdl.upgrade(text).text == text


def test_more_mistakes_than_are_reported_are_upgraded() -> None:
    upgraded = kdl.upgrade("a true\n" * 2_000)

    assert upgraded.text == "a #true\n" * 2_000
    assert upgraded.problems == ()


def test_a_file_that_is_too_large_stays_as_it_is() -> None:
    text = "a true\n" + " " * kdl.MAX_BYTES

    upgraded = kdl.upgrade(text)

    assert upgraded.text == text
    assert [problem.code for problem in upgraded.problems] == [Code.TOO_LARGE]

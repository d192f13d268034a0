"""Patterns are read as Rust's `regex` reads them. Verdicts are those of its version 1.13."""

from __future__ import annotations

import re
import warnings

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core.proxy.path_pattern import MAX_LENGTH, BadPattern, PathPattern, read
from tests.support.examples import examples


@pytest.mark.parametrize(
    ("pattern", "python"),
    [
        ("^/api/v[0-9]+/", "^/api/v[0-9]+/"),
        (r"\.(?:jpe?g|png)$", r"\.(?:jpe?g|png)$"),
        (r"(?P<id>\d+)(?<a.b[0]>\w)", r"(\d+)(\w)"),
        (r"\A\bx\B\z", r"\A\bx\B\Z"),
        (r"\/\-\_\ \n\t\a", "/" + re.escape("-_ \n\t\a")),
        (r"\x41\x{42}\u0043\u{44}\U00000045", "ABCDE"),
        ("a{2}b{2,}c{2,3}?d*?", "a{2}b{2,}c{2,3}?d*?"),
        ("a{ 2 , 3 }", "a{2,3}"),
        ("(?i)a(?s-m:b)", "(?i)a(?s-m:b)"),
        ("[]a][^]]", r"[\]a][^\]]"),
        (r"[\w.-]", r"[\w\.\-]"),
        (r"[\x41-C>-[]", r"[A-C>-\[]"),
        ("[[:alpha:][:digit:]_]", "[A-Za-z0-9_]"),
        ("()|a|", "()|a|"),
        ("}é", "}é"),
    ],
)
def test_a_pattern_is_the_same_in_python(pattern: str, python: str) -> None:
    found = read(pattern)

    assert found == PathPattern(python)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"\p{L}",
            r"\PL",
            r"\<a\>",
            r"\b{start}a",
            "[[a-c]x]",
            "[[:foo:]]",
            "[a-z&&[^b]]",
            "[a--b]",
            "[[:^alpha:]]",
        ),
        *("a**", "a++", "a{2}{3}", "^*", r"\b+", "a(?i)b", "(?U)a", "(?-i)a", "(?x) a # ( {"),
    ],
)
def test_what_only_the_proxy_can_say_is_accepted(pattern: str) -> None:
    assert read(pattern) == PathPattern(None)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("/users/{id}", "{id} is not a repetition such as {2,3}"),
        ("a{", "{ is not a repetition such as {2,3}"),
        ("a{,3}", "{,3} is not a repetition such as {2,3}"),
        ("a{3,2}", "{3,2} repeats too often, or has its numbers in the wrong order"),
        ("a{1000001}", "{1000001} repeats too often, or has its numbers in the wrong order"),
        ("*", "there is nothing to repeat before *"),
        ("a|+", "there is nothing to repeat before +"),
        ("(?i)?", "there is nothing to repeat before ?"),
        ("(", "a ( has no )"),
        ("a)", "a ) has no ("),
        ("[", "a [ has no ]"),
        ("[]", "a [ has no ]"),
        ("[[a]", "a [ has no ]"),
        ("[z-a]", "z-a is not a range"),
        (r"[a-\d]", r"a-\d is not a range"),
        (r"[\d-a]", r"\d-a is not a range"),
        (r"[\b]", r"\b has no meaning in a class"),
        (r"[a-\z]", r"\z has no meaning in a class"),
        (r"[a-\b{start}]", r"\b{start} has no meaning in a class"),
        ("\\", "it ends with a backslash"),
        (r"\q", r"\q is not an escape"),
        (r"\Z", r"\Z is not an escape"),
        (r"\b{x}", r"\b{x} is not an escape"),
        (r"\1", r"the proxy has no backreferences such as \1"),
        ("(?=a)", "the proxy has no look-around such as (?=…)"),
        ("(?<!a)", "the proxy has no look-around such as (?<!…)"),
        ("(?>a)", "(?> does not start a group"),
        ("(?P=a)", "(?P does not start a group"),
        ("(?q)", "(?q) does not start a group"),
        ("(?", "(? does not start a group"),
        ("(?<1>a)", "1 is not a name of a group"),
        ("(?<a>.)(?P<a>.)", "two groups have the name a"),
        (r"\x{110000}", r"\x{110000} is not a code point"),
        (r"\u{d800}", r"\u{d800} is not a code point"),
        (r"\x4", r"\x is not a code point"),
        ("(" * 251, "groups are more than 250 deep"),
        ("[" * 251, "classes are more than 250 deep"),
        ("a" * (MAX_LENGTH + 1), "it has more than 10000 characters"),
        ("a{" + "x" * 100 + "}", "{xxxxxxxxxxxxxxxxxx… is not a repetition such as {2,3}"),
    ],
    ids=lambda text: text[:20],
)
def test_what_the_proxy_refuses_is_explained(pattern: str, reason: str) -> None:
    assert read(pattern) == BadPattern(reason)


@hypothesis.given(pattern=st.text(r"ab/\.*+?{}()[]^$|<>:=!-12,dwpPuxzb&~iIé ", max_size=14) | st.text(max_size=20))
@hypothesis.settings(max_examples=examples(500))
def test_every_text_has_a_verdict_and_python_reads_what_it_should(pattern: str) -> None:
    found = read(pattern)

    if isinstance(found, PathPattern) and found.python is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(found.python)


def test_the_deepest_pattern_is_read_and_compiled() -> None:
    found = read("(" * 250 + "a" + ")" * 250)

    assert isinstance(found, PathPattern)
    assert re.compile(found.python or "").search("a") is not None
    assert read("[" * 250 + "a" + "]" * 250) == PathPattern(None)

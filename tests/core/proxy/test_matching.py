"""The route of a request: priority, then specificity, then order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.proxy.matching import (
    RequestFacts,
    RouteTable,
    host_name,
    specificity,
)
from sentinel.core.proxy.model import (
    HeaderMatch,
    HostMatch,
    Match,
    MethodMatch,
    PathMatch,
    PathPrefixMatch,
    PathRegexMatch,
    QueryParamMatch,
    Route,
)
from tests.support.examples import examples

_PATHS = ("/", "/a", "/a/b", "/b")
_MATCHES: st.SearchStrategy[Match] = st.one_of(
    st.builds(PathMatch, st.sampled_from(_PATHS)),
    st.builds(PathPrefixMatch, st.sampled_from(_PATHS)),
    st.builds(PathRegexMatch, st.sampled_from(("^/a", "b$"))),
    st.builds(HostMatch, st.sampled_from(("x.test", "*.test"))),
    st.builds(MethodMatch, st.sampled_from(("GET", "post"))),
    st.builds(HeaderMatch, st.just("X-A"), st.sampled_from((None, "1"))),
    st.builds(QueryParamMatch, st.just("q"), st.sampled_from((None, "1"))),
)
_ROUTES = st.lists(
    st.builds(
        Route,
        id=st.uuids().map(str),
        priority=st.sampled_from((10, 50)),
        matches=st.lists(_MATCHES, max_size=3).map(tuple),
    ),
    max_size=6,
)
_REQUESTS = st.builds(
    RequestFacts,
    method=st.sampled_from(("GET", "POST")),
    path=st.sampled_from(_PATHS),
    host=st.sampled_from(("x.test", "X.test:80", "test")),
    headers=st.sampled_from(({}, {"x-a": "1"}, {"x-a": "2"})),
    query=st.sampled_from(("", "q", "q=1", "q=2&q=1")),
)


def request(
    path: str = "/", *, method: str = "GET", host: str = "x.test", query: str = "", **headers: str
) -> RequestFacts:
    return RequestFacts(method, path, host, headers, query)


def matches(route_match: Match, facts: RequestFacts) -> bool:
    return RouteTable([Route(id="r", matches=(route_match,))]).find(facts) is not None


@settings(max_examples=examples(300))
@given(_ROUTES, _REQUESTS)
def test_the_route_found_is_the_best_of_those_that_match(routes: list[Route], facts: RequestFacts) -> None:
    candidates = [route for route in routes if all(matches(each, facts) for each in route.matches)]

    found = RouteTable(routes).find(facts)

    best = max(((route.priority, specificity(route)) for route in candidates), default=None)
    expected = next((route for route in candidates if (route.priority, specificity(route)) == best), None)
    assert found == expected


@given(_ROUTES, _REQUESTS)
def test_the_default_route_is_found_only_if_no_other_matches(routes: list[Route], facts: RequestFacts) -> None:
    never = Route(id="default", priority=-1, matches=(MethodMatch("NEVER"),))
    without = RouteTable(routes).find(facts)

    found = RouteTable([*routes, never]).find(facts, default="default")

    assert found == (without or never)
    assert RouteTable(routes).find(facts, default="missing") == without


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ((PathMatch("/a"),), (PathRegexMatch("^/a$"),)),
        ((PathRegexMatch("^/a$"),), (PathPrefixMatch("/a"),)),
        ((PathPrefixMatch("/a"),), (PathPrefixMatch("/"),)),
        ((PathPrefixMatch("/"),), (HostMatch("x.test"),)),
        ((HostMatch("x.test"),), (HeaderMatch("x-a", "1"),)),
        ((HeaderMatch("x-a", "1"),), (HeaderMatch("x-a"),)),
        ((HeaderMatch("x-a"),), (QueryParamMatch("q", "1"),)),
        ((QueryParamMatch("q", "1"),), (QueryParamMatch("q"),)),
        ((QueryParamMatch("q"),), (MethodMatch("GET"),)),
        ((MethodMatch("GET"),), ()),
    ],
)
def test_at_equal_priority_the_most_specific_route_wins(more: tuple[Match, ...], less: tuple[Match, ...]) -> None:
    table = RouteTable([Route(id="less", matches=less), Route(id="more", matches=more)])

    found = table.find(request("/a", query="q=1", **{"x-a": "1"}))

    assert found is not None
    assert found.id == "more"


def test_priority_comes_before_specificity_and_the_first_of_equals_wins() -> None:
    general = Route(id="general", priority=100)
    first, second = Route(id="first", matches=(PathMatch("/"),)), Route(id="second", matches=(PathMatch("/"),))

    assert RouteTable([first, general]).find(request()) == general
    assert RouteTable([first, second]).find(request()) == first


@pytest.mark.parametrize(
    ("match", "facts", "expected"),
    [
        (PathMatch("/a"), request("/a"), True),
        (PathMatch("/a"), request("/a/"), False),
        (PathPrefixMatch("/a"), request("/ab"), True),
        (PathRegexMatch("b/[0-9]+$"), request("/a/b/12"), True),
        (PathRegexMatch("b/[0-9]+$"), request("/a/b/x"), False),
        (HostMatch("X.test"), request(host="x.TEST:8080"), True),
        (HostMatch("*.test"), request(host="a.x.test"), True),
        (HostMatch("*.test"), request(host="test"), False),
        (HostMatch("[::1]"), request(host="[::1]:80"), True),
        (MethodMatch("get"), request(), True),
        (HeaderMatch("X-A"), request(**{"x-a": ""}), True),
        (HeaderMatch("X-A", "1"), request(**{"x-a": "2"}), False),
        (HeaderMatch("X-A", "1"), request(), False),
        (QueryParamMatch("a b"), request(query="a%20b"), True),
        (QueryParamMatch("q", "1"), request(query="q=2&q=1"), True),
        (QueryParamMatch("q", "1"), request(query="q"), False),
    ],
)
def test_what_each_kind_of_match_looks_at(match: Match, facts: RequestFacts, expected: bool) -> None:
    assert matches(match, facts) is expected


@pytest.mark.parametrize("pattern", [r"\p{L}", "("])
def test_a_pattern_that_python_cannot_say_matches_nothing(pattern: str) -> None:
    table = RouteTable([Route(id="r", matches=(PathRegexMatch(pattern),))])

    assert table.find(RequestFacts("GET", "/a", "", {})) is None


@pytest.mark.parametrize(
    ("host", "name"), [("A.test:1", "a.test"), ("[::1]:1", "[::1]"), ("[::1", "[::1"), ("", "")]
)
def test_the_name_of_a_host_has_no_port(host: str, name: str) -> None:
    assert host_name(host) == name

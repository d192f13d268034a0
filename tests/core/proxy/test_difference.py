"""What is different between two versions."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core import kdl
from sentinel.core.proxy.difference import Action, Change, compare
from tests.support.examples import examples

BASE = """\
system {
    worker-threads 4
}
listeners {
    listener "http" { address "0.0.0.0:80" }
}
routes {
    route "a" { matches { path "/a" }; upstream "api" }
    route "b" { matches { path "/b" }; upstream "api" }
}
upstreams {
    upstream "api" { target "a:80" weight=1 zone="x" }
    upstream "other" { target "b:80" }
}
namespace "shop" {
    limits { max-body-size 10 }
    listeners { listener "shop" { address "0.0.0.0:81" } }
    service "pay" {
        listener { address "0.0.0.0:82" }
        routes { route "a" { matches { path "/pay" } } }
        exports { upstreams "x" }
    }
}
"""
CHANGED, ADDED, REMOVED = Action.CHANGED, Action.ADDED, Action.REMOVED


def changes(before: str, after: str) -> set[Change]:
    assert kdl.parse(after).is_valid
    found = compare(before, after)
    assert bool(found.diff) == (before != after)
    assert len(set(found.changes)) == len(found.changes)
    return set(found.changes)


@pytest.mark.parametrize(
    ("old", "new", "expected", "restart_required"),
    [
        ("threads 4", "threads 8", [Change(CHANGED, "system")], True),
        ('"0.0.0.0:80"', '"0.0.0.0:8080"', [Change(CHANGED, "listeners", "http")], True),
        ('"http"', '"web"', [Change(ADDED, "listeners", "web"), Change(REMOVED, "listeners", "http")], True),
        ('"0.0.0.0:81"', '"0.0.0.0:8081"', [Change(CHANGED, "listeners", "shop", ("shop",))], True),
        ('"0.0.0.0:82"', '"0.0.0.0:8082"', [Change(CHANGED, "listeners", "", ("shop", "pay"))], True),
        (
            "listener { address",
            'listener { id "l"; address',
            [Change(ADDED, "listeners", "l", ("shop", "pay")), Change(REMOVED, "listeners", "", ("shop", "pay"))],
            True,
        ),
        ("weight=1", "weight=2", [Change(CHANGED, "upstreams", "api")], False),
        ('path "/b"', 'path "/c"', [Change(CHANGED, "routes", "b")], False),
        ("size 10", "size 11", [Change(CHANGED, "limits", None, ("shop",))], False),
        ('upstreams "x"', 'upstreams "y"', [Change(CHANGED, "exports", None, ("shop", "pay"))], False),
        ('path "/pay"', 'path "/pays"', [Change(CHANGED, "routes", "a", ("shop", "pay"))], False),
        ("routes {\n", 'routes {\n route "c" { }\n', [Change(ADDED, "routes", "c")], False),
        ("upstreams {\n", "upstreams {\n other\n", [Change(ADDED, "upstreams")], False),
        ("upstreams {\n", "upstreams x=1 {\n", [Change(ADDED, "upstreams")], False),
        ("upstreams {\n", 'upstreams "x" {\n', [Change(ADDED, "upstreams")], False),
        ("system {", "cache { }\nsystem {", [Change(ADDED, "cache")], False),
        ('service "pay" {', 'service "pay" x=1 {', [Change(CHANGED, "service", None, ("shop", "pay"))], False),
        (
            'upstreams {\n    upstream "api"',
            'upstreams {\n    upstream "api" { }\n    upstream "api"',
            [Change(CHANGED, "upstreams", "api")],
            False,
        ),
    ],
)
def test_a_change_is_found_where_it_is(old: str, new: str, expected: list[Change], restart_required: bool) -> None:
    after = BASE.replace(old, new, 1)

    assert changes(BASE, after) == set(expected)
    assert compare(BASE, after).restart_required is restart_required


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("system {", "// comment\nsystem {"),
        ("    worker", "worker"),
        ("threads 4", "threads 0x4"),
        ("system {", "server {"),
        ('weight=1 zone="x"', 'zone=#"x"# weight=1'),
        ("weight=1", "weight=7 weight=1"),
        ("weight=1", "/-weight=2 weight=1"),
        ('    upstream "other"', '}\nupstreams {\n    upstream "other"'),
    ],
)
def test_what_means_the_same_is_a_difference_of_the_text_alone(old: str, new: str) -> None:
    after = BASE.replace(old, new, 1)

    assert after != BASE
    assert changes(BASE, after) == set()
    assert not compare(BASE, after).restart_required


def test_a_whole_namespace_is_added_with_all_that_it_has() -> None:
    before = BASE[: BASE.index("namespace")]

    assert changes(before, BASE) == {
        Change(ADDED, "namespace", None, ("shop",)),
        Change(ADDED, "limits", None, ("shop",)),
        Change(ADDED, "listeners", "shop", ("shop",)),
        Change(ADDED, "service", None, ("shop", "pay")),
        Change(ADDED, "listeners", "", ("shop", "pay")),
        Change(ADDED, "routes", "a", ("shop", "pay")),
        Change(ADDED, "exports", None, ("shop", "pay")),
    }


def test_the_order_of_routes_counts_but_not_that_of_upstreams() -> None:
    lines = BASE.splitlines(keepends=True)
    routes = [*lines[:7], lines[8], lines[7], *lines[9:]]
    upstreams = [*lines[:11], lines[12], lines[11], *lines[13:]]

    assert changes(BASE, "".join(routes)) == {Change(CHANGED, "routes")}
    assert changes(BASE, "".join(upstreams)) == set()


def test_a_new_first_route_does_not_reorder_the_others() -> None:
    after = BASE.replace("routes {\n", 'routes {\n    route "first" { }\n', 1)

    assert changes(BASE, after) == {Change(ADDED, "routes", "first")}


def test_the_difference_of_the_texts_has_the_names_of_the_versions() -> None:
    found = compare("cache\n", "waf\n", before_name="api@1", after_name="api@2")

    assert found.diff == "--- api@1\n+++ api@2\n@@ -1 +1 @@\n-cache\n+waf\n"


def test_a_text_that_cannot_be_read_needs_a_restart_unless_it_is_the_same() -> None:
    assert compare("cache", "cache true").restart_required
    assert compare("cache true", "cache").restart_required
    assert not compare("cache true", "cache true").restart_required


IDS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@hypothesis.given(before=IDS, after=IDS, block=st.sampled_from(["listener", "upstream", "filter", "agent"]))
@hypothesis.settings(max_examples=examples(100))
def test_definitions_are_compared_by_id(before: dict[str, int], after: dict[str, int], block: str) -> None:
    def text(ids: dict[str, int]) -> str:
        return "".join(f'{block}s {{ {block} "{name}" {{ x {value} }} }}\n' for name, value in ids.items())

    found = compare(text(before), text(after))

    expected = {Change(ADDED, f"{block}s", name) for name in after.keys() - before.keys()}
    expected |= {Change(REMOVED, f"{block}s", name) for name in before.keys() - after.keys()}
    expected |= {
        Change(CHANGED, f"{block}s", name) for name in before.keys() & after if before[name] != after[name]
    }
    assert set(found.changes) == expected
    assert found.restart_required == (block == "listener" and bool(expected))

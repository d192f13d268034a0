"""Reading metrics in Prometheus' text format."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from sentinel.core.agent.prometheus_text import Series, parse


def read(text: str) -> list[Series]:
    return list(parse(text, {"requests", "other"}))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("requests 3", Series("requests", {}, 3.0)),
        ("requests{} 3", Series("requests", {}, 3.0)),
        ('requests{status="500",route="a"} 3.5e1', Series("requests", {"status": "500", "route": "a"}, 35.0)),
        ('requests{route="a}b{",} 1 1700000000000', Series("requests", {"route": "a}b{"}, 1.0)),
        (r'requests{route="a\"b\\c\nd"} 1', Series("requests", {"route": 'a"b\\c\nd'}, 1.0)),
        ('requests 7 # {trace_id="x"} 0.5', Series("requests", {}, 7.0)),
        ("requests\t+Inf", Series("requests", {}, math.inf)),
    ],
)
def test_a_series_is_read(line: str, expected: Series) -> None:
    assert read(f"# TYPE requests counter\n{line}\n") == [expected]


@pytest.mark.parametrize(
    "line", ["", "# requests 3", "requests", "requests three", 'requests{status="5 3', "requests_total 3", "{} 3"]
)
def test_a_line_that_cannot_be_read_is_skipped(line: str) -> None:
    assert read(f"{line}\nother 1\n") == [Series("other", {}, 1.0)]


@given(st.dictionaries(st.text(max_size=8), st.integers(0, 10**6), max_size=5))
def test_what_the_client_library_writes_is_read(counts: dict[str, int]) -> None:
    registry = CollectorRegistry()
    counter = Counter("hits", "Hits.", ["of"], registry=registry)
    for label, count in counts.items():
        counter.labels(label).inc(count)

    found = {each.labels["of"]: each.value for each in parse(generate_latest(registry).decode(), {"hits_total"})}

    assert found == counts


@given(st.text(), st.sampled_from(("", "requests", 'requests{a="', 'requests{a="b"} ')))
def test_any_text_can_be_read(text: str, start: str) -> None:
    for series in read(start + text):
        assert series.name in {"requests", "other"}

"""Evaluates the alert rules that we ship, as Prometheus would, without its server.

Our rules have one shape: a sum or maximum by some labels, of the samples of a metric or of their increase, greater
than a number, `for` some time. Anything else is an error here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from sentinel.runtime import durations

Series = tuple[str, frozenset[tuple[str, str]]]
"""A name, and labels."""
Group = tuple[str, ...]
"""The values of the labels that an alert is about."""

_RULE = re.compile(
    r"(?P<aggregation>sum|max) by \((?P<labels>[\w, ]+)\) "
    r"\((?:increase\((?P<counter>\w+)\[(?P<window>\w+)\]\)|(?P<gauge>\w+))\) > (?P<limit>\d+)"
)


class AlertRule:
    """One rule of a PrometheusRule."""

    def __init__(self, rule: Any) -> None:
        match = _RULE.fullmatch(rule["expr"])
        assert match is not None, f"expected an expression of the known shape, got {rule['expr']!r}"
        self.name: str = rule["alert"]
        self.metric: str = match["counter"] or match["gauge"]
        self.labels = tuple(match["labels"].split(", "))
        self._window = durations.parse(match["window"]) if match["window"] else None
        self._aggregate = sum if match["aggregation"] == "sum" else max
        self._limit = int(match["limit"])
        self._for = durations.parse(rule.get("for", "0s"))

    def firing(self, scrapes: Sequence[Scrape]) -> list[Group]:
        """Return what the alert is about at the last scrape."""
        now = scrapes[-1].time
        recent = [at for at, scrape in enumerate(scrapes, start=1) if now - scrape.time <= self._for]
        if now - scrapes[0].time < self._for:
            return []
        return sorted(set.intersection(*(self._matching(scrapes[:end]) for end in recent)))

    def _matching(self, scrapes: Sequence[Scrape]) -> set[Group]:
        groups: defaultdict[Group, list[float]] = defaultdict(list)
        for (name, labels), value in scrapes[-1].samples.items():
            if name == self.metric:
                by_name = dict(labels)
                group = tuple(by_name[each] for each in self.labels)
                groups[group].append(value if self._window is None else self._increase(scrapes, (name, labels)))
        return {group for group, values in groups.items() if self._aggregate(values) > self._limit}

    def _increase(self, scrapes: Sequence[Scrape], series: Series) -> float:
        """Return the increase in the window. A series that begins in it has increased by nothing at first."""
        assert self._window is not None
        start = scrapes[-1].time - self._window
        values = [each.samples[series] for each in scrapes if each.time >= start and series in each.samples]
        return values[-1] - values[0]


class Scrape:
    """All samples of a registry at one time."""

    def __init__(self, registry: CollectorRegistry, time: timedelta) -> None:
        self.time = time
        self.samples: dict[Series, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in registry.collect()
            for sample in family.samples
        }

"""Which resources a Sentinel watches: label requirements, all of which must hold.

One value serves the three places that must agree: the query that asks the server, the check of what came
back (a server may ignore the query), and the name of the shard in metrics and logs. A server may know either
of two query languages, so there are two renderings; neither is percent-encoded here, that belongs to the URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

import msgspec


class SelectorParam(StrEnum):
    """The query parameter that a server takes a selector in."""

    LABELS = "labels"
    SEARCH = "search"


class LabelMatch(msgspec.Struct, frozen=True):
    """The label is there and has exactly this value."""

    label: str
    value: str

    def __str__(self) -> str:
        return f"{self.label}={self.value}"


class Selector(msgspec.Struct, frozen=True):
    """Requirements in the order in which they were written; none at all selects everything."""

    requirements: tuple[LabelMatch, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a resource with these labels is selected."""
        # A generator for all() costs more than twice as much, once for every resource of every walk.
        for match in self.requirements:
            if labels.get(match.label) != match.value:
                return False
        return True

    def as_parameter(self, parameter: SelectorParam) -> str:
        """The value of this query parameter."""
        match parameter:
            case SelectorParam.LABELS:
                return self.as_labels_parameter()
            case SelectorParam.SEARCH:
                return self.as_search_parameter()
            case _:
                assert_never(parameter)

    def as_labels_parameter(self) -> str:
        """For servers that take Kubernetes' selector syntax: `region=us-east,environment=production`."""
        return ",".join(map(str, self.requirements))

    def as_search_parameter(self) -> str:
        """For servers that take a search expression: `labels.region='us-east' and labels.tier='gold'`."""
        quoted = ((match.label, match.value.replace("'", "''")) for match in self.requirements)
        return " and ".join(f"labels.{label}='{value}'" for label, value in quoted)

    @property
    def shard(self) -> str:
        """The same name for the same set of requirements, in whichever order they were written."""
        return ",".join(sorted(map(str, self.requirements))) or "all"

"""Which of several SentinelConfigs for the same resources runs: the oldest.

One exception: a pulse that goes on although its SentinelConfig was rejected keeps its shard. It could not start
again if it gave way, and the older one may turn out to be unable to start.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from sentinel.core.labels import Requirement


class Claim(msgspec.Struct, frozen=True):
    """A SentinelConfig that wants to watch a shard. The oldest claim wins; names decide between equal ages."""

    created: datetime
    name: str
    resource_type: str
    shard: str
    """The name of the shard in metrics and logs."""
    requirements: frozenset[Requirement]
    is_kept: bool = False
    """Whether its pulse goes on with an earlier configuration, because the present one was rejected."""

    @property
    def shard_key(self) -> tuple[str, frozenset[Requirement]]:
        """What only one pulse may watch. The same requirements may be written in several ways."""
        return self.resource_type, self.requirements


def holder(claim: Claim, others: Iterable[Claim]) -> Claim:
    """Return the claim that wins the shard of `claim`: itself, or an older or kept one for the same resources."""
    rivals = (claim, *(other for other in others if other.shard_key == claim.shard_key))
    return min(rivals, key=lambda each: (not each.is_kept, each.created, each.name))

"""A builder of resources in the state in which the API creates them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sentinel.core.fleet import lifecycle
from sentinel.core.fleet.lifecycle import AggregationRules, ResourceState


def new_resource(rules: AggregationRules, *, now: datetime) -> ResourceState:
    """Return the resource c1, whose name is "one", without labels, spec or owner."""
    return lifecycle.create(
        rules, resource_id="c1", name="one", labels={}, spec=msgspec.Raw(b"{}"), owner=None, actor="ops", now=now
    )

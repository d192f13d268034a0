"""What the fleet API's lists can be asked for, and what they answer with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sentinel.core.fleet.documents import (
    AdapterStatus,
    DiscardedReport,
    GenerationRecord,
    KindRules,
    ResourceDocument,
)
from sentinel.core.pulse.decision import Policy
from sentinel.web.cursor import PageSize

_DEEPEST_PAGE = 1_000_000

PageNumber = Annotated[int, Meta(ge=1, le=_DEEPEST_PAGE, description="Which page; its cost grows with it.")]


class ListParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a list can be asked for."""

    page: PageNumber | None = None
    size: PageSize = 100
    after: Annotated[str, Meta(description="Where to go on: `next` of the page before. Its cost is flat.")] = ""
    labels: Annotated[str, Meta(description="A label selector in Kubernetes' syntax.")] = ""
    fields: Annotated[
        str, Meta(description="Paths of the members wanted, separated by commas; `id` always is.")
    ] = ""
    order: Annotated[
        str,
        Meta(
            description="`name`, `created_time` (as long as nothing is asked for), `updated_time` or `id`, and "
            "`asc` or `desc`."
        ),
    ] = ""


class PageParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a short list can be asked for."""

    page: PageNumber = 1
    size: PageSize = 100


class ResourceList(msgspec.Struct, frozen=True):
    """A page of resources."""

    page: int
    size: int
    """How many items came."""
    total: int
    """How many there are in all pages; counted on the first."""
    items: Sequence[ResourceDocument]
    next: str | None
    """To be sent as `after`; null at the end."""


class StatusList(msgspec.Struct, frozen=True):
    """A page of adapters' statuses."""

    page: int
    size: int
    total: int
    items: Sequence[AdapterStatus]


class DiscardedList(msgspec.Struct, frozen=True):
    """A page of discarded reports, newest first."""

    page: int
    size: int
    total: int
    items: Sequence[DiscardedReport]


class GenerationList(msgspec.Struct, frozen=True):
    """A page of a resource's past generations, newest first."""

    page: int
    size: int
    total: int
    items: Sequence[GenerationRecord]


class Waiting(msgspec.Struct, frozen=True):
    """A required adapter that keeps a resource from being ready, or from going."""

    adapter: str
    since: datetime


class WaitingList(msgspec.Struct, frozen=True):
    """What a resource waits for."""

    waiting_for: Sequence[Waiting]
    """By name; none where it is ready."""
    required_adapters: Sequence[str]
    """Those of its kind."""
    children: int
    """How many resources belong to it; a deletion waits for them, too."""
    policy: Policy | UnsetType = UNSET
    """When it is due for an event; only where the API runs beside the pulse, and therefore knows."""


class KindList(msgspec.Struct, frozen=True):
    """The kinds of resource that are served."""

    items: Sequence[KindRules]

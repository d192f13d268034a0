"""Query parameters and response bodies of the fleet API. The docstrings appear in its OpenAPI document."""

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
from sentinel.web.lists import PageSize

_MAX_PAGE = 1_000_000

PageNumber = Annotated[int, Meta(ge=1, le=_MAX_PAGE, description="The page number. Later pages cost more.")]


class ListParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a list of resources."""

    page: PageNumber | None = None
    size: PageSize = 100
    after: Annotated[
        str, Meta(description="The cursor from `next` of the previous page. Every page costs the same.")
    ] = ""
    labels: Annotated[str, Meta(description="A label selector in Kubernetes syntax.")] = ""
    search: Annotated[
        str,
        Meta(
            description="Comparisons with `=`, `!=` and `in` on `labels.<key>`, `name`, `id`, `generation` and "
            "`status.conditions.<Type>`, joined by `and`, `or`, `not` and parentheses. Strings are in single "
            "quotes, and a quote in a string is doubled. Example: `labels.region='us-east' and not generation=1`."
        ),
    ] = ""
    fields: Annotated[
        str, Meta(description="The members to return: paths separated by commas. `id` is always included.")
    ] = ""
    order: Annotated[
        str,
        Meta(
            description="`name`, `created_time` (the default), `updated_time` or `id`, optionally followed by "
            "`asc` or `desc`."
        ),
    ] = ""
    watch: Annotated[
        bool,
        Meta(
            description="Whether to stream the resources and their changes as server-sent events instead. Only "
            "`labels` and `fields` apply then."
        ),
    ] = False


class ResourceParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a single resource."""

    statuses: Annotated[
        bool, Meta(description="Whether to add `statuses`: the latest report of each adapter.")
    ] = False


class WatchableResourceParameters(ResourceParameters, frozen=True, kw_only=True):
    """The query of a single resource of a known kind."""

    watch: Annotated[
        bool, Meta(description="Whether to stream the resource and its changes as server-sent events instead.")
    ] = False


class ResourceWithStatuses(ResourceDocument, frozen=True, kw_only=True):
    """A resource and, if requested, the latest report of each adapter, sorted by adapter."""

    statuses: Sequence[AdapterStatus] | UnsetType = UNSET


class NumberedPageParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a list without a cursor."""

    page: PageNumber = 1
    size: PageSize = 100

    @property
    def offset(self) -> int:
        """How many items the earlier pages have."""
        return (self.page - 1) * self.size


class ResourceList(msgspec.Struct, frozen=True):
    """A page of resources."""

    page: int
    size: int
    """How many items this page has."""
    total: int
    """How many items all pages have, counted on the first page."""
    items: Sequence[ResourceDocument]
    next: str | None
    """The value of `after` for the next page; null on the last page."""


class _Page(msgspec.Struct, frozen=True):
    page: int
    size: int
    total: int


class StatusList(_Page, frozen=True):
    """A page of adapters' statuses."""

    items: Sequence[AdapterStatus]


class DiscardedList(_Page, frozen=True):
    """A page of discarded reports, newest first."""

    items: Sequence[DiscardedReport]


class GenerationList(_Page, frozen=True):
    """A page of a resource's past generations, newest first."""

    items: Sequence[GenerationRecord]


class Waiting(msgspec.Struct, frozen=True):
    """A required adapter that keeps a resource from being ready or from being removed."""

    adapter: str
    since: datetime


class WaitingList(msgspec.Struct, frozen=True):
    """What a resource waits for."""

    waiting_for: Sequence[Waiting]
    """Sorted by adapter; empty if the resource is ready."""
    required_adapters: Sequence[str]
    """The adapters that its kind requires."""
    children: int
    """How many children it has. A deletion also waits for them."""
    policy: Policy | UnsetType = UNSET
    """When the pulse publishes events for it; only if the pulse runs in the same process."""


class KindList(msgspec.Struct, frozen=True):
    """The kinds of resource that are served."""

    items: Sequence[KindRules]

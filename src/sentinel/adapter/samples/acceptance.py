"""The sample `validation`: whether a spec will do, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sentinel.adapter.context import Context
from sentinel.adapter.declaration import Adapter
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Done, Failed, Outcome
from sentinel.core.json import Json

NAME: Final = "validation"
NEEDS: Final[tuple[str, ...]] = ()

_LONGEST_QUOTE = 80


def declare(kinds: Sequence[str]) -> Adapter:
    """The adapter, for these kinds. It makes nothing, so there is nothing for it to clean up."""
    adapter = Adapter(NAME)
    adapter.task(kinds=kinds)(check_spec)
    return adapter


async def check_spec(resource: Resource, context: Context) -> Outcome:
    """Looks at the spec alone, so it may be repeated at any time."""
    objections = list(objections_to(resource.spec))
    if objections:
        return Failed("; ".join(objections), reason="SpecRejected")
    return Done("the spec is acceptable", reason="SpecAccepted")


def objections_to(spec: Json) -> Iterator[str]:
    """What is wrong with a spec: everything, not only the first thing."""
    if not isinstance(spec, Mapping):
        return
    if "replicas" in spec and not _is_positive(spec["replicas"]):
        yield f"replicas: expected a positive integer, got {_quoted(spec['replicas'])}"
    if "region" in spec and _is_empty(spec["region"]):
        yield f"region: expected the name of a region, got {_quoted(spec['region'])}"


def _is_positive(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], {})


def _quoted(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"

"""What adapters' reports amount to, once more: written from the specification, as plainly as can be.

It knows nothing of `core.fleet.aggregate` and is no faster, shorter or more general than it has to be. Where the
two disagree, a simulation has found something.

The rules. `Ready`: every required adapter says Available at the resource's own generation. `Available` turns
True when all of them say so at one generation, whichever; it turns False only when one of them takes back the
generation that it was True for; otherwise it stays what and when it was. A report counts unless it says Unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec


class Said(msgspec.Struct, frozen=True):
    """The last thing that an adapter has said, and the API has accepted."""

    generation: int
    time: datetime
    available: str
    since: datetime
    """When it began to say so."""


class Held(msgspec.Struct, frozen=True):
    """A condition."""

    is_true: bool
    generation: int
    updated: datetime | None
    """None where the specification leaves it open: while `Available` was False and still is."""
    transition: datetime | None
    """None where the specification leaves that open, too: `Available` falls because an adapter has become required
    that has not reported."""

    def __str__(self) -> str:
        since, updated = (_shown(self.transition), _shown(self.updated))
        return f"{self.is_true}@{self.generation} since {since}, as of {updated}"


class Progress(msgspec.Struct, frozen=True):
    """How often an adapter has become content with the resource's own generation, and when last."""

    time: datetime | None = None
    count: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is so when the question is asked."""

    generation: int
    updated: datetime
    is_deleting: bool
    required: tuple[str, ...]
    said: Mapping[str, Said]

    @property
    def counted(self) -> list[Said]:
        """What the required adapters have said, as far as it counts."""
        return [
            self.said[adapter]
            for adapter in self.required
            if adapter in self.said and self.said[adapter].available != "Unknown"
        ]

    @property
    def is_complete(self) -> bool:
        return len(self.counted) == len(self.required)


def observed_generation(facts: Facts) -> int:
    """The lowest generation that every required adapter has reported."""
    return min(each.generation for each in facts.counted) if facts.is_complete else 0


def ready(facts: Facts, before: Held | None) -> Held:
    current = [each for each in facts.counted if each.generation == facts.generation]
    is_ready = (
        not facts.is_deleting
        and len(current) == len(facts.required)
        and all(each.available == "True" for each in current)
    )
    updated = min([each.time for each in current], default=facts.updated)
    if before is not None and before.is_true == is_ready:
        transition = before.transition
    elif before is not None and before.is_true and facts.generation > before.generation:
        transition = facts.updated
    else:
        transition = updated
    return Held(is_ready, facts.generation, updated, transition)


def available(facts: Facts, before: Held | None) -> Held:
    if before is None:
        return Held(False, 1, facts.updated, facts.updated)
    generations = {each.generation for each in facts.counted}
    if facts.is_complete and len(generations) == 1 and all(each.available == "True" for each in facts.counted):
        updated = min(each.time for each in facts.counted)
        return Held(True, generations.pop(), updated, before.transition if before.is_true else updated)
    newest = max(generations, default=before.generation)
    if not before.is_true:
        return Held(False, newest, None, before.transition)
    if not facts.is_complete:
        return Held(False, newest, None, None)
    felling = [
        each.time for each in facts.counted if each.available == "False" and each.generation == before.generation
    ]
    if not felling:
        return before
    return Held(False, newest, min(felling), min(felling))


def progress(facts: Facts, before: Mapping[str, Said], so_far: Progress) -> Progress:
    """`before` is what those adapters had said until now that were required then."""
    turned = [
        # One who said so before it was required has turned when it began to.
        said.time if adapter in before else said.since
        for adapter, said in facts.said.items()
        if adapter in facts.required
        and _is_content(said, facts.generation)
        and not _is_content(before.get(adapter), facts.generation)
    ]
    latest = max([*turned, *([] if so_far.time is None else [so_far.time])], default=None)
    return Progress(latest, so_far.count + len(turned))


def _shown(moment: datetime | None) -> str:
    return "some time" if moment is None else moment.isoformat()


def _is_content(said: Said | None, generation: int) -> bool:
    return said is not None and said.available == "True" and said.generation == generation

"""Resources by id or name, as users give them on the command line.

The id is tried first, then the name. A name is looked up by `search`, which costs one small request for each kind.
A server that refuses or ignores `search` is asked for the names of all its resources instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import msgspec

from sentinel.cli import table
from sentinel.cli.client.fleet import FetchedDocument, FleetClient, decode
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.drivers.rest.url import InvalidSegment
from sentinel.runtime.settings.report import quoted

_MAX_CANDIDATES = 20
_FIELDS = "name,kind,owner_references"


class _Owner(msgspec.Struct, frozen=True):
    id: str = ""


class UnknownName(ServerError):
    """Nothing has the id or name that was given."""


class Candidate(msgspec.Struct, frozen=True):
    """A resource with the name that was given."""

    id: str
    name: str = ""
    kind: str = ""
    owner_references: _Owner = _Owner()


class AmbiguousName(Exception):
    """Several resources have the name that was given."""

    def __init__(self, message: str, candidates: Sequence[Candidate]) -> None:
        super().__init__(message)
        self.candidates = candidates

    def lines(self) -> Iterator[str]:
        """Yield the message and a table of the candidates."""
        shown = self.candidates[:_MAX_CANDIDATES]
        rows = [(each.id, each.kind, each.owner_references.id) for each in shown]
        yield str(self)
        yield from table.render(("ID", "KIND", "PARENT"), rows)
        if len(self.candidates) > len(shown):
            yield "and more"


async def resolve(fleet: FleetClient, reference: str, *, plural: str = "") -> FetchedDocument:
    """Return the resource with this id, or the only one with this name; of any kind without a plural.

    Raises `AmbiguousName` if several have the name, and `UnknownName` if none has it.
    """
    found = await _find_by_id(fleet, reference, plural)
    if found is not None:
        return found
    plurals = [plural] if plural else [kind.plural for kind in await fleet.kinds()]
    candidates = [(each, named) for each in plurals for named in await _find_by_name(fleet, reference, each)]
    if not candidates:
        raise UnknownName(f"no {plural or 'resource'} with the id or name {quoted(reference)}")
    if len(candidates) > 1:
        message = f"several {plural or 'resources'} have the name {quoted(reference)}; give the id of one:"
        raise AmbiguousName(message, [candidate for _, candidate in candidates])
    ((found_plural, only),) = candidates
    return await fleet.get(found_plural, only.id)


async def _find_by_id(fleet: FleetClient, reference: str, plural: str) -> FetchedDocument | None:
    try:
        return await fleet.get_or_none(plural, reference) if plural else await fleet.find_or_none(reference)
    except InvalidSegment:
        if not reference.strip() or not reference.isprintable():
            raise
        return None  # a name such as a/b, which cannot be an id


async def _find_by_name(fleet: FleetClient, name: str, plural: str) -> list[Candidate]:
    """Return the resources of a kind that have this name, at most one more than are shown."""
    search = "name='{}'".format(name.replace("'", "''"))
    try:
        return await _matching(fleet, name, plural, {"search": search, "size": str(_MAX_CANDIDATES + 1)})
    except _SearchIgnored:
        pass
    except RequestRejected as rejected:
        if rejected.status != HTTPStatus.BAD_REQUEST:
            raise
    return await _matching(fleet, name, plural, {})


class _SearchIgnored(Exception):
    """The server has sent resources with other names than the one that was searched for."""


async def _matching(fleet: FleetClient, name: str, plural: str, query: Mapping[str, str]) -> list[Candidate]:
    candidates: list[Candidate] = []
    async for item in fleet.list_all(plural, {**query, "fields": _FIELDS}):
        candidate = decode(item, Candidate)
        if candidate.name == name:
            candidates.append(candidate)
        elif "search" in query:
            raise _SearchIgnored
        if len(candidates) > _MAX_CANDIDATES:
            break
    return candidates

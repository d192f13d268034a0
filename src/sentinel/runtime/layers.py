"""Flags over environment over file over default, key by key.

Each source is laid over the tree beneath it before anything is interpreted, so that a value is read the same
way whoever wrote it, and still knows who did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from sentinel.runtime.provenance import Origin, Source, closest, printable
from sentinel.runtime.reading import Reading, Shape
from sentinel.runtime.sections import Elsewhere, Field, Items, Section, Texts
from sentinel.runtime.tree import Member, Node, Scalar, Table, join
from sentinel.runtime.yamltree import parse

NOT_SETTINGS = frozenset(
    (
        "SENTINEL_SERVER",
        "SENTINEL_TOKEN",
        "SENTINEL_REGISTRATION_TOKEN",
        "SENTINEL_DEBOUNCE_WINDOW_SECONDS",
        "SENTINEL_REQUIRE_ALL",
    )
)
"""Variables of this product that no settings file knows, and that are therefore no misspelling of a setting."""

# What Kubernetes puts into every pod for every Service of its namespace, under the Service's name.
_SERVICE_LINK = re.compile(
    r".*(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class Given(msgspec.Struct, frozen=True):
    """A setting written outside a file, as text."""

    path: tuple[str, ...]
    text: str
    at: Origin

    @property
    def key(self) -> str:
        """The path as it is written after `--set`."""
        return ".".join(self.path)


def from_flags(flags: Sequence[str], reading: Reading) -> list[Given]:
    """What `--set KEY=VALUE` says, in the order of the command line."""
    at = Origin(Source.FLAG, "--set")
    given = []
    for flag in flags:
        key, separator, text = flag.partition("=")
        if separator:
            given.append(Given(tuple(key.strip().split(".")), text, at))
        else:
            reading.refuse(at, key.strip(), "expected KEY=VALUE, got no =")
    return given


def from_environment(section: Section, environ: Mapping[str, str], prefix: str) -> tuple[list[Given], list[str]]:
    """What variables say, and warnings for those that nearly say something.

    The shorter path comes first, so that a single value beats the mapping it belongs to.
    """
    given = []
    unknown = []
    for name in sorted(environ, key=lambda name: (name.count("__"), name)):
        if name.startswith(prefix):
            path = tuple(name.removeprefix(prefix).lower().split("__"))
            if _is_setting(section, path):
                given.append(Given(path, environ[name], Origin(Source.ENVIRONMENT, name)))
            else:
                unknown.append(name)
    return given, near_misses(unknown, dict(_variables(section, prefix)), prefix)


def near_misses(unknown: Iterable[str], meanings: Mapping[str, str], prefix: str) -> list[str]:
    """Warnings for variables that are no setting but read like one.

    `meanings` has, for each variable that somebody might have meant, the one to name to them.
    """
    # Compared without the prefix: what all have in common must not make them alike.
    bare = {variable.removeprefix(prefix): meant for variable, meant in meanings.items()}
    warnings = []
    for name in sorted(unknown):
        if name not in NOT_SETTINGS and not _SERVICE_LINK.fullmatch(name):
            near = closest(name.removeprefix(prefix), bare, cutoff=0.65)
            if near is not None:
                warnings.append(printable(f"{name} is no setting and is ignored; did you mean {bare[near]}?"))
    return warnings


def overlay(table: Table, section: Section, given: Given, reading: Reading, *, within: str = "") -> Table:
    """The tree with one more value laid over it; a key that is no setting is refused."""
    key, *rest = given.path
    path = join(within, key)
    field = section.get(key)
    if field is None or (rest and not isinstance(field.shape, Section | Texts)):
        listing = section.get(key.partition("[")[0])
        if listing is not None and isinstance(listing.shape, Items):
            message = f"expected the whole list at once, as in {join(within, listing.key)}=[...]"
            reading.refuse(given.at, join(within, given.key), message)
        else:
            reading.refuse_unknown(given.at, join(within, given.key), section.keys())
        return table
    member = table.get(key)
    beneath = _default(field, given.at) if member is None else member.value
    if not rest:
        return _replace(table, field, beneath, given, reading, path)
    if not isinstance(beneath, Table):
        return table  # what the file has there is refused anyway
    if isinstance(field.shape, Section):
        inner = msgspec.structs.replace(given, path=tuple(rest))
        value: Node = overlay(beneath, field.shape, inner, reading, within=path)
    else:
        value = _plant(beneath, rest, given)
    return table.put(key, value, given.at if member is None else member.at)


def _replace(table: Table, field: Field, beneath: Node, given: Given, reading: Reading, path: str) -> Table:
    """The table with one field set as a whole: a text as it stands, anything larger as YAML."""
    if not isinstance(field.shape, Section | Texts | Items):
        return table.put(field.key, Scalar(given.text, given.at), given.at)
    root, problems = parse(given.text, given.at, within=path)
    reading.problems.extend(problems)
    if root is None and problems:
        return table
    return table.put(field.key, _over(beneath, root or Scalar("", given.at), field.shape), given.at)


def merge(beneath: Table, above: Table, section: Section) -> Table:
    """Both, key by key; where both have one, that above. Lists and tables of texts count as one value."""
    members = {member.key: member for member in beneath.members}
    for member in above.members:
        field = section.get(member.key)
        under = members.get(member.key)
        if field is None or under is None:
            members[member.key] = member
        else:
            value = _over(under.value, member.value, field.shape)
            members[member.key] = Member(member.key, member.at, value)
    return Table(tuple(members.values()), beneath.at)


def _over(beneath: Node, above: Node, shape: Shape) -> Node:
    if isinstance(shape, Section) and isinstance(beneath, Table) and isinstance(above, Table):
        return merge(beneath, above, shape)
    return above


def _default(field: Field, at: Origin) -> Node:
    """What a single value is laid over where nobody has written the mapping that it belongs to."""
    if isinstance(field.shape, Texts) and not field.info.required:
        return _texts(field.default())
    return Table((), at)


def _texts(value: object) -> Node:
    if not isinstance(value, Mapping):
        return Scalar(str(value), Origin(), is_plain=False)
    table = Table((), Origin())
    for key, inner in value.items():
        table = table.put(key, _texts(inner), Origin())
    return table


def _plant(node: Node, path: Sequence[str], given: Given) -> Node:
    if not path:
        return Scalar(given.text, given.at)
    table = node if isinstance(node, Table) else Table((), given.at)
    member = table.get(path[0])
    beneath = Table((), given.at) if member is None else member.value
    return table.put(path[0], _plant(beneath, path[1:], given), given.at)


def _variables(section: Section, prefix: str) -> Iterator[tuple[str, str]]:
    """The variable of each setting, and the one to name to somebody who writes it."""
    for field in section.fields:
        name = prefix + field.key.upper()
        if isinstance(field.shape, Elsewhere):
            yield name, field.shape.variable
        else:
            yield name, name
        if isinstance(field.shape, Section):
            yield from _variables(field.shape, name + "__")


def _is_setting(shape: Shape, path: Sequence[str]) -> bool:
    if not path:
        return not isinstance(shape, Elsewhere)
    if isinstance(shape, Texts):
        return all(path)
    field = shape.get(path[0]) if isinstance(shape, Section) else None
    return field is not None and _is_setting(field.shape, path[1:])

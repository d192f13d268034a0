"""Flags over environment over file over default, key by key.

Each source is laid over the tree beneath it before anything is interpreted, so that a value is read the same
way whoever wrote it, and still knows who did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, Member, Node, ScalarNode, join
from sentinel.runtime.settings.report import Origin
from sentinel.runtime.settings.schema import Field, Section, StructList, TextMapping
from sentinel.runtime.settings.sources import Assignment
from sentinel.runtime.settings.validation import Readable, Validation
from sentinel.runtime.settings.yaml_file import parse


def overlay(
    table: MappingNode, section: Section, given: Assignment, validation: Validation, *, within: str = ""
) -> MappingNode:
    """The tree with one more value laid over it; a key that is no setting is refused."""
    key, *rest = given.path
    path = join(within, key)
    field = section.get(key)
    if field is None or (rest and not isinstance(field.shape, Section | TextMapping)):
        listing = section.get(key.partition("[")[0])
        if listing is not None and isinstance(listing.shape, StructList):
            message = f"expected the whole list at once, as in {join(within, listing.key)}=[...]"
            validation.reject(given.at, join(within, given.key), message)
        else:
            validation.reject_unknown(given.at, join(within, given.key), section.keys())
        return table
    member = table.get(key)
    beneath = _default(field, given.at) if member is None else member.value
    if not rest:
        return _replace(table, field, beneath, given, validation, path)
    if not isinstance(beneath, MappingNode):
        return table  # what the file has there is refused anyway
    if isinstance(field.shape, Section):
        inner = msgspec.structs.replace(given, path=tuple(rest))
        value: Node = overlay(beneath, field.shape, inner, validation, within=path)
    else:
        value = _plant(beneath, rest, given)
    return table.put(key, value, given.at if member is None else member.at)


def _replace(
    table: MappingNode, field: Field, beneath: Node, given: Assignment, validation: Validation, path: str
) -> MappingNode:
    """The table with one field set as a whole: a text as it stands, anything larger as YAML."""
    if not isinstance(field.shape, Section | TextMapping | StructList):
        return table.put(field.key, ScalarNode(given.text, given.at), given.at)
    root, problems = parse(given.text, given.at, within=path)
    validation.problems.extend(problems)
    if root is None and problems:
        return table
    return table.put(field.key, _over(beneath, root or ScalarNode("", given.at), field.shape), given.at)


def merge(beneath: MappingNode, above: MappingNode, section: Section) -> MappingNode:
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
    return MappingNode(tuple(members.values()), beneath.at)


def _over(beneath: Node, above: Node, shape: Readable) -> Node:
    if isinstance(shape, Section) and isinstance(beneath, MappingNode) and isinstance(above, MappingNode):
        return merge(beneath, above, shape)
    return above


def _default(field: Field, at: Origin) -> Node:
    """What a single value is laid over where nobody has written the mapping that it belongs to."""
    if isinstance(field.shape, TextMapping) and not field.info.required:
        return _texts(field.default())
    return MappingNode((), at)


def _texts(value: object) -> Node:
    if not isinstance(value, Mapping):
        return ScalarNode(str(value), Origin(), is_plain=False)
    table = MappingNode((), Origin())
    for key, inner in value.items():
        table = table.put(key, _texts(inner), Origin())
    return table


def _plant(node: Node, path: Sequence[str], given: Assignment) -> Node:
    if not path:
        return ScalarNode(given.text, given.at)
    table = node if isinstance(node, MappingNode) else MappingNode((), given.at)
    member = table.get(path[0])
    beneath = MappingNode((), given.at) if member is None else member.value
    return table.put(path[0], _plant(beneath, path[1:], given), given.at)

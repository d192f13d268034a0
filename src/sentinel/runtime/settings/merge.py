"""Merges sources key by key: flags override environment, environment overrides file, file overrides defaults.

Sources are merged before anything is interpreted. So a value is parsed the same way whatever its source, and keeps
its origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, Member, Node, ScalarNode, join
from sentinel.runtime.settings.report import Origin
from sentinel.runtime.settings.schema import FlatMapping, Section, SettingField, StructList, TextList, TextMapping
from sentinel.runtime.settings.sources import Assignment
from sentinel.runtime.settings.validation import Readable, Validation
from sentinel.runtime.settings.yaml_file import parse


def overlay(
    tree: MappingNode, section: Section, assignment: Assignment, validation: Validation, *, parent: str = ""
) -> MappingNode:
    """Return the tree with one assignment applied. Rejects a key that is not a setting."""
    key, *rest = assignment.path
    path = join(parent, key)
    field = section.get(key)
    if field is None or (rest and not isinstance(field.type, Section | TextMapping)):
        list_field = section.get(key.partition("[")[0])
        if list_field is not None and isinstance(list_field.type, StructList):
            message = f"expected the whole list at once, as in {join(parent, list_field.key)}=[...]"
            validation.reject(assignment.at, join(parent, assignment.key), message)
        else:
            validation.reject_unknown(assignment.at, join(parent, assignment.key), section.keys())
        return tree
    member = tree.get(key)
    current = _default_node(field, assignment.at) if member is None else member.value
    if not rest:
        return _replace_field(tree, field, current, assignment, validation, path)
    if not isinstance(current, MappingNode):
        return tree  # the file has something else there, which is rejected later
    if isinstance(field.type, Section):
        inner = msgspec.structs.replace(assignment, path=tuple(rest))
        value: Node = overlay(current, field.type, inner, validation, parent=path)
    else:
        value = _set_text(current, rest, assignment)
    return tree.with_member(key, value, assignment.at if member is None else member.at)


def _replace_field(
    tree: MappingNode,
    field: SettingField,
    current: Node,
    assignment: Assignment,
    validation: Validation,
    path: str,
) -> MappingNode:
    """Set a whole field: a single value as it is, anything larger as YAML."""
    text, at = assignment.text, assignment.at
    if not isinstance(field.type, Section | TextMapping | FlatMapping | StructList | TextList):
        return tree.with_member(field.key, ScalarNode(text, at), at)
    root, problems = parse(text, at, parent=path)
    validation.problems.extend(problems)
    if root is None and problems:
        return tree
    return tree.with_member(field.key, _merge_value(current, root or ScalarNode("", at), field.type), at)


def merge(base: MappingNode, override: MappingNode, section: Section) -> MappingNode:
    """Merge two mappings recursively. Lists and text mappings are replaced as a whole."""
    members = {member.key: member for member in base.members}
    for member in override.members:
        field = section.get(member.key)
        existing = members.get(member.key)
        if field is None or existing is None:
            members[member.key] = member
        else:
            value = _merge_value(existing.value, member.value, field.type)
            members[member.key] = Member(member.key, member.at, value)
    return MappingNode(tuple(members.values()), base.at)


def _merge_value(base: Node, override: Node, type_: Readable) -> Node:
    if isinstance(type_, Section) and isinstance(base, MappingNode) and isinstance(override, MappingNode):
        return merge(base, override, type_)
    return override


def _default_node(field: SettingField, at: Origin) -> Node:
    """Return the mapping that an assignment to one of its keys starts from, if no source has it yet."""
    if isinstance(field.type, TextMapping) and not field.info.required:
        return _node_of_default(field.default())
    return MappingNode((), at)


def _node_of_default(value: object) -> Node:
    if not isinstance(value, Mapping):
        return ScalarNode(str(value), Origin(), is_plain=False)
    mapping = MappingNode((), Origin())
    for key, inner in value.items():
        mapping = mapping.with_member(key, _node_of_default(inner), Origin())
    return mapping


def _set_text(node: Node, path: Sequence[str], assignment: Assignment) -> Node:
    """Return the node with the text set at this path, creating mappings on the way."""
    if not path:
        return ScalarNode(assignment.text, assignment.at)
    mapping = node if isinstance(node, MappingNode) else MappingNode((), assignment.at)
    member = mapping.get(path[0])
    current = MappingNode((), assignment.at) if member is None else member.value
    return mapping.with_member(path[0], _set_text(current, path[1:], assignment), assignment.at)

"""Derives from a struct how its settings are read from a config tree.

A setting is declared once, as a field of a frozen struct: its type (or an `Annotated` `Readable` if the type is
not specific enough), its default, and a docstring that is its entry in the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Union, get_args, get_origin

import msgspec

from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.config_tree import (
    ListNode,
    MappingNode,
    Member,
    Node,
    ScalarNode,
    describe_node,
    join,
)
from sentinel.runtime.settings.report import Origin, Source, is_utf8
from sentinel.runtime.settings.validation import INVALID, Readable, Validation


class EnvironmentSecret(msgspec.Struct, frozen=True):
    """A secret that is read from one environment variable and rejected everywhere else."""

    variable: str
    instead: str
    """What to do, for a user who wrote it into a file or a flag."""
    type: field_types.FieldType = field_types.SECRET

    @property
    def expected(self) -> str:
        return self.type.expected

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Reject the value: files are shared, and flags are visible in the process list."""
        validation.reject(at, path, f"expected no secret here; {self.instead}")
        return INVALID

    def read_variable(self, path: str, validation: Validation) -> object:
        """Return the secret, or None if the variable is unset or empty."""
        text = validation.environ.get(self.variable, "").strip()
        if not text:
            validation.accept(path, None, Origin())
            return None
        origin = Origin(Source.ENVIRONMENT, self.variable)
        return self.type.read(ScalarNode(text, origin, is_plain=False), path, origin, validation)


def _read_list(
    setting: StructList | TextList, node: Node, path: str, at: Origin, validation: Validation
) -> object:
    """Return a tuple of items. The list is one effective setting, as it is after `--set`."""
    if not isinstance(node, ListNode):
        validation.reject(node.at, path, f"expected {setting.expected}, got {describe_node(node)}")
        return INVALID
    items = validation.for_items()
    values = tuple(
        setting.item.read(item, f"{path}[{index}]", item.at, items) for index, item in enumerate(node.items)
    )
    validation.problems.extend(items.problems)
    if INVALID in values:
        return INVALID
    validation.accept(path, values, at)
    return values


class StructList(msgspec.Struct, frozen=True):
    """A list of sections."""

    item: Section
    expected: str

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a tuple of structs."""
        return _read_list(self, node, path, at, validation)


class TextMapping(msgspec.Struct, frozen=True):
    """Texts under names that the user chooses, nested to any depth. Each text is one effective setting."""

    expected: str
    check: Callable[[str], object]
    """Raises `ValueError` with the whole message if a text is invalid."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a mapping of names to texts or further mappings."""
        if not isinstance(node, MappingNode):
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        values = {member.key: self._read_member(member, path, validation) for member in node.members}
        return INVALID if INVALID in values.values() else values

    def _read_member(self, member: Member, parent: str, validation: Validation) -> object:
        node, path, at = member.value, join(parent, member.key), member.at
        if not member.key or not is_utf8(member.key):
            got = "a byte that is not UTF-8" if member.key else "nothing"
            validation.reject(at, parent, f"expected a name, got {got}")
            return INVALID
        if isinstance(node, MappingNode):
            return self.read(node, path, at, validation)
        if isinstance(node, ListNode) or node.is_null or not node.text:
            validation.reject(node.at, path, f"expected text, or a mapping of texts, got {describe_node(node)}")
            return INVALID
        if not is_utf8(node.text):
            validation.reject(node.at, path, "expected text, got a byte that is not UTF-8")
            return INVALID
        try:
            self.check(node.text)
        except ValueError as error:
            validation.reject(node.at, path, str(error))
            return INVALID
        validation.accept(path, node.text, at)
        return node.text


class FlatMapping(msgspec.Struct, frozen=True):
    """Texts under names that the user chooses, such as labels: not nested, and they may be empty."""

    expected: str
    value: field_types.FieldType = field_types.TEXT

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a mapping of names to values. Each is one effective setting."""
        if not isinstance(node, MappingNode):
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        values = {
            member.key: self.value.read(member.value, join(path, member.key), member.at, validation)
            for member in node.members
        }
        return INVALID if INVALID in values.values() else values


class TextList(msgspec.Struct, frozen=True):
    """A list of texts. It is one effective setting."""

    expected: str
    item: field_types.FieldType = field_types.TEXT

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a tuple of values."""
        return _read_list(self, node, path, at, validation)


class SettingField(msgspec.Struct, frozen=True):
    """One setting of a section."""

    name: str
    key: str
    """The name in files: that of the struct's field, unless the struct renames it."""
    type: Readable
    info: msgspec.structs.FieldInfo
    is_nullable: bool

    def default(self) -> object:
        factory = self.info.default_factory
        return self.info.default if factory is msgspec.NODEFAULT else factory()


class Section(msgspec.Struct, frozen=True):
    """A struct: settings under fixed names."""

    struct: Callable[..., object]
    fields: tuple[SettingField, ...]
    expected: str = "a mapping of settings"

    def get(self, key: str) -> SettingField | None:
        """Return the setting with this key."""
        return next((field for field in self.fields if field.key == key), None)

    def keys(self) -> list[str]:
        return [field.key for field in self.fields]

    def paths(self, prefix: str = "") -> list[str]:
        """Return the paths of all settings, including those of inner sections."""
        found: list[str] = []
        for field in self.fields:
            path = join(prefix, field.key)
            found.append(path)
            if isinstance(field.type, Section):
                found += field.type.paths(path)
        return found

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return the struct, or `INVALID` if one of its fields is invalid."""
        if path and isinstance(node, ScalarNode) and node.is_null:
            # A key with nothing below it. Its required settings are reported as missing, each by name.
            node = MappingNode((), node.at)
        if not isinstance(node, MappingNode):
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        keys = self.keys()
        for member in node.members:
            if member.key not in keys:
                validation.reject_unknown(member.at, join(path, member.key), keys)
        values = {
            field.name: self._read_field(field, node.get(field.key), join(path, field.key), at, validation)
            for field in self.fields
        }
        return INVALID if INVALID in values.values() else self.struct(**values)

    def _read_field(
        self, field: SettingField, member: Member | None, path: str, parent_at: Origin, validation: Validation
    ) -> object:
        if member is not None:
            if field.is_nullable and isinstance(member.value, ScalarNode) and member.value.is_null:
                validation.accept(path, None, member.at)
                return None
            # A key that a section lacks is missing from the file, even if a variable set the rest of the section.
            is_written = member.at.source is Source.FILE or not isinstance(field.type, Section)
            return field.type.read(member.value, path, member.at if is_written else parent_at, validation)
        if isinstance(field.type, Section) and not field.is_nullable:
            return field.type.read(MappingNode((), parent_at), path, parent_at, validation)
        if isinstance(field.type, EnvironmentSecret):
            return field.type.read_variable(path, validation)
        if field.info.required:
            if not validation.is_partial:
                validation.reject(parent_at, path, f"required, but missing; expected {field.type.expected}")
            return INVALID
        value = field.default()
        validation.accept(path, value, Origin())
        return value


def section(struct: type[msgspec.Struct], /, **types: Readable) -> Section:
    """Return the section that a struct declares. `types`, by field name, replace the declared types."""
    return Section(
        struct,
        tuple(
            SettingField(
                name=info.name,
                key=info.encode_name,
                type=types.get(info.name) or _readable(info.type),
                info=info,
                is_nullable=NoneType in _alternatives(info.type),
            )
            for info in msgspec.structs.fields(struct)
        ),
    )


def _alternatives(annotation: object) -> tuple[object, ...]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _readable(annotation: object) -> Readable:
    """Return how to read a field with this annotation."""
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, _READABLES):
                return extra
    (plain,) = (kind for kind in _alternatives(annotation) if kind is not NoneType)
    if isinstance(plain, type):
        if issubclass(plain, msgspec.Struct):
            return section(plain)
        if issubclass(plain, StrEnum):
            return field_types.choice(plain)
        if plain in _DEFAULT_TYPES:
            return _DEFAULT_TYPES[plain]
    raise TypeError(f"expected a type that settings know or an Annotated Readable, got {annotation}")


_READABLES = (field_types.FieldType, EnvironmentSecret, StructList, TextMapping, FlatMapping, TextList, Section)
_DEFAULT_TYPES: dict[type, Readable] = {
    str: field_types.TEXT,
    bool: field_types.BOOLEAN,
    timedelta: field_types.POSITIVE_DURATION,
    Path: field_types.PATH,
    Secret: field_types.SECRET,
}
"""Numbers are not here: a number always declares its bounds."""

"""How the declaration of settings is read from a tree: structs, lists of them, and tables of texts.

A setting is declared once, as a field of a frozen struct: its type (or an `Annotated` shape where the type does
not say enough), its default, and a docstring that is its entry in the reference.
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
    """A secret that comes from one environment variable, and is refused wherever else it is written."""

    variable: str
    instead: str
    """What to do for somebody who wrote it into a file or a flag."""
    leaf: field_types.FieldType = field_types.SECRET

    @property
    def expected(self) -> str:
        """In words."""
        return self.leaf.expected

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Refuses: a file is shared, and a flag is in everybody's process list."""
        validation.reject(at, path, f"expected no secret here; {self.instead}")
        return INVALID

    def read_variable(self, path: str, validation: Validation) -> object:
        """The secret, or None where the variable is unset or empty."""
        given = validation.environ.get(self.variable, "").strip()
        if not given:
            validation.accept(path, None, Origin())
            return None
        origin = Origin(Source.ENVIRONMENT, self.variable)
        return self.leaf.read(ScalarNode(given, origin, is_plain=False), path, origin, validation)


class StructList(msgspec.Struct, frozen=True):
    """A list of sections."""

    item: Section
    expected: str

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """A tuple of structs. Among the effective settings a list is one setting, as it is after `--set`."""
        if not isinstance(node, ListNode):
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        within = Validation(environ=validation.environ)
        values = tuple(
            self.item.read(item, f"{path}[{index}]", item.at, within) for index, item in enumerate(node.items)
        )
        validation.problems.extend(within.problems)
        if INVALID in values:
            return INVALID
        validation.accept(path, values, at)
        return values


class TextMapping(msgspec.Struct, frozen=True):
    """Texts under names of the user's own, nested at will. Each text is a setting of its own."""

    expected: str
    check: Callable[[str], object]
    """Raises `ValueError` with the whole message where a text will not do."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """A mapping of names to texts or to further mappings."""
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


class Field(msgspec.Struct, frozen=True):
    """One setting of a section."""

    name: str
    key: str
    """As it is written in files: the name, unless the struct renames it."""
    shape: Readable
    info: msgspec.structs.FieldInfo
    is_nullable: bool

    def default(self) -> object:
        """The value where nobody has written one."""
        factory = self.info.default_factory
        return self.info.default if factory is msgspec.NODEFAULT else factory()


class Section(msgspec.Struct, frozen=True):
    """Settings under fixed names: a struct."""

    struct: Callable[..., object]
    fields: tuple[Field, ...]
    expected: str = "a mapping of settings"

    def get(self, key: str) -> Field | None:
        """The setting of this name."""
        return next((field for field in self.fields if field.key == key), None)

    def keys(self) -> list[str]:
        """The names of its settings."""
        return [field.key for field in self.fields]

    def paths(self, prefix: str = "") -> list[str]:
        """The paths of all settings, those of inner sections included."""
        found: list[str] = []
        for field in self.fields:
            path = join(prefix, field.key)
            found.append(path)
            if isinstance(field.shape, Section):
                found += field.shape.paths(path)
        return found

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """The struct, once all of its fields could be read."""
        if path and isinstance(node, ScalarNode) and node.is_null:
            # A heading with nothing under it: what is required there is missing, each by its own name.
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
        self, field: Field, member: Member | None, path: str, parent_at: Origin, validation: Validation
    ) -> object:
        if member is not None:
            if field.is_nullable and isinstance(member.value, ScalarNode) and member.value.is_null:
                validation.accept(path, None, member.at)
                return None
            # What a section lacks is missing from the file, even where a variable has set the rest of it.
            is_written = member.at.source is Source.FILE or not isinstance(field.shape, Section)
            return field.shape.read(member.value, path, member.at if is_written else parent_at, validation)
        if isinstance(field.shape, Section):
            return field.shape.read(MappingNode((), parent_at), path, parent_at, validation)
        if isinstance(field.shape, EnvironmentSecret):
            return field.shape.read_variable(path, validation)
        if field.info.required:
            if not validation.is_partial:
                validation.reject(parent_at, path, f"required, but missing; expected {field.shape.expected}")
            return INVALID
        value = field.default()
        validation.accept(path, value, Origin())
        return value


def section(struct: type[msgspec.Struct], /, **shapes: Readable) -> Section:
    """The section that a struct declares; a shape given by field name stands in for the declared one."""
    return Section(
        struct,
        tuple(
            Field(
                name=info.name,
                key=info.encode_name,
                shape=shapes.get(info.name) or _shape(info.type),
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


def _shape(annotation: object) -> Readable:
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, field_types.FieldType | EnvironmentSecret | StructList | TextMapping | Section):
                return extra
    (plain,) = (kind for kind in _alternatives(annotation) if kind is not NoneType)
    if isinstance(plain, type):
        if issubclass(plain, msgspec.Struct):
            return section(plain)
        if issubclass(plain, StrEnum):
            return field_types.choice(plain)
        if plain in _LEAVES:
            return _LEAVES[plain]
    raise TypeError(f"cannot tell how to read {annotation}: annotate it with a shape")


_LEAVES: dict[type, Readable] = {
    str: field_types.TEXT,
    bool: field_types.BOOLEAN,
    timedelta: field_types.POSITIVE_DURATION,
    Path: field_types.PATH,
    Secret: field_types.SECRET,
}
"""What a type means where nothing more is said; a number always says its bounds."""

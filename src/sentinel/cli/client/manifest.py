"""Files of desired resources: YAML or JSON, with a document for each resource, or a list of them.

The output of `sentinel get --output yaml` can be edited and applied: fields that only the server sets are ignored.
YAML follows version 1.2, in which `no` is a string and `010` is ten. Duplicate keys are rejected. A manifest keeps
the positions of its values, so that a refusal by the server can name the line of the mistake.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from sentinel.cli.client import json_tree
from sentinel.core.json import Json
from sentinel.runtime.settings import yaml_file
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node, ScalarNode, locate
from sentinel.runtime.settings.report import (
    Origin,
    SettingsProblem,
    closest_match,
    file_origin,
    quoted,
    sorted_problems,
)

STANDARD_INPUT = Path("-")

_DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_HEX_OR_OCTAL = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_MAX_DIGITS = 20

_KEYS = ("kind", "plural", "name", "labels", "spec", "id", "parent")
_STRING_KEYS = ("kind", "plural", "name", "id", "parent")
_OWNER = "owner_references"
_SERVER_KEYS = frozenset(
    (
        *("href", "generation", "created_time", "updated_time", "created_by", "updated_by", "deleted_time"),
        *("metadata", "ownerResource", "paused", "pulse_requested_time", "status"),
    )
)
"""Fields that only the server sets; ignored."""


class InvalidManifest(Exception):
    """A file is invalid; the message has a line for each problem, in the order of the file."""

    def __init__(self, problems: Sequence[SettingsProblem]) -> None:
        super().__init__("\n".join(map(str, sorted_problems(problems))))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A desired resource. Labels or spec that are None stay unchanged."""

    node: MappingNode
    """The document as written, with positions."""
    kind: str = ""
    plural: str = ""
    name: str
    labels: dict[str, str] | None = None
    spec: dict[str, Json] | None = None
    """Without null members: a null means the same as no key."""
    id: str = ""
    parent: str = ""
    """The id or the name of the parent."""

    def problem(self, field: str, message: str) -> SettingsProblem:
        """Return a problem with a field, such as `spec.ports[0]`, at the position of its value.

        The position of a field that is not in the file is that of the closest value around it.
        """
        if field.startswith(_OWNER) and self.node.get(_OWNER) is None:
            field = "parent"
        return SettingsProblem.at(locate(self.node, field), field, message)


def read(file: Path) -> tuple[Manifest, ...]:
    """Read the manifests of a file, or of standard input for `-`; raises `InvalidManifest`."""
    text = _read_text(file)
    if isinstance(text, SettingsProblem):
        raise InvalidManifest([text])
    reader = _ManifestReader(file_origin(file))
    manifests = reader.read(text)
    if reader.problems:
        raise InvalidManifest(reader.problems)
    return tuple(manifests)


def _read_text(file: Path) -> str | SettingsProblem:
    if file != STANDARD_INPUT:
        return yaml_file.read_text(file)
    content = sys.stdin.buffer.read(yaml_file.MAX_FILE_SIZE + 1)
    if len(content) > yaml_file.MAX_FILE_SIZE:
        return SettingsProblem.at(
            file_origin(file), "", f"expected at most {yaml_file.MAX_FILE_SIZE >> 20} MiB, got more"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return SettingsProblem.at(file_origin(file), "", "expected UTF-8 text, got a byte that is not")


class _ManifestReader:
    """A reader of one file, with the problems found so far."""

    def __init__(self, origin: Origin) -> None:
        self.problems: list[SettingsProblem] = []
        self._origin = origin

    def read(self, text: str) -> list[Manifest]:
        documents = json_tree.parse(text, self._origin)
        manifests = [
            manifest
            for document in (self._yaml_documents(text) if documents is None else documents)
            for node in _resources(document)
            if (manifest := self._manifest(node)) is not None
        ]
        if not manifests and not self.problems:
            self._reject(self._origin, "", "expected at least one resource, got none")
        return manifests

    def _reject(self, at: Origin, field: str, message: str) -> None:
        self.problems.append(SettingsProblem.at(at, field, message))

    def _yaml_documents(self, text: str) -> Iterator[Node]:
        # YAML allows no value to contain a line that begins with three dashes, so each of them starts a document.
        starts = [match.start() for match in _DOCUMENT_START.finditer(text)]
        for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
            if not text[start:end].strip():
                continue
            line = text.count("\n", 0, start)
            root, found = yaml_file.parse("\n" * line + text[start:end], self._origin)
            self.problems.extend(found)
            if root is None or found or (isinstance(root, ScalarNode) and root.is_null):
                continue
            yield root

    def _manifest(self, node: Node) -> Manifest | None:
        """Return the manifest of a resource; None if it has problems."""
        known_problems = len(self.problems)
        if not isinstance(node, MappingNode):
            self._reject(node.at, "", "expected a mapping with kind, name and spec, got something else")
            return None
        for each in node.members:
            if each.key not in _KEYS and each.key not in _SERVER_KEYS and each.key != _OWNER:
                self._reject(each.at, each.key, f"unknown key{_suggestion(each.key)}")
        texts = {key: self._text(member.value, key) for key in _STRING_KEYS if (member := node.get(key))}
        owner = node.get(_OWNER)
        owner_id = owner.value.get("id") if owner is not None and isinstance(owner.value, MappingNode) else None
        if not texts.get("parent") and owner_id is not None:
            texts["parent"] = self._text(owner_id.value, f"{_OWNER}.id")
        if texts.get("name", "") == "":
            self._reject(node.at, "name", "required, but missing")
        if texts.get("kind", "") == texts.get("plural", "") == "":
            self._reject(node.at, "kind", "required unless plural is given, but missing")
        labels, spec = self._mapping(node, "labels"), self._mapping(node, "spec")
        label_texts = {
            member.key: self._text(member.value, f"labels.{member.key}", is_nullable=False)
            for member in (labels.members if labels else ())
        }
        spec_members = {
            member.key: self._json(member.value, f"spec.{member.key}") for member in (spec.members if spec else ())
        }
        if len(self.problems) > known_problems:
            return None
        return Manifest(
            node=node,
            **{key: text or "" for key, text in texts.items()},
            labels={key: text or "" for key, text in label_texts.items()} if labels else None,
            spec=_without_nulls(spec_members) if spec else None,
        )

    def _text(self, node: Node, path: str, *, is_nullable: bool = True) -> str | None:
        """Return a text, empty for null; None if it is not a text."""
        if not isinstance(node, ScalarNode):
            self._reject(node.at, path, "expected a string, got a mapping or a list")
            return None
        value = self._scalar(node, path)
        if value is None and is_nullable and node.is_null:
            return ""
        if isinstance(value, str):
            return value
        self._reject(node.at, path, f"expected a string, got {json.dumps(value)}; quote it")
        return None

    def _mapping(self, node: MappingNode, key: str) -> MappingNode | None:
        member = node.get(key)
        if member is None or (isinstance(member.value, ScalarNode) and member.value.is_null):
            return None
        if isinstance(member.value, MappingNode):
            return member.value
        got = "a list" if isinstance(member.value, ListNode) else "a scalar"
        self._reject(member.value.at, key, f"expected a mapping, got {got}")
        return None

    def _json(self, node: Node, path: str) -> Json:
        match node:
            case MappingNode():
                return {member.key: self._json(member.value, f"{path}.{member.key}") for member in node.members}
            case ListNode():
                return [self._json(item, f"{path}[{index}]") for index, item in enumerate(node.items)]
            case ScalarNode():
                return self._scalar(node, path)

    def _scalar(self, scalar: ScalarNode, path: str) -> Json:
        """Return the value of a scalar; None if it is null or a number out of range."""
        text = scalar.text
        if not scalar.is_plain:
            return text
        if scalar.is_null:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        is_hex_or_octal = _HEX_OR_OCTAL.fullmatch(text)
        if is_hex_or_octal or _INTEGER.fullmatch(text):
            # A longer text is not converted: the time that takes grows with the square of its length.
            integer = int(text, 0 if is_hex_or_octal else 10) if len(text) <= _MAX_DIGITS else None
            if integer is None or not _MIN_INTEGER <= integer <= _MAX_INTEGER:
                self._reject(scalar.at, path, "expected an integer of at most 64 bits, got a larger one")
                return None
            return integer
        is_float = _FLOAT.fullmatch(text)
        if text.lower().lstrip("+-") in (".inf", ".nan") or (is_float and not abs(float(text)) < float("inf")):
            self._reject(scalar.at, path, f"expected a finite number, got {quoted(text)}")
            return None
        return float(text) if is_float else text


def _resources(document: Node) -> Sequence[Node]:
    """Return the resources of a document: itself, its elements, or the `items` of a list from the API."""
    if isinstance(document, ListNode):
        return document.items
    items = document.get("items") if isinstance(document, MappingNode) else None
    return items.value.items if items is not None and isinstance(items.value, ListNode) else [document]


def _without_nulls(members: Mapping[str, Json]) -> dict[str, Json]:
    """Remove null members, which a merge patch cannot set. It replaces a list as a whole, so a list keeps them."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in members.items()
        if value is not None
    }


def _suggestion(key: str) -> str:
    suggestion = closest_match(key, _KEYS)
    return f"; did you mean {suggestion}?" if suggestion else f"; expected one of {', '.join(_KEYS)}"

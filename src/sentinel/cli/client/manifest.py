"""Files of desired resources: YAML or JSON, with a document for each resource, or a list of them.

The output of `sentinel get --output yaml` can be edited and applied: fields that only the server sets are ignored.
YAML follows version 1.2, in which `no` is a string and `010` is ten. Duplicate keys are rejected.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from sentinel.core.json import Json
from sentinel.runtime.settings import yaml_file
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node, ScalarNode
from sentinel.runtime.settings.report import Origin, SettingsProblem, closest_match, file_origin, quoted

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
_SERVER_KEYS = frozenset(
    (
        *("href", "generation", "created_time", "updated_time", "created_by", "updated_by", "deleted_time"),
        *("metadata", "ownerResource", "paused", "pulse_requested_time", "status"),
    )
)
"""Fields that only the server sets; ignored."""


class InvalidManifest(Exception):
    """A file is invalid; the message has a line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A desired resource. Labels or spec that are None stay unchanged."""

    where: str
    """The file and the line where the document begins."""
    kind: str = ""
    plural: str = ""
    name: str
    labels: dict[str, str] | None = None
    spec: dict[str, Json] | None = None
    """Without null members: a null means the same as no key."""
    id: str = ""
    parent: str = ""
    """The id or the name of the parent."""


def read(file: Path) -> tuple[Manifest, ...]:
    """Read the manifests of a file, or of standard input for `-`; raises `InvalidManifest`."""
    text = _read_text(file)
    if isinstance(text, SettingsProblem):
        raise InvalidManifest([str(text)])
    origin = file_origin(file)
    documents = _json_documents(text)
    manifests: list[Manifest] = []
    problems: list[str] = []
    for line, document in documents if documents is not None else _yaml_documents(text, origin, problems):
        for resource in _resources(document):
            try:
                manifests.append(_manifest(resource, f"{origin.name}:{line}"))
            except InvalidManifest as error:
                problems.append(str(error))
    if not problems and not manifests:
        problems.append(f"{origin.name}: expected at least one resource, got none")
    if problems:
        raise InvalidManifest(problems)
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


def _json_documents(text: str) -> list[tuple[int, Json]] | None:
    """Return the values of a JSON text, each with its line; None if it is not JSON and may be YAML.

    JSON needs its own parser: YAML does not understand its surrogate pair escapes.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    decoder = json.JSONDecoder(object_pairs_hook=_reject_duplicates)
    values: list[tuple[int, Json]] = []
    position = len(text) - len(text.lstrip())
    while position < len(text):
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        values.append((text.count("\n", 0, position) + 1, value))
        position = end + len(text[end:]) - len(text[end:].lstrip())
    return values


def _reject_duplicates(members: list[tuple[str, Json]]) -> dict[str, Json]:
    mapping = dict(members)
    if len(mapping) != len(members):
        raise ValueError("duplicate key")  # the YAML parser then reports it with its position
    return mapping


def _yaml_documents(text: str, origin: Origin, problems: list[str]) -> Iterator[tuple[int, Json]]:
    # YAML allows no value to contain a line that begins with three dashes, so each of them starts a document.
    starts = [match.start() for match in _DOCUMENT_START.finditer(text)]
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        if not text[start:end].strip():
            continue
        line = text.count("\n", 0, start)
        root, found = yaml_file.parse("\n" * line + text[start:end], origin)
        problems.extend(str(problem) for problem in found)
        if root is None or found or (isinstance(root, ScalarNode) and root.is_null):
            continue
        try:
            yield root.at.line, _to_json(root)
        except InvalidManifest as error:
            problems.append(str(error))


def _to_json(node: Node) -> Json:
    match node:
        case MappingNode():
            return {member.key: _to_json(member.value) for member in node.members}
        case ListNode():
            return [_to_json(item) for item in node.items]
        case ScalarNode():
            return _scalar(node)


def _scalar(scalar: ScalarNode) -> Json:
    text = scalar.text
    if not scalar.is_plain:
        return text
    if scalar.is_null:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _HEX_OR_OCTAL.fullmatch(text) or _INTEGER.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise _invalid(scalar, "expected an integer of at most 64 bits, got a larger one")
        return int(text, 0) if _HEX_OR_OCTAL.fullmatch(text) else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.lower().lstrip("+-") in (".inf", ".nan"):
        raise _invalid(scalar, f"expected a finite number, got {quoted(text)}")
    return text


def _invalid(scalar: ScalarNode, message: str) -> InvalidManifest:
    return InvalidManifest([str(SettingsProblem.at(scalar.at, "", message))])


def _resources(document: Json) -> Sequence[Json]:
    """Return the resources of a document: itself, its elements, or the `items` of a list from the API."""
    if isinstance(document, list):
        return document
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else [document]


def _manifest(document: Json, where: str) -> Manifest:
    if not isinstance(document, dict):
        raise InvalidManifest([f"{where}: expected a mapping with kind, name and spec, got something else"])
    problems = [
        f"{where}: {key}: unknown key{_suggestion(key)}"
        for key in document
        if key not in _KEYS and key not in _SERVER_KEYS and key != "owner_references"
    ]
    strings = {key: document[key] for key in _STRING_KEYS if document.get(key) not in (None, "")}
    owner = document.get("owner_references")
    if "parent" not in strings and isinstance(owner, dict) and "id" in owner:
        strings["parent"] = owner["id"]
    if "name" not in strings:
        problems.append(f"{where}: name: required, but missing")
    if "kind" not in strings and "plural" not in strings:
        problems.append(f"{where}: kind: required unless plural is given, but missing")
    labels, spec = document.get("labels"), document.get("spec")
    all_strings = [*strings.items(), *((f"labels.{key}", value) for key, value in _members(labels).items())]
    problems += [f"{where}: {_not_a_string(key, text)}" for key, text in all_strings if not isinstance(text, str)]
    problems += [
        f"{where}: {key}: expected a mapping, got {'a list' if isinstance(value, list) else 'a scalar'}"
        for key, value in (("labels", labels), ("spec", spec))
        if value is not None and not isinstance(value, dict)
    ]
    if problems:
        raise InvalidManifest(problems)
    try:
        return Manifest(
            where=where,
            **{key: str(value) for key, value in strings.items()},
            labels=None if labels is None else {key: str(value) for key, value in _members(labels).items()},
            spec=None if spec is None else _without_nulls(_members(spec), "spec"),
        )
    except ValueError as error:
        raise InvalidManifest([f"{where}: {error}"]) from error


def _members(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _not_a_string(key: str, value: Json) -> str:
    if isinstance(value, dict | list):
        return f"{key}: expected a string, got a mapping or a list"
    return f"{key}: expected a string, got {json.dumps(value)}; quote it"


def _without_nulls(spec: Mapping[str, Json], path: str) -> dict[str, Json]:
    """Remove null members, which a merge patch cannot set; raises `ValueError` for a number out of range."""
    return {
        name: _checked(value, f"{path}.{name}", in_list=False) for name, value in spec.items() if value is not None
    }


def _checked(value: Json, path: str, *, in_list: bool) -> Json:
    if isinstance(value, dict):
        if not in_list:
            return _without_nulls(value, path)
        return {name: _checked(member, f"{path}.{name}", in_list=True) for name, member in value.items()}
    if isinstance(value, list):
        # A merge patch replaces a list as a whole, so its nulls are kept.
        return [_checked(item, f"{path}[{index}]", in_list=True) for index, item in enumerate(value)]
    if isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
        raise ValueError(f"{path}: expected an integer of at most 64 bits, got a larger one")
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise ValueError(f"{path}: expected a finite number")
    return value


def _suggestion(key: str) -> str:
    suggestion = closest_match(key, _KEYS)
    return f"; did you mean {suggestion}?" if suggestion else f"; expected one of {', '.join(_KEYS)}"

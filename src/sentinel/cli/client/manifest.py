"""Files that say what resources should be: YAML or JSON, one document for each resource, or a list of them.

A document may be what `sentinel get --output yaml` prints: what only the server can know in it is passed over, so
that a resource can be fetched, edited and applied. YAML is read by its newer rules, under which `no` is a word and
`010` is ten, and a key that comes twice is refused.
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

_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)
_MOST_DIGITS = 20

_KNOWN = ("kind", "plural", "name", "labels", "spec", "id", "parent")
_TEXTS = ("kind", "plural", "name", "id", "parent")
_PASSED_OVER = frozenset(
    (
        *("href", "generation", "created_time", "updated_time", "created_by", "updated_by", "deleted_time"),
        *("metadata", "ownerResource", "paused", "pulse_requested_time", "status"),
    )
)
"""What the server says of a resource, and nobody else can."""


class Unusable(Exception):
    """A file that will not do; everything that is wrong with it, a line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a resource should be. What is not mentioned is left as it is."""

    where: str
    """The file, and the line where it begins."""
    kind: str = ""
    plural: str = ""
    name: str
    labels: dict[str, str] | None = None
    spec: dict[str, Json] | None = None
    """Without members that are null: to ask for nothing and not to ask are the same."""
    id: str = ""
    parent: str = ""
    """The id of the resource that it belongs to, or its name."""


def read(file: Path) -> tuple[Manifest, ...]:
    """What a file says, `-` for standard input; raises `Unusable`."""
    text = _text(file)
    if isinstance(text, SettingsProblem):
        raise Unusable([str(text)])
    origin = file_origin(file)
    documents = _json_documents(text)
    found: list[Manifest] = []
    problems: list[str] = []
    for where, document in documents if documents is not None else _yaml_documents(text, origin, problems):
        for each in _listed(document):
            try:
                found.append(_manifest(each, f"{origin.name}:{where}"))
            except Unusable as error:
                problems.append(str(error))
    if not problems and not found:
        problems.append(f"{origin.name}: expected at least one resource, got none")
    if problems:
        raise Unusable(problems)
    return tuple(found)


def _text(file: Path) -> str | SettingsProblem:
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
    """The values of a text that is JSON, each with its line; None where it is not, so that it may be YAML.

    By itself, for JSON is YAML only almost: its escapes for characters beyond 16 bits are not.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    decoder = json.JSONDecoder(object_pairs_hook=_without_repetition)
    found: list[tuple[int, Json]] = []
    position = len(text) - len(text.lstrip())
    while position < len(text):
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        found.append((text.count("\n", 0, position) + 1, value))
        position = end + len(text[end:]) - len(text[end:].lstrip())
    return found


def _without_repetition(members: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a key came twice")  # as YAML it is refused with its place
    return found


def _yaml_documents(text: str, origin: Origin, problems: list[str]) -> Iterator[tuple[int, Json]]:
    # A line that begins with three dashes starts a document wherever it stands; YAML allows it in no value.
    starts = [match.start() for match in _DOCUMENT.finditer(text)]
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        if not text[start:end].strip():
            continue
        line = text.count("\n", 0, start)
        root, found = yaml_file.parse("\n" * line + text[start:end], origin)
        problems.extend(str(problem) for problem in found)
        if root is None or found or (isinstance(root, ScalarNode) and root.is_null):
            continue
        try:
            yield root.at.line, _value(root)
        except Unusable as error:
            problems.append(str(error))


def _value(node: Node) -> Json:
    match node:
        case MappingNode():
            return {member.key: _value(member.value) for member in node.members}
        case ListNode():
            return [_value(item) for item in node.items]
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
    if _BASED.fullmatch(text) or _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise _misplaced(scalar, "expected an integer of 64 bits at most, got more")
        return int(text, 0) if _BASED.fullmatch(text) else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.lower().lstrip("+-") in (".inf", ".nan"):
        raise _misplaced(scalar, f"expected a number that JSON has, got {quoted(text)}")
    return text


def _misplaced(scalar: ScalarNode, message: str) -> Unusable:
    return Unusable([str(SettingsProblem.at(scalar.at, "", message))])


def _listed(document: Json) -> Sequence[Json]:
    """The resources of a document: itself, its items, or those of a list as the API answers with."""
    if isinstance(document, list):
        return document
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else [document]


def _manifest(document: Json, where: str) -> Manifest:
    if not isinstance(document, dict):
        raise Unusable([f"{where}: expected a mapping with kind, name and spec, got something else"])
    problems = [
        f"{where}: {key}: unknown key{_meant(key)}"
        for key in document
        if key not in _KNOWN and key not in _PASSED_OVER and key != "owner_references"
    ]
    texts = {key: document[key] for key in _TEXTS if document.get(key) not in (None, "")}
    owner = document.get("owner_references")
    if "parent" not in texts and isinstance(owner, dict) and "id" in owner:
        texts["parent"] = owner["id"]
    if "name" not in texts:
        problems.append(f"{where}: name: required, but missing")
    if "kind" not in texts and "plural" not in texts:
        problems.append(f"{where}: kind: required, but missing; plural would do as well")
    labels, spec = document.get("labels"), document.get("spec")
    texts_within = [*texts.items(), *((f"labels.{key}", text) for key, text in _members(labels).items())]
    problems += [f"{where}: {_no_text(key, text)}" for key, text in texts_within if not isinstance(text, str)]
    problems += [
        f"{where}: {key}: expected a mapping, got {'a list' if isinstance(value, list) else 'text'}"
        for key, value in (("labels", labels), ("spec", spec))
        if value is not None and not isinstance(value, dict)
    ]
    if problems:
        raise Unusable(problems)
    try:
        return Manifest(
            where=where,
            **{key: str(text) for key, text in texts.items()},
            labels=None if labels is None else {key: str(text) for key, text in _members(labels).items()},
            spec=None if spec is None else _plain(_members(spec), "spec"),
        )
    except ValueError as error:
        raise Unusable([f"{where}: {error}"]) from error


def _members(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _no_text(key: str, value: Json) -> str:
    shown = "a mapping or a list" if isinstance(value, dict | list) else json.dumps(value)
    return f"{key}: expected text, got {shown}; quote it if it is meant"


def _plain(spec: Mapping[str, Json], path: str) -> dict[str, Json]:
    """Without null members, which a merge patch cannot set; raises `ValueError` for a number that nobody keeps."""
    return {
        name: _kept(value, f"{path}.{name}", is_listed=False) for name, value in spec.items() if value is not None
    }


def _kept(value: Json, path: str, *, is_listed: bool) -> Json:
    if isinstance(value, dict):
        if not is_listed:
            return _plain(value, path)
        return {name: _kept(member, f"{path}.{name}", is_listed=True) for name, member in value.items()}
    if isinstance(value, list):
        # A merge patch replaces a list whole, nulls and all.
        return [_kept(item, f"{path}[{index}]", is_listed=True) for index, item in enumerate(value)]
    if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
        raise ValueError(f"{path}: expected an integer of 64 bits at most")
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise ValueError(f"{path}: expected a number that JSON has")
    return value


def _meant(key: str) -> str:
    near = closest_match(key, _KNOWN)
    return f"; did you mean {near}?" if near else f"; expected some of {', '.join(_KNOWN)}"

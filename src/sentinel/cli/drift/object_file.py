"""Reads a file with one Kubernetes object, as `kubectl get --output json` or `yaml` prints it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.ports.kube import KubeObject
from sentinel.runtime.settings import yaml_file
from sentinel.runtime.settings.config_tree import JsonType, MappingNode, ScalarNode, to_json
from sentinel.runtime.settings.report import Origin, SettingsProblem, file_origin

_MAX_SIZE: Final = 16 << 20
"""Bytes. An API server stores at most 1.5 MiB; YAML and indentation take more."""

_RADIXES: Final = {"0x": 16, "0o": 8, "0b": 2}
_TRUE: Final = frozenset({"y", "yes", "on", "true"})


def read(path: Path) -> KubeObject | None | SettingsProblem:
    """Return the object, None if the file is /dev/null, or the problem with the file."""
    with suppress(OSError, ValueError):  # reading reports them
        if path.samefile(os.devnull):
            return None
    content = yaml_file.read_bytes(path, max_size=_MAX_SIZE)
    if isinstance(content, SettingsProblem):
        return content
    source = file_origin(path)
    try:
        document = msgspec.json.decode(content)
    except DECODE_ERRORS:
        return _read_yaml(content, source)
    if isinstance(document, dict):
        return document
    return SettingsProblem.at(source, "", "expected one object, got something else")


def _read_yaml(content: bytes, source: Origin) -> KubeObject | SettingsProblem:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return SettingsProblem.at(source, "", "expected UTF-8 text, got a byte that is not")
    root, problems = yaml_file.parse(text, source)
    if problems:
        return problems[0]
    if not isinstance(root, MappingNode):
        return SettingsProblem.at(
            source, "", f"expected one object, got {'nothing' if root is None else 'another value'}"
        )
    return {member.key: to_json(member.value, _scalar) for member in root.members}


def _scalar(node: ScalarNode) -> Json:
    """Return a value as Kubernetes' tools read it, which follow YAML 1.1."""
    match node.json_type:
        case JsonType.BOOLEAN:
            return node.text.lower() in _TRUE
        case JsonType.NUMBER:
            return _number(node.text.replace("_", ""))
        case _:
            return node.text


def _number(text: str) -> Json:
    digits = text.lstrip("+-").lower()
    if re.fullmatch(r"0[0-7]+", digits):
        return int(text, 8)
    if digits[:2] in _RADIXES:
        return int(text, _RADIXES[digits[:2]])
    try:
        return int(text) if re.fullmatch(r"[0-9]{1,20}", digits) else float(text)
    except ValueError:  # .inf and .nan, which no object contains
        return text

"""Reads the fields of a kubeconfig file, with errors that name the file, the line and the field."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node, ScalarNode, join, to_json
from sentinel.runtime.settings.report import Origin, SettingsProblem, quoted


class KubeconfigFields:
    """A mapping of a kubeconfig file."""

    def __init__(self, node: MappingNode, *, file: Path, path: str = "") -> None:
        self.file = file
        self._node = node
        self._path = path

    def place(self, key: str) -> str:
        """Return where a field is, for messages."""
        return str(SettingsProblem.at(self._locate(key), join(self._path, key), "")).removesuffix(": ")

    def problem(self, key: str, message: str) -> Misconfigured:
        """Return the error about a field. It must not contain a secret."""
        return Misconfigured(str(SettingsProblem.at(self._locate(key), join(self._path, key), message)))

    def has(self, key: str) -> bool:
        """Whether the field is there and not empty."""
        match self._value(key):
            case None:
                return False
            case ScalarNode(text=text):
                return bool(text)
            case ListNode(items=items):
                return bool(items)
            case MappingNode(members=members):
                return bool(members)

    def text(self, key: str, *, is_required: bool = False) -> str:
        """Return a text, or ""."""
        node = self._value(key)
        if isinstance(node, ListNode | MappingNode):
            raise self.problem(key, f"expected text, got {_shape(node)}")
        text = "" if node is None else node.text
        if is_required and not text:
            raise self.problem(key, "expected text, got nothing")
        return text

    def flag(self, key: str) -> bool:
        """Return true or false, false by default."""
        text = self.text(key).lower()
        if text not in ("", "true", "false"):
            raise self.problem(key, f"expected true or false, got {quoted(text)}")
        return text == "true"

    def readable_file(self, key: str) -> Path | None:
        """Return the path of a file that can be read."""
        text = self.text(key)
        if not text:
            return None
        path = self.file.parent / text
        if not os.access(path, os.R_OK):
            raise self.problem(key, f"expected a file that can be read, got {quoted(str(path))}")
        return path

    def decoded(self, key: str) -> str:
        """Return the text that is encoded in base64. It may be a secret, so no message shows it."""
        try:
            return base64.b64decode("".join(self.text(key).split()), validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            raise self.problem(key, "expected PEM that is encoded in base64, got something else") from None

    def mapping(self, key: str, *, path: str = "") -> KubeconfigFields:
        """Return a nested mapping, empty by default. `path` replaces its path in messages."""
        node = self._value(key)
        if node is None:
            node = MappingNode((), self._locate(key))
        if not isinstance(node, MappingNode):
            raise self.problem(key, f"expected a mapping, got {_shape(node)}")
        return KubeconfigFields(node, file=self.file, path=path or join(self._path, key))

    def mappings(self, key: str) -> list[KubeconfigFields]:
        """Return a list of mappings, empty by default."""
        found = []
        for index, node in enumerate(self._items(key)):
            if not isinstance(node, MappingNode):
                raise self.problem(f"{key}[{index}]", f"expected a mapping, got {_shape(node)}")
            found.append(KubeconfigFields(node, file=self.file, path=join(self._path, f"{key}[{index}]")))
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty by default."""
        found = []
        for index, node in enumerate(self._items(key)):
            if not isinstance(node, ScalarNode):
                raise self.problem(f"{key}[{index}]", f"expected text, got {_shape(node)}")
            found.append(node.text)
        return tuple(found)

    def json(self, key: str) -> Json:
        """Return a value of any shape."""
        node = self._value(key)
        return None if node is None else to_json(node, _scalar)

    def _value(self, key: str) -> Node | None:
        member = self._node.get(key)
        if member is None or (isinstance(member.value, ScalarNode) and member.value.is_null):
            return None
        return member.value

    def _items(self, key: str) -> tuple[Node, ...]:
        node = self._value(key)
        if node is None:
            return ()
        if not isinstance(node, ListNode):
            raise self.problem(key, f"expected a list, got {_shape(node)}")
        return node.items

    def _locate(self, key: str) -> Origin:
        """Return the position of a field, or of the mapping around it."""
        member = self._node.get(key.partition("[")[0])
        return self._node.at if member is None else member.at


def _scalar(node: ScalarNode) -> Json:
    if not node.is_plain:
        return node.text
    try:
        value: Json = msgspec.json.decode(node.text)
    except DECODE_ERRORS:
        return node.text
    return value


def _shape(node: Node) -> str:
    match node:
        case ScalarNode():
            return "text"  # not the text itself, which may be a secret
        case ListNode():
            return "a list"
        case MappingNode():
            return "a mapping"

"""Reads JSON into a tree of texts with positions, as `yaml_file` does for YAML.

JSON needs its own parser: YAML does not understand its surrogate pair escapes, nor tabs between its tokens.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Member, Node, ScalarNode
from sentinel.runtime.settings.report import Origin

_SPACE = re.compile(r"[ \t\n\r]*")
_YAML_CONSTANTS = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}
"""Not JSON, but Python and others write them. In the notation of YAML, which the reader of the tree refuses."""


def parse(text: str, source: Origin) -> list[Node] | None:
    """Return the values of a JSON text, one after the other; None if it is not JSON and may be YAML.

    A duplicate key counts as not JSON: the YAML parser then reports it.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    builder = _JsonTreeBuilder(text, source)
    values = []
    position = builder.skip_space(0)
    try:
        while position < len(text):
            value, position = builder.build(position)
            values.append(value)
            position = builder.skip_space(position)
    except (ValueError, RecursionError):
        return None
    return values


class _JsonTreeBuilder:
    """Builds nodes from a text. Each method takes an offset, and returns the offset behind what it read."""

    def __init__(self, text: str, source: Origin) -> None:
        self._text = text
        self._source = source
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._decode = json.JSONDecoder().raw_decode

    def build(self, start: int) -> tuple[Node, int]:
        """Return the node of the value at this offset; raises `ValueError`."""
        match self._text[start : start + 1]:
            case "{":
                return self._mapping(start)
            case "[":
                return self._list(start)
            case '"':
                string, end = self._decode(self._text, start)
                return ScalarNode(string, self._at(start), is_plain=False), end
            case _:
                _, end = self._decode(self._text, start)
                text = self._text[start:end]
                return ScalarNode(_YAML_CONSTANTS.get(text, text), self._at(start)), end

    def skip_space(self, position: int) -> int:
        match = _SPACE.match(self._text, position)
        return position if match is None else match.end()

    def _mapping(self, start: int) -> tuple[Node, int]:
        members: dict[str, Member] = {}
        position = self.skip_space(start + 1)
        is_end = self._text[position : position + 1] == "}"
        while not is_end:
            key_at = self._at(position)
            key, end = self._decode(self._text, position)
            if not isinstance(key, str) or key in members:
                raise ValueError("expected a new key")
            position, _ = self._skip_token(end, ":")
            value, end = self.build(position)
            members[key] = Member(key, key_at, value)
            position, is_end = self._skip_token(end, ",", "}")
        return MappingNode(tuple(members.values()), self._at(start)), position if members else position + 1

    def _list(self, start: int) -> tuple[Node, int]:
        items: list[Node] = []
        position = self.skip_space(start + 1)
        is_end = self._text[position : position + 1] == "]"
        while not is_end:
            item, end = self.build(position)
            items.append(item)
            position, is_end = self._skip_token(end, ",", "]")
        return ListNode(tuple(items), self._at(start)), position if items else position + 1

    def _skip_token(self, position: int, separator: str, closing: str = "") -> tuple[int, bool]:
        """Skip a separator and the space around it, or the closing bracket. Return whether it was the latter."""
        position = self.skip_space(position)
        token = self._text[position : position + 1]
        if not token or token not in (separator, closing):
            raise ValueError(f"expected {separator}")
        return (position + 1, True) if token == closing else (self.skip_space(position + 1), False)

    def _at(self, position: int) -> Origin:
        line = bisect_right(self._line_starts, position)
        return self._source.at(line, position - self._line_starts[line - 1] + 1)

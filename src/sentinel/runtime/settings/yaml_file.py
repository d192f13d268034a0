"""Reads YAML into a tree of texts.

A loader that produces Python values loses what a configuration needs: positions, duplicate keys, and the texts
themselves (`010` becomes 8, `no` becomes false). Here every scalar keeps its text, and the setting it belongs to
decides what the text means. The tree is built from parser events on an explicit stack, so that neither deep
nesting nor aliases of aliases can exhaust memory or stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from sentinel.runtime.settings.config_tree import (
    MAX_DEPTH,
    MAX_VALUES,
    ListNode,
    MappingNode,
    Member,
    Node,
    ParsedSource,
    ScalarNode,
    describe_node,
    join,
)
from sentinel.runtime.settings.report import Origin, SettingsProblem, file_origin

MAX_FILE_SIZE = 1 << 20
"""Bytes. Also bounds the read if the path is a device."""

_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = frozenset(
    (None, "!", *(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq")))
)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # all line breaks of YAML


def parse_file(path: Path) -> ParsedSource:
    """Read a file that holds one mapping. Errors are returned as problems, not raised."""
    source = file_origin(path)
    text = read_text(path)
    if isinstance(text, SettingsProblem):
        return ParsedSource(None, source, (text,))
    root, problems = parse(text, source)
    if root is None and problems:
        return ParsedSource(None, source, problems)
    return ParsedSource.of(root, source, problems)


def read_text(path: Path) -> str | SettingsProblem:
    """Return the text of a file, or the problem with it."""
    content = read_bytes(path, max_size=MAX_FILE_SIZE, what=" of settings")
    if isinstance(content, SettingsProblem):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", "replace")
        origin = _locate(file_origin(path), before)
        return SettingsProblem.at(origin, "", "expected UTF-8 text, got a byte that is not")


def read_bytes(path: Path, *, max_size: int, what: str = "") -> bytes | SettingsProblem:
    """Return the content of a file, or the problem with it. `what` is said after the number of bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(max_size + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        return SettingsProblem.at(file_origin(path), "", f"cannot be read: {(reason or str(error)).lower()}")
    if len(content) > max_size:
        expected = f"expected at most {max_size >> 20} MiB{what}, got more"
        return SettingsProblem.at(file_origin(path), "", expected)
    return content


def parse(text: str, source: Origin, *, parent: str = "") -> tuple[Node | None, tuple[SettingsProblem, ...]]:
    """Parse one document. Returns None if it is empty or invalid.

    `parent` is the path of the setting whose value the text is, if it is not a whole file.
    """
    builder = _YamlTreeBuilder(source, parent)
    documents = 0
    try:
        _reject_unprintable(text, source)
        for event in _events(text):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                message = "expected one YAML document, got a second; put each into its own file"
                builder.problems.append(SettingsProblem.at(_position(event, source), parent, message))
                break
            builder.add(event)
    except _InvalidDocument as error:
        return None, (SettingsProblem.at(error.at, parent, str(error)),)
    except yaml.YAMLError as error:
        place, message = _syntax_error(error, source, text)
        return None, (SettingsProblem.at(place, parent, message),)
    return builder.root, tuple(builder.problems)


def parse_documents(text: str, source: Origin) -> tuple[ParsedSource, ...]:
    """Parse a stream of documents, such as Kubernetes manifests, each of which is a mapping or empty.

    A syntax error ends the stream. The documents before it are returned, then one that has only the problem.
    """
    documents: list[ParsedSource] = []
    builder: _YamlTreeBuilder | None = None
    try:
        _reject_unprintable(text, source)
        for event in _events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _YamlTreeBuilder(source, "")
            elif isinstance(event, yaml.DocumentEndEvent) and builder is not None:
                at = source if builder.root is None else builder.root.at
                documents.append(ParsedSource.of(builder.root, at, tuple(builder.problems)))
            elif builder is not None:
                builder.add(event)
    except _InvalidDocument as error:
        documents.append(ParsedSource(None, source, (SettingsProblem.at(error.at, "", str(error)),)))
    except yaml.YAMLError as error:
        place, message = _syntax_error(error, source, text)
        documents.append(ParsedSource(None, source, (SettingsProblem.at(place, "", message),)))
    return tuple(documents)


def _reject_unprintable(text: str, source: Origin) -> None:
    unprintable = _UNPRINTABLE.search(text)
    if unprintable is not None:
        raise _InvalidDocument(
            _locate(source, text[: unprintable.start()]), "expected text, got a control character"
        )


def _position(event: yaml.Event, source: Origin) -> Origin:
    mark = event.start_mark
    return source if mark is None else source.at(mark.line + 1, mark.column + 1)


def _events(text: str) -> Iterator[yaml.Event]:
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    events: Iterator[yaml.Event] = yaml.parse(text, Loader=loader)
    return events


def _locate(source: Origin, before: str) -> Origin:
    """Return the position after this text."""
    lines = _LINE_BREAK.split(before)
    return source.at(len(lines), len(lines[-1]) + 1)


def _syntax_error(error: yaml.YAMLError, source: Origin, text: str) -> tuple[Origin, str]:
    if not isinstance(error, yaml.MarkedYAMLError):
        return source, "expected YAML, got something else"
    # Drop quoted words: the pure-Python parser quotes the file, and a word may be a password.
    detail = re.sub(r"""\s*(['"])\S{3,}\1""", "", f"{error.problem or ''} {error.context or ''}".strip())
    # An unclosed bracket is detected at the end of the file. Report where it was opened.
    end = _locate(source, text.rstrip())
    marks = (mark for mark in (error.problem_mark, error.context_mark) if mark is not None)
    places = (source.at(mark.line + 1, mark.column + 1) for mark in marks)
    place = next((p for p in places if (p.line, p.column) < (end.line, end.column)), end)
    return place, f"expected YAML, got a syntax error: {detail}"


class _InvalidDocument(Exception):
    """The document is valid YAML, but not valid as settings."""

    def __init__(self, at: Origin, reason: str) -> None:
        super().__init__(reason)
        self.at = at


class _OpenCollection:
    """A mapping or list whose end has not been parsed yet."""

    def __init__(self, path: str, at: Origin, *, is_mapping: bool, anchor: str | None) -> None:
        self.path = path
        self.at = at
        self.is_mapping = is_mapping
        self.anchor = anchor
        self.items: list[Node] = []
        self.members: dict[str, Member] = {}
        self.merged: list[Member] = []  # from `<<`
        self.key: ScalarNode | ListNode | MappingNode | None = None
        self.values = 1

    def child_path(self) -> str:
        if not self.is_mapping:
            return f"{self.path}[{len(self.items)}]"
        return join(self.path, self.key.text) if isinstance(self.key, ScalarNode) else self.path


class _YamlTreeBuilder:
    """Builds the tree of one document."""

    def __init__(self, source: Origin, parent: str) -> None:
        self.problems: list[SettingsProblem] = []
        self._source = source
        self._parent = parent
        self._stack: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}  # None while the collection is open
        self.root: Node | None = None
        """None until the document is complete, and if it is empty."""

    def add(self, event: yaml.Event) -> None:
        """Add the next event of the document."""
        at = _position(event, self._source)
        match event:
            case yaml.ScalarEvent():
                self._check_tag(event.tag, at)
                is_plain = (event.tag is None and event.implicit[0]) or event.tag == _TAG + "null"
                self._add(ScalarNode(event.value, at, is_plain), 1, event.anchor)
            case yaml.AliasEvent():
                self._add(*self._resolve(event.anchor, at), None)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check_tag(event.tag, at)
                self._open(at, is_mapping=isinstance(event, yaml.MappingStartEvent), anchor=event.anchor)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case _:
                pass

    def _check_tag(self, tag: str | None, at: Origin) -> None:
        if tag not in _KNOWN_TAGS:
            path = self._stack[-1].child_path() if self._stack else self._parent
            message = "expected a value without a tag, got one that begins with !; quote it if it is text"
            self.problems.append(SettingsProblem.at(at, path, message))

    def _open(self, at: Origin, *, is_mapping: bool, anchor: str | None) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise _InvalidDocument(at, f"expected at most {MAX_DEPTH} levels, got more")
        if anchor is not None:
            self._anchors[anchor] = None
        path = self._stack[-1].child_path() if self._stack else self._parent
        self._stack.append(_OpenCollection(path, at, is_mapping=is_mapping, anchor=anchor))

    def _close(self) -> None:
        closed = self._stack.pop()
        if closed.is_mapping:
            for member in closed.merged:
                closed.members.setdefault(member.key, member)
            self._add(MappingNode(tuple(closed.members.values()), closed.at), closed.values, closed.anchor)
        else:
            self._add(ListNode(tuple(closed.items), closed.at), closed.values, closed.anchor)

    def _resolve(self, anchor: str | None, at: Origin) -> tuple[Node, int]:
        if anchor is None or anchor not in self._anchors:
            raise _InvalidDocument(
                at, "expected an alias of an anchor above, got an unknown anchor; quote it if it is text"
            )
        target = self._anchors[anchor]
        if target is None:
            raise _InvalidDocument(
                at, "expected an alias of a complete value, got one of the value that contains it"
            )
        return target

    def _add(self, node: Node, values: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, values)
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.values += values
        if parent.values > MAX_VALUES:
            raise _InvalidDocument(
                node.at, f"expected at most {MAX_VALUES} values after expanding aliases, got more"
            )
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self._set(parent, parent.key, node)
            parent.key = None

    def _set(self, mapping: _OpenCollection, key: Node, value: Node) -> None:
        if not isinstance(key, ScalarNode):
            message = f"expected a key that is text, got {describe_node(key)}"
            self.problems.append(SettingsProblem.at(key.at, mapping.path, message))
        elif key.is_null:
            self.problems.append(SettingsProblem.at(key.at, mapping.path, "expected a key, got nothing"))
        elif key.is_plain and key.text == "<<":
            self._merge(mapping, value)
        elif key.text in mapping.members:
            first = mapping.members[key.text].at
            message = f"duplicate key; expected it once, got it first on line {first.line}"
            self.problems.append(SettingsProblem.at(key.at, join(mapping.path, key.text), message))
        else:
            mapping.members[key.text] = Member(key.text, key.at, value)

    def _merge(self, mapping: _OpenCollection, value: Node) -> None:
        for source in value.items if isinstance(value, ListNode) else (value,):
            if isinstance(source, MappingNode):
                mapping.merged.extend(source.members)
            else:
                message = f"expected a mapping to merge, got {describe_node(source)}"
                self.problems.append(SettingsProblem.at(source.at, join(mapping.path, "<<"), message))

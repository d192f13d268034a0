"""Reads settings from a ConfigMap: its manifest, the directory where it is mounted, or a plain file of the same
keys.

A ConfigMap may serve several programs. Keys of other programs are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, Member, ParsedSource, ScalarNode, describe_node
from sentinel.runtime.settings.report import Origin, SettingsProblem, file_origin
from sentinel.runtime.settings.yaml_file import parse_file, read_text


def read(source: Path, *, known: Collection[str], is_ours: Callable[[str], bool]) -> ParsedSource:
    """Read a file or a directory. Errors are returned as problems, not raised.

    `is_ours` selects our keys in a ConfigMap. Of a directory only the files of `known` keys are read.
    """
    if _is_directory(source):
        return _read_directory(source, file_origin(source), known, is_ours)
    return unwrap(parse_file(source), is_ours=is_ours)


def unwrap(parsed: ParsedSource, *, is_ours: Callable[[str], bool]) -> ParsedSource:
    """Return the settings in a document: all of a plain one, or our keys in the data of a ConfigMap manifest."""
    kind = None if parsed.root is None else parsed.root.get("kind")
    if parsed.root is None or kind is None:
        return parsed
    if not isinstance(kind.value, ScalarNode) or kind.value.text != "ConfigMap":
        message = (
            f"expected ConfigMap, got {describe_node(kind.value)}; pass the values of a Secret as variables,"
            " or mount it and give its directory"
        )
        return ParsedSource(
            None, parsed.at, (*parsed.problems, SettingsProblem.at(kind.value.at, "kind", message))
        )
    return _read_data(parsed.root.get("data"), parsed.at, parsed.problems, is_ours)


def _read_data(
    data: Member | None, root: Origin, problems: tuple[SettingsProblem, ...], is_ours: Callable[[str], bool]
) -> ParsedSource:
    if data is None:
        return ParsedSource(MappingNode((), root), root, problems)
    if isinstance(data.value, ScalarNode) and data.value.is_null:
        return ParsedSource(MappingNode((), data.at), data.at, problems)
    if not isinstance(data.value, MappingNode):
        message = f"expected a mapping of settings, got {describe_node(data.value)}"
        return ParsedSource(None, data.at, (*problems, SettingsProblem.at(data.value.at, "data", message)))
    ours = tuple(member for member in data.value.members if is_ours(member.key))
    bare = (msgspec.structs.replace(p, field=p.field.removeprefix("data.")) for p in problems)
    return ParsedSource(MappingNode(ours, data.value.at), data.at, tuple(bare))


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no permission; opening it as a file will report that
        return False


def _read_directory(
    directory: Path, root: Origin, known: Collection[str], is_ours: Callable[[str], bool]
) -> ParsedSource:
    """Read a mounted ConfigMap: one file per key, and hidden entries that Kubernetes uses for atomic updates."""
    try:
        files = sorted(path for path in directory.iterdir() if is_ours(path.name))
    except OSError as error:
        return ParsedSource(None, root, (SettingsProblem.at(root, "", f"cannot be read: {error.strerror}"),))
    problems: list[SettingsProblem] = []
    members: list[Member] = []
    for file in files:
        at = file_origin(file)
        text = read_text(file) if file.name in known else ""
        if isinstance(text, SettingsProblem):
            problems.append(msgspec.structs.replace(text, field=file.name))
        else:
            # An editor or `echo` adds one newline at the end. It is not part of the value.
            members.append(Member(file.name, at, ScalarNode(text.removesuffix("\n"), at, is_plain=False)))
    return ParsedSource(MappingNode(tuple(members), root), root, tuple(problems))

"""Settings with the names of environment variables, in each form that a ConfigMap takes on its way to a process.

As a manifest in a repository, as a directory in a container, and as the plain file that somebody without a
cluster writes instead. A ConfigMap may serve several programs; what in it belongs to others is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, Member, ParsedSource, ScalarNode, describe_node
from sentinel.runtime.settings.report import Origin, SettingsProblem, file_origin
from sentinel.runtime.settings.yaml_file import parse_file, read_text


def read(source: Path, *, known: Collection[str], is_ours: Callable[[str], bool]) -> ParsedSource:
    """Reads a file or a directory. Never raises: whatever is wrong with it is a problem.

    Of a ConfigMap, `is_ours` says which keys are ours, and a key that is ours should be a known one; in a
    directory no other file is read.
    """
    if _is_directory(source):
        return _read_directory(source, file_origin(source), known, is_ours)
    return unwrap(parse_file(source), is_ours=is_ours)


def unwrap(parsed: ParsedSource, *, is_ours: Callable[[str], bool]) -> ParsedSource:
    """The settings in a document: all of a plain one, or those of a ConfigMap's manifest that are ours."""
    kind = None if parsed.root is None else parsed.root.get("kind")
    if parsed.root is None or kind is None:
        return parsed
    if not isinstance(kind.value, ScalarNode) or kind.value.text != "ConfigMap":
        message = (
            f"expected ConfigMap, got {describe_node(kind.value)}; give the values of a Secret as variables,"
            " or mount it and name its directory"
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
    except OSError:  # nobody may look; opening it as a file will say so
        return False


def _read_directory(
    directory: Path, root: Origin, known: Collection[str], is_ours: Callable[[str], bool]
) -> ParsedSource:
    """A file for each key, beside hidden entries by which Kubernetes swaps them all at once."""
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
            # One newline at the end is what an editor or `echo` left there, not part of the value.
            members.append(Member(file.name, at, ScalarNode(text.removesuffix("\n"), at, is_plain=False)))
    return ParsedSource(MappingNode(tuple(members), root), root, tuple(problems))

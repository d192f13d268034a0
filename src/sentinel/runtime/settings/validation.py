"""Collects the result of reading settings, so that one invalid value does not hide the next.

Reading follows the schema, not the file: keys beyond the schema are unknown, keys that the file lacks are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from sentinel.runtime import durations
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.config_tree import Node, join
from sentinel.runtime.settings.report import EffectiveSetting, Origin, SettingsProblem, closest_match

INVALID: Final = object()
"""Returned instead of a value that has a problem."""


class Validation:
    """The values accepted so far, with their origins, and the problems."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        known: Iterable[str] = (),
        is_partial: bool = False,
        has_json_types: bool = False,
    ) -> None:
        """`known` are the paths of all settings, for suggestions."""
        self.environ = environ
        self.has_json_types = has_json_types
        """Values have JSON's types, as in a Kubernetes manifest: text that looks like a number is quoted, and a
        number is not."""
        self.is_partial = is_partial
        """The file could not be read, so missing keys are not reported."""
        self.problems: list[SettingsProblem] = []
        self.entries: list[EffectiveSetting] = []
        self.secrets: list[Secret] = []
        self.values: dict[str, object] = {}
        """Accepted values by path, for checks across settings."""
        self.origins: dict[str, Origin] = {}
        self._known = tuple(known)

    def for_items(self) -> Validation:
        """Return a validation for the items of a list, whose values are not settings of their own."""
        return Validation(environ=self.environ, has_json_types=self.has_json_types)

    def reject(self, at: Origin, path: str, message: str) -> None:
        """Record a problem."""
        self.problems.append(SettingsProblem.at(at, path, message))

    def reject_unknown(self, at: Origin, path: str, siblings: Iterable[str]) -> None:
        """Record an unknown key, with the key that was probably meant."""
        parent, _, name = path.rpartition(".")
        names = list(siblings)
        meant = next((known for known in self._known if known.rpartition(".")[2] == name), None)
        if meant is None:
            sibling = closest_match(name, names)
            meant = None if sibling is None else join(parent, sibling)
        if meant is None:
            self.reject(at, path, f"unknown key; expected one of {', '.join(names)}")
        elif meant == path:
            self.reject(at, path, f"unknown key; expected {name} as a key of the mapping {parent}")
        else:
            self.reject(at, path, f"unknown key; did you mean {meant}?")

    def accept(self, path: str, value: object, origin: Origin) -> None:
        """Record a valid value and its origin. A mapping is recorded as one setting per value."""
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.accept(join(path, key), inner, origin)
            return
        self.values[path] = value
        self.origins[path] = origin
        self.entries.append(EffectiveSetting(path, _render(value), str(origin)))


class Readable(Protocol):
    """The type of a setting: reads a value from a node."""

    @property
    def expected(self) -> str:
        """A description for "expected ..." in messages, such as "a duration such as 5s"."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return the value, or `INVALID` after recording the problem. `at` is the position of the key."""


def _render(value: object) -> str:
    """Return the text that sets this value in a file or after `--set`. Empty for None."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case timedelta():
            return durations.render(value)
        case tuple():
            return msgspec.json.encode(value, enc_hook=str).decode()  # a path as its text, a secret as its mask
        case _:
            return str(value)

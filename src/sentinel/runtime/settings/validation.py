"""One pass over a configuration, in which one bad value never hides the next.

Reading walks the declaration of the settings, not the file: what the file has beyond it is unknown, what it
lacks is missing, and what it gets wrong is refused. All of it is noted here, together with what was accepted
and who said so.
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
"""What validation gives for a value that has a problem."""


class Validation:
    """What has been understood so far, and what has not."""

    def __init__(self, *, environ: Mapping[str, str], known: Iterable[str] = (), is_partial: bool = False) -> None:
        self.environ = environ
        self.is_partial = is_partial
        """The file could not be read, so nothing can be said of what it lacks."""
        self.problems: list[SettingsProblem] = []
        self.entries: list[EffectiveSetting] = []
        self.secrets: list[Secret] = []
        self.values: dict[str, object] = {}
        """Accepted values by path, for checks of one setting against another."""
        self.origins: dict[str, Origin] = {}
        self._known = tuple(known)

    def reject(self, at: Origin, path: str, message: str) -> None:
        """Notes that what stands there cannot be used."""
        self.problems.append(SettingsProblem.at(at, path, message))

    def reject_unknown(self, at: Origin, path: str, siblings: Iterable[str]) -> None:
        """Notes a key that is no setting, with the one that was probably meant."""
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
        """Notes a value that holds, and who said so; a mapping counts as one setting for each of its values."""
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.accept(join(path, key), inner, origin)
            return
        self.values[path] = value
        self.origins[path] = origin
        self.entries.append(EffectiveSetting(path, rendered(value), str(origin)))


class Readable(Protocol):
    """What a setting looks like in a file."""

    @property
    def expected(self) -> str:
        """In words, as in "expected a duration such as 5s"."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """The value, or `INVALID` once the problem is noted; `at` is where its key stands."""


def rendered(value: object) -> str:
    """A value as one would write it, in a file or after `--set`; nothing for what is unset."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case timedelta():
            return durations.render(value)
        case tuple():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)

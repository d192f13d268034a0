"""Routing of one environment and one command line to several settings structs.

The settings of a pulse, an adapter and the API each read `SENTINEL_…` variables and `--set`, and each would reject
or warn about a key of another. So each gets only the keys that it knows. Unknown variables go to all, which warn
about likely typos; unknown keys of `--set` are problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sentinel.runtime.settings.loader import PREFIX
from sentinel.runtime.settings.report import SettingsProblem
from sentinel.runtime.settings.schema import Section, section
from sentinel.runtime.settings.sources import from_environment, from_flags
from sentinel.runtime.settings.validation import Validation


class SettingsRouting:
    """The variables and flags, by settings struct."""

    def __init__(
        self, structs: Sequence[type[msgspec.Struct]], *, environ: Mapping[str, str], sets: Sequence[str]
    ) -> None:
        self._sections = {struct: section(struct) for struct in structs}
        self._environ = environ
        self._sets = sets

    def environ(self, struct: type[msgspec.Struct]) -> dict[str, str]:
        """Return the environment without variables that only other structs know."""
        foreign = {name for each in self._sections.values() for name in self._known_variables(each)}
        foreign -= self._known_variables(self._sections[struct])
        return {name: value for name, value in self._environ.items() if name not in foreign}

    def sets(self, struct: type[msgspec.Struct]) -> list[str]:
        """Return the values of `--set` that this struct knows."""
        known = _keys(self._sections[struct])
        return [flag for flag in self._sets if _first_key(flag) in known]

    def unknown_sets(self) -> list[SettingsProblem]:
        """Return a problem for each value of `--set` that no struct knows, with a suggestion."""
        known = list(dict.fromkeys(key for each in self._sections.values() for key in _keys(each)))
        validation = Validation(environ=self._environ)
        unknown = [flag for flag in self._sets if _first_key(flag) not in known]
        for given in from_flags(unknown, validation):
            validation.reject_unknown(given.at, given.key, known)
        return validation.problems

    def _known_variables(self, declared: Section) -> set[str]:
        given, _ = from_environment(declared, self._environ, PREFIX)
        return {each.at.name for each in given}


def _keys(declared: Section) -> list[str]:
    return [field.key for field in declared.fields]


def _first_key(flag: str) -> str:
    """Return `log` for `log.level=debug`."""
    return flag.partition("=")[0].strip().partition(".")[0]

"""Routing of one environment and one command line to several settings structs.

The settings of a pulse, an adapter, the API and the hub each read `SENTINEL_…` variables and `--set`, and each
would reject or warn about a key of another. So each gets only the keys that it knows. A variable that none knows
causes a warning if it resembles one; unknown keys of `--set` are problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sentinel.runtime.settings.loader import PREFIX
from sentinel.runtime.settings.report import SettingsProblem
from sentinel.runtime.settings.schema import Section, section
from sentinel.runtime.settings.sources import (
    from_environment,
    from_flags,
    is_setting,
    misspelling_warnings,
    variables,
)
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
        """Return the environment without settings that this struct does not know."""
        known = self._known_variables(self._sections[struct])
        return {
            name: value for name, value in self._environ.items() if name in known or not name.startswith(PREFIX)
        }

    def misspelled_variables(self) -> list[str]:
        """Return a warning for each variable that no struct knows and that resembles one of any struct."""
        known = {name for each in self._sections.values() for name in self._known_variables(each)}
        unknown = [name for name in self._environ if name.startswith(PREFIX) and name not in known]
        suggestions = dict(pair for each in self._sections.values() for pair in variables(each, PREFIX))
        return misspelling_warnings(unknown, suggestions, PREFIX)

    def sets(self, struct: type[msgspec.Struct]) -> list[str]:
        """Return the values of `--set` for this struct."""
        return [flag for flag in self._sets if struct in self._owners(flag)]

    def unknown_sets(self) -> list[SettingsProblem]:
        """Return a problem for each value of `--set` that no struct knows, with a suggestion."""
        known = list(dict.fromkeys(key for each in self._sections.values() for key in _keys(each)))
        validation = Validation(environ=self._environ)
        unknown = [flag for flag in self._sets if not self._owners(flag)]
        for given in from_flags(unknown, validation):
            validation.reject_unknown(given.at, given.key, known)
        return validation.problems

    def _owners(self, flag: str) -> list[type[msgspec.Struct]]:
        """Return the structs that know the key. If none knows more than its first part, one reports the rest."""
        path = tuple(_key(flag).split("."))
        owners = [struct for struct, declared in self._sections.items() if is_setting(declared, path)]
        return owners or [struct for struct, declared in self._sections.items() if declared.get(path[0])][:1]

    def _known_variables(self, declared: Section) -> set[str]:
        given, _ = from_environment(declared, self._environ, PREFIX)
        # The variable of a secret is not that of its key.
        return {each.at.name for each in given} | {read_from for _, read_from in variables(declared, PREFIX)}


def _keys(declared: Section) -> list[str]:
    return [field.key for field in declared.fields]


def _key(flag: str) -> str:
    """Return `log.level` for `log.level=debug`."""
    return flag.partition("=")[0].strip()

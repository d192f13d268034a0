"""One environment and one command line for settings of several kinds.

A pulse, an adapter and the API each read `SENTINEL_…` variables and `--set`, and each would refuse, or warn of,
what is meant for another. Here a key goes to everybody who knows it. A variable that nobody knows stays for all of
them to find the likeliest slip; a key of `--set` that nobody knows is a problem of its own.
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
    """Hands out what was written down, by who is asking."""

    def __init__(
        self, structs: Sequence[type[msgspec.Struct]], *, environ: Mapping[str, str], sets: Sequence[str]
    ) -> None:
        self._sections = {struct: section(struct) for struct in structs}
        self._environ = environ
        self._sets = sets

    def environ(self, struct: type[msgspec.Struct]) -> dict[str, str]:
        """The environment, without what is meant for another."""
        foreign = {name for declared in self._sections.values() for name in self._known(declared)}
        foreign -= self._known(self._sections[struct])
        return {name: value for name, value in self._environ.items() if name not in foreign}

    def sets(self, struct: type[msgspec.Struct]) -> list[str]:
        """The values of `--set` that are for this one."""
        own = _keys(self._sections[struct])
        return [given for given in self._sets if _section_of(given) in own]

    def strangers(self) -> list[SettingsProblem]:
        """The values of `--set` that are for nobody, each with what was probably meant, whoever knows that."""
        everybody = list(dict.fromkeys(key for declared in self._sections.values() for key in _keys(declared)))
        validation = Validation(environ=self._environ)
        strangers = [given for given in self._sets if _section_of(given) not in everybody]
        for given in from_flags(strangers, validation):
            validation.reject_unknown(given.at, given.key, everybody)
        return validation.problems

    def _known(self, declared: Section) -> set[str]:
        given, _ = from_environment(declared, self._environ, PREFIX)
        return {each.at.name for each in given}


def _keys(declared: Section) -> list[str]:
    return [field.key for field in declared.fields]


def _section_of(given: str) -> str:
    """The first part of its key."""
    return given.partition("=")[0].strip().partition(".")[0]

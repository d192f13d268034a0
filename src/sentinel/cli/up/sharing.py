"""One environment and one command line for settings of several kinds.

A pulse, an adapter and the API each read `SENTINEL_…` variables and `--set`, and each would refuse, or warn of,
what is meant for another. Here a key goes to everybody who knows it. A variable that nobody knows stays for all of
them to find the likeliest slip; a key of `--set` that nobody knows is for the first to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sentinel.runtime.layers import from_environment
from sentinel.runtime.sections import Section, section
from sentinel.runtime.settings import PREFIX


class Sharing:
    """Hands out what was written down, by who is asking."""

    def __init__(
        self, structs: Sequence[type[msgspec.Struct]], *, environ: Mapping[str, str], sets: Sequence[str]
    ) -> None:
        self._sections = {struct: section(struct) for struct in structs}
        self._first = structs[0]
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
        everybody = set().union(*map(_keys, self._sections.values()))
        return [
            given
            for given in self._sets
            if (key := given.partition("=")[0].strip().partition(".")[0]) in own
            or (key not in everybody and struct is self._first)
        ]

    def _known(self, declared: Section) -> set[str]:
        given, _ = from_environment(declared, self._environ, PREFIX)
        return {each.at.name for each in given}


def _keys(declared: Section) -> set[str]:
    return {field.key for field in declared.fields}

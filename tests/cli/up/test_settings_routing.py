"""Routing variables and flags to several settings structs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from sentinel.cli.up.settings_routing import SettingsRouting
from sentinel.hub.settings import HubSettings
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.schema import EnvironmentSecret


class Log(msgspec.Struct, frozen=True):
    level: str = "info"


class First(msgspec.Struct, frozen=True):
    interval: str = ""
    log: Log = Log()


class DetailedLog(Log, frozen=True):
    format: str = "json"


class Second(msgspec.Struct, frozen=True):
    timeout: str = ""
    log: DetailedLog = DetailedLog()


ENVIRON = {
    "SENTINEL_INTERVAL": "1",
    "SENTINEL_TIMEOUT": "2",
    "SENTINEL_LOG__LEVEL": "debug",
    "SENTINEL_INTERVALL": "3",
    "PATH": "/bin",
}


def test_a_variable_goes_to_the_structs_that_know_it() -> None:
    routing = SettingsRouting((First, Second), environ=ENVIRON, sets=())

    assert routing.environ(First).keys() == {"SENTINEL_INTERVAL", "SENTINEL_LOG__LEVEL", "PATH"}
    assert routing.environ(Second).keys() == {"SENTINEL_TIMEOUT", "SENTINEL_LOG__LEVEL", "PATH"}


class WithSecret(msgspec.Struct, frozen=True):
    key: Annotated[Secret | None, EnvironmentSecret("SENTINEL_KEY", "use another way")] = None


def test_the_variable_of_a_secret_goes_to_the_struct_that_reads_it() -> None:
    routing = SettingsRouting((First, WithSecret), environ={"SENTINEL_KEY": "k"}, sets=())

    assert routing.environ(First) == {}
    assert routing.environ(WithSecret) == {"SENTINEL_KEY": "k"}
    assert routing.misspelled_variables() == []


def test_the_hub_of_up_gets_its_key() -> None:
    routing = SettingsRouting((First, HubSettings), environ={"SENTINEL_SECRETS_KEY": "k"}, sets=())

    assert routing.environ(HubSettings) == {"SENTINEL_SECRETS_KEY": "k"}


def test_an_unknown_variable_is_warned_about_with_the_closest_of_all() -> None:
    routing = SettingsRouting((Second, First), environ={**ENVIRON, "SENTINEL_OTHER": "4"}, sets=())

    assert routing.misspelled_variables() == [
        "SENTINEL_INTERVALL is not a setting and is ignored; did you mean SENTINEL_INTERVAL?"
    ]


def test_a_flag_goes_to_the_structs_that_know_it() -> None:
    routing = SettingsRouting((First, Second), environ={}, sets=("interval=1", "timeout=2", "log.level=debug"))

    assert routing.sets(First) == ["interval=1", "log.level=debug"]
    assert routing.sets(Second) == ["timeout=2", "log.level=debug"]
    assert routing.unknown_sets() == []


def test_a_flag_of_a_shared_section_goes_to_the_struct_that_knows_it() -> None:
    routing = SettingsRouting((First, Second), environ={}, sets=("log.format=json", "log.colour=red"))

    assert routing.sets(First) == ["log.colour=red"]
    assert routing.sets(Second) == ["log.format=json"]
    assert routing.unknown_sets() == []


def test_an_unknown_flag_is_a_problem_with_a_suggestion() -> None:
    routing = SettingsRouting((First, Second), environ={}, sets=("intervall=1", "timout=2", "zzz=3", "x"))

    assert routing.sets(First) == []
    assert sorted(map(str, routing.unknown_sets())) == [
        "intervall: unknown key; did you mean interval? (flag --set)",
        "timout: unknown key; did you mean timeout? (flag --set)",
        "x: expected KEY=VALUE, got no = (flag --set)",
        "zzz: unknown key; expected one of interval, log, timeout (flag --set)",
    ]

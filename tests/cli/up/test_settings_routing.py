"""One environment and one command line, handed out by who asks."""

from __future__ import annotations

import msgspec

from sentinel.cli.up.settings_routing import SettingsRouting


class Log(msgspec.Struct, frozen=True):
    level: str = "info"


class First(msgspec.Struct, frozen=True):
    interval: str = ""
    log: Log = Log()


class Second(msgspec.Struct, frozen=True):
    timeout: str = ""
    log: Log = Log()


ENVIRON = {
    "SENTINEL_INTERVAL": "1",
    "SENTINEL_TIMEOUT": "2",
    "SENTINEL_LOG__LEVEL": "debug",
    "SENTINEL_INTERVALL": "3",
    "PATH": "/bin",
}


def test_a_variable_goes_to_everybody_but_those_for_whom_it_is_not() -> None:
    sharing = SettingsRouting((First, Second), environ=ENVIRON, sets=())

    assert sharing.environ(First).keys() == ENVIRON.keys() - {"SENTINEL_TIMEOUT"}
    assert sharing.environ(Second).keys() == ENVIRON.keys() - {"SENTINEL_INTERVAL"}


def test_a_key_goes_to_everybody_who_knows_it() -> None:
    sharing = SettingsRouting((First, Second), environ={}, sets=("interval=1", "timeout=2", "log.level=debug"))

    assert sharing.sets(First) == ["interval=1", "log.level=debug"]
    assert sharing.sets(Second) == ["timeout=2", "log.level=debug"]
    assert sharing.strangers() == []


def test_what_nobody_knows_is_a_problem_with_the_likeliest_key_of_all() -> None:
    sharing = SettingsRouting((First, Second), environ={}, sets=("intervall=1", "timout=2", "zzz=3", "x"))

    assert sharing.sets(First) == []
    assert sorted(map(str, sharing.strangers())) == [
        "intervall: unknown key; did you mean interval? (flag --set)",
        "timout: unknown key; did you mean timeout? (flag --set)",
        "x: expected KEY=VALUE, got no = (flag --set)",
        "zzz: unknown key; expected one of interval, log, timeout (flag --set)",
    ]

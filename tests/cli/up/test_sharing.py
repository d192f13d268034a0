"""One environment and one command line, handed out by who asks."""

from __future__ import annotations

import msgspec

from sentinel.cli.up.sharing import Sharing


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
    sharing = Sharing((First, Second), environ=ENVIRON, sets=())

    assert sharing.environ(First).keys() == ENVIRON.keys() - {"SENTINEL_TIMEOUT"}
    assert sharing.environ(Second).keys() == ENVIRON.keys() - {"SENTINEL_INTERVAL"}


def test_a_key_goes_to_everybody_who_knows_it_and_the_first_refuses_what_nobody_knows() -> None:
    sharing = Sharing(
        (First, Second), environ={}, sets=("interval=1", "timeout=2", "log.level=debug", "other=3", "x")
    )

    assert sharing.sets(First) == ["interval=1", "log.level=debug", "other=3", "x"]
    assert sharing.sets(Second) == ["timeout=2", "log.level=debug"]

"""The options that commands share, spelled once, and how a command prints its data."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from sentinel.runtime.log import LogFormat, LogLevel

F = TypeVar("F", bound=Callable[..., object])


class Output(StrEnum):
    """How a command prints its data."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def output_option(command: F) -> F:
    """`--output`, as the parameter `output`, an `Output`."""
    return click.option(
        "--output",
        type=click.Choice([choice.value for choice in Output]),
        default=Output.TABLE.value,
        callback=lambda context, parameter, value: Output(value),
        help="How data is printed; table is for people.",
    )(command)


def broker_option(command: F) -> F:
    """`--broker-config`, as the parameter `broker_config`."""
    return click.option(
        "--broker-config",
        type=click.Path(path_type=Path),
        help="Broker settings: a file, a ConfigMap's manifest, or the directory where one is mounted.",
    )(command)


def set_option(command: F) -> F:
    """`--set`, as the parameter `sets`, a tuple of texts."""
    return click.option(
        "--set",
        "sets",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set one key of the configuration, as in hyperfleet_api.timeout=3s; beats environment and file.",
    )(command)


def log_options(command: F) -> F:
    """`--log-level` and `--log-format`, as parameters of these names; None where the settings decide."""
    level = click.option(
        "--log-level",
        type=click.Choice([level.value for level in LogLevel]),
        help="The least important event that is still logged; beats the settings.",
    )
    layout = click.option(
        "--log-format",
        type=click.Choice([layout.value for layout in LogFormat]),
        help="How log lines are laid out; beats the settings. Otherwise console on a terminal, else json.",
    )
    return level(layout(command))


def log_overrides(*, log_level: str | None, log_format: str | None) -> dict[str, str]:
    """The logging flags as settings, for `load`."""
    given = {"log.level": log_level, "log.format": log_format}
    return {key: value for key, value in given.items() if value is not None}


def server_options(*, listen: str, database: str) -> Callable[[F], F]:
    """`--config`, `--listen` and `--database-url`, as parameters of these names; the help names the defaults."""

    def decorate(command: F) -> F:
        config = click.option(
            "--config", type=click.Path(path_type=Path), help="A settings file; flags and environment beat it."
        )
        address = click.option(
            "--listen", metavar="ADDRESS", help=f"Where to listen; {listen} where nothing else is said."
        )
        url = click.option(
            "--database-url",
            metavar="URL",
            help=f"sqlite:///FILE ({database} where nothing is said) or postgresql://…",
        )
        return config(address(url(command)))

    return decorate


def credential_options(command: F) -> F:
    """`--tokens-file`, `--jwt-key-file` and `--insecure`, as parameters of these names."""
    tokens = click.option(
        "--tokens-file", metavar="FILE", help="The tokens that are accepted; see `sentinel token new`."
    )
    key = click.option("--jwt-key-file", metavar="FILE", help="The key that JSON web tokens are checked with.")
    insecure = click.option(
        "--insecure", is_flag=True, help="Let everybody do everything; on a loopback address only."
    )
    return tokens(key(insecure(command)))


def overrides(**flags: str | bool | None) -> dict[str, str]:
    """A command's own flags as settings, for `load`; those that were not given are left out."""
    return {
        key: "true" if value is True else str(value)
        for key, value in flags.items()
        if value is not None and value is not False
    }


def encode(data: object, output: Output) -> str:
    """Data as JSON or YAML text, for scripts; without a newline at its end."""
    encoded = msgspec.json.encode(data)
    if output is Output.YAML:
        # By way of JSON, so that both say the same: YAML has times of its own, which are written differently.
        return msgspec.yaml.encode(msgspec.json.decode(encoded)).decode().rstrip("\n")
    return msgspec.json.format(encoded, indent=2).decode()

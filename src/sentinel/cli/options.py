"""Options that several commands share, and how a command prints its data."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from sentinel.runtime.listening import Address, parse_address
from sentinel.runtime.log import LogFormat, LogLevel

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
_CREDENTIALS = ("tokens_file", "jwt_key_file", "jwks_url", "jwt_issuer", "jwt_audience", "insecure")


class OutputFormat(StrEnum):
    """The formats in which a command prints its data."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def output_option(command: F) -> F:
    """`--output`, as the parameter `output`, an `OutputFormat`."""
    return click.option(
        "--output",
        type=click.Choice([choice.value for choice in OutputFormat]),
        default=OutputFormat.TABLE.value,
        callback=lambda context, parameter, value: OutputFormat(value),
        help="Output format. json and yaml are for scripts.",
    )(command)


def broker_option(command: F) -> F:
    """`--broker-config`, as the parameter `broker_config`."""
    return click.option(
        "--broker-config",
        type=click.Path(path_type=Path),
        help="Broker settings: a YAML file, a ConfigMap manifest, or the directory of a mounted ConfigMap.",
    )(command)


def set_option(command: F) -> F:
    """`--set`, as the parameter `sets`, a tuple of strings."""
    return click.option(
        "--set",
        "sets",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set one setting, such as hyperfleet_api.timeout=3s. Overrides environment and file.",
    )(command)


def log_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--log-level` and `--log-format`, as the parameter `log_overrides`: settings by key, for `loader.load`."""

    @wraps(command)
    def with_overrides(*args: Any, log_level: str | None, log_format: str | None, **kwargs: Any) -> T:
        given = {"log.level": log_level, "log.format": log_format}
        overrides = {key: value for key, value in given.items() if value is not None}
        return command(*args, log_overrides=overrides, **kwargs)

    level = click.option(
        "--log-level",
        type=click.Choice([level.value for level in LogLevel]),
        help="Lowest level that is logged. Overrides the settings.",
    )
    layout = click.option(
        "--log-format",
        type=click.Choice([layout.value for layout in LogFormat]),
        help="Log format. Overrides the settings. Default: console on a terminal, json elsewhere.",
    )
    return level(layout(with_overrides))


def bind_address(context: click.Context, parameter: click.Parameter, text: str) -> Address | None:
    """Parse an address option. Used as a callback; None means that nothing is served."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def database_url_option(command: F) -> F:
    """`--database-url`, required, as the parameter `database_url`."""
    return click.option(
        "--database-url",
        metavar="URL",
        envvar="SENTINEL_DATABASE_URL",
        required=True,
        help="sqlite:///FILE or postgresql://USER@HOST/NAME; or set SENTINEL_DATABASE_URL.",
    )(command)


def service_options(*, listen: str, database: str) -> Callable[[F], F]:
    """`--config`, `--listen` and `--database-url`, as parameters of these names. The help names the defaults."""

    def decorate(command: F) -> F:
        config = click.option(
            "--config", type=click.Path(path_type=Path), help="Settings file. Options and environment override it."
        )
        address = click.option("--listen", metavar="ADDRESS", help=f"Address to listen on. Default: {listen}.")
        url = click.option(
            "--database-url",
            metavar="URL",
            help=f"sqlite:///FILE or postgresql://… Default: {database}.",
        )
        return config(address(url(command)))

    return decorate


def credential_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--tokens-file`, `--jwt-key-file`, `--jwks-url`, `--jwt-issuer`, `--jwt-audience` and `--insecure`, as the
    parameter `credentials`: settings by key, for `loader.load`."""

    @wraps(command)
    def with_credentials(*args: Any, **kwargs: Any) -> T:
        flags = {key: kwargs.pop(key) for key in _CREDENTIALS}
        return command(*args, credentials=overrides(**flags), **kwargs)

    tokens = click.option(
        "--tokens-file", metavar="FILE", help="Tokens that are accepted; see `sentinel token new`."
    )
    key = click.option("--jwt-key-file", metavar="FILE", help="Key that verifies JSON web tokens.")
    keys = click.option("--jwks-url", metavar="URL", help="Where keys that verify JSON web tokens are published.")
    issuer = click.option("--jwt-issuer", metavar="TEXT", help="The issuer that JSON web tokens must name.")
    audience = click.option("--jwt-audience", metavar="TEXT", help="The audience that JSON web tokens must name.")
    insecure = click.option(
        "--insecure", is_flag=True, help="Allow all requests without a token. Loopback addresses only."
    )
    return tokens(key(keys(issuer(audience(insecure(with_credentials))))))


def overrides(**flags: str | bool | None) -> dict[str, str]:
    """Return a command's options as settings, for `loader.load`, without those that were not given."""
    return {
        key: "true" if value is True else str(value)
        for key, value in flags.items()
        if value is not None and value is not False
    }


def encode(data: object, output: OutputFormat) -> str:
    """Encode data as JSON or YAML, without a trailing newline."""
    encoded = msgspec.json.encode(data)
    if output is OutputFormat.YAML:
        # Through JSON, so that timestamps look the same in both formats. YAML has its own notation for them.
        return msgspec.yaml.encode(msgspec.json.decode(encoded)).decode().rstrip("\n")
    return msgspec.json.format(encoded, indent=2).decode()

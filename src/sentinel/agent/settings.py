"""The settings of an agent. The docstring of each field is its entry in the reference."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Unpack
from urllib.parse import urlsplit

import msgspec

from sentinel.core.agent.offline import OfflineMode
from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.field_types import InvalidValue
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import Loaded, Origin, SettingsProblem, file_origin
from sentinel.runtime.settings.schema import EnvironmentSecret, FlatMapping, TextList

REGISTRATION_TOKEN: Final = "SENTINEL_REGISTRATION_TOKEN"  # noqa: S105  # the name of a variable
CANDIDATE: Final = "{config}"
"""Stands in a command for the path of the file to be tested."""

_COMMAND: Final = TextList("a command as a list of words, such as [systemctl, restart, sentinel]")


def _parse_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        has_credentials = "@" in parts.netloc
    except ValueError:
        is_valid = has_credentials = False
    if not is_valid or not text.isprintable() or " " in text:
        raise InvalidValue(hides_text=True)
    if has_credentials:  # failures name the URL, in logs and to the hub
        raise InvalidValue("without a user and a password", hides_text=True)
    return text


def _parse_address(text: str) -> str:
    host, separator, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not separator or not bare or "/" in host or not port.isascii() or not port.isdigit():
        raise InvalidValue
    if (":" in bare) != host.startswith("[") or not 0 < int(port) < 65536 or not text.isprintable():
        raise InvalidValue
    return text


_URL: Final = field_types.FieldType("an http or https URL such as http://127.0.0.1:8088/health", _parse_url)
_ADDRESS: Final = field_types.FieldType("HOST:PORT such as hub.example:9090", _parse_address)
_METRIC: Final = field_types.text("the name of a metric", r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ID: Final = field_types.text(
    f"an id of 1 to {MAX_ID_LENGTH} letters, digits and - . _ ~", segment_pattern(MAX_ID_LENGTH)
)


class HubTlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS to the hub. Without any of these the connection is not encrypted."""

    ca: Path | None = None
    """The CA of the hub's certificate (PEM)."""

    cert: Path | None = None
    """The certificate of this agent (PEM), for a hub that requires one. Its CN is the id of the instance."""

    key: Path | None = None
    """The key of `cert` (PEM)."""


class HubConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to the hub."""

    address: Annotated[str, _ADDRESS]
    """The hub's address for agents, `HOST:PORT`."""

    tls: HubTlsSettings | None = None
    """TLS to the hub: `{ca, cert, key}`, PEM files. `cert` and `key` are for a hub that identifies agents by
    certificate. Unset: the connection is not encrypted."""

    registration_token_file: Path | None = None
    """A file with the registration token, a token of the role `agent`. It is read at each registration."""

    registration_token: Annotated[
        Secret | None,
        EnvironmentSecret(
            REGISTRATION_TOKEN,
            f"use hub.registration_token_file, or the environment variable {REGISTRATION_TOKEN}",
        ),
    ] = None
    """The registration token. Only from the environment variable `SENTINEL_REGISTRATION_TOKEN`, which overrides
    `registration_token_file`. Rejected in files and flags."""


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the instance appears in the hub."""

    id: Annotated[str | None, _ID] = None
    """The unique id of the instance. Unset: made at the first start and kept in `state_dir`."""

    name: str | None = None
    """A name for people. Unset: the name of the host."""

    labels: Annotated[Mapping[str, str], FlatMapping("a mapping of labels, such as {zone: a}")] = {}
    """Labels that selectors match, such as `{zone: a}`."""


class ReloadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy is told to read its file again. At least one of the two."""

    pid_file: Path | None = None
    """The proxy's pid file. It gets SIGHUP to reload, and SIGTERM to stop."""

    command: Annotated[tuple[str, ...], _COMMAND] = ()
    """A command that reloads the proxy, in place of SIGHUP."""


class RestartSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy is restarted, for versions that need it."""

    command: Annotated[tuple[str, ...], _COMMAND] = ()
    """A command that restarts the proxy, for versions that change `system` or `listeners`. Without it the proxy is
    reloaded, and the status says that a restart is required."""


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the health of the proxy is checked after a reload."""

    attempts: Annotated[int, field_types.integer(1, 1000)] = 3
    """How often the health is checked before a version counts as failed, from 1 to 1000."""

    interval: Annotated[timedelta, field_types.ANY_DURATION] = timedelta(seconds=1)
    """The time before each check, in which a reload can take effect."""

    timeout: timedelta = timedelta(seconds=2)
    """How long one check may take."""


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the proxy's metrics, where they differ from those of zentinel."""

    requests_total: Annotated[str, _METRIC] = "zentinel_requests_total"
    """A counter of requests. All its series are added up."""

    requests_failed: Annotated[str | None, _METRIC] = None
    """A counter of failed requests. Unset: the series of `requests_total` whose label `status` is 5xx."""

    latency_p50_ms: Annotated[str, _METRIC] = "zentinel_request_duration_seconds"
    """A histogram of durations in seconds, for the median."""

    latency_p99_ms: Annotated[str, _METRIC] = "zentinel_request_duration_seconds"
    """A histogram of durations in seconds, for the 99th percentile."""

    active_connections: Annotated[str, _METRIC] = "zentinel_open_connections"
    """A gauge of open connections."""

    bytes_sent: Annotated[str | None, _METRIC] = None
    """A counter of bytes sent. Unset: 0 is reported."""

    bytes_received: Annotated[str | None, _METRIC] = None
    """A counter of bytes received. Unset: 0 is reported."""


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The proxy beside the agent."""

    config_path: Path
    """The proxy's configuration file, which the agent writes."""

    test_command: Annotated[tuple[str, ...], _COMMAND] = ("sentinel", "proxy", "--test", "-c", CANDIDATE)
    """A command that succeeds if the proxy accepts a file. `{config}` is the path of the file to test. An empty
    list: nothing is tested."""

    reload: ReloadSettings = msgspec.field(default_factory=ReloadSettings)
    """How the proxy is told to read its file again."""

    restart: RestartSettings = msgspec.field(default_factory=RestartSettings)
    """How the proxy is restarted, for versions that need it."""

    health_url: Annotated[str | None, _URL] = None
    """A URL that responds with 2xx while the proxy is healthy. Unset: it is enough that the process of the pid
    file runs."""

    health: HealthSettings = msgspec.field(default_factory=HealthSettings)
    """How the health is checked."""

    metrics_url: Annotated[str | None, _URL] = None
    """The proxy's metrics in Prometheus' format. Unset: none are reported."""

    metrics: MetricsSettings = msgspec.field(default_factory=MetricsSettings)
    """Names of the proxy's metrics."""

    stop_command: Annotated[tuple[str, ...], _COMMAND] = ()
    """A command that stops the proxy, for offline mode `shutdown` and when the hub drains the instance. Unset:
    SIGTERM by the pid file."""


class RetryBackoffSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The delays between attempts to reach the hub. Jitter is added."""

    initial: timedelta = timedelta(seconds=1)
    """The delay after the first failure."""

    max: timedelta = timedelta(minutes=5)
    """The longest delay."""

    multiplier: Annotated[float, field_types.number(1, 100)] = 2.0
    """The growth of each delay, from 1 to 100."""

    @property
    def backoff(self) -> Backoff:
        return Backoff(initial=self.initial, maximum=self.max, factor=self.multiplier)


class OfflineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What happens while the hub cannot be reached."""

    mode: OfflineMode = OfflineMode.KEEP_RUNNING
    """`keep_running`: nothing changes. `degraded`: the same, but `/readyz` is 503 and the next heartbeat says
    DEGRADED. `shutdown`: proxy and agent stop."""

    max_offline_duration: timedelta | None = None
    """How long the hub may be away before proxy and agent stop, in any mode. Unset: no limit, except that mode
    `shutdown` stops at once."""

    retry_backoff: RetryBackoffSettings = msgspec.field(default_factory=RetryBackoffSettings)
    """The delays between attempts to reach the hub."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an agent. Relative paths, also of programs, are relative to the folder of the file."""

    hub: HubConnectionSettings
    """The connection to the hub."""

    instance: InstanceSettings = msgspec.field(default_factory=InstanceSettings)
    """How the instance appears in the hub."""

    proxy: ProxySettings
    """The proxy beside the agent."""

    offline_behavior: OfflineSettings = msgspec.field(default_factory=OfflineSettings)
    """What happens while the hub cannot be reached."""

    state_dir: Path = Path("/var/lib/sentinel-agent")
    """Where the agent keeps its id, the last good version, undelivered reports, and files of secrets."""

    deregister_on_shutdown: bool = False
    """Whether the instance leaves the fleet when the agent stops."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Log level and format."""

    @property
    def instance_name(self) -> str:
        return self.instance.name or socket.gethostname()


def load(**options: Unpack[loader.LoadOptions]) -> Loaded[AgentSettings]:
    """Load the settings as `runtime.settings.loader.load` does, with paths relative to the folder of the file."""
    loaded = loader.load(AgentSettings, **options)
    if loaded.settings is None:
        return loaded
    file = options.get("file")
    at = Origin() if file is None else file_origin(file)
    problems = [SettingsProblem.at(at, key, message) for key, message in _problems(loaded.settings)]
    if problems:
        return msgspec.structs.replace(loaded, settings=None, problems=tuple(problems), entries=())
    folder = Path.cwd() if file is None else Path.cwd() / file.parent
    settings = loaded.settings
    paths = {name: _relative_to(folder, getattr(settings, name)) for name in settings.__struct_fields__}
    return msgspec.structs.replace(loaded, settings=msgspec.structs.replace(settings, **paths))


def _problems(settings: AgentSettings) -> Iterator[tuple[str, str]]:
    """Yield the keys whose values do not fit together."""
    tls = settings.hub.tls
    if tls is not None and (tls.cert is None) != (tls.key is None):
        missing = "cert" if tls.cert is None else "key"
        yield f"hub.tls.{missing}", "required, because the other one of cert and key is given"
    reload = settings.proxy.reload
    if reload.pid_file is None and not reload.command:
        yield "proxy.reload", "expected pid_file or command, got neither"
    if settings.proxy.test_command and not any(CANDIDATE in word for word in settings.proxy.test_command):
        yield "proxy.test_command", f"expected {CANDIDATE} in one of its words, which is the file to test"
    for key, words in _commands(settings.proxy):
        if words and not words[0]:
            yield f"proxy.{key}", "expected a program as the first word, got nothing"
    backoff = settings.offline_behavior.retry_backoff
    if backoff.max < backoff.initial:
        yield "offline_behavior.retry_backoff.max", "expected at least initial"


def _commands(proxy: ProxySettings) -> Sequence[tuple[str, Sequence[str]]]:
    return (
        ("test_command", proxy.test_command),
        ("reload.command", proxy.reload.command),
        ("restart.command", proxy.restart.command),
        ("stop_command", proxy.stop_command),
    )


def _relative_to(folder: Path, value: object) -> object:
    """Return a value whose paths, also of inner structs, are relative to a folder.

    The program of a command is a path if it has a slash, otherwise it is looked for in `PATH`.
    """
    match value:
        case Path():
            return folder / value
        case (str() as program, *words) if "/" in program:
            return (str(folder / program), *words)
        case msgspec.Struct():
            names = value.__struct_fields__
            return msgspec.structs.replace(
                value, **{name: _relative_to(folder, getattr(value, name)) for name in names}
            )
        case _:
            return value

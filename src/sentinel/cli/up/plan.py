"""The plan of one `sentinel up`: all settings, loaded before anything starts so that all problems show at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from sentinel.adapter import loading, samples
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.settings import AdapterSettings
from sentinel.api import kinds as kinds_file
from sentinel.api.kinds import Kinds
from sentinel.api.settings import FleetApiSettings
from sentinel.cli.up.settings_routing import SettingsRouting
from sentinel.cli.wiring.expressions import compile_expression
from sentinel.core.fleet.documents import KindRules
from sentinel.hub import settings as hub_settings
from sentinel.hub.settings import HubSettings
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.listening import Address, is_loopback
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader, yaml_file
from sentinel.runtime.settings.broker import BrokerSettings, load_broker
from sentinel.runtime.settings.report import Loaded, Origin, SettingsProblem, Source
from sentinel.runtime.settings.server import listen_address, required_address

T = TypeVar("T", bound=msgspec.Struct)

KINDS = Kinds(
    (
        KindRules("clusters", "Cluster", "", ("validation", "dns", "provision")),
        KindRules("nodepools", "NodePool", "clusters", ("validation",)),
        KindRules("manifests", "Manifest"),
        KindRules("workloads", "Workload"),
    )
)
"""The kinds that are served without --kinds-file."""

DEFAULTS: Mapping[str, str] = {"poll_interval": "1s", "pulse_on_progress": "true"}
"""Defaults of every pulse here, quicker than usual because a user is watching."""

DEMO_AGENTS = 5
"""The number of agents with --demo."""

DEMO_DEFAULTS: Mapping[str, str] = {"max_age_not_ready": "3s", "max_age_ready": "30s"}
"""Further defaults with --demo."""

HUB_DEFAULTS: Mapping[str, str] = {
    "listen_grpc": "127.0.0.1:9090",
    "heartbeat_interval": "2s",
    "offline_threshold": "15s",
}
"""Defaults of the hub here: only this machine, and quick for the same reason."""

_PLACEHOLDER_ENDPOINT = "http://127.0.0.1:1"
"""The API's endpoint until it listens: port 0 is resolved only then."""

_IGNORED_VARIABLES = frozenset(
    ("SENTINEL_BROKER_URL", "SENTINEL_DATA_DIR", "SENTINEL_TASK", "HYPERFLEET_API_TOKEN")
)
"""Options of the command; the task, which each adapter sets itself; and the token of another API, which must not
reach this one."""

_FIXED_SETTINGS: Mapping[str, str] = {
    "task": "set it in an adapter's file and name that with --adapter",
    "resource_type": "every kind that requires adapters has a pulse",
    "hyperfleet_api.endpoint": "the API runs in this process",
    "hyperfleet_api.token_file": "every pulse and adapter has its own token",
    "tokens_file": "it is in the data directory",
    "insecure": "it depends on the listen address",
}
"""Settings that `--set` cannot change, with the reason."""

_BROKER_VARIABLES = (
    "BROKER_EXCHANGE",
    "BROKER_EXCHANGE_TYPE",
    "BROKER_ROUTING_KEY",
    "BROKER_CA_FILE",
    "BROKER_CREATE_TOPIC",
    "BROKER_ORDERING_KEY",
    "PUBSUB_EMULATOR_HOST",
)
"""Variables that complete the broker URL."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line that concern the plan.

    An option that was not given is None or empty.
    """

    listen: str | None = None
    listen_grpc: str | None = None
    database_url: str | None = None
    broker_url: str | None = None
    broker_url_origin: Origin = Origin(Source.FLAG, "--broker-url")
    kinds_file: str | None = None
    adapter_files: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()
    logging: Mapping[str, str] = {}
    is_demo: bool = False
    agents: int | None = None


class PlannedAdapter(msgspec.Struct, frozen=True):
    """An adapter to run."""

    adapter: Adapter
    settings: AdapterSettings
    file: Path | None = None
    """Its settings file; None for a sample."""


class UpPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything to run."""

    address: Address
    server: FleetApiSettings
    agents_address: Address
    """Where the hub serves agents, over gRPC."""
    hub: HubSettings
    agents: int
    """How many agents and proxies run here, as child processes."""
    kinds: Kinds
    broker: BrokerSettings | None
    """None for the broker in this process."""
    pulses: tuple[PulseSettings, ...]
    adapters: tuple[PlannedAdapter, ...]
    secrets: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def watched(self) -> tuple[KindRules, ...]:
        """The kinds with required adapters, which therefore have a pulse."""
        return tuple(kind for kind in self.kinds if kind.required_adapters)

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach the API, so that users need a token."""
        return not is_loopback(self.address.host)

    @property
    def is_exposed_to_agents(self) -> bool:
        """Whether agents on other machines can reach the hub, so that agents need a token."""
        return not is_loopback(self.agents_address.host)


def make_plan(
    options: UpOptions, *, environ: Mapping[str, str], database_url: str, tokens_file: Path
) -> UpPlan | list[str]:
    """Return the plan, or all problems. The last two arguments come from the data directory."""
    plan_loader = _PlanLoader(options, environ)
    address, server, kinds = plan_loader.server(database_url, tokens_file)
    agents_address, hub = plan_loader.hub()
    broker = plan_loader.broker()
    adapters = plan_loader.adapters(kinds)
    pulses = list(plan_loader.pulses(kinds))
    if plan_loader.problems or address is None or server is None or agents_address is None or hub is None:
        return list(dict.fromkeys(plan_loader.problems))
    plan_loader.warn_about_missing_adapters(kinds, adapters)
    return UpPlan(
        address=address,
        server=server,
        agents_address=agents_address,
        hub=hub,
        agents=plan_loader.agents,
        kinds=kinds,
        broker=broker,
        pulses=tuple(pulses),
        adapters=tuple(adapters),
        secrets=(*plan_loader.secrets, *secrets_in_environment(environ), *server.secrets),
        warnings=tuple(dict.fromkeys(plan_loader.warnings)),
    )


class _PlanLoader:
    """A loader of all settings, with the problems, warnings and secrets found so far."""

    def __init__(self, options: UpOptions, environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.secrets: list[str] = []
        self.agents = (DEMO_AGENTS if options.is_demo else 0) if options.agents is None else options.agents
        self._options = options
        keys = dict.fromkeys(each.partition("=")[0].strip() for each in options.sets)
        self.problems += [
            f"{key}: expected no value here; {_FIXED_SETTINGS[key]} (flag --set)"
            for key in keys
            if key in _FIXED_SETTINGS
        ]
        self._environ = {name: value for name, value in environ.items() if name not in _IGNORED_VARIABLES}
        self._routing = SettingsRouting(
            (PulseSettings, AdapterSettings, FleetApiSettings, HubSettings),
            environ=self._environ,
            sets=options.sets,
        )
        self.problems += map(str, self._routing.unknown_sets())
        self.warnings += self._routing.misspelled_variables()

    def server(
        self, database_url: str, tokens_file: Path
    ) -> tuple[Address | None, FleetApiSettings | None, Kinds]:
        """Load the listen address, the server's settings and the kinds."""
        given = {
            "listen": self._options.listen,
            "database_url": self._options.database_url,
            "kinds_file": self._options.kinds_file,
        }
        loaded = self._accept(
            loader.load(
                FleetApiSettings,
                file=None,
                environ=self._routing.environ(FleetApiSettings),
                sets=self._routing.sets(FleetApiSettings),
                overrides={key: value for key, value in given.items() if value is not None}
                | {"tokens_file": str(tokens_file), "insecure": "false", **self._options.logging},
                defaults={"listen": "127.0.0.1:8080", "database_url": database_url, "log.level": "warning"},
            )
        )
        if loaded is None:
            return None, None, KINDS
        kinds = KINDS
        if loaded.kinds_file is not None:
            kinds = self._kinds(loaded.kinds_file)
        is_listen_given = self._options.listen is not None
        address, address_problems = listen_address(loaded, name="--listen" if is_listen_given else "listen")
        self.problems += address_problems
        if address is None:
            return None, loaded, kinds
        return address, msgspec.structs.replace(loaded, insecure=is_loopback(address.host)), kinds

    def hub(self) -> tuple[Address | None, HubSettings | None]:
        """Load the address for agents and the hub's settings. What it shares with the API is the API's."""
        given = self._options.listen_grpc
        loaded = self._accept(
            loader.load(
                HubSettings,
                file=None,
                environ=self._routing.environ(HubSettings),
                sets=self._routing.sets(HubSettings),
                overrides={} if given is None else {"listen_grpc": given},
                defaults=HUB_DEFAULTS,
            )
        )
        if loaded is None:
            return None, None
        self.problems += hub_settings.problems(loaded)
        address, address_problems = required_address(
            loaded.listen_grpc,
            name="listen_grpc" if given is None else "--listen-grpc",
            example=HUB_DEFAULTS["listen_grpc"],
        )
        self.problems += address_problems
        if self.agents and loaded.tls_cert is not None:
            self.problems.append(
                "--agents: expected 0 with tls_cert, because the agents that run here would need certificates"
            )
        if address is None:
            return None, loaded
        self.warnings += hub_settings.warnings(loaded, address)
        return address, msgspec.structs.replace(loaded, insecure=is_loopback(address.host))

    def _kinds(self, file: Path) -> Kinds:
        content = yaml_file.read_text(file)
        if isinstance(content, SettingsProblem) and self._options.kinds_file is not None:
            # The mistake is in the option, not in a line of the file.
            self.problems.append(f"--kinds-file: {content.file}: {content.message}")
            return KINDS
        kinds, problems = kinds_file.load(file, compile_expression=compile_expression)
        self.problems += map(str, problems)
        return kinds or KINDS

    def broker(self) -> BrokerSettings | None:
        """Load the broker that the URL names; None for the broker in this process."""
        url, origin = self._options.broker_url, self._options.broker_url_origin
        if not url:
            return None
        variables = {name: self._environ[name] for name in _BROKER_VARIABLES if self._environ.get(name)}
        parts = _split_broker_url(url)
        if parts is None or (parts.scheme == "pubsub" and not parts.netloc):
            # Without the text, which may contain a password.
            expected = "expected amqp://USER:PASSWORD@HOST/VHOST or pubsub://PROJECT/TOPIC, got something else"
            self.problems.append(str(SettingsProblem.at(origin, "broker_url", expected)))
            return None
        if parts.scheme == "pubsub":
            from_url = {"BROKER_PROJECT_ID": parts.netloc, "BROKER_TOPIC": parts.path.strip("/")}
            variables = {"BROKER_TYPE": "pubsub", "BROKER_CREATE_TOPIC": "true"} | variables
        else:
            from_url = {"BROKER_URL": url}
            variables["BROKER_TYPE"] = "rabbitmq"
        return self._accept(
            load_broker(
                source=None,
                environ=variables | {key: value for key, value in from_url.items() if value},
                origins=dict.fromkeys(from_url, origin),
            )
        )

    def pulses(self, kinds: Kinds) -> Iterator[PulseSettings]:
        """Yield the settings of a pulse for each kind with required adapters.

        The settings are loaded for the other kinds too, so that their problems always show.
        """
        for kind in kinds:
            loaded = self._accept(
                pulse_settings.load(
                    file=None,
                    environ=self._routing.environ(PulseSettings),
                    sets=self._routing.sets(PulseSettings),
                    overrides=self._overrides(resource_type=kind.plural),
                    defaults={**DEFAULTS, **(DEMO_DEFAULTS if self._options.is_demo else {})},
                )
            )
            if loaded is not None and kind.required_adapters:
                yield loaded

    def adapters(self, kinds: Kinds) -> list[PlannedAdapter]:
        """Load the required samples and the user's adapters, which replace samples of the same name."""
        required = _required_samples(kinds).items()
        planned = {name: each for name, kind_names in required if (each := self._sample(name, kind_names))}
        files: dict[str, Path] = {}
        for file in self._options.adapter_files:
            custom = self._custom(file)
            if custom is None:
                continue
            name = custom.adapter.name
            if name in files:
                self.problems.append(f"--adapter {file}: {files[name]} already has an adapter named {name}")
            files[name] = file
            planned[name] = custom
        return list(planned.values())

    def _sample(self, name: str, kinds: Sequence[str]) -> PlannedAdapter | None:
        loaded = self._accept(self._load_adapter(None, task=f"{samples.__name__}:{name}"))
        if loaded is None:
            return None
        adapter = loading.load_adapter(loaded.task)
        if set(adapter.kinds) != set(kinds):
            adapter = samples.declare(name, kinds=kinds)
        return PlannedAdapter(adapter, loaded)

    def _custom(self, file: Path) -> PlannedAdapter | None:
        loaded = self._load_adapter(file)
        settings = self._accept(loaded)
        if settings is None:
            return None
        for other in self._options.adapter_files:
            if other.parent.resolve() != file.parent.resolve():
                loading.forget_modules(other.parent)
        try:
            return PlannedAdapter(loading.load_adapter(settings.task, folder=file.parent), settings, file)
        except loading.InvalidAdapter as error:
            self.problems.append(str(loading.task_problem(error, file=file, loaded=loaded)))
            return None

    def _load_adapter(self, file: Path | None, **overrides: str) -> Loaded[AdapterSettings]:
        return loader.load(
            AdapterSettings,
            file=file,
            environ=self._routing.environ(AdapterSettings),
            sets=self._routing.sets(AdapterSettings),
            overrides=self._overrides(**overrides),
        )

    def warn_about_missing_adapters(self, kinds: Kinds, adapters: Iterable[PlannedAdapter]) -> None:
        """Warn about kinds that can never become ready, because a required adapter does not run."""
        present = {each.adapter.name: each.adapter.kinds for each in adapters}
        # Only an external broker delivers events to adapters outside this process.
        elsewhere = ", or run it separately" if self._options.broker_url else ""
        for kind in kinds:
            missing = [name for name in kind.required_adapters if kind.kind not in present.get(name, ())]
            if missing:
                self.warnings.append(
                    f"{kind.plural} require {', '.join(missing)}, which does not run here: no {kind.kind} becomes"
                    f" ready; name its file with --adapter{elsewhere}"
                )

    def _overrides(self, **overrides: str) -> dict[str, str]:
        return {"hyperfleet_api.endpoint": _PLACEHOLDER_ENDPOINT, **self._options.logging, **overrides}

    def _accept(self, loaded: Loaded[T]) -> T | None:
        self.problems += map(str, loaded.problems)
        self.warnings += loaded.warnings
        self.secrets += [secret.reveal() for secret in loaded.secrets]
        return loaded.settings


def _split_broker_url(url: str) -> SplitResult | None:
    """Return the parts of a broker's URL; None if it has neither of the two schemes."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.scheme in ("amqp", "amqps", "pubsub") else None


def _required_samples(kinds: Kinds) -> dict[str, list[str]]:
    """Return the required samples, with those they wait for, and the kinds of each."""
    required: dict[str, list[str]] = {}
    for kind in kinds:
        names = [name for name in kind.required_adapters if name in samples.DEPENDENCIES]
        for name in names:
            names += [other for other in samples.DEPENDENCIES[name] if other not in names]
        for name in samples.DEPENDENCIES:
            if name in names:
                required.setdefault(name, []).append(kind.kind)
    return required

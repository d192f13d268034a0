"""What one `sentinel up` is to run, settled before anything is started: every problem is told at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from sentinel.adapter import loading, samples
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.settings import AdapterSettings
from sentinel.api import kinds as kinds_file
from sentinel.api.kinds import Kinds
from sentinel.api.settings import FleetApiSettings
from sentinel.cli.up.settings_routing import SettingsRouting
from sentinel.core.fleet.documents import KindRules
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.listening import Address, is_loopback
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.broker import BrokerSettings, load_broker
from sentinel.runtime.settings.report import Loaded
from sentinel.runtime.settings.server import listen_address

T = TypeVar("T", bound=msgspec.Struct)

KINDS = Kinds(
    (
        KindRules("clusters", "Cluster", "", ("validation", "dns", "provision")),
        KindRules("nodepools", "NodePool", "clusters", ("validation",)),
        KindRules("manifests", "Manifest"),
        KindRules("workloads", "Workload"),
    )
)
"""What is served where no file says otherwise."""

DEFAULTS: Mapping[str, str] = {"poll_interval": "1s", "pulse_on_progress": "true"}
"""Of every pulse here, in place of the usual ones: somebody is watching."""

DEMO_DEFAULTS: Mapping[str, str] = {"max_age_not_ready": "3s", "max_age_ready": "30s"}
"""And of a demonstration: it has a minute, where a fleet has a day."""

UNKNOWN_YET = "http://127.0.0.1:1"
"""Stands for the API until it listens: with port 0 nobody knows earlier where that will be."""

_OURS = frozenset(("SENTINEL_BROKER_URL", "SENTINEL_DATA_DIR", "SENTINEL_TASK"))
"""Variables that are no setting here: options of the command, and the task, which each adapter has of its own."""

_SETTLED: Mapping[str, str] = {
    "task": "in the file of an adapter, which --adapter names",
    "resource_type": "nothing, for each kind that requires adapters has a pulse",
    "hyperfleet_api.endpoint": "nothing, for the API is the one in this process",
    "hyperfleet_api.token_file": "nothing, for every part has a token of its own",
    "tokens_file": "nothing, for it is kept in the data directory",
    "insecure": "nothing, for it follows from the address that is listened on",
}
"""Settings that nobody can change by `--set`, and what is expected instead."""

_BROKER_DETAILS = (
    "BROKER_EXCHANGE",
    "BROKER_EXCHANGE_TYPE",
    "BROKER_ROUTING_KEY",
    "BROKER_CA_FILE",
    "BROKER_CREATE_TOPIC",
    "BROKER_ORDERING_KEY",
    "PUBSUB_EMULATOR_HOST",
)
"""What may be said about a broker that is named by its URL."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    listen: str | None = None
    database_url: str | None = None
    broker_url: str | None = None
    kinds_file: str | None = None
    adapter_files: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()
    logging: Mapping[str, str] = {}
    is_demo: bool = False


class PlannedAdapter(msgspec.Struct, frozen=True):
    """An adapter that is to run."""

    adapter: Adapter
    settings: AdapterSettings
    file: Path | None = None
    """Where it was configured; None for a sample."""


class UpPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is to run, in order."""

    address: Address
    server: FleetApiSettings
    kinds: Kinds
    broker: BrokerSettings | None
    """None for the one in this process."""
    pulses: tuple[PulseSettings, ...]
    adapters: tuple[PlannedAdapter, ...]
    secrets: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def watched(self) -> tuple[KindRules, ...]:
        """The kinds that have required adapters, and therefore a pulse."""
        return tuple(kind for kind in self.kinds if kind.required_adapters)

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines can reach the API, so that a token is needed."""
        return not is_loopback(self.address.host)


def make_plan(
    wishes: UpOptions, *, environ: Mapping[str, str], database_url: str, tokens_file: Path
) -> UpPlan | list[str]:
    """The plan, or everything that is wrong with the wishes. The last two arguments are the data directory's."""
    planner = _Planner(wishes, environ)
    address, server, kinds = planner.server(database_url, tokens_file)
    broker = planner.broker()
    adapters = planner.adapters(kinds)
    pulses = list(planner.pulses(kinds))
    if planner.problems or address is None or server is None:
        return list(dict.fromkeys(planner.problems))
    planner.warn_of_absent(kinds, adapters)
    return UpPlan(
        address=address,
        server=server,
        kinds=kinds,
        broker=broker,
        pulses=tuple(pulses),
        adapters=tuple(adapters),
        secrets=(*planner.secrets, *secrets_in_environment(environ), *server.secrets),
        warnings=tuple(dict.fromkeys(planner.warnings)),
    )


class _Planner:
    """Loads one thing after the other, and remembers what was wrong."""

    def __init__(self, wishes: UpOptions, environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.secrets: list[str] = []
        self._wishes = wishes
        given = dict.fromkeys(each.partition("=")[0].strip() for each in wishes.sets)
        self.problems += [f"{key}: expected {_SETTLED[key]} (flag --set)" for key in given if key in _SETTLED]
        # The token of another API must not be shown to this one.
        hidden = {*_OURS, "HYPERFLEET_API_TOKEN"}
        self._environ = {name: value for name, value in environ.items() if name not in hidden}
        self._shared = SettingsRouting(
            (PulseSettings, AdapterSettings, FleetApiSettings), environ=self._environ, sets=wishes.sets
        )
        self.problems += map(str, self._shared.strangers())

    def server(
        self, database_url: str, tokens_file: Path
    ) -> tuple[Address | None, FleetApiSettings | None, Kinds]:
        """Where to listen, how, and what for."""
        wished = {
            "listen": self._wishes.listen,
            "database_url": self._wishes.database_url,
            "kinds_file": self._wishes.kinds_file,
        }
        loaded = self._accept(
            loader.load(
                FleetApiSettings,
                file=None,
                environ=self._shared.environ(FleetApiSettings),
                sets=self._shared.sets(FleetApiSettings),
                overrides={key: value for key, value in wished.items() if value is not None}
                | {"tokens_file": str(tokens_file), "insecure": "false", **self._wishes.logging},
                defaults={"listen": "127.0.0.1:8080", "database_url": database_url, "log.level": "warning"},
            )
        )
        if loaded is None:
            return None, None, KINDS
        kinds = KINDS
        if loaded.kinds_file is not None:
            found, problems = kinds_file.load(loaded.kinds_file)
            self.problems += map(str, problems)
            kinds = found or KINDS
        address, unusable = listen_address(loaded)
        self.problems += unusable
        if address is None:
            return None, loaded, kinds
        return address, msgspec.structs.replace(loaded, insecure=is_loopback(address.host)), kinds

    def broker(self) -> BrokerSettings | None:
        """The broker that the URL names."""
        url = self._wishes.broker_url
        if not url:
            return None
        details = {name: self._environ[name] for name in _BROKER_DETAILS if self._environ.get(name)}
        if url.startswith("pubsub:"):
            parts = urlsplit(url)
            named = {
                "BROKER_TYPE": "pubsub",
                "BROKER_PROJECT_ID": parts.netloc,
                "BROKER_TOPIC": parts.path.strip("/"),
                "BROKER_CREATE_TOPIC": "true",
            }
            details = {key: value for key, value in named.items() if value} | details
        else:
            details |= {"BROKER_TYPE": "rabbitmq", "BROKER_URL": url}
        return self._accept(load_broker(source=None, environ=details))

    def pulses(self, kinds: Kinds) -> Iterator[PulseSettings]:
        """One for each kind that has required adapters; they differ in nothing else.

        The settings of the others are read as well, so that what is wrong with them is told whatever the kinds.
        """
        for kind in kinds:
            loaded = self._accept(
                pulse_settings.load(
                    file=None,
                    environ=self._shared.environ(PulseSettings),
                    sets=self._shared.sets(PulseSettings),
                    overrides=self._overrides(resource_type=kind.plural),
                    defaults={**DEFAULTS, **(DEMO_DEFAULTS if self._wishes.is_demo else {})},
                )
            )
            if loaded is not None and kind.required_adapters:
                yield loaded

    def adapters(self, kinds: Kinds) -> list[PlannedAdapter]:
        """The samples that are required, and the user's own, which stand in for samples of the same name."""
        planned = {name: each for name, wanted in _samples(kinds).items() if (each := self._sample(name, wanted))}
        files: dict[str, Path] = {}
        for file in self._wishes.adapter_files:
            found = self._own(file)
            if found is None:
                continue
            name = found.adapter.name
            if name in files:
                self.problems.append(f"--adapter {file}: {files[name]} has an adapter called {name} already")
            files[name] = file
            planned[name] = found
        return list(planned.values())

    def _sample(self, name: str, kinds: Sequence[str]) -> PlannedAdapter | None:
        loaded = self._accept(self._load_adapter(None, task=f"{samples.__name__}:{name}"))
        if loaded is None:
            return None
        found = loading.load_adapter(loaded.task)
        if set(found.kinds) != set(kinds):
            found = samples.declare(name, kinds=kinds)
        return PlannedAdapter(found, loaded)

    def _own(self, file: Path) -> PlannedAdapter | None:
        loaded = self._load_adapter(file)
        settings = self._accept(loaded)
        if settings is None:
            return None
        for other in self._wishes.adapter_files:
            if other.parent.resolve() != file.parent.resolve():
                loading.forget_modules(other.parent)
        try:
            return PlannedAdapter(loading.load_adapter(settings.task, folder=file.parent), settings, file)
        except loading.InvalidAdapter as error:
            self.problems.append(str(loading.task_problem(error, file=file, loaded=loaded)))
            return None

    def _load_adapter(self, file: Path | None, **more: str) -> Loaded[AdapterSettings]:
        return loader.load(
            AdapterSettings,
            file=file,
            environ=self._shared.environ(AdapterSettings),
            sets=self._shared.sets(AdapterSettings),
            overrides=self._overrides(**more),
        )

    def warn_of_absent(self, kinds: Kinds, adapters: Iterable[PlannedAdapter]) -> None:
        """Says of whom a kind requires a report that nobody here will make."""
        present = {each.adapter.name: each.adapter.kinds for each in adapters}
        for kind in kinds:
            absent = [name for name in kind.required_adapters if kind.kind not in present.get(name, ())]
            # Nobody outside this process gets events from a broker inside it.
            beside = ", or run it beside" if self._wishes.broker_url else ""
            if absent:
                self.warnings.append(
                    f"{kind.plural} require {', '.join(absent)}, which nothing here runs: no {kind.kind} becomes"
                    f" ready; name a configuration with --adapter{beside}"
                )

    def _overrides(self, **more: str) -> dict[str, str]:
        return {"hyperfleet_api.endpoint": UNKNOWN_YET, **self._wishes.logging, **more}

    def _accept(self, loaded: Loaded[T]) -> T | None:
        self.problems += map(str, loaded.problems)
        self.warnings += loaded.warnings
        self.secrets += [secret.reveal() for secret in loaded.secrets]
        return loaded.settings


def _samples(kinds: Kinds) -> dict[str, list[str]]:
    """The samples that some kind requires, with those they wait for, and the kinds each is to look after."""
    wanted: dict[str, list[str]] = {}
    for kind in kinds:
        names = [name for name in kind.required_adapters if name in samples.DEPENDENCIES]
        for name in names:
            names += [other for other in samples.DEPENDENCIES[name] if other not in names]
        for name in samples.DEPENDENCIES:
            if name in names:
                wanted.setdefault(name, []).append(kind.kind)
    return wanted

"""The wiring of one `sentinel up`: all its parts, under one lifecycle.

The database, the listeners and the broker are shared and opened first. An unusable database ends the command; so
does a broker with an exchange or topic of the wrong kind. A broker that is unreachable or rejects the credentials
is retried, and a part that fails is restarted; both show in `/readyz` until they work. At shutdown the parts stop
while the API still serves, so that adapters can report the work in progress.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random, SystemRandom
from typing import TypeVar

import msgspec

from sentinel.adapter import observer as adapter_observer
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up import welcome
from sentinel.cli.up.activity import AdapterActivityObserver, PulseActivityObserver
from sentinel.cli.up.dashboard_state import DashboardObserver
from sentinel.cli.up.data_dir import DataDir, TokenFile, UnusableDataDir, UpTokens
from sentinel.cli.up.demo import Demo
from sentinel.cli.up.dns_service import DnsReroutingClient, DnsService
from sentinel.cli.up.instances import configurations, ports
from sentinel.cli.up.instances.application import application_part
from sentinel.cli.up.instances.first_configuration import FirstConfiguration
from sentinel.cli.up.instances.folders import InstanceFolder, folders
from sentinel.cli.up.instances.load import LoadGenerator
from sentinel.cli.up.instances.processes import InstanceProcesses
from sentinel.cli.up.instances.rollout_demo import RolloutDemo
from sentinel.cli.up.plan import PlannedAdapter, UpPlan
from sentinel.cli.up.view import View, ViewOptions
from sentinel.cli.wiring import api as wiring
from sentinel.cli.wiring.accounts import build_accounts
from sentinel.cli.wiring.adapter import build_adapter, build_adapter_api, max_in_flight
from sentinel.cli.wiring.broker import build_publisher, build_subscriber
from sentinel.cli.wiring.hub import build_sql_hub
from sentinel.cli.wiring.pulse import build_pulse, build_pulse_metrics, build_watched_fleet
from sentinel.cli.wiring.serve import Assembly, ServiceContext
from sentinel.cli.wiring.server import build_database, build_server, configured_identities
from sentinel.core.hub.states import State
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.publisher import Publisher
from sentinel.ports.subscription import Subscriber
from sentinel.pulse import report as pulse_report
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Part, PartFactory, SharedResource, shared_resource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address, ListenError
from sentinel.runtime.log import get_logger
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.version import __version__
from sentinel.web.audit import Auditor
from sentinel.web.openapi import Info

A = TypeVar("A", bound=ApiSettings)

_RESTART_BACKOFF = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=10))
_DRAIN_TIMEOUT = timedelta(seconds=3)
"""Short, because the user waits; the next start repeats work that was not reported."""
_NO_PROXY: Mapping[str, str] = {}
"""An environment without proxies: parts call the listener of this process."""


class UpSession:
    """All parts of one run."""

    def __init__(
        self,
        *,
        plan: UpPlan,
        data_dir: DataDir,
        tokens: UpTokens,
        context: ServiceContext,
        view_options: ViewOptions,
        random: Random | None,
    ) -> None:
        """Run the demo only if `random` is given.

        Raises `Misconfigured` if a driver that the plan needs is not installed.
        """
        self._log = context.log
        self._plan = plan
        self._tokens = tokens
        self._redactor = context.redactor
        self._tracer = context.tracer
        self._clock = context.clock
        self._random = random
        self._stopping = Stopping()
        self.view = View(
            options=view_options,
            plan=plan,
            data_dir=data_dir,
            admin_token=tokens.admin,
            agent_token=tokens.agent,
            health=context.health,
            clock=context.clock,
            log=context.log,
            stopping=self._stopping,
            redact=context.redactor.redact,
        )
        self._instances = _prepare_instances(plan, data_dir)
        self._dns = DnsService(log=get_logger("dns"))
        self._memory = MemoryBroker()
        self._publishers = {each.resource_type: self._build_publisher(each) for each in plan.pulses}
        self._pacers = {each.resource_type: Pacer() for each in plan.pulses}
        """Kept when a pulse is restarted, so that it does not publish the same events again."""
        pulses = build_pulse_metrics(context.metrics)
        self._series = {
            each.resource_type: pulses.claim(shard=each.definition.shard, resource_type=each.resource_type)
            for each in plan.pulses
        }
        database = build_database(plan.server)
        auditor = Auditor()
        accounts = build_accounts(database, auditor=auditor, clock=context.clock)
        credentials = configured_identities(plan.server, log=get_logger("api"))
        self._hub = build_sql_hub(
            plan.hub,
            database=database,
            identities=[*credentials, accounts.identities],
            ignores_unknown_tokens=False,
            address=plan.agents_address,
            auditor=auditor,
            clock=context.clock,
        )
        self._server = build_server(
            [
                wiring.build_api(
                    plan.server,
                    kinds=plan.kinds,
                    database=database,
                    auditor=auditor,
                    clock=context.clock,
                    policies={each.resource_type: each.definition.policy for each in plan.pulses},
                    tracer=context.tracer,
                ),
                self._hub.component,
            ],
            database=database,
            settings=plan.server,
            retention=plan.server.retention,
            address=plan.address,
            info=_info(plan),
            metrics_prefix=wiring.METRICS_PREFIX,
            context=context,
            log=get_logger("api"),
            auditor=auditor,
            routes=[welcome.index_page()],
            accounts=accounts,
            credentials=credentials,
        )

    def assembly(self) -> Assembly:
        """Return everything to run, for `serve`."""
        ready_file = self.view.ready_file
        return Assembly(
            # Receivers start before senders, and the view after all that it shows.
            parts=[
                *self._server.factories,
                self._hub.listener.part,
                self._dns.part,
                *(self._adapter_factory(each) for each in self._plan.adapters),
                *(self._pulse_factory(each) for each in self._plan.pulses),
                self._view_part,
                *self._demo_factories(),
                *self._instance_factories(),
            ],
            shared=[
                SharedResource("view", self.view.on_loop),
                shared_resource("database", self._server.database),
                *([] if ready_file is None else [SharedResource("ready file", ready_file.cleaned)]),
                SharedResource("listener", self._listening),
                SharedResource("agents' listener", self._listening_for_agents),
                *(
                    shared_resource(f"broker for {plural}", publisher)
                    for plural, publisher in self._publishers.items()
                ),
            ],
            drain=_DRAIN_TIMEOUT,
            restart=_RESTART_BACKOFF,
            stopping=self._stopping,
            has_large_bodies=True,
        )

    def _build_publisher(self, settings: PulseSettings) -> Publisher:
        if self._plan.broker is None:
            return self._memory.publisher(mode=settings.event_mode)
        return build_publisher(self._plan.broker, mode=settings.event_mode)

    def _build_subscriber(self, planned: PlannedAdapter) -> Subscriber:
        name = planned.adapter.name
        if self._plan.broker is None:
            # There are no other replicas, so hold all messages, up to the broker's capacity: then one evaluation
            # answers all events of a resource.
            return self._memory.subscribe(name)
        return build_subscriber(
            self._plan.broker, subscription=name, max_in_flight=max_in_flight(planned.settings)
        )

    def _pulse_factory(self, settings: PulseSettings) -> PartFactory:
        plural = settings.resource_type

        def watch(own: pulse_report.PulseObserver) -> pulse_report.PulseObserver:
            activity = PulseActivityObserver(resource_type=plural, on_activity=self.view.show, clock=self._clock)
            dashboard = DashboardObserver(self.view.dashboard, plural)
            return pulse_report.PulseObservers(own, dashboard, activity, log=self._log)

        def build() -> Part:
            definition = settings.definition
            local = msgspec.structs.replace(definition, api=self._local_api(definition.api, self._tokens.pulse))
            fleet = build_watched_fleet(local, on_token=self._redactor.add, environ=_NO_PROXY, tracer=self._tracer)
            return build_pulse(
                local,
                fleet=fleet,
                publisher=self._publishers[plural],
                clock=self._clock,
                tracer=self._tracer,
                series=self._series[plural],
                pacer=self._pacers[plural],
                watch=watch,
            )

        return build

    def _adapter_factory(self, planned: PlannedAdapter) -> PartFactory:
        def watch(own: adapter_observer.AdapterObserver) -> adapter_observer.AdapterObserver:
            activity = AdapterActivityObserver(
                adapter=planned.adapter.name, on_activity=self.view.show, clock=self._clock
            )
            return adapter_observer.AdapterObservers(own, activity, log=self._log)

        def build() -> Part:
            local = msgspec.structs.replace(
                planned.settings,
                hyperfleet_api=self._local_api(
                    planned.settings.hyperfleet_api, self._tokens.adapters[planned.adapter.name]
                ),
            )
            subscriber = self._build_subscriber(planned)
            part = build_adapter(
                local,
                adapter=planned.adapter,
                subscriber=subscriber,
                api=build_adapter_api(
                    local.hyperfleet_api,
                    connections=max(100, local.concurrency),
                    on_token=self._redactor.add,
                    environ=_NO_PROXY,
                    tracer=self._tracer,
                ),
                clock=self._clock,
                redact=self._redactor.redact,
                drain=_DRAIN_TIMEOUT,
                route=lambda client: DnsReroutingClient(client, lambda: self._dns.url),
                watch=watch,
                tracer=self._tracer,
            )

            async def close() -> None:
                await subscriber.close()
                if part.close is not None:
                    await part.close()

            return msgspec.structs.replace(part, start=subscriber.open, close=close)

        return build

    def _local_api(self, api: A, token: TokenFile) -> A:
        return msgspec.structs.replace(
            api, endpoint=self._url, token_file=token.path, token=None, ca_file=None, gzip=False
        )

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        try:
            await self._server.listener.open()
        except ListenError as error:
            raise ListenError(f"{error}; choose another address with --listen") from error
        try:
            yield
        finally:
            await self._server.listener.close()

    @asynccontextmanager
    async def _listening_for_agents(self) -> AsyncIterator[None]:
        """Bind the address at once, so that an occupied one ends the command. Its part serves."""
        try:
            await self._hub.listener.bind()
        except ListenError as error:
            raise ListenError(f"{error}; choose another address with --listen-grpc") from error
        try:
            yield
        finally:
            await self._hub.listener.close()

    def _view_part(self) -> Part:
        return self.view.part(
            self._url,
            agents_address=_reachable(self._hub.listener.address),
            proxies=[f"{each.id} {each.url}" for each in self._instances],
            connect=lambda: self._connection(self._tokens.viewer),
        )

    def _connection(self, token: TokenFile) -> ServerConnection:
        return ServerConnection(server=self._url, token=token.token, environ=_NO_PROXY)

    def _instance_factories(self) -> list[PartFactory]:
        """Their processes are last: they take a while, and the rest need not wait."""
        token = self._tokens.instances
        if not self._instances or token is None:
            return []
        chosen = self._instances[0].ports
        agent_token = self._tokens.agent

        def state_of(instance_id: str) -> State | None:
            known = self._hub.registry.get(instance_id)
            return None if known is None else known.life.state

        processes = InstanceProcesses(
            self._instances,
            hub=lambda: _reachable(self._hub.listener.address),
            token_file=None if agent_token is None else agent_token.path,
            state_of=state_of,
            environ=os.environ,
            log_level=self._plan.server.log.level,
            log=get_logger("instances"),
            redact=self._redactor.redact,
        )
        first = FirstConfiguration(
            connect=lambda: self._connection(token),
            instances=[each.id for each in self._instances],
            content=configurations.forwarding(chosen),
            on_activity=self.view.show,
            clock=self._clock,
        )
        return [
            lambda: application_part(chosen, log=get_logger("application")),
            *processes.factories,
            first.part,
            *self._rollout_factories(token, chosen),
        ]

    def _rollout_factories(self, token: TokenFile, chosen: ports.Ports) -> list[PartFactory]:
        if self._random is None:
            return []
        load = LoadGenerator([each.port for each in self._instances], clock=self._clock)
        demo = RolloutDemo(
            connect=lambda: self._connection(token),
            instances=[each.id for each in self._instances],
            ports=chosen,
            on_activity=self.view.show,
            clock=self._clock,
        )
        return [load.part, demo.part]

    def _demo_factories(self) -> list[PartFactory]:
        random, token = self._random, self._tokens.demo
        if random is None or token is None:
            return []

        def build() -> Part:
            demo = Demo(
                connect=lambda: self._connection(token),
                kinds=self._plan.watched,
                dns=self._dns,
                on_activity=self.view.show,
                clock=self._clock,
                random=random,
            )
            return Part(name="demo", loops=(demo.run,))

        return [build]

    @property
    def _url(self) -> str:
        return f"http://{_reachable(self._server.listener.address)}"


def _reachable(address: Address) -> Address:
    """Return an address at which this machine reaches a listener that may be on all interfaces."""
    loopback = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
    return Address(loopback.get(address.host, address.host), address.port)


def _prepare_instances(plan: UpPlan, data_dir: DataDir) -> Sequence[InstanceFolder]:
    """Choose the ports of the instances. Raises `UnusableDataDir`."""
    if not plan.agents:
        return []
    root = data_dir.instances_folder
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        chosen = ports.load_or_choose(root / "ports.json", random=SystemRandom(), is_free=ports.is_free)
    except OSError as error:
        raise UnusableDataDir(f"{root}: {(error.strerror or str(error)).lower()}") from error
    except ports.NoFreePorts as error:
        raise UnusableDataDir(str(error)) from error
    return folders(root, count=plan.agents, ports=chosen)


def _info(plan: UpPlan) -> Info:
    return Info(
        title="Sentinel",
        version=__version__,
        description="The fleet API and the hub: resources and their conditions, proxy instances and their"
        " configurations.",
        is_insecure=plan.server.insecure,
    )

"""One `sentinel up`: what the plan names, wired together under one lifecycle.

The database, the listener and the broker are shared by everything else and opened first. A database that will not
do ends the command, and so does a broker whose exchange or topic is another than expected. A broker that is away,
or refuses the credentials, is tried again, and a part that fails is built anew; either shows in `/readyz`
until it works. At the end the parts are asked to stop while the API still answers, so that adapters can report
what they have begun.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random

import msgspec

from sentinel.adapter import observer as adapter_observer
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up import welcome
from sentinel.cli.up.data_dir import DataDir, Kept
from sentinel.cli.up.demo import Demo
from sentinel.cli.up.dns_service import DnsService, Rerouted
from sentinel.cli.up.narration import AdapterNarrator, PulseNarrator
from sentinel.cli.up.plan import PlannedAdapter, UpPlan
from sentinel.cli.up.tokens import UpTokens
from sentinel.cli.up.view import Showing, View
from sentinel.cli.wiring import api as wiring
from sentinel.cli.wiring.adapter import build_adapter, build_adapter_api, max_in_flight
from sentinel.cli.wiring.broker import build_publisher, build_subscriber
from sentinel.cli.wiring.pulse import build_fleet, build_pulse, build_pulse_metrics
from sentinel.cli.wiring.serve import Assembly, ServiceContext
from sentinel.cli.wiring.server import build_database, build_server
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.publisher import Publisher
from sentinel.ports.subscription import Subscriber
from sentinel.pulse import report as pulse_report
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Part, PartFactory, Shared, shared_resource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address, ListenError
from sentinel.runtime.log import get_logger
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.tracing import NO_TRACING
from sentinel.web.audit import Auditor

_RESTART = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=10))
_DRAIN = timedelta(seconds=3)
"""Short: somebody waits, and what is not reported by then is looked at again at the next start."""
_NO_PROXY: Mapping[str, str] = {}
"""An environment without proxies: parts call this process's own listener, whatever its address."""


class UpSession:
    """What runs, and for how long."""

    def __init__(
        self,
        *,
        plan: UpPlan,
        home: DataDir,
        keys: UpTokens,
        context: ServiceContext,
        showing: Showing,
        random: Random | None,
    ) -> None:
        """`random` turns the demo on, and makes its random choices.

        Raises `Misconfigured` where a driver that the plan needs is not installed.
        """
        self._log = context.log
        self._plan = plan
        self._keys = keys
        self._redactor = context.redactor
        self._clock = context.clock
        self._random = random
        self._stopping = Stopping()
        self._view = View(
            showing=showing,
            plan=plan,
            home=home,
            admin=keys.admin,
            health=context.health,
            clock=context.clock,
            log=context.log,
            stopping=self._stopping,
        )
        self._dns = DnsService(log=get_logger("dns"))
        self._memory = MemoryBroker()
        self._publishers = {each.resource_type: self._publisher(each) for each in plan.pulses}
        self._pacers = {each.resource_type: Pacer() for each in plan.pulses}
        """Kept from one build of a pulse to the next, so that a restart publishes nothing again."""
        pulses = build_pulse_metrics(context.metrics)
        self._series = {
            each.resource_type: pulses.claim(shard=each.shard, resource_type=each.resource_type)
            for each in plan.pulses
        }
        database = build_database(plan.server)
        self._server = build_server(
            [
                wiring.build_api(
                    plan.server,
                    kinds=plan.kinds,
                    database=database,
                    auditor=Auditor(),
                    clock=context.clock,
                    policies={each.resource_type: each.policy for each in plan.pulses},
                )
            ],
            database=database,
            settings=plan.server,
            retention=plan.server.retention,
            address=plan.address,
            info=wiring.info(plan.server),
            metrics_prefix=wiring.METRICS_PREFIX,
            context=context,
            log=get_logger("api"),
            routes=[welcome.page()],
        )

    def assembly(self) -> Assembly:
        """Everything that runs, for `serve`."""
        ready_file = self._view.ready_file
        return Assembly(
            # Receivers come before senders, and the view comes last, when there is something to see.
            parts=[
                *self._server.factories,
                self._dns.part,
                *(self._adapter(each) for each in self._plan.adapters),
                *(self._pulse(each) for each in self._plan.pulses),
                self._view_part,
                *self._demonstration(),
            ],
            shared=[
                Shared("view", self._view.on_loop),
                shared_resource("database", self._server.database),
                *([] if ready_file is None else [Shared("ready file", ready_file.kept)]),
                Shared("listener", self._listening),
                *(
                    shared_resource(f"broker for {plural}", publisher)
                    for plural, publisher in self._publishers.items()
                ),
            ],
            drain=_DRAIN,
            restart=_RESTART,
            stopping=self._stopping,
            has_large_responses=True,
        )

    def leave_screen(self) -> bool:
        """Waits until the terminal is as it was; False where it takes nothing, as after Ctrl-S."""
        return self._view.leave_screen()

    def say_goodbye(self) -> None:
        """The last word."""
        self._view.say_goodbye()

    def _publisher(self, settings: PulseSettings) -> Publisher:
        if self._plan.broker is None:
            return self._memory.publisher(mode=settings.event_mode)
        return build_publisher(self._plan.broker, mode=settings.event_mode)

    def _subscriber(self, planned: PlannedAdapter) -> Subscriber:
        name = planned.adapter.name
        if self._plan.broker is None:
            # There is no other replica to leave messages for, so it may hold all that there are, and answer all
            # of a resource's with one look. They are no more than the broker's capacity, which makes pulses wait.
            return self._memory.subscribe(name)
        most = max_in_flight(planned.settings)
        return build_subscriber(self._plan.broker, subscription=name, max_in_flight=most)

    def _pulse(self, settings: PulseSettings) -> PartFactory:
        plural = settings.resource_type

        def watch(own: pulse_report.PulseObserver) -> pulse_report.PulseObserver:
            narrator = PulseNarrator(resource_type=plural, tell=self._view.tell, clock=self._clock)
            return pulse_report.PulseObservers(own, self._view.board.observer(plural), narrator, log=self._log)

        def build() -> Part:
            here = msgspec.structs.replace(
                settings, hyperfleet_api=self._reached_here(settings.hyperfleet_api, self._keys.pulse)
            )
            return build_pulse(
                here,
                fleet=build_fleet(here, on_token=self._redactor.add, environ=_NO_PROXY),
                publisher=self._publishers[plural],
                clock=self._clock,
                tracer=NO_TRACING,
                series=self._series[plural],
                pacer=self._pacers[plural],
                watch=watch,
            )

        return build

    def _adapter(self, planned: PlannedAdapter) -> PartFactory:
        def watch(own: adapter_observer.AdapterObserver) -> adapter_observer.AdapterObserver:
            narrator = AdapterNarrator(adapter=planned.adapter.name, tell=self._view.tell, clock=self._clock)
            return adapter_observer.AdapterObservers(own, narrator, log=self._log)

        def build() -> Part:
            here = msgspec.structs.replace(
                planned.settings,
                hyperfleet_api=self._reached_here(
                    planned.settings.hyperfleet_api, self._keys.adapters[planned.adapter.name]
                ),
            )
            subscriber = self._subscriber(planned)
            part = build_adapter(
                here,
                adapter=planned.adapter,
                subscriber=subscriber,
                api=build_adapter_api(
                    here.hyperfleet_api,
                    connections=max(100, here.concurrency),
                    on_token=self._redactor.add,
                    environ=_NO_PROXY,
                ),
                clock=self._clock,
                redact=self._redactor.redact,
                drain=_DRAIN,
                route=lambda client: Rerouted(client, lambda: self._dns.url),
                watch=watch,
            )

            async def close() -> None:
                await subscriber.close()
                if part.close is not None:
                    await part.close()

            return msgspec.structs.replace(part, start=subscriber.open, close=close)

        return build

    def _reached_here(self, api: ApiSettings, kept: Kept) -> ApiSettings:
        return msgspec.structs.replace(
            api, endpoint=self._url, token_file=kept.file, token=None, ca_file=None, gzip=False
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

    def _view_part(self) -> Part:
        return self._view.part(self._url, connect=lambda: self._connection(self._keys.pulse))

    def _connection(self, kept: Kept) -> ServerConnection:
        return ServerConnection(server=self._url, token=kept.token, environ=_NO_PROXY)

    def _demonstration(self) -> list[PartFactory]:
        if self._random is None or self._keys.demo is None:
            return []
        return [partial(self._demo, self._random, self._keys.demo)]

    def _demo(self, random: Random, kept: Kept) -> Part:
        demo = Demo(
            connect=lambda: self._connection(kept),
            kinds=self._plan.watched,
            dns=self._dns,
            tell=self._view.tell,
            clock=self._clock,
            random=random,
        )
        return Part(name="demo", loops=(demo.run,))

    @property
    def _url(self) -> str:
        address = self._server.listener.address
        anywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
        return f"http://{Address(anywhere.get(address.host, address.host), address.port)}"

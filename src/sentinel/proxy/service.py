"""The proxy as a service: it starts, handles requests, reloads its configuration and drains.

Everything that a request depends on is one value, `_Generation`. A reload makes a new one and replaces it at once;
a request that has begun ends with the one it began with.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import hdrs, web

from sentinel.core.proxy.matching import RequestFacts, RouteTable
from sentinel.core.proxy.model import Configuration, HeaderPolicy, Listener, Route, blocks_that_need_restart
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured
from sentinel.proxy import static_files
from sentinel.proxy.builtin_handlers import BuiltinHandlers
from sentinel.proxy.configuration_file import LoadedConfiguration
from sentinel.proxy.forwarding import Forwarder
from sentinel.proxy.listener import ProxyListener
from sentinel.proxy.metrics_listener import MetricsListener
from sentinel.proxy.pid_file import PidFile
from sentinel.proxy.responses import ErrorResponse, ResponseHeaders, abort, problem
from sentinel.proxy.telemetry import NO_ROUTE, ProxyTelemetry
from sentinel.proxy.tls import can_be_served, uses_tls
from sentinel.proxy.upstreams import UpstreamPool, Upstreams
from sentinel.runtime.blocking import run_in_thread
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.probes.metrics import Metrics

_CLIENT_CLOSED_REQUEST: Final = 499
"""The status in metrics of a request whose client went away, as nginx counts it."""
_MAX_PROBLEMS: Final = 20


class _Generation(msgspec.Struct, frozen=True):
    """A configuration in use."""

    configuration: Configuration
    routes: RouteTable
    pools: Mapping[str, UpstreamPool]


class Proxy:
    """Serves a configuration."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        remarks: Collection[str] = (),
        load: Callable[[], LoadedConfiguration],
        pid_file: Path | None = None,
        metrics: Metrics,
        clock: Clock,
        log: Log,
    ) -> None:
        """`remarks` are the warnings about the file that were logged. `load` reads it again, for a reload.
        `pid_file` replaces that of the configuration."""
        self._load = load
        self._log = log
        self._started_with = configuration
        self._remarks = remarks
        self._telemetry = ProxyTelemetry(open_connections=self._open_connections)
        self._forwarder = Forwarder(telemetry=self._telemetry, log=log)
        self._upstreams = Upstreams(clock=clock, log=log)
        self._generation = _Generation(configuration, RouteTable(()), {})
        self._builtin_handlers = BuiltinHandlers(
            clock=clock,
            configuration=lambda: self._generation.configuration,
            upstreams=lambda: [pool.status for pool in self.pools.values()],
            render_metrics=metrics.render,
        )
        self.listeners: Sequence[ProxyListener] = ()
        self._metrics_listener = MetricsListener(metrics=metrics, log=log)
        if pid_file is None and configuration.system.pid_file is not None:
            pid_file = Path(configuration.system.pid_file)
        self._pid_file = None if pid_file is None else PidFile(pid_file)

    @property
    def pools(self) -> Mapping[str, UpstreamPool]:
        """The upstreams of the configuration in use."""
        return self._generation.pools

    def part(self) -> Part:
        """Return the proxy for the lifecycle."""
        return Part(
            name="proxy",
            loops=[self._upstreams.run, self._drain_at_the_end],
            registry=self._telemetry.registry,
            start=self.start,
            close=self.close,
        )

    async def start(self) -> None:
        """Listen and serve. The pid file is written last: its readers may send a signal at once."""
        configuration = self._started_with
        self._use(configuration, self._upstreams.prepare(configuration.upstreams))
        await self._metrics_listener.move(configuration.metrics)
        self.listeners = [
            ProxyListener(listener, handle=self.handle, log=self._log)
            for listener in configuration.listeners
            if can_be_served(listener)
        ]
        for skipped in configuration.listeners:
            if not can_be_served(skipped):
                self._log.warning("proxy.listener_skipped", listener=skipped.id, reason="it needs ACME")
        for listener in self.listeners:
            await listener.open()
        if self._pid_file is not None:
            self._pid_file.write()

    async def reload(self) -> None:
        """Read the file and use it from now on. Raises `Misconfigured` or `ListenError`, and then changes nothing.

        Listeners and the block `system` stay as they are until a restart.
        """
        loaded = await run_in_thread(self._load, name="reload")
        wanted = loaded.configuration
        if wanted is None:
            raise Misconfigured(_summary(loaded.problems))
        pools = self._upstreams.prepare(wanted.upstreams)
        unchanged = [listener for listener in self.listeners if listener.listener in wanted.listeners]
        contexts = [listener.read_tls_files() for listener in unchanged]
        await self._metrics_listener.move(wanted.metrics)
        self._use(wanted, pools)
        for listener, context in zip(unchanged, contexts, strict=True):
            listener.use(context)
        self._remark(loaded)
        if blocks := blocks_that_need_restart(self._started_with, wanted):
            self._log.warning("reload.restart_required", blocks=blocks)

    async def close(self) -> None:
        for listener in self.listeners:
            await listener.close()
        await self._metrics_listener.move(None)
        await self._upstreams.close()
        if self._pid_file is not None:
            self._pid_file.remove()

    async def handle(self, listener: Listener, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to a request. The response has been sent."""
        loop, telemetry = asyncio.get_running_loop(), self._telemetry
        started, generation = loop.time(), self._generation
        route = generation.routes.find(_facts(request), default=listener.default_route)
        status = _CLIENT_CLOSED_REQUEST
        telemetry.active += 1
        try:
            response = await self._respond(generation, listener, route, request)
            if not response.prepared:
                await _send(response, request)
            status = response.status
            return response
        finally:
            telemetry.active -= 1
            telemetry.record(
                route=NO_ROUTE if route is None else route.id,
                method=request.method,
                status=status,
                duration=timedelta(seconds=loop.time() - started),
            )

    async def _respond(
        self, generation: _Generation, listener: Listener, route: Route | None, request: web.BaseRequest
    ) -> ResponseHeaders:
        """Return the response of a route, sent or to be sent."""
        if request.method == hdrs.METH_CONNECT:
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "this is not a forward proxy")
        if not request.rel_url.raw_path.startswith("/"):  # OPTIONS *
            return problem(HTTPStatus.BAD_REQUEST, "expected a path")
        if route is None:
            return problem(HTTPStatus.NOT_FOUND, "no route matches")
        response = await self._respond_by(route, generation, listener, request)
        if isinstance(response, ErrorResponse):
            # Nothing is added to an error: a policy may allow caches to keep responses of the route for an hour.
            response.policy = HeaderPolicy(remove=route.response_headers.remove)
        elif not response.prepared:
            response.policy = route.response_headers
        return response

    async def _respond_by(
        self, route: Route, generation: _Generation, listener: Listener, request: web.BaseRequest
    ) -> ResponseHeaders:
        if route.builtin_handler is not None:
            return self._builtin_handlers.respond(route.builtin_handler, request, _request_id(request))
        if route.static_files is not None:
            path = request.rel_url.raw_path
            return await static_files.serve(route.static_files, method=request.method, path=path)
        pool = generation.pools.get(route.upstream or "")
        if pool is None:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, f'route "{route.id}" has no upstream')
        limits = (listener.request_timeout, pool.upstream.timeouts.request)
        limit = min((each.total_seconds() for each in limits if each), default=None)
        try:
            async with asyncio.timeout(limit):
                return await self._forwarder.forward(
                    request,
                    route=route,
                    pool=pool,
                    scheme="https" if uses_tls(listener) else "http",
                    request_id=_request_id(request),
                )
        except TimeoutError:
            self._telemetry.record_failure(upstream=pool.upstream.id, route=route.id, reason="timeout")
            if request.writer.output_size:
                abort(request)  # part of a response has been sent
            return problem(
                HTTPStatus.GATEWAY_TIMEOUT, f'upstream "{pool.upstream.id}" took longer than {limit:g} s'
            )

    async def _drain_at_the_end(self, stopping: Stopping) -> None:
        """When asked to stop: accept nothing more and wait for the requests in progress, as long as configured."""
        await stopping.wait()
        self._log.info("proxy.draining", requests=self._telemetry.active)
        timeout = self._started_with.system.graceful_shutdown_timeout
        try:
            async with asyncio.timeout(timeout.total_seconds()), asyncio.TaskGroup() as group:
                for listener in self.listeners:
                    group.create_task(listener.drain())
        except TimeoutError:
            self._log.warning("proxy.requests_cut_off", requests=self._telemetry.active, after=timeout)

    def _remark(self, loaded: LoadedConfiguration) -> None:
        """Log the warnings about a file that those before it did not have."""
        for warning in loaded.warnings:
            if warning not in self._remarks:
                self._log.warning("settings.warning", problem=warning)
        if new := [path for path in loaded.unimplemented if path not in self._remarks]:
            self._log.warning("proxy.not_implemented", ignored=new)
        self._remarks = loaded.remarks

    def _use(self, configuration: Configuration, pools: Mapping[str, UpstreamPool]) -> None:
        self._upstreams.use(pools)
        self._generation = _Generation(configuration, RouteTable(configuration.routes), pools)

    def _open_connections(self) -> float:
        return sum(listener.open_connections for listener in self.listeners)


def _summary(problems: Sequence[str]) -> str:
    """Return the problems on one line of the log, a bounded number of them."""
    more = (f"and {len(problems) - _MAX_PROBLEMS} more",) if len(problems) > _MAX_PROBLEMS else ()
    return "; ".join((*problems[:_MAX_PROBLEMS], *more))


def _facts(request: web.BaseRequest) -> RequestFacts:
    url = request.rel_url
    headers = request.headers
    return RequestFacts(request.method, url.raw_path, headers.get(hdrs.HOST, ""), headers, url.raw_query_string)


async def _send(response: web.StreamResponse, request: web.BaseRequest) -> None:
    """Send a response here and not in aiohttp, so that the request is in progress until its end."""
    await response.prepare(request)
    await response.write_eof()


def _request_id(request: web.BaseRequest) -> str:
    return request.headers.get("X-Request-Id") or os.urandom(8).hex()

"""The upstreams in use: their targets, connections, health checks, and their replacement on a reload.

An upstream that a reload does not change keeps its connections and what is known about its targets. If one of its
certificates was renewed it gets new connections. One that a reload changes or removes is closed when its last
request has ended.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import aiohttp
import msgspec
from yarl import URL

from sentinel.core.proxy import balancing, target_health
from sentinel.core.proxy.model import HealthCheck, HealthCheckType, LoadBalancing, Target, Upstream
from sentinel.core.proxy.target_health import TargetHealth
from sentinel.ports.clock import Clock
from sentinel.proxy import tls
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

_NO_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class TargetStatus(msgspec.Struct, frozen=True):
    """A target, for people."""

    address: str
    weight: int
    status: str
    active_requests: int


class UpstreamStatus(msgspec.Struct, frozen=True):
    """An upstream, for people."""

    id: str
    load_balancing: LoadBalancing
    targets: tuple[TargetStatus, ...]


class PooledTarget:
    """A target with what is known about it."""

    def __init__(self, target: Target, *, scheme: str) -> None:
        self.target = target
        self.scheme = scheme
        self.health = TargetHealth()
        self.is_checked = False
        self.active = 0
        """How many requests it is working on."""

    def url(self, path: str, query: str = "") -> URL:
        """Return the URL of a path that is encoded already."""
        address = self.target.address
        return URL.build(
            scheme=self.scheme,
            host=address.host,
            port=address.port,
            path=path,
            query_string=query,
            encoded=True,
        )

    @property
    def status(self) -> TargetStatus:
        word = "unknown" if not self.is_checked else "healthy" if self.health.is_healthy else "unhealthy"
        return TargetStatus(str(self.target.address), self.target.weight, word, self.active)


class UpstreamPool:
    """An upstream in use."""

    def __init__(self, upstream: Upstream, *, log: Log) -> None:
        """Raises `Misconfigured` if a file of its TLS settings cannot be read."""
        self.upstream = upstream
        self._fingerprint = tls.fingerprint(upstream)
        self._tls: ssl.SSLContext | None = tls.upstream_context(upstream)
        scheme = "http" if self._tls is None else "https"
        self.targets = tuple(PooledTarget(target, scheme=scheme) for target in upstream.targets)
        self._weights = tuple(target.weight for target in upstream.targets)
        self._turns = balancing.first_turns(len(self.targets))
        self.timeout = aiohttp.ClientTimeout(
            total=None,  # the whole request, with the response on its way to the client, is limited elsewhere
            sock_connect=upstream.timeouts.connect.total_seconds(),
            sock_read=upstream.timeouts.read.total_seconds(),
        )
        self._session: aiohttp.ClientSession | None = None
        self._check_session: aiohttp.ClientSession | None = None
        self._requests = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = asyncio.Event()
        self._log = log.bind(upstream=upstream.id)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The client for this upstream. It follows no redirect, keeps no cookie and changes no header."""
        if self._session is None:
            upstream = self.upstream
            self._session = _session(
                aiohttp.TCPConnector(
                    limit=upstream.max_connections,
                    keepalive_timeout=upstream.idle_timeout.total_seconds(),
                    ssl=True if self._tls is None else self._tls,
                )
            )
        return self._session

    @property
    def server_name(self) -> str | None:
        """The name to verify, if it is not the target's host."""
        return None if self.upstream.tls is None else self.upstream.tls.sni

    @property
    def status(self) -> UpstreamStatus:
        targets = tuple(target.status for target in self.targets)
        return UpstreamStatus(self.upstream.id, self.upstream.load_balancing, targets)

    def is_for(self, upstream: Upstream) -> bool:
        """Whether this pool can serve an upstream: it is the same, and its files have not been renewed."""
        return self.upstream == upstream and self._fingerprint == tls.fingerprint(upstream)

    def inherit(self, earlier: UpstreamPool) -> None:
        """Take over what is known about the targets of the same upstream."""
        for target, known in zip(self.targets, earlier.targets, strict=True):
            target.health, target.is_checked = known.health, known.is_checked

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the pool open meanwhile."""
        self._requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._idle.set()

    def choose(self, tried: Collection[PooledTarget] = ()) -> PooledTarget | None:
        """Return the healthy target whose turn it is, if possible an untried one. None if none is healthy."""
        targets = self.targets
        healthy = [index for index, target in enumerate(targets) if target.health.is_healthy]
        if not healthy:
            return None
        untried = [index for index in healthy if targets[index] not in tried] if tried else healthy
        self._turns, chosen = balancing.choose(
            self._turns,
            self.upstream.load_balancing,
            weights=self._weights,
            active=[target.active for target in targets],
            available=untried or healthy,
        )
        return targets[chosen]

    async def check_targets(self, check: HealthCheck) -> None:
        """Check every target once."""
        async with asyncio.TaskGroup() as group:
            for target in self.targets:
                group.create_task(self._check(target, check))

    async def close_when_idle(self) -> None:
        """Close the pool after its last request."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._session, self._check_session):
            if session is not None:
                await session.close()
        self._session = self._check_session = None
        self._closed.set()

    async def wait_until_closed(self) -> None:
        await self._closed.wait()

    async def _check(self, target: PooledTarget, check: HealthCheck) -> None:
        reason = ""
        try:
            async with asyncio.timeout(check.timeout.total_seconds()):
                reason = await self._attempt(target, check)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # OSError includes TimeoutError. ValueError: a path or host that cannot be sent.
            reason = str(error) or type(error).__name__
        before = target.health.is_healthy
        target.health = target_health.observe(target.health, succeeded=not reason, check=check)
        target.is_checked = True
        if target.health.is_healthy is not before:
            event = "target.recovered" if target.health.is_healthy else "target.unhealthy"
            self._log.warning(event, target=str(target.target.address), reason=reason or None)

    async def _attempt(self, target: PooledTarget, check: HealthCheck) -> str:
        """Return why the target failed, or nothing."""
        address = target.target.address
        if check.type is HealthCheckType.TCP:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return ""
        if self._check_session is None:
            # Its own connections: a full pool says nothing about the targets.
            self._check_session = _session(
                aiohttp.TCPConnector(force_close=True, ssl=True if self._tls is None else self._tls)
            )
        async with self._check_session.get(
            target.url(check.path),
            headers={} if check.host is None else {"Host": check.host},
            allow_redirects=False,
            server_hostname=self.server_name,
        ) as response:
            if response.status == check.expected_status:
                return ""
            return f"expected status {check.expected_status}, got {response.status}"


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_NO_AUTOMATIC_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None),
    )


class Upstreams:
    """All upstreams in use, and retired ones whose requests have not ended."""

    def __init__(self, *, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._pools: dict[str, UpstreamPool] = {}
        self._retired: set[UpstreamPool] = set()
        self._changed = asyncio.Event()

    def prepare(self, wanted: Iterable[Upstream]) -> Mapping[str, UpstreamPool]:
        """Return the pools of these upstreams, those in use where nothing has changed.

        Nothing changes before `use`. Raises `Misconfigured`.
        """
        pools: dict[str, UpstreamPool] = {}
        for upstream in wanted:
            used = self._pools.get(upstream.id)
            if used is not None and used.is_for(upstream):
                pools[upstream.id] = used
                continue
            pool = pools[upstream.id] = UpstreamPool(upstream, log=self._log)
            if used is not None and used.upstream == upstream:
                pool.inherit(used)
        return pools

    def use(self, pools: Mapping[str, UpstreamPool]) -> None:
        """Use these pools from now on, and close the others when their requests have ended."""
        kept = set(pools.values())
        self._retired.update(pool for pool in self._pools.values() if pool not in kept)
        self._pools = dict(pools)
        self._changed.set()

    async def run(self, stopping: Stopping) -> None:
        """Check the targets and close retired pools until it is asked to stop."""
        async with asyncio.TaskGroup() as group:
            checks: dict[UpstreamPool, asyncio.Task[None]] = {}
            while True:
                for pool in [pool for pool in checks if pool not in self._pools.values()]:
                    checks.pop(pool).cancel()
                for pool in self._pools.values():
                    if pool.upstream.health_check is not None and pool not in checks:
                        checks[pool] = group.create_task(self._check_regularly(pool, pool.upstream.health_check))
                for pool in self._retired:
                    group.create_task(pool.close_when_idle())
                self._retired = set()
                if await stopping.interrupts(self._changed.wait()):
                    break
                self._changed.clear()
            for task in checks.values():
                task.cancel()

    async def close(self) -> None:
        for pool in (*self._pools.values(), *self._retired):
            await pool.close()

    async def _check_regularly(self, pool: UpstreamPool, check: HealthCheck) -> None:
        while True:
            await pool.check_targets(check)
            await self._clock.sleep(check.interval)

"""The settings of the hub. The docstring of each field is its entry in the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from sentinel.core.hub.instance import Timeouts
from sentinel.core.proxy.facts import Resolve
from sentinel.ports.hub_store import INTERNAL_TYPES, HubEventType
from sentinel.runtime.listening import Address, is_loopback
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import FieldType
from sentinel.runtime.settings.schema import EnvironmentSecret, StructList, TextList, section
from sentinel.runtime.settings.server import RetentionSettings, ServerSettings
from sentinel.runtime.settings.webhook_url import WEBHOOK_URL

SECRETS_KEY_VARIABLE: Final = "SENTINEL_SECRETS_KEY"
_MARGIN: Final = timedelta(hours=1)
"""A margin for clocks that differ, and for rows that are deleted later than they could be."""


class HubRetentionSettings(RetentionSettings, frozen=True, kw_only=True):
    """How long old rows are kept."""

    events: timedelta = timedelta(hours=1)
    """How long events are kept for streams to go on with."""

    dead_letters: timedelta = timedelta(days=7)
    """How long events are kept that a webhook did not take."""

    removed_instances: timedelta = timedelta(days=7)
    """How long removed instances can still be read by their ids. They are kept in any case until an hour after
    their session tokens have expired and their metrics are deleted."""


class WebhookSettings(msgspec.Struct, frozen=True):
    """A server that gets the hub's events."""

    url: Secret
    """The http or https URL that gets a POST for each event. Treated as a secret."""

    secret_file: Path
    """A file with the secret that signs the requests. A line break at its end does not count."""

    events: tuple[HubEventType, ...] = ()
    """The types of events to send; empty: all."""

    @property
    def name(self) -> str:
        """The host of the URL, and a hash by which two URLs of a host differ."""
        url = self.url.reveal()
        return f"{urlsplit(url).hostname}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


_WEBHOOKS: Final = StructList(
    item=section(
        WebhookSettings,
        url=WEBHOOK_URL,
        events=TextList(
            "a list of types of events, such as [deployment.state]",
            field_types.choice(HubEventType, without=INTERNAL_TYPES),
        ),
    ),
    expected="a list of {url, secret_file, events}",
)


class HubSettings(ServerSettings, frozen=True, kw_only=True):
    """How the hub is served, and how it treats instances."""

    listen: str = ":8080"
    """The address to listen on for HTTP. Port 0 is any free port."""

    listen_grpc: str = ":9090"
    """The address to listen on for agents. Port 0 is any free port."""

    tls_cert: Path | None = None
    """The certificate of the gRPC listener (PEM). It is read again when it changes."""

    tls_key: Path | None = None
    """The key of `tls_cert` (PEM)."""

    client_ca: Path | None = None
    """The CA of agents' certificates (PEM). With it, every agent needs a certificate and no registration token."""

    revoked_file: Path | None = None
    """Serial numbers of revoked certificates, one in hexadecimal a line. It is read again when it changes."""

    grpc_reflection: bool = False
    """Whether the gRPC listener describes its services to anyone who asks, for tools such as grpcurl."""

    secrets_key_file: Path | None = None
    """The key that encrypts what is secret in the database: 32 bytes in base64."""

    secrets_key: Annotated[
        Secret | None,
        EnvironmentSecret(
            SECRETS_KEY_VARIABLE,
            f"use secrets_key_file, or the environment variable {SECRETS_KEY_VARIABLE}",
            FieldType("32 bytes in base64", Secret, is_secret=True),
        ),
    ] = None
    """The content of `secrets_key_file`, for a host without files. Only from the environment variable
    `SENTINEL_SECRETS_KEY`. Rejected in files and flags."""

    heartbeat_interval: timedelta = timedelta(seconds=30)
    """How often agents send heartbeats."""

    offline_threshold: timedelta = timedelta(seconds=90)
    """How long an instance may be silent before it counts as offline."""

    deployment_timeout: timedelta = timedelta(minutes=5)
    """How long the deployment to one instance may take."""

    drain_timeout: timedelta = timedelta(seconds=30)
    """How long an instance may take to drain its connections."""

    remove_after: timedelta = timedelta(hours=24)
    """How long an instance may be offline before it is drained and removed."""

    ping_interval: timedelta = timedelta(seconds=30)
    """How often an idle event stream gets a ping."""

    session_ttl: timedelta = timedelta(hours=1)
    """How long a session token is valid. Heartbeats renew it."""

    expected_agents: Annotated[int | None, field_types.integer(0, 1_000_000)] = None
    """How many agents should be online, for alerts. Unset: not exported."""

    resolve: Resolve = Resolve.WARN
    """What an upstream address that does not resolve is: `off` not looked up, a `warn`ing, or an `error`."""

    metrics_retention: timedelta = timedelta(hours=24)
    """How long metrics of instances are kept."""

    retention: HubRetentionSettings = msgspec.field(default_factory=HubRetentionSettings)
    """How long old rows are kept."""

    @property
    def removed_retention(self) -> timedelta:
        """How long removed instances are kept.

        The id of a deleted instance begins with the first incarnation. Nothing of an earlier one may be left then:
        no valid token, and no metrics.
        """
        return max(self.retention.removed_instances, max(self.session_ttl, self.metrics_retention) + _MARGIN)

    webhooks: Annotated[tuple[WebhookSettings, ...], _WEBHOOKS] = ()
    """Servers that get the hub's events: a list of `{url, secret_file, events}`. `events` are types such as
    `deployment.state`; without it, all. The file has the secret that signs the requests."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that logs must not contain."""
        keys = [] if self.secrets_key is None else self.secrets_key.reveal().split()
        return (*super().secrets, *keys, *(each.url.reveal() for each in self.webhooks))

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(
            heartbeat_interval=self.heartbeat_interval,
            offline_threshold=self.offline_threshold,
            drain_timeout=self.drain_timeout,
            remove_after=self.remove_after,
        )


def warnings(settings: HubSettings, address: Address) -> Iterator[str]:
    """Yield what is risky about serving agents on this address."""
    if settings.tls_cert is None and not is_loopback(address.host):
        yield (
            f"listen_grpc: agents' tokens and configurations travel unencrypted on {address}; "
            "give tls_cert and tls_key"
        )


def problems(settings: HubSettings) -> Sequence[str]:
    """Return the problems with settings that do not fit together."""
    found: list[str] = []
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing = "tls_key" if settings.tls_key is None else "tls_cert"
        found.append(f"{missing}: expected a file, because the other one of tls_cert and tls_key is given")
    if settings.client_ca is not None and settings.tls_cert is None:
        found.append("tls_cert: expected a file, because client_ca is given")
    if settings.revoked_file is not None and settings.client_ca is None:
        found.append("client_ca: expected a file, because revoked_file is given")
    if settings.secrets_key_file is not None and settings.secrets_key is not None:
        found.append(f"secrets_key_file: expected no file, because {SECRETS_KEY_VARIABLE} is set")
    if settings.session_ttl < timedelta(seconds=1):
        found.append("session_ttl: expected at least 1s, because tokens expire at whole seconds")
    if settings.offline_threshold <= settings.heartbeat_interval:
        found.append(
            "offline_threshold: expected more than heartbeat_interval, or every instance would go offline between"
            " two heartbeats"
        )
    urls = [each.url.reveal() for each in settings.webhooks]
    found += [
        f"webhooks[{index}].url: expected each URL once, got that of webhooks[{urls.index(url)}]"
        for index, url in enumerate(urls)
        if urls.index(url) < index
    ]
    return found

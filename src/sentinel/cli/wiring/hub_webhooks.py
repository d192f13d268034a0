"""Builds the webhooks of the hub."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sentinel.hub import routes
from sentinel.hub.dead_letters import DeadLetters
from sentinel.hub.http import DeadLetterHandlers
from sentinel.hub.settings import HubSettings
from sentinel.hub.telemetry import HubTelemetry
from sentinel.hub.webhooks import Webhook
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import HubStore
from sentinel.ports.task_http import HttpClient
from sentinel.ports.webhook_store import WebhookStore
from sentinel.runtime.log import Log
from sentinel.runtime.retention import RetentionRule
from sentinel.web.audit import Auditor
from sentinel.web.routing import Route


class BuiltWebhooks(msgspec.Struct, frozen=True):
    """The webhooks of a hub, and what users do with dead letters."""

    hooks: Sequence[Webhook]
    routes: Sequence[Route]
    retention_rule: RetentionRule


def build_webhooks(
    settings: HubSettings,
    *,
    hub: str,
    events: HubStore,
    store: WebhookStore,
    http: HttpClient,
    auditor: Auditor,
    clock: Clock,
    telemetry: HubTelemetry,
    log: Log,
) -> BuiltWebhooks:
    """Build the webhooks. `hub` names this process. Raises `Misconfigured` if a secret cannot be read."""
    hooks = [
        Webhook(
            name=each.name,
            url=each.url,
            secret_file=each.secret_file,
            types=each.events,
            holder=hub,
            events=events,
            store=store,
            http=http,
            clock=clock,
            observer=telemetry,
            log=log,
        )
        for each in settings.webhooks
    ]
    dead_letters = DeadLetters(store=store, clock=clock, auditor=auditor)
    return BuiltWebhooks(
        hooks=hooks,
        routes=routes.webhook_routes(DeadLetterHandlers(dead_letters)),
        retention_rule=RetentionRule("dead letters", settings.retention.dead_letters, store.expire_dead_letters),
    )

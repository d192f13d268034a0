"""Instances with a history, for tests."""

from __future__ import annotations

from datetime import UTC, datetime

from sentinel.core.hub.instance import Event, Instance, Registered, Timeouts, advance

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def registered(*events: Event) -> Instance:
    """Return an instance that has registered, after these events, all of them at the start."""
    instance = Instance()
    for event in (Registered(), *events):
        instance, _ = advance(instance, event, START, Timeouts())
    return instance

"""Shared by the tests of `explain`, `coverage` and `forecast`: write a configuration, run a command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from tests.support.fleet.fake_api import FleetServer

SETTINGS_VARIABLES = ("BROKER_TYPE", "BROKER_URL", "HYPERFLEET_API_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Unset while a command runs, because they would count as settings."""


def write_config(directory: Path, server: FleetServer, *, name: str = "sentinel", **more: object) -> Path:
    """Write a configuration file for this server; `more` adds or replaces keys."""
    settings: dict[str, object] = {
        "resource_type": "clusters",
        "hyperfleet_api": {"endpoint": server.url, "page_size": 5, "timeout": "1s"},
        "poll_interval": "1s",
        **more,
    }
    file = directory / f"{name}.yaml"
    file.write_text(json.dumps(settings))
    return file


def sentinel_config(server: FleetServer, name: str, **spec: object) -> dict[str, Any]:
    """Return a SentinelConfig for this server; `spec` adds or replaces fields."""
    return {
        "apiVersion": "hyperfleet.redhat.com/v1alpha1",
        "kind": "SentinelConfig",
        "metadata": {"name": name, "namespace": "hyperfleet-system"},
        "spec": {
            "resourceType": "clusters",
            "hyperfleetAPI": {"url": server.url, "timeout": "1s"},
            "pageSize": 5,
            "broker": {"type": "rabbitmq", "topic": "events", "url": "amqp://rabbitmq"},
            **spec,
        },
    }


def write_manifests(directory: Path, *documents: dict[str, Any], name: str = "manifests") -> Path:
    """Write objects as a stream of documents."""
    file = directory / f"{name}.yaml"
    file.write_text("\n---\n".join(json.dumps(document) for document in documents))
    return file


async def invoke(command: click.Command, *arguments: object, environ: Mapping[str, str] | None = None) -> Result:
    """Run a command in a thread, because the server runs on this thread's event loop."""
    env = {**dict.fromkeys(SETTINGS_VARIABLES), **(environ or {})}
    result = await asyncio.to_thread(
        CliRunner().invoke, command, [str(argument) for argument in arguments], env=env, standalone_mode=False
    )
    if result.exception is not None and not isinstance(result.exception, click.ClickException):
        raise result.exception
    return result


def code_of(result: Result) -> int:
    """The exit code that `main` derives from the return value or the exception."""
    if isinstance(result.exception, click.ClickException):
        return 2
    return int(result.return_value or 0)


def body_of(result: Result) -> dict[str, Any]:
    """The decoded JSON output."""
    body: dict[str, Any] = json.loads(result.stdout)
    return body

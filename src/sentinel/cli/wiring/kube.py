"""Builds the client of the Kubernetes API server that the user or the pod names, and what uses it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, refuse, serve
from sentinel.ports.kube import KubeApi, KubeObject
from sentinel.runtime.kube.events import EventRecorder
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Part, SharedResource
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.log import LogSettings
from sentinel.version import __version__

F = TypeVar("F", bound=Callable[..., object])


kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="How to reach the API server. Default: KUBECONFIG, the pod's service account, or ~/.kube/config.",
)
"""`--kubeconfig`, as the parameter `kubeconfig`."""


def namespace_option(objects: str) -> Callable[[F], F]:
    """`--namespace`, as the parameter `namespace`; None if neither it nor POD_NAMESPACE is set.

    `objects` are those that the command reads, such as `SentinelConfigs`.
    """
    return click.option(
        "--namespace",
        metavar="NAMESPACE",
        envvar="POD_NAMESPACE",
        help=f"Where the {objects} are. Default: POD_NAMESPACE, otherwise the namespace of the kubeconfig.",
    )


class KubeConnection:
    """A client, and where it connects to."""

    def __init__(self, api: KubeApi, *, server: str, namespace: str) -> None:
        self.api = api
        self.server = server
        self.namespace = namespace
        """The namespace of the command, by default that of the access."""

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close the client at the end."""
        try:
            yield
        finally:
            await self.api.close()


def build_kube_api(
    *,
    kubeconfig: Path | None,
    namespace: str | None = None,
    on_secret: Callable[[str], None] = lambda secret: None,
) -> KubeConnection:
    """Build the client. `on_secret` is called with each secret before its first use. Raises `Misconfigured`."""
    from sentinel.drivers.kube.access import find_access
    from sentinel.drivers.kube.client import KubeClient
    from sentinel.drivers.kube.connection import ApiConnection

    access = find_access(kubeconfig=kubeconfig, on_secret=on_secret)
    api = KubeClient(ApiConnection(access, user_agent=f"hyperfleet-sentinel/{__version__}"))
    return KubeConnection(api, server=access.server, namespace=namespace or access.namespace)


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an operator itself. Everything else is in its custom resources."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Logging."""


def serve_operator(
    build: Callable[[KubeConnection, ServiceContext], Part],
    *,
    name: str,
    kubeconfig: Path | None,
    namespace: str | None,
    probes: ProbeAddresses,
    log_overrides: Mapping[str, str],
    description: Mapping[str, object],
    dynamic: DynamicParts | None = None,
) -> int:
    """Run an operator of one namespace until it ends. Return the exit code. `description` and `dynamic` are as in
    `Assembly`."""
    loaded = loader.load(OperatorSettings, environ=os.environ, overrides=log_overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)

    def assemble(context: ServiceContext) -> Assembly:
        on_secret = context.redactor.rotating()
        kube = build_kube_api(kubeconfig=kubeconfig, namespace=namespace, on_secret=on_secret)
        return Assembly(
            parts=[lambda: build(kube, context)],
            shared=[SharedResource("kubernetes", kube.closing)],
            dynamic=dynamic,
            description={"namespace": kube.namespace, "server": kube.server, **description},
            has_large_bodies=True,
        )

    return serve(
        assemble,
        name=name,
        component=name,
        log=loaded.settings.log,
        secrets=secrets_in_environment(os.environ),
        probes=probes,
    )


def build_event_recorder(api: KubeApi, *, component: str, instance: str, context: ServiceContext) -> EventRecorder:
    """Build the recorder of Kubernetes Events, which masks the secrets that the process knows."""
    return EventRecorder(
        api=api,
        component=component,
        instance=instance,
        clock=context.clock,
        log=context.log,
        redact=lambda text: mask_secret_text(context.redactor.redact(text)),
    )


async def list_sentinel_configs(*, kubeconfig: Path | None, namespace: str | None) -> list[KubeObject]:
    """Return the SentinelConfigs of a namespace. Raises `Misconfigured`, `KubeError` and `KubeUnavailable`."""
    from sentinel.operator.sentinel_config import SENTINEL_CONFIG  # it loads much that other commands do not need

    kube = build_kube_api(kubeconfig=kubeconfig, namespace=namespace)
    async with kube.closing():
        chunks = kube.api.list(SENTINEL_CONFIG, namespace=kube.namespace)
        return [each async for chunk in chunks for each in chunk.items]

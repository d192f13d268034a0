"""Builds the client of the Kubernetes API server that the user or the pod names, and what uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click

from sentinel.cli.wiring.serve import ServiceContext
from sentinel.ports.kube import KubeApi, KubeObject
from sentinel.runtime.kube.events import EventRecorder
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.version import __version__

F = TypeVar("F", bound=Callable[..., object])


def kubeconfig_option(command: F) -> F:
    """`--kubeconfig`, as the parameter `kubeconfig`."""
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="How to reach the API server. Default: KUBECONFIG, the pod's service account, or ~/.kube/config.",
    )(command)


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
        """The namespace for a command that was not given one."""

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close the client at the end."""
        try:
            yield
        finally:
            await self.api.close()


def build_kube_api(
    *, kubeconfig: Path | None, on_secret: Callable[[str], None] = lambda secret: None
) -> KubeConnection:
    """Build the client. `on_secret` is called with each secret before its first use. Raises `Misconfigured`."""
    from sentinel.drivers.kube.access import find_access
    from sentinel.drivers.kube.client import KubeClient
    from sentinel.drivers.kube.connection import ApiConnection

    access = find_access(kubeconfig=kubeconfig, on_secret=on_secret)
    api = KubeClient(ApiConnection(access, user_agent=f"hyperfleet-sentinel/{__version__}"))
    return KubeConnection(api, server=access.server, namespace=access.namespace)


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

    kube = build_kube_api(kubeconfig=kubeconfig)
    async with kube.closing():
        chunks = kube.api.list(SENTINEL_CONFIG, namespace=namespace or kube.namespace)
        return [each async for chunk in chunks for each in chunk.items]

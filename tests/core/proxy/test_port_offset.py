"""Ports of a configuration that several proxies on one machine share."""

from __future__ import annotations

from sentinel.core.proxy.model import (
    Configuration,
    Endpoint,
    Listener,
    MetricsEndpoint,
    System,
    Target,
    Upstream,
    with_port_offset,
)


def configuration(*ports: int, metrics: int | None) -> Configuration:
    return Configuration(
        system=System(),
        listeners=tuple(
            Listener(id=f"l{index}", address=Endpoint("127.0.0.1", port)) for index, port in enumerate(ports)
        ),
        upstreams=(Upstream(id="app", targets=(Target(Endpoint("127.0.0.1", 9001)),)),),
        metrics=None if metrics is None else MetricsEndpoint(address=Endpoint("127.0.0.1", metrics)),
    )


def test_the_offset_is_added_to_ports_to_listen_on_alone() -> None:
    moved = with_port_offset(configuration(8080, 8443, metrics=9091), 100)

    assert moved == configuration(8180, 8543, metrics=9191)


def test_any_free_port_stays_any_free_port() -> None:
    assert with_port_offset(configuration(0, metrics=None), 100) == configuration(0, metrics=None)

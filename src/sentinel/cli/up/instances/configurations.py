"""The configurations of the instances, in KDL."""

from __future__ import annotations

from typing import Final

from sentinel.cli.up.instances.ports import LOOPBACK, Ports

CONFIG_ID: Final = "edge"
"""The configuration that every instance is assigned when it is new."""

_HEADER = """\
// Every instance of `sentinel up` runs this. Each adds its number to the ports that it listens on:
// edge-1 listens at {host}:{first}, edge-2 at {host}:{second}.

schema-version "1.0"

system

listeners {{
    listener "web" {{
        address "{host}:{listener}"
    }}
}}
"""

_METRICS = """\
observability {{
    metrics {{
        address "{host}:{metrics}"
        path "/metrics"
    }}
}}
"""

_HEALTH = """\
    // Agents ask for this after each change.
    route "health" {
        priority "high"
        matches { path "/health" }
        builtin-handler "health"
    }
"""

_APP_ROUTE = """\
    // Everything else goes to the application, which responds with this greeting.
    route "app" {{
        matches {{ path-prefix "/" }}
        upstream "app"
        policies {{
            request-headers {{
                set {{ X-Greeting "{greeting}" }}
            }}
        }}
    }}
"""

_UPSTREAM = """\
upstreams {{
    upstream "app" {{
        target "{host}:{port}"
        health-check {{
            type "tcp"
            interval-secs 5
            healthy-threshold 1
            unhealthy-threshold 2
        }}
    }}
}}
"""


def unassigned(ports: Ports) -> str:
    """Return what a proxy starts with, before the hub has assigned anything to it."""
    home = """\
    route "home" {
        matches { path-prefix "/" }
        builtin-handler "status"
    }
"""
    return "\n".join((_filled(_HEADER, ports), f"routes {{\n{_HEALTH}\n{home}}}\n", _filled(_METRICS, ports)))


def forwarding(ports: Ports, *, greeting: str = "hello", upstream_port: int | None = None) -> str:
    """Return a configuration that forwards to the application, with the greeting that its responses begin with."""
    route = _filled(_APP_ROUTE, ports, greeting=greeting)
    return "\n".join(
        (
            _filled(_HEADER, ports),
            f"routes {{\n{_HEALTH}\n{route}}}\n",
            _filled(_UPSTREAM, ports, port=str(upstream_port or ports.upstream)),
            _filled(_METRICS, ports),
        )
    )


def _filled(template: str, ports: Ports, **more: str) -> str:
    return template.format(
        host=LOOPBACK,
        listener=ports.listener,
        first=ports.listener + 1,
        second=ports.listener + 2,
        metrics=ports.metrics,
        **more,
    )

"""The addresses of everything, and example commands: as lines at startup, and as the page at `/`."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from sentinel.cli.client.session import DEFAULT_SERVER
from sentinel.core.fleet.documents import KindRules
from sentinel.runtime.listening import Address
from sentinel.web.routing import OPEN, Method, Request, Response, ResponseSpec, Route

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 3rem auto; max-width: 44rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
code { font: 0.9em/1.5 ui-monospace, monospace; }
dt { margin-top: 0.75rem; } dd { margin: 0; opacity: 0.75; }
"""

_PAGES = (
    ("/docs", "the fleet API and the hub: every operation, with examples"),
    ("/api/hyperfleet/v1/kinds", "the kinds of resources, and the adapters that each requires"),
    ("/api/v1/instances", "the proxy instances that agents have registered at the hub"),
    ("/api/v1/configs", "the configurations of proxies that the hub keeps"),
    ("/readyz", "readiness of every part"),
    ("/healthz", "liveness of the process"),
    ("/metrics", "metrics for Prometheus"),
)


class ExampleCommand(msgspec.Struct, frozen=True):
    """A command to try next."""

    command: str
    purpose: str


def example_commands(url: str, *, token_file: Path | None, has_proxies: bool = False) -> list[ExampleCommand]:
    """Return commands for another terminal; `token_file` has the token, if one is needed."""
    proxies = [ExampleCommand("sentinel hub instances list", "what do the proxies run?")] if has_proxies else []
    exports = [f"export SENTINEL_TOKEN=$(cat {shlex.quote(str(token_file))})"] if token_file is not None else []
    if url != DEFAULT_SERVER:
        exports.append(f"export SENTINEL_SERVER={url}")
    return [
        *(ExampleCommand(command, "for the commands below") for command in exports),
        ExampleCommand("""sentinel create clusters --name one --spec '{"replicas":3}'""", "create a cluster"),
        ExampleCommand("sentinel watch clusters", "see it become ready"),
        ExampleCommand("sentinel why one", "what does it wait for?"),
        *proxies,
    ]


def banner(
    url: str,
    *,
    agents_address: Address,
    proxies: Sequence[str] = (),
    watched: Sequence[KindRules],
    ignored: Sequence[KindRules],
    broker: str,
    database: str,
    folder: str,
    examples: Sequence[ExampleCommand],
) -> Iterator[str]:
    """Yield the lines to print once the server listens; it may not be ready yet.

    `watched` are the kinds with a pulse, `ignored` those without required adapters.
    """
    yield f"sentinel is listening at {url}"
    yield f"  fleet API  {url}/api/hyperfleet/v1, described at {url}/docs"
    yield f"  hub        {url}/api/v1; agents register at {agents_address}"
    if proxies:
        yield f"  proxies    {', '.join(proxies)}"
    yield f"  probes     {url}/healthz, {url}/readyz; metrics at {url}/metrics"
    kinds = [f"{kind.plural} ({', '.join(kind.required_adapters)})" for kind in watched]
    yield f"  watching   {', '.join(kinds) or 'nothing: no kind requires an adapter'}"
    if ignored:
        plurals = ", ".join(kind.plural for kind in ignored)
        yield f"  ignoring   {plurals}: no adapter is required, so they never become ready and get no events"
    yield f"  broker     {broker}"
    yield f"  database   {database}"
    yield f"  data       {folder}"
    if examples:
        yield "try next, in another terminal:"
    width = max((len(example.command) for example in examples), default=0)
    for example in examples:
        yield f"  {example.command.ljust(width)}  # {example.purpose}"


def index_page() -> Route:
    """The page at `/`, without scripts or external resources."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    items = "".join(
        f'<dt><a href="{path}"><code>{path}</code></a></dt><dd>{escape(what)}</dd>' for path, what in _PAGES
    )
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sentinel</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main><h1>Sentinel is up</h1><dl>{items}</dl></main></body></html>"
    ).encode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )

    async def handle(request: Request) -> Response:
        return Response(
            body=html, headers={"Content-Security-Policy": policy}, content_type="text/html; charset=utf-8"
        )

    return Route(
        method=Method.GET,
        path="/",
        action=OPEN,
        handler=handle,
        summary="The addresses of everything.",
        tag="documentation",
        responses=(ResponseSpec(status=200, description="A page.", content_type="text/html"),),
        is_documented=False,
        is_lenient=True,
    )

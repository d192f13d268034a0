"""Where everything is, and what to try next: as lines when `sentinel up` has come up, and as the page at `/`."""

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
from sentinel.web.routing import OPEN, Method, Request, Response, ResponseSpec, Route

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 3rem auto; max-width: 44rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
code { font: 0.9em/1.5 ui-monospace, monospace; }
dt { margin-top: 0.75rem; } dd { margin: 0; opacity: 0.75; }
"""

_PAGES = (
    ("/docs", "the fleet API: every operation, with examples"),
    ("/api/hyperfleet/v1/kinds", "the kinds of resource, and the adapters that each requires"),
    ("/readyz", "is every part doing its job?"),
    ("/healthz", "is the process alive?"),
    ("/metrics", "what it counts"),
)


class Hint(msgspec.Struct, frozen=True):
    """Something to try next."""

    command: str
    purpose: str


def hints(url: str, *, token_file: Path | None) -> list[Hint]:
    """What to type in another terminal; where a token is needed, it is in that file."""
    settings = [f"export SENTINEL_TOKEN=$(cat {shlex.quote(str(token_file))})"] if token_file is not None else []
    if url != DEFAULT_SERVER:
        settings.append(f"export SENTINEL_SERVER={url}")
    return [
        *(Hint(command, "for the commands below") for command in settings),
        Hint("""sentinel create clusters --name one --spec '{"replicas":3}'""", "ask for a cluster"),
        Hint("sentinel watch clusters", "see it become ready"),
        Hint("sentinel why ID", "what does it wait for?"),
    ]


def lines(
    url: str, *, watched: Sequence[KindRules], broker: str, database: str, folder: str, tries: Sequence[Hint]
) -> Iterator[str]:
    """What is said when it listens; that everything serves is said later, and by nobody but who has seen it."""
    yield f"sentinel is listening at {url}"
    yield f"  fleet API  {url}/api/hyperfleet/v1, described at {url}/docs"
    yield f"  probes     {url}/healthz, {url}/readyz; metrics at {url}/metrics"
    kinds = [f"{kind.plural} ({', '.join(kind.required_adapters)})" for kind in watched]
    yield f"  watching   {', '.join(kinds) or 'nothing: no kind requires an adapter'}"
    yield f"  broker     {broker}"
    yield f"  database   {database}"
    yield f"  data       {folder}"
    if tries:
        yield "try next, in another terminal:"
    longest = max((len(hint.command) for hint in tries), default=0)
    for hint in tries:
        yield f"  {hint.command.ljust(longest)}  # {hint.purpose}"


def page() -> Route:
    """The page at `/`. It loads nothing and runs nothing."""
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

    async def answer(request: Request) -> Response:
        return Response(
            body=html, headers={"Content-Security-Policy": policy}, content_type="text/html; charset=utf-8"
        )

    return Route(
        method=Method.GET,
        path="/",
        action=OPEN,
        handler=answer,
        summary="Where everything is.",
        tag="documentation",
        responses=(ResponseSpec(status=200, description="A page.", content_type="text/html"),),
        is_documented=False,
        is_lenient=True,
    )

"""Probes and metrics as routes, for servers that offer them beside their own on one address.

The pages are those of `runtime.probes.pages`. A service without a REST server has `runtime.probes.listener`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from sentinel.runtime.probes.pages import Page
from sentinel.web.routing import OPEN, Handler, Method, Request, Response, ResponseSpec, Route


def page_routes(
    pages: Mapping[str, Page], *, before: Mapping[str, Callable[[], Awaitable[None]]] | None = None
) -> tuple[Route, ...]:
    """Routes for `probe_pages(health) | metrics_pages(metrics)`: open to everybody, quiet in the access log.

    `before` has, by path, what is awaited before a page is made, such as reading gauges when somebody looks.
    """
    prepare = before or {}
    return tuple(
        Route(
            method=Method.GET,
            path=path,
            action=OPEN,
            handler=_handler(page, prepare.get(path)),
            summary=path,
            tag="operation",
            responses=(ResponseSpec(status=200, description="As it is now."),),
            is_documented=False,
            is_lenient=True,
            is_quiet=True,
        )
        for path, page in pages.items()
    )


def _handler(page: Page, prepare: Callable[[], Awaitable[None]] | None) -> Handler:
    async def answer(request: Request) -> Response:
        if prepare is not None:
            await prepare()
        said = page(request.header("accept") or "")
        return Response(said.status.value, said.body, content_type=said.content_type)

    return answer

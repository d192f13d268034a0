"""Probes and metrics as routes, for servers that offer them beside their own on one address.

They are the pages of `runtime.http`, which answers whoever has no REST server.
"""

from __future__ import annotations

from collections.abc import Mapping

from sentinel.runtime.http import Page
from sentinel.web.routing import OPEN, Answer, Handler, Method, Request, Response, Route


def page_routes(pages: Mapping[str, Page], *, tag: str = "operation") -> tuple[Route, ...]:
    """Routes for `probe_pages(health) | metrics_pages(metrics)`: open to everybody, quiet in the access log."""
    return tuple(
        Route(
            method=Method.GET,
            path=path,
            action=OPEN,
            handler=_handler(page),
            summary=path,
            tag=tag,
            responses=(Response(status=200, description="As it is now."),),
            is_documented=False,
            is_lenient=True,
            is_quiet=True,
        )
        for path, page in pages.items()
    )


def _handler(page: Page) -> Handler:
    async def answer(request: Request) -> Answer:
        said = page(request.header("accept") or "")
        return Answer(said.status.value, said.body, content_type=said.content_type)

    return answer

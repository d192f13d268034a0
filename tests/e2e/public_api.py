"""A stand-in for the public HyperFleet API: its pages, its search, its conditions, its errors.

It is as strict as the public one. An unknown parameter is ignored, a page of more than 100 items is refused.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from aiohttp import web

from tests.support.http.loopback import LoopbackServer

ROOT = "/api/hyperfleet/v1"
MAX_SIZE = 100
_SEARCH = re.compile(r"labels\.([^=]+)='((?:[^']|'')*)'")


def created(
    plural: str, resource_id: str, *, kind: str, at: str, owner: dict[str, str] | None = None, **labels: str
) -> dict[str, Any]:
    """Return a resource just after its creation, when no adapter has reported."""
    conditions = [
        {
            "type": name,
            "status": "False",
            "observed_generation": 1,
            "created_time": at,
            "last_updated_time": at,
            "last_transition_time": at,
        }
        for name in ("Reconciled", "LastKnownReconciled")
    ]
    document = {
        "id": resource_id,
        "kind": kind,
        "href": f"{ROOT}/{plural}/{resource_id}",
        "name": resource_id,
        "labels": labels,
        "spec": {},
        "status": {"conditions": conditions},
        "generation": 1,
        "created_time": at,
        "updated_time": at,
        "created_by": "someone@example.com",
        "updated_by": "someone@example.com",
    }
    return document if owner is None else {**document, "owner_references": owner}


class PublicApi(LoopbackServer):
    """Lists resources by plural."""

    def __init__(self, resources: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__()
        self.queries: list[dict[str, str]] = []
        """The parameters of each request."""
        self._resources = resources

    def make_runner(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_get(f"{ROOT}/{{plural}}", self._list)
        return web.AppRunner(application, access_log=None)

    async def _list(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.queries.append(query)
        size, page = int(query.get("size", "20")), int(query.get("page", "1"))
        if not 1 <= size <= MAX_SIZE:
            return _bad_request("size", f"size must be at most {MAX_SIZE}")
        selected = dict(_SEARCH.findall(query.get("search", "")))
        matching = [
            document
            for document in self._resources[request.match_info["plural"]]
            if selected.items() <= document["labels"].items()
        ]
        items = matching[(page - 1) * size : page * size]
        body = {"page": page, "size": len(items), "total": len(matching), "items": items}
        return web.json_response(body=msgspec.json.encode(body))


def _bad_request(field: str, message: str) -> web.Response:
    problem = {
        "type": "https://api.hyperfleet.io/errors/validation",
        "title": "Validation failed",
        "status": 400,
        "detail": "Invalid query parameters",
        "code": "HYPERFLEET-VAL-001",
        "errors": [{"field": field, "constraint": "range", "message": message}],
    }
    return web.json_response(
        body=msgspec.json.encode(problem), status=400, content_type="application/problem+json"
    )

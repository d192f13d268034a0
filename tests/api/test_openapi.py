"""The server conforms to its OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation

from sentinel.api.kinds import Kinds
from sentinel.core.fleet.documents import KindRules
from sentinel.web import openapi
from tests.support.fleet.api_client import PERMISSIONS, ApiClient
from tests.support.openapi_conformance import check_operation

KINDS = Kinds((KindRules("clusters", "Cluster", "", ("dns",)), KindRules("nodepools", "NodePool", "clusters")))
"""One kind without a parent and one with. Other kinds have the same routes."""
ROUTES = ApiClient(kinds=KINDS).routes
OPERATIONS = [(route.path, route.method.value) for route in ROUTES]
WITH_INVALID_REQUESTS = [(route.path, route.method.value) for route in ROUTES if route.query or route.body]
"""Operations that have invalid requests: any string is a valid path parameter."""


class DocumentedServer:
    """A server, its document, and resources for the requests."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.fleet = ApiClient(kinds=KINDS)
        info = openapi.Info(title="Fleet API", version="1", is_insecure=True)
        self.document: dict[str, Any] = msgspec.json.decode(
            openapi.document(self.fleet.routes, info, permissions=PERMISSIONS)
        )
        self._schema = schemathesis.openapi.from_dict(self.document)
        self._names = 0
        runner.run(self.fleet.backend.database.open())

    def operation(self, path: str, method: str) -> APIOperation[Any, Any, Any, Any]:
        """Return an operation that calls the application in process."""
        found = self._schema[path][method]
        found.app = self.fleet.app
        return found

    async def create_resources(self) -> dict[str, str]:
        """Create a cluster with a node pool and reports. Each request gets its own, because it may delete them."""
        self._names += 1
        cluster, pool = f"cluster-{self._names}", f"pool-{self._names}"
        await self.fleet.create("clusters", cluster, id=cluster, labels={"a": "b"}, spec={"x": 1})
        await self.fleet.create(f"clusters/{cluster}/nodepools", pool, id=pool)
        await self.fleet.reports(f"clusters/{cluster}", "dns", "other")
        await self.fleet.reports(f"clusters/{cluster}", "dns", generation=9)
        return {"clusters": cluster, "nodepools": pool, "resources": cluster}


@pytest.fixture(scope="module")
def served() -> Iterator[DocumentedServer]:
    with asyncio.Runner() as runner:
        yield DocumentedServer(runner)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_responses_to_valid_requests_are_documented(served: DocumentedServer, path: str, method: str) -> None:
    check(served, path, method, GenerationMode.POSITIVE)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("path", "method"), WITH_INVALID_REQUESTS)
def test_responses_to_invalid_requests_are_documented(served: DocumentedServer, path: str, method: str) -> None:
    check(served, path, method, GenerationMode.NEGATIVE)


def check(served: DocumentedServer, path: str, method: str, mode: GenerationMode) -> None:
    check_operation(
        served.operation(path, method), mode, create=lambda: served.runner.run(served.create_resources())
    )


def test_the_document_has_every_route(served: DocumentedServer) -> None:
    documented = {
        (path, method.upper())
        for path, operations in served.document["paths"].items()
        for method in operations
        if method != "parameters"
    }

    assert documented == set(OPERATIONS)


def test_the_document_is_openapi_3_1(served: DocumentedServer) -> None:
    assert served.document["openapi"].startswith("3.1.")
    assert served.document["info"]["title"] == "Fleet API"

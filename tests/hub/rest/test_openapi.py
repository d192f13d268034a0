"""The hub conforms to its OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from schemathesis import GenerationMode
from starlette.types import Receive, Scope, Send

from sentinel.hub import access
from sentinel.web import openapi
from tests.hub.rest.rest_hub import VALID, RestHub
from tests.support.hub.store_records import instance
from tests.support.openapi_conformance import check_operation
from tests.web.rest_caller import ADMIN

ROUTES = [route for route in RestHub().routes if not route.path.endswith("/v1/events")]
"""A stream has no end."""
OPERATIONS = [(route.path, route.method.value) for route in ROUTES]
WITH_INVALID_REQUESTS = [(route.path, route.method.value) for route in ROUTES if route.query or route.body]


class DocumentedHub:
    """A hub, its document, and what requests are about."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.hub = RestHub()
        info = openapi.Info(title="Sentinel Hub", version="1")
        document = openapi.document(self.hub.routes, info, permissions=access.PERMISSIONS)
        self._schema = schemathesis.openapi.from_dict(msgspec.json.decode(document))
        self._count = 0
        runner.run(self.hub.backend.database.open())

    def check(self, path: str, method: str, mode: GenerationMode) -> None:
        operation: Any = self._schema[path][method]
        operation.app = self._serve
        headers = {"Authorization": f"Bearer {ADMIN}"}
        check_operation(operation, mode, create=lambda: self.runner.run(self._create()), headers=headers)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, with the deployments in the loop that schemathesis runs it in."""
        async with self.hub.rollouts.running():
            await self.hub.app(scope, receive, send)

    async def _create(self) -> dict[str, str]:
        self._count += 1
        name = f"edge-{self._count}"
        await self.hub.push(name, VALID)
        await self.hub.add(instance(name))
        deployment = await self.hub.deploy(name, 1, ids=[name])
        await self.hub.call("PUT", f"secrets/{name}", {"value": "x"})
        ids = {"configs": name, "versions": "1", "instances": name}
        return {**ids, "deployments": deployment["id"], "secrets": name, "dead-letters": "1"}


@pytest.fixture(scope="module")
def served() -> Iterator[DocumentedHub]:
    with asyncio.Runner() as runner:
        yield DocumentedHub(runner)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_responses_to_valid_requests_are_documented(served: DocumentedHub, path: str, method: str) -> None:
    served.check(path, method, GenerationMode.POSITIVE)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("path", "method"), WITH_INVALID_REQUESTS)
def test_responses_to_invalid_requests_are_documented(served: DocumentedHub, path: str, method: str) -> None:
    served.check(path, method, GenerationMode.NEGATIVE)

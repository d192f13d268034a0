"""Accounts and the audit, which every server has, conform to its OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from schemathesis import GenerationMode

from sentinel.core import access
from sentinel.web import openapi
from tests.support.openapi_conformance import check_operation
from tests.web.accounts.accounts_client import AccountsClient
from tests.web.rest_caller import ADMIN

ROUTES = [route for component in AccountsClient().components for route in component.routes]
OPERATIONS = [(route.path, route.method.value) for route in ROUTES]
WITH_INVALID_REQUESTS = [(route.path, route.method.value) for route in ROUTES if route.query or route.body]


class DocumentedAccounts:
    """Accounts, their document, and users and tokens for the requests."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._accounts = AccountsClient()
        info = openapi.Info(title="Accounts", version="1")
        permissions = access.combine(*(component.permissions for component in self._accounts.components))
        document = openapi.document(ROUTES, info, permissions=permissions)
        self._schema = schemathesis.openapi.from_dict(msgspec.json.decode(document))
        self._count = 0
        runner.run(self._accounts.backend.database.open())

    def check(self, path: str, method: str, mode: GenerationMode) -> None:
        operation: Any = self._schema[path][method]
        operation.app = self._accounts.app
        headers = {"Authorization": f"Bearer {ADMIN}"}
        check_operation(operation, mode, create=lambda: self._runner.run(self._create()), headers=headers)

    async def _create(self) -> dict[str, str]:
        self._count += 1
        name = f"user-{self._count}"
        await self._accounts.add_user(name)
        token = await self._accounts.issue(name=name, role="viewer")
        return {"users": name, "tokens": token["id"]}


@pytest.fixture(scope="module")
def served() -> Iterator[DocumentedAccounts]:
    with asyncio.Runner() as runner:
        yield DocumentedAccounts(runner)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_responses_to_valid_requests_are_documented(served: DocumentedAccounts, path: str, method: str) -> None:
    served.check(path, method, GenerationMode.POSITIVE)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("path", "method"), WITH_INVALID_REQUESTS)
def test_responses_to_invalid_requests_are_documented(served: DocumentedAccounts, path: str, method: str) -> None:
    served.check(path, method, GenerationMode.NEGATIVE)

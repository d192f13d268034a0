"""A database failure is a 503 with Retry-After on every route."""

from __future__ import annotations

from sentinel.testing.database import Fault
from tests.api.every_route import Family
from tests.support.databases import backends
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import ROOT


async def test_every_route_is_a_503_with_retry_after() -> None:
    faults: list[Fault] = []
    backend = backends.memory(faults=lambda _: faults[0] if faults else None)
    async with ApiClient(backend=backend) as fleet:
        family = Family(fleet, 0)
        await family.create()
        faults.append(Fault.BEFORE_COMMIT)
        for route in fleet.routes:
            if route.path == f"{ROOT}/kinds":
                continue  # does not use the database

            reply = await family.try_route(route.method.value, route.path)

            reply.assert_problem(503, code="HYPERFLEET-SVC-001")
            assert reply.headers["retry-after"] == "1"


async def test_every_write_is_retried_after_a_lost_race() -> None:
    async with (
        ApiClient(backend=backends.memory(faults=lambda _: Fault.LOST_RACE)) as twice,
        ApiClient() as once,
    ):
        for fleet in (twice, once):
            for number, route in enumerate(fleet.routes):
                family = Family(fleet, number)
                await family.create()
                await family.try_route(route.method.value, route.path)

        traces = [
            [
                (each["action"], each["kind"], each["detail"])
                for each in (await fleet.get("/api/v1/audit", size=1000))["items"]
            ]
            for fleet in (twice, once)
        ]
        assert traces[0] == traces[1]

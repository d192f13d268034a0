"""Kinds with conditions by expression, in the API and for its clients."""

from __future__ import annotations

from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import Body
from tests.support.fleet.mirrors import ANY_TWO, TWO_CURRENT, mirrors


def conditions(resource: Body) -> dict[str, Body]:
    return {each["type"]: each for each in resource["status"]["conditions"]}


def statuses(resource: Body) -> tuple[str, str]:
    found = conditions(resource)
    return found["Available"]["status"], found["Ready"]["status"]


async def test_a_kind_is_available_and_ready_by_its_own_rules() -> None:
    async with ApiClient(kinds=mirrors()) as fleet:
        await fleet.create("mirrors", "m", id="m")
        await fleet.later()
        await fleet.reports("mirrors/m", "europe", "asia")
        assert statuses(await fleet.get("mirrors/m")) == ("False", "False")

        await fleet.reports("mirrors/m", "america", available="False")
        assert statuses(await fleet.get("mirrors/m")) == ("True", "True")
        assert (await fleet.get("mirrors/m/waiting"))["waiting_for"] == []

        await fleet.later()
        await fleet.reports("mirrors/m", "asia", available="False")
        assert statuses(await fleet.get("mirrors/m")) == ("False", "False")

        await fleet.call("PATCH", "mirrors/m", {"spec": {"size": 2}})
        await fleet.later()
        await fleet.reports("mirrors/m", "europe", "asia", generation=2)
        resource = await fleet.get("mirrors/m")
        assert statuses(resource) == ("True", "True")
        assert conditions(resource)["Available"]["observed_generation"] == 1
        assert resource["status"]["observed_generation"] == 1


async def test_an_expression_that_fails_is_shown_without_data() -> None:
    failing = "self.items.all(i, i.data.lookup[i.data.password] == 'x')"
    async with ApiClient(kinds=mirrors(failing, failing)) as fleet:
        await fleet.create("mirrors", "m", id="m")
        reply = await fleet.reports(
            "mirrors/m", "europe", "asia", "america", data={"password": "hunter2", "lookup": {}}
        )

        assert reply.status == 201
        resource = await fleet.get("mirrors/m")
        for name in ("Available", "Ready"):
            condition = conditions(resource)[name]
            assert (condition["status"], condition["reason"]) == ("False", "ExpressionFailed")
            assert condition["message"].endswith("cannot be evaluated: no such key")
        assert "hunter2" not in str(resource)


async def test_the_key_without_expressions_is_the_list_of_adapters() -> None:
    async with ApiClient(kinds=mirrors("", "")) as fleet:
        [kind] = fleet.kinds

        assert fleet.service.aggregation_key(kind) == "europe,asia,america"


async def test_clients_read_the_expressions_of_a_kind() -> None:
    async with ApiClient(kinds=mirrors()) as fleet:
        [kind] = (await fleet.get("kinds"))["items"]

        assert (kind["available"], kind["ready"]) == (ANY_TWO, TWO_CURRENT)

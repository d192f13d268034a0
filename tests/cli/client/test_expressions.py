"""`sentinel why` and `sentinel get` of resources with conditions by expression."""

from __future__ import annotations

from sentinel.cli.client.get import get
from sentinel.cli.client.why import why
from tests.cli.client.serving import ServedFleet, decoded
from tests.support.fleet.mirrors import mirrors, report_failure_of_america


async def test_why_and_get_name_the_expression() -> None:
    async with ServedFleet(kinds=mirrors(ready="available && self.items.all(i, i.data.done)")) as fleet:
        await fleet.create("mirrors", "m", id="m")
        await fleet.reports("mirrors/m", "europe", "asia", "america", data={"done": False})

        _, explained, _ = await fleet.run(why, "m")
        _, as_json, _ = await fleet.run(why, "m", "--output", "json")
        _, listed, _ = await fleet.run(get, "mirrors")

    assert ": The expression of the kind is false\n" in explained
    assert (decoded(as_json)["ready"], decoded(as_json)["waiting_for"]) == (False, [])
    assert "its expression for ready" in listed


async def test_get_and_why_show_a_resource_that_is_ready_without_all() -> None:
    async with ServedFleet(kinds=mirrors()) as fleet:
        await report_failure_of_america(fleet)

        _, explained, _ = await fleet.run(why, "m")
        _, listed, _ = await fleet.run(get, "mirrors")

    assert "ready for" in explained
    assert "not ready" not in explained
    assert "america" not in explained + listed

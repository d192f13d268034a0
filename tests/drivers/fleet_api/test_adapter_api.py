"""How the driver finds resources and reads answers; the rest is in the suite of its port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Conclusion, Done
from sentinel.core.fleet.documents import Report
from sentinel.drivers.fleet_api.adapter_api import HttpAdapterApi
from sentinel.drivers.fleet_api.connection import connect
from sentinel.drivers.fleet_api.session import FleetSession
from sentinel.ports.adapter_api import ReportOutcome, ReportRefused, ReportResult
from sentinel.ports.errors import ApiUnavailable
from tests.support.http.scripted_server import Asked, Said, ScriptedServer, document, problem

ROOT = "/api/hyperfleet/v1"
CLUSTER = {"id": "c1", "kind": "Cluster", "generation": 1, "href": f"{ROOT}/clusters/c1", "spec": {}}
NOTHING = {"items": [], "total": 0}
RESOURCE = Resource(id="c1", kind="Cluster", generation=1, href=f"{ROOT}/clusters/c1")
REPORT: Report = tasks.report(
    Conclusion(Done()), adapter="dns", generation=1, is_deleting=False, at=datetime(2025, 1, 1, tzinfo=UTC)
)

Script = Callable[[Asked], Said]


def served(routes: dict[str, Said]) -> Script:
    """Answers by path without its query; anything else is no route."""

    def script(asked: Asked) -> Said:
        path = asked.path.partition("?")[0].removeprefix(f"{ROOT}/")
        return routes.get(path, problem(404, "HYPERFLEET-NTF-000", "there is no endpoint"))

    return script


@asynccontextmanager
async def reporting(
    script: Script,
    *,
    token: str = "",
    token_file: Path | None = None,
    timeout: timedelta = timedelta(seconds=5),
    tokens: list[str] | None = None,
    kinds: Sequence[str] = (),
) -> AsyncIterator[tuple[HttpAdapterApi, ScriptedServer]]:
    heard: list[str] = []
    async with ScriptedServer(script) as server:
        connection = connect(
            endpoint=server.url,
            user_agent="hyperfleet-adapter/1.2.3",
            keep_alive=timedelta(seconds=30),
            token=token,
            token_file=token_file,
            on_token=(tokens if tokens is not None else heard).append,
        )
        driver = HttpAdapterApi(FleetSession(connection, timeout=timeout), kinds=kinds)
        try:
            yield driver, server
        finally:
            await driver.close()


async def test_a_path_that_the_event_knows_saves_a_request() -> None:
    script = served({"clusters/c1": document(CLUSTER), "clusters/c1/statuses": document(NOTHING)})
    async with reporting(script) as (driver, server):
        found = await driver.get(ResourceRef("c1", f"{ROOT}/clusters/c1"))

        assert found is not None
        assert server.paths == [f"GET {ROOT}/clusters/c1", f"GET {ROOT}/clusters/c1/statuses?page=1&size=100"]


async def test_by_its_id_a_resource_of_any_kind_is_found() -> None:
    nested = {**CLUSTER, "id": "n1", "kind": "NodePool", "href": f"{ROOT}/clusters/c1/nodepools/n1"}
    script = served({"resources/n1": document(nested), "clusters/c1/nodepools/n1/statuses": document(NOTHING)})
    async with reporting(script) as (driver, _):
        found = await driver.get(ResourceRef("n1"))

        assert found is not None
        assert found.href == f"{ROOT}/clusters/c1/nodepools/n1"


async def test_a_server_that_knows_kinds_alone_is_asked_by_kind_from_then_on() -> None:
    script = served({"clusters/c1": document(CLUSTER), "clusters/c1/statuses": document(NOTHING)})
    async with reporting(script) as (driver, server):
        for _ in range(2):
            assert await driver.get(ResourceRef("c1", kind="cluster")) is not None

        lookups = [path for path in server.paths if "statuses" not in path]
        assert lookups == [f"GET {ROOT}/resources/c1", f"GET {ROOT}/clusters/c1", f"GET {ROOT}/clusters/c1"]


async def test_a_server_that_knows_kinds_alone_is_asked_for_each_where_an_event_says_none() -> None:
    nobody = problem(404, "HYPERFLEET-NTF-001")
    script = served(
        {
            "nodepools/c1": nobody,
            "nodepools/o1": nobody,
            "clusters/o1": nobody,
            "clusters/c1": document(CLUSTER),
            "clusters/c1/statuses": document(NOTHING),
        }
    )
    async with reporting(script, kinds=["NodePool", "Cluster"]) as (driver, _):
        found = await driver.get(ResourceRef("c1"))
        foreign = await driver.get(ResourceRef("o1"))

        assert found is not None
        assert foreign is None


@pytest.mark.parametrize("kind", ["../../admin", "a b", "a?b", "a#b"])
async def test_a_kind_that_could_not_stand_in_a_url_is_never_asked_for(kind: str) -> None:
    async with reporting(served({})) as (driver, server):
        with pytest.raises(ApiUnavailable):
            await driver.get(ResourceRef("c1", kind=kind))

        assert server.paths == [f"GET {ROOT}/resources/c1"]


@pytest.mark.parametrize(("kind", "plural"), [("Policy", "policies"), ("Gateway", "gateways"), ("Box", "boxes")])
async def test_kinds_have_their_usual_plurals(kind: str, plural: str) -> None:
    document_ = {**CLUSTER, "kind": kind, "href": ""}
    script = served({f"{plural}/c1": document(document_), f"{plural}/c1/statuses": document(NOTHING)})
    async with reporting(script) as (driver, _):
        found = await driver.get(ResourceRef("c1", kind=kind))

        assert found is not None
        assert found.href == f"{ROOT}/{plural}/c1"


async def test_a_wrong_url_is_not_a_resource_that_is_gone() -> None:
    async with reporting(served({})) as (driver, _):
        with pytest.raises(ApiUnavailable, match="is endpoint right") as caught:
            await driver.get(ResourceRef("c1", kind="Cluster"))

        assert caught.value.needs_operator


async def test_what_a_proxy_says_in_its_own_words_is_not_believed() -> None:
    async with reporting(lambda asked: Said(404, b"default backend - 404")) as (driver, _):
        with pytest.raises(ApiUnavailable):
            await driver.get(ResourceRef("c1"))
        await driver.probe("Cluster")


async def test_a_404_of_the_api_itself_is_a_resource_that_is_gone() -> None:
    async with reporting(lambda asked: problem(404, "HYPERFLEET-NTF-001")) as (driver, _):
        assert await driver.get(ResourceRef("c1")) is None
        assert await driver.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.GONE)


async def test_a_resource_that_goes_between_the_two_requests_is_gone() -> None:
    script = served(
        {"resources/c1": document(CLUSTER), "clusters/c1/statuses": problem(404, "HYPERFLEET-NTF-001")}
    )
    async with reporting(script) as (driver, _):
        assert await driver.get(ResourceRef("c1")) is None


async def test_reports_are_read_page_by_page() -> None:
    def script(asked: Asked) -> Said:
        if "statuses" not in asked.path:
            return document(CLUSTER)
        number = int(asked.path.partition("page=")[2].partition("&")[0])
        report = {"adapter": f"a{number}", "observed_generation": 1, "conditions": []}
        return document({"items": [report], "total": 3})

    async with reporting(script) as (driver, _):
        found = await driver.get(ResourceRef("c1"))

        assert found is not None
        assert [each.adapter for each in found.reports] == ["a1", "a2", "a3"]


@pytest.mark.parametrize(
    ("status", "needs_operator"),
    [
        (301, True),
        (401, True),
        (403, True),
        (407, True),
        (421, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (503, False),
    ],
)
async def test_what_says_nothing_about_the_question_is_trouble(status: int, needs_operator: bool) -> None:
    async with reporting(lambda asked: problem(status, detail="that is so")) as (driver, _):
        for attempt in (driver.probe("Cluster"), driver.get(ResourceRef("c1")), driver.report(RESOURCE, REPORT)):
            with pytest.raises(ApiUnavailable, match=str(status)) as caught:
                await attempt
            assert caught.value.needs_operator is needs_operator


async def test_a_server_says_how_long_it_wants_to_be_left_alone() -> None:
    async with reporting(lambda asked: Said(503, headers={"Retry-After": "7"})) as (driver, _):
        with pytest.raises(ApiUnavailable) as caught:
            await driver.get(ResourceRef("c1"))

        assert caught.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize("status", [400, 409, 413, 415, 422])
async def test_a_report_that_will_never_be_taken_is_refused_with_the_reason(status: int) -> None:
    async with reporting(lambda asked: problem(status, detail="it is so")) as (driver, _):
        with pytest.raises(ReportRefused, match=rf"^{status} .*: it is so$"):
            await driver.report(RESOURCE, REPORT)


async def test_a_server_of_the_older_kind_gets_a_post() -> None:
    def script(asked: Asked) -> Said:
        return Said(201) if asked.method == "POST" else problem(405)

    async with reporting(script) as (driver, server):
        for _ in range(2):
            assert await driver.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.STORED)

        assert [each.method for each in server.asked] == ["PUT", "POST", "POST"]


@pytest.mark.parametrize("said", [Said(200, b"<html>Welcome"), Said(200), Said(200, b"[]"), Said(202, b"{}")])
async def test_what_no_api_says_to_a_report_is_not_believed(said: Said) -> None:
    async with reporting(lambda asked: said) as (driver, _):
        with pytest.raises(ApiUnavailable, match="is endpoint right") as caught:
            await driver.report(RESOURCE, REPORT)

        assert caught.value.needs_operator


@pytest.mark.parametrize("said", [Said(201), Said(201, b"{}"), Said(200, b'{"adapter": "dns"}')])
async def test_a_report_is_stored_where_the_api_says_so(said: Said) -> None:
    async with reporting(lambda asked: said) as (driver, _):
        assert await driver.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.STORED)


async def test_a_reason_to_discard_that_nobody_knows_is_none() -> None:
    async with reporting(lambda asked: Said(204, headers={"Discard-Reason": "mood"})) as (driver, _):
        assert await driver.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.DISCARDED)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"id": "c1"}', b"\xff"])
async def test_an_answer_that_cannot_be_read_is_trouble(body: bytes) -> None:
    async with reporting(lambda asked: Said(200, body)) as (driver, _):
        with pytest.raises(ApiUnavailable, match="cannot be read"):
            await driver.get(ResourceRef("c1"))


async def test_a_server_that_does_not_answer_in_time_is_trouble() -> None:
    released = asyncio.Event()

    async def wait(asked: Asked) -> Said:
        await released.wait()
        return Said()

    async with ScriptedServer(wait) as server:
        connection = connect(endpoint=server.url, user_agent="test", keep_alive=timedelta(seconds=30))
        session = FleetSession(connection, timeout=timedelta(milliseconds=20))
        with pytest.raises(ApiUnavailable, match=r"no complete answer within 0\.02 s"):
            await HttpAdapterApi(session).get(ResourceRef("c1"))
        released.set()
        await session.close()


async def test_the_token_goes_along_and_never_into_an_error() -> None:
    def script(asked: Asked) -> Said:
        return problem(500, detail=f"you sent {asked.headers['Authorization']}")

    tokens: list[str] = []
    async with reporting(script, token="s3cr3t-token", tokens=tokens) as (driver, server):
        with pytest.raises(ApiUnavailable) as caught:
            await driver.get(ResourceRef("c1"))

        assert server.asked[0].headers["Authorization"] == "Bearer s3cr3t-token"
        assert server.asked[0].headers["User-Agent"] == "hyperfleet-adapter/1.2.3"
        assert "s3cr3t" not in str(caught.value)
        assert tokens == ["s3cr3t-token"]


async def test_a_token_file_is_read_again_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with reporting(lambda asked: problem(404, "HYPERFLEET-NTF-001"), token_file=file) as (driver, server):
        await driver.get(ResourceRef("c1"))
        file.write_text("second\n")
        await driver.get(ResourceRef("c1"))

        sent = [each.headers["Authorization"] for each in server.asked]
        assert sent == ["Bearer first", "Bearer second"]


async def test_a_token_that_was_replaced_meanwhile_is_no_matter_for_a_person(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")

    def script(asked: Asked) -> Said:
        file.write_text("second")
        return problem(401)

    async with reporting(script, token_file=file) as (driver, _):
        with pytest.raises(ApiUnavailable) as caught:
            await driver.get(ResourceRef("c1"))

        assert not caught.value.needs_operator


@pytest.mark.parametrize("content", [None, "", "two words", "ä"])
async def test_a_token_file_that_will_not_do_is_trouble_for_a_person(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    async with reporting(lambda asked: Said(), token_file=file) as (driver, _):
        with pytest.raises(ApiUnavailable, match="token_file") as caught:
            await driver.get(ResourceRef("c1"))

        assert caught.value.needs_operator


async def test_authorities_that_cannot_be_read_are_trouble_for_a_person(tmp_path: Path) -> None:
    connection = connect(
        endpoint="https://127.0.0.1:1",
        user_agent="test",
        keep_alive=timedelta(seconds=30),
        ca_file=tmp_path / "missing.pem",
    )
    session = FleetSession(connection, timeout=timedelta(seconds=1))

    with pytest.raises(ApiUnavailable, match="ca_file") as caught:
        await HttpAdapterApi(session).get(ResourceRef("c1"))

    assert caught.value.needs_operator

"""How the HTTP driver finds resources and reads responses; the rest is in the contract of its port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import CheckedOutcome, Done
from sentinel.core.fleet.documents import Report
from sentinel.drivers.fleet_api.adapter_api import HttpAdapterApi
from sentinel.drivers.fleet_api.connection import connect
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable
from tests.support.http import scripted_server
from tests.support.http.scripted_server import ReceivedRequest, Script, ScriptedResponse, document, problem

ROOT = "/api/hyperfleet/v1"
CLUSTER = {"id": "c1", "kind": "Cluster", "generation": 1, "href": f"{ROOT}/clusters/c1", "spec": {}}
NOTHING = {"items": [], "total": 0}
RESOURCE = Resource(id="c1", kind="Cluster", generation=1, href=f"{ROOT}/clusters/c1")
REPORT: Report = tasks.report(
    CheckedOutcome(Done()), adapter="dns", generation=1, is_deleting=False, at=datetime(2025, 1, 1, tzinfo=UTC)
)

GONE = problem(404, "HYPERFLEET-NTF-001")


def routes(responses: dict[str, ScriptedResponse]) -> Script:
    """Respond by path without its query; other paths get a 404."""

    def script(request: ReceivedRequest) -> ScriptedResponse:
        path = request.path.partition("?")[0].removeprefix(f"{ROOT}/")
        return responses.get(path, problem(404, "HYPERFLEET-NTF-000", "there is no endpoint"))

    return script


@asynccontextmanager
async def connected(
    script: Script,
    *,
    token: str = "",
    token_file: Path | None = None,
    timeout: timedelta = timedelta(seconds=5),
    on_token: Callable[[str], None] = lambda token: None,
    kinds: Sequence[str] = (),
) -> AsyncIterator[tuple[HttpAdapterApi, scripted_server.ScriptedServer]]:
    async with scripted_server.ScriptedServer(script) as server:
        client = connect(
            endpoint=server.url,
            user_agent="hyperfleet-adapter/1.2.3",
            keep_alive=timedelta(seconds=30),
            token=token,
            token_file=token_file,
            on_token=on_token,
        )
        api = HttpAdapterApi(client, timeout=timeout, kinds=kinds)
        try:
            yield api, server
        finally:
            await api.close()


async def test_the_path_of_the_event_saves_a_request() -> None:
    script = routes({"clusters/c1": document(CLUSTER), "clusters/c1/statuses": document(NOTHING)})
    async with connected(script) as (api, server):
        found = await api.get(ResourceRef("c1", f"{ROOT}/clusters/c1"))

        assert found is not None
        assert server.paths == [
            f"GET {ROOT}/clusters/c1?statuses=true",
            f"GET {ROOT}/clusters/c1/statuses?page=1&size=100",
        ]


@pytest.mark.parametrize("href", ["", f"{ROOT}/clusters/c1"])
async def test_a_server_that_includes_the_reports_is_read_once(href: str) -> None:
    report = {"adapter": "dns", "observed_generation": 1, "conditions": []}
    included = document({**CLUSTER, "statuses": [report]})
    async with connected(routes({"clusters/c1": included, "resources/c1": included})) as (api, server):
        found = await api.get(ResourceRef("c1", href))

        assert found is not None
        assert [each.adapter for each in found.reports] == ["dns"]
        assert len(server.paths) == 1


async def test_a_resource_without_reports_is_read_once_too() -> None:
    async with connected(routes({"resources/c1": document({**CLUSTER, "statuses": []})})) as (api, server):
        found = await api.get(ResourceRef("c1"))

        assert found is not None
        assert server.paths == [f"GET {ROOT}/resources/c1?statuses=true"]


async def test_a_server_that_rejects_the_parameter_gets_it_once() -> None:
    def script(request: ReceivedRequest) -> ScriptedResponse:
        if request.path.endswith("?statuses=true"):
            return problem(400, detail="statuses: unknown parameter")
        return document(NOTHING if "statuses" in request.path else CLUSTER)

    async with connected(script) as (api, server):
        for _ in range(2):
            assert await api.get(ResourceRef("c1")) is not None

        assert [path for path in server.paths if "=true" in path] == [f"GET {ROOT}/resources/c1?statuses=true"]
        assert len(server.paths) == 5


async def test_a_rejected_resource_does_not_end_reading_with_reports() -> None:
    rejected = problem(400, detail="id: expected a UUID")
    async with connected(routes({"resources/c1": rejected, "resources/c2": document(CLUSTER)})) as (api, server):
        with pytest.raises(ApiUnavailable, match="expected a UUID"):
            await api.get(ResourceRef("c1"))
        with pytest.raises(ApiUnavailable):
            await api.get(ResourceRef("c2"))

        assert f"GET {ROOT}/resources/c2?statuses=true" in server.paths


async def test_a_resource_of_any_kind_is_found_by_its_id() -> None:
    nested = {**CLUSTER, "id": "n1", "kind": "NodePool", "href": f"{ROOT}/clusters/c1/nodepools/n1"}
    script = routes({"resources/n1": document(nested), "clusters/c1/nodepools/n1/statuses": document(NOTHING)})
    async with connected(script) as (api, _):
        found = await api.get(ResourceRef("n1"))

        assert found is not None
        assert found.href == f"{ROOT}/clusters/c1/nodepools/n1"


async def test_a_server_without_lookup_by_id_is_asked_by_kind_from_then_on() -> None:
    script = routes({"clusters/c1": document(CLUSTER), "clusters/c1/statuses": document(NOTHING)})
    async with connected(script) as (api, server):
        for _ in range(2):
            assert await api.get(ResourceRef("c1", kind="cluster")) is not None

        lookups = [path.removesuffix("?statuses=true") for path in server.paths if "/statuses" not in path]
        assert lookups == [f"GET {ROOT}/resources/c1", f"GET {ROOT}/clusters/c1", f"GET {ROOT}/clusters/c1"]


async def test_without_a_kind_in_the_event_each_known_kind_is_tried() -> None:
    script = routes(
        {
            "nodepools/c1": GONE,
            "nodepools/o1": GONE,
            "clusters/o1": GONE,
            "clusters/c1": document(CLUSTER),
            "clusters/c1/statuses": document(NOTHING),
        }
    )
    async with connected(script, kinds=["NodePool", "Cluster"]) as (api, _):
        found = await api.get(ResourceRef("c1"))
        foreign = await api.get(ResourceRef("o1"))

        assert found is not None
        assert foreign is None


@pytest.mark.parametrize("kind", ["../../admin", "a b", "a?b", "a#b"])
async def test_a_kind_that_is_not_a_safe_segment_is_never_requested(kind: str) -> None:
    async with connected(routes({})) as (api, server):
        with pytest.raises(ApiUnavailable):
            await api.get(ResourceRef("c1", kind=kind))

        assert server.paths == [f"GET {ROOT}/resources/c1?statuses=true"]


@pytest.mark.parametrize(("kind", "plural"), [("Policy", "policies"), ("Gateway", "gateways"), ("Box", "boxes")])
async def test_kinds_have_regular_plurals(kind: str, plural: str) -> None:
    resource = {**CLUSTER, "kind": kind, "href": ""}
    script = routes({f"{plural}/c1": document(resource), f"{plural}/c1/statuses": document(NOTHING)})
    async with connected(script) as (api, _):
        found = await api.get(ResourceRef("c1", kind=kind))

        assert found is not None
        assert found.href == f"{ROOT}/{plural}/c1"


async def test_a_wrong_endpoint_does_not_make_resources_gone() -> None:
    async with connected(routes({})) as (api, _):
        with pytest.raises(ApiUnavailable, match="is endpoint right") as caught:
            await api.get(ResourceRef("c1", kind="Cluster"))

        assert caught.value.needs_operator


async def test_a_404_of_a_proxy_does_not_make_resources_gone() -> None:
    async with connected(lambda request: ScriptedResponse(404, b"default backend - 404")) as (api, _):
        with pytest.raises(ApiUnavailable):
            await api.get(ResourceRef("c1"))
        await api.probe("Cluster")


async def test_a_404_of_the_api_means_that_the_resource_is_gone() -> None:
    async with connected(lambda request: GONE) as (api, _):
        assert await api.get(ResourceRef("c1")) is None
        assert await api.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.GONE)


async def test_a_resource_removed_between_the_requests_is_gone() -> None:
    script = routes({"resources/c1": document(CLUSTER), "clusters/c1/statuses": GONE})
    async with connected(script) as (api, _):
        assert await api.get(ResourceRef("c1")) is None


async def test_reports_are_read_page_by_page() -> None:
    def script(request: ReceivedRequest) -> ScriptedResponse:
        if "/statuses" not in request.path:
            return document(CLUSTER)
        number = int(request.path.partition("page=")[2].partition("&")[0])
        report = {"adapter": f"a{number}", "observed_generation": 1, "conditions": []}
        return document({"items": [report], "total": 3})

    async with connected(script) as (api, _):
        found = await api.get(ResourceRef("c1"))

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
async def test_a_status_not_about_the_resource_is_unavailable(status: int, needs_operator: bool) -> None:
    async with connected(lambda request: problem(status, detail="that is so")) as (api, _):
        for call in (api.probe("Cluster"), api.get(ResourceRef("c1")), api.report(RESOURCE, REPORT)):
            with pytest.raises(ApiUnavailable, match=str(status)) as caught:
                await call
            assert caught.value.needs_operator is needs_operator


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_passed_on(status: int) -> None:
    async with connected(lambda request: ScriptedResponse(status, headers={"Retry-After": "7"})) as (api, server):
        for call in (api.probe("Cluster"), api.get(ResourceRef("c1")), api.report(RESOURCE, REPORT)):
            with pytest.raises(ApiUnavailable) as caught:
                await call

            assert caught.value.retry_after == timedelta(seconds=7)

        assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 409, 413, 415, 422])
async def test_a_rejected_report_is_refused_with_the_reason(status: int) -> None:
    async with connected(lambda request: problem(status, detail="it is so")) as (api, _):
        result = await api.report(RESOURCE, REPORT)

        assert result.outcome is ReportOutcome.REFUSED
        assert re.fullmatch(rf"{status} .*: it is so", str(result.reason))


async def test_an_older_server_gets_a_post() -> None:
    def script(request: ReceivedRequest) -> ScriptedResponse:
        return ScriptedResponse(201) if request.method == "POST" else problem(405)

    async with connected(script) as (api, server):
        for _ in range(2):
            assert await api.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.STORED)

        assert [each.method for each in server.requests] == ["PUT", "POST", "POST"]


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>Welcome"), (200, b""), (200, b"[]"), (202, b"{}")])
async def test_an_implausible_response_to_a_report_is_unavailable(status: int, body: bytes) -> None:
    async with connected(lambda request: ScriptedResponse(status, body)) as (api, _):
        with pytest.raises(ApiUnavailable, match="is endpoint right") as caught:
            await api.report(RESOURCE, REPORT)

        assert caught.value.needs_operator


@pytest.mark.parametrize(("status", "body"), [(201, b""), (201, b"{}"), (200, b'{"adapter": "dns"}')])
async def test_a_report_is_stored_if_the_api_says_so(status: int, body: bytes) -> None:
    async with connected(lambda request: ScriptedResponse(status, body)) as (api, _):
        assert await api.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.STORED)


async def test_an_unknown_discard_reason_is_none() -> None:
    async with connected(lambda request: ScriptedResponse(204, headers={"Discard-Reason": "mood"})) as (api, _):
        assert await api.report(RESOURCE, REPORT) == ReportResult(ReportOutcome.DISCARDED)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"id": "c1"}', b"\xff"])
async def test_a_malformed_response_is_unavailable(body: bytes) -> None:
    async with connected(lambda request: ScriptedResponse(200, body)) as (api, _):
        with pytest.raises(ApiUnavailable, match="cannot be read"):
            await api.get(ResourceRef("c1"))


async def test_a_server_that_does_not_respond_in_time_is_unavailable() -> None:
    released = asyncio.Event()

    async def wait(request: ReceivedRequest) -> ScriptedResponse:
        await released.wait()
        return ScriptedResponse()

    async with connected(wait, timeout=timedelta(milliseconds=20)) as (api, _):
        with pytest.raises(ApiUnavailable, match=r"no complete response within 0\.02 s"):
            await api.get(ResourceRef("c1"))
        released.set()


async def test_the_token_is_sent_and_never_in_an_error() -> None:
    def script(request: ReceivedRequest) -> ScriptedResponse:
        return problem(500, detail=f"you sent {request.headers['Authorization']}")

    tokens: list[str] = []
    async with connected(script, token="s3cr3t-token", on_token=tokens.append) as (api, server):
        with pytest.raises(ApiUnavailable) as caught:
            await api.get(ResourceRef("c1"))

        assert server.requests[0].headers["Authorization"] == "Bearer s3cr3t-token"
        assert server.requests[0].headers["User-Agent"] == "hyperfleet-adapter/1.2.3"
        assert "s3cr3t" not in str(caught.value)
        assert tokens == ["s3cr3t-token"]


async def test_a_token_file_is_read_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with connected(lambda request: GONE, token_file=file) as (api, server):
        await api.get(ResourceRef("c1"))
        file.write_text("second\n")
        await api.get(ResourceRef("c1"))

        sent = [each.headers["Authorization"] for each in server.requests]
        assert sent == ["Bearer first", "Bearer second"]


async def test_a_token_that_was_replaced_meanwhile_needs_no_operator(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")

    def script(request: ReceivedRequest) -> ScriptedResponse:
        file.write_text("second")
        return problem(401)

    async with connected(script, token_file=file) as (api, _):
        with pytest.raises(ApiUnavailable) as caught:
            await api.get(ResourceRef("c1"))

        assert not caught.value.needs_operator


@pytest.mark.parametrize("content", [None, "", "two words", "ä"])
async def test_an_invalid_token_file_needs_an_operator(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    async with connected(lambda request: ScriptedResponse(), token_file=file) as (api, _):
        with pytest.raises(ApiUnavailable, match="token_file") as caught:
            await api.get(ResourceRef("c1"))

        assert caught.value.needs_operator


async def test_an_unreadable_ca_file_needs_an_operator(tmp_path: Path) -> None:
    client = connect(
        endpoint="https://127.0.0.1:1",
        user_agent="test",
        keep_alive=timedelta(seconds=30),
        ca_file=tmp_path / "missing.pem",
    )

    with pytest.raises(ApiUnavailable, match="ca_file") as caught:
        await HttpAdapterApi(client, timeout=timedelta(seconds=1)).get(ResourceRef("c1"))

    assert caught.value.needs_operator

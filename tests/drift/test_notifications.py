"""Kubernetes Events and the webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Unpack

import pytest

from sentinel.core.drift.conflicts import Conflict, FieldPath
from sentinel.core.drift.debounce import Burst
from sentinel.core.drift.judgement import Actor, Change, ChangeOp, Judgement, Reason
from sentinel.core.drift.schedule import Acknowledged, Batch
from sentinel.core.drift.trigger import DriftMode
from sentinel.core.json import Json
from sentinel.drift.settings import ClusterIdentity
from sentinel.drift.sidecar.kube_events import DriftEvents
from sentinel.drift.sidecar.report import ConflictFound, FailureClass, Judged, Triggered, TriggerFailed
from sentinel.drift.sidecar.webhook import ATTEMPTS, MAX_CHANGES, MAX_WAITING, Webhook
from sentinel.ports.kube import KubeUnavailable
from sentinel.ports.task_http import HttpFailure, HttpResponse, RequestOptions, redact_url
from sentinel.runtime.kube.events import EVENT, EventRecorder
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.secrets import Secret
from sentinel.testing.kube.kinds import CONFIG_MAP
from sentinel.testing.loop import SimulatedClock, simulated
from sentinel.testing.task_http import FakeHttp
from tests.drift.harness import BAO, PROD, DriftHarness, until, with_harness

URL = "https://chat.example/hooks/T0P-S3CRET?token=abc"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class UnreachableHttp(FakeHttp):
    """Fails as the real client does: its error has the URL without user and query."""

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        with suppress(HttpFailure):
            await super().request(method, url, **options)
        raise HttpFailure(f"{method} {redact_url(url)}: connection refused")


def judged(name: str = BAO, changes: int = 1) -> Judged:
    judgement = Judgement(
        reason=Reason.OWNED_FIELD_CHANGED,
        kind="ConfigMap",
        namespace=PROD,
        name=name,
        rule="owned_field_changed",
        changes=tuple(Change(f"/data/{number}", ChangeOp.CHANGE) for number in range(changes)),
        actor=Actor("kubectl-edit", "Update", NOW),
    )
    return Judged(judgement, DriftMode.ENFORCE, is_maintenance=False)


def webhook(http: FakeHttp) -> Webhook:
    return Webhook(
        http=http,
        url=Secret(URL),
        cluster=ClusterIdentity(PROD, BAO),
        clock=SimulatedClock(),
        log=get_logger("test"),
        jitter=lambda: 0.5,
    )


def bodies(http: FakeHttp) -> list[Mapping[str, Json]]:
    found = [request.json() for request in http.requests]
    return [body for body in found if isinstance(body, dict)]


@with_harness
async def test_drift_and_its_correction_are_events_of_the_cluster(harness: DriftHarness) -> None:
    recorder = EventRecorder(
        api=harness.operator,
        component="openbao-sentinel",
        instance="pod",
        clock=SimulatedClock(),
        log=get_logger("test"),
    )
    events = DriftEvents(recorder, cluster=lambda: harness.sidecars[0].sidecar.reference)
    await harness.started(observers=[events], loops=[recorder.run])
    harness.edit(CONFIG_MAP, {"data": {"evil": "password"}})
    await harness.until_triggered()
    await harness.restore()

    await until(lambda: len(harness.server.objects(EVENT)) == 2)

    found = {str(each["reason"]): each for each in harness.server.objects(EVENT)}
    assert found["DriftDetected"]["message"] == (
        f"ConfigMap/{PROD}/{BAO}: +1 ~0 -0 by kubectl-edit (Update) (unowned_added): /data/evil"
    )
    assert found["DriftDetected"]["type"] == "Warning"
    assert found["DriftCorrected"]["message"] == f"the operator restored ConfigMap/{PROD}/{BAO}"
    involved = found["DriftDetected"]["involvedObject"]
    assert isinstance(involved, dict)
    assert involved["kind"] == "OpenBaoCluster"
    assert involved["uid"]


@with_harness
async def test_a_conflict_is_an_event_that_names_the_manager(harness: DriftHarness) -> None:
    recorder = EventRecorder(
        api=harness.operator, component="s", instance="p", clock=SimulatedClock(), log=get_logger("test")
    )
    sidecar = await harness.started(loops=[recorder.run])
    events = DriftEvents(recorder, cluster=lambda: sidecar.sidecar.reference)
    field = FieldPath(f"ConfigMap/{PROD}/{BAO}", "/data/0")

    events.conflict_found(ConflictFound(Conflict(field, 4, NOW, is_new=True), judged().judgement))

    await until(lambda: harness.server.objects(EVENT))
    [event] = harness.server.objects(EVENT)
    assert event["reason"] == "DriftConflict"
    assert "conflict with manager kubectl-edit about /data/0 of ConfigMap/prod/bao" in str(event["message"])


@with_harness
async def test_the_webhook_gets_a_summary_of_each_drift(harness: DriftHarness) -> None:
    http = FakeHttp()
    http.answer("POST", URL, status=204)
    hook = webhook(http)
    await harness.started(observers=[hook], loops=[hook.run])

    harness.edit(CONFIG_MAP, {"data": {"evil": "password"}})
    await harness.until_triggered()
    await harness.restore()
    await until(lambda: len(http.requests) == 2)

    detected, corrected = bodies(http)
    assert detected["event"] == "drift.detected"
    assert detected["cluster"] == {"namespace": PROD, "name": BAO}
    assert detected["resource"] == f"ConfigMap/{PROD}/{BAO}"
    assert detected["reason"] == "unowned_added"
    assert detected["counts"] == {"added": 1, "changed": 0, "removed": 0}
    assert detected["changes"] == [{"path": "/data/evil", "op": "add"}]
    assert isinstance(detected["actor"], dict)
    assert detected["actor"]["manager"] == "kubectl-edit"
    assert detected["mode"] == "enforce"
    assert b'"password"' not in http.requests[0].body
    assert corrected["event"] == "drift.corrected"
    assert corrected["resources"] == [f"ConfigMap/{PROD}/{BAO}"]


@simulated
async def test_a_report_to_the_webhook_is_bounded() -> None:
    http = FakeHttp()
    http.answer("POST", URL)
    hook = webhook(http)

    hook.judged(judged(changes=1000))
    await run_until_sent(hook, http, 1)

    [body] = bodies(http)
    assert isinstance(body["changes"], list)
    assert len(body["changes"]) == MAX_CHANGES
    assert body["counts"] == {"added": 0, "changed": 1000, "removed": 0}


@simulated
async def test_a_report_that_is_refused_for_now_is_sent_again() -> None:
    http = FakeHttp()
    for status in (503, 429, 200):
        http.answer("POST", URL, status=status)
    hook = webhook(http)

    hook.judged(judged())
    await run_until_sent(hook, http, 3)

    assert hook.dropped == 0


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (404, 1), (500, ATTEMPTS)])
@simulated
async def test_a_report_that_is_refused_for_good_is_dropped(status: int, attempts: int) -> None:
    http = FakeHttp()
    http.answer("POST", URL, status=status)
    hook = webhook(http)

    hook.judged(judged())
    await run_until_sent(hook, http, attempts)

    assert hook.dropped == 1
    assert len(http.requests) == attempts


@simulated
async def test_the_oldest_of_too_many_reports_are_dropped() -> None:
    http = FakeHttp()
    http.answer("POST", URL)
    hook = webhook(http)
    for number in range(MAX_WAITING + 5):
        hook.judged(judged(str(number)))

    await run_until_sent(hook, http, MAX_WAITING)

    assert hook.dropped == 5
    assert bodies(http)[0]["resource"] == f"ConfigMap/{PROD}/5"


def test_the_url_of_the_webhook_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    @simulated
    async def fail(http: FakeHttp) -> None:
        hook = webhook(http)
        hook.judged(judged())
        await run_until_sent(hook, http, ATTEMPTS)

    fail(FakeHttp())  # it has no response, and its error quotes the URL
    fail(UnreachableHttp())

    logged = " ".join(str(vars(record)) for record in caplog.records)
    assert "webhook.dropped" in logged
    assert "S3CRET" not in logged
    assert "abc" not in logged


@simulated
async def test_what_needs_no_attention_is_neither_posted_nor_recorded() -> None:
    http = FakeHttp()
    hook = webhook(http)
    batch = Batch(Burst(NOW, NOW, ("a",)))

    hook.triggered(Triggered("t", batch, is_repeated=False, latency=timedelta(0)))
    hook.trigger_failed(TriggerFailed(FailureClass.CONFLICT, KubeUnavailable(""), 1, timedelta(0)))
    hook.relisted()
    await run_until_sent(hook, http, 0)

    assert http.requests == []


@simulated
async def test_a_conflict_is_posted_with_its_manager() -> None:
    http = FakeHttp()
    http.answer("POST", URL)
    hook = webhook(http)
    field = FieldPath(f"ConfigMap/{PROD}/{BAO}", "/data/0")

    hook.conflict_found(ConflictFound(Conflict(field, 4, NOW, is_new=True), judged().judgement))
    hook.acknowledged(Acknowledged(Batch(Burst(NOW, NOW, ("a",))), timedelta(0)))
    await run_until_sent(hook, http, 2)

    assert bodies(http)[0]["summary"] == "conflict with manager kubectl-edit"


async def run_until_sent(hook: Webhook, http: FakeHttp, requests: int) -> None:
    """Run the webhook until it has sent so much, and a little longer."""
    stopping = Stopping()
    running = asyncio.create_task(hook.run(stopping))
    await until(lambda: len(http.requests) >= requests)
    await asyncio.sleep(200)
    stopping.request()
    await running

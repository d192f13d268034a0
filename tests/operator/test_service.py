"""SentinelConfigs that come, change and go while an operator runs."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from functools import partial

import pytest

from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.operator import manifests
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.runtime.secrets import KEPT
from tests.operator.harness import ALL, NAMESPACE, OperatorHarness, config_spec

EVENT = KubeKind(group="", version="v1", kind="Event", plural="events")
SECRET = KubeKind(group="", version="v1", kind="Secret", plural="secrets")
WITH_SECRET: Json = {"url": "http://x.example", "tokenSecretRef": {"name": "api"}}


def region(name: str) -> Json:
    return {"matchLabels": {"region": name}}


def encode(text: str) -> str:
    """As a Secret holds it."""
    return base64.b64encode(text.encode()).decode()


def create_secret(harness: OperatorHarness, text: str = "secret") -> None:
    """Create the Secret that `WITH_SECRET` names, with this token."""
    harness.server.create(
        SECRET, {"metadata": {"name": "api", "namespace": NAMESPACE}, "data": {"token": encode(text)}}
    )


def events(harness: OperatorHarness) -> list[KubeObject]:
    """The Kubernetes Events, in order."""
    found = harness.server.objects(EVENT, namespace=NAMESPACE)
    return sorted(found, key=lambda event: int(objects.resource_version(event)))


def event_reasons(harness: OperatorHarness) -> list[str]:
    return [str(event["reason"]) for event in events(harness)]


async def test_a_sentinel_config_gets_a_pulse(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.put("cls-2", generation=3)
    harness.start()

    harness.create("all-clusters")
    await harness.until(lambda: harness.status("all-clusters").get("published") == 2)

    assert sorted(harness.ids()) == ["cls-1", "cls-2"]
    assert harness.reasons("all-clusters") == {
        "Accepted": "True/Valid",
        "Running": "True/Polling",
        "Degraded": "False/Healthy",
    }
    status = harness.status("all-clusters")
    assert (status["observedGeneration"], status["resources"]) == (1, 2)
    await harness.until(lambda: event_reasons(harness) == ["Started"])


async def test_the_data_is_the_resource_and_the_reason(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters")

    harness.start()
    await harness.until(lambda: harness.published)

    assert harness.published[0].data == {
        "resourceType": "clusters",
        "resourceId": "cls-1",
        "reason": "generation-changed",
    }


async def test_an_edit_reloads_without_repeating_an_event(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.ids() == ["cls-1"])

    harness.edit("all-clusters", backoffNotReady="20s")
    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)
    await harness.cycles(2, **ALL)

    assert harness.ids() == ["cls-1"]
    assert harness.metric("events_published_total", **ALL) == 1
    await harness.until(lambda: event_reasons(harness) == ["Started", "Reloaded"])
    await harness.until(lambda: harness.status("all-clusters").get("observedGeneration") == 2)


async def test_a_reload_says_what_changed(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Running") == "True/Polling")

    harness.edit("all-clusters", backoffReady="1h", pageSize=50)
    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)

    await harness.until(lambda: len(events(harness)) == 2)
    assert events(harness)[-1]["message"] == "spec.backoffReady: 30m -> 1h, spec.pageSize: 100 -> 50"


async def test_a_reload_says_that_masked_secrets_changed(harness: OperatorHarness) -> None:
    await harness.poll_all()
    harness.edit("all-clusters", broker={"url": "amqp://one:secret1@broker.example"})
    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)

    harness.edit("all-clusters", broker={"url": "amqp://two:secret2@broker.example"})
    await harness.until(lambda: len(events(harness)) == 3)

    messages = [event["message"] for event in events(harness)[1:]]
    assert messages == [
        "spec.broker.url: amqp://broker.example -> amqp://***@broker.example",
        "spec.broker: other credentials",
    ]


async def test_a_changed_label_is_no_reload(harness: OperatorHarness) -> None:
    await harness.poll_all()

    harness.server.merge_patch(
        SENTINEL_CONFIG, "all-clusters", {"metadata": {"labels": {"team": "fleet"}}}, namespace=NAMESPACE
    )
    await harness.cycles(3, **ALL)

    assert harness.metric("config_reloads_total", **ALL) == 0


async def test_a_changed_broker_is_drained_first(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.publish_delay = 0.3
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.publishers)
    await harness.until(lambda: harness.publishers[0].has_started)

    harness.edit("all-clusters", broker={"topic": "other"})
    await harness.until(lambda: len(harness.publishers) == 2)
    await harness.cycles(2, **ALL)

    assert [(event.exchange, event.resource_id) for event in harness.published] == [("events", "cls-1")]
    assert harness.publishers[0].is_closed


async def test_an_invalid_edit_leaves_the_pulse_running(harness: OperatorHarness) -> None:
    await harness.poll_all()

    harness.edit("all-clusters", pollInterval="often")
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")
    await harness.cycles(2, **ALL)

    assert harness.reasons("all-clusters").get("Running") == "True/Polling"
    assert (harness.metric("api_errors_total", operation="config_load", **ALL) or 0) >= 1
    await harness.until(lambda: "Invalid" in event_reasons(harness))

    harness.edit("all-clusters", pollInterval="150ms")
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "True/Valid")


async def test_an_invalid_config_says_why_it_does_not_run(harness: OperatorHarness) -> None:
    harness.create("all-clusters", hyperfleetAPI={})
    harness.start()

    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")

    conditions = harness.status("all-clusters")["conditions"]
    assert "spec.hyperfleetAPI.url: required, but missing" in conditions[0]["message"]
    assert harness.reasons("all-clusters").get("Running") == "False/Stopped"
    unknown = {"shard": "unknown", "resource_type": "unknown"}
    assert (harness.metric("api_errors_total", operation="config_load", **unknown) or 0) >= 1


async def test_a_deleted_config_stops_its_pulse(harness: OperatorHarness) -> None:
    await harness.poll_all()

    harness.delete("all-clusters")
    await harness.until(lambda: harness.publishers[0].is_closed)

    await harness.until(lambda: event_reasons(harness) == ["Started", "Stopped"])
    assert harness.metric("events_published_total", **ALL) is None


async def test_a_config_created_again_starts_from_the_beginning(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.ids() == ["cls-1"])

    harness.delete("all-clusters")
    harness.create("all-clusters")

    await harness.until(lambda: harness.ids() == ["cls-1", "cls-1"])


async def test_the_younger_of_two_duplicates_waits(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("b-older")
    harness.start()
    await harness.until(lambda: harness.ids() == ["cls-1"])

    harness.create("a-younger", shardSelector={"matchLabels": {}})
    await harness.until(lambda: harness.reasons("a-younger").get("Accepted") == "False/Duplicate")
    assert harness.reasons("a-younger").get("Running") == "False/Stopped"
    assert harness.ids() == ["cls-1"]

    harness.delete("b-older")
    await harness.until(lambda: harness.reasons("a-younger").get("Running") == "True/Polling")
    assert harness.reasons("a-younger").get("Accepted") == "True/Valid"


async def test_a_selector_written_in_another_way_is_a_duplicate(harness: OperatorHarness) -> None:
    harness.create("older", shardSelector=region("east"))
    harness.create(
        "younger",
        shardSelector={"matchExpressions": [{"key": "region", "operator": "In", "values": ["east"]}]},
    )
    harness.start()

    await harness.until(lambda: harness.reasons("younger").get("Accepted") == "False/Duplicate")

    await harness.until(lambda: harness.reasons("older").get("Running") == "True/Polling")


async def test_two_configs_may_swap_their_shards(harness: OperatorHarness) -> None:
    east, west = region("east"), region("west")
    harness.create("one", shardSelector=east)
    harness.create("two", shardSelector=west)
    harness.start()
    await harness.cycles(1, shard="region=east", resource_type="clusters")
    await harness.cycles(1, shard="region=west", resource_type="clusters")

    harness.edit("one", shardSelector=west)
    harness.edit("two", shardSelector=east)

    def have_swapped() -> bool:
        return all(
            harness.status(name).get("observedGeneration") == 2
            and harness.reasons(name).get("Running") == "True/Polling"
            for name in ("one", "two")
        )

    await harness.until(have_swapped)
    await harness.until(lambda: "Stopped" in event_reasons(harness))
    await harness.cycles(1, shard="region=east", resource_type="clusters")
    await harness.cycles(1, shard="region=west", resource_type="clusters")


async def test_a_named_config_that_is_absent_is_not_ready(harness: OperatorHarness) -> None:
    harness.start(name="clusters")
    harness.create("others", resourceType="nodepools")
    await harness.until(lambda: "sentinelconfig" in harness.health["one"].readiness().checks)

    await harness.until(
        lambda: (
            harness.health["one"].readiness().checks["sentinelconfig"].message
            == f"no SentinelConfig clusters in the namespace {NAMESPACE}"
        )
    )
    assert harness.health["one"].liveness().is_ok

    harness.create("clusters")
    await harness.cycles(1, **ALL)
    await harness.until(lambda: harness.health["one"].readiness().is_ok)
    assert harness.reasons("others") == {}


async def test_a_missing_secret_is_tried_again(harness: OperatorHarness) -> None:
    harness.create("all-clusters", hyperfleetAPI=WITH_SECRET)
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")

    create_secret(harness)

    await harness.until(lambda: harness.reasons("all-clusters").get("Running") == "True/Polling")


async def test_a_rotated_secret_reloads(harness: OperatorHarness) -> None:
    create_secret(harness)
    harness.create("all-clusters", hyperfleetAPI=WITH_SECRET)
    harness.start()
    await harness.cycles(1, **ALL)

    harness.server.merge_patch(SECRET, "api", {"data": {"token": "b3RoZXI="}}, namespace=NAMESPACE)

    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)
    await harness.until(lambda: len(events(harness)) == 2)
    assert events(harness)[-1]["message"] == "spec.hyperfleetAPI: another token"


async def test_a_rotated_secret_is_forgotten_after_a_while(harness: OperatorHarness) -> None:
    create_secret(harness, "token-one")
    harness.create("all-clusters", hyperfleetAPI=WITH_SECRET)
    harness.start()
    await harness.cycles(1, **ALL)

    harness.server.merge_patch(SECRET, "api", {"data": {"token": encode("token-two")}}, namespace=NAMESPACE)
    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)
    assert harness.redactor.redact("token-one token-two") == "*** ***"

    harness.seconds = KEPT.total_seconds() + 1
    await harness.until(lambda: harness.redactor.redact("token-one token-two") == "token-one ***")


async def test_the_secrets_of_a_running_pulse_are_never_forgotten(harness: OperatorHarness) -> None:
    url = "amqp://user:password-{}@broker.example"
    broker: dict[str, Json] = {"type": "rabbitmq", "topic": "events"}
    harness.create("all-clusters", broker={**broker, "url": url.format("one")})
    harness.start()
    await harness.cycles(1, **ALL)

    def has_observed(generation: int) -> bool:
        return bool(harness.status("all-clusters").get("observedGeneration") == generation)

    for attempt in range(3):
        harness.edit("all-clusters", pollInterval=f"often {attempt}", broker={"url": url.format("two")})
        await harness.until(partial(has_observed, attempt + 2))
        harness.seconds += KEPT.total_seconds() + 1

    assert harness.redactor.redact("password-one password-two") == "*** ***"

    def are_forgotten() -> bool:
        harness.seconds += KEPT.total_seconds() + 1
        harness.redactor.set_in_use("another", ["password-three"])
        return harness.redactor.redact("password-one password-two") == "password-one password-two"

    harness.delete("all-clusters")
    await harness.until(are_forgotten)


async def test_pulses_go_on_while_the_api_server_is_away(harness: OperatorHarness) -> None:
    await harness.poll_all()

    harness.disconnect()
    await harness.cycles(3, **ALL)
    await harness.server.accept_connections()

    harness.edit("all-clusters", backoffReady="1h")
    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)


async def test_a_deletion_that_no_watch_saw_stops_the_pulse(harness: OperatorHarness) -> None:
    await harness.poll_all()

    harness.disconnect()
    harness.delete("all-clusters")
    harness.server.expire_versions()
    await harness.server.accept_connections()

    await harness.until(lambda: harness.publishers[0].is_closed)


async def test_numbers_alone_are_not_written_at_every_poll(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.server.clear_requests()
    await harness.cycles(10, **ALL)

    assert [request for request in harness.server.requests if request.verb == "patch"] == []


def overwrite_status(harness: OperatorHarness, name: str) -> None:
    status: Json = {"observedGeneration": 7, "conditions": []}
    harness.server.merge_patch(
        SENTINEL_CONFIG, name, {"status": status}, namespace=NAMESPACE, subresource="status"
    )


async def test_an_overwritten_status_is_restored(harness: OperatorHarness) -> None:
    harness.create("all-clusters", pollInterval="often")
    harness.start(retry=timedelta(hours=1), status_interval=timedelta(milliseconds=300))
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")
    written = harness.status("all-clusters")

    overwrite_status(harness, "all-clusters")

    await harness.until(lambda: harness.status("all-clusters") == written)


async def test_a_status_overwritten_again_and_again_is_written_seldom(harness: OperatorHarness) -> None:
    harness.create("all-clusters", pollInterval="often")
    harness.create("clock", resourceType="nodepools")
    harness.start(retry=timedelta(hours=1))
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")
    await harness.until(lambda: harness.reasons("clock").get("Degraded") == "False/Healthy")
    harness.server.clear_requests()

    for _ in range(5):
        overwrite_status(harness, "all-clusters")
        await harness.cycles(1, shard="all", resource_type="nodepools")

    assert [request for request in harness.server.requests if request.verb == "patch"] == []


async def test_a_restarted_operator_keeps_transition_times(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")
    await harness.stop()
    old = "2020-01-01T00:00:00Z"
    written = harness.status("all-clusters")["conditions"]
    status: Json = {"conditions": [{**each, "lastTransitionTime": old} for each in written]}
    harness.server.merge_patch(
        SENTINEL_CONFIG, "all-clusters", {"status": status}, namespace=NAMESPACE, subresource="status"
    )

    harness.start("two")
    await harness.cycles(1, "two", **ALL)
    await harness.until(lambda: harness.status("all-clusters").get("published") == 0)

    assert {each["lastTransitionTime"] for each in harness.status("all-clusters")["conditions"]} == {old}


def test_the_harness_spec_is_valid() -> None:
    assert not manifests.read_object(
        {
            "apiVersion": "hyperfleet.redhat.com/v1alpha1",
            "kind": "SentinelConfig",
            "metadata": {"name": "x"},
            "spec": config_spec(),
        }
    ).problems


async def test_a_broker_that_refuses_everything_is_an_invalid_edit(harness: OperatorHarness) -> None:
    await harness.poll_all()

    harness.refused_exchange = "other"
    harness.edit("all-clusters", broker={"topic": "other"})
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")
    await harness.cycles(2, **ALL)

    assert harness.reasons("all-clusters").get("Running") == "True/Polling"
    assert not harness.publishers[0].is_closed
    assert harness.publishers[1].is_closed

    harness.refused_exchange = ""
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "True/Valid")
    await harness.until(lambda: harness.publishers[0].is_closed)


async def test_a_publisher_that_crashes_while_it_connects_is_closed(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.crashing_exchange = "broken"
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.edit("all-clusters", broker={"exchange": "broken"})
    await harness.until(lambda: len(harness.publishers) >= 3)  # the edit is tried again

    running, crashed, *_ = harness.publishers
    assert (running.is_closed, crashed.is_closed) == (False, True)


async def test_a_broker_that_does_not_respond_is_not_waited_for(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters", resourceType="nodepools")
    harness.start()
    await harness.until(lambda: harness.publishers)

    harness.silent_exchange = "other"
    harness.edit("all-clusters", resourceType="clusters", broker={"topic": "other"})

    await harness.until(lambda: harness.ids("other") == ["cls-1"])
    assert harness.publishers[1].is_closed


async def test_a_shard_that_a_duplicate_leaves_is_taken(harness: OperatorHarness) -> None:
    east, west = region("east"), region("west")
    harness.create("oldest", shardSelector=west)
    harness.create("second", shardSelector=east)
    harness.create("third", shardSelector=east)
    harness.start()
    await harness.until(lambda: harness.reasons("third").get("Accepted") == "False/Duplicate")

    harness.edit("second", shardSelector=west)

    await harness.until(lambda: harness.reasons("second").get("Accepted") == "False/Duplicate")
    await harness.until(lambda: harness.reasons("third").get("Running") == "True/Polling")


async def start_and_hang(harness: OperatorHarness) -> None:
    """Start an operator with the SentinelConfig `slow`, whose broker does not respond to an event."""
    harness.put("cls-1")
    harness.publish_delay = 3600
    harness.create("slow")
    harness.start(drain_timeout=timedelta(seconds=2))
    await harness.until(lambda: harness.publishers and harness.publishers[0].has_started)
    harness.publish_delay = 0


async def test_a_pulse_that_stops_slowly_delays_no_other(harness: OperatorHarness) -> None:
    await start_and_hang(harness)
    harness.create("other", resourceType="nodepools")
    await harness.cycles(1, shard="all", resource_type="nodepools")

    harness.edit("slow", pageSize=50)
    await harness.until(lambda: len(harness.publishers) == 3)
    harness.edit("other", pageSize=50)
    await harness.until(
        lambda: harness.metric("config_reloads_total", shard="all", resource_type="nodepools") == 1
    )

    assert not harness.publishers[0].is_closed


async def test_a_shard_is_not_taken_before_its_old_pulse_ended(
    harness: OperatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await start_and_hang(harness)
    harness.create("next")
    await harness.until(lambda: harness.reasons("next").get("Accepted") == "False/Duplicate")

    harness.delete("slow")
    harness.edit("next", pageSize=50)
    await harness.until(lambda: len(harness.publishers) == 2)

    assert harness.publishers[0].is_closed
    await harness.until(lambda: harness.reasons("next").get("Running") == "True/Polling")
    assert "workqueue.crashed" not in caplog.text


async def test_an_operator_stops_while_a_pulse_connects(harness: OperatorHarness) -> None:
    harness.silent_exchange = "events"
    harness.create("all-clusters")
    harness.start(drain_timeout=timedelta(hours=1))
    await harness.until(lambda: harness.publishers and harness.publishers[0].opened)

    async with asyncio.timeout(60):
        code = await harness.stop()

    assert code == 0
    assert harness.publishers[0].is_closed


async def test_a_broker_that_is_away_shows_although_nothing_is_due(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.publishers[0].unavailable = "broker.example:5672: connection refused"
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "True/PublishFailed")
    message = harness.status("all-clusters")["conditions"][-1]["message"]
    harness.publishers[0].unavailable = ""

    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")
    assert message == "broker.example:5672: connection refused"


async def test_a_pulse_that_fails_shows_and_is_started_again(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.has_broken.set()
    await harness.until(lambda: harness.reasons("all-clusters").get("Running") == "False/Stopped")
    failed = harness.status("all-clusters")
    harness.has_broken.clear()

    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")
    assert harness.reasons("all-clusters").get("Running") == "True/Polling"
    assert [(each["type"], each["reason"], each["message"]) for each in failed["conditions"]] == [
        ("Accepted", "Valid", ""),
        ("Running", "Stopped", "an internal error; see the log of the operator"),
        ("Degraded", "FetchFailed", "an internal error; see the log of the operator"),
    ]
    await harness.until(lambda: event_reasons(harness) == ["Started", "Stopped", "Started"])


async def test_a_broker_that_refuses_a_restart_shows(harness: OperatorHarness) -> None:
    create_secret(harness)
    harness.create("all-clusters", hyperfleetAPI=WITH_SECRET)
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.refused_exchange = "events"
    harness.has_broken.set()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "True/PublishFailed")
    harness.server.clear_requests()
    await harness.until(lambda: len([each for each in harness.server.requests if each.verb == "get"]) == 2)

    # Reading the Secret again does not turn the status.
    assert harness.reasons("all-clusters").get("Running") == "False/Stopped"
    assert harness.status("all-clusters")["conditions"][-1]["message"] == "exchange events: refused"


async def test_a_rejected_edit_claims_no_shard(harness: OperatorHarness) -> None:
    east, west = region("east"), region("west")
    harness.create("older", shardSelector=east)
    harness.create("younger", shardSelector=west)
    harness.start()
    await harness.until(lambda: harness.reasons("younger").get("Degraded") == "False/Healthy")

    missing: Json = {"tokenSecretRef": {"name": "missing"}}
    harness.edit("older", shardSelector=west, hyperfleetAPI=missing)
    await harness.until(lambda: harness.reasons("older").get("Accepted") == "False/Invalid")
    harness.edit("younger", pageSize=50)
    await harness.until(lambda: harness.status("younger").get("observedGeneration") == 2)

    assert harness.reasons("younger").get("Running") == "True/Polling"
    assert harness.reasons("older").get("Running") == "True/Polling"


async def start_by_region(harness: OperatorHarness, **regions: str) -> None:
    """Start an operator with SentinelConfigs for these regions, oldest first, and wait until they poll."""
    for name, shard in regions.items():
        harness.put(f"cls-{shard}", labels={"region": shard})
        harness.create(name, shardSelector=region(shard), backoffNotReady="1h")
    harness.start(retry=timedelta(hours=1))
    for name in regions:
        await harness.until(partial(is_polling, harness, name))


def is_polling(harness: OperatorHarness, name: str) -> bool:
    return harness.reasons(name).get("Running") == "True/Polling"


def running_message(harness: OperatorHarness, name: str) -> object:
    return next(each["message"] for each in harness.status(name)["conditions"] if each["type"] == "Running")


async def test_a_rejected_one_keeps_its_shard_from_an_older_one(harness: OperatorHarness) -> None:
    await start_by_region(harness, older="a", younger="b")
    harness.edit("younger", pollInterval="often")
    await harness.until(lambda: harness.reasons("younger").get("Accepted") == "False/Invalid")

    harness.edit("older", shardSelector=region("b"))
    await harness.until(lambda: harness.reasons("older").get("Accepted") == "False/Duplicate")

    assert harness.status("older")["observedGeneration"] == 2
    assert running_message(harness, "older") == "younger already watches clusters (region=b)"
    assert is_polling(harness, "younger")
    await harness.until(lambda: "Stopped" in event_reasons(harness))

    harness.edit("younger", pollInterval="100ms")
    await harness.until(lambda: is_polling(harness, "older"))
    await harness.until(lambda: harness.reasons("younger").get("Accepted") == "False/Duplicate")


async def test_a_chain_that_waits_for_a_rejected_one_is_resolved(harness: OperatorHarness) -> None:
    await start_by_region(harness, one="a", two="b", three="c")
    harness.edit("three", pollInterval="often")
    await harness.until(lambda: harness.reasons("three").get("Accepted") == "False/Invalid")

    harness.edit("two", shardSelector=region("c"))
    harness.edit("one", shardSelector=region("b"))
    await harness.until(lambda: harness.reasons("two").get("Accepted") == "False/Duplicate")
    await harness.until(lambda: harness.status("one")["observedGeneration"] == 2 and is_polling(harness, "one"))

    assert is_polling(harness, "three")
    assert running_message(harness, "two") == "three already watches clusters (region=c)"
    await harness.cycles(1, shard="region=b", resource_type="clusters")


async def test_one_that_waits_for_a_shard_says_so_and_goes_on(harness: OperatorHarness) -> None:
    harness.server.create(
        SECRET, {"metadata": {"name": "mq", "namespace": NAMESPACE}, "data": {"username": encode("u")}}
    )
    await start_by_region(harness, one="a", two="b")
    harness.server.fail_next(503, count=1000, verb="get", plural="secrets")
    broker: Json = {"credentialsSecretRef": {"name": "mq"}}
    harness.edit("two", shardSelector=region("c"), broker=broker)  # it stays, because its Secret cannot be read

    harness.edit("one", shardSelector=region("b"))
    await harness.until(lambda: harness.status("one")["observedGeneration"] == 2)

    assert is_polling(harness, "one")
    assert running_message(harness, "one") == "waits until two no longer watches clusters (region=b)"
    await harness.cycles(2, shard="region=a", resource_type="clusters")

    harness.edit("two", pollInterval="often")
    await harness.until(lambda: harness.reasons("one").get("Accepted") == "False/Duplicate")


async def test_another_resource_type_is_paced_by_itself(harness: OperatorHarness) -> None:
    harness.put("same-id")
    harness.create("one", backoffNotReady="1h")
    harness.start()
    await harness.until(lambda: harness.ids() == ["same-id"])

    harness.edit("one", resourceType="nodepools")

    await harness.until(lambda: harness.ids() == ["same-id", "same-id"])


async def test_another_url_repeats_no_event(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters", backoffNotReady="1h")
    harness.start()
    await harness.until(lambda: harness.ids() == ["cls-1"])

    for reloads, url in enumerate(("https://hyperfleet.example", "https://hyperfleet.example:8443"), start=1):
        harness.edit("all-clusters", hyperfleetAPI={"url": url})
        await harness.until(partial(has_reloaded, harness, reloads))
        await harness.cycles(2, **ALL)

    assert harness.ids() == ["cls-1"]


def has_reloaded(harness: OperatorHarness, times: int) -> bool:
    return harness.metric("config_reloads_total", **ALL) == times


async def test_one_invalid_edit_is_counted_once(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start(retry=timedelta(hours=1))
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.edit("all-clusters", pollInterval="often")
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")
    await harness.cycles(3, **ALL)

    assert harness.metric("api_errors_total", operation="config_load", **ALL) == 1


async def test_an_observed_generation_comes_with_its_verdict(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Running") == "True/Polling")
    harness.edit("all-clusters", pollInterval="often")
    harness.edit("all-clusters", pollInterval="100ms")

    await harness.until(lambda: harness.status("all-clusters").get("observedGeneration") == 3)

    generations = {
        each["type"]: each["observedGeneration"] for each in harness.status("all-clusters")["conditions"]
    }
    assert (generations["Accepted"], generations["Running"]) == (3, 3)


async def test_an_api_server_away_makes_no_config_invalid(
    harness: OperatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    create_secret(harness)
    harness.create("all-clusters", hyperfleetAPI=WITH_SECRET)
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.disconnect()
    await harness.until(lambda: "config.not_read" in caplog.text)
    await harness.server.accept_connections()
    harness.edit("all-clusters", pageSize=50)
    await harness.until(lambda: harness.metric("config_reloads_total", **ALL) == 1)

    assert harness.metric("api_errors_total", operation="config_load", **ALL) == 0
    assert "Invalid" not in event_reasons(harness)


async def test_an_edit_whose_secret_cannot_be_read_shows_and_counts(harness: OperatorHarness) -> None:
    create_secret(harness)
    harness.create("all-clusters")
    harness.start(retry=timedelta(hours=1), status_interval=timedelta(milliseconds=100))
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")

    harness.server.fail_next(503, count=1000, verb="get", plural="secrets")
    harness.edit("all-clusters", hyperfleetAPI={"tokenSecretRef": {"name": "api"}})
    await harness.until(lambda: "not loaded yet" in harness.status("all-clusters")["conditions"][0]["message"])

    accepted = harness.status("all-clusters")["conditions"][0]
    assert (accepted["type"], accepted["status"], accepted["observedGeneration"]) == ("Accepted", "True", 1)
    assert accepted["message"].startswith("generation 2 is not loaded yet: ")
    failures = harness.metric("api_errors_total", operation="config_load", **ALL)
    assert failures
    # It is tried again long before the hour is over.
    await harness.until(
        lambda: (harness.metric("api_errors_total", operation="config_load", **ALL) or 0) > failures
    )


async def test_a_named_config_gives_way_to_an_older_one(harness: OperatorHarness) -> None:
    harness.create("older")
    harness.create("younger")

    harness.start(name="younger")
    await harness.until(lambda: harness.reasons("younger").get("Accepted") == "False/Duplicate")
    assert harness.reasons("older") == {}
    assert not harness.health["one"].readiness().is_ok

    harness.delete("older")
    await harness.until(lambda: harness.reasons("younger").get("Running") == "True/Polling")


async def test_sentinel_configs_that_cannot_be_listed_are_counted(harness: OperatorHarness) -> None:
    harness.server.fail_next(403, verb="list")
    harness.start()

    unknown = {"shard": "unknown", "resource_type": "unknown"}
    await harness.until(lambda: harness.metric("api_errors_total", operation="config_load", **unknown) == 1)


async def test_a_stopped_config_has_no_degraded_condition(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "False/Healthy")
    await harness.stop()
    harness.edit("all-clusters", pollInterval="often")

    harness.start("two")
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")

    assert set(harness.reasons("all-clusters")) == {"Accepted", "Running"}


async def test_a_stopped_config_has_no_poll_time_of_an_earlier_process(harness: OperatorHarness) -> None:
    harness.create("all-clusters")
    harness.start()
    await harness.until(lambda: harness.status("all-clusters").get("lastPollTime"))
    await harness.stop()
    harness.edit("all-clusters", pollInterval="often")

    harness.start("two")
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")

    assert "lastPollTime" not in harness.status("all-clusters")


async def test_the_older_of_two_takes_its_shard_back(harness: OperatorHarness) -> None:
    harness.create("older", pollInterval="often")
    harness.create("younger")
    harness.start()
    await harness.until(lambda: harness.reasons("younger").get("Running") == "True/Polling")

    harness.edit("older", pollInterval="100ms")

    await harness.until(lambda: harness.reasons("younger").get("Accepted") == "False/Duplicate")
    await harness.until(lambda: harness.reasons("older").get("Running") == "True/Polling")
    await harness.until(lambda: "Stopped" in event_reasons(harness))

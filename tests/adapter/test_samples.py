"""The sample adapters, without a broker and without an API."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sentinel.adapter import loading, samples
from sentinel.adapter import settings as adapter_settings
from sentinel.core.fleet.documents import Report, ReportedCondition
from sentinel.core.json import Json
from sentinel.testing.adapter import START, FakeHttp, make_resource, report_on, reported

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"
ZONE = "http://dns.internal/zones/c1"


def statuses(report: Report) -> tuple[str | None, ...]:
    return tuple(report.status_of(name) for name in ("Applied", "Available", "Health"))


def available(report: Report) -> ReportedCondition:
    return next(each for each in report.conditions if each.type == "Available")


@pytest.mark.parametrize(
    "spec", [{}, {"replicas": 1}, {"region": "us-east"}, {"replicas": 9, "region": "x", "other": None}, []]
)
def test_validation_accepts_any_spec_that_says_nothing_wrong(spec: Json) -> None:
    assert statuses(report_on(samples.validation, make_resource("Cluster", spec=spec))) == ("True", "True", "True")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": 0}, "replicas: expected a positive integer, got 0"),
        ({"replicas": -1}, "replicas: expected a positive integer, got -1"),
        ({"replicas": True}, "replicas: expected a positive integer, got true"),
        ({"replicas": 1.5}, "replicas: expected a positive integer, got 1.5"),
        ({"replicas": "3"}, 'replicas: expected a positive integer, got "3"'),
        ({"replicas": None}, "replicas: expected a positive integer, got null"),
        ({"region": ""}, 'region: expected the name of a region, got ""'),
        ({"region": "  "}, 'region: expected the name of a region, got "  "'),
        ({"region": None}, "region: expected the name of a region, got null"),
    ],
)
def test_validation_says_what_is_wrong_with_a_spec(spec: Json, words: str) -> None:
    report = report_on(samples.validation, make_resource("NodePool", spec=spec))

    assert statuses(report) == ("True", "False", "True")
    assert available(report).message == words


def test_validation_says_everything_that_is_wrong() -> None:
    report = report_on(samples.validation, make_resource("Cluster", spec={"replicas": 0, "region": ""}))

    assert "replicas: " in available(report).message
    assert "region: " in available(report).message


def test_dns_waits_for_validation_of_this_very_generation() -> None:
    resource = make_resource("Cluster", generation=2, reports=[reported("validation", generation=1)])

    report = report_on(samples.dns, resource)

    assert statuses(report) == ("False", "False", "True")
    assert available(report).message == "Waiting for validation to complete"


def test_dns_asks_until_the_zone_is_there() -> None:
    http = FakeHttp()
    http.answer("PUT", ZONE, status=202)
    http.answer("PUT", ZONE, status=200)
    resource = make_resource("Cluster", id="c1", spec={"replicas": 3}, reports=[reported("validation")])

    first = report_on(samples.dns, resource, http=http)
    second = report_on(samples.dns, resource, http=http)

    assert statuses(first) == ("True", "Unknown", "True")
    assert statuses(second) == ("True", "True", "True")
    assert [request.json() for request in http.requests] == [{"replicas": 3}] * 2


def test_dns_fails_in_words_when_its_service_does() -> None:
    http = FakeHttp()
    http.answer("PUT", ZONE, status=503, body=b"out of service")
    resource = make_resource("Cluster", id="c1", reports=[reported("validation")])

    report = report_on(samples.dns, resource, http=http)

    assert statuses(report) == ("True", "False", "True")
    assert available(report).message == "the DNS service answered 503: out of service"


def test_dns_takes_the_words_of_a_problem_document() -> None:
    http = FakeHttp()
    problem = b'{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"closed for repairs"}'
    http.answer("PUT", ZONE, status=503, body=problem)
    resource = make_resource("Cluster", id="c1", reports=[reported("validation")])

    report = report_on(samples.dns, resource, http=http)

    assert available(report).message == "the DNS service answered 503: closed for repairs"


@pytest.mark.parametrize("status", [204, 404])
def test_dns_removes_its_zone(status: int) -> None:
    http = FakeHttp()
    http.answer("DELETE", ZONE, status=status)

    report = report_on(samples.dns, make_resource("Cluster", id="c1", deleted_time=START), http=http)

    assert report.status_of("Finalized") == "True"


def test_dns_is_not_finalised_while_its_zone_may_be_there() -> None:
    http = FakeHttp()
    http.answer("DELETE", ZONE, status=503)

    report = report_on(samples.dns, make_resource("Cluster", id="c1", deleted_time=START), http=http)

    assert report.status_of("Finalized") != "True"


def test_dns_can_be_told_where_its_service_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNS_SERVICE", "http://127.0.0.1:5353/")
    http = FakeHttp()
    http.answer("PUT", "http://127.0.0.1:5353/zones/c1", status=200)

    report = report_on(samples.dns, make_resource("Cluster", id="c1", reports=[reported("validation")]), http=http)

    assert statuses(report) == ("True", "True", "True")


def test_provision_waits_for_dns() -> None:
    report = report_on(samples.provision, make_resource("Cluster", reports=[reported("validation")]))

    assert statuses(report) == ("False", "False", "True")


def test_provision_fails_its_first_attempt_at_each_generation_and_then_succeeds() -> None:
    def attempt(generation: int, before: Report | None) -> Report:
        known = [reported("dns", generation=generation)]
        if before is not None:
            known.append(
                reported(
                    "provision",
                    before.status_of("Available") or "False",
                    generation=before.observed_generation,
                    data=before.data,
                )
            )
        spec: Json = {"replicas": 2}
        return report_on(
            samples.provision, make_resource("Cluster", generation=generation, spec=spec, reports=known)
        )

    first = attempt(1, None)
    second = attempt(1, first)
    third = attempt(1, second)
    changed = attempt(2, third)

    assert [statuses(each)[1] for each in (first, second, third, changed)] == ["False", "True", "True", "False"]
    assert available(second).message == "2 machines are running"


@pytest.mark.parametrize(("generation", "attempts"), [(1, 1), (2, 0)])
def test_a_wait_of_provision_hands_on_what_it_knows(generation: int, attempts: int) -> None:
    before = reported("provision", data={"attempts": 1, "machines": 4})

    report = report_on(samples.provision, make_resource("Cluster", generation=generation, reports=[before]))

    assert statuses(report) == ("False", "False", "True")
    assert msgspec.json.decode(msgspec.json.encode(report.data)) == {"attempts": attempts, "machines": 4}


def test_a_failure_of_provision_does_not_forget_the_machines_there_are() -> None:
    before = reported("provision", data={"attempts": 1, "machines": 4})
    resource = make_resource("Cluster", generation=2, reports=[reported("dns", generation=2), before])

    report = report_on(samples.provision, resource)

    assert available(report).reason == "NoCapacity"
    assert msgspec.json.decode(msgspec.json.encode(report.data)) == {"attempts": 1, "machines": 4}


def test_a_wait_of_provision_is_no_attempt() -> None:
    waited = reported("provision", "False")

    report = report_on(samples.provision, make_resource("Cluster", reports=[reported("dns"), waited]))

    assert available(report).reason == "NoCapacity"


def test_provision_gives_back_what_it_has_reported() -> None:
    known = reported("provision", data={"attempts": 1, "machines": 4})

    report = report_on(samples.provision, make_resource("Cluster", reports=[known], deleted_time=START))

    assert report.status_of("Finalized") == "True"
    assert any(each.message == "4 machines were given back" for each in report.conditions)


@pytest.mark.parametrize("name", list(samples.NEEDS))
def test_every_sample_is_found_by_the_name_in_its_example(name: str) -> None:
    loaded = adapter_settings.load(file=EXAMPLES / f"{name}.yaml", environ={})

    assert loaded.settings is not None, loaded.problems
    assert loading.load_adapter(loaded.settings.task) is getattr(samples, name)


@pytest.mark.parametrize("name", list(samples.NEEDS))
def test_every_sample_can_be_had_for_other_kinds(name: str) -> None:
    declared = samples.declare(name, kinds=["Gadget"])

    assert (declared.name, declared.kinds) == (name, ("Gadget",))

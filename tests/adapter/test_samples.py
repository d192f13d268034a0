"""The sample adapters, without a broker or an API."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sentinel.adapter import loading, samples
from sentinel.adapter.settings import AdapterSettings
from sentinel.core.fleet.documents import Report, ReportedCondition
from sentinel.core.json import Json
from sentinel.runtime.settings import loader
from sentinel.testing.adapter import START, FakeHttp, make_resource, report_on, reported

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"
ZONE = "http://dns.internal/zones/c1"


VALIDATED = make_resource("Cluster", id="c1", spec={"replicas": 3}, reports=[reported("validation")])


@pytest.fixture
def http() -> FakeHttp:
    return FakeHttp()


def statuses(report: Report) -> tuple[str | None, ...]:
    return tuple(report.status_of(name) for name in ("Applied", "Available", "Health"))


def available(report: Report) -> ReportedCondition:
    return next(each for each in report.conditions if each.type == "Available")


@pytest.mark.parametrize(
    "spec", [{}, {"replicas": 1}, {"region": "us-east"}, {"replicas": 9, "region": "x", "other": None}, []]
)
def test_validation_accepts_every_spec_without_problems(spec: Json) -> None:
    assert statuses(report_on(samples.validation, make_resource("Cluster", spec=spec))) == ("True", "True", "True")


@pytest.mark.parametrize(
    ("spec", "message"),
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
def test_validation_names_the_problem_of_a_spec(spec: Json, message: str) -> None:
    report = report_on(samples.validation, make_resource("NodePool", spec=spec))

    assert statuses(report) == ("True", "False", "True")
    assert available(report).message == message


def test_validation_names_every_problem() -> None:
    report = report_on(samples.validation, make_resource("Cluster", spec={"replicas": 0, "region": ""}))

    assert "replicas: " in available(report).message
    assert "region: " in available(report).message


def test_dns_waits_for_validation_of_the_current_generation() -> None:
    resource = make_resource("Cluster", generation=2, reports=[reported("validation", generation=1)])

    report = report_on(samples.dns, resource)

    assert statuses(report) == ("False", "False", "True")
    assert available(report).message == "Waiting for validation to complete"


def test_dns_polls_until_the_zone_exists(http: FakeHttp) -> None:
    http.answer("PUT", ZONE, status=202)
    http.answer("PUT", ZONE, status=200)

    first = report_on(samples.dns, VALIDATED, http=http)
    second = report_on(samples.dns, VALIDATED, http=http)

    assert statuses(first) == ("True", "Unknown", "True")
    assert statuses(second) == ("True", "True", "True")
    assert [request.json() for request in http.requests] == [{"replicas": 3}] * 2


@pytest.mark.parametrize(
    ("body", "explanation"),
    [
        (b"out of service", "out of service"),
        (
            b'{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"closed for repairs"}',
            "closed for repairs",
        ),
    ],
)
def test_dns_quotes_the_explanation_of_a_failing_service(http: FakeHttp, body: bytes, explanation: str) -> None:
    http.answer("PUT", ZONE, status=503, body=body)

    report = report_on(samples.dns, VALIDATED, http=http)

    assert statuses(report) == ("True", "False", "True")
    assert available(report).message == f"the DNS service answered 503: {explanation}"


@pytest.mark.parametrize("status", [204, 404])
def test_dns_removes_its_zone(http: FakeHttp, status: int) -> None:
    http.answer("DELETE", ZONE, status=status)

    report = report_on(samples.dns, make_resource("Cluster", id="c1", deleted_time=START), http=http)

    assert report.status_of("Finalized") == "True"


def test_dns_is_not_finalized_while_its_zone_may_exist(http: FakeHttp) -> None:
    http.answer("DELETE", ZONE, status=503)

    report = report_on(samples.dns, make_resource("Cluster", id="c1", deleted_time=START), http=http)

    assert report.status_of("Finalized") != "True"


def test_dns_service_sets_the_address(monkeypatch: pytest.MonkeyPatch, http: FakeHttp) -> None:
    monkeypatch.setenv("DNS_SERVICE", "http://127.0.0.1:5353/")
    http.answer("PUT", "http://127.0.0.1:5353/zones/c1", status=200)

    report = report_on(samples.dns, VALIDATED, http=http)

    assert statuses(report) == ("True", "True", "True")


def test_provision_waits_for_dns() -> None:
    report = report_on(samples.provision, make_resource("Cluster", reports=[reported("validation")]))

    assert statuses(report) == ("False", "False", "True")


def test_provision_fails_only_its_first_attempt_at_each_generation() -> None:
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
def test_provision_keeps_its_state_while_it_waits(generation: int, attempts: int) -> None:
    before = reported("provision", data={"attempts": 1, "machines": 4})

    report = report_on(samples.provision, make_resource("Cluster", generation=generation, reports=[before]))

    assert statuses(report) == ("False", "False", "True")
    assert msgspec.json.decode(msgspec.json.encode(report.data)) == {"attempts": attempts, "machines": 4}


def test_provision_keeps_its_machines_when_it_fails() -> None:
    before = reported("provision", data={"attempts": 1, "machines": 4})
    resource = make_resource("Cluster", generation=2, reports=[reported("dns", generation=2), before])

    report = report_on(samples.provision, resource)

    assert available(report).reason == "NoCapacity"
    assert msgspec.json.decode(msgspec.json.encode(report.data)) == {"attempts": 1, "machines": 4}


def test_waiting_does_not_count_as_an_attempt_of_provision() -> None:
    waited = reported("provision", "False")

    report = report_on(samples.provision, make_resource("Cluster", reports=[reported("dns"), waited]))

    assert available(report).reason == "NoCapacity"


def test_provision_returns_the_machines_it_has_reported() -> None:
    known = reported("provision", data={"attempts": 1, "machines": 4})

    report = report_on(samples.provision, make_resource("Cluster", reports=[known], deleted_time=START))

    assert report.status_of("Finalized") == "True"
    assert any(each.message == "4 machines were released" for each in report.conditions)


@pytest.mark.parametrize("name", list(samples.DEPENDENCIES))
def test_every_example_file_names_its_sample(name: str) -> None:
    loaded = loader.load(AdapterSettings, file=EXAMPLES / f"{name}.yaml", environ={})

    assert loaded.settings is not None, loaded.problems
    assert loading.load_adapter(loaded.settings.task) is getattr(samples, name)


@pytest.mark.parametrize("name", list(samples.DEPENDENCIES))
def test_every_sample_can_be_declared_for_other_kinds(name: str) -> None:
    declared = samples.declare(name, kinds=["Gadget"])

    assert (declared.name, declared.kinds) == (name, ("Gadget",))

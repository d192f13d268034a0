"""The fleet API against a model: any sequence of requests leaves both in the same state.

The model does not use `core`. It is a plain transcription of the specification: which requests are rejected, when
a generation rises, which resources are deleted together, and how reports are aggregated.
"""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.examples import examples
from tests.support.fleet.api_client import ApiClient, ApiReply

REQUIRED = {"clusters": {"validation", "dns"}, "nodepools": {"validation"}, "machines": set(), "manifests": set()}
PARENT = {"clusters": "", "nodepools": "clusters", "machines": "nodepools", "manifests": ""}

Model = dict[str, Any]

pytestmark = pytest.mark.timeout(600)
"""Only a failure takes longer, because it is shrunk to the shortest sequence."""

which = st.integers(0, 30)
plurals = st.sampled_from(["clusters", "clusters", "nodepools", "nodepools", "machines", "manifests"])
names = st.sampled_from("ab")
specs = st.dictionaries(
    st.sampled_from("xy"), st.sampled_from([1, 1.0, 2, None, {"z": 1}, {"z": None}]), max_size=2
)
label_changes = st.dictionaries(st.sampled_from(["east", "size"]), st.sampled_from(["1", "2", None]), max_size=2)


class ModelFleet:
    """The expected state of the fleet."""

    def __init__(self) -> None:
        self.resources: dict[str, Model] = {}

    # --- Requests: each returns the expected status -------------------------------------------------------------

    def create(self, resource_id: str, plural: str, name: str, parent: str, labels: Model, now: datetime) -> int:
        owner = self.resources.get(parent)
        if PARENT[plural]:
            if owner is None or owner["plural"] != PARENT[plural]:
                return 404
            if owner["deleted"]:
                return 409
        else:
            parent = ""
        if any(
            (each["plural"], each["parent"], each["name"]) == (plural, parent, name)
            for each in self.resources.values()
        ):
            return 409
        self.resources[resource_id] = {
            "plural": plural,
            "parent": parent,
            "name": name,
            "labels": labels,
            "spec": {},
            "generation": 1,
            "updated": now,
            "deleted": False,
            "reports": {},
            "in_progress": {},
            "ready": None,
            "available": None,
        }
        self.aggregate(resource_id, now)
        return 201

    def patch(self, resource_id: str, spec: Model, labels: Model, now: datetime) -> int:
        resource = self.resources.get(resource_id)
        if resource is None:
            return 404
        if resource["deleted"]:
            return 409
        before = (resource["spec"], resource["labels"])
        resource["spec"] = merged(resource["spec"], spec)
        resource["labels"] = merged(resource["labels"], labels)
        if (resource["spec"], resource["labels"]) != before:
            resource["generation"] += 1
            resource["updated"] = now
            self.aggregate(resource_id, now)
        return 200

    def delete(self, resource_id: str, now: datetime) -> int:
        resource = self.resources.get(resource_id)
        if resource is None:
            return 404
        if not resource["deleted"]:
            for each in [resource_id, *self.descendants(resource_id)]:
                if not self.resources[each]["deleted"]:
                    self.resources[each].update(
                        deleted=True, generation=self.resources[each]["generation"] + 1, updated=now
                    )
                    self.aggregate(each, now)
            self.sweep()
        return 202

    def force_delete(self, resource_id: str) -> int:
        resource = self.resources.get(resource_id)
        if resource is None:
            return 404
        if not resource["deleted"]:
            return 409
        for each in [resource_id, *self.descendants(resource_id)]:
            del self.resources[each]
        self.sweep()
        return 204

    def report(self, resource_id: str, adapter: str, report: Model) -> tuple[int, str]:
        resource = self.resources.get(resource_id)
        if resource is None:
            return 404, ""
        known = resource["reports"].get(adapter)
        newest = resource["in_progress"].get(adapter, known)
        if report["generation"] > resource["generation"]:
            return 204, "future_generation"
        if known is not None:
            if report["generation"] < newest["generation"]:
                return 204, "stale_generation"
            if report["generation"] == newest["generation"] and report["time"] < newest["time"]:
                return 204, "stale_time"
            if report["available"] == "Unknown":
                if {**report, "finalized": None} != {**known, "finalized": None}:  # else it is sent again
                    resource["in_progress"][adapter] = report
                return 204, "unknown"
        resource["reports"][adapter] = report
        resource["in_progress"].pop(adapter, None)
        self.aggregate(resource_id, report["time"])
        self.sweep()
        return 201, ""

    # --- Consequences -------------------------------------------------------------------------------------------

    def descendants(self, resource_id: str) -> list[str]:
        children = [each for each, resource in self.resources.items() if resource["parent"] == resource_id]
        return [*children, *(deeper for child in children for deeper in self.descendants(child))]

    def sweep(self) -> None:
        """Remove resources that are deleted, finalized by all and without children, until no more are found."""
        while True:
            gone = [
                each
                for each, resource in self.resources.items()
                if resource["deleted"]
                and not self.descendants(each)
                and all(
                    self.counts(resource, adapter)
                    and resource["reports"][adapter]["generation"] == resource["generation"]
                    and resource["reports"][adapter]["finalized"]
                    for adapter in REQUIRED[resource["plural"]]
                )
            ]
            if not gone:
                return
            for each in gone:
                del self.resources[each]

    def counts(self, resource: Model, adapter: str) -> bool:
        """Whether this adapter has a report that is aggregated."""
        return adapter in resource["reports"] and resource["reports"][adapter]["available"] != "Unknown"

    def aggregate(self, resource_id: str, at: datetime) -> None:
        """Aggregate after a report or a change at this time."""
        resource = self.resources[resource_id]
        required = REQUIRED[resource["plural"]]
        reported = {
            adapter: resource["reports"][adapter] for adapter in required if self.counts(resource, adapter)
        }
        resource["observed"] = min((each["generation"] for each in reported.values()), default=0)
        if set(reported) != required:
            resource["observed"] = 0
        for name, condition in (
            ("ready", self._ready(resource, required, reported)),
            ("available", self._available(resource, required, reported)),
        ):
            before = resource[name] or {"is_true": None, "transition": at}
            is_same = before["is_true"] == condition["is_true"]
            condition["transition"] = before["transition"] if is_same else max(before["transition"], at)
            resource[name] = condition

    def _ready(self, resource: Model, required: set[str], reported: dict[str, Model]) -> Model:
        generation = resource["generation"]
        current = [each for each in reported.values() if each["generation"] == generation]
        is_ready = (
            bool(required)
            and not resource["deleted"]
            and len(current) == len(required)
            and all(each["available"] == "True" for each in current)
        )
        updated = min((each["time"] for each in current), default=resource["updated"])
        return {"is_true": is_ready, "generation": generation, "updated": updated}

    def _available(self, resource: Model, required: set[str], reported: dict[str, Model]) -> Model:
        before = resource["available"] or {"is_true": False, "generation": 1}
        generations = {each["generation"] for each in reported.values()}
        is_complete = bool(required) and set(reported) == required
        if (
            is_complete
            and len(generations) == 1
            and all(each["available"] == "True" for each in reported.values())
        ):
            generation = generations.pop()
            return {
                "is_true": True,
                "generation": generation,
                "updated": min(each["time"] for each in reported.values()),
            }
        failing = [
            each
            for each in reported.values()
            if each["available"] == "False" and each["generation"] == before["generation"]
        ]
        if is_complete and before["is_true"]:
            if not failing:
                return dict(before)
            return {"is_true": False, "generation": max(generations), "updated": failing[0]["time"]}
        # The tests of `core` cover the update time while it is False.
        return {"is_true": False, "generation": max(generations, default=before["generation"]), "updated": None}


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    members = target if isinstance(target, dict) else {}
    kept = {name: value for name, value in members.items() if name not in patch}
    return kept | {name: merged(members.get(name), value) for name, value in patch.items() if value is not None}


class FleetMachine(RuleBasedStateMachine):
    """Applies each step to the API and the model, and compares them."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.fleet = ApiClient()
        self.runner.run(self.fleet.backend.database.open())
        self.model = ModelFleet()
        self.ids: list[str] = []
        # Start with a family, so that few steps reach interesting states, and with one of another kind.
        for plural in ("clusters", "nodepools", "machines", "manifests"):
            self.create(plural, "a", 0, {}, True)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()

    def call(self, method: str, path: str, body: object = None) -> ApiReply:
        return self.runner.run(self.fleet.call(method, path, body))

    @property
    def now(self) -> datetime:
        return self.fleet.clock.now()

    def pick(self, number: int) -> tuple[str, str]:
        """Return an id that was used once, and its path. The resource may be removed."""
        if not self.ids:
            return "never", "clusters/never"
        resource_id = self.ids[number % len(self.ids)]
        plural = resource_id.split("-")[0]
        return resource_id, f"{plural}/{resource_id}"

    @rule(seconds=st.integers(1, 30))
    def time_passes(self, seconds: int) -> None:
        self.runner.run(self.fleet.clock.advance(timedelta(seconds=seconds)))

    @rule(plural=plurals, name=names, number=which, labels=label_changes, is_nested=st.booleans())
    def create(self, plural: str, name: str, number: int, labels: Model, is_nested: bool) -> None:
        resource_id = f"{plural}-{len(self.ids)}"
        owners = [each for each in self.ids if each.startswith(f"{PARENT[plural]}-")] if PARENT[plural] else []
        parent = owners[number % len(owners)] if owners else "missing"
        labels = {key: value for key, value in labels.items() if value is not None}
        body: Model = {"name": name, "id": resource_id, "labels": labels}
        path = plural
        if PARENT[plural] and is_nested:
            path = f"{PARENT[plural]}/{parent}/{plural}"
        elif PARENT[plural]:
            body["owner_references"] = {"id": parent}

        expected = self.model.create(resource_id, plural, name, parent, labels, self.now)
        reply = self.call("POST", path, body)

        if expected == 404 and not is_nested:
            expected = 400  # the body names the missing parent
        assert reply.status == expected, reply
        if expected == 201:
            self.ids.append(resource_id)

    @rule(number=which, spec=specs, labels=label_changes)
    def patch(self, number: int, spec: Model, labels: Model) -> None:
        resource_id, path = self.pick(number)

        expected = self.model.patch(resource_id, spec, labels, self.now)
        reply = self.call("PATCH", path, {"spec": spec, "labels": labels})

        assert reply.status == expected, reply

    @rule(number=which)
    def delete(self, number: int) -> None:
        resource_id, path = self.pick(number)

        expected = self.model.delete(resource_id, self.now)
        reply = self.call("DELETE", path)

        assert reply.status == expected, reply

    @rule(number=which)
    def force_delete(self, number: int) -> None:
        resource_id, path = self.pick(number)

        expected = self.model.force_delete(resource_id)
        reply = self.call("POST", f"{path}/force-delete", {"reason": "r"})

        assert reply.status == expected, reply

    @rule(
        number=which,
        adapter=st.sampled_from(["validation", "dns", "extra"]),
        behind=st.sampled_from([0, 0, 0, 1, -1]),
        age=st.sampled_from([0, 0, 1, 10]),
        available=st.sampled_from(["True", "True", "True", "False", "Unknown"]),
        finalized=st.booleans(),
    )
    def report(self, number: int, adapter: str, behind: int, age: int, available: str, finalized: bool) -> None:
        self._report(number, adapter, behind, age, available, finalized)

    @rule(number=which, available=st.sampled_from(["True", "True", "False"]))
    def all_adapters_report(self, number: int, available: str) -> None:
        for adapter in ("validation", "dns"):
            self._report(number, adapter, 0, 0, available, True)

    def _report(self, number: int, adapter: str, behind: int, age: int, available: str, finalized: bool) -> None:
        resource_id, path = self.pick(number)
        resource = self.model.resources.get(resource_id)
        generation = max(1, (resource["generation"] if resource else 1) - behind)
        at = self.now - timedelta(seconds=age)

        expected, reason = self.model.report(
            resource_id,
            adapter,
            {"generation": generation, "time": at, "available": available, "finalized": finalized},
        )
        body = self.fleet.report(adapter, available=available, generation=generation, at=at, finalized=finalized)
        reply = self.call("PUT", f"{path}/statuses", body)

        assert (reply.status, reply.headers.get("discard-reason", "")) == (expected, reason), reply

    @rule(number=which, verb=st.sampled_from(["pulse", "pause", "resume"]))
    def mark(self, number: int, verb: str) -> None:
        resource_id, path = self.pick(number)

        assert self.call("POST", f"{path}/{verb}").status == (202 if resource_id in self.model.resources else 404)

    @rule(plural=plurals, value=st.sampled_from("12"))
    def select(self, plural: str, value: str) -> None:
        items = self._listed(plural, f"east={value}")

        assert {item["id"] for item in items} == {
            each
            for each, resource in self.model.resources.items()
            if resource["plural"] == plural and resource["labels"].get("east") == value
        }

    def _listed(self, plural: str, selector: str = "") -> list[Model]:
        page = self.runner.run(self.fleet.get(plural, labels=selector, size=1000))
        assert page["total"] == len(page["items"])
        items: list[Model] = page["items"]
        return items

    @invariant()
    def api_matches_model(self) -> None:
        if not hasattr(self, "runner"):
            return
        found = {item["id"]: item for plural in REQUIRED for item in self._listed(plural)}
        assert set(found) == set(self.model.resources)
        for resource_id, expected in self.model.resources.items():
            _compare(found[resource_id], expected)
            statuses = self.runner.run(self.fleet.get(f"{expected['plural']}/{resource_id}", statuses="true"))
            shown = {
                each["adapter"]: (work["observed_generation"], datetime.fromisoformat(work["report_time"]))
                for each in statuses["statuses"]
                if (work := each.get("in_progress"))
            }
            assert shown == {
                adapter: (work["generation"], work["time"]) for adapter, work in expected["in_progress"].items()
            }


def _compare(item: Model, expected: Model) -> None:
    assert (item["name"], item["labels"], item["spec"]) == (expected["name"], expected["labels"], expected["spec"])
    assert item.get("owner_references", {}).get("id", "") == expected["parent"]
    assert (item["generation"], "deleted_time" in item) == (expected["generation"], expected["deleted"])
    assert datetime.fromisoformat(item["updated_time"]) == expected["updated"]
    status, ready = item["status"], expected["ready"]
    assert status["phase"] == ("Ready" if ready["is_true"] else "NotReady")
    assert status["observed_generation"] == expected["observed"]
    assert datetime.fromisoformat(status["last_updated_time"]) == ready["updated"]
    assert datetime.fromisoformat(status["last_transition_time"]) == ready["transition"]
    shown = {each["type"]: each for each in status["conditions"]}
    assert shown["Ready"]["observed_generation"] == expected["generation"]
    available = expected["available"]
    assert shown["Available"]["status"] == str(available["is_true"])
    assert shown["Available"]["observed_generation"] == available["generation"]
    assert datetime.fromisoformat(shown["Available"]["last_transition_time"]) == available["transition"]
    if available["updated"] is not None:
        assert datetime.fromisoformat(shown["Available"]["last_updated_time"]) == available["updated"]


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(max_examples=examples(30), stateful_step_count=30, derandomize=True, database=None)


def _step(machine: FleetMachine, chance: random.Random) -> None:
    """Take a random step. Steps that reach new states are more likely."""
    number, labels = chance.randrange(30), {"east": chance.choice("12")}
    match chance.choices(
        ["time", "create", "patch", "delete", "force", "report", "all", "mark", "select"],
        weights=[4, 10, 4, 2, 1, 8, 10, 1, 1],
    )[0]:
        case "time":
            machine.time_passes(chance.randrange(1, 30))
        case "create":
            plural = chance.choice(["clusters", "nodepools", "nodepools", "machines", "manifests"])
            machine.create(plural, chance.choice("abcd"), number, labels, chance.random() < 0.5)
        case "patch":
            machine.patch(number, {chance.choice("xy"): chance.choice([1, 1.0, 2, None])}, labels)
        case "delete":
            machine.delete(number)
        case "force":
            machine.force_delete(number)
        case "report":
            machine.report(
                number,
                chance.choice(["validation", "dns", "extra"]),
                chance.choice([0, 0, 0, 1, -1]),
                chance.choice([0, 0, 1, 10]),
                chance.choice(["True", "True", "False", "Unknown"]),
                chance.random() < 0.5,
            )
        case "all":
            machine.all_adapters_report(number, chance.choice(["True", "True", "True", "False"]))
        case "mark":
            machine.mark(number, chance.choice(["pulse", "pause", "resume"]))
        case "select":
            machine.select(chance.choice(["clusters", "nodepools"]), chance.choice("12"))


@pytest.mark.parametrize("seed", range(12))
def test_a_long_random_walk_matches_the_model(seed: int) -> None:
    # Longer than hypothesis explores: whole families are created, become ready, and are removed.
    chance = random.Random(seed)  # noqa: S311  # must be repeatable
    machine = FleetMachine()
    machine.begin()
    try:
        for _ in range(80):
            _step(machine, chance)
            machine.api_matches_model()
    finally:
        machine.teardown()

"""When the policy is enforced, and each way in which it is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sentinel.core.drift import admission
from sentinel.drift.operator import policy

EXPECTED: Any = policy.policy()
POLICY = f"the ValidatingAdmissionPolicy {policy.NAME}"
BINDING = f"the ValidatingAdmissionPolicyBinding {policy.NAME}"


def stored() -> tuple[Any, Any]:
    """Return both objects as an API server stores them, with its defaults."""
    found: Any = copy.deepcopy(EXPECTED)
    found["spec"]["matchConstraints"] |= {"namespaceSelector": {}, "objectSelector": {}}
    return found, copy.deepcopy(policy.binding())


def problem(change: Callable[[Any, Any], object]) -> str | None:
    """Return the problem after a change of the specs of the policy and the binding."""
    found, binding = stored()
    change(found["spec"], binding["spec"])
    return admission.problem(policy=found, binding=binding, expected=EXPECTED)


def rule(spec: Any) -> Any:
    return spec["matchConstraints"]["resourceRules"][0]


def test_what_we_ship_is_enforced() -> None:
    assert problem(lambda spec, binding: None) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda spec, binding: spec.pop("failurePolicy"),
        lambda spec, binding: spec["validations"].append({"expression": "1 == 1"}),
        lambda spec, binding: spec["variables"].append({"name": "more", "expression": "1"}),
        lambda spec, binding: spec.pop("matchConditions"),
        lambda spec, binding: binding["validationActions"].append("Audit"),
        lambda spec, binding: rule(spec).update(apiVersions=["*"], apiGroups=["*"], resources=["*/*"]),
        lambda spec, binding: rule(spec).pop("scope"),
        lambda spec, binding: rule(spec).update(scope="Namespaced"),
        lambda spec, binding: binding.update(matchResources={"namespaceSelector": {}}),
    ],
)
def test_more_than_we_ship_is_enforced_too(change: Callable[[Any, Any], object]) -> None:
    assert problem(change) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda spec, _: spec.update(failurePolicy="Ignore"), "failurePolicy: expected Fail, got Ignore"),
        (lambda spec, _: spec.update(paramKind={"kind": "ConfigMap"}), "paramKind"),
        (lambda spec, _: spec.pop("matchConstraints"), "matchConstraints.resourceRules"),
        (
            lambda spec, _: spec["matchConstraints"].update(namespaceSelector={"matchLabels": {"a": "b"}}),
            "matchConstraints.namespaceSelector",
        ),
        (
            lambda spec, _: spec["matchConstraints"].update(objectSelector={"matchLabels": {"a": "b"}}),
            "matchConstraints.objectSelector",
        ),
        (
            lambda spec, _: spec["matchConstraints"].update(excludeResourceRules=[{}]),
            "matchConstraints.excludeResourceRules",
        ),
        (lambda spec, _: rule(spec).update(operations=["CREATE"]), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(apiGroups=["apps"]), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(apiVersions=["v1beta1"]), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(resources=["openbaoclusters"]), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(resources=["*"]), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(resources="*/*"), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(resourceNames=["prod"]), "matchConstraints.resourceRules"),
        (lambda spec, _: rule(spec).update(scope="Cluster"), "matchConstraints.resourceRules"),
        (
            lambda spec, _: spec["matchConditions"].append({"name": "never", "expression": "false"}),
            "matchConditions[never]",
        ),
        (lambda spec, _: spec["variables"][0].update(expression="true"), "variables[isUpdate]"),
        (lambda spec, _: spec["variables"].pop(), "variables[changed]"),
        (lambda spec, _: spec["validations"].pop(2), "validations: one is missing: A sentinel may not change"),
        (lambda spec, _: spec["validations"][2].update(expression="true"), "validations: one is missing"),
    ],
)
def test_less_than_we_ship_is_not_enforced(change: Callable[[Any, Any], object], expected: str) -> None:
    found = problem(change)

    assert found is not None
    assert found.startswith(f"{POLICY}: {expected}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _, spec: spec.update(policyName="other"), f"policyName: expected {policy.NAME}, got other"),
        (lambda _, spec: spec.update(validationActions=["Audit", "Warn"]), "validationActions"),
        (lambda _, spec: spec.pop("validationActions"), "validationActions"),
        (lambda _, spec: spec.update(paramRef={"name": "x"}), "paramRef"),
        (lambda _, spec: spec.update(matchResources={"resourceRules": [{}]}), "matchResources.resourceRules"),
        (
            lambda _, spec: spec.update(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}}),
            "matchResources.namespaceSelector",
        ),
        (lambda _, spec: spec.update(matchResources={"excludeResourceRules": [{}]}), "matchResources.exclude"),
    ],
)
def test_a_binding_that_does_not_deny_is_a_problem(change: Callable[[Any, Any], object], expected: str) -> None:
    found = problem(change)

    assert found is not None
    assert found.startswith(f"{BINDING}: {expected}")


def test_both_objects_have_to_exist() -> None:
    found, binding = stored()

    assert admission.problem(policy=None, binding=binding, expected=EXPECTED) == f"{POLICY} does not exist"
    assert admission.problem(policy=found, binding=None, expected=EXPECTED) == f"{BINDING} does not exist"

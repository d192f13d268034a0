"""Whether the API server enforces the policy that limits sidecars.

A sidecar is deployed only then. A policy may exist and limit nothing: it may not be bound, its binding may only
warn, a selector may exempt namespaces, a validation may be missing. Each of these is a problem with its own text,
because an administrator has to find it.

More than we need is fine: further validations, further actions. Less is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sentinel.core.json import Json

_Object: TypeAlias = Mapping[str, Json]

_EVERYTHING = "*"


def problem(*, policy: _Object | None, binding: _Object | None, expected: _Object) -> str | None:
    """Return why the policy is not enforced, or None if it is.

    `policy` and `binding` are what the API server has under the names that we use, None if there is no such
    object. `expected` is the policy as we ship it.
    """
    name = _text(_member(expected, "metadata"), "name")
    if policy is None:
        return f"the ValidatingAdmissionPolicy {name} does not exist"
    found = _policy_problem(_member(policy, "spec"), _member(expected, "spec"))
    if found is not None:
        return f"the ValidatingAdmissionPolicy {name}: {found}"
    if binding is None:
        return f"the ValidatingAdmissionPolicyBinding {name} does not exist"
    found = _binding_problem(_member(binding, "spec"), name)
    return None if found is None else f"the ValidatingAdmissionPolicyBinding {name}: {found}"


def _policy_problem(spec: _Object, expected: _Object) -> str | None:
    # Kubernetes' default is Fail, and it fills it in.
    failure = spec.get("failurePolicy", "Fail")
    if failure != "Fail":
        return f"failurePolicy: expected Fail, got {failure}"
    if spec.get("paramKind") is not None:
        return "paramKind: expected none, because a parameter that is absent may disable the policy"
    constraints = _member(spec, "matchConstraints")
    narrowed = _narrowed("matchConstraints", constraints)
    if narrowed is not None:
        return narrowed
    for rule in _objects(_member(expected, "matchConstraints"), "resourceRules"):
        if not any(_covers(each, rule) for each in _objects(constraints, "resourceRules")):
            return "matchConstraints.resourceRules: expected a rule for every write of an OpenBaoCluster"
    conditions = _expressions(expected, "matchConditions")
    for name, expression in _named(spec, "matchConditions").items():
        if expression not in conditions:
            return f"matchConditions[{name}]: expected no condition that exempts sidecars"
    variables = _named(spec, "variables")
    for name, expression in _named(expected, "variables").items():
        if variables.get(name) != expression:
            return f"variables[{name}]: expected {expression}"
    validations = _expressions(spec, "validations")
    for each in _objects(expected, "validations"):
        if each.get("expression") not in validations:
            return f"validations: one is missing: {_text(each, 'message')}"
    return None


def _binding_problem(spec: _Object, policy_name: str) -> str | None:
    if spec.get("policyName") != policy_name:
        return f"policyName: expected {policy_name}, got {spec.get('policyName')}"
    actions = spec.get("validationActions")
    if not isinstance(actions, list) or "Deny" not in actions:
        return "validationActions: expected Deny among them"
    if spec.get("paramRef") is not None:
        return "paramRef: expected none"
    resources = _member(spec, "matchResources")
    if resources.get("resourceRules"):
        return "matchResources.resourceRules: expected none, so that the policy's own rules hold"
    return _narrowed("matchResources", resources)


def _narrowed(path: str, match: _Object) -> str | None:
    """Return what exempts some objects. Kubernetes fills in empty selectors, which exempt none."""
    for field in ("namespaceSelector", "objectSelector", "excludeResourceRules"):
        if match.get(field):
            return f"{path}.{field}: expected none, because it exempts clusters"
    return None


def _covers(rule: _Object, expected: _Object) -> bool:
    """Whether a rule matches everything that the expected one matches."""
    if rule.get("resourceNames") or rule.get("scope", _EVERYTHING) not in (_EVERYTHING, "Namespaced"):
        return False
    return all(
        _EVERYTHING in _texts(rule, field) or _texts(expected, field) <= _texts(rule, field)
        for field in ("apiGroups", "apiVersions", "operations")
    ) and _covers_resources(_texts(rule, "resources"), _texts(expected, "resources"))


def _covers_resources(given: frozenset[str], expected: frozenset[str]) -> bool:
    # `*` alone matches no subresources.
    return "*/*" in given or expected <= given


def _member(parent: _Object, field: str) -> _Object:
    value = parent.get(field)
    return value if isinstance(value, dict) else {}


def _objects(parent: _Object, field: str) -> list[_Object]:
    values = parent.get(field)
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _text(parent: _Object, field: str) -> str:
    return str(parent.get(field, ""))


def _texts(parent: _Object, field: str) -> frozenset[str]:
    values = parent.get(field)
    return frozenset(map(str, values)) if isinstance(values, list) else frozenset()


def _named(spec: _Object, field: str) -> dict[str, str]:
    return {_text(each, "name"): _text(each, "expression") for each in _objects(spec, field)}


def _expressions(spec: _Object, field: str) -> frozenset[Json]:
    return frozenset(_text(each, "expression") for each in _objects(spec, field))

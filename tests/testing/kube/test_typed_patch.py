"""What server-side apply rejects before it merges."""

from __future__ import annotations

from typing import Any

import pytest

from sentinel.core.json import Json
from sentinel.ports.kube import KubeKind
from sentinel.testing.kube import typed_patch
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import BUILT_IN, STATEFUL_SET, ServedKind, custom
from tests.support.kube.objects import container, stateful_set
from tests.support.kube.widgets import WIDGET, WIDGET_DEFINITION, widget


def served_widget() -> ServedKind:
    definition: Any = WIDGET_DEFINITION
    return custom(WIDGET, schema=definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"size": "x"}, ".spec.size: expected numeric (int or float), got string"),
        ({"size": True}, ".spec.size: expected numeric (int or float), got bool"),
        ({"size": [1]}, ".spec.size: expected numeric (int or float), got []interface {}"),
        ({"color": 3}, ".spec.color: expected string, got &value.valueUnstructured{Value:3}"),
        ({"steps": "one"}, ".spec.steps: expected list, got &{one}"),
        ({"steps": {"a": 1}}, ".spec.steps: expected list, got &{map[a:1]}"),
        ({"labels": ["q"]}, ".spec.labels: expected map, got &{[q]}"),
        ({"labels": {"a": 1}}, ".spec.labels.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"unknown": 1, "other": 2}, ".spec.other: field not declared in schema"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, '.spec.parts: duplicate entries for key [name="a"]'),
        ({"parts": ["x"]}, ".spec.parts: element 0: associative list with keys may not have non-map elements"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        ({"tags": [1]}, ".spec.tags[=1]: expected string, got &value.valueUnstructured{Value:1}"),
        ({"steps": [1]}, ".spec.steps[0]: expected string, got &value.valueUnstructured{Value:1}"),
    ],
)
def test_a_wrong_type_is_an_internal_error(spec: dict[str, Json], message: str) -> None:
    with pytest.raises(ApiError) as caught:
        typed_patch.check(served_widget(), widget("a", **spec))

    prefix = "failed to create typed patch object (/a; contract.example.com/v1, Kind=Widget): "
    assert (caught.value.code, caught.value.reason) == (500, "")
    assert str(caught.value) == prefix + message


def test_every_problem_is_reported() -> None:
    with pytest.raises(ApiError, match=r"errors:\n  \.spec\.color: .*\n  \.spec\.size: "):
        typed_patch.check(served_widget(), widget("a", size="x", color=3))


@pytest.mark.parametrize(
    "spec",
    [{"size": 2.5}, {"size": None}, {"free": {"any": [{"thing": 1}]}}, {"tags": ["a", "b"], "steps": ["a", "a"]}],
)
def test_what_only_validation_rejects_can_be_merged(spec: dict[str, Json]) -> None:
    typed_patch.check(served_widget(), widget("a", **spec))


def test_built_in_kinds_have_keys_too() -> None:
    served = next(each for each in BUILT_IN if each.kind == STATEFUL_SET)

    typed_patch.check(served, stateful_set("a", container("x"), container("y")))
    with pytest.raises(
        ApiError, match=r'\.spec\.template\.spec\.containers: duplicate entries for key \[name="x"\]'
    ):
        typed_patch.check(served, stateful_set("a", container("x"), container("x")))


def test_a_kind_without_a_schema_takes_everything() -> None:
    typed_patch.check(custom(KubeKind("example.com", "v1", "Gadget", "gadgets")), {"spec": {"any": [1, 1]}})

"""Label and field selectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core import labels
from sentinel.core.json import Json
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.testing.kube import selection
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import BUILT_IN, CONFIG_MAP, EVENT, NAMESPACE, ServedKind


def served(kind: KubeKind) -> ServedKind:
    return next(each for each in BUILT_IN if each.kind == kind)


def body(name: str = "a", namespace: str = "n", **values: str) -> KubeObject:
    own: dict[str, Json] = dict(values)
    return {"metadata": {"name": name, "namespace": namespace, "labels": own}}


def select(
    kind: KubeKind = CONFIG_MAP, *, namespace: str = "", label: str = "", field: str = ""
) -> selection.Selection:
    return selection.parse(served(kind), namespace=namespace, label_selector=label, field_selector=field)


@given(
    st.sampled_from(["x=1", "x!=1", "x in (1,2)", "x notin (1)", "x", "!x", "x=1,y"]),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from("123")),
)
def test_labels_are_selected_as_everywhere_else(text: str, own: dict[str, str]) -> None:
    assert select(label=text).matches(body(**own)) is labels.parse(text).matches(own)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name==a", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("metadata.namespace=n", ["a", "b"]),
        ("metadata.name=a,metadata.namespace=m", []),
    ],
)
def test_fields_are_selected_by_equality(field: str, names: list[str]) -> None:
    chosen = select(field=field)

    assert [name for name in ("a", "b") if chosen.matches(body(name))] == names


def test_a_namespace_selects_its_own_objects() -> None:
    assert select(namespace="n").matches(body())
    assert not select(namespace="m").matches(body())


def test_kinds_have_selectable_fields_of_their_own() -> None:
    event: KubeObject = {"metadata": {"name": "e"}, "involvedObject": {"name": "a"}}

    assert select(EVENT, field="involvedObject.name=a").matches(event)
    assert select(EVENT, field="reason=").matches(event)


@pytest.mark.parametrize(
    ("kind", "label", "field"),
    [
        (CONFIG_MAP, "x in 1", ""),
        (CONFIG_MAP, "", "metadata.uid=1"),
        (CONFIG_MAP, "", "metadata.name"),
        (NAMESPACE, "", "metadata.namespace=n"),
    ],
)
def test_a_selector_that_kubernetes_rejects_is_a_bad_request(kind: KubeKind, label: str, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        select(kind, label=label, field=field)

    assert caught.value.code == 400

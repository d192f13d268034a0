"""Which objects a list or a watch is about: a namespace, a label selector, a field selector."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sentinel.core import labels
from sentinel.core.json import Json
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import ServedKind
from sentinel.testing.kube.objects import labels_of, namespace_of

_REQUIREMENT = re.compile(r"(?P<field>[^=!]+)(?P<operator>==|!=|=)(?P<value>.*)")


class FieldRequirement(msgspec.Struct, frozen=True):
    """One requirement of a field selector."""

    path: str
    value: str
    is_equal: bool

    def holds(self, body: KubeObject) -> bool:
        """Whether the object meets the requirement. An absent field is an empty text."""
        return (_text_at(body, self.path) == self.value) is self.is_equal


class Selection(msgspec.Struct, frozen=True):
    """What a request selects."""

    namespace: str = ""
    """Empty for all namespaces."""
    labels: labels.Selector = labels.Selector()
    fields: Sequence[FieldRequirement] = ()

    @property
    def is_filtered(self) -> bool:
        """Whether there is a selector."""
        return bool(self.labels or self.fields)

    def matches(self, body: KubeObject) -> bool:
        """Whether the object is selected."""
        if self.namespace and namespace_of(body) != self.namespace:
            return False
        return self.labels.matches(labels_of(body)) and all(each.holds(body) for each in self.fields)


def parse(served: ServedKind, *, namespace: str, label_selector: str, field_selector: str) -> Selection:
    """Read the selectors of a request. Raises `ApiError`."""
    try:
        selector = labels.parse(label_selector)
    except labels.SelectorError as error:
        raise ApiError.bad_request(f"unable to parse requirement: {error}") from error
    known = {"metadata.name", *served.selectable_fields}
    if served.kind.is_namespaced:
        known.add("metadata.namespace")
    requirements = [_requirement(part, known) for part in field_selector.split(",") if part]
    return Selection(namespace, selector, requirements)


def _requirement(part: str, known: set[str]) -> FieldRequirement:
    read = _REQUIREMENT.fullmatch(part)
    if read is None:
        raise ApiError.bad_request(f'invalid selector: "{part}"; can\'t understand "{part}"')
    if read["field"] not in known:
        raise ApiError.bad_request(f"field label not supported: {read['field']}")
    return FieldRequirement(read["field"], read["value"], is_equal=read["operator"] != "!=")


def _text_at(body: KubeObject, path: str) -> str:
    value: Json = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()

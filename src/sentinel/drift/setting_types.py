"""Types of the settings of drift detection: kinds, ignore rules, labels.

What they reject would be dangerous or useless: Secrets as a kind, a rule that ignores everything, no label or
manager at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from sentinel.core.drift.rules import Glob, IgnoreRule
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.config_tree import ListNode, Node
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import Origin, quoted
from sentinel.runtime.settings.schema import FlatMapping, StructList, TextList, section
from sentinel.runtime.settings.validation import INVALID, Validation

NAME_PLACEHOLDER: Final = "{name}"
"""Stands for the name of the cluster in the value of a label."""

_LABEL_NAME: Final = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE: Final = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"


class KindSettings(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """A kind of objects."""

    api_version: str
    """Such as `apps/v1`."""

    kind: str
    """Such as `StatefulSet`."""

    plural: str | None = None
    """The name in URLs, such as `statefulsets`. Unset: the kind in lower case with an s."""

    @property
    def resource(self) -> str:
        """The plural in URLs."""
        return self.plural or _plural(self.kind)

    def __str__(self) -> str:
        return f"{{apiVersion: {self.api_version}, kind: {self.kind}}}"


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"


class IgnoreSettings(msgspec.Struct, frozen=True):
    """Changes that are not drift. Every given member must match."""

    kind: str | None = None
    """A glob for the kind."""

    name: str | None = None
    """A glob for the name of the object."""

    path: str | None = None
    """A glob for the path of a change."""

    manager: str | None = None
    """A glob for the field manager."""

    @property
    def rule(self) -> IgnoreRule:
        return IgnoreRule(
            kind=_glob(self.kind), name=_glob(self.name), path=_glob(self.path), manager=_glob(self.manager)
        )


def _glob(text: str | None) -> Glob | None:
    return None if text is None else Glob.compile(text)


class _Kinds(StructList, frozen=True):
    """The kinds to watch. Never Secrets."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a tuple of kinds."""
        value = super().read(node, path, at, validation)
        if not isinstance(node, ListNode) or not isinstance(value, tuple):
            return value
        secrets = [index for index, kind in enumerate(value) if _is_secret(kind)]
        for index in secrets:
            at_item = node.items[index].at
            validation.reject(at_item, f"{path}[{index}]", "expected any kind but Secrets, got Secrets")
        if not value:
            validation.reject(node.at, path, f"expected {self.expected}, got an empty list")
        return INVALID if secrets or not value else value


def _is_secret(kind: KindSettings) -> bool:
    # Of any group, and also by the plural alone: that is what the API server goes by.
    return kind.kind.lower() in ("secret", "secrets") or kind.resource.lower() == "secrets"


class _IgnoreRules(StructList, frozen=True):
    """Ignore rules. One without members would ignore everything, which is never meant."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a tuple of rules."""
        value = super().read(node, path, at, validation)
        if not isinstance(node, ListNode) or not isinstance(value, tuple):
            return value
        empty = [index for index, rule in enumerate(value) if rule == IgnoreSettings()]
        for index in empty:
            message = "expected at least one of kind, name, path, manager, got none"
            validation.reject(node.items[index].at, f"{path}[{index}]", message)
        return INVALID if empty else value


_API_VERSION: Final = field_types.text("an API version such as apps/v1", r"([a-z0-9.-]+/)?v[a-z0-9]+")
_KIND: Final = field_types.text("a kind such as StatefulSet", r"[A-Z][A-Za-z0-9]*")
_PLURAL: Final = field_types.text("a plural in URLs such as statefulsets", r"[a-z][a-z0-9-]*")
_TARGET_KIND: Final = field_types.text(
    "a kind such as OpenBaoCluster, and never Secret", r"(?!(?i:secrets?)$)[A-Z][A-Za-z0-9]*"
)
_TARGET_PLURAL: Final = field_types.text(
    "a plural in URLs such as openbaoclusters, and never secrets", r"(?!secrets$)[a-z][a-z0-9-]*"
)
_GLOB: Final = field_types.text("a pattern such as /spec/replicas", r"(?s).+")


class TargetSettings(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """The kind of the cluster, whose annotations trigger the operator."""

    api_version: Annotated[str, _API_VERSION] = "openbao.org/v1alpha1"
    """The API version of the cluster, whose annotations trigger the operator."""

    kind: Annotated[str, _TARGET_KIND] = "OpenBaoCluster"
    """The kind of the cluster. Secrets are rejected."""

    plural: Annotated[str | None, _TARGET_PLURAL] = None
    """The name of the cluster's kind in URLs. Unset: the kind in lower case with an s."""

    @property
    def resource(self) -> str:
        """The plural in URLs."""
        return self.plural or _plural(self.kind)


class _Managers(TextList, frozen=True):
    """Field managers. Without any, the operator's own writes would be drift."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a tuple of names."""
        value = super().read(node, path, at, validation)
        if value == ():
            validation.reject(node.at, path, f"expected {self.expected}, got an empty list")
            return INVALID
        return value


def managers() -> TextList:
    return _Managers("a list of field managers", field_types.text("a field manager", r"(?s).{1,128}"))


def kinds() -> StructList:
    return _Kinds(
        item=section(KindSettings, api_version=_API_VERSION, kind=_KIND, plural=_PLURAL),
        expected="a list of {apiVersion, kind}",
    )


def ignore_rules() -> StructList:
    return _IgnoreRules(
        item=section(IgnoreSettings, kind=_GLOB, name=_GLOB, path=_GLOB, manager=_GLOB),
        expected="a list of {kind, name, path, manager}",
    )


class _Labels(FlatMapping, frozen=True):
    """Labels that select objects. Without any, every object of the namespace would be the operator's."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a mapping of labels to values."""
        labels = super().read(node, path, at, validation)
        if not isinstance(labels, Mapping):
            return labels
        wrong = [name for name in labels if re.fullmatch(_LABEL_NAME, name) is None]
        for name in wrong:
            validation.reject(node.at, path, f"expected the name of a label, got {quoted(name)}")
        if not labels:
            validation.reject(node.at, path, f"expected {self.expected}, got none")
        return INVALID if wrong or not labels else labels


def _label_value(text: str) -> str:
    if re.fullmatch(_LABEL_VALUE, text.replace(NAME_PLACEHOLDER, "n")) is None:
        raise InvalidValue
    return text


def labels() -> FlatMapping:
    return _Labels(
        "a mapping of labels to values, such as {app.kubernetes.io/instance: '{name}'}",
        FieldType("the value of a label", _label_value),
    )


ANNOTATION_PREFIX: Final = field_types.text(
    "a prefix of annotations that ends in a slash, such as openbao.org/", r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/"
)

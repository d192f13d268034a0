"""CustomResourceDefinitions, derived from the structs that declare a resource.

The schema says what a schema can: types, defaults, required fields, enumerations and bounds; validation rules in
CEL add durations, and what an operator says about whole objects. So the API server refuses most mistakes when they
are made. The rest is found when the operator reads the resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from sentinel.core.json import Json
from sentinel.ports.kube import KubeKind
from sentinel.runtime import durations
from sentinel.runtime.settings.config_tree import JsonType
from sentinel.runtime.settings.field_types import POSITIVE_DURATION, FieldType
from sentinel.runtime.settings.schema import (
    FlatMapping,
    Section,
    SettingField,
    StructList,
    TextList,
    TextMapping,
    section,
)
from sentinel.runtime.settings.validation import Readable

Describe: TypeAlias = Callable[[type[msgspec.Struct]], Mapping[str, str]]
"""Returns the docstring of each field of a struct, which Python itself does not keep."""
Schema: TypeAlias = "dict[str, Json]"

TIME: Final[Schema] = {"type": "string", "format": "date-time"}
INTEGER: Final[Schema] = {"type": "integer", "format": "int64"}
_CONDITION: Final[Schema] = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {**INTEGER, "minimum": 0},
        "lastTransitionTime": TIME,
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
        "message": {"type": "string", "maxLength": 32768},
    },
}
_AGE: Final[Schema] = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}

_MAX_DURATION_LENGTH: Final = 64
"""As in `runtime/durations.py`. Without a bound, the API server refuses a rule because of its possible cost."""


class CustomResource(msgspec.Struct, frozen=True, kw_only=True):
    """What a definition is derived from."""

    kind: KubeKind
    description: str
    spec: type[msgspec.Struct]
    status: Schema
    columns: Sequence[Json]
    """What `kubectl get` prints, before the age."""
    short_names: Sequence[str] = ()
    is_spec_required: bool = True
    rules: Mapping[object, Mapping[str, Json]] = {}
    """What cannot be said of a single field, by struct."""
    types: Mapping[str, Mapping[str, Json]] = {}
    """The schema of field types that JSON's types do not describe, by what they expect."""
    root_rules: Mapping[str, Json] = {}
    """What the schema says about the whole object, such as about its name."""

    def document(self, describe: Describe) -> Schema:
        """Return the CustomResourceDefinition."""
        kind = self.kind
        version: Schema = {
            "name": kind.version,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "additionalPrinterColumns": [*self.columns, _AGE],
            "schema": {"openAPIV3Schema": self._root(describe)},
        }
        names: Schema = {
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
            "plural": kind.plural,
            "singular": kind.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": str(kind)},
            "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
        }

    def _root(self, describe: Describe) -> Schema:
        schemas = _SpecSchemas(self.rules, self.types, describe)
        required: Schema = {"required": ["spec"]} if self.is_spec_required else {}
        return {
            "type": "object",
            "description": self.description,
            **required,
            **self.root_rules,
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": schemas.of_object(section(self.spec)),
                "status": self.status,
            },
        }


def status_schema(description: str, fields: Schema, *, conditions: str) -> Schema:
    """Return the schema of a status: these fields, the generation that it is about, and its conditions."""
    return {
        "type": "object",
        "description": description,
        "properties": {
            "observedGeneration": {
                **INTEGER,
                "description": "The generation of the spec that the conditions are about.",
            },
            **fields,
            "conditions": {
                "type": "array",
                "description": conditions,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": _CONDITION,
            },
        },
    }


def reason_columns(*conditions: str) -> list[Json]:
    """Return a column with the reason of each condition."""
    return [
        {"name": name, "type": "string", "jsonPath": f'.status.conditions[?(@.type=="{name}")].reason'}
        for name in conditions
    ]


class _SpecSchemas:
    """The schemas of the structs that declare a spec."""

    def __init__(
        self,
        rules: Mapping[object, Mapping[str, Json]],
        types: Mapping[str, Mapping[str, Json]],
        describe: Describe,
    ) -> None:
        self._rules = rules
        self._types = types
        self._describe = describe

    def of_object(self, declared: Section) -> Schema:
        struct: Any = declared.struct
        texts = self._describe(struct)
        required: list[Json] = [field.key for field in declared.fields if field.info.required]
        schema: Schema = {"type": "object"}
        if required:
            schema["required"] = required
        schema |= self._rules.get(struct, {})
        schema["properties"] = {field.key: self._field(field, texts[field.name]) for field in declared.fields}
        return schema

    def _field(self, field: SettingField, description: str) -> Schema:
        value = self._value(field.type)
        schema: Schema = {"type": value.pop("type"), "description": description}
        if isinstance(field.type, FieldType) and not field.info.required and field.default() is not None:
            schema["default"] = _default(field.default())
        return schema | value

    def _value(self, type_: Readable) -> Schema:
        match type_:
            case FieldType() if type_.expected in self._types:
                return dict(self._types[type_.expected])
            case FieldType(minimum=timedelta() as minimum, maximum=timedelta() as maximum):
                return _duration(type_.expected, minimum, maximum)
            case FieldType():
                schema: Schema = {"type": str(type_.json_type)}
                if type_.choices:
                    schema["enum"] = list(type_.choices)
                return schema | _bounds(type_)
            case Section():
                return self.of_object(type_)
            case StructList():
                return {"type": "array", "items": self.of_object(type_.item)}
            case TextList():
                return {"type": "array", "items": self._value(type_.item)}
            case FlatMapping():
                return {"type": "object", "additionalProperties": self._value(type_.value)}
            case TextMapping():
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            case _:
                raise TypeError(f"expected a type that a CRD can express, got {type_}")


def _bounds(type_: FieldType) -> Schema:
    schema: Schema = {}
    rules: list[Json] = []
    for key, comparison, bound in (("minimum", ">=", type_.minimum), ("maximum", "<=", type_.maximum)):
        if not isinstance(bound, int | float):
            continue
        schema[key] = bound
        if not float(bound).is_integer():
            # API servers truncate the bound if the value is a whole number: 0 would pass for at least 0.001.
            rules.append({"rule": f"self {comparison} {bound}", "message": f"expected {type_.expected}"})
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _duration(expected: str, minimum: timedelta, maximum: timedelta) -> Schema:
    # The shortest duration is a matter of rounding. Here it is enough that a duration is positive.
    is_positive = minimum == POSITIVE_DURATION.minimum
    least, most = durations.render(timedelta(0) if is_positive else minimum), durations.render(maximum)
    rule: Schema = {
        "rule": f"duration(self) {'>' if is_positive else '>='} duration('{least}')"
        f" && duration(self) <= duration('{most}')",
        "message": f"expected {expected}, {'more than' if is_positive else 'at least'} {least} and at most {most}",
    }
    return {
        "type": str(JsonType.STRING),
        "maxLength": _MAX_DURATION_LENGTH,
        "x-kubernetes-validations": [rule],
    }


def _default(value: object) -> Json:
    match value:
        case timedelta():
            return durations.render(value)
        case Enum():
            return str(value.value)
        case str() | bool() | int() | float():
            return value
        case _:
            raise TypeError(f"expected a default that JSON can express, got {value!r}")

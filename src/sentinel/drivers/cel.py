"""Compiles the expressions of kinds, which are written in CEL, the Common Expression Language.

Every expression is compiled twice. The first time, `self` has the exact types of reports, so that a misspelled
field or a comparison of a number with a text is found when the kinds file is read. Typed values would have to be
protobuf messages, and `data` would have to be converted to one. So the second time, `self` is a map.

The library limits what one expression can cost: its length, its nesting, and the number of its iterations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache

import msgspec
from cel_expr_python import cel  # type: ignore[import-untyped]  # its types are not marked as such
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, timestamp_pb2

from sentinel.core.fleet.documents import AdapterCondition, AdapterStatus
from sentinel.core.fleet.expressions import (
    ConditionRule,
    EvaluationFailure,
    Expression,
    ExpressionError,
    ExpressionInput,
)

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
"""An error with its position, -1 if it has none."""
_STATUS = re.compile(r"\A[A-Z_]+: | \[[A-Z_]+\]\Z")
"""The code of an error, before and after its text."""
_NOISE = re.compile(r" expecting \{.*\}| \(in container ''\)")
_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"', re.DOTALL)
_NO_OVERLOAD = "No matching overloads found : "

_TEXT = {"type": "TYPE_STRING"}
_INTEGER = {"type": "TYPE_INT64"}
_TIME = {"type": "TYPE_MESSAGE", "type_name": ".google.protobuf.Timestamp"}
_OBJECT = {"type": "TYPE_MESSAGE", "type_name": ".google.protobuf.Struct"}
_TYPES = {
    "Condition": {
        "type": _TEXT,
        "status": _TEXT,
        "reason": _TEXT,
        "message": _TEXT,
        "created_time": _TIME,
        "last_transition_time": _TIME,
    },
    "Report": {
        "adapter": _TEXT,
        "observed_generation": _INTEGER,
        "created_time": _TIME,
        "last_report_time": _TIME,
        "conditions": {"type": "TYPE_MESSAGE", "type_name": ".Condition", "label": "LABEL_REPEATED"},
        "data": _OBJECT,
        "metadata": _OBJECT,
    },
    "Self": {"items": {"type": "TYPE_MESSAGE", "type_name": ".Report", "label": "LABEL_REPEATED"}},
}
"""The types of `self`, as fields of protobuf messages."""


@cache
def compile_expression(rule: ConditionRule, text: str) -> Expression | Sequence[ExpressionError]:
    """Compile an expression, or return its errors. The same text is compiled once."""
    try:
        returned = _environment(rule, is_typed=True).compile(text).return_type()
        compiled = _environment(rule, is_typed=False).compile(text)
    except RuntimeError as error:
        return tuple(_errors(str(error)))
    if returned not in (cel.Type.BOOL, cel.Type.DYN):
        return (ExpressionError(f"expected true or false, got a value of type {returned.name().lower()}"),)
    return _Evaluation(rule, text, compiled)


class _Evaluation:
    """A compiled expression. Threads may share it."""

    def __init__(self, rule: ConditionRule, text: str, compiled: cel.Expression) -> None:
        self._text = text
        self._compiled = compiled
        self._has_available = rule is ConditionRule.READY
        # Converting these costs more than all the rest, and few expressions read them.
        self._reads_data = "data" in text
        self._reads_times = "_time" in text

    def __call__(self, given: ExpressionInput) -> bool | EvaluationFailure:
        values: dict[str, object] = {
            "self": {"items": [self._map(each) for each in given.items]},
            "generationN": given.generation,
        }
        if self._has_available:
            values["available"] = given.is_available
        try:
            result = self._compiled.eval(data=values)
        except RuntimeError as error:
            return EvaluationFailure(self._cause(str(error)))
        value = result.value()
        if isinstance(value, bool):
            return value
        if result.type() == cel.Type.ERROR:
            return EvaluationFailure(self._cause(value))
        return EvaluationFailure(f"expected true or false, got a value of type {result.type().name().lower()}")

    def _map(self, status: AdapterStatus) -> dict[str, object]:
        report: dict[str, object] = {
            "adapter": status.adapter,
            "observed_generation": status.observed_generation,
            "conditions": [self._map_condition(each) for each in status.conditions],
        }
        if self._reads_times:
            report["created_time"] = _timestamp(status.created_time)
            report["last_report_time"] = _timestamp(status.last_report_time)
        if self._reads_data:
            for name, value in (("data", status.data), ("metadata", status.metadata)):
                if isinstance(value, msgspec.Raw):
                    report[name] = msgspec.json.decode(value)
        return report

    def _map_condition(self, condition: AdapterCondition) -> dict[str, object]:
        mapped: dict[str, object] = {
            "type": condition.type,
            "status": condition.status.value,
            "reason": condition.reason,
            "message": condition.message,
        }
        if self._reads_times:
            mapped["created_time"] = _timestamp(condition.created_time)
            mapped["last_transition_time"] = _timestamp(condition.last_transition_time)
        return mapped

    def _cause(self, error: str) -> str:
        """Return the cause of an error of the library, without any value from a report: `data` may be secret."""
        text = _STATUS.sub("", error)
        missing = _MISSING_KEY.fullmatch(text)
        if missing is not None:
            return f'no such key: "{missing[1]}"' if missing[1] in self._text else "no such key"
        if text.startswith(_NO_OVERLOAD):
            return f"no such operation: {text.removeprefix(_NO_OVERLOAD)}"  # an operator and types
        if text.startswith("Index error"):
            return "an index is out of range"
        # What follows a colon or stands in quotes may be a value.
        return re.split(r":|['\"].*['\"]", text, maxsplit=1, flags=re.DOTALL)[0].strip().lower()


def _timestamp(time: datetime) -> timestamp_pb2.Timestamp:
    """Return the time as the library accepts it."""
    converted = timestamp_pb2.Timestamp()
    converted.FromDatetime(time)
    return converted


def _errors(text: str) -> Iterator[ExpressionError]:
    located = _ERROR.findall(text)
    for line, column, message in located:
        yield ExpressionError(_NOISE.sub("", _STATUS.sub("", message)), max(1, int(line)), max(1, int(column)))
    if not located:
        yield ExpressionError(_STATUS.sub("", text))


@cache
def _environment(rule: ConditionRule, *, is_typed: bool) -> cel.Env:
    variables = {"self": cel.Type("Self") if is_typed else cel.Type.DYN, "generationN": cel.Type.INT}
    if rule is ConditionRule.READY:
        variables["available"] = cel.Type.BOOL
    return cel.NewEnv(_pool(), variables=variables)


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """Return the types of `self`."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="sentinel/expressions.proto", syntax="proto3")
    for known in (struct_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR):
        pool.AddSerializedFile(known.serialized_pb)
        file.dependency.append(known.name)
    for name, fields in _TYPES.items():
        message = file.message_type.add(name=name)
        for number, (field, declared) in enumerate(fields.items(), start=1):
            message.field.add(name=field, number=number, **{"label": "LABEL_OPTIONAL"} | declared)
    pool.AddSerializedFile(file.SerializeToString())
    return pool

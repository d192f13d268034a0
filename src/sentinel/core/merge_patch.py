"""JSON merge patch (RFC 7396), and the one way in which a value is written.

A patch changes a resource only if what it leads to is another value. `canonical` makes that a comparison of
bytes: whatever means the same in JSON is written the same.
"""

from __future__ import annotations

import msgspec

from sentinel.core.json import Json

_INTEGERS = 2.0**63

_encoder = msgspec.json.Encoder(order="sorted")


def apply(target: Json, patch: Json) -> Json:
    """What the patch makes of the target. Neither is changed; the result may share parts with both.

    Recursive: whoever lets values in has limited how deep they go.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = apply(merged.get(name), value)
    return merged


def canonical(value: Json) -> bytes:
    """The bytes of a value: the same for equal values, different for any two that differ.

    JSON has one kind of number, so `1`, `1.0` and `1e0` are equal, and so are `0` and `-0.0`; the order of members
    does not count. Beyond 64 bits an integer and a float are kept apart even where they denote the same number: a
    float that large stands for many integers, and to spell one of them out would claim a precision it never had.
    """
    return _encoder.encode(_with_plain_integers(value))


def _with_plain_integers(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _with_plain_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_plain_integers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and -_INTEGERS <= value < _INTEGERS:
        return int(value)
    return value

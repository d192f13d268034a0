"""JSON merge patch (RFC 7396), and a canonical encoding of JSON.

A patch changes a resource only if the result is another value. With `canonical` that is a comparison of bytes:
equal values have equal encodings.
"""

from __future__ import annotations

import msgspec

from sentinel.core.json import Json

_INTEGERS = 2.0**63

_encoder = msgspec.json.Encoder(order="sorted")


def apply(target: Json, patch: Json) -> Json:
    """Return the patched target. Neither argument is changed; the result may share parts with both.

    The function is recursive. Callers must have limited the nesting of both values.
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
    """Return the canonical encoding of a value: equal bytes if and only if the values are equal.

    JSON has one number type, so `1`, `1.0` and `1e0` are equal, and so are `0` and `-0.0`. The order of members
    does not matter. Beyond 64 bits an integer and a float differ even if they denote the same number: a float that
    large stands for many integers, and writing one of them would claim a precision that it does not have.
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

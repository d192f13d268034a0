"""JSON patch (RFC 6902), as `application/json-patch+json` bodies have it.

Kubernetes is more lenient than the RFC in two ways, and so is this: `replace` adds a member that is missing, and a
missing member passes a `test` for null.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.core.merge_patch import canonical
from sentinel.testing.kube.errors import ApiError


class Operation(msgspec.Struct, frozen=True):
    """One operation of a patch."""

    op: str
    path: str
    from_path: str = msgspec.field(default="", name="from")
    value: Any = None  # msgspec has no recursive types


def decode(body: bytes) -> Sequence[Operation]:
    """Read a patch. Raises `ApiError`."""
    try:
        return msgspec.json.decode(body, type=list[Operation])
    except DECODE_ERRORS as error:
        raise ApiError.bad_request(f"error decoding patch: {error}") from error


def apply(target: Json, patch: Sequence[Operation]) -> Json:
    """Return the patched target, which is not changed. Raises `ApiError` if an operation fails."""
    document = copy.deepcopy(target)
    try:
        for operation in patch:
            document = _applied(document, operation)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise ApiError.patch_failed() from error
    return document


def _applied(document: Json, operation: Operation) -> Json:
    path = _tokens(operation.path)
    match operation.op:
        case "add":
            return _added(document, path, copy.deepcopy(operation.value))
        case "remove":
            return _removed(document, path)
        case "replace":
            return _replaced(document, path, copy.deepcopy(operation.value))
        case "move":
            moved = _value_at(document, _tokens(operation.from_path))
            return _added(_removed(document, _tokens(operation.from_path)), path, moved)
        case "copy":
            return _added(document, path, copy.deepcopy(_value_at(document, _tokens(operation.from_path))))
        case "test":
            if canonical(_tested(document, path)) != canonical(operation.value):
                raise ValueError(f"expected {operation.value!r} at {operation.path}")
            return document
        case _:
            raise ValueError(f"expected an operation of RFC 6902, got {operation.op!r}")


def _tokens(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError(f'expected a JSON pointer that begins with "/", got {pointer!r}')
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _value_at(document: Json, path: Sequence[str]) -> Json:
    for token in path:
        if isinstance(document, list):
            document = document[_index(token, len(document) - 1)]
        elif isinstance(document, dict):
            document = document[token]
        else:
            raise KeyError(token)
    return document


def _added(document: Json, path: Sequence[str], value: Json) -> Json:
    if not path:
        return value
    parent, last = _value_at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise KeyError(last)
    return document


def _replaced(document: Json, path: Sequence[str], value: Json) -> Json:
    if path and isinstance(_value_at(document, path[:-1]), list):
        document = _removed(document, path)
    return _added(document, path, value)


def _tested(document: Json, path: Sequence[str]) -> Json:
    parent = _value_at(document, path[:-1]) if path else None
    return parent.get(path[-1]) if isinstance(parent, dict) else _value_at(document, path)


def _removed(document: Json, path: Sequence[str]) -> Json:
    if not path:
        raise ValueError("expected a path below the document")
    parent, last = _value_at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.pop(_index(last, len(parent) - 1))
    elif isinstance(parent, dict):
        del parent[last]
    else:
        raise KeyError(last)
    return document


def _index(token: str, highest: int) -> int:
    if not (token.isascii() and token.isdigit()) or int(token) > highest:
        raise IndexError(token)
    return int(token)

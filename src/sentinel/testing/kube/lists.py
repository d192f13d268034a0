"""Lists in chunks, all as of the version of the first one."""

from __future__ import annotations

import base64
import binascii

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import ServedKind
from sentinel.testing.kube.objects import name_of, namespace_of
from sentinel.testing.kube.registry import in_version
from sentinel.testing.kube.requests import ApiRequest
from sentinel.testing.kube.selection import Selection
from sentinel.testing.kube.store import Key, ObjectStore

_LATEST = -1
"""The version in the token of a list that continues with newer objects after its own version expired."""
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


class ContinueToken(msgspec.Struct, frozen=True):
    """Where a list goes on. Clients must not look into it."""

    rv: int
    start: Key

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def chunk(store: ObjectStore, served: ServedKind, selection: Selection, request: ApiRequest) -> KubeObject:
    """Return one chunk of a list. Raises `ApiError`."""
    limit, token = request.number("limit"), _token(request)
    if token is None:
        exact = _exact_version(store, request)
        version, start = exact if exact is not None else store.version, None
        found = store.objects(served.resource, at=exact)
    else:
        version, start = token.rv if token.rv != _LATEST else store.version, token.start
        try:
            found = store.objects(served.resource, at=None if token.rv == _LATEST else token.rv)
        except ApiError:
            fresh = str(ContinueToken(_LATEST, token.start))
            raise ApiError.expired(_CONTINUE_EXPIRED, continue_token=fresh) from None
    selected = [each for each in found if selection.matches(each) and (start is None or _key(each) > start)]
    metadata: KubeObject = {"resourceVersion": str(version)}
    page = selected[:limit] if limit else selected
    if len(page) < len(selected):
        metadata["continue"] = str(ContinueToken(version, _key(page[-1])))
        if not selection.is_filtered:
            metadata["remainingItemCount"] = len(selected) - len(page)
    items: list[Json] = [_item(served, each) for each in page]
    return {
        "kind": f"{served.kind.kind}List",
        "apiVersion": served.kind.api_version,
        "metadata": metadata,
        "items": items,
    }


def _item(served: ServedKind, body: KubeObject) -> KubeObject:
    """Return an object as it is in lists: those of built-in kinds have neither kind nor version."""
    if served.is_custom:
        return in_version(served, body)
    return {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}


def _key(body: KubeObject) -> Key:
    return Key(namespace_of(body), name_of(body))


def _token(request: ApiRequest) -> ContinueToken | None:
    text = request.query.get("continue", "")
    if not text:
        return None
    if request.query.get("resourceVersion", "") not in ("", "0"):
        raise ApiError.bad_request("specifying resource version is not allowed when using continue")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=ContinueToken)
    except (*DECODE_ERRORS, binascii.Error) as error:
        raise ApiError.bad_request("continue key is not valid") from error


def _exact_version(store: ObjectStore, request: ApiRequest) -> int | None:
    """Return the version that a list must have, or None if the latest will do."""
    match = request.query.get("resourceVersionMatch", "")
    if match and not request.query.get("resourceVersion"):
        message = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        cause = Cause("resourceVersionMatch", message, "FieldValueForbidden")
        raise ApiError.invalid("meta.k8s.io", "ListOptions", "", [cause])
    version = request.number("resourceVersion")
    if version > store.version:
        raise ApiError.version_too_large(version, store.version)
    if not version:
        return None
    is_exact = match == "Exact" or (not match and request.number("limit") > 0)
    return version if is_exact else None

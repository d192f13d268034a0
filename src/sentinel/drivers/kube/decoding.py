"""Decodes the responses of an API server: objects, lists and the lines of a watch."""

from __future__ import annotations

from typing import Any

import msgspec

from sentinel.core.json import DECODE_ERRORS, Malformed
from sentinel.drivers.kube.status import Status, decode_status
from sentinel.ports.kube import Bookmark, KubeKind, KubeObject, ListChunk, ObjectChanged, ObjectDeleted, WatchEvent


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: list[dict[str, Any]] | None = None


class _WatchLine(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _BookmarkObject(msgspec.Struct, frozen=True):
    metadata: _BookmarkMetadata


_object_decoder: msgspec.json.Decoder[KubeObject] = msgspec.json.Decoder(dict[str, Any])
_list_decoder = msgspec.json.Decoder(_List)
_line_decoder = msgspec.json.Decoder(_WatchLine)
_bookmark_decoder = msgspec.json.Decoder(_BookmarkObject)


def decode_object(body: bytes) -> KubeObject:
    """Decode an object. Raises `Malformed`."""
    try:
        return _object_decoder.decode(body)
    except DECODE_ERRORS as error:
        raise Malformed(f"expected an object, got something else: {error}") from None


def decode_list(body: bytes, kind: KubeKind) -> tuple[ListChunk, str]:
    """Decode a part of a list and the token that continues it, "" at the end. Raises `Malformed`."""
    try:
        received = _list_decoder.decode(body)
    except DECODE_ERRORS as error:
        raise Malformed(f"expected a list of {kind}, got something else: {error}") from None
    items = received.items or []
    for item in items:
        item.setdefault("apiVersion", kind.api_version)
        item.setdefault("kind", kind.kind)
    return ListChunk(items, received.metadata.resource_version), received.metadata.continue_


def decode_event(line: bytes) -> WatchEvent | Status | None:
    """Decode a line of a watch: an event, an error, or None for one to ignore. Raises `Malformed`."""
    if not line.strip():
        return None
    try:
        received = _line_decoder.decode(line)
        match received.type:
            case "ADDED" | "MODIFIED":
                return ObjectChanged(_object_decoder.decode(received.object))
            case "DELETED":
                return ObjectDeleted(_object_decoder.decode(received.object))
            case "BOOKMARK":
                return Bookmark(_bookmark_decoder.decode(received.object).metadata.resource_version)
            case "ERROR":
                return decode_status(received.object) or Status(message="the watch ended with an unknown error")
            case _:
                return None  # of a later version of Kubernetes
    except DECODE_ERRORS as error:
        raise Malformed(f"expected an event of a watch, got something else: {error}") from None

"""What a reflector tells: to its handler, how objects changed; to its observer, what it does."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

import msgspec

from sentinel.core.kube.objects import ObjectKey
from sentinel.ports.kube import KubeObject, WatchEvent

T = TypeVar("T")


class Added(msgspec.Struct, Generic[T], frozen=True):
    """The object is new, or was seen for the first time."""

    key: ObjectKey
    kept: T
    """What is kept of the object from now on."""
    object: KubeObject


class Modified(msgspec.Struct, Generic[T], frozen=True):
    """The object has another version."""

    key: ObjectKey
    previous: T
    """What was kept of the last version that was seen. There may have been others in between."""
    kept: T
    object: KubeObject


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """The object was deleted, or no longer matches the selector."""

    key: ObjectKey
    previous: T
    """What was kept of the last version that was seen."""
    object: KubeObject | None
    """The last state, or None if the object was deleted while nothing was watched."""


Change: TypeAlias = Added[T] | Modified[T] | Deleted[T]


class ListReason(StrEnum):
    """Why objects are listed."""

    FIRST = "first"
    EXPIRED = "expired"
    """The API server no longer knows the changes since the last version that was seen."""
    RESYNC = "resync"
    """It is time for a periodic list."""
    WATCH_FAILED = "watch_failed"
    """The watch was rejected, or failed many times in a row."""


class Listed(msgspec.Struct, frozen=True):
    """All objects were listed."""

    reason: ListReason
    objects: int


class WatchStarted(msgspec.Struct, frozen=True):
    """A watch was requested."""

    resource_version: str


class EventReceived(msgspec.Struct, frozen=True):
    """A watch delivered an event. It need not be a change."""

    event: WatchEvent


class RequestFailed(msgspec.Struct, frozen=True):
    """A list or a watch failed and will be repeated."""

    verb: str
    """`list` or `watch`."""
    error: BaseException | None
    """None if the server closed a stream at once."""
    retry_in: timedelta


Observation: TypeAlias = Listed | WatchStarted | EventReceived | RequestFailed

"""The Kubernetes API: raw objects, and the calls that operators make.

Objects are the JSON that the API server sends, unchanged: a typed model would lose fields that it does not know,
and `managedFields` with them. Callers read what they need and leave the rest alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, Required, TypeAlias, TypedDict, Unpack

import msgspec

from sentinel.core.json import Json
from sentinel.ports.errors import Unavailable

KubeObject: TypeAlias = "dict[str, Json]"
"""An object as the API server sends it."""


class KubeKind(msgspec.Struct, frozen=True):
    """A kind of objects and where the API serves it."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        """The resource as kubectl and RBAC name it: `sentinelconfigs.hyperfleet.redhat.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class KubeUnavailable(Unavailable):
    """The API server cannot be reached, does not respond in time, or is overloaded. Trying again may help."""

    def __init__(self, text: str, *, retry_after: timedelta = timedelta(0), status: int = 0) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """The delay that the server requests."""
        self.status = status
        """The HTTP status, or 0 if there was no response."""


class Cause(msgspec.Struct, frozen=True):
    """One reason for a rejected request, as in `Status.details.causes`."""

    field: str
    """The path of the field, such as `spec.pollInterval`."""
    message: str
    reason: str = ""


class KubeError(Exception):
    """The API server rejected the request. The text is the server's message, on one line and without secrets."""

    def __init__(self, text: str, *, status: int, reason: str = "", causes: Sequence[Cause] = ()) -> None:
        super().__init__(text)
        self.status = status
        """The HTTP status, or the code of a `Status` in a watch."""
        self.reason = reason
        """Kubernetes' word, such as `Forbidden` or `FieldManagerConflict`."""
        self.causes = tuple(causes)


class Unauthorized(KubeError):
    """401: the credentials are missing, expired or unknown."""


class Forbidden(KubeError):
    """403: RBAC or an admission policy does not allow it."""


class ObjectNotFound(KubeError):
    """404: no such object, or no such kind."""


class AlreadyExists(KubeError):
    """409, reason `AlreadyExists`: the name is taken."""


class Conflict(KubeError):
    """409, any other reason: another writer was first, or another field manager owns a field."""


class ResourceExpired(KubeError):
    """410: the resource version or the continue token is too old. List again."""


class InvalidObject(KubeError):
    """400 or 422: the API server does not accept the object."""


class ListChunk(msgspec.Struct, frozen=True):
    """A part of a list."""

    items: Sequence[KubeObject]
    """With `apiVersion` and `kind`, which the API server omits in lists."""
    resource_version: str
    """The version of the whole list, from which a watch continues. The same in all chunks."""


class ObjectChanged(msgspec.Struct, frozen=True):
    """The object was added or modified."""

    object: KubeObject


class ObjectDeleted(msgspec.Struct, frozen=True):
    """The object was deleted, or no longer matches the selector. This is its last state."""

    object: KubeObject


class Bookmark(msgspec.Struct, frozen=True):
    """Nothing else changed up to this version, so a watch may continue from it."""

    resource_version: str


WatchEvent: TypeAlias = ObjectChanged | ObjectDeleted | Bookmark


class ListOptions(TypedDict, total=False):
    """Which objects of a kind are meant, by default all."""

    namespace: str
    label_selector: str
    field_selector: str


class WriteOptions(TypedDict, total=False):
    """Where an object is, and which part of it is written."""

    namespace: str
    subresource: str


class PatchOptions(WriteOptions, total=False):
    """As `WriteOptions`, and who owns the patched fields."""

    field_manager: str


class ApplyOptions(WriteOptions, total=False):
    """As `WriteOptions`, and how fields are applied."""

    field_manager: Required[str]
    is_forced: bool
    is_dry_run: bool


class KubeReader(Protocol):
    """Calls that read from one API server.

    Every call has a timeout and is sent once. Calls raise `KubeUnavailable` if there is no usable response, and a
    subclass of `KubeError` if the server rejects the request. Neither contains a secret. `namespace` is empty for
    kinds without namespaces, and for calls over all namespaces.
    """

    async def get(self, kind: KubeKind, name: str, *, namespace: str = "") -> KubeObject: ...

    def list(
        self, kind: KubeKind, *, chunk_size: int = 500, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[ListChunk, None]:
        """Yield a consistent list in chunks; at least one chunk, which may be empty.

        Raises `ResourceExpired` if the list cannot be continued.
        """

    def watch(
        self, kind: KubeKind, *, resource_version: str, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield every change after `resource_version`, in order.

        Ends normally when the server closes the stream, which it does after some minutes, and when the stream was
        silent for too long to be alive. Raises `ResourceExpired` if the version is too old, also in mid-stream.
        Closing the iterator ends the request.
        """


class KubeWriter(KubeReader, Protocol):
    """Calls that read and write whole objects."""

    async def create(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", is_dry_run: bool = False
    ) -> KubeObject: ...

    async def replace(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", subresource: str = ""
    ) -> KubeObject:
        """Replace the object with this name. Raises `Conflict` if its `resourceVersion` is not the current one."""


class KubeApi(KubeWriter, Protocol):
    """All calls to one API server."""

    async def apply(self, kind: KubeKind, body: KubeObject, **options: Unpack[ApplyOptions]) -> KubeObject:
        """Apply on the server: create the object, or make the fields in `body` equal and owned by `field_manager`.

        Fields that the manager applied before and that `body` lacks are removed. Raises `Conflict` if another
        manager owns a field with another value, unless the call `is_forced`.
        """

    async def merge_patch(
        self, kind: KubeKind, name: str, patch: Mapping[str, Json], **options: Unpack[PatchOptions]
    ) -> KubeObject: ...

    async def json_patch(
        self, kind: KubeKind, name: str, patch: Sequence[Mapping[str, Json]], **options: Unpack[PatchOptions]
    ) -> KubeObject: ...

    async def delete(
        self, kind: KubeKind, name: str, *, namespace: str = "", uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete the object in the background. With `uid` or `resource_version`, raises `Conflict` if the object
        has another."""

    async def close(self) -> None:
        """Close all connections, also those of open watches. Idempotent."""

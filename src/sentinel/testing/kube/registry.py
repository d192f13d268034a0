"""The verbs of the API on stored objects: what the API server does, without HTTP.

Every method either stores the result and returns it, or raises `ApiError` and changes nothing. With `is_dry_run`
it returns the result without storing it. A write that changes nothing has no new version and no event.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.core.times import timestamp
from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube import definitions, ownership, preconditions, preparation, typed_patch
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Kinds, ServedKind
from sentinel.testing.kube.managed_fields import Managed, Writer
from sentinel.testing.kube.objects import member, metadata_of, name_of, text, texts
from sentinel.testing.kube.store import Key, ObjectStore


class WriteOptions(msgspec.Struct, frozen=True):
    """The parameters of a write."""

    manager: str = "unknown"
    subresource: str = ""
    is_dry_run: bool = False
    is_strict: bool = False
    """Reject unknown fields of custom resources instead of dropping them."""


class Written(msgspec.Struct, frozen=True):
    """The result of a write."""

    object: KubeObject
    is_new: bool = False
    is_gone: bool = False
    """The object was removed, by a deletion or because its last finalizer was."""
    warnings: Sequence[str] = ()


class Registry:
    """The API server's verbs."""

    def __init__(self, *, store: ObjectStore, kinds: Kinds, now: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._now = now

    def get(self, served: ServedKind, namespace: str, name: str) -> KubeObject:
        """Return an object in the version of its kind that was asked for. Raises `ApiError` if there is none."""
        found = self._store.get(served.resource, Key(namespace, name))
        if found is None:
            raise ApiError.not_found(served.kind, name)
        return in_version(served, found)

    def create(self, served: ServedKind, namespace: str, body: KubeObject, options: WriteOptions) -> Written:
        """Create an object. `AlreadyExists` if the name is taken."""
        preparation.check_identity(served, body, name="", namespace=namespace)
        new, unknown = preparation.decoded(served, body, namespace=namespace)
        warnings = preparation.check_unknown(unknown, is_strict=options.is_strict)
        metadata = metadata_of(new)
        if not metadata.get("name") and (prefix := text(metadata, "generateName")):
            metadata["name"] = f"{prefix}{uuid.uuid4().hex[:5]}"
        name = name_of(new)
        preconditions.check_namespace(self._store, served, namespace, name)
        if metadata.get("resourceVersion"):
            raise ApiError.bad_request("resourceVersion should not be set on objects to be created")
        owners = ownership.after_create(served, new, self._writer(served, options))
        return self._create(served, new, owners, options, warnings)

    def update(
        self, served: ServedKind, namespace: str, name: str, body: KubeObject, options: WriteOptions
    ) -> Written:
        """Replace an object, or the part of it that the subresource is about."""
        preparation.check_identity(served, body, name=name, namespace=namespace)
        existing = self._store.get(served.resource, Key(namespace, name))
        if existing is None and (options.subresource or not served.creates_on_update):
            raise ApiError.not_found(served.kind, name)
        preconditions.check_uid(served, name, text(metadata_of(body), "uid"), existing)
        if existing is None:
            metadata = {key: value for key, value in metadata_of(body).items() if key != "resourceVersion"}
            return self.create(served, namespace, {**body, "metadata": metadata}, options)
        return self._update(served, existing, body, options)

    def patch(
        self,
        served: ServedKind,
        namespace: str,
        name: str,
        change: Callable[[Json], Json],
        options: WriteOptions,
    ) -> Written:
        """Change an object by a function."""
        existing = self._store.get(served.resource, Key(namespace, name))
        if existing is None:
            raise ApiError.not_found(served.kind, name)
        body = change(in_version(served, existing))
        if not isinstance(body, dict):
            raise ApiError.bad_request(f"expected an object after the patch, got {canonical(body).decode()}")
        preparation.check_identity(served, body, name=name, namespace=namespace)
        if metadata_of(body).get("uid") != metadata_of(existing).get("uid"):
            cause = Cause("metadata.uid", "Invalid value: field is immutable", "FieldValueInvalid")
            raise ApiError.invalid(served.kind.group, served.kind.kind, name, [cause])
        return self._update(served, existing, body, options)

    def apply(
        self,
        served: ServedKind,
        namespace: str,
        name: str,
        body: KubeObject,
        options: WriteOptions,
        *,
        is_forced: bool = False,
    ) -> Written:
        """Apply on the server. Creates the object if there is none."""
        preparation.check_identity(served, body, name=name, namespace=namespace, is_apply=True)
        if metadata_of(body).get("managedFields") is not None:
            raise ApiError.bad_request("metadata.managedFields must be nil")
        typed_patch.check(served, body)
        existing = self._store.get(served.resource, Key(namespace, name))
        if existing is None and options.subresource:
            raise ApiError.not_found(served.kind, name)
        given = {"name": name, "namespace": namespace} if served.kind.is_namespaced else {"name": name}
        applied: KubeObject = {**body, "metadata": {**metadata_of(body), **given}}
        preconditions.check_uid(served, name, text(metadata_of(applied), "uid"), existing)

        live = in_version(served, existing) if existing is not None else None
        writer = self._writer(served, options)
        merged, owners = ownership.after_apply(served, live, applied, writer, is_forced=is_forced)
        new = preparation.merged(served, merged, namespace=namespace)
        if live is None:
            preconditions.check_namespace(self._store, served, namespace, name)
            return self._create(served, new, owners, options, ())
        preconditions.check_version(served, live, new)
        prepared = preparation.for_update(served, live, new, subresource=options.subresource)
        return self._store_update(served, live, ownership.with_owners(prepared, owners), options, ())

    def delete(
        self,
        served: ServedKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        is_dry_run: bool = False,
    ) -> Written:
        """Delete an object, or mark it as deleted while it has finalizers."""
        existing = self._store.get(served.resource, Key(namespace, name))
        if existing is None:
            raise ApiError.not_found(served.kind, name)
        metadata = metadata_of(existing)
        preconditions.check_deletion(served, existing, uid=uid, resource_version=resource_version)
        if not _finalizers(served, existing):
            return self._remove(served, existing, is_dry_run=is_dry_run)
        if "deletionTimestamp" in metadata:
            return Written(in_version(served, existing))
        generation = metadata.get("generation")
        deleted: KubeObject = {"deletionTimestamp": self._timestamp(), "deletionGracePeriodSeconds": 0}
        if isinstance(generation, int):
            deleted["generation"] = generation + 1
        new: KubeObject = {**existing, "metadata": {**metadata, **deleted}}
        if served.kind == NAMESPACE:
            new["status"] = {**member(existing, "status"), "phase": "Terminating"}
        return Written(in_version(served, self._put(served, new, is_dry_run=is_dry_run)))

    def _create(
        self,
        served: ServedKind,
        body: KubeObject,
        owners: Managed,
        options: WriteOptions,
        warnings: Sequence[str],
    ) -> Written:
        new = preparation.for_create(served, body, now=self._timestamp())
        preparation.check(served, new)
        name = name_of(new)
        taken = self._store.get(served.resource, Key(text(metadata_of(new), "namespace"), name))
        if taken is not None:
            is_being_deleted = "deletionTimestamp" in metadata_of(taken)
            raise ApiError.already_exists(served.kind, name, is_being_deleted=is_being_deleted)
        given = {key: value for key, value in metadata_of(new).items() if key not in _SET_BY_SERVER}
        system: KubeObject = {"uid": str(uuid.uuid4()), "creationTimestamp": self._timestamp()}
        if served.has_generation:
            system["generation"] = 1
        new["metadata"] = {**given, **system}
        stored = self._put(served, ownership.with_owners(new, owners), is_dry_run=options.is_dry_run)
        return Written(in_version(served, stored), is_new=True, warnings=warnings)

    def _update(
        self, served: ServedKind, existing: KubeObject, body: KubeObject, options: WriteOptions
    ) -> Written:
        live = in_version(served, existing)
        new, unknown = preparation.decoded(served, body, namespace=text(metadata_of(existing), "namespace"))
        warnings = preparation.check_unknown(unknown, is_strict=options.is_strict)
        preconditions.check_version(served, live, new)
        prepared = preparation.for_update(served, live, new, subresource=options.subresource)
        given = metadata_of(new).get("managedFields")
        owners = ownership.after_update(served, live, prepared, given, self._writer(served, options))
        return self._store_update(served, live, ownership.with_owners(prepared, owners), options, warnings)

    def _store_update(
        self,
        served: ServedKind,
        live: KubeObject,
        new: KubeObject,
        options: WriteOptions,
        warnings: Sequence[str],
    ) -> Written:
        preparation.check(served, new, existing=live)
        if canonical(ownership.without_times(new)) == canonical(ownership.without_times(live)):
            return Written(live, warnings=warnings)
        if "deletionTimestamp" in metadata_of(new) and not _finalizers(served, new):
            self._remove(served, live, is_dry_run=options.is_dry_run)
            return Written(new, is_gone=True, warnings=warnings)
        stored = self._put(served, new, is_dry_run=options.is_dry_run)
        return Written(in_version(served, stored), warnings=warnings)

    def _put(self, served: ServedKind, new: KubeObject, *, is_dry_run: bool) -> KubeObject:
        if is_dry_run:
            return new
        stored = self._store.put(served.resource, new)
        if served.kind == CUSTOM_RESOURCE_DEFINITION:
            self._kinds.remove(*definitions.resource_of(stored))
            for defined in definitions.kinds_of(stored):
                self._kinds.add(defined)
        return stored

    def _remove(self, served: ServedKind, last: KubeObject, *, is_dry_run: bool) -> Written:
        if is_dry_run:
            return Written(in_version(served, last), is_gone=True)
        if served.kind == CUSTOM_RESOURCE_DEFINITION:
            self._remove_defined(last)
        key = Key(text(metadata_of(last), "namespace"), name_of(last))
        return Written(in_version(served, self._store.delete(served.resource, key)), is_gone=True)

    def _remove_defined(self, definition: KubeObject) -> None:
        """Delete the objects of a definition, and serve them no more."""
        for defined in definitions.kinds_of(definition):
            for each in self._store.objects(defined.resource):
                self._store.delete(defined.resource, Key(text(metadata_of(each), "namespace"), name_of(each)))
        self._kinds.remove(*definitions.resource_of(definition))

    def _writer(self, served: ServedKind, options: WriteOptions) -> Writer:
        return Writer(
            manager=options.manager,
            api_version=served.kind.api_version,
            now=self._now(),
            subresource=options.subresource,
            ignored=ownership.ignored_fields(served, options.subresource),
        )

    def _timestamp(self) -> str:
        return timestamp(self._now().astimezone(UTC).replace(microsecond=0))


_SET_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def in_version(served: ServedKind, body: KubeObject) -> KubeObject:
    """Return an object in the version of its kind that was asked for."""
    if body["apiVersion"] == served.kind.api_version:
        return body
    return {**body, "apiVersion": served.kind.api_version}


def _finalizers(served: ServedKind, body: KubeObject) -> list[str]:
    own = texts(metadata_of(body), "finalizers")
    return own + texts(member(body, "spec"), "finalizers") if served.kind == NAMESPACE else own

"""What a request expects of the object that it changes: its version, its uid, its namespace."""

from __future__ import annotations

from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import NAMESPACE, ServedKind
from sentinel.testing.kube.objects import metadata_of, name_of, text
from sentinel.testing.kube.store import Key, ObjectStore

_LOCK_FAILED = "the object has been modified; please apply your changes to the latest version and try again"


def check_version(served: ServedKind, existing: KubeObject, new: KubeObject) -> None:
    """Raise `ApiError` if an update is based on another version than the current one."""
    expected, actual = (text(metadata_of(each), "resourceVersion") for each in (new, existing))
    if not expected and served.needs_version:
        message = "Invalid value: 0: must be specified for an update"
        cause = Cause("metadata.resourceVersion", message, "FieldValueInvalid")
        raise ApiError.invalid(served.kind.group, served.kind.plural, name_of(existing), [cause])
    if expected and expected != actual:
        raise ApiError.conflict(served.kind, name_of(existing), _LOCK_FAILED)


def check_uid(served: ServedKind, name: str, uid: str, existing: KubeObject | None) -> None:
    """Raise `ApiError` if an update is meant for another object of this name."""
    actual = text(metadata_of(existing), "uid") if existing is not None else ""
    if uid and uid != actual:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise ApiError.conflict(served.kind, name, why)


def check_deletion(served: ServedKind, existing: KubeObject, *, uid: str, resource_version: str) -> None:
    """Raise `ApiError` if a deletion is meant for another object of this name, or for another version of it."""
    metadata = metadata_of(existing)
    for what, expected, actual, explanation in (
        ("UID", uid, text(metadata, "uid"), "deleted and then recreated"),
        ("ResourceVersion", resource_version, text(metadata, "resourceVersion"), "modified"),
    ):
        if expected and expected != actual:
            why = (
                f"the {what} in the precondition ({expected}) does not match the {what} in record ({actual}). "
                f"The object might have been {explanation}"
            )
            raise ApiError.conflict(served.kind, name_of(existing), why, names_kind=True)


def check_namespace(store: ObjectStore, served: ServedKind, namespace: str, name: str) -> None:
    """Raise `ApiError` if an object cannot be created in a namespace."""
    if not served.kind.is_namespaced:
        return
    found = store.get(str(NAMESPACE), Key("", namespace))
    if found is None:
        raise ApiError.not_found(NAMESPACE, namespace)
    if "deletionTimestamp" in metadata_of(found):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise ApiError.forbidden(served.kind, name, why)

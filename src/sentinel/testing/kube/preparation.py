"""What the API server does to a body before it stores it: decode, prepare, validate.

Custom resources get the defaults of their schema and lose unknown fields. Objects of built-in kinds are stored as
they are, with three exceptions that everybody relies on: `stringData` of a Secret, the phase and finalizer of a
Namespace, and the status of a CustomResourceDefinition.
"""

from __future__ import annotations

import base64
import re

from sentinel.core.json import Json
from sentinel.core.labels import check_labels
from sentinel.core.merge_patch import canonical
from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube import definitions, structural_schema
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.field_types import METADATA
from sentinel.testing.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    SECRET,
    ServedKind,
)
from sentinel.testing.kube.objects import (
    labels_of,
    member,
    members_without_nulls,
    metadata_of,
    name_of,
    text,
    texts,
    without_empty,
)

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME = 253
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)


def check_identity(
    served: ServedKind, body: KubeObject, *, name: str, namespace: str, is_apply: bool = False
) -> None:
    """Raise `ApiError` if a body is of another kind or about another object than the path of the request.

    `name` is empty if the path has none.
    """
    kind, api_version = text(body, "kind"), text(body, "apiVersion")
    given = (api_version or served.kind.api_version, kind or served.kind.kind)
    if (served.is_custom or is_apply) and not (kind and api_version):
        raise ApiError.bad_request(f"Object 'Kind' is missing in '{canonical(body).decode()[:200]}'")
    if given != (served.kind.api_version, served.kind.kind):
        raise ApiError.bad_request(
            f"{kind} in version {api_version!r} cannot be handled as a {served.kind.kind}: "
            f"expected {served.kind.api_version}, kind {served.kind.kind}"
        )
    own_name, own_namespace = name_of(body), text(metadata_of(body), "namespace")
    if name and own_name != name and not (is_apply and not own_name):
        raise ApiError.bad_request(
            f"the name of the object ({own_name}) does not match the name on the URL ({name})"
        )
    if own_namespace and own_namespace != namespace:
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def decoded(served: ServedKind, body: KubeObject, *, namespace: str) -> tuple[KubeObject, list[str]]:
    """Return the body as the API server reads it, and the paths of unknown fields, which it drops."""
    unknown: list[str] = []
    read: Json = body
    if served.schema is not None:
        read, unknown = structural_schema.without_unknown(served.schema, read)
        read = structural_schema.without_nulls(served.schema, read)
    return _complete(served, read, namespace=namespace), unknown


def merged(served: ServedKind, body: KubeObject, *, namespace: str) -> KubeObject:
    """Return a body that is the result of an apply. Nulls in it stay, unless there is a default."""
    return _complete(served, body, namespace=namespace)


def _complete(served: ServedKind, body: Json, *, namespace: str) -> KubeObject:
    """Return a body with the defaults of its kind and the metadata that the request gives it."""
    read: Json = body
    if served.schema is not None:
        read = structural_schema.with_defaults(served.schema, read)
    elif not served.is_custom:
        read = members_without_nulls(read) if isinstance(read, dict) else read
        read = without_empty(served.field_type, read) if isinstance(read, dict) else read
    if not isinstance(read, dict):
        raise ApiError.bad_request(f"expected an object, got {canonical(read).decode()}")
    metadata = members_without_nulls(metadata_of(read))
    metadata.pop("namespace", None)
    if served.kind.is_namespaced:
        metadata["namespace"] = namespace
    metadata = without_empty(METADATA, metadata)
    head: KubeObject = {"apiVersion": served.kind.api_version, "kind": served.kind.kind, "metadata": metadata}
    return _with_secret_data(served, {**head, **{name: value for name, value in read.items() if name not in head}})


def for_create(served: ServedKind, body: KubeObject, *, now: str) -> KubeObject:
    """Return a body that is ready to be created: without a status, with what its kind begins with."""
    new = {name: value for name, value in body.items() if name != "status" or not served.has_status}
    if served.kind == NAMESPACE:
        metadata = metadata_of(new)
        own_label: KubeObject = {"kubernetes.io/metadata.name": name_of(new)}
        new["metadata"] = {**metadata, "labels": {**member(metadata, "labels"), **own_label}}
        new["spec"] = {"finalizers": ["kubernetes"], **member(new, "spec")}
        new["status"] = {"phase": "Active"}
    elif served.kind == POD:
        new["status"] = {"phase": "Pending"}
    elif served.kind == CUSTOM_RESOURCE_DEFINITION:
        definitions.check(new)
        new["status"] = definitions.accepted_status(new, now)
    return new


def for_update(served: ServedKind, existing: KubeObject, body: KubeObject, *, subresource: str) -> KubeObject:
    """Return a body that is ready to replace `existing`: each endpoint writes only its own part."""
    match subresource:
        case "":
            new = dict(body)
            if served.has_status:
                new.pop("status", None)
                if "status" in existing:
                    new["status"] = existing["status"]
            if served.kind == CUSTOM_RESOURCE_DEFINITION:
                definitions.check(new)
        case "status":
            new = {name: value for name, value in existing.items() if name != "status"}
            if "status" in body:
                new["status"] = body["status"]
        case _:
            new = {
                **existing,
                "spec": {**member(existing, "spec"), "finalizers": member(body, "spec").get("finalizers") or []},
            }
    old, given = metadata_of(existing), metadata_of(body)
    kept = {name: old[name] for name in _IMMUTABLE if name in old}
    changeable = (
        {name: value for name, value in given.items() if name not in _IMMUTABLE} if not subresource else old
    )
    if (
        served.has_generation
        and not subresource
        and _has_new_generation(served, existing, {**new, "metadata": given})
    ):
        generation = old.get("generation")
        kept["generation"] = generation + 1 if isinstance(generation, int) else 1
    new["metadata"] = {**changeable, **kept}
    return new


_IMMUTABLE = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)


def _has_new_generation(served: ServedKind, old: KubeObject, new: KubeObject) -> bool:
    if served.is_custom:
        names = (old.keys() | new.keys()) - {"metadata"}
        return any(canonical(old.get(name)) != canonical(new.get(name)) for name in names)
    if served.kind == DEPLOYMENT:  # annotations of a Deployment are copied to its ReplicaSets
        before, after = (member(metadata_of(each), "annotations") for each in (old, new))
        if before != after:
            return True
    return canonical(old.get("spec")) != canonical(new.get("spec"))


def _with_secret_data(served: ServedKind, body: KubeObject) -> KubeObject:
    """Return a Secret with `stringData` moved to `data`; any other object as it is."""
    if served.kind != SECRET or "stringData" not in body:
        return body
    plain = member(body, "stringData")
    encoded: KubeObject = {key: base64.b64encode(text(plain, key).encode()).decode() for key in plain}
    rest = {name: value for name, value in body.items() if name != "stringData"}
    return {**rest, "data": {**member(body, "data"), **encoded}}


def check(served: ServedKind, new: KubeObject, *, existing: KubeObject | None = None) -> None:
    """Raise `ApiError` with everything that is wrong with an object."""
    metadata = metadata_of(new)
    name = name_of(new)
    causes: list[Cause] = []
    is_path_segment = served.kind.group == "rbac.authorization.k8s.io"
    if not name:
        message = "Required value: name or generateName is required"
        causes.append(Cause("metadata.name", message, "FieldValueRequired"))
    elif not is_path_segment and (len(name) > _MAX_NAME or not _SUBDOMAIN.fullmatch(name)):
        causes.append(Cause("metadata.name", f'Invalid value: "{name}": {_NAME_RULE}', "FieldValueInvalid"))
    for field, problem in check_labels(labels_of(new)):
        key = field.removeprefix("labels.")
        causes.append(Cause("metadata.labels", f'Invalid value: "{key}": {problem}', "FieldValueInvalid"))
    if existing is not None and "deletionTimestamp" in metadata:
        added = sorted(set(texts(metadata, "finalizers")) - set(texts(metadata_of(existing), "finalizers")))
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            message = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            causes.append(Cause("metadata.finalizers", message, "FieldValueForbidden"))
    if served.schema is not None:
        causes += sorted(structural_schema.problems(served.schema, new), key=lambda cause: cause.field)
    if causes:
        raise ApiError.invalid(served.kind.group, served.kind.kind, name, causes)


def check_unknown(unknown: list[str], *, is_strict: bool) -> list[str]:
    """Return warnings about unknown fields, or raise `ApiError` if they are not allowed."""
    found = [f'unknown field "{path}"' for path in unknown]
    if found and is_strict:
        raise ApiError.bad_request(f"strict decoding error: {', '.join(found)}")
    return found

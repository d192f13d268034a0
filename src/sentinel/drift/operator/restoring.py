"""Restores the desired state of objects, whatever others did to them.

Server-side apply restores the fields that the operator names, and creates what was deleted. It leaves alone what
others added, such as a container. So a patch follows that replaces the whole content by the desired one. The API
server fills in the same defaults again; if nothing was added, it stores nothing.

What others added can also make the apply invalid: a volume cannot be of two types. Then their content is removed
first. An object that cannot be changed into the desired one, because a field is immutable, is deleted and created
again.

Labels and annotations that others add are theirs, except for annotations with the operator's prefix.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from sentinel.core.drift import paths
from sentinel.core.drift.attestation import attest
from sentinel.core.drift.rules import Rules
from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.ports.kube import InvalidObject, KubeApi, KubeKind, KubeObject, ObjectNotFound
from sentinel.runtime.log import Log

_CONTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "ConfigMap": ("data", "binaryData", "immutable"),
    "Secret": ("data", "immutable"),
    "Service": ("spec",),
    "StatefulSet": ("spec",),
    "Deployment": ("spec",),
    "Role": ("rules",),
    "RoleBinding": ("subjects",),
}
"""What is replaced, by kind. Of other kinds only the desired fields are restored: controllers write the rest."""


class Restorer:
    """Restores objects on one API server."""

    def __init__(self, api: KubeApi, *, rules: Rules, field_manager: str, log: Log) -> None:
        self._api = api
        self._rules = rules
        self._field_manager = field_manager
        self._log = log

    async def restore(self, kind: KubeKind, desired: KubeObject, *, is_attested: bool = True) -> KubeObject:
        """Make an object equal to `desired`, and return it.

        With `is_attested`, it gets the annotation by which a sidecar that starts later can judge it.

        Raises `KubeError` and `KubeUnavailable`.
        """
        body = self._attested(desired) if is_attested else desired
        try:
            return await self._make_equal(kind, body)
        except InvalidObject:
            pass
        try:
            return await self._replace(kind, body)
        except ObjectNotFound:
            return await self._make_equal(kind, body)  # someone deleted it in between

    async def remove(self, kind: KubeKind, name: str, *, namespace: str, owner_uid: str) -> bool:
        """Delete an object that belongs to an owner. Returns whether there was one.

        An object of the same name that belongs to someone else is left alone.
        """
        try:
            found = await self._api.get(kind, name, namespace=namespace)
            if not _is_owned(found, owner_uid):
                return False
            await self._api.delete(kind, name, namespace=namespace, uid=objects.uid(found))
        except ObjectNotFound:
            return False
        return True

    def _attested(self, desired: KubeObject) -> KubeObject:
        metadata = dict(objects.read_metadata(desired))
        own: dict[str, Json] = dict(objects.read_annotations(desired))
        own[self._rules.annotations.fingerprint] = attest(desired, self._rules)
        return {**desired, "metadata": {**metadata, "annotations": own}}

    async def _make_equal(self, kind: KubeKind, body: KubeObject) -> KubeObject:
        namespace = objects.namespace(body)
        live = await self._api.apply(
            kind, body, namespace=namespace, field_manager=self._field_manager, is_forced=True
        )
        patch = content_patch(live, body, rules=self._rules)
        if not patch:
            return live
        return await self._api.json_patch(
            kind, objects.name(body), patch, namespace=namespace, field_manager=self._field_manager
        )

    async def _replace(self, kind: KubeKind, body: KubeObject) -> KubeObject:
        """Make an object equal that does not accept an apply. Raises `ObjectNotFound` if it is gone."""
        namespace, name = objects.key(body)
        live = await self._api.get(kind, name, namespace=namespace)
        try:
            patch = content_patch(live, body, rules=self._rules)
            if patch:
                live = await self._api.json_patch(
                    kind, name, patch, namespace=namespace, field_manager=self._field_manager
                )
            return await self._make_equal(kind, body)
        except InvalidObject as error:
            if _has_other_controller(live, body) or not await self._is_valid(kind, body):
                raise
            self._log.warning("object.replaced", kind=kind.kind, namespace=namespace, name=name, error=error)
        await self._delete(kind, live)
        return await self._make_equal(kind, body)

    async def _is_valid(self, kind: KubeKind, body: KubeObject) -> bool:
        """Whether the API server would create the object if there were none.

        It is asked about another name, which nobody can have taken. The API server validates the object without
        storing it. If it is invalid, deleting the one that exists would leave none.
        """
        new: KubeObject = {**body, "metadata": {**objects.read_metadata(body), "name": f"dry-run-{uuid.uuid4()}"}}
        try:
            await self._api.apply(
                kind,
                new,
                namespace=objects.namespace(body),
                field_manager=self._field_manager,
                is_forced=True,
                is_dry_run=True,
            )
        except InvalidObject:
            return False
        return True

    async def _delete(self, kind: KubeKind, live: KubeObject) -> None:
        """Delete an object, unless it has changed: then it may accept the next attempt.

        It is opted out first: a sidecar cannot tell who deletes an object, and would report it as drift.
        """
        (namespace, name), uid = objects.key(live), objects.uid(live)
        metadata: KubeObject = {
            "uid": uid,
            "resourceVersion": objects.resource_version(live),
            "annotations": {self._rules.annotations.ignore: "true"},
        }
        await self._api.merge_patch(
            kind, name, {"metadata": metadata}, namespace=namespace, field_manager=self._field_manager
        )
        await self._api.delete(kind, name, namespace=namespace, uid=uid)


def content_patch(live: KubeObject, desired: KubeObject, *, rules: Rules) -> list[dict[str, Json]]:
    """Return the JSON patch that removes what others added to an object. `live` is what an apply returned."""
    patch: list[dict[str, Json]] = []
    for field in _CONTENT.get(str(desired.get("kind")), ()):
        if field in desired:
            # The spec has defaults that we do not know, so it is always sent. Data has none.
            if field == "spec" or live.get(field) != desired[field]:
                patch.append({"op": "add", "path": f"/{field}", "value": desired[field]})
        elif field in live:
            patch.append({"op": "remove", "path": f"/{field}"})
    names, own = rules.annotations, objects.read_annotations(desired)
    # An object that was opted out stays so: the change that did it was reported.
    kept = (*own, names.ignore, names.fingerprint)
    patch += [
        {"op": "remove", "path": paths.child(paths.ANNOTATIONS, name)}
        for name in objects.read_annotations(live)
        if name.startswith(names.prefix) and name not in kept
    ]
    return patch


def _is_owned(found: KubeObject, owner_uid: str) -> bool:
    return any(owner.get("uid") == owner_uid for owner in _owners(found))


def _has_other_controller(live: KubeObject, desired: KubeObject) -> bool:
    """Whether an object belongs to another controller than the desired one."""
    return not _controllers(live) <= _controllers(desired)


def _controllers(found: KubeObject) -> set[Json]:
    return {owner.get("uid") for owner in _owners(found) if owner.get("controller") is True}


def _owners(found: KubeObject) -> list[Mapping[str, Json]]:
    owners = objects.read_metadata(found).get("ownerReferences")
    return [owner for owner in owners if isinstance(owner, dict)] if isinstance(owners, list) else []

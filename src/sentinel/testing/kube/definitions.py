"""CustomResourceDefinitions: the kinds that they define, and their status."""

from __future__ import annotations

from sentinel.core.json import Json
from sentinel.ports.kube import Cause, KubeKind, KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import CUSTOM_RESOURCE_DEFINITION, ServedKind, custom
from sentinel.testing.kube.objects import member, name_of, objects, text

_REQUIRED = "FieldValueRequired"


def check(definition: KubeObject) -> None:
    """Raise `ApiError` if a definition lacks what is needed to serve it."""
    spec, name = member(definition, "spec"), name_of(definition)
    names = member(spec, "names")
    causes = [
        Cause(path, "Required value", _REQUIRED)
        for path, value in (
            ("spec.group", spec.get("group")),
            ("spec.scope", spec.get("scope")),
            ("spec.names.plural", names.get("plural")),
            ("spec.names.kind", names.get("kind")),
            ("spec.versions", spec.get("versions")),
        )
        if not value
    ]
    for number, version in enumerate(objects(spec, "versions")):
        if not member(member(version, "schema"), "openAPIV3Schema"):
            path = f"spec.versions[{number}].schema.openAPIV3Schema"
            causes.append(Cause(path, "Required value: schemas are required", _REQUIRED))
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if not causes and name != expected:
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        causes.append(Cause("metadata.name", message, "FieldValueInvalid"))
    if causes:
        kind = CUSTOM_RESOURCE_DEFINITION
        raise ApiError.invalid(kind.group, kind.kind, name, causes)


def kinds_of(definition: KubeObject) -> list[ServedKind]:
    """Return the kinds that a definition serves, one for each version."""
    spec = member(definition, "spec")
    return [_kind(spec, version) for version in objects(spec, "versions") if version.get("served") is True]


def resource_of(definition: KubeObject) -> tuple[str, str]:
    """Return group and plural of the defined resource."""
    spec = member(definition, "spec")
    return text(spec, "group"), text(member(spec, "names"), "plural")


def accepted_status(definition: KubeObject, now: str) -> KubeObject:
    """Return the status of a definition that is served."""
    spec = member(definition, "spec")
    names = member(spec, "names")
    kind = text(names, "kind")
    accepted: KubeObject = {"singular": kind.lower(), "listKind": f"{kind}List", **names}
    stored: list[Json] = [
        version["name"] for version in objects(spec, "versions") if version.get("storage") is True
    ]
    conditions: list[Json] = [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
    ]
    return {"acceptedNames": accepted, "conditions": conditions, "storedVersions": stored}


def _kind(spec: KubeObject, version: KubeObject) -> ServedKind:
    group, names = text(spec, "group"), member(spec, "names")
    schema = member(member(version, "schema"), "openAPIV3Schema")
    return custom(
        KubeKind(
            group,
            text(version, "name"),
            text(names, "kind"),
            text(names, "plural"),
            is_namespaced=spec.get("scope") == "Namespaced",
        ),
        has_status=member(version, "subresources").get("status") is not None,
        schema=schema,
        selectable_fields=tuple(
            text(each, "jsonPath").lstrip(".") for each in objects(version, "selectableFields")
        ),
    )


def _condition(kind: str, reason: str, message: str, now: str) -> KubeObject:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}

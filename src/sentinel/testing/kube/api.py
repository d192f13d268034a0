"""The API as a function from requests to responses: routing by path and verb, parameters, bodies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from sentinel.core import merge_patch
from sentinel.core.json import Json
from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube import discovery, json_patch, lists, selection
from sentinel.testing.kube.access import KubeUser, Rbac
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import NAMESPACE, Kinds, ServedKind
from sentinel.testing.kube.objects import member, metadata_of, name_of, text
from sentinel.testing.kube.registry import Registry, WriteOptions, Written
from sentinel.testing.kube.requests import ApiRequest, ApiResponse, StreamedResponse, Target
from sentinel.testing.kube.selection import Selection
from sentinel.testing.kube.store import Key, ObjectStore
from sentinel.testing.kube.watches import Watches

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_MAX_MANAGER = 128


class Api:
    """Everything behind the paths of the API server."""

    def __init__(
        self, *, registry: Registry, store: ObjectStore, kinds: Kinds, watches: Watches, rbac: Rbac | None
    ) -> None:
        self._registry = registry
        self._store = store
        self._kinds = kinds
        self._watches = watches
        self._rbac = rbac

    def respond(self, request: ApiRequest, target: Target, user: KubeUser) -> ApiResponse | StreamedResponse:
        """Return the response to a request. Raises `ApiError`."""
        if self._rbac is not None:
            self._rbac.check(user, target)
        if not target.is_resource:
            return self._describe(request)
        served = self._kinds.find(target.group, target.version, target.plural)
        if target.subresource and target.subresource not in served.subresources:
            raise ApiError.no_such_path()
        if target.namespace and not served.kind.is_namespaced:
            raise ApiError.no_such_path()
        needs_namespace = served.kind.is_namespaced and target.verb not in ("list", "watch", "deletecollection")
        if needs_namespace and not target.namespace:
            raise ApiError.method_not_allowed(served.kind, target.verb)
        match target.verb:
            case "get":
                return ApiResponse(HTTPStatus.OK, self._registry.get(served, target.namespace, target.name))
            case "list":
                chosen = _selection(served, request, target)
                return ApiResponse(HTTPStatus.OK, lists.chunk(self._store, served, chosen, request))
            case "watch":
                chosen = _selection(served, request, target)
                return StreamedResponse(self._watches.events(served, chosen, request))
            case "create":
                _check_content_type(request, JSON)
                body = request.object()
                return _written(self._registry.create(served, target.namespace, body, _options(request, target)))
            case "update":
                _check_content_type(request, JSON)
                body = request.object()
                options = _options(request, target)
                return _written(self._registry.update(served, target.namespace, target.name, body, options))
            case "patch":
                return self._patch(served, request, target, user)
            case "delete":
                return self._delete(served, request, target)
            case _:
                return self._delete_collection(served, request, target)

    def _describe(self, request: ApiRequest) -> ApiResponse:
        document = discovery.document(self._kinds, request.path)
        if document is None:
            raise ApiError.no_such_path()
        if request.method != "GET":
            raise ApiError.method_not_allowed(None, request.method)
        return ApiResponse(HTTPStatus.OK, document)

    def _patch(self, served: ServedKind, request: ApiRequest, target: Target, user: KubeUser) -> ApiResponse:
        options = _options(request, target)
        if request.content_type == APPLY_PATCH:
            return self._apply(served, request, target, user)
        if request.query.get("force"):
            raise _invalid_option("force", "Forbidden: may not be specified for non-apply patch", "Forbidden")
        change: Callable[[Json], Json]
        if request.content_type == JSON_PATCH:
            change = partial(json_patch.apply, patch=json_patch.decode(request.body))
        elif request.content_type == MERGE_PATCH:
            change = partial(merge_patch.apply, patch=request.object())
        else:
            raise ApiError.unsupported_media_type([JSON_PATCH, MERGE_PATCH, APPLY_PATCH])
        return _written(self._registry.patch(served, target.namespace, target.name, change, options))

    def _apply(self, served: ServedKind, request: ApiRequest, target: Target, user: KubeUser) -> ApiResponse:
        options = _options(request, target)
        if not request.query.get("fieldManager"):
            raise _invalid_option("fieldManager", "Required value: is required for apply patch", "Required")
        is_missing = self._store.get(served.resource, Key(target.namespace, target.name)) is None
        if self._rbac is not None and is_missing and not target.subresource:
            creation = Target("create", target.group, target.version, target.plural, target.namespace, target.name)
            self._rbac.check(user, creation)
        return _written(
            self._registry.apply(
                served,
                target.namespace,
                target.name,
                request.object(),
                options,
                is_forced=request.flag("force"),
            )
        )

    def _delete(self, served: ServedKind, request: ApiRequest, target: Target) -> ApiResponse:
        options = request.object() if request.body else {}
        preconditions = member(options, "preconditions")
        written = self._registry.delete(
            served,
            target.namespace,
            target.name,
            uid=text(preconditions, "uid"),
            resource_version=text(preconditions, "resourceVersion"),
            is_dry_run=bool(options.get("dryRun")) or bool(request.query.get("dryRun")),
        )
        if not written.is_gone:
            return ApiResponse(HTTPStatus.OK, written.object)
        return ApiResponse(HTTPStatus.OK, _deleted_status(served, written.object))

    def _delete_collection(self, served: ServedKind, request: ApiRequest, target: Target) -> ApiResponse:
        if served.kind.is_namespaced and not target.namespace:
            raise ApiError.method_not_allowed(served.kind, target.verb)
        chosen = _selection(served, request, target)
        listed = lists.chunk(self._store, served, chosen, request)
        for each in [each for each in self._store.objects(served.resource) if chosen.matches(each)]:
            key = Key(text(metadata_of(each), "namespace"), name_of(each))
            self._registry.delete(served, *key, is_dry_run=bool(request.query.get("dryRun")))
        return ApiResponse(HTTPStatus.OK, listed)


def _selection(served: ServedKind, request: ApiRequest, target: Target) -> Selection:
    by_name = f"metadata.name={target.name}" if target.name else ""
    fields = ",".join(filter(None, (request.query.get("fieldSelector", ""), by_name)))
    return selection.parse(
        served,
        namespace=target.namespace,
        label_selector=request.query.get("labelSelector", ""),
        field_selector=fields,
    )


def _options(request: ApiRequest, target: Target) -> WriteOptions:
    dry_run = request.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise _invalid_option("dryRun", f'Unsupported value: "{dry_run}": supported values: "All"', "NotSupported")
    agent = request.headers.get("user-agent", "").partition("/")[0]
    manager = request.query.get("fieldManager") or "".join(filter(str.isprintable, agent))[:_MAX_MANAGER]
    return WriteOptions(
        manager=manager or "unknown",
        subresource=target.subresource,
        is_dry_run=bool(dry_run),
        is_strict=request.query.get("fieldValidation") == "Strict",
    )


def _invalid_option(field: str, message: str, reason: str) -> ApiError:
    return ApiError.invalid("meta.k8s.io", "PatchOptions", "", [Cause(field, message, f"FieldValue{reason}")])


def _check_content_type(request: ApiRequest, expected: str) -> None:
    if request.content_type not in ("", expected):
        raise ApiError.unsupported_media_type([expected])


def _written(written: Written) -> ApiResponse:
    status = HTTPStatus.CREATED if written.is_new else HTTPStatus.OK
    headers = {"Warning": ", ".join(f'299 - "{_quoted(text)}"' for text in written.warnings)}
    return ApiResponse(status, written.object, headers if written.warnings else {})


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _deleted_status(served: ServedKind, last: KubeObject) -> KubeObject:
    """Return the response to a deletion. Kubernetes returns the object of some kinds instead of a Status."""
    if str(served.kind) in _RETURNED_WHEN_DELETED:
        return last
    details: KubeObject = {
        "name": name_of(last),
        "group": served.kind.group,
        "kind": served.kind.plural,
        "uid": metadata_of(last)["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


_RETURNED_WHEN_DELETED = {"pods", "services", "serviceaccounts", str(NAMESPACE)}

"""A plain HTTPS client for set-up and checks, independent of the driver that tests examine."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from datetime import timedelta
from email.message import Message
from http.client import HTTPResponse
from typing import Any

import msgspec

from tools.services.kube_apiserver.access import KubeAccess

_TIMEOUT = timedelta(seconds=30)
_JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"


class KubeResponse(msgspec.Struct, frozen=True):
    """The status of a response, and its JSON body."""

    status: int
    body: Any
    """None if the body is no JSON, as that of /readyz."""
    warnings: tuple[str, ...] = ()
    """What `kubectl` would print as warnings, such as about a deprecated field."""


class KubeClient:
    """Sends each request on a connection of its own, never through a proxy."""

    def __init__(self, access: KubeAccess) -> None:
        self.access = access
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=access.tls_context())
        )

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> KubeResponse:
        """Send a request and return any response. Raises `OSError` if there is none."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": content_type}
        try:
            with self._open(method, path, headers, data) as response:
                return _response(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return _response(error.code, error.headers, error.read())

    def get(self, path: str) -> Any:
        """Return the object or list at a path."""
        return self._expect_success("GET", path)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object in the collection at a path, and return it."""
        return self._expect_success("POST", path, body)

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create or change the object at a path on the server, and return it."""
        return self._expect_success("PATCH", f"{path}?fieldManager=test&force=true", body, content_type=APPLY)

    def merge_patch(self, path: str, patch: Mapping[str, Any]) -> Any:
        """Change fields of the object at a path, and return it."""
        return self._expect_success("PATCH", path, patch, content_type=MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Delete the object at a path."""
        self._expect_success("DELETE", path)

    def watch(self, path: str) -> Generator[Any, None, None]:
        """Yield the events of a watch until the server ends it. `timeoutSeconds` in the query limits that."""
        with self._open("GET", path, {"Accept": _JSON}) as response:
            for line in response:
                yield msgspec.json.decode(line)

    def _expect_success(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = _JSON
    ) -> Any:
        response = self.send(method, path, body, content_type=content_type)
        assert 200 <= response.status < 300, f"{method} {path}: {response.status} {response.body}"
        return response.body

    def _open(self, method: str, path: str, headers: Mapping[str, str], data: bytes | None = None) -> HTTPResponse:
        credentials = {"Authorization": f"Bearer {self.access.token}"} if self.access.token else {}
        request = urllib.request.Request(  # noqa: S310 - a test server
            self.access.url + path, data=data, headers={**headers, **credentials}, method=method
        )
        response: HTTPResponse = self._opener.open(request, timeout=_TIMEOUT.total_seconds())
        return response


def _response(status: int, headers: Message, body: bytes) -> KubeResponse:
    # Each is `299 - "text"`, with quotes and backslashes escaped as in JSON.
    warnings = tuple(
        msgspec.json.decode(each.split(" ", 2)[2], type=str) for each in headers.get_all("Warning", ())
    )
    return KubeResponse(status, _decode(body), warnings)


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None

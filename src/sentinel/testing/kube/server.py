"""A Kubernetes API server in memory, for tests.

    async with FakeKubeServer() as server:
        server.create(CONFIG_MAP, {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "1"}})
        ...  # any client can use `server.url`, or a kubeconfig from `server.kubeconfig()`
        server.expire_versions()

It speaks real HTTP on loopback and passes the same contract suite as kube-apiserver 1.36. It keeps versions,
generations, `managedFields`, selectors, chunked lists, watches with bookmarks, server-side apply, patches, the
status subresource, finalizers and error responses as Kubernetes does. These are left out:

- Built-in kinds have neither defaults nor validation: what is written is stored. There is no admission, so a Pod
  needs no service account.
- CEL rules, formats and `allOf`, `anyOf`, `oneOf`, `not` in the schemas of custom resources are not evaluated.
- No controllers run: nothing collects garbage, a Deployment has no pods, and a deleted Namespace stays
  `Terminating` until its finalizer is removed by a PUT to `/finalize`.
- Bodies are JSON. Strategic merge patches get a 415.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from sentinel.core import merge_patch
from sentinel.core.json import Json
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.testing.kube import kubeconfig
from sentinel.testing.kube.access import Authentication, KubeUser, Rbac, service_account
from sentinel.testing.kube.api import Api
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.faults import Failure, Faults
from sentinel.testing.kube.kinds import NAMESPACE, Kinds, custom
from sentinel.testing.kube.listener import HOST, Listener
from sentinel.testing.kube.objects import namespace_of
from sentinel.testing.kube.registry import Registry, WriteOptions, in_version
from sentinel.testing.kube.request_log import LoggedRequest, RequestLog
from sentinel.testing.kube.requests import ApiRequest, ApiResponse, StreamedResponse, target_of
from sentinel.testing.kube.store import ObjectStore
from sentinel.testing.kube.structural_schema import Schema
from sentinel.testing.kube.watches import Watches

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
"""The namespaces that exist from the start."""
TEST_MANAGER = "test"
"""The field manager of writes that a test makes through methods of the server."""


def _now() -> datetime:
    return datetime.now(UTC)


class FakeKubeServer:
    """A verified fake of kube-apiserver, which listens inside `async with`.

    `tokens` maps bearer tokens to users; without any, every request comes from an admin. `has_rbac` evaluates the
    stored Roles and bindings for all users but admins. A `tls` context that requests client certificates makes
    their common names users.
    """

    def __init__(
        self,
        *,
        tokens: Mapping[str, KubeUser] | None = None,
        has_rbac: bool = False,
        tls: ssl.SSLContext | None = None,
        certificate_authority: Path | None = None,
        port: int = 0,
        bookmark_interval: timedelta = timedelta(minutes=1),
        watch_timeout: timedelta = timedelta(minutes=30),
        max_history: int = 10_000,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._store = ObjectStore(max_history=max_history)
        self._kinds = Kinds()
        self._registry = Registry(store=self._store, kinds=self._kinds, now=now)
        self._watches = Watches(self._store, bookmark_interval=bookmark_interval, timeout=watch_timeout)
        self._authentication = Authentication()
        self._faults = Faults()
        self._log = RequestLog()
        self._api = Api(
            registry=self._registry,
            store=self._store,
            kinds=self._kinds,
            watches=self._watches,
            rbac=Rbac(self._store) if has_rbac else None,
        )
        self._listener = Listener(self.respond, gate=self._faults.wait, tls=tls, port=port)
        self._scheme = "https" if tls is not None else "http"
        self._certificate_authority = certificate_authority
        for token, user in (tokens or {}).items():
            self._authentication.add(token, user)
        for name in NAMESPACES:
            self.create(NAMESPACE, {"metadata": {"name": name}})

    async def __aenter__(self) -> Self:
        await self._listener.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._faults.clear()
        self._listener.reset()
        await self._listener.stop()

    # Where it is and who may use it

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"{self._scheme}://{HOST}:{self._listener.port}"

    def add_token(self, token: str, user: KubeUser) -> None:
        """Accept a bearer token. From the first one on, requests without credentials get a 401."""
        self._authentication.add(token, user)

    def add_service_account_token(self, token: str, *, namespace: str, name: str) -> None:
        """Accept a bearer token of a service account, which need not exist."""
        self._authentication.add(token, service_account(namespace, name))

    def revoke_token(self, token: str) -> None:
        """Reject a bearer token from now on."""
        self._authentication.revoke(token)

    def kubeconfig(self, *, token: str = "", namespace: str = "") -> bytes:
        """Return a kubeconfig for this server."""
        return kubeconfig.document(
            self.url, token=token, namespace=namespace, certificate_authority=self._certificate_authority
        )

    # Kinds and objects

    def register(self, kind: KubeKind, *, has_status: bool = False, schema: Schema | None = None) -> None:
        """Serve a custom kind without a CustomResourceDefinition."""
        self._kinds.add(custom(kind, has_status=has_status, schema=schema))

    def create(self, kind: KubeKind, body: KubeObject, *, manager: str = TEST_MANAGER) -> KubeObject:
        """Create an object in the namespace of its metadata. Raises `ApiError`."""
        head: KubeObject = {"apiVersion": kind.api_version, "kind": kind.kind}
        served = self._kinds.of(kind)
        options = WriteOptions(manager=manager)
        return self._registry.create(served, namespace_of(body), {**head, **body}, options).object

    def get(self, kind: KubeKind, name: str, *, namespace: str = "") -> KubeObject:
        """Return an object. Raises `ApiError` if there is none."""
        return self._registry.get(self._kinds.of(kind), namespace, name)

    def objects(self, kind: KubeKind, *, namespace: str = "") -> Sequence[KubeObject]:
        """Return all objects of a kind, of one namespace or of all, in the order of lists."""
        served = self._kinds.of(kind)
        found = self._store.objects(served.resource)
        return [in_version(served, each) for each in found if namespace in ("", namespace_of(each))]

    def merge_patch(
        self,
        kind: KubeKind,
        name: str,
        patch: Mapping[str, Json],
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str = TEST_MANAGER,
    ) -> KubeObject:
        """Change an object by a JSON merge patch. Raises `ApiError`."""
        options = WriteOptions(manager=manager, subresource=subresource)
        served = self._kinds.of(kind)
        return self._registry.patch(
            served, namespace, name, lambda current: merge_patch.apply(current, dict(patch)), options
        ).object

    def delete(self, kind: KubeKind, name: str, *, namespace: str = "") -> None:
        """Delete an object. Raises `ApiError` if there is none."""
        self._registry.delete(self._kinds.of(kind), namespace, name)

    # What clients did

    @property
    def requests(self) -> Sequence[LoggedRequest]:
        """All requests so far, in the order of their arrival."""
        return self._log.requests

    def clear_requests(self) -> None:
        """Forget the requests so far."""
        self._log.clear()

    async def wait_for_request(self, matches: Callable[[LoggedRequest], bool], *, count: int = 1) -> None:
        """Return once `count` logged requests match. The caller sets a timeout."""
        await self._log.wait(matches, count=count)

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return self._listener.connections

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return self._watches.count

    # Versions and watches

    @property
    def resource_version(self) -> str:
        """The version of the last write."""
        return str(self._store.version)

    def expire_versions(self) -> None:
        """Make every earlier version answer 410, as a compaction of etcd does. Open watches go on."""
        self._store.expire()

    def expire_watches(self) -> None:
        """End all open watches with a 410 in the stream, as if they had been too slow."""
        self._watches.expire()

    def close_watches(self) -> None:
        """End all open watches in order, as the server does after some minutes."""
        self._watches.close()

    def send_bookmarks(self) -> None:
        """Send a bookmark to every open watch that asked for them."""
        self._watches.send_bookmarks()

    # Faults

    def fail_next(
        self,
        status: int,
        *,
        count: int = 1,
        verb: str = "",
        plural: str = "",
        retry_after: timedelta = timedelta(0),
    ) -> None:
        """Answer the next `count` requests with an error: all, or those with this verb and resource."""
        failure = Failure(HTTPStatus(status), verb=verb, plural=plural, retry_after=retry_after)
        self._faults.fail(failure, count=count)

    def delay_responses(self, duration: timedelta) -> None:
        """Handle every request only after this time. 0 ends it."""
        self._faults.delay(duration)

    def stall(self) -> None:
        """Accept connections and requests, and send nothing, also to open watches."""
        self._faults.stall()

    def resume(self) -> None:
        """Handle the stalled requests, and send what watches have missed."""
        self._faults.resume()

    def refuse_connections(self) -> None:
        """Refuse new connections. Open ones stay; see `reset_connections`."""
        self._listener.refuse()

    async def accept_connections(self) -> None:
        """Accept connections again, on the same port."""
        await self._listener.start()

    def reset_connections(self) -> None:
        """Reset all open connections."""
        self._listener.reset()

    async def restart(self) -> None:
        """Stop and start again on the same port, with the same objects. Connections and watches end."""
        self._listener.refuse()
        self._listener.reset()
        await self._listener.start()

    async def respond(self, request: ApiRequest) -> ApiResponse | StreamedResponse:
        """Handle a request without HTTP, for clients in the same process that run on virtual time.

        Raises `ApiError`.
        """
        number = self._log.arrived(request)
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        user = ""
        try:
            target = target_of(request)
            self._log.identified(number, verb=target.verb)
            await self._faults.before(target)
            known = self._authentication.user_of(request)
            user = known.name
            response = self._api.respond(request, target, known)
            status = response.status
        except ApiError as error:
            status = error.code
            raise
        except asyncio.CancelledError:
            status = 0
            raise
        finally:
            self._log.answered(number, user=user, status=int(status))
        return response

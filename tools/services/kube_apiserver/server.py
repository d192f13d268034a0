"""Runs kube-apiserver and etcd, shared by all tests or for a test that restarts them."""

from __future__ import annotations

import os
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tools.services.kube_apiserver import binaries
from tools.services.kube_apiserver.access import KubeAccess, read_kubeconfig
from tools.services.kube_apiserver.audit_log import AUDIT_POLICY
from tools.services.kube_apiserver.client import KubeClient
from tools.services.kube_apiserver.credentials import Credentials
from tools.services.server import (
    LOOPBACK,
    PING_TIMEOUT,
    ServerProcess,
    ServiceError,
    environment_variable,
    free_port,
    log_progress,
)

KUBECONFIG_VARIABLE = "SENTINEL_TEST_KUBECONFIG"
AUDIT_LOG_VARIABLE = "SENTINEL_TEST_KUBE_AUDIT_LOG"

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class _EtcdHeader(msgspec.Struct):
    revision: str


class _EtcdRange(msgspec.Struct):
    header: _EtcdHeader


class Etcd(ServerProcess):
    """The API server's database: loopback only, without synced writes, which survive anything but a power cut."""

    name = "etcd"

    def __init__(self, *, directory: Path, program: Path) -> None:
        super().__init__(port=free_port(), directory=directory)
        self.url = f"http://{LOOPBACK}:{self.port}"
        self._peer_url = f"http://{LOOPBACK}:{free_port()}"
        self._program = program

    def compact(self) -> None:
        """Forget all versions of objects but the newest."""
        # The key "\0" does not exist. Every response has the current revision.
        current = msgspec.json.decode(self._post("/v3/kv/range", {"key": "AA=="}), type=_EtcdRange)
        self._post("/v3/kv/compaction", {"revision": current.header.revision, "physical": True})

    def close(self) -> None:
        """Kill etcd: it has nothing to save."""
        self.kill()

    def _command(self) -> list[str]:
        return [
            str(self._program),
            "--name=test",
            f"--data-dir={self._directory / 'data'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={self._peer_url}",
            f"--initial-advertise-peer-urls={self._peer_url}",
            f"--initial-cluster=test={self._peer_url}",
        ]

    def _is_ready(self) -> bool:
        try:
            with _DIRECT.open(f"{self.url}/health", timeout=PING_TIMEOUT.total_seconds()) as response:
                return b"true" in response.read()
        except OSError:
            return False

    def _environment(self) -> Mapping[str, str]:
        return _without_foreign_settings()

    def _post(self, path: str, body: Mapping[str, object]) -> bytes:
        data = msgspec.json.encode(body)
        request = urllib.request.Request(self.url + path, data=data, method="POST")  # noqa: S310 - our own etcd
        with _DIRECT.open(request, timeout=PING_TIMEOUT.total_seconds()) as response:
            answer: bytes = response.read()
            return answer


class KubeApiServer(ServerProcess):
    """An API server with RBAC, on a private etcd: loopback only, without controllers and nodes.

    `kill` and `start` restart the API server alone, on the same port and data. Shutting it down in order takes a
    minute when a watch is open, so `close` kills it.
    """

    name = "kube-apiserver"

    def __init__(
        self, *, port: int, directory: Path, programs: Path, uncached_resources: Sequence[str] = ()
    ) -> None:
        """`programs` is the folder with kube-apiserver and etcd.

        The server keeps no watch cache of `uncached_resources`, such as `configmaps` or `widgets.example.com`.
        Only their versions expire at once after `compact`. Their watches get no bookmarks.
        """
        super().__init__(port=port, directory=directory)
        self.url = f"https://{LOOPBACK}:{port}"
        self.kubeconfig = directory / "admin.kubeconfig"
        self.audit_log = directory / "audit.log"
        self._programs = programs
        self._uncached_resources = uncached_resources
        self._credentials = Credentials(directory / "credentials")
        self._etcd = Etcd(directory=directory / "etcd", program=programs / "etcd")

    @property
    def admin(self) -> KubeAccess:
        """The access of a user who may do everything."""
        return KubeAccess(
            url=self.url,
            ca_file=self._credentials.ca_file,
            certificate_file=self._credentials.admin_certificate_file,
            key_file=self._credentials.admin_key_file,
        )

    def restart(self) -> None:
        """Kill the API server, which cuts all watches, and start it again."""
        self.kill()
        self.start()

    def compact(self) -> None:
        """Make old versions of objects expire: at once if a resource is not cached, otherwise at the next restart.

        A watch from a version before the last two changes to any object then ends with 410.
        """
        self._etcd.compact()

    def close(self) -> None:
        """Kill both, the API server first: it would wait for etcd."""
        self.kill()
        self._etcd.close()

    def _prepare(self) -> None:
        self._credentials.create()
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_bytes(self.admin.kubeconfig())
        (self._directory / "audit-policy.json").write_bytes(AUDIT_POLICY)
        (self._directory / "etcd").mkdir(exist_ok=True)
        self._etcd.start()

    def _command(self) -> list[str]:
        credentials = self._credentials
        return [
            str(self._programs / "kube-apiserver"),
            f"--etcd-servers={self._etcd.url}",
            "--etcd-compaction-interval=0",  # tests decide
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self.port}",
            # A loopback address is not allowed as an endpoint of the service `kubernetes`.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--tls-cert-file={credentials.server_certificate_file}",
            f"--tls-private-key-file={credentials.server_key_file}",
            f"--client-ca-file={credentials.ca_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={credentials.service_account_key_file}",
            f"--service-account-key-file={credentials.service_account_key_file}",
            f"--audit-policy-file={self._directory / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
            f"--watch-cache-sizes={','.join(f'{name}#0' for name in self._uncached_resources)}",
        ]

    def _is_ready(self) -> bool:
        client = KubeClient(self.admin)
        try:
            return all(
                client.send("GET", path).status == 200 for path in ("/readyz", "/api/v1/namespaces/default")
            )
        except OSError:
            return False

    def _environment(self) -> Mapping[str, str]:
        return _without_foreign_settings()


def _without_foreign_settings() -> dict[str, str]:
    """Our environment without proxies, and without variables that etcd reads as settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ETCD_") and not name.lower().endswith("_proxy")
    }


@contextmanager
def temporary_server(*, programs: Path, uncached_resources: Sequence[str] = ()) -> Iterator[KubeApiServer]:
    """Run an empty API server in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="sentinel-kube-apiserver-", ignore_cleanup_errors=True) as directory:
        server = KubeApiServer(
            port=free_port(),
            directory=Path(directory),
            programs=programs,
            uncached_resources=uncached_resources,
        )
        with server:
            yield server


@contextmanager
def provide() -> Iterator[None]:
    """Run an API server and set SENTINEL_TEST_KUBECONFIG to its administrator's kubeconfig, unless already set.

    KUBEBUILDER_ASSETS is set, too, so that tests can run servers of their own.
    """
    given = os.environ.get(KUBECONFIG_VARIABLE)
    if given:
        _ping(Path(given))
        log_progress(f"using the Kubernetes API server that {KUBECONFIG_VARIABLE} names")
        yield
        return
    programs = binaries.find_or_build()
    log_progress("starting kube-apiserver")
    with temporary_server(programs=programs) as server, ExitStack() as variables:
        log_progress(f"kube-apiserver is ready on port {server.port}")
        for name, value in (
            (KUBECONFIG_VARIABLE, server.kubeconfig),
            (AUDIT_LOG_VARIABLE, server.audit_log),
            (binaries.ASSETS_VARIABLE, programs),
        ):
            if not os.environ.get(name):
                variables.enter_context(environment_variable(name, str(value)))
        yield
        log_progress("stopping kube-apiserver")


def _ping(kubeconfig: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        access = read_kubeconfig(kubeconfig.absolute(), directory=Path(directory))
        try:
            status = KubeClient(access).send("GET", "/readyz").status
        except OSError as error:
            raise ServiceError(f"{KUBECONFIG_VARIABLE} is {kubeconfig}, but {access.url}: {error}") from error
        if status != 200:
            raise ServiceError(f"{KUBECONFIG_VARIABLE} is {kubeconfig}, but {access.url} is not ready: {status}")

"""The steps of the reference operator: certificates and infrastructure, which are urgent; upgrade and backup.

Upgrade and backup stand for work that takes long in a real operator. Here each records one thing in the status, so
that users see when it ran and when it was skipped.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sentinel.core.json import Json
from sentinel.drift.operator.admission_check import AdmissionCheck
from sentinel.drift.operator.openbao import server_objects, sidecar_objects
from sentinel.drift.operator.openbao.cluster import OpenBaoCluster
from sentinel.drift.operator.restoring import Restorer
from sentinel.ports.kube import KubeApi, KubeObject, ObjectNotFound
from sentinel.runtime import certificates
from sentinel.runtime.certificates import CertificateFiles
from sentinel.runtime.log import Log

_CA_KEY: Final = "ca.key"
_FILES: Final = ("ca.crt", _CA_KEY, "tls.crt", "tls.key")
"""The keys of the Secret, in the order of the fields of `CertificateFiles`."""


class CertsStep:
    """Keeps the certificate of the servers valid and in date."""

    name = "certs"
    is_urgent = True

    def __init__(self, api: KubeApi, restorer: Restorer, *, log: Log) -> None:
        self._api = api
        self._restorer = restorer
        self._log = log
        self._ca_certificates: dict[str, str] = {}

    async def run(self, target: OpenBaoCluster, now: datetime) -> Mapping[str, Json]:
        """Issue a certificate if there is none that is valid long enough, and restore the Secret."""
        files = await self._read(target)
        names = server_names(target)
        problem = "there is none" if files is None else certificates.problem(files, names, now)
        if files is None or problem is not None:
            files = certificates.issue(names, subject=target.name, now=now, previous=files)
            self._log.info(
                "certificate.issued", namespace=target.namespace, name=target.name, cause=problem or "missing"
            )
        # Without a fingerprint: sidecars do not watch Secrets, and a hash reveals something about a key.
        await self._restorer.restore(server_objects.SECRET, _secret(target, files), is_attested=False)
        self._ca_certificates[target.reference.uid] = files.ca_certificate.decode()
        return {}

    def ca_certificate(self, cluster: OpenBaoCluster) -> str:
        """Return the CA certificate of a cluster in PEM; empty before the first run."""
        return self._ca_certificates.get(cluster.reference.uid, "")

    def forget(self, uid: str) -> None:
        """Forget a cluster that was deleted."""
        self._ca_certificates.pop(uid, None)

    async def _read(self, cluster: OpenBaoCluster) -> CertificateFiles | None:
        try:
            found = await self._api.get(server_objects.SECRET, cluster.secret_name, namespace=cluster.namespace)
        except ObjectNotFound:
            return None
        data = found.get("data")
        if not isinstance(data, dict) or not all(isinstance(data.get(file), str) for file in _FILES):
            return None
        try:
            return CertificateFiles(*(base64.b64decode(str(data[file]), validate=True) for file in _FILES))
        except binascii.Error:
            return None


class InfraStep:
    """Restores the configuration, the Service and the servers, and deploys or removes the sidecar."""

    name = "infra"
    is_urgent = True

    def __init__(
        self, restorer: Restorer, *, admission: AdmissionCheck, operator_version: str, sidecar_config: str
    ) -> None:
        """`sidecar_config` is the ConfigMap with the configuration of sidecars; empty if there is none."""
        self._restorer = restorer
        self._admission = admission
        self._operator_version = operator_version
        self._sidecar_config = sidecar_config

    async def run(self, target: OpenBaoCluster, now: datetime) -> Mapping[str, Json]:
        """Restore everything but the Secret."""
        for kind, body in (
            (server_objects.CONFIG_MAP, server_objects.config_map(target)),
            (server_objects.SERVICE, server_objects.service(target)),
            (server_objects.STATEFUL_SET, server_objects.stateful_set(target)),
        ):
            await self._restorer.restore(kind, body)
        if target.has_sentinel and self._admission.problem is None:
            for kind, body in sidecar_objects.objects(
                target, operator_version=self._operator_version, config_map=self._sidecar_config
            ):
                await self._restorer.restore(kind, body, is_attested=False)
        elif not target.has_sentinel or self._admission.is_known:
            await self._remove_sidecar(target)
        return {}

    async def _remove_sidecar(self, cluster: OpenBaoCluster) -> None:
        for kind in reversed(sidecar_objects.KINDS):
            await self._restorer.remove(
                kind, cluster.sentinel_name, namespace=cluster.namespace, owner_uid=cluster.reference.uid
            )


class UpgradeStep:
    """Records the version that the servers were told to run."""

    name = "upgrade"
    is_urgent = False

    async def run(self, target: OpenBaoCluster, now: datetime) -> Mapping[str, Json]:
        return {"version": target.spec.version}


class BackupStep:
    """Records what a backup would hold."""

    name = "backup"
    is_urgent = False

    async def run(self, target: OpenBaoCluster, now: datetime) -> Mapping[str, Json]:
        return {"backup": {"configHash": server_objects.config_hash(target), "version": target.spec.version}}


def server_names(cluster: OpenBaoCluster) -> list[str]:
    """Return the names of the servers in certificates: of the Service, and of each pod behind it."""
    service = [f"{cluster.name}.{cluster.namespace}.svc", f"{cluster.name}.{cluster.namespace}.svc.cluster.local"]
    return [cluster.name, *service, *(f"*.{name}" for name in service), "localhost", "127.0.0.1"]


def _secret(cluster: OpenBaoCluster, files: CertificateFiles) -> KubeObject:
    contents = (files.ca_certificate, files.ca_key, files.certificate, files.key)
    data: dict[str, Json] = {
        name: base64.b64encode(content).decode() for name, content in zip(_FILES, contents, strict=True)
    }
    return server_objects.make_object(
        cluster,
        server_objects.SECRET,
        cluster.secret_name,
        labels=server_objects.labels(cluster, component="server"),
        type="kubernetes.io/tls",
        data=data,
    )

"""`sentinel drift` as a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.processes.service import ServiceProcess


class DriftProcess(ServiceProcess):
    """The sidecar of a cluster, on the API server of a kubeconfig."""

    def __init__(
        self,
        kubeconfig: Path,
        *arguments: str,
        namespace: str,
        cluster: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            (
                "drift",
                f"--kubeconfig={kubeconfig}",
                "--metrics-bind-address=127.0.0.1:0",
                "--health-probe-bind-address=127.0.0.1:0",
                *arguments,
            ),
            environ={"POD_NAMESPACE": namespace, "CLUSTER_NAME": cluster, **(environ or {})},
        )

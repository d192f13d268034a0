"""`sentinel drift-operator` as a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.processes.service import ServiceProcess


class DriftOperatorProcess(ServiceProcess):
    """`sentinel drift-operator` for the namespace of a kubeconfig."""

    def __init__(self, kubeconfig: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(
            (
                "drift-operator",
                f"--kubeconfig={kubeconfig}",
                "--metrics-bind-address=127.0.0.1:0",
                "--health-probe-bind-address=127.0.0.1:0",
                *arguments,
            ),
            environ=environ or {},
        )

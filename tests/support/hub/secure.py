"""A hub in the process of a test that only talks to agents with certificates."""

from __future__ import annotations

from pathlib import Path

from sentinel.drivers.hub_tls import HubTls
from sentinel.runtime.certificate_authority import KeyPair
from sentinel.testing.hub_agent import HubAgent
from tests.support.clocks import MonotonicSeconds
from tests.support.hub.authority import Authority
from tests.support.hub.in_process import InProcessHub


class SecureHub(InProcessHub):
    """A hub that only talks to agents with certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.seconds = MonotonicSeconds()
        tls = HubTls(self.authority.paths, monotonic=self.seconds)
        super().__init__(certificates=tls, credentials=tls.server_credentials())

    def holder(self, pair: KeyPair, instance_id: str = "edge-1") -> HubAgent:
        """An agent that connects with this certificate, and has no registration token."""
        return self.agent(instance_id, token="", credentials=self.authority.credentials(pair))

    def read_files(self) -> None:
        """Let so much time pass that files are read again."""
        self.seconds.now += 2

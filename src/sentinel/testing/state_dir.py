"""The state of an agent in memory, for tests. A new agent on the same one has been restarted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from sentinel.core.agent.state import AgentState
from sentinel.ports.state_dir import StateDirFailure


class MemoryStateDir:
    """A verified fake of `ports.state_dir.StateDir`."""

    def __init__(self, instance_id: str = "edge-1") -> None:
        self._instance_id = instance_id
        self._saved = b""
        self._applied: str | None = None
        self.saves = 0
        """How often the state was saved."""
        self.values: dict[str, bytes] = {}
        """Files of secrets, by their paths."""
        self.links: dict[str, str] = {}
        """Which file a stable path leads to."""
        self.is_full = False

    def instance_id(self) -> str:
        return self._instance_id

    async def load(self) -> AgentState:
        return msgspec.json.decode(self._saved, type=AgentState) if self._saved else AgentState()

    async def save(self, state: AgentState) -> None:
        self._require_space("/state/state.json")
        self._saved = msgspec.json.encode(state)
        self.saves += 1

    async def load_applied(self) -> str | None:
        return self._applied

    async def save_applied(self, text: str) -> None:
        self._require_space("/state/applied.kdl")
        self._applied = text

    async def put_secrets(self, values: Mapping[str, bytes]) -> Mapping[str, str]:
        files = {
            name: f"{self.stable_path(name)}.{hashlib.sha256(value).hexdigest()[:16]}"
            for name, value in values.items()
        }
        if not self.values.keys() >= {*files.values()}:
            self._require_space("/state/secrets")
        self.values |= {files[name]: value for name, value in values.items()}
        return files

    async def use_secrets(self, files: Mapping[str, str]) -> None:
        links = {self.stable_path(reference): file for reference, file in files.items()}
        if not links.items() <= self.links.items():
            self._require_space("/state/secrets")
        self.links |= links

    def stable_path(self, reference: str) -> str:
        return f"/state/secrets/{quote(reference, safe='')}"

    async def forget_secrets(self, keep: Mapping[str, str]) -> None:
        self.values = {file: value for file, value in self.values.items() if file in keep.values()}
        self.links = {path: file for path, file in self.links.items() if file in keep.values()}

    def _require_space(self, file: str) -> None:
        if self.is_full:
            raise StateDirFailure(f"cannot write {file}: no space left on device")

"""What an agent keeps on disk, so that it survives being killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sentinel.core.agent.state import AgentState


class StateDirFailure(Exception):
    """Something cannot be written or read: the disk is full, the folder is read-only. The text says what."""


class StateDir(Protocol):
    """The state of one agent. When a call returns, what it saved is on disk; if it fails, the earlier state is."""

    def instance_id(self) -> str:
        """Return the id of the instance, which is made at the first call and kept. Raises `StateDirFailure`."""

    async def load(self) -> AgentState:
        """Return what was saved last; an empty state if there is nothing, or it is damaged. Raises
        `StateDirFailure` if it cannot be read."""

    async def save(self, state: AgentState) -> None:
        """Replace the saved state. Raises `StateDirFailure`."""

    async def load_applied(self) -> str | None:
        """Return the text of the version that was applied last; None if there is none, or it cannot be read."""

    async def save_applied(self, text: str) -> None:
        """Keep the text of the version that is applied. Raises `StateDirFailure`."""

    async def put_secrets(self, values: Mapping[str, bytes]) -> Mapping[str, str]:
        """Write secrets, by their references, to files for the agent's user alone, and return their paths.

        Another value gets another path, so that what runs keeps its own. Raises `StateDirFailure`.
        """

    async def use_secrets(self, files: Mapping[str, str]) -> None:
        """Let `stable_path` of each reference lead to its file, out of `put_secrets`. Raises `StateDirFailure`."""

    def stable_path(self, reference: str) -> str:
        """Return the path of a secret that stays the same when its value changes."""

    async def forget_secrets(self, keep: Mapping[str, str]) -> None:
        """Delete all files of secrets but these. What cannot be deleted is left for the next time."""

"""Planted faults of a hub around a rollout that is right: what must not happen where it is stored and sent.

The first four are those of hubs that have no transactions, or that tell agents the newest version.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sentinel.core.hub.rollout_state import Assign, Command, Rollout, RolloutState
from sentinel.core.hub.sync import Sync
from tests.core.hub.rollout_driver import NEW
from tests.core.hub.rollout_simulation import Hub


class StoresTooLate(Hub):
    """Stores a step when the next one begins."""

    def _store_all(self, after: Rollout, commands: Sequence[Command]) -> None:
        stored = msgspec.json.encode(self.rollout)
        super()._store_all(after, commands)
        self._stored = stored


class LosesAssignments(Hub):
    """Does not store assignments in the same transaction."""

    _unstored: tuple[str, Sync] | None = None

    def _store(self, command: Command) -> None:
        if isinstance(command, Assign):
            self._unstored = command.instance_id, self._syncs[command.instance_id]
        super()._store(command)

    def _restart(self) -> None:
        if self._unstored is not None:
            name, before = self._unstored
            self._syncs[name] = before
        super()._restart()


class OffersTheNewest(Hub):
    """Offers in heartbeats what was saved last, as if saving were deploying."""

    def _answer(self, name: str) -> None:
        if self.rollout.is_over:
            self._world.send(lambda: self._world.agents[name].receive(None, str(NEW.name)))
        else:
            super()._answer(name)


class FailsWhatWasInProgress(Hub):
    """Ends a deployment as failed when it starts."""

    def _restart(self) -> None:
        super()._restart()
        if not self.rollout.is_terminal:
            self.rollout = msgspec.structs.replace(self.rollout, state=RolloutState.FAILED)


class NeverRepeats(Hub):
    """Tells agents once, and nothing in heartbeats."""

    def _answer(self, name: str) -> None: ...


class ForgetsWhoWasTold(Hub):
    """Begins the batch again after a restart."""

    def _restart(self) -> None:
        super()._restart()
        if self.rollout.state is RolloutState.RUNNING and self.rollout.batch:
            self.rollout = msgspec.structs.replace(self.rollout, batch=self.rollout.batch - 1, open_rows=0)


ALL: tuple[type[Hub], ...] = (
    StoresTooLate,
    LosesAssignments,
    OffersTheNewest,
    FailsWhatWasInProgress,
    NeverRepeats,
    ForgetsWhoWasTold,
)

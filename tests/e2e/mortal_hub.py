"""Runs a `sentinel` command that is killed at its step number COUNT of a deployment, before or after the commit.

    python -m tests.e2e.mortal_hub before|after|stopped COUNT COMMAND…

With `stopped` it is not killed, but stops before the commit, so that it keeps its locks.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from sentinel.drivers.sql.hub.rollouts import SqlRolloutTransaction
from sentinel.drivers.sql.hub.store import SqlHubStore
from sentinel.ports.hub_store import HubTransaction
from sentinel.ports.rollout_store import DeploymentRecord, RolloutRow

T = TypeVar("T")


def die_at(point: str, count: int) -> None:
    """Let the process be killed when it has written its step number `count`, counted from 1."""
    save, transact, steps = SqlRolloutTransaction.save_deployment, SqlHubStore.transact, 0

    def counted_save(
        transaction: SqlRolloutTransaction, deployment: DeploymentRecord, rows: Sequence[RolloutRow]
    ) -> None:
        nonlocal steps
        save(transaction, deployment, rows)
        steps += 1
        if steps == count and point != "after":
            os.kill(os.getpid(), signal.SIGSTOP if point == "stopped" else signal.SIGKILL)

    async def mortal_transact(store: SqlHubStore, work: Callable[[HubTransaction], T]) -> T:
        result = await transact(store, work)
        if steps >= count and point == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    SqlRolloutTransaction.save_deployment = counted_save  # type: ignore[assignment, method-assign]
    SqlHubStore.transact = mortal_transact  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    die_at(sys.argv.pop(1), int(sys.argv.pop(1)))
    runpy.run_module("sentinel.cli", run_name="__main__", alter_sys=True)

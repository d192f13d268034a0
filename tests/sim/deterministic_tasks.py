"""Tasks with deterministic hashes.

A task group cancels its tasks in set order, which would otherwise depend on memory addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any


class _NumberedTask(asyncio.Task[Any]):
    def __init__(self, work: Coroutine[Any, Any, Any], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


def number_tasks() -> None:
    """Let every task of the running loop be hashed by when it was created."""
    numbers = count()
    asyncio.get_running_loop().set_task_factory(
        lambda loop, work, **options: _NumberedTask(work, loop=loop, number=next(numbers), **options)
    )

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.operator.harness import OperatorHarness, operator_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[OperatorHarness]:
    async with operator_harness(tmp_path) as harness:
        yield harness

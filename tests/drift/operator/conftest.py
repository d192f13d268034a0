from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.drift.operator.harness import DriftHarness, drift_harness


@pytest.fixture
async def bare_harness(tmp_path: Path) -> AsyncIterator[DriftHarness]:
    """Without the policy, so that no sidecar is deployed."""
    async with drift_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
async def harness(bare_harness: DriftHarness) -> DriftHarness:
    """With the policy."""
    bare_harness.install_policy()
    return bare_harness

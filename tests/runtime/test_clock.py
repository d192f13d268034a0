"""The real clock fulfils the contract of its port."""

from __future__ import annotations

import asyncio

from sentinel.runtime.clock import SystemClock
from tests.contract.clock import ClockContract, Scenario


class TestSystemClock(ClockContract):
    def run(self, scenario: Scenario) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(10):
                await scenario(SystemClock())

        asyncio.run(bounded())

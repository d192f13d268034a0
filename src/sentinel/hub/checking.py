"""Checks configurations for the hub, beside the event loop.

A text of a megabyte takes a second of CPU. Heartbeats go on meanwhile, because the check runs in a thread, and one
at a time, because more of them would only take the processor from each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from sentinel.core import kdl
from sentinel.core.hub import secret_names
from sentinel.core.proxy import check as proxy_check
from sentinel.core.proxy.check import Report
from sentinel.core.proxy.difference import Difference, compare
from sentinel.core.proxy.facts import Facts, Questions, Resolve
from sentinel.core.proxy.problem import Level
from sentinel.core.proxy.secrets import needed_secrets
from sentinel.core.proxy.semantics import questions
from sentinel.hub.secrets import Secrets
from sentinel.ports.clock import Clock
from sentinel.ports.proxy_facts import ProxyFacts, gather

T = TypeVar("T")


class CheckedText(msgspec.Struct, frozen=True):
    """What a check has found about a text."""

    report: Report
    secrets: tuple[str, ...]
    """The references to secrets, in order."""


class ConfigChecker:
    """Checks and compares the texts of configurations."""

    def __init__(self, *, facts: ProxyFacts, secrets: Secrets, resolve: Resolve, clock: Clock) -> None:
        self._facts = facts
        self._secrets = secrets
        self._resolve = resolve
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def check_schema(self, content: str) -> CheckedText:
        """Check syntax and schema, which a text must pass to be stored."""
        return await self._run(lambda: _check_schema(content))

    async def check(self, content: str) -> Report:
        """Check everything that can be known without an instance."""
        asked = await self._run(lambda: _questions(content))
        missing = await self._secrets.missing([f"{secret_names.PREFIX}{name}" for name in asked.secrets])
        facts = await gather(
            self._facts,
            asked,
            now=self._clock.now(),
            resolve=self._resolve,
            contents=await self._secrets.contents({*asked.certificates, *asked.keys}),
            secrets=[name for name in asked.secrets if name not in missing],
        )
        return await self._run(lambda: _check(content, facts))

    async def compare(self, before: str, after: str, *, before_name: str, after_name: str) -> Difference:
        return await self._run(lambda: compare(before, after, before_name=before_name, after_name=after_name))

    async def _run(self, work: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            return await asyncio.to_thread(work)


def _check_schema(content: str) -> CheckedText:
    parsed = kdl.parse(content)
    report = proxy_check.check(parsed, level=Level.SCHEMA)
    return CheckedText(report, tuple(str(needed.reference) for needed in needed_secrets(parsed.document)))


def _questions(content: str) -> Questions:
    return questions(kdl.parse(content).document)


def _check(content: str, facts: Facts) -> Report:
    return proxy_check.check(kdl.parse(content), facts=facts)

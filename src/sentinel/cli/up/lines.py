"""Happenings as lines: `sentinel up` where nobody watches a screen.

Lines are data and go to standard output, each at once, so that a pipe or a file shows them as they happen. A fleet
in which nothing happens is silent.
"""

from __future__ import annotations

from sentinel.cli.up.narration import Activity
from sentinel.cli.up.stdout_queue import StdoutQueue
from sentinel.core.times import timestamp
from sentinel.runtime.settings.report import printable


class Lines:
    """Writes what it is told."""

    def __init__(self, outlet: StdoutQueue) -> None:
        self._outlet = outlet

    def tell(self, happening: Activity) -> None:
        """One line: when, who, about which resource, what."""
        name = f" ({happening.name})" if happening.name else ""
        subject = f" {happening.resource_id}{name}" if happening.resource_id else ""
        at = timestamp(happening.at.replace(microsecond=0))
        self.write(f"{at} {happening.source}{subject}: {happening.text}")

    def write(self, text: str) -> None:
        """A line of any sort; what an adapter or a resource says may contain anything."""
        self._outlet.write(printable(text) + "\n")

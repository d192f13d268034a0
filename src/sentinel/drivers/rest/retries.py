"""When a request is sent again: a policy that is passed as a value."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from sentinel.runtime.backoff import Backoff

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that do the same however often they are sent. Others are repeated only if they were never sent."""


class Retries(msgspec.Struct, frozen=True):
    """How often a request is sent, and how long to wait in between."""

    attempts: int = 1
    """In all, the first included."""
    backoff: Backoff = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=5), jitter=0.3)
    max_retry_after: timedelta = timedelta(seconds=10)
    """What a server may ask for with Retry-After at most."""

    def wait(self, attempt: int, *, random: float, asked: timedelta = timedelta(0)) -> timedelta | None:
        """How long to wait after attempt number `attempt`, counted from 0; None where it was the last.

        `random` is drawn from [0, 1); `asked` is what the server asks for.
        """
        if attempt + 1 >= self.attempts:
            return None
        return max(self.backoff.delay(attempt, random), min(asked, self.max_retry_after))


NO_RETRIES = Retries()
"""For commands, whose user sees at once what is wrong, and for drivers with a policy of their own."""

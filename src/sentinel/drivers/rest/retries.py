"""The retry policy of HTTP clients, as a value."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from sentinel.runtime.backoff import Backoff

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that are safe to repeat. Requests with others are retried only if they were never sent."""


class Retries(msgspec.Struct, frozen=True):
    """How often a request is sent, and the delays between attempts."""

    attempts: int = 1
    """The maximum, including the first."""
    backoff: Backoff = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=5), jitter=0.3)
    max_retry_after: timedelta = timedelta(seconds=10)
    """The longest Retry-After that is honored."""

    def delay(self, attempt: int, *, random: float, retry_after: timedelta = timedelta(0)) -> timedelta | None:
        """Return the delay after attempt number `attempt`, counted from 0; None if it was the last.

        `random` is drawn from [0, 1); `retry_after` is the delay that the server requests.
        """
        if attempt + 1 >= self.attempts:
            return None
        return max(self.backoff.delay(attempt, random), min(retry_after, self.max_retry_after))


NO_RETRIES = Retries()
"""For commands, whose users want to see an error at once, and for drivers with their own policy."""

"""Errors that every driver may raise, whichever port it implements.

Callers need to know one thing about a failed call: whether trying again can help.
"""

from __future__ import annotations

from datetime import timedelta


class Unavailable(Exception):
    """The other side cannot be reached, or did not respond before the timeout. Trying again may help.

    The text says why, without secrets.
    """


class ApiUnavailable(Unavailable):
    """The HyperFleet API cannot be reached, or its response does not answer the request. Trying again may help."""

    def __init__(self, text: str, *, needs_operator: bool = False, retry_after: timedelta = timedelta(0)) -> None:
        super().__init__(text)
        self.needs_operator = needs_operator
        """Trying again fails the same way until an operator fixes something: a wrong address, an unknown token, an
        unreadable file, a wrong clock."""
        self.retry_after = retry_after
        """The delay that the server requests."""


class Misconfigured(Exception):
    """The call fails the same way until an operator changes a setting, a file, a grant or an installation.

    The text says what to change, without secrets. Raised while a service starts, it ends the process with exit
    code 2.
    """

"""Why the HyperFleet API could not be asked, in the words of every driver that asks it.

Whoever asks again has to know two things of a failure: when, and whether it is of any use before a person has
looked. What the question was does not matter to either.
"""

from __future__ import annotations

from datetime import timedelta

from sentinel.ports.errors import Unavailable


class ApiUnavailable(Unavailable):
    """The API could not be asked, or did not answer the question; the same request may well succeed later.

    The text says why, free of secrets.
    """

    def __init__(self, text: str, *, needs_person: bool = False, retry_after: timedelta = timedelta(0)) -> None:
        super().__init__(text)
        self.needs_person = needs_person
        """It will be the same until somebody changes something: a wrong address, a token that nobody knows, a
        file that cannot be read, a clock that is off."""
        self.retry_after = retry_after
        """How long the server asks to be left alone."""

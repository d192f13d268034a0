"""What every driver may raise, whichever port it implements.

Callers need to know only one thing about a failed call: whether trying again can help.
"""

from __future__ import annotations


class Unavailable(Exception):
    """The other side cannot be reached, or did not answer in time. Trying again may help.

    The text says why, free of secrets.
    """


class Misconfigured(Exception):
    """It will fail the same way until a person changes something: a setting, a file, a grant, an installation.

    The text says what to change, free of secrets. Raised while a service starts, it ends the process with exit
    code 2.
    """

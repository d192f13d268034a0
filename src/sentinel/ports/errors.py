"""The errors that every driver may raise, whichever port it implements.

They tell callers whether a retry can help.
"""

from __future__ import annotations


class Unavailable(Exception):
    """The other side cannot be reached or did not respond in time. A retry may succeed.

    The text says why and contains no secrets.
    """


class Misconfigured(Exception):
    """The call fails until a setting, a file, a permission or the installation is changed.

    The text says what to change and contains no secrets. At startup this error ends the process with exit code 2.
    """

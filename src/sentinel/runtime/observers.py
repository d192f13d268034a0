"""Several observers as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sentinel.runtime.log import Log

T = TypeVar("T")


class Observers(Generic[T]):
    """The base of a class that passes each call on to several observers.

    An error in one of them is logged and affects neither the others nor the caller.
    """

    def __init__(self, *observers: T, log: Log) -> None:
        self._observers = observers
        self._log = log

    def _each(self, notify: Callable[[T], None]) -> None:
        for observer in self._observers:
            try:
                notify(observer)
            except Exception as error:
                self._log.exception("observer.failed", observer=type(observer).__name__, error=error)

"""An adapter as its author writes it down: a name, and a function for each kind of resource that it looks after.

    dns = Adapter("dns")

    @dns.task(kinds=["Cluster"])
    async def ensure_zone(cluster, context): ...

Declaring does nothing else: no connection is opened and no setting is read. A mistake that would only show when
the first event comes - a function that is not asynchronous, a kind with two tasks - is an error here, where the
author sees it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from sentinel.adapter.context import Context
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Outcome
from sentinel.core.fleet.reports import MAX_ADAPTER_LENGTH, is_adapter_name

Task: TypeAlias = Callable[[Resource, Context], Awaitable[Outcome]]
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


class Adapter:
    """What one adapter does, by kind of resource."""

    def __init__(self, name: str) -> None:
        """`name` is the one under which it reports, and by default that of its queue or subscription."""
        self.name = _checked_name(name)
        self._tasks: dict[str, Task] = {}
        self._finalizers: dict[str, Task] = {}

    def __repr__(self) -> str:
        return f"Adapter({self.name!r})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it has a task or a finalizer for, in the order in which they were declared."""
        return tuple(dict.fromkeys((*self._tasks, *self._finalizers)))

    def task(self, *, kinds: Sequence[str]) -> Callable[[F], F]:
        """Declares what is done for a resource of these kinds, at every evaluation.

        The function is given the resource and a `Context`, and returns an outcome. It must be safe to repeat.
        """
        return self._declare("task", kinds, self._tasks)

    def finalizer(self, *, kinds: Sequence[str]) -> Callable[[F], F]:
        """Declares what is done for a resource of these kinds that is being deleted.

        Without one, such a resource is reported as finalised: the adapter has made nothing that would stay.
        """
        return self._declare("finalizer", kinds, self._finalizers)

    def task_for(self, resource: Resource) -> Task | None:
        """What to run for this resource in the state it is in."""
        return (self._finalizers if resource.is_deleting else self._tasks).get(resource.kind)

    def handles(self, resource: Resource) -> bool:
        """Whether there is something to say about this resource, even if there is nothing to do."""
        return resource.kind in self._tasks or self.task_for(resource) is not None

    def may_handle(self, kind: str) -> bool:
        """Whether an event about this kind, in letters of any case, is worth a look; one about no kind is."""
        return not kind or kind.lower() in (known.lower() for known in self.kinds)

    def _declare(self, what: str, kinds: Sequence[str], declared: dict[str, Task]) -> Callable[[F], F]:
        names = _checked_kinds(kinds)

        def decorate(function: F) -> F:
            _require_two_arguments(what, function)
            for kind in names:
                if kind in declared:
                    known = _name(declared[kind])
                    raise ValueError(f"adapter {self.name} has a {what} for {kind} already: {known}")
            declared.update(dict.fromkeys(names, function))
            return function

        return decorate


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not is_adapter_name(name):
        raise ValueError(
            f"name: expected 1 to {MAX_ADAPTER_LENGTH} letters, digits, dashes, dots and underscores, "
            f"with a letter or digit at both ends, got {name!r}"
        )
    return name


def _checked_kinds(kinds: object) -> tuple[str, ...]:
    if isinstance(kinds, str) or not isinstance(kinds, Collection) or not kinds:
        raise ValueError(f'kinds: expected a list of kinds such as ["Cluster"], got {kinds!r}')
    names = tuple(kinds)
    for kind in names:
        if not isinstance(kind, str) or _KIND.fullmatch(kind) is None:
            raise ValueError(f"kinds: expected the name of a kind such as Cluster, got {kind!r}")
    return names


def _require_two_arguments(what: str, function: Callable[..., object]) -> None:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"a {what} is declared with `async def`, which {_name(function)} is not")
    try:
        inspect.signature(function).bind("resource", "context")
    except TypeError as error:
        raise TypeError(f"a {what} takes a resource and a context; {_name(function)}: {error}") from None


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)

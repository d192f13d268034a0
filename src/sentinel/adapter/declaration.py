"""How an author declares an adapter: a name, and a function for each kind of resource.

    dns = Adapter("dns")

    @dns.task(kinds=["Cluster"])
    async def ensure_zone(cluster, context): ...

A declaration opens no connection and reads no setting. Mistakes that would otherwise show with the first event - a
function that is not asynchronous, a kind with two tasks - raise here, where the author sees them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.core.adapter.resource import KnownReport, Resource
from sentinel.core.adapter.task import Outcome
from sentinel.core.fleet.reports import MAX_ADAPTER_LENGTH, is_adapter_name
from sentinel.ports.task_http import HttpClient
from sentinel.runtime.log import Log

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


class Cancellation:
    """Whether an evaluation has been cancelled. Threads may read it too."""

    def __init__(self) -> None:
        self.is_requested = False

    def request(self) -> None:
        self.is_requested = True


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The second argument of a task: its tools, and the event that caused the evaluation."""

    adapter: str
    """The adapter's own name."""
    http: HttpClient
    """An HTTP client with timeouts and retries."""
    event: ReceivedEvent
    """The event that caused this evaluation; the newest, if it handles several."""
    log: Log
    """A log whose lines carry the resource: `context.log.info("zone.created", zone=name)`."""
    previous: KnownReport | None
    """This adapter's latest report on the resource, on any generation: a result, or work in progress with the data
    of `InProgress`. Of work in progress only the condition `Available` may be known."""
    deadline: datetime
    """When the evaluation will be cancelled."""
    cancellation: Cancellation

    @property
    def cancelled(self) -> bool:
        """Whether the evaluation has been cancelled. For threads that the task started: the task itself gets
        `asyncio.CancelledError`."""
        return self.cancellation.is_requested


Task: TypeAlias = Callable[[Resource, Context], Awaitable[Outcome]]
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Adapter:
    """One adapter: its tasks and finalizers, by kind of resource."""

    def __init__(self, name: str) -> None:
        """`name` identifies its reports, and by default its queue or subscription."""
        self.name = _checked_name(name)
        self._tasks: dict[str, Task] = {}
        self._finalizers: dict[str, Task] = {}

    def __repr__(self) -> str:
        return f"Adapter({self.name!r})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that have a task or a finalizer, in the order of their declaration."""
        return tuple(dict.fromkeys((*self._tasks, *self._finalizers)))

    def task(self, *, kinds: Sequence[str]) -> Callable[[F], F]:
        """Declare the function that evaluates resources of these kinds.

        It is called with the resource and a `Context`, and returns an outcome. It must be safe to repeat.
        """
        return self._declare("task", kinds, self._tasks)

    def finalizer(self, *, kinds: Sequence[str]) -> Callable[[F], F]:
        """Declare the function that cleans up when a resource of these kinds is being deleted.

        Without a finalizer such a resource is reported as finalized, because there is nothing to clean up.
        """
        return self._declare("finalizer", kinds, self._finalizers)

    def task_for(self, resource: Resource) -> Task | None:
        """Return the task of this resource, or its finalizer while it is being deleted."""
        return (self._finalizers if resource.is_deleting else self._tasks).get(resource.kind)

    def handles(self, resource: Resource) -> bool:
        """Whether this adapter reports on the resource, even if there is no function to run."""
        return resource.kind in self._tasks or self.task_for(resource) is not None

    def may_handle(self, kind: str) -> bool:
        """Whether events about this kind, in any letter case, may need an evaluation. Events without a kind do."""
        return not kind or kind.lower() in (known.lower() for known in self.kinds)

    def _declare(self, role: str, kinds: Sequence[str], declared: dict[str, Task]) -> Callable[[F], F]:
        names = _checked_kinds(kinds)

        def decorate(function: F) -> F:
            _require_two_arguments(role, function)
            for kind in names:
                if kind in declared:
                    known = _name(declared[kind])
                    raise ValueError(f"adapter {self.name} has a {role} for {kind} already: {known}")
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


def _require_two_arguments(role: str, function: Callable[..., object]) -> None:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"a {role} is declared with `async def`, which {_name(function)} is not")
    try:
        inspect.signature(function).bind("resource", "context")
    except TypeError as error:
        raise TypeError(f"a {role} takes a resource and a context; {_name(function)}: {error}") from None


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)

"""How an author declares an adapter: a name, and a function for each kind of resource.

    dns = Adapter("dns")

    @dns.task(kinds=["Cluster"])
    async def ensure_zone(cluster, context): ...

An `async def` function runs on the event loop and must not block. A plain `def` function may block: it runs in a
thread.

A declaration opens no connection and reads no setting. Mistakes that would otherwise show with the first event - a
generator instead of a function, a kind with two tasks - raise here, where the author sees them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
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


T = TypeVar("T")


class Cancellation:
    """Whether an evaluation has been cancelled. Its thread may use it, too."""

    def __init__(self) -> None:
        self.is_requested = False
        self._lock = threading.Lock()
        self._calls: set[concurrent.futures.Future[Any]] = set()

    def request(self) -> None:
        """Cancel the evaluation, and what its thread waits for."""
        with self._lock:
            self.is_requested = True
            calls = tuple(self._calls)
        for call in calls:
            call.cancel()

    def call(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Run the coroutine on the loop, from another thread, unless the evaluation is cancelled."""
        with self._lock:
            if self.is_requested:
                work.close()
                raise concurrent.futures.CancelledError
            call = asyncio.run_coroutine_threadsafe(work, loop)
            self._calls.add(call)
        try:
            return call.result()
        finally:
            with self._lock:
                self._calls.discard(call)


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
    loop: asyncio.AbstractEventLoop
    """The event loop that runs the adapter."""

    @property
    def cancelled(self) -> bool:
        """Whether the evaluation has been cancelled. For plain `def` tasks, which cannot be interrupted: they
        check it between steps. An `async def` task gets `asyncio.CancelledError`."""
        return self.cancellation.is_requested

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from a plain `def` task: `zone = context.run(context.http.put(url))`.

        It runs on the adapter's event loop, and this call returns its result or raises its exception. Once the
        evaluation has been cancelled it raises `concurrent.futures.CancelledError`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.cancellation.call(work, self.loop)
        work.close()
        raise RuntimeError("context.run is for tasks declared with plain `def`; an `async def` task uses await")


Task: TypeAlias = Callable[[Resource, Context], Awaitable[Outcome] | Outcome]
F = TypeVar("F", bound=Callable[..., Any])


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

        It is called with the resource and a `Context`, and returns an outcome. It must be safe to repeat. A plain
        `def` function runs in a thread and may block; an `async def` function must not.
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
            _check_function(role, function)
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


def is_asynchronous(function: Callable[..., object]) -> bool:
    """Whether calling the function returns a coroutine. Otherwise it runs in a thread."""
    # `__call__` of a function is not its body, but that of an object may be declared with `async def`.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # not a test for being callable
    )


def _check_function(role: str, function: object) -> None:
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"a {role} is a function, which {_name(function)} is not")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a {role} returns its outcome; {_name(function)} yields")
    if not is_asynchronous(function) and inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise TypeError(f"a {role} is declared with `async def`, and {_name(function)} wraps it in a plain `def`")
    try:
        inspect.signature(function).bind("resource", "context")
    except TypeError as error:
        raise TypeError(f"a {role} takes a resource and a context; {_name(function)}: {error}") from None


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)

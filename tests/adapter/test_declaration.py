"""Declaring an adapter, and the errors of invalid declarations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any

import pytest

from sentinel.adapter import Adapter, Context, Done, Finalized, Outcome, Resource
from sentinel.testing.adapter import make_resource

DELETED = datetime(2025, 1, 1, tzinfo=UTC)


async def work(resource: Resource, context: Context) -> Outcome:
    return Done()


async def other(resource: Resource, context: Context) -> Outcome:
    return Finalized()


def test_a_task_is_found_by_the_kind_of_the_resource() -> None:
    dns = Adapter("dns")

    assert dns.task(kinds=["Cluster", "NodePool"])(work) is work

    assert dns.kinds == ("Cluster", "NodePool")
    assert dns.task_for(make_resource("Cluster")) is work
    assert dns.task_for(make_resource("Manifest")) is None


def test_a_deleted_resource_goes_to_the_finalizer() -> None:
    dns = Adapter("dns")
    dns.task(kinds=["Cluster"])(work)
    dns.finalizer(kinds=["Cluster"])(other)

    assert dns.task_for(make_resource("Cluster", deleted_time=DELETED)) is other
    assert dns.task_for(make_resource("Cluster")) is work


def test_without_a_finalizer_a_deleted_resource_is_still_handled() -> None:
    dns = Adapter("dns")
    dns.task(kinds=["Cluster"])(work)
    deleted = make_resource("Cluster", deleted_time=DELETED)

    assert dns.handles(deleted)
    assert dns.task_for(deleted) is None


def test_with_only_a_finalizer_a_live_resource_is_not_handled() -> None:
    dns = Adapter("dns")
    dns.finalizer(kinds=["Cluster"])(other)

    assert not dns.handles(make_resource("Cluster"))
    assert dns.handles(make_resource("Cluster", deleted_time=DELETED))


def test_events_may_name_the_kind_in_any_case_or_not_at_all() -> None:
    dns = Adapter("dns")
    dns.task(kinds=["NodePool"])(work)

    assert dns.may_handle("nodepool")
    assert dns.may_handle("")
    assert not dns.may_handle("cluster")


@pytest.mark.parametrize("name", ["", "-dns", "dns.", "a b", "ä", "x" * 64, 5, None])
def test_an_invalid_name_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="name: expected 1 to 63 letters"):
        Adapter(name)


@pytest.mark.parametrize("kinds", ["Cluster", [], None, [""], ["a b"], ["clusters/x"], [5]])
def test_invalid_kinds_are_refused(kinds: Any) -> None:
    with pytest.raises(ValueError, match="kinds: expected"):
        Adapter("dns").task(kinds=kinds)


def test_plain_functions_are_accepted() -> None:
    def ensure(resource: Resource, context: Context) -> Outcome:
        return Done()

    dns = Adapter("dns")

    assert dns.task(kinds=["Cluster"])(ensure) is ensure
    assert dns.finalizer(kinds=["Cluster"])(ensure) is ensure


def yielding(resource: Resource, context: Context) -> Iterator[Outcome]:
    yield Done()


async def yielding_asynchronously(resource: Resource, context: Context) -> AsyncIterator[Outcome]:
    yield Done()


@wraps(work)
def wrapping(*args: Any) -> Any:
    return work(*args)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (yielding, "a task returns its outcome; yielding yields"),
        (yielding_asynchronously, "yielding_asynchronously yields"),
        (wrapping, "is declared with `async def`, and work wraps it in a plain `def`"),
        (Done, "a task is a function, which Done is not"),
        ("dns", "a task is a function, which 'dns' is not"),
    ],
)
def test_what_returns_no_outcome_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        Adapter("dns").task(kinds=["Cluster"])(function)


def test_a_function_with_other_parameters_is_refused() -> None:
    async def ensure(resource: Resource) -> Outcome:
        return Done()

    with pytest.raises(TypeError, match="a finalizer takes a resource and a context"):
        Adapter("dns").finalizer(kinds=["Cluster"])(ensure)


def test_a_second_task_for_a_kind_is_refused_and_changes_nothing() -> None:
    dns = Adapter("dns")
    dns.task(kinds=["Cluster"])(work)

    with pytest.raises(ValueError, match="adapter dns has a task for Cluster already: work"):
        dns.task(kinds=["NodePool", "Cluster"])(other)

    assert dns.kinds == ("Cluster",)


def test_methods_and_partial_functions_are_accepted() -> None:
    class Zones:
        async def ensure(self, resource: Resource, context: Context) -> Outcome:
            return Done()

    async def ensure(zone: str, resource: Resource, context: Context) -> Outcome:
        return Done(zone)

    dns = Adapter("dns")

    dns.task(kinds=["Cluster"])(Zones().ensure)
    dns.task(kinds=["NodePool"])(partial(ensure, "z1"))

    assert dns.kinds == ("Cluster", "NodePool")


def test_an_adapter_shows_its_name() -> None:
    assert repr(Adapter("dns")) == "Adapter('dns')"

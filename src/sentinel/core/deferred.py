"""A sequence that is made when it is first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class DeferredSequence(Sequence[T]):
    """Makes its items once, when one of them or their number is first needed. Most of them never are."""

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make: Callable[[], Sequence[T]] | None = make
        self._items: Sequence[T] = ()

    def _made(self) -> Sequence[T]:
        if self._make is not None:
            self._items = self._make()
            self._make = None
        return self._items

    def __len__(self) -> int:
        return len(self._made())

    def __iter__(self) -> Iterator[T]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._made()[index]

"""A table from hashes to numbers that takes half of the memory of a dict.

A dict of integers needs an object for each key: about 90 bytes for each resource. This one is an open-addressing
hash table in two arrays, 24 to 48 bytes for each resource. The keys are hashes already, so the low bits of a key
are its slot, or the next free one if that is taken. Keys are never removed one by one.
"""

from __future__ import annotations

from array import array
from typing import Final

_INITIAL_SIZE: Final = 1024
_FREE: Final = 0
_KEY_OF_ZERO: Final = 1
"""Stands for the key 0, which marks a free slot. They collide, as rarely as any two hashes."""
_LARGE: Final = 2**64 - 1
"""Stands for a number that does not fit."""


class VersionTable:
    """Numbers, 0 or more, by key: a hash of 64 bits, as `hash` returns it."""

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return self._used

    def clear(self) -> None:
        """Forget everything."""
        self._used = 0
        self._large: dict[int, int] = {}
        self._allocate(_INITIAL_SIZE)

    def get(self, key: int) -> int | None:
        """Return the number of a key, or None if it has none."""
        key = key or _KEY_OF_ZERO
        index = self._find(key)
        if self._keys[index] == _FREE:
            return None
        number = self._numbers[index]
        return number if number != _LARGE else self._large[key]

    def put(self, key: int, number: int) -> None:
        """Set the number of a key."""
        # `_find` inline: this runs for every resource of a changed page.
        key = key or _KEY_OF_ZERO
        keys, mask = self._keys, self._mask
        index = key & mask
        while (found := keys[index]) != key:
            if found == _FREE:
                index = self._add(key, index)
                break
            index = index + 1 & mask
        if number < _LARGE:
            self._numbers[index] = number
        else:
            self._numbers[index] = _LARGE
            self._large[key] = number

    def _find(self, key: int) -> int:
        """Return the slot of a key, or the free one that it would get."""
        keys, mask = self._keys, self._mask
        index = key & mask
        while keys[index] not in (key, _FREE):
            index = index + 1 & mask
        return index

    def _add(self, key: int, index: int) -> int:
        """Give a new key the free slot at this index, or another one if the table has to grow. Return which."""
        self._used += 1
        if self._used > self._max_used:
            self._grow()
            index = self._find(key)
        self._keys[index] = key
        return index

    def _grow(self) -> None:
        old_keys, old_numbers = self._keys, self._numbers
        self._allocate(2 * len(old_keys))
        keys, numbers, mask = self._keys, self._numbers, self._mask
        for key, number in zip(old_keys, old_numbers, strict=True):
            if key != _FREE:
                index = key & mask
                while keys[index] != _FREE:
                    index = index + 1 & mask
                keys[index], numbers[index] = key, number

    def _allocate(self, size: int) -> None:
        """Make empty arrays. The size is a power of two."""
        self._mask = size - 1
        self._max_used = size * 2 // 3  # beyond it, searches become long
        self._keys = array("q", [_FREE]) * size
        self._numbers = array("Q", [0]) * size

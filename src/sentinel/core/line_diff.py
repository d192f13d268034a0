"""The unified difference of two texts, in bounded time.

`difflib` takes minutes for large texts with many equal lines, and anybody who may store two texts may ask for
their difference. Here, lines that both texts have exactly once are matched first, as in patience diff. `difflib`
matches only what is between them, as long as that is cheap; the rest is shown as replaced.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, TypeAlias

CONTEXT: Final = 3
"""Equal lines that are shown around a change."""

_MAX_EFFORT: Final = 5_000_000
"""Comparisons that `difflib` may need in the worst case, in one call. About a second."""
_MAX_ROUNDS: Final = 8
"""How often lines that are unique are looked for between those that were."""

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")

_Match: TypeAlias = tuple[int, int]
"""The numbers of two lines that are equal."""
_Opcode: TypeAlias = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


def unified_diff(before: str, after: str, *, before_name: str, after_name: str) -> str:
    """Return the difference as `diff -u` prints it; nothing if the texts are equal."""
    if before == after:
        return ""
    old, new = _LINE.findall(before), _LINE.findall(after)
    pieces = [f"--- {before_name}\n+++ {after_name}\n"]
    for hunk in _Hunks(old, new).get_grouped_opcodes(CONTEXT):
        pieces.append(f"@@ -{_range(hunk[0][1], hunk[-1][2])} +{_range(hunk[0][3], hunk[-1][4])} @@\n")
        for tag, i, j, k, m in hunk:
            if tag == "equal":
                pieces += (_written(" ", line) for line in old[i:j])
            else:
                pieces += (_written("-", line) for line in old[i:j])
                pieces += (_written("+", line) for line in new[k:m])
    return "".join(pieces)


def _range(start: int, end: int) -> str:
    if end - start == 1:
        return str(end)
    return f"{start + 1 if end > start else start},{end - start}"


def _written(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


class _Hunks(SequenceMatcher[str]):
    """Makes hunks of our matches, as `difflib` does of its own."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._matches = _Matcher(old, new).matches()
        self._ends = (len(old), len(new))

    def get_opcodes(self) -> list[_Opcode]:
        opcodes: list[_Opcode] = []
        i = k = 0
        for j, m, size in _runs([*self._matches, self._ends]):
            if i < j or k < m:
                opcodes.append(("replace", i, j, k, m))
            i, k = min(j + size, self._ends[0]), min(m + size, self._ends[1])
            if i > j:
                opcodes.append(("equal", j, i, m, k))
        return opcodes


def _runs(matches: Sequence[_Match]) -> Iterator[tuple[int, int, int]]:
    """Return where matches without a gap between them start, and how many they are."""
    start, size = matches[0], 0
    for i, k in matches:
        if (i, k) != (start[0] + size, start[1] + size):
            yield *start, size
            start, size = (i, k), 0
        size += 1
    yield *start, size


class _Matcher:
    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        self._old = old
        self._new = new
        self._effort = _MAX_EFFORT

    def matches(self) -> list[_Match]:
        return list(self._match(0, len(self._old), 0, len(self._new), _MAX_ROUNDS))

    def _match(self, i: int, j: int, k: int, m: int, rounds: int) -> Iterator[_Match]:
        """Match `old[i:j]` with `new[k:m]`."""
        while i < j and k < m and self._old[i] == self._new[k]:
            yield i, k
            i, k = i + 1, k + 1
        size = 0
        while i < j - size and k < m - size and self._old[j - size - 1] == self._new[m - size - 1]:
            size += 1
        anchors = self._anchors(i, j - size, k, m - size) if rounds else []
        if anchors:
            for line, place in anchors:
                yield from self._match(i, line, k, place, rounds - 1)
                yield line, place
                i, k = line + 1, place + 1
            yield from self._match(i, j - size, k, m - size, rounds - 1)
        else:
            yield from self._compare(i, j - size, k, m - size)
        yield from zip(range(j - size, j), range(m - size, m), strict=True)

    def _anchors(self, i: int, j: int, k: int, m: int) -> list[_Match]:
        """Return the lines that both sides have once: the longest sequence in the same order on both."""
        old_counts, new_counts = Counter(self._old[i:j]), Counter(self._new[k:m])
        place_of = {self._new[place]: place for place in range(k, m)}
        unique = [
            (line, place_of[text])
            for line, text in enumerate(self._old[i:j], i)
            if old_counts[text] == 1 and new_counts.get(text) == 1
        ]
        # The longest increasing subsequence: the lowest place in which a sequence of each length can end.
        ends: list[int] = []
        chosen: list[int] = []
        previous: list[int] = []
        for number, (_, place) in enumerate(unique):
            length = bisect_left(ends, place)
            previous.append(chosen[length - 1] if length else -1)
            ends[length : length + 1] = [place]
            chosen[length : length + 1] = [number]
        found: list[_Match] = []
        at = chosen[-1] if chosen else -1
        while at >= 0:
            found.append(unique[at])
            at = previous[at]
        return found[::-1]

    def _compare(self, i: int, j: int, k: int, m: int) -> Iterator[_Match]:
        height, width = j - i, m - k
        effort = height * width * min(height, width)
        if not 0 < effort <= self._effort:
            return
        self._effort -= effort
        matcher = SequenceMatcher(None, self._old[i:j], self._new[k:m], autojunk=False)
        for a, b, size in matcher.get_matching_blocks():
            yield from ((i + a + number, k + b + number) for number in range(size))

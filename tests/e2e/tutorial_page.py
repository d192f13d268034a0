"""Parse a tutorial page into the steps of its reader.

The commands are only on the page, so a test can neither skip one nor run another:

- A `console` block names its terminal: `first`, `second` or `both`. A line with `$ ` is a command, and the lines
  below it are the expected output. `^C` is pressed after that output. Lines without a command above them are what
  the terminal shows at that time.
- A block of `python`, `yaml` and so on is a file. The sentence before it ends with the file's name, as in
  "put this into `kinds.yaml`:".
- In expected output, `…` matches any text, and a line with only `…` any lines. Column widths do not matter.

Everything else that could contain a command is rejected: other blocks, indented code, and commands in a sentence
that no console block contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

ELLIPSIS = "…"
INTERRUPT = "^C"

_FENCE = re.compile(r"```(?P<info>.*)")
_FILE_NAME = re.compile(r"`(?P<name>[^`]+)`:$")
_INLINE = re.compile(r"`(?P<code>[^`]+)`")
_LINK = re.compile(r"\]\((?P<target>[^)#:]+)\)")
_FILES = ("json", "python", "text", "yaml")
"""Languages of files. Not those of shells: commands belong in a console block, which the test runs."""
_TERMINALS = {"first": ("first",), "second": ("second",), "both": ("first", "second")}
_PROMPT = "$ "
_QUERIES = ("sentinel get ", "sentinel why ", "sentinel hub instances list", "curl ")
_COMMAND = re.compile(r"(.*[ /])?(sentinel|make) .+")


class InvalidPage(Exception):
    """The page contains something that no test would run."""


class File(msgspec.Struct, frozen=True):
    """A file to write into the folder of the second terminal."""

    line: int
    name: str
    content: str


class Action(msgspec.Struct, frozen=True):
    """An action at a terminal: a command, its expected output, and whether Ctrl-C ends it."""

    line: int
    terminal: str
    command: str
    """Empty if the reader only looks at the terminal."""
    expected: tuple[str, ...]
    is_interrupted: bool

    @property
    def is_background(self) -> bool:
        """Whether the command keeps running during the next steps."""
        return not self.is_interrupted and self.command.startswith(("sentinel up", "sentinel api"))

    @property
    def is_query(self) -> bool:
        """Whether the command changes nothing, so that it can be repeated until it prints the expected output."""
        return not self.is_interrupted and self.command.startswith(_QUERIES)


Step = File | Action


class _Block(msgspec.Struct, frozen=True):
    line: int
    info: str
    preceding: str
    """The line of text before the block."""
    content: tuple[str, ...]


def parse(page: str) -> list[Step]:
    """Return the steps of a page in order. Raise `InvalidPage`."""
    text, blocks = _split(page)
    steps = [step for block in blocks for step in _steps(block)]
    commands = [step.command for step in steps if isinstance(step, Action) and step.command]
    for number, line in text:
        if line.startswith(("    ", "\t", "~~~", "<")):
            raise InvalidPage(f'line {number}: expected text, or a block with ```, got "{line}"')
        for found in _INLINE.finditer(line):
            code = found["code"]
            if _COMMAND.fullmatch(code) and not _begins_any(code, commands):
                raise InvalidPage(f"line {number}: expected a command of a console block, got `{code}`")
    return steps


def links(page: str) -> list[str]:
    """Return the files that a page links to."""
    return [found["target"] for found in _LINK.finditer(page)]


def normalize(lines: Sequence[str]) -> list[str]:
    """Return lines for comparison: without padding and empty lines."""
    return [" ".join(line.split()) for line in lines if line.strip()]


def is_expected(expected: Sequence[str], lines: Sequence[str], *, is_partial: bool = False) -> bool:
    """Return whether lines match the expected output. If `is_partial`, more lines may follow."""
    groups = [_patterns(group) for group in _split_at_ellipses(normalize(expected))]
    actual = normalize(lines)
    if is_partial:
        groups.append([])
    first, *others = groups
    if not _matches(first, actual[: len(first)]):
        return False
    if not others:
        return len(actual) == len(first)
    *middle, last = others
    position, end = len(first), len(actual) - len(last)
    for group in middle:
        # Take the earliest match: it leaves the most lines for the groups that follow.
        starts = range(position, end - len(group) + 1)
        found = next((start for start in starts if _matches(group, actual[start : start + len(group)])), None)
        if found is None:
            return False
        position = found + len(group)
    return position <= end and _matches(last, actual[end:])


def _split(page: str) -> tuple[list[tuple[int, str]], list[_Block]]:
    """Return the text as numbered lines, and the blocks."""
    text: list[tuple[int, str]] = []
    blocks: list[_Block] = []
    opened: tuple[int, str] | None = None
    content: list[str] = []
    for number, line in enumerate(page.splitlines(), 1):
        fence = _FENCE.fullmatch(line.strip())
        if fence is None:
            if opened is None:
                text.append((number, line))
            else:
                content.append(line)
        elif opened is None:
            opened, content = (number, fence["info"].strip()), []
        else:
            preceding = next((before for _, before in reversed(text) if before.strip()), "")
            blocks.append(_Block(*opened, preceding, tuple(content)))
            opened = None
    if opened is not None:
        raise InvalidPage(f"line {opened[0]}: expected a block that ends, got none")
    return text, blocks


def _steps(block: _Block) -> Iterator[Step]:
    language, _, terminal = block.info.partition(" ")
    if language != "console":
        named = _FILE_NAME.search(block.preceding)
        if named is None or block.info not in _FILES:
            raise InvalidPage(f'line {block.line}: expected a terminal or a file name, got "{block.info}"')
        yield File(block.line, named["name"], "".join(f"{line}\n" for line in block.content))
        return
    if terminal not in _TERMINALS:
        raise InvalidPage(f'line {block.line}: expected console {"|".join(_TERMINALS)}, got "{block.info}"')
    for each in _TERMINALS[terminal]:
        yield from _actions(block, each)


def _actions(block: _Block, terminal: str) -> Iterator[Action]:
    """Yield the actions at one terminal. An action ends before the next command or after Ctrl-C."""
    numbered = list(enumerate(block.content, block.line + 1))
    starts = [
        index
        for index, (_, line) in enumerate(numbered)
        if index == 0 or line.startswith(_PROMPT) or numbered[index - 1][1] == INTERRUPT
    ]
    for start, end in zip(starts, [*starts[1:], len(numbered)], strict=True):
        lines = [line for _, line in numbered[start:end]]
        command = lines.pop(0).removeprefix(_PROMPT) if lines[0].startswith(_PROMPT) else ""
        is_interrupted = lines[-1:] == [INTERRUPT]
        expected = tuple(lines[:-1] if is_interrupted else lines)
        yield Action(numbered[start][0], terminal, command, expected, is_interrupted)


def _begins_any(code: str, commands: Sequence[str]) -> bool:
    return any(command == code or command.startswith(f"{code} ") for command in commands)


def _split_at_ellipses(lines: Sequence[str]) -> list[list[str]]:
    """Return the runs of consecutive lines between the lines that match any lines."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if line == ELLIPSIS:
            groups.append([])
        else:
            groups[-1].append(line)
    return groups


def _patterns(lines: Sequence[str]) -> list[re.Pattern[str]]:
    return [re.compile(".*".join(map(re.escape, line.split(ELLIPSIS)))) for line in lines]


def _matches(patterns: Sequence[re.Pattern[str]], lines: Sequence[str]) -> bool:
    return len(patterns) == len(lines) and all(
        pattern.fullmatch(line) for pattern, line in zip(patterns, lines, strict=True)
    )

"""A tutorial as what its reader does, read from the page itself.

The page is the only place where its commands stand, so a test can neither skip one nor run another:

- A `console` block says in which terminal: `first`, `second` or `both`. A line with `$ ` is typed there, the lines
  below it are what the reader is promised to see, and `^C` is pressed once that is there. Lines without a command
  above them are what the terminal shows by then.
- A block of `python`, `yaml` and so on is a file; the sentence before it ends with the file's name, as in
  "put this into `kinds.yaml`:".
- In what is shown, `…` is anything, and a line of it any lines. How wide columns are does not matter.

What else could hold a command is refused: blocks of other sorts, indented code, and commands within a sentence
that are not typed somewhere on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

ANYTHING = "…"
INTERRUPT = "^C"

_FENCE = re.compile(r"```(?P<info>.*)")
_FILE_NAME = re.compile(r"`(?P<name>[^`]+)`:$")
_INLINE = re.compile(r"`(?P<code>[^`]+)`")
_LINK = re.compile(r"\]\((?P<target>[^)#:]+)\)")
_FILES = ("json", "python", "text", "yaml")
"""Languages of files. A shell's is not among them: who shows commands means them to be typed."""
_TERMINALS = {"first": ("first",), "second": ("second",), "both": ("first", "second")}
_PROMPT = "$ "
_COMMAND = re.compile(r"(.*[ /])?(sentinel|make) .+")


class Unclear(Exception):
    """The page has something that no test would run."""


class File(msgspec.Struct, frozen=True):
    """Something to write, in the folder of the second terminal."""

    line: int
    name: str
    content: str


class Action(msgspec.Struct, frozen=True):
    """Something to do at a terminal: what to type, what is to be seen then, and whether to end it by Ctrl-C."""

    line: int
    terminal: str
    command: str
    """Empty where the reader only looks."""
    shown: tuple[str, ...]
    is_interrupted: bool

    @property
    def stays(self) -> bool:
        """Whether the command goes on while the reader does other things."""
        return not self.is_interrupted and self.command.startswith("sentinel up")

    @property
    def is_question(self) -> bool:
        """Whether it changes nothing, so that who does not see yet what is promised asks again."""
        return not self.is_interrupted and self.command.startswith(("sentinel get ", "sentinel why "))


Step = File | Action


class _Block(msgspec.Struct, frozen=True):
    line: int
    info: str
    lead: str
    """The line of text before it."""
    content: tuple[str, ...]


def read(page: str) -> list[Step]:
    """What the page has its reader do, in order; raises `Unclear`."""
    text, blocks = _split(page)
    steps = [step for block in blocks for step in _steps(block)]
    typed = [step.command for step in steps if isinstance(step, Action) and step.command]
    for number, line in text:
        if line.startswith(("    ", "\t", "~~~", "<")):
            raise Unclear(f'line {number}: expected text, or a block with ```, got "{line}"')
        for found in _INLINE.finditer(line):
            code = found["code"]
            if _COMMAND.fullmatch(code) and not _begins_any(code, typed):
                raise Unclear(f"line {number}: expected a command that is typed on the page, got `{code}`")
    return steps


def links(page: str) -> list[str]:
    """The files that the page refers to."""
    return [found["target"] for found in _LINK.finditer(page)]


def picture(lines: Sequence[str]) -> list[str]:
    """Lines as they are compared: without padding, and without those that are empty."""
    return [" ".join(line.split()) for line in lines if line.strip()]


def is_shown(promised: Sequence[str], lines: Sequence[str], *, so_far: bool = False) -> bool:
    """Whether lines are what was promised; `so_far` leaves open how they go on."""
    groups = [_patterns(group) for group in _grouped(picture(promised))]
    actual = picture(lines)
    if so_far:
        groups.append([])
    first, *others = groups
    if not _matches(first, actual[: len(first)]):
        return False
    if not others:
        return len(actual) == len(first)
    *middle, last = others
    position, end = len(first), len(actual) - len(last)
    for group in middle:
        # The earliest place is never a worse choice than a later one, as it leaves the most to the rest.
        places = range(position, end - len(group) + 1)
        found = next((place for place in places if _matches(group, actual[place : place + len(group)])), None)
        if found is None:
            return False
        position = found + len(group)
    return position <= end and _matches(last, actual[end:])


def _split(page: str) -> tuple[list[tuple[int, str]], list[_Block]]:
    """The text with the numbers of its lines, and the blocks."""
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
            lead = next((before for _, before in reversed(text) if before.strip()), "")
            blocks.append(_Block(*opened, lead, tuple(content)))
            opened = None
    if opened is not None:
        raise Unclear(f"line {opened[0]}: expected a block with an end, got none")
    return text, blocks


def _steps(block: _Block) -> Iterator[Step]:
    language, _, terminal = block.info.partition(" ")
    if language != "console":
        named = _FILE_NAME.search(block.lead)
        if named is None or block.info not in _FILES:
            raise Unclear(f'line {block.line}: expected a terminal, or a file with its name, got "{block.info}"')
        yield File(block.line, named["name"], "".join(f"{line}\n" for line in block.content))
        return
    if terminal not in _TERMINALS:
        raise Unclear(f'line {block.line}: expected console {"|".join(_TERMINALS)}, got "{block.info}"')
    for each in _TERMINALS[terminal]:
        yield from _actions(block, each)


def _actions(block: _Block, terminal: str) -> Iterator[Action]:
    """What is done at one terminal: each action begins with a command, and ends at the next one or at a Ctrl-C."""
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
        shown = tuple(lines[:-1] if is_interrupted else lines)
        yield Action(numbered[start][0], terminal, command, shown, is_interrupted)


def _begins_any(code: str, commands: Sequence[str]) -> bool:
    return any(command == code or command.startswith(f"{code} ") for command in commands)


def _grouped(lines: Sequence[str]) -> list[list[str]]:
    """Lines that follow each other, between those that stand for any number of them."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if line == ANYTHING:
            groups.append([])
        else:
            groups[-1].append(line)
    return groups


def _patterns(lines: Sequence[str]) -> list[re.Pattern[str]]:
    return [re.compile(".*".join(map(re.escape, line.split(ANYTHING)))) for line in lines]


def _matches(patterns: Sequence[re.Pattern[str]], lines: Sequence[str]) -> bool:
    return len(patterns) == len(lines) and all(
        pattern.fullmatch(line) for pattern, line in zip(patterns, lines, strict=True)
    )

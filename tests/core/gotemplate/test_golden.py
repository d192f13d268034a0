"""Every template of the golden table renders as in Go. The program that wrote the table is beside it."""

from __future__ import annotations

import re

import msgspec
import pytest

from sentinel.core.json import Json
from tests.golden.gotemplate.oracle import FOLDER, RenderResult, ours


class Golden(RenderResult, frozen=True, kw_only=True):
    """A row of the table."""

    on: str
    template: str


DOCUMENTS: dict[str, Json] = msgspec.json.decode((FOLDER / "cases.json").read_bytes())["documents"]
TABLE = msgspec.json.Decoder(Golden).decode_lines((FOLDER / "golden.jsonl").read_bytes())


def is_call(row: Golden) -> bool:
    """Whether the template uses `call`, which Go rejects only at run time."""
    return "call" in row.template


def without_position(problem: str) -> str:
    """Return Go's message without its position."""
    problem = re.sub(r"^template: message_data:\d+: ", "", problem)
    return re.sub(r"( in action)? started at message_data:\d+$", "", problem)


def test_the_table_is_large_and_has_every_result() -> None:
    kinds = {row.fails for row in TABLE}

    assert len(TABLE) >= 400
    assert kinds == {"", "parse", "exec"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_template_renders_as_in_go(name: str) -> None:
    rows = [row for row in TABLE if row.on == name and not is_call(row)]

    for row in rows:
        our = ours(row.template, DOCUMENTS[name])

        assert (our.fails, our.output) == (row.fails, row.output), row


def test_an_invalid_template_is_rejected_with_gos_message() -> None:
    rows = [row for row in TABLE if row.fails == "parse"]

    for row in rows:
        assert ours(row.template, None).problem == without_position(row.problem), row


@pytest.mark.parametrize("source", [row.template for row in TABLE if is_call(row)])
def test_call_is_rejected_when_compiling(source: str) -> None:
    our = ours(source, DOCUMENTS["kinds"])

    assert our.fails == "parse"
    assert our.problem == 'function "call" is not available: no part of a document can be called'

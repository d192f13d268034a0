"""Every template of the golden table gives what Go gave. The program that made it stands beside the table."""

from __future__ import annotations

import re

import msgspec
import pytest

from sentinel.core.json import Json
from tests.golden.gotemplate.oracle import FOLDER, Answer, ours


class Golden(Answer, frozen=True, kw_only=True):
    """A line of the table."""

    on: str
    template: str


DOCUMENTS: dict[str, Json] = msgspec.json.decode((FOLDER / "cases.json").read_bytes())["documents"]
TABLE = msgspec.json.Decoder(Golden).decode_lines((FOLDER / "golden.jsonl").read_bytes())


def is_call(row: Golden) -> bool:
    """Go finds out only when it runs that nothing in a document can be called."""
    return "call" in row.template


def words(problem: str) -> str:
    """Go's complaint about a source, without its own idea of where that is."""
    problem = re.sub(r"^template: message_data:\d+: ", "", problem)
    return re.sub(r"( in action)? started at message_data:\d+$", "", problem)


def test_the_table_is_large_and_of_every_kind() -> None:
    kinds = {row.fails for row in TABLE}

    assert len(TABLE) >= 400
    assert kinds == {"", "parse", "exec"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_template_gives_what_go_gave(name: str) -> None:
    rows = [row for row in TABLE if row.on == name and not is_call(row)]

    for row in rows:
        our = ours(row.template, DOCUMENTS[name])

        assert (our.fails, our.output) == (row.fails, row.output), row


def test_what_is_no_template_is_refused_in_gos_own_words() -> None:
    rows = [row for row in TABLE if row.fails == "parse"]

    for row in rows:
        assert ours(row.template, None).problem == words(row.problem), row


@pytest.mark.parametrize("source", [row.template for row in TABLE if is_call(row)])
def test_call_is_refused_before_anything_runs(source: str) -> None:
    our = ours(source, DOCUMENTS["kinds"])

    assert our.fails == "parse"
    assert our.problem == 'function "call" is not available: no part of a document can be called'

"""A Go template over JSON: compiled once, rendered for every document.

`{{.missing}}` prints nothing where Go prints `<no value>`; everything else is Go's, `printf "%v" .missing`
included, which is `<nil>`. Something absent that is printed, or given to a function that prints or escapes, is
reported, since that is rarely meant. Testing for it (`if`, `with`, `and`, `or`, `eq`) is, and is not reported; nor
is a null, which somebody has put there.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.gotemplate import reads
from sentinel.core.gotemplate.errors import Failed, Missing, Trouble, position
from sentinel.core.gotemplate.parse import parse
from sentinel.core.gotemplate.program import Program
from sentinel.core.gotemplate.values import finished, taken
from sentinel.core.json import Json

MAIN: Final = "message_data"
"""The name by which the outermost template could call itself."""


class Template:
    """A compiled template. Raises `TemplateError` where the source is none."""

    def __init__(self, source: str) -> None:
        templates = parse(source, MAIN)
        self._source = source
        self._program = Program(templates, MAIN)
        self._paths = reads.fields_read(templates, MAIN)

    def fields_read(self) -> frozenset[tuple[str, ...]]:
        """The paths that rendering may read; the empty path is the whole document."""
        return self._paths

    def render(self, document: Json) -> str:
        """The text for this document. Raises `Failed`, and `Missing` where something printed is absent."""
        try:
            run = self._program.run(taken(document))
        except Trouble as trouble:
            line, column = position(self._source, trouble.at)
            raise Failed(f"{trouble.problem} (line {line}, column {column} of the template)") from None
        text = finished(run.out.text())
        if run.lacks:
            raise Missing(text)
        return text

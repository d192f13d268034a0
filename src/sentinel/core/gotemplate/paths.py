"""A path on its own, such as `.metadata.labels.region`: what may stand in braces, without them."""

from __future__ import annotations

from sentinel.core.gotemplate.errors import TemplateError, position
from sentinel.core.gotemplate.lex import tokens
from sentinel.core.gotemplate.tokens import Kind


def parse_path(text: str) -> tuple[str, ...]:
    """The names of a path; none for a dot alone. Raises `TemplateError` where Go would not read it as one."""
    # The end is on a line of its own, lest a minus at the end of the text become part of it.
    stream = iter(tokens("{{" + text + "\n}}")[1:])
    token = next(stream)
    names: list[str] = []
    if token.kind is Kind.DOT:
        token = next(stream)
    while token.kind is Kind.FIELD:
        names.append(token.text[1:])
        token = next(stream)
    if token.kind is Kind.SPACE:
        token = next(stream)
    at = token.at - len("{{")
    if token.kind is not Kind.RIGHT or at < len(text):
        line, column = position(text, at)
        problem = "expected a path such as .metadata.labels.region; what is more than a path goes in {{ }}"
        raise TemplateError(problem, line=line, column=column)
    return tuple(names)

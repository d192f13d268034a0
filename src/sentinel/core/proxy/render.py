"""From the configuration that people write to the one that the proxy reads.

The proxy knows no secrets, only paths of files. So `cert secret="api-cert"` becomes `cert-file "/…"` in a
listener, and `client-cert "/…"` in an upstream. Everything else stays as it is written, comments and layout
included: only those pieces of the text are replaced, so a line of the proxy's messages is a line of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy.outline import Kind
from sentinel.core.proxy.problem import Problem, semantic_problem, syntax_problems
from sentinel.core.proxy.secrets import CERTIFICATE, KEY, Origin, SecretUse, secret_uses, shown

RENDERED_KEYS: Final = {
    (Kind.LISTENER, CERTIFICATE): "cert-file",
    (Kind.LISTENER, KEY): "key-file",
    (Kind.UPSTREAM, CERTIFICATE): "client-cert",
    (Kind.UPSTREAM, KEY): "client-key",
}
"""What the proxy calls a certificate and a key, by where they are written."""


_Replacement: TypeAlias = tuple[int, int, str]
"""Start and end of a piece of the text, and what the proxy reads there."""


class Rendered(msgspec.Struct, frozen=True):
    """The text for the proxy, or why there is none."""

    text: str | None
    problems: tuple[Problem, ...] = ()


def render(source: str | bytes, values: Mapping[str, str]) -> Rendered:
    """Replace each secret by its value: the path of the file that contains it.

    `values` has the paths by reference, as `secret:api-cert`. Without all of them there is no text.
    """
    parsed = kdl.parse(source)
    problems = syntax_problems(parsed.problems)
    if problems:
        return Rendered(None, tuple(problems))
    text = source.decode() if isinstance(source, bytes) else source
    spans, replacements = kdl.Spans(text), list[_Replacement]()
    for use in secret_uses(parsed.document):
        path = values.get(str(use.reference))
        if use.reference is None or path is None:
            problems.append(_problem(use))
        else:
            replacements += _replacements(use, use.reference.origin, path, spans)
    if problems:
        return Rendered(None, tuple(sorted(problems, key=lambda each: (each.line, each.column))))
    return Rendered(_replaced(text, replacements))


def _replacements(use: SecretUse, origin: Origin, path: str, spans: kdl.Spans) -> Iterator[_Replacement]:
    yield *spans.name(use.node), RENDERED_KEYS[use.block.owner.kind, use.node.name]
    *overridden, counted = (each for each in use.node.properties if each.name == origin)
    for each in overridden:
        yield *spans.property(each), ""
    yield *spans.property(counted), kdl.print_value(kdl.Value(path))


def _replaced(text: str, replacements: Iterable[_Replacement]) -> str:
    pieces, at = list[str](), 0
    for start, end, replacement in sorted(replacements):
        pieces += (text[at:start], replacement)
        at = end
    return "".join((*pieces, text[at:]))


def _problem(use: SecretUse) -> Problem:
    if use.reference is not None:
        return semantic_problem(
            "missing-secret", use.place, f"expected a value for {shown(use.reference)}, got none"
        )
    message = f'expected one of secret="…", env="…" and vault="path#field", got {_written(use.node)}'
    return semantic_problem("bad-secret", use.place, message)


def _written(node: kdl.Node) -> str:
    return kdl.print_node(msgspec.structs.replace(node, children=()))

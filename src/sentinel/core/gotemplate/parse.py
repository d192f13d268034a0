"""The parser: from tokens to the tree, with the grammar and the error messages of Go.

Errors that Go reports at run time (an undefined template, too many arguments) are reported at run time here too,
because they may be in a branch that never runs. Two errors are reported earlier than by Go: `call`, because JSON
has no functions, and nesting that is too deep.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sentinel.core.gotemplate import tree
from sentinel.core.gotemplate.errors import TemplateError, position
from sentinel.core.gotemplate.expressions import Expressions
from sentinel.core.gotemplate.lex import tokens
from sentinel.core.gotemplate.quoting import quote
from sentinel.core.gotemplate.tokens import Kind, Token, TokenStream

_WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class _End(msgspec.Struct, frozen=True):
    """The end of a list of statements: `{{end}}` or `{{else}}`."""

    at: int
    is_else: bool

    def __str__(self) -> str:
        return "{{else}}" if self.is_else else "{{end}}"


def parse(source: str, name: str) -> tree.Templates:
    """Parse a source. Its main template gets this name. Raises `TemplateError`."""
    parser = _Parser(source)
    parser.parse(name)
    return parser.templates


def parse_path(text: str) -> tuple[str, ...]:
    """Return the names of a path such as `.metadata.labels.region`, which needs no braces; empty for a dot.

    Raises `TemplateError` for anything that Go does not read as a path.
    """
    # The closing braces are on their own line, so that a minus at the end of the text is not a trim marker.
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
        problem = "expected a path such as .metadata.labels.region; write anything else in {{ }}"
        raise TemplateError(problem, line=line, column=column)
    return tuple(names)


class _Parser:
    def __init__(self, source: str) -> None:
        self.templates: dict[str, tree.Body] = {}
        self._stream = TokenStream(source, tokens(source))
        self._expressions = Expressions(self._stream)
        self._ranges = 0

    def parse(self, name: str) -> None:
        stream = self._stream
        statements: list[tree.Statement] = []
        while stream.peek().kind is not Kind.EOF:
            start = stream.index
            if stream.take().kind is Kind.LEFT and stream.take_non_space().kind is Kind.DEFINE:
                self._define()
                continue
            stream.index = start
            statement = self._statement()
            if isinstance(statement, _End):
                stream.fail(f"unexpected {statement}", statement.at)
            statements.append(statement)
        self._add(name, tuple(statements), 0)

    def _add(self, name: str, body: tree.Body, at: int) -> None:
        if _is_empty(self.templates.get(name, ())):
            self.templates[name] = body
        elif not _is_empty(body):
            self._stream.fail(f"template: multiple definition of template {quote(name)}", at)

    def _define(self) -> None:
        context = "define clause"
        token, name = self._template_name(context)
        self._stream.expect(Kind.RIGHT, context)
        self._add(name, self._definition(token.at, context), token.at)

    def _template_name(self, context: str) -> tuple[Token, str]:
        token = self._stream.take_non_space()
        if token.kind not in (Kind.STRING, Kind.RAW_STRING):
            self._stream.unexpected(token, context)
        return token, self._expressions.unquote(token)

    def _definition(self, at: int, context: str) -> tree.Body:
        """Parse the body of a template. It has its own variables and loops."""
        outer = self._expressions, self._ranges
        self._expressions, self._ranges = Expressions(self._stream), 0
        with self._stream.nested(at):
            body, end = self._body()
        if end.is_else:
            self._stream.fail(f"unexpected {end} in {context}", end.at)
        self._expressions, self._ranges = outer
        return body

    def _body(self) -> tuple[tree.Body, _End]:
        statements: list[tree.Statement] = []
        while True:
            token = self._stream.peek_non_space()
            if token.kind is Kind.EOF:
                self._stream.fail("unexpected EOF", token.at)
            statement = self._statement()
            if isinstance(statement, _End):
                return tuple(statements), statement
            statements.append(statement)

    def _statement(self) -> tree.Statement | _End:
        token = self._stream.take_non_space()
        if token.kind is Kind.TEXT:
            return tree.Text(token.at, token.text)
        if token.kind is not Kind.LEFT:
            self._stream.unexpected(token, "input")
        return self._action()

    def _action(self) -> tree.Statement | _End:
        stream = self._stream
        start = stream.index
        token = stream.take_non_space()
        match token.kind:
            case Kind.IF | Kind.WITH:
                return self._branch(token)
            case Kind.RANGE:
                return self._range(token)
            case Kind.TEMPLATE:
                return self._invoke()
            case Kind.BLOCK:
                return self._block()
            case Kind.ELSE:
                if stream.peek_non_space().kind not in (Kind.IF, Kind.WITH):
                    stream.expect(Kind.RIGHT, "else")
                return _End(token.at, is_else=True)
            case Kind.END:
                stream.expect(Kind.RIGHT, "end")
                return _End(token.at, is_else=False)
            case Kind.BREAK | Kind.CONTINUE:
                return self._leave(token)
        stream.index = start
        return tree.Action(token.at, self._expressions.pipe("command", Kind.RIGHT))

    def _leave(self, token: Token) -> tree.Statement:
        self._stream.expect(Kind.RIGHT, f"{{{{{token.text}}}}}")
        if not self._ranges:
            self._stream.fail(f"{{{{{token.text}}}}} outside {{{{range}}}}", token.at)
        return tree.Break(token.at) if token.kind is Kind.BREAK else tree.Continue(token.at)

    def _branch(self, token: Token) -> tree.Statement:
        variables = self._expressions.variables
        known = len(variables)
        arms: list[tuple[tree.Pipe, tree.Body]] = []
        otherwise: tree.Body = ()
        with self._stream.nested(token.at):
            while True:
                pipe = self._expressions.pipe(token.text, Kind.RIGHT)
                body, end = self._body()
                arms.append((pipe, body))
                if not end.is_else or self._stream.peek().kind is not token.kind:
                    break
                self._stream.take()
            if end.is_else:
                otherwise = self._otherwise()
        del variables[known:]
        return tree.Branch(token.at, token.kind is Kind.WITH, tuple(arms), otherwise)

    def _range(self, token: Token) -> tree.Statement:
        variables = self._expressions.variables
        known = len(variables)
        with self._stream.nested(token.at):
            pipe = self._expressions.pipe("range", Kind.RIGHT)
            self._ranges += 1
            body, end = self._body()
            self._ranges -= 1
            otherwise = self._otherwise() if end.is_else else ()
        del variables[known:]
        return tree.Range(token.at, pipe, body, otherwise)

    def _otherwise(self) -> tree.Body:
        body, end = self._body()
        if end.is_else:
            self._stream.fail(f"expected end; found {end}", end.at)
        return body

    def _invoke(self) -> tree.Statement:
        context = "template clause"
        token, name = self._template_name(context)
        if self._stream.peek_non_space().kind is Kind.RIGHT:
            self._stream.take()
            return tree.Invoke(token.at, name, None)
        return tree.Invoke(token.at, name, self._expressions.pipe(context, Kind.RIGHT))

    def _block(self) -> tree.Statement:
        context = "block clause"
        token, name = self._template_name(context)
        pipe = self._expressions.pipe(context, Kind.RIGHT)
        self._add(name, self._definition(token.at, context), token.at)
        return tree.Invoke(token.at, name, pipe)


def _is_empty(body: tree.Body) -> bool:
    """Whether the body is only white space."""
    return all(isinstance(statement, tree.Text) and not statement.text.strip(_WHITE_SPACE) for statement in body)

"""The parser of expressions: pipelines, commands and operands, the content of an action."""

from __future__ import annotations

from typing import Final

from sentinel.core.gotemplate import numbers, quoting, tree
from sentinel.core.gotemplate.functions import FUNCTIONS, LAZY_FUNCTIONS
from sentinel.core.gotemplate.quoting import quote
from sentinel.core.gotemplate.tokens import Kind, Token, TokenStream

_OPERANDS: Final = frozenset(
    {
        Kind.BOOL, Kind.RUNE, Kind.COMPLEX, Kind.DOT, Kind.FIELD, Kind.IDENTIFIER, Kind.NUMBER, Kind.NIL,
        Kind.RAW_STRING, Kind.STRING, Kind.VARIABLE, Kind.OPEN,
    }
)  # fmt: skip
_CONSTANTS: Final = (tree.Bool, tree.Dot, tree.Nil, tree.Number, tree.String)


class Expressions:
    """Parses expressions from a stream."""

    def __init__(self, stream: TokenStream) -> None:
        self.variables = ["$"]
        """The variables in scope. A block removes its own when it ends."""
        self._stream = stream

    def pipe(self, context: str, end: Kind) -> tree.Pipe:
        """Parse a pipeline and the token that ends it."""
        stream = self._stream
        at = stream.peek_non_space().at
        variables, is_assignment = self._declarations(context)
        commands: list[tree.Command] = []
        while (token := stream.peek_non_space()).kind is not end:
            if token.kind not in _OPERANDS:
                stream.unexpected(token, context)
            commands.append(self._command())
        stream.take()
        if not commands:
            stream.fail(f"missing value for {context}", token.at)
        for stage, command in enumerate(commands[1:], 2):
            if isinstance(command.words[0], _CONSTANTS):
                stream.fail(f"non executable command in pipeline stage {stage}", command.at)
        return tree.Pipe(at, tuple(variables), is_assignment, tuple(commands))

    def _declarations(self, context: str) -> tuple[list[str], bool]:
        """Parse `$x :=`, `$x =`, and in a range `$i, $x :=`. A variable without one of these is the first word."""
        stream = self._stream
        names: list[str] = []
        while (variable := stream.peek_non_space()).kind is Kind.VARIABLE:
            start = stream.index
            stream.take()
            following = stream.take_non_space()
            is_list = following.kind is Kind.CHARACTER and following.text == ","
            if not is_list and following.kind not in (Kind.ASSIGN, Kind.DECLARE):
                stream.index = start
                break
            names.append(variable.text)
            self.variables.append(variable.text)
            if not is_list:
                return names, following.kind is Kind.ASSIGN
            if context != "range" or len(names) > 1:
                stream.fail(f"too many declarations in {context}", following.at)
            second = stream.peek_non_space()
            if second.kind not in (Kind.VARIABLE, Kind.RIGHT, Kind.CLOSE):
                stream.fail("range can only initialize variables", second.at)
        return names, False

    def _command(self) -> tree.Command:
        stream = self._stream
        at = stream.peek_non_space().at
        words: list[tree.Word] = []
        while True:
            stream.peek_non_space()
            word = self._operand()
            if word is not None:
                words.append(word)
            token = stream.peek()
            if token.kind is Kind.SPACE:
                continue
            if token.kind is Kind.PIPE:
                stream.take()
            elif token.kind not in (Kind.RIGHT, Kind.CLOSE):
                stream.unexpected(token, "operand")
            return tree.Command(at, tuple(words))

    def _operand(self) -> tree.Word | None:
        stream = self._stream
        word = self._term()
        if word is None or stream.peek().kind is not Kind.FIELD:
            return word
        at = stream.peek().at
        fields: list[str] = []
        while stream.peek().kind is Kind.FIELD:
            fields.append(stream.take().text[1:])
        names = tuple(fields)
        if isinstance(word, _CONSTANTS):
            stream.fail(f"unexpected . after term {quote(tree.describe(word))}", at)
        match word:
            case tree.Field():
                return tree.Field(word.at, word.names + names)
            case tree.Variable():
                return tree.Variable(word.at, word.name, names)
            case _:
                return tree.Chain(at, word, names)

    def _term(self) -> tree.Term | None:
        stream = self._stream
        token = stream.take_non_space()
        match token.kind:
            case Kind.IDENTIFIER:
                return self._function(token)
            case Kind.DOT:
                return tree.Dot(token.at)
            case Kind.NIL:
                return tree.Nil(token.at)
            case Kind.VARIABLE:
                if token.text not in self.variables:
                    stream.fail(f"undefined variable {quote(token.text)}", token.at)
                return tree.Variable(token.at, token.text)
            case Kind.FIELD:
                return tree.Field(token.at, (token.text[1:],))
            case Kind.BOOL:
                return tree.Bool(token.at, token.text == "true")
            case Kind.RUNE | Kind.COMPLEX | Kind.NUMBER:
                return self._number(token)
            case Kind.OPEN:
                with stream.nested(token.at):
                    return self.pipe("parenthesized pipeline", Kind.CLOSE)
            case Kind.STRING | Kind.RAW_STRING:
                return tree.String(token.at, token.text, self.unquote(token))
        stream.index -= 1
        return None

    def _function(self, token: Token) -> tree.Function:
        if token.text == "call":
            self._stream.fail('function "call" is not available: no part of a document can be called', token.at)
        if token.text not in FUNCTIONS and token.text not in LAZY_FUNCTIONS:
            self._stream.fail(f"function {quote(token.text)} not defined", token.at)
        return tree.Function(token.at, token.text)

    def _number(self, token: Token) -> tree.Number:
        try:
            return tree.Number(token.at, token.text, numbers.number(token))
        except numbers.BadNumber as error:
            self._stream.fail(str(error), token.at)

    def unquote(self, token: Token) -> str:
        """Return the value of a string literal."""
        try:
            return quoting.unquote(token.text)
        except quoting.BadLiteral as error:
            self._stream.fail(str(error), token.at)

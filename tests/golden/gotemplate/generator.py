"""Generate templates and documents for them: mostly valid, sometimes broken.

All choices come from the given `Random`. Hypothesis can pass one that it shrinks, so a failing template becomes
short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

from sentinel.core.json import Json

T = TypeVar("T")

_STRINGS: Final = (
    "", "a", "b", "ab", "us-east", "Ready", "x y", "é", "日本", "<b>&\"'", "a=1", "\t\n", "\0\x1b\x7f", "%d%",
    "😀!", "\\", "\u2028\u200b", "`", "0", "nil", "{{.s}}", "a/b?c=d+e~f", "\ufeff", "\ufffd", "\xad",
)  # fmt: skip
_INTEGERS: Final = (
    0, 1, 2, 3, 5, 7, 10, 42, 97, 255, 256, 8364, 55296, 1114112, -1, -5, 2**31, 2**63 - 1, -(2**63),
)  # fmt: skip
_HUGE: Final = (2**63, 2**64, -(2**63) - 1, 10**30)
_FLOATS: Final = (
    0.0, -0.0, 1.0, 1.5, -2.25, 0.1, 1e-5, 1e-4, 123456.0, 1234567.0, 1e6, 1e20, 1e21, 1e100, 5e-324,
    1.7976931348623157e308, 0.3333333333333333, 2.5, 3.5, 0.5, 99999.95, 100.0, 1e-7, -1e-10, 4503599627370497.5,
    2.2250738585072014e-308,
)  # fmt: skip
_NUMBERS: Final = (
    "0", "1", "2", "3", "-1", "+7", "10", "0x1F", "0X1e", "-0x1E", "0b101", "0o17", "017", "1_000", "0x_ff", "1.5",
    ".5", "5.", "1e3", "1E-2", "0x1p4", "0x1.8p-1", "9223372036854775807", "1i", "2.5i", "0i", "1+2i", "-1.5-2e3i",
    "'a'", "'é'", "'\\n'", "'\\''", "'\\x41'", "'\\u00e9'", "'\\377'", "-0", "-0.0", "1_0.5", "0x1.p1",
)  # fmt: skip
_INVALID_NUMBERS: Final = (
    "1e400", "08", "9223372036854775808", "18446744073709551615", "18446744073709551616", "1+i", "1__0", "0x",
    "''", "'ab'", "1e", "+", "0b2", "1_", "'\\q'", "1+2", "0x1p", "-9223372036854775809", "'\\400'", "1_.5", "1i2",
)  # fmt: skip
_LITERALS: Final = (
    '""', '"a"', '"b"', '"ab"', '"é"', '"日本語"', '"a\\tb\\n"', '"\\x41\\xff"', '"\\u00e9\\U0001F600"', '"\\101"',
    "`raw`", "`a\\b`", '"<&>"', '"\\""', '"id"', '"s"', '"n"', '"m"', '"%d"', '"a b"', '"\\xe2\\x82"', '"\\xac"',
)  # fmt: skip
_INVALID_LITERALS: Final = ('"\\q"', '"', '"\\x4"', "`", '"\\ud800"', '"\\400"', "'a", '"\\\'"')
_VERBS: Final = "vvvvvdddssssqqxxXXtbcoOUeEfFgGpTw%zé!"
_TEXTS: Final = ("-", "", "x", " ", "\n", "a b", " \n\t ", "é", "-", "}}", "{a", "{ { ", "日", "&<>", '"')
_DAMAGE: Final = "{}()|.$:=,\"'`-/* \n0x1ei_aé\\%&#!@"
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_MAX_DEPTH: Final = 3


class TemplateGenerator:
    """Generates with the choices of this `Random`."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._variables: list[str] = []
        self._names: list[str] = []
        self._loops = 0
        self._writers: dict[str, Callable[[int], str]] = {
            "string": self._string_expression,
            "int": self._int_expression,
            "float": self._float_expression,
            "bool": self._bool_expression,
            "list": self._list_expression,
            "map": self._map_expression,
            "path": self._path_expression,
            "text": self._text_expression,
            "choice": self._choice_expression,
        }

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _literal(self) -> str:
        return self._pick(_INVALID_LITERALS) if self._chance(1) else self._pick(_LITERALS)

    def _number(self) -> str:
        return self._pick(_INVALID_NUMBERS) if self._chance(2) else self._pick(_NUMBERS)

    # Documents.

    def document(self) -> dict[str, Json]:
        """Generate an object. Most of its members have the type that their name suggests."""
        kinds: dict[str, Callable[[], Json]] = {
            "s": self._string,
            "t": self._string,
            "n": self._integer,
            "i": lambda: self._pick((0, 1, 2, 3)),
            "f": lambda: self._pick(_FLOATS),
            "b": lambda: self._chance(50),
            "z": lambda: None,
            "l": lambda: [self._json(1) for _ in range(self._random.randrange(4))],
            "ls": lambda: [self._string() for _ in range(self._random.randrange(4))],
            "li": lambda: [self._integer() for _ in range(self._random.randrange(4))],
            "lm": lambda: [self._object(1) for _ in range(self._random.randrange(3))],
            "m": lambda: self._object(0),
            "o": lambda: {"s": self._string(), "n": self._integer(), "m": self._object(1)},
        }
        return {
            name: self._json(0) if self._chance(4) else make()
            for name, make in kinds.items()
            if not self._chance(8)
        }

    def _string(self) -> str:
        return self._pick(_STRINGS)

    def _integer(self) -> int:
        return self._pick(_HUGE) if self._chance(4) else self._pick(_INTEGERS)

    def _object(self, depth: int) -> dict[str, Json]:
        return {
            self._pick(("s", "n", "a", "b", "é", "x y", "m")): self._json(depth)
            for _ in range(self._random.randrange(4))
        }

    def _json(self, depth: int) -> Json:
        choice = self._random.randrange(7 if depth < _MAX_DEPTH else 5)
        if choice == 0:
            return None
        if choice == 1:
            return self._chance(50)
        if choice == 2:
            return self._integer()
        if choice == 3:
            return self._pick(_FLOATS)
        if choice == 4:
            return self._string()
        if choice == 5:
            return [self._json(depth + 1) for _ in range(self._random.randrange(4))]
        return self._object(depth + 1)

    # Templates.

    def template(self) -> str:
        self._variables, self._names, self._loops = [], [], 0
        source = ""
        for _ in range(self._random.randrange(3) if self._chance(25) else 0):
            source += self._definition()
        source += self._body(0)
        if self._chance(12):
            source = self._damaged(source)
        return source

    def _damaged(self, source: str) -> str:
        for _ in range(1 + self._random.randrange(2)):
            at = self._random.randrange(len(source) + 1)
            end = at + self._random.randrange(2)
            source = source[:at] + (self._pick(_DAMAGE) if self._chance(70) else "") + source[end:]
        return source

    def _definition(self) -> str:
        name = self._pick(("one", "two", "é")) if self._chance(5) else f"t{len(self._names)}"
        self._names.append(name)
        return self._action(f'define "{name}"') + self._separately(lambda: self._body(1)) + self._action("end")

    def _separately(self, write: Callable[[], str]) -> str:
        outer = self._variables, self._loops
        self._variables, self._loops = [], 0
        text = write()
        self._variables, self._loops = outer
        return text

    def _action(self, inside: str) -> str:
        left = self._pick(("{{", "{{", "{{", "{{ ", "{{- "))
        right = self._pick(("}}", "}}", "}}", " }}", " -}}"))
        return left + inside + right

    def _body(self, depth: int) -> str:
        known = len(self._variables)
        body = "".join([self._statement(depth) for _ in range(1 + self._random.randrange(3 - depth // 2))])
        del self._variables[known:]
        return body

    def _statement(self, depth: int) -> str:
        choice = self._random.randrange(100)
        if choice < 18:
            return self._pick(_TEXTS)
        if choice < 58 or depth >= _MAX_DEPTH:
            return self._action(self._pipe(depth))
        if choice < 66:
            return self._assignment(depth)
        if choice < 75:
            return self._branch("if", depth)
        if choice < 81:
            return self._branch("with", depth)
        if choice < 90:
            return self._range(depth)
        if choice < 93 and self._loops:
            return self._action(self._pick(("break", "continue")))
        if choice < 97:
            return self._invocation(depth)
        return self._pick(("{{/* a comment */}}", "{{- /* a\ncomment */ -}}", "{{/**/ -}}"))

    def _assignment(self, depth: int) -> str:
        value = self._pipe(depth)
        if self._variables and self._chance(40):
            return self._action(f"{self._pick(self._variables)} = {value}")
        name = self._pick(("$x", "$y", "$é", "$x", "$")) if self._chance(95) else "$s"
        self._variables.append(name)
        return self._action(f"{name} := {value}")

    def _branch(self, word: str, depth: int) -> str:
        known = len(self._variables)
        text = self._action(f"{word} {self._declared(self._pipe(depth))}") + self._body(depth + 1)
        while self._chance(25):
            text += self._action(f"else {word} {self._declared(self._pipe(depth))}") + self._body(depth + 1)
        if self._chance(50):
            text += self._action("else") + self._body(depth + 1)
        del self._variables[known:]
        return text + self._action("end")

    def _declared(self, pipe: str) -> str:
        if not self._chance(20):
            return pipe
        self._variables.append("$w")
        return f"$w := {pipe}"

    def _range(self, depth: int) -> str:
        known = len(self._variables)
        over = self._expression(self._pick(("list", "list", "map", "int", "any")), depth)
        if self._chance(30) and (over.isalnum() or over[0] == "."):
            over = self._pick(("3", over, "2"))
        declaration = self._pick(("", "", "$e := ", "$i, $e := ", "$i, $e := "))
        if self._variables and self._chance(10):
            declaration = f"{self._pick(self._variables)} = "
        elif declaration:
            self._variables += ["$e"] if "," not in declaration else ["$i", "$e"]
        self._loops += 1
        text = self._action(f"range {declaration}{over}") + self._body(depth + 1)
        self._loops -= 1
        if self._chance(30):
            text += self._action("else") + self._body(depth + 1)
        del self._variables[known:]
        return text + self._action("end")

    def _invocation(self, depth: int) -> str:
        argument = self._pick(("", " .", f" {self._pipe(depth)}"))
        if self._chance(30):
            name = self._pick(("three", "four")) if self._chance(5) else f"t{len(self._names)}"
            self._names.append(name)
            body = self._separately(lambda: self._body(depth + 1))
            return self._action(f'block "{name}"{argument or " ."}') + body + self._action("end")
        if not self._names or self._chance(3):
            return self._action('template "unknown"' + argument) if self._chance(10) else self._action(".s")
        name = self._pick(self._names)
        return self._action(f'template "{name}"{argument}')

    # Expressions.

    def _pipe(self, depth: int) -> str:
        text = self._expression("any", depth)
        while self._chance(18):
            text += self._pick((" | ", "|", " | ")) + self._stage(depth)
        return text

    def _stage(self, depth: int) -> str:
        if self._chance(2):
            return self._pick((".s", "1", "$", ".q.s", "nil", "(print)", "."))
        writers: tuple[Callable[[], str], ...] = (
            lambda: self._pick(("print", "println", "html", "js", "urlquery", "len", "not", "printf")),
            lambda: self._pick(("and true", "or", "eq 1", 'eq "a"', "lt 2", "ge .n")),
            lambda: f"printf {self._format()}",
            lambda: f"index {self._argument('list', depth)}",
            lambda: f"print {self._argument('any', depth)}",
            lambda: f"slice {self._argument('string', depth)}",
        )
        return self._pick(writers)()

    def _expression(self, kind: str, depth: int) -> str:
        if self._chance(6):
            kind = self._pick(("string", "int", "float", "bool", "list", "map", "any"))
        if kind == "any":
            kind = self._pick(("string", "int", "float", "bool", "list", "map", "path", "path", "text", "choice"))
        return self._writers[kind](depth)

    def _argument(self, kind: str, depth: int) -> str:
        text = self._expression(kind, depth + 1)
        return f"({text})" if " " in text and not text.startswith("(") and text[0] not in "\"'`" else text

    def _path(self, *ends: str) -> str:
        start = (
            self._pick(("", "", "", "$"))
            if not self._variables or self._chance(88)
            else self._pick(self._variables)
        )
        return start + self._pick(("", "", "", "", "", "", ".o", ".m", ".o.m")) + "." + self._pick(ends)

    def _path_expression(self, depth: int) -> str:
        choice = self._random.randrange(10)
        if choice < 2:
            return "."
        if choice < 4 and self._variables:
            return self._pick(self._variables)
        if choice == 4 and depth:
            return "nil" if self._chance(40) else "."
        if choice == 5 and depth < _MAX_DEPTH:
            return f"({self._pipe(depth + 1)}).{self._pick(('s', 'n', 'm', 'q'))}"
        return self._path("s", "n", "m", "z", "q", "l", "a", "b", "f", "o", "li", "o.n", "q.q", "z.q", "s.q", "é")

    def _string_expression(self, depth: int) -> str:
        choice = self._random.randrange(6)
        if choice < 2:
            return self._path("s", "t")
        if choice < 4 or depth >= _MAX_DEPTH:
            return self._literal()
        if choice == 4:
            arguments = "".join([f" {self._argument('int', depth)}" for _ in range(self._random.randrange(4))])
            return f"slice {self._argument('string', depth)}{arguments}"
        return self._text_expression(depth)

    def _text_expression(self, depth: int) -> str:
        if depth >= _MAX_DEPTH:
            return self._literal()
        arguments = "".join([f" {self._argument('any', depth)}" for _ in range(self._random.randrange(4))])
        if self._chance(60):
            return f"printf {self._format()}{arguments}"
        return self._pick(("print", "println", "html", "js", "urlquery")) + arguments

    def _format(self) -> str:
        directives = "".join([self._directive() for _ in range(1 + self._random.randrange(3))])
        return '"' + directives + '"'

    def _directive(self) -> str:
        text = self._pick(("", "", "a", " ", "é")) + "%"
        for flag in "#0+- ":
            if self._chance(15):
                text += flag
        if self._chance(8):
            text += self._pick(("[1]", "[2]", "[3]", "[0]", "[9]", "[x]", "[", "[]", "[1"))
        if self._chance(25):
            text += self._pick(("1", "2", "5", "10", "*", "*", "12", "1000001", "20"))
        if self._chance(25):
            text += "." + self._pick(("", "0", "1", "2", "3", "6", "12", "*", "[1]*", "30"))
        if self._chance(5):
            text += self._pick(("[1]", "[2]", "[9]"))
        return text + (self._pick(_VERBS) if self._chance(98) else "")

    def _int_expression(self, depth: int) -> str:
        choice = self._random.randrange(6)
        if choice < 2:
            return self._path("n", "i")
        if choice < 4 or depth >= _MAX_DEPTH:
            return self._number() if self._chance(50) else str(self._random.randrange(5))
        if choice == 4:
            return f"len {self._argument(self._pick(('string', 'list', 'map')), depth)}"
        return f"index {self._argument('string', depth)} {self._argument('int', depth)}"

    def _float_expression(self, depth: int) -> str:
        return self._path("f") if self._chance(60) else self._number()

    def _bool_expression(self, depth: int) -> str:
        choice = self._random.randrange(6)
        if choice == 0:
            return self._path("b")
        if choice == 1 or depth >= _MAX_DEPTH:
            return self._pick(("true", "false"))
        if choice == 2:
            return f"not {self._argument('any', depth)}"
        kind = self._pick(("int", "string", "float", "bool", "any"))
        count = 2 if self._chance(80) else self._random.randrange(4)
        arguments = "".join([f" {self._argument(kind, depth)}" for _ in range(count)])
        return self._pick(_COMPARISONS) + arguments

    def _choice_expression(self, depth: int) -> str:
        if depth >= _MAX_DEPTH:
            return self._pick(("true", ".s"))
        count = self._random.randrange(4) if self._chance(10) else 1 + self._random.randrange(3)
        arguments = "".join([f" {self._argument('any', depth)}" for _ in range(count)])
        if self._chance(10):
            arguments += " ($d := 1)"
            self._variables.append("$d")
        return self._pick(("and", "or")) + arguments

    def _list_expression(self, depth: int) -> str:
        choice = self._random.randrange(5)
        if choice < 3 or depth >= _MAX_DEPTH:
            return self._path("l", "ls", "li", "lm")
        if choice == 3:
            arguments = "".join([f" {self._argument('int', depth)}" for _ in range(self._random.randrange(4))])
            return f"slice {self._argument('list', depth)}{arguments}"
        return f"index {self._argument('list', depth)} {self._argument('int', depth)}"

    def _map_expression(self, depth: int) -> str:
        if self._chance(60) or depth >= _MAX_DEPTH:
            return self._path("m", "o")
        keys = "".join([f" {self._argument('string', depth)}" for _ in range(1 + self._random.randrange(2))])
        return f"index {self._argument('map', depth)}{keys}"

"""Problems of all levels have one shape."""

from __future__ import annotations

import msgspec

from sentinel.core.kdl import parse
from sentinel.core.proxy.problem import syntax_problems


def test_syntax_problems_are_errors_of_level_1() -> None:
    found = syntax_problems(parse(b"system {\n  auto-reload true\n}\n").problems)

    assert msgspec.to_builtins(found) == [
        {
            "level": 1,
            "severity": "error",
            "code": "bare-keyword",
            "line": 2,
            "column": 15,
            "message": found[0].message,
            "suggestion": found[0].suggestion,
        }
    ]
    assert found[0].suggestion is not None

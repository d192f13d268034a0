"""The CEL library: loaded with the first expression, and named where it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.api import kinds
from sentinel.cli.wiring.expressions import compile_expression

PLAIN = "kinds:\n  - {plural: clusters, kind: Cluster, required_adapters: [dns]}\n"
EXPRESSED = "kinds:\n  - {plural: clusters, kind: Cluster, required_adapters: [dns], ready: available}\n"


def test_a_kinds_file_without_expressions_loads_no_cel(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, sentinel.cli.wiring.api\n"
        "from sentinel.api import kinds\n"
        "from sentinel.cli.wiring.expressions import compile_expression\n"
        "for file in sys.argv[1:]:\n"
        "    served, problems = kinds.load(pathlib.Path(file), compile_expression=compile_expression)\n"
        "    print(bool(served), sorted({'cel_expr_python', 'google'} & sys.modules.keys()))\n"
    )
    files = []
    for name, text in (("plain.yaml", PLAIN), ("expressed.yaml", EXPRESSED)):
        files.append(tmp_path / name)
        files[-1].write_text(text)

    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, files)], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.splitlines() == ["True []", "True ['cel_expr_python', 'google']"]


def test_a_missing_library_is_a_problem_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text(EXPRESSED)
    monkeypatch.setitem(sys.modules, "sentinel.drivers.cel", None)

    served, [problem] = kinds.load(file, compile_expression=compile_expression)

    assert served is None
    assert str(problem).startswith(f"{file}:2:")
    assert "kinds[0].ready: an expression for `ready` needs " in str(problem)
    assert "install fleet-sentinel[api]" in str(problem)

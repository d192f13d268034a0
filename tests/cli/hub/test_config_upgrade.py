"""`sentinel hub config check --upgrade`: version 1 in, version 2 out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sentinel.cli.main import cli


def run(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(cli, ["hub", "config", "check", "--upgrade", *map(str, arguments)], input=stdin)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_document_of_version_1_is_printed_in_version_2(tmp_path: Path, newline: str) -> None:
    file = tmp_path / "old.kdl"
    file.write_bytes(newline.join(("// kept", 'a true r"x"', "404 [1, 2]", "")).encode())

    result = run(file)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == newline.join(("// kept", 'a #true #"x"#', '"404" 1 2', "")).encode()


def test_what_cannot_be_upgraded_is_on_stderr_with_its_new_place() -> None:
    result = run("-", stdin="a true )\n")

    assert result.exit_code == 2
    assert result.stdout == "a #true )\n"
    assert "- (upgraded):1:9: error: expected an argument or a property, got )" in result.stderr
    assert result.stderr.endswith("- (upgraded): 1 error\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a \xff", "expected UTF-8"), (b" " * (2 * 1024 * 1024 + 1), "expected at most 2097152 bytes")],
)
def test_what_cannot_be_read_is_not_printed(content: bytes, message: str) -> None:
    result = run("-", stdin=content)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path / "missing.kdl")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "expected a file, got a name that does not exist" in result.stderr


@pytest.mark.parametrize("arguments", [("a", "b"), ("a", "--output", "json")])
def test_one_file_is_printed_as_it_is(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "--upgrade expects one file, and prints it without --output" in result.stderr

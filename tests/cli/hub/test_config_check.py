"""`sentinel hub config check`: its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from sentinel.cli.main import cli
from sentinel.core import kdl

VALID = """\
system { worker-threads 4 }
listeners { listener "web" { address "0.0.0.0:8080" } }
routes { route "all" { matches { path-prefix "/" }; upstream "backend" } }
upstreams { upstream "backend" { target "10.0.0.1:80" } }
"""
INVALID = VALID.replace("worker-threads 4", "daemon true")
WARNED = VALID.replace('target "', 'load-balancing "ip-hash"; target "')
CONFLICTING = VALID.replace(
    'upstream "backend" }',
    'upstream "backend" }; route "same" { matches { path-prefix "/" }; upstream "backend" }',
    1,
)


def run(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(cli, ["hub", "config", "check", *map(str, arguments)], input=stdin)


class Write:
    """Writes files into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, content: str | bytes) -> Path:
        file = self._folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return Write(tmp_path)


def test_a_valid_file_exits_0_and_says_ok(write: Write) -> None:
    file = write("valid.kdl", VALID)

    result = run(file)

    assert (result.exit_code, result.stdout) == (0, f"{file}: ok\n")


def test_a_valid_file_as_json_has_no_problems(write: Write) -> None:
    result = run(write("valid.kdl", VALID), "--output", "json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"valid": True, "problems": []}


def test_a_problem_is_shown_with_its_place_and_what_to_write(write: Write) -> None:
    file = write("invalid.kdl", INVALID)

    result = run(file)

    assert result.exit_code == 2
    assert result.stdout == (
        f"{file}:1:17: error: expected a value, got the bare word true [bare-keyword]\n"
        " 1 | system { daemon true }\n"
        "   |                 ^^^^\n"
        '   = write #true, or "true" if it is a text\n'
        "\n"
        f"{file}: 1 error\n"
    )


def test_a_problem_as_json_has_exactly_the_promised_keys(write: Write) -> None:
    result = run(write("invalid.kdl", INVALID), "--output", "json")

    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "valid": False,
        "problems": [
            {
                "level": 1,
                "severity": "error",
                "code": "bare-keyword",
                "line": 1,
                "column": 17,
                "message": "expected a value, got the bare word true",
                "suggestion": 'write #true, or "true" if it is a text',
            }
        ],
    }


def test_yaml_has_the_same_content_as_json(write: Write) -> None:
    file = write("invalid.kdl", INVALID)

    as_yaml, as_json = (run(file, "--output", output).stdout for output in ("yaml", "json"))

    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_warnings_alone_exit_0(write: Write) -> None:
    file = write("warned.kdl", WARNED)

    result = run(file)
    as_json = json.loads(run(file, "--output", "json").stdout)

    assert result.exit_code == 0
    assert result.stdout.endswith(f"{file}: 1 warning\n")
    assert as_json["valid"] is True
    assert [problem["severity"] for problem in as_json["problems"]] == ["warning"]


def test_several_files_are_one_array_in_the_order_given(write: Write) -> None:
    files = [write("b.kdl", INVALID), write("a.kdl", VALID)]

    result = run(*files, "--output", "json")

    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert [(each["file"], each["valid"], len(each["problems"])) for each in found] == [
        (str(files[0]), False, 1),
        (str(files[1]), True, 0),
    ]


def test_a_dash_is_standard_input(write: Write) -> None:
    file = write("valid.kdl", VALID)

    alone = run("-", stdin=INVALID)
    both = run(file, "-", "--output", "json", stdin=INVALID)

    assert alone.stdout.startswith("-:1:17: error: ")
    assert [(each["file"], each["valid"]) for each in json.loads(both.stdout)] == [(str(file), True), ("-", False)]


def test_standard_input_can_be_read_once() -> None:
    result = run("-", "-")

    assert result.exit_code == 2
    assert "expected - for standard input once, got it twice" in result.stderr


@pytest.mark.parametrize(("level", "expected"), [(1, {1}), (2, {1, 2}), (3, {1, 2, 3})])
def test_a_level_includes_those_below_it(write: Write, level: int, expected: set[int]) -> None:
    file = write("all.kdl", CONFLICTING + 'limits { max-body-size "x" }\ncache true\n')

    result = run(file, "--level", str(level), "--output", "json")

    assert {problem["level"] for problem in json.loads(result.stdout)["problems"]} == expected


def test_all_levels_are_checked_by_default(write: Write) -> None:
    result = run(write("conflicting.kdl", CONFLICTING), "--output", "json")

    assert result.exit_code == 2
    assert [problem["level"] for problem in json.loads(result.stdout)["problems"]] == [3]


def test_problems_of_all_levels_are_sorted_by_place(write: Write) -> None:
    file = write("all.kdl", 'limits { max-body-size "x" }\n' + CONFLICTING + "cache true\n")

    problems = json.loads(run(file, "--output", "json").stdout)["problems"]

    places = [(problem["line"], problem["column"]) for problem in problems]
    assert places == sorted(places)
    assert [problem["level"] for problem in problems] == [2, 3, 1, *[2] * (len(problems) - 3)]


@pytest.mark.parametrize("resolve", ["off", "warn", "error"])
def test_a_forbidden_address_is_an_error_whatever_the_option_says(write: Write, resolve: str) -> None:
    file = write("metadata.kdl", VALID.replace("10.0.0.1", "169.254.169.254"))

    result = run(file, "--resolve", resolve, "--output", "json")

    problems = json.loads(result.stdout)["problems"]
    assert [(problem["code"], problem["severity"]) for problem in problems] == [("forbidden-address", "error")]
    assert result.exit_code == 2


def test_names_are_looked_up(write: Write) -> None:
    file = write("local.kdl", VALID.replace("10.0.0.1", "localhost"))

    assert run(file, "--resolve", "error").stdout == f"{file}: ok\n"


def test_secrets_are_not_judged_without_a_hub(write: Write) -> None:
    tls = 'address "0.0.0.0:8080"; protocol "https"; tls { cert secret="c"; key secret="k" }'

    result = run(write("secrets.kdl", VALID.replace('address "0.0.0.0:8080"', tls)))

    assert result.exit_code == 0, result.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.kdl", "expected a file, got a name that does not exist"),
        (".", "expected a file, got a directory"),
        ("a\0b", "expected the name of a file, got one with a NUL character"),
        ("large.kdl", "expected at most 2097152 bytes, got more"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_without_a_place(write: Write, name: str, message: str) -> None:
    folder = write("large.kdl", b"\n" * (kdl.MAX_BYTES + 1)).parent
    file = os.path.join(folder, name)  # noqa: PTH118  # a Path refuses NUL

    text, as_json = run(file), run(file, "--output", "json")

    assert (text.exit_code, as_json.exit_code) == (2, 2)
    assert f": error: {message} [" in text.stdout
    (problem,) = json.loads(as_json.stdout)["problems"]
    assert (problem["line"], problem["column"], problem["message"]) == (None, None, message)


def test_an_endless_file_is_not_read_to_its_end() -> None:
    assert "got more [too-large]" in run("/dev/zero").stdout


def test_colour_is_for_terminals_only(write: Write) -> None:
    assert "\x1b" not in run(write("invalid.kdl", INVALID)).stdout


def test_the_command_of_a_shell_exits_2(write: Write) -> None:
    command = [sys.executable, "-m", "sentinel.cli", "hub", "config", "check", str(write("invalid.kdl", INVALID))]

    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (result.returncode, result.stderr) == (2, "")
    assert result.stdout.endswith(": 1 error\n")


def test_a_plain_installation_can_check_files(write: Write) -> None:
    file = write("local.kdl", VALID.replace("10.0.0.1", "localhost"))
    program = (
        "import sys; from sentinel.cli.main import cli;"
        f"cli.main(['hub', 'config', 'check', {str(file)!r}], standalone_mode=False);"
        "print(sorted({'aiohttp', 'cryptography', 'grpc', 'rich', 'sqlalchemy'} & sys.modules.keys()))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert result.stdout == f"{file}: ok\n[]\n"

"""`sentinel check`: its output and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from sentinel.cli.check import check

EXAMPLES = Path(__file__).parents[2] / "examples"
SENTINELS = sorted(EXAMPLES.glob("sentinel-*.yaml"))
BROKERS = sorted(EXAMPLES.glob("broker-*.yaml"))

VALID = "resource_type: clusters\nhyperfleet_api:\n  endpoint: http://api\n"
INVALID = "resource_type: clusters\npol_interval: 5s\nhyperfleet_api: {}\n"


def run(*arguments: str | Path, environ: Mapping[str, str] | None = None) -> Result:
    # Unset variables of the environment that would count as settings.
    unset = {"BROKER_TYPE": None, "BROKER_URL": None, "BROKER_HOST": None}
    return CliRunner().invoke(check, [str(argument) for argument in arguments], env={**unset, **(environ or {})})


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    file = tmp_path / "valid.yaml"
    file.write_text(VALID)
    return file


@pytest.fixture
def invalid(tmp_path: Path) -> Path:
    file = tmp_path / "invalid.yaml"
    file.write_text(INVALID)
    return file


def test_a_valid_file_exits_0_and_prints_ok_to_stderr(valid: Path) -> None:
    result = run("--config", valid)

    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr == f"{valid}: ok\n"


def test_a_valid_file_as_json_has_no_problems(valid: Path) -> None:
    result = run("--config", valid, "--output", "json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"valid": True, "problems": []}


def test_problems_are_a_line_each_and_exit_2(invalid: Path) -> None:
    result = run("--config", invalid)

    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        f"{invalid}:2:1: pol_interval: unknown key; did you mean poll_interval?",
        f"{invalid}:3:1: hyperfleet_api.endpoint: required, but missing; expected a URL such as"
        " http://hyperfleet-api:8000",
    ]
    assert result.stderr == ""


def test_problems_as_json_have_their_positions(invalid: Path) -> None:
    result = run("--config", invalid, "--set", "log.level=loud", "--output", "json")

    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert list(found) == ["valid", "problems"]
    assert found["valid"] is False
    assert found["problems"][0] == {
        "file": str(invalid),
        "line": 2,
        "column": 1,
        "field": "pol_interval",
        "message": "unknown key; did you mean poll_interval?",
    }
    assert found["problems"][-1] == {
        "file": None,
        "line": None,
        "column": None,
        "field": "log.level",
        "message": 'expected one of debug, info, warning, error, got "loud" (flag --set)',
    }


def test_problems_as_yaml_equal_the_json(invalid: Path) -> None:
    as_yaml = run("--config", invalid, "--output", "yaml")
    as_json = run("--config", invalid, "--output", "json")

    assert as_yaml.exit_code == 2
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)


def test_both_files_are_checked_in_one_run(invalid: Path, tmp_path: Path) -> None:
    broker = tmp_path / "broker.yaml"
    broker.write_text("BROKER_TYPE: kafka\n")

    result = run("--config", invalid, "--broker-config", broker)

    assert result.exit_code == 2
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [str(invalid), str(invalid), str(broker)]


def test_a_broker_file_is_checked_alone(tmp_path: Path) -> None:
    broker = tmp_path / "broker.yaml"
    broker.write_text("BROKER_TYPE: stdout\n")

    result = run("--broker-config", broker, "--output", "json")

    assert result.exit_code == 0


def test_broker_variables_are_checked(valid: Path) -> None:
    result = run("--config", valid, environ={"BROKER_TYPE": "kafka"})

    assert result.exit_code == 2
    assert result.stdout.startswith("BROKER_TYPE: expected one of rabbitmq, pubsub, stdout")


def test_a_misspelled_variable_is_a_warning(valid: Path) -> None:
    result = run("--config", valid, "--output", "json", environ={"SENTINEL_POL_INTERVAL": "5s"})

    assert result.exit_code == 0
    assert json.loads(result.stdout)["valid"] is True
    assert result.stderr.startswith("warning: SENTINEL_POL_INTERVAL is not a setting")


@pytest.mark.parametrize(
    "arguments", [[], ["--show"], ["--broker-config", "x", "--set", "a=b"], ["--output", "xml"]]
)
def test_bad_usage_exits_2_and_prints_no_data(arguments: list[str]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage" in result.stderr


@pytest.mark.parametrize("name", ["none.yaml", "."])
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, name: str) -> None:
    result = run("--config", tmp_path / name)

    assert result.exit_code == 2
    assert result.stdout.startswith(f"{tmp_path / name}:1:1: : cannot be read: ")


def test_show_prints_the_effective_settings_and_their_origins(valid: Path) -> None:
    result = run(
        *("--config", valid, "--show", "--output", "json", "--log-level", "debug", "--set", "max_age_ready=1h"),
        environ={"SENTINEL_POLL_INTERVAL": "2s", "BROKER_TYPE": "stdout"},
    )

    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert list(shown) == ["settings"]
    settings = {entry["key"]: (entry["value"], entry["origin"]) for entry in shown["settings"]}
    assert settings["resource_type"] == ("clusters", f"file {valid}:1")
    assert settings["poll_interval"] == ("2s", "environment SENTINEL_POLL_INTERVAL")
    assert settings["max_age_ready"] == ("1h", "flag --set")
    assert settings["max_age_not_ready"] == ("10s", "default")
    assert settings["log.level"] == ("debug", "flag --log-level")
    assert settings["BROKER_TYPE"] == ("stdout", "environment BROKER_TYPE")


def test_show_as_a_table_is_aligned(valid: Path) -> None:
    result = run("--config", valid, "--show", "--log-format", "json")

    assert result.exit_code == 0
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["KEY", "VALUE", "ORIGIN"]
    assert {row[header.index("VALUE") - 1] for row in rows} == {" "}
    assert rows[-1].split() == ["log.format", "json", "flag", "--log-format"]


def test_show_prints_the_problems_of_an_invalid_file(invalid: Path) -> None:
    result = run("--config", invalid, "--show", "--output", "json")

    assert result.exit_code == 2
    assert json.loads(result.stdout)["valid"] is False


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize("flags", [["--show"], []])
@pytest.mark.parametrize("breaks", [{}, {"SENTINEL_LOG__LEVEL": "loud", "BROKER_PORT": "x"}])
def test_no_secret_is_printed(valid: Path, output: str, flags: list[str], breaks: dict[str, str]) -> None:
    planted = "pl4nted-s3cret"
    environ = {
        "HYPERFLEET_API_TOKEN": planted,
        "BROKER_TYPE": "rabbitmq",
        "BROKER_URL": f"amqp://{planted}:{planted}@host/vhost",
        "BROKER_PASSWORD": planted,
    }

    result = run("--config", valid, "--output", output, *flags, environ=environ | breaks)

    assert result.exit_code == (2 if breaks else 0)
    assert planted not in result.output


@pytest.mark.parametrize("file", SENTINELS, ids=lambda file: file.name)
def test_each_example_of_a_sentinel_is_valid(file: Path) -> None:
    result = run("--config", file, "--output", "json")

    assert json.loads(result.stdout) == {"valid": True, "problems": []}
    assert result.exit_code == 0


@pytest.mark.parametrize("file", BROKERS, ids=lambda file: file.name)
def test_each_example_of_a_broker_is_valid(file: Path) -> None:
    result = run("--broker-config", file, "--output", "json")

    assert json.loads(result.stdout) == {"valid": True, "problems": []}
    assert result.exit_code == 0


def test_all_examples_exist_and_are_named_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text()

    assert [file.name for file in SENTINELS + BROKERS] == [
        "sentinel-config.yaml",
        "sentinel-nodepools-config.yaml",
        "sentinel-us-east-config.yaml",
        "sentinel-us-west-config.yaml",
        "broker-pubsub-configmap.yaml",
        "broker-rabbitmq-configmap.yaml",
    ]
    assert all(f"({file.name})" in readme for file in SENTINELS + BROKERS)


def test_check_imports_no_heavy_library() -> None:
    program = (
        "import sys\nfrom sentinel.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(sorted({'rich', 'aiohttp', 'aio_pika'} & sys.modules.keys()), file=sys.stderr)\n"
    )
    arguments = ["check", "--config", str(SENTINELS[0]), "--broker-config", str(BROKERS[1])]

    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={},
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [f"{SENTINELS[0]}: ok", f"{BROKERS[1]}: ok", "[]"]

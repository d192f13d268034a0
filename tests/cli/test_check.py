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
SENTINEL_CONFIGS = sorted(EXAMPLES.glob("sentinelconfig-*.yaml"))

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


@pytest.mark.parametrize("file", SENTINELS + SENTINEL_CONFIGS, ids=lambda file: file.name)
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

    assert [file.name for file in SENTINELS + BROKERS + SENTINEL_CONFIGS] == [
        "sentinel-config.yaml",
        "sentinel-nodepools-config.yaml",
        "sentinel-us-east-config.yaml",
        "sentinel-us-west-config.yaml",
        "broker-pubsub-configmap.yaml",
        "broker-rabbitmq-configmap.yaml",
        "sentinelconfig-rabbitmq.yaml",
        "sentinelconfig-sharding.yaml",
        "sentinelconfig-us-east.yaml",
    ]
    assert all(f"({file.name})" in readme for file in SENTINELS + BROKERS + SENTINEL_CONFIGS)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "manifest.yaml"
    file.write_text(f"{manifest_of('us-east')}---\nkind: ConfigMap\napiVersion: v1\n---\n{manifest_of('us-west')}")
    return file


def manifest_of(name: str, **spec: object) -> str:
    broker = {"type": "rabbitmq", "topic": "events", "url": "amqp://u:pl4nted-s3cret@h"}
    document = {
        "apiVersion": "hyperfleet.redhat.com/v1alpha1",
        "kind": "SentinelConfig",
        "metadata": {"name": name},
        "spec": {
            "resourceType": "clusters",
            "shardSelector": {"matchLabels": {"region": name}},
            "hyperfleetAPI": {"url": "http://api"},
            "broker": broker,
            **spec,
        },
    }
    return json.dumps(document) + "\n"


class TestSentinelConfigs:
    def test_every_config_of_a_file_is_checked(self, tmp_path: Path) -> None:
        file = tmp_path / "manifest.yaml"
        bad = manifest_of("us-west", pollInterval="5", hyperfleetApi={})
        file.write_text(f"{manifest_of('us-east', resourceType='x')}---\n{bad}---\nkind: Other\n")

        result = run("--config", file)

        assert result.exit_code == 2
        problems = json.loads(run("--config", file, "--output", "json").stdout)["problems"]
        assert len(result.stdout.splitlines()) == 3
        assert [(each["file"], each["line"], each["field"]) for each in problems] == [
            (str(file), 1, "spec.resourceType"),
            (str(file), 3, "spec.pollInterval"),
            (str(file), 3, "spec.hyperfleetApi"),
        ]

    def test_a_valid_file_exits_0_and_ignores_the_environment(self, manifest: Path) -> None:
        environ = {"SENTINEL_POLL_INTERVAL": "never", "BROKER_TYPE": "kafka"}

        result = run("--config", manifest, "--output", "json", environ=environ)

        assert result.exit_code == 0
        assert json.loads(result.stdout) == {"valid": True, "problems": []}

    def test_show_prints_the_settings_of_a_single_config(self, tmp_path: Path) -> None:
        file = tmp_path / "one.yaml"
        file.write_text(manifest_of("us-east", backoffReady="1h"))

        result = run("--config", file, "--show", "--output", "json")

        settings = {
            entry["key"]: (entry["value"], entry["origin"]) for entry in json.loads(result.stdout)["settings"]
        }
        assert result.exit_code == 0
        assert settings["metadata.name"] == ("us-east", f"file {file}:1")
        assert settings["spec.backoffReady"] == ("1h", f"file {file}:1")
        assert settings["spec.pollInterval"] == ("5s", "default")
        assert settings["spec.broker.url"][0] == "amqp://***@h"
        assert "pl4nted" not in result.output

    def test_show_names_the_config_if_there_are_several(self, manifest: Path, valid: Path) -> None:
        result = run("--config", manifest, "--config", valid, "--show", "--output", "json")

        keys = [entry["key"] for entry in json.loads(result.stdout)["settings"]]
        assert result.exit_code == 0
        assert len(keys) == len(set(keys))
        assert {"us-east#spec.pollInterval", "us-west#spec.pollInterval", f"{valid}#poll_interval"} <= set(keys)

    def test_the_same_shard_twice_is_a_warning(self, manifest: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.yaml"
        other.write_text(manifest_of("again", shardSelector={"matchLabels": {"region": "us-west"}}))

        alone, together = run("--config", manifest), run("--config", manifest, "--config", other)

        assert alone.stderr == f"{manifest}: ok\n"
        assert together.exit_code == 0
        assert together.stderr.splitlines()[0] == (
            "warning: again: Duplicate: us-west watches the same clusters (region=us-west); only the older of the"
            " two runs"
        )

    def test_the_same_object_twice_is_a_warning(self, manifest: Path) -> None:
        result = run("--config", manifest, "--config", manifest)

        assert result.exit_code == 0
        assert "warning: us-west: written twice; the one that is applied last remains" in result.stderr

    def test_unused_fields_are_warnings(self, tmp_path: Path) -> None:
        file = tmp_path / "f.yaml"
        broker = {"type": "gcp-pubsub", "topic": "t", "projectID": "p", "exchange": "e"}
        file.write_text(manifest_of("us-east", broker=broker))

        result = run("--config", file)

        assert result.exit_code == 0
        assert result.stderr.startswith("warning: spec.broker.exchange is not used with type gcp-pubsub\n")

    def test_set_needs_a_settings_file(self, manifest: Path, valid: Path) -> None:
        refused = run("--config", manifest, "--set", "poll_interval=1s")
        accepted = run("--config", manifest, "--config", valid, "--set", "poll_interval=1s")

        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "--set expects --config with the settings file of a Sentinel" in refused.stderr
        assert accepted.exit_code == 0

    @pytest.mark.parametrize(
        "text", ["kind: ConfigMap\napiVersion: v1\n", "resource_type: clusters\n---\nresource_type: nodepools\n"]
    )
    def test_a_file_without_any_config_must_be_a_settings_file(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(text)

        result = run("--config", file)

        assert result.exit_code == 2
        assert "unknown key" in result.stdout or "expected one YAML document, got a second" in result.stdout

    def test_a_broker_file_is_checked_beside_a_manifest(self, manifest: Path, tmp_path: Path) -> None:
        broker = tmp_path / "broker.yaml"
        broker.write_text("BROKER_TYPE: kafka\n")

        result = run("--config", manifest, "--broker-config", broker)

        assert result.exit_code == 2
        assert result.stdout.startswith(f"{broker}:1:14: BROKER_TYPE")


def test_a_bad_variable_is_one_problem_for_several_files(valid: Path) -> None:
    result = run("--config", valid, "--config", valid, environ={"SENTINEL_POLL_INTERVAL": "never"})

    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 1


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

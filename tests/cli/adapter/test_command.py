"""The `sentinel adapter` commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sentinel.cli.adapter.command import AdapterReady, adapter, prepare

CONFIG = "task: {task}\nhyperfleet_api:\n  endpoint: http://127.0.0.1:1\n"
BROKER = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://guest:guest@127.0.0.1:1/"}
NO_BROKER = {"BROKER_TYPE": None, "BROKER_URL": None, "BROKER_HOST": None, "BROKER_SUBSCRIPTION_ID": None}
MODULE = """\
from sentinel.adapter import Adapter, Done

dns = Adapter("dns")
idle = Adapter("idle")
other = 5


@dns.task(kinds=["Cluster"])
async def ensure(cluster, context):
    return Done()
"""


def run(*arguments: str | Path, environ: Mapping[str, str] | None = None) -> Result:
    # Without the broker variables of the environment, which would count as settings.
    return CliRunner().invoke(
        adapter,
        [str(argument) for argument in arguments],
        env={**NO_BROKER, **(environ or {})},
        standalone_mode=False,
    )


@pytest.fixture(autouse=True)
def _restore_sys_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading an adapter adds its folder to `sys.path`."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with an adapter, whose module has a unique name: Python imports each name once."""
    name = "module_" + re.sub(r"\W", "_", request.node.name)
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "adapter.yaml").write_text(CONFIG.format(task=f"{name}:dns"))
    return tmp_path


def with_adapter(project: Path, attribute: str) -> Path:
    """Name another object of the module in the settings file."""
    file = project / "adapter.yaml"
    file.write_text(file.read_text().replace(":dns", f":{attribute}"))
    return file


def prepared(project: Path, *, sets: Sequence[str] = (), **environ: str) -> AdapterReady:
    """Load the project's adapter, which has no problems."""
    ready = prepare(project / "adapter.yaml", None, sets=sets, environ={**BROKER, **environ})
    assert isinstance(ready, AdapterReady)
    return ready


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [("page_size", "expected one of"), ("selector_param", "expected one of"), ("timout", "timeout")],
)
def test_keys_without_an_effect_on_an_adapter_are_refused(project: Path, key: str, suggestion: str) -> None:
    file = project / "adapter.yaml"
    file.write_text(f"{file.read_text()}  {key}: 5\n")

    problems = prepare(file, None, environ=BROKER)

    assert isinstance(problems, list)
    assert re.search(rf"adapter.yaml:4:3: hyperfleet_api.{key}: unknown key; .*{suggestion}", problems[0])


SECRET_VARIABLES = {
    "DNS_API_KEY": "hunter22",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "STRIPE_SECRET_KEY": "sk_live_4eC39",
    "DB_PASSWORD_2": "correct-horse",
    "DB_PWD": "battery-staple",
    "SSH_PASSPHRASE": "open-sesame",
    "HOOK_SIGNATURE": "5ea1ed-0f-1a7e",
}
PLAIN_VARIABLES = {
    "DNS_ZONE": "example.com",
    "TOKEN_FILE": "/run/token",
    "USE_SECRET": "disabled",
    "MAX_TOKEN": "1000000",
    "SHORT_TOKEN": "true",
    "PWD": "/home/alice",
    "OLDPWD": "/home/nobody",
}


class TestPrepare:
    def test_the_adapter_is_found_next_to_its_settings(self, project: Path) -> None:
        ready = prepared(project)

        assert ready.adapter.name == "dns"
        assert ready.settings.concurrency == 10
        assert ready.settings.task_timeout.total_seconds() == 30
        assert ready.settings.report_max_age.total_seconds() == 0

    def test_the_subscription_has_the_adapter_s_name(self, project: Path) -> None:
        assert prepared(project).subscription == "dns"

    def test_another_subscription_can_be_set(self, project: Path) -> None:
        assert prepared(project, BROKER_SUBSCRIPTION_ID="dns-blue").subscription == "dns-blue"

    def test_environment_and_flags_win_over_the_file(self, project: Path) -> None:
        environ = {"SENTINEL_CONCURRENCY": "3", "SENTINEL_TASK_TIMEOUT": "5s"}

        ready = prepared(project, sets=["task_timeout=7s"], **environ)

        assert ready.settings.concurrency == 3
        assert ready.settings.task_timeout.total_seconds() == 7

    def test_variables_that_look_like_secrets_are_redacted(self, project: Path) -> None:
        ready = prepared(project, **SECRET_VARIABLES, **PLAIN_VARIABLES)

        assert set(ready.secrets) >= set(SECRET_VARIABLES.values())
        assert not set(ready.secrets) & set(PLAIN_VARIABLES.values())


class TestProblems:
    def test_without_a_file_the_error_names_the_option(self) -> None:
        result = run()

        assert "expected --config FILE" in str(result.exception)

    @pytest.mark.parametrize(
        ("line", "place"),
        [
            ("concurrency: 0", "adapter.yaml:4:14: concurrency: expected a whole number from 1 to 1000"),
            ("concurrency: 1001", "adapter.yaml:4:14: concurrency: "),
            ("task_timeout: 0s", "adapter.yaml:4:15: task_timeout: "),
            ("report_max_age: -1s", "adapter.yaml:4:17: report_max_age: "),
            ("concurency: 5", "adapter.yaml:4:1: concurency: unknown key; did you mean concurrency?"),
        ],
    )
    def test_an_invalid_setting_exits_2_with_its_position(self, project: Path, line: str, place: str) -> None:
        file = project / "adapter.yaml"
        file.write_text(file.read_text() + line + "\n")

        result = run("--config", file, environ=BROKER)

        assert result.return_value == 2
        assert place in result.stderr

    def test_without_a_broker_the_error_names_the_variable(self, project: Path) -> None:
        result = run("--config", project / "adapter.yaml")

        assert result.return_value == 2
        assert result.stderr.startswith("BROKER_TYPE: expected rabbitmq or pubsub")

    def test_stdout_is_refused_as_a_broker(self, project: Path) -> None:
        result = run("--config", project / "adapter.yaml", environ={"BROKER_TYPE": "stdout"})

        assert result.return_value == 2
        assert "BROKER_TYPE: expected rabbitmq or pubsub" in result.stderr

    def test_a_missing_module_exits_2_with_the_reason(self, tmp_path: Path) -> None:
        file = tmp_path / "adapter.yaml"
        file.write_text(CONFIG.format(task="acme.no_such_module:dns"))

        result = run("--config", file, environ=BROKER)

        assert result.return_value == 2
        expected = (
            f"{file}:1:7: task: cannot import acme.no_such_module: ModuleNotFoundError: No module named 'acme'"
        )
        assert result.stderr.strip() == expected

    @pytest.mark.parametrize("fault", ["1 / 0", "raise SystemExit(3)", "import nothing_of_that_name", "x = = 1"])
    def test_a_failing_module_exits_2_with_the_reason(self, project: Path, fault: str) -> None:
        [module] = project.glob("module_*.py")
        module.write_text(f"a = 1\n{fault}\n")

        result = run("--config", project / "adapter.yaml", environ=BROKER)

        assert result.return_value == 2
        assert "adapter.yaml:1:7: task: cannot import" in result.stderr
        assert len(result.stderr.splitlines()) == 1

    @pytest.mark.parametrize(
        ("attribute", "reason"),
        [
            ("nothing", "got nothing of that name"),
            ("other", "to be an Adapter, got int"),
            ("idle", "got an adapter without any"),
        ],
    )
    def test_an_object_that_is_not_an_adapter_exits_2(self, project: Path, attribute: str, reason: str) -> None:
        result = run("--config", with_adapter(project, attribute), environ=BROKER)

        assert result.return_value == 2
        assert reason in result.stderr

    def test_an_error_in_a_task_from_the_environment_names_the_variable(self, project: Path) -> None:
        environ = {**BROKER, "SENTINEL_TASK": "no_such_module:dns"}

        result = run("--config", project / "adapter.yaml", environ=environ)

        assert result.return_value == 2
        assert result.stderr.strip().endswith("(environment SENTINEL_TASK)")

    @pytest.mark.parametrize("task", ["dns", "a.b", "a:b:c", "a b:c", ":dns", "a:", "1a:b"])
    def test_a_task_without_a_module_or_a_name_is_refused(self, tmp_path: Path, task: str) -> None:
        file = tmp_path / "adapter.yaml"
        file.write_text(CONFIG.format(task=f'"{task}"'))

        result = run("--config", file, environ=BROKER)

        assert result.return_value == 2
        assert "task: expected MODULE:NAME" in result.stderr


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the folder, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


class TestNew:
    def test_the_tests_of_a_new_project_pass(self, tmp_path: Path) -> None:
        result = run("new", "dns", "--directory", tmp_path / "dns")

        assert result.return_value == 0, result.output
        files = sorted(path.name for path in (tmp_path / "dns").iterdir())
        assert files == ["README.md", "adapter.yaml", "adapter_dns.py", "pytest.ini", "test_adapter_dns.py"]
        tested = run_tests(tmp_path / "dns")
        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "5 passed" in tested.stdout

    def test_several_projects_can_be_tested_in_one_run(self, tmp_path: Path) -> None:
        for name in ("dns", "my-validation.x_y"):
            run("new", name, "--directory", tmp_path / name)

        tested = run_tests(tmp_path, "-p", "no:asyncio")

        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "10 passed" in tested.stdout

    def test_a_new_project_can_be_loaded(self, tmp_path: Path) -> None:
        run("new", "dns-zones", "--directory", tmp_path)

        assert prepared(tmp_path).adapter.name == "dns-zones"

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "adapter_dns.py").write_text("mine")

        result = run("new", "dns", "--directory", tmp_path)

        assert "expected a folder without adapter_dns.py" in str(result.exception)
        assert (tmp_path / "adapter_dns.py").read_text() == "mine"
        assert not (tmp_path / "adapter.yaml").exists()

    @pytest.mark.parametrize("name", ["", "-dns", "a/b", "..", "x" * 64])
    def test_an_invalid_name_is_refused(self, tmp_path: Path, name: str) -> None:
        result = run("new", "--directory", tmp_path / "new", "--", name)

        assert result.exception is not None
        assert not (tmp_path / "new").exists()


class TestDeadLetters:
    def test_an_unreachable_broker_is_reported_in_one_line(self) -> None:
        arguments = ["adapter", "dead-letters", "list", "--subscription", "dns"]

        completed = subprocess.run(
            [sys.executable, "-m", "sentinel.cli", *arguments],
            env={**os.environ, **BROKER},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

        assert completed.returncode == 1
        assert re.fullmatch(r"127\.0\.0\.1:1: .*\n", completed.stderr), completed.stderr

    @pytest.mark.parametrize("command", [("list",), ("replay", "--all"), ("drop", "--all")])
    def test_an_unreachable_broker_exits_1(self, command: tuple[str, ...]) -> None:
        result = run("dead-letters", *command, "--subscription", "dns", environ=BROKER)

        assert result.return_value == 1
        assert result.stderr
        assert "guest:guest" not in result.stderr

    def test_without_a_broker_the_error_names_the_variable(self) -> None:
        result = run("dead-letters", "list", "--subscription", "dns")

        assert "BROKER_TYPE" in str(result.exception)

    def test_without_a_subscription_the_error_names_the_option(self) -> None:
        result = run("dead-letters", "list", environ=BROKER)

        assert "--subscription" in str(result.exception)

    @pytest.mark.parametrize("command", ["replay", "drop"])
    @pytest.mark.parametrize("which", [(), ("one", "--all")])
    def test_either_ids_or_all_are_required(self, command: str, which: tuple[str, ...]) -> None:
        result = run("dead-letters", command, *which, "--subscription", "dns", environ=BROKER)

        assert "expected the ids of dead letters, or --all" in str(result.exception)

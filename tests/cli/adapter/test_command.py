"""`sentinel adapter`: what it refuses, what it writes, and that it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sentinel.cli.adapter.command import AdapterReady, adapter, prepare

CONFIG = "task: {task}\nhyperfleet_api:\n  endpoint: http://127.0.0.1:1\n"
BROKER = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://guest:guest@127.0.0.1:1/"}
QUIET = {"BROKER_TYPE": None, "BROKER_URL": None, "BROKER_HOST": None, "BROKER_SUBSCRIPTION_ID": None}
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
    # Without the variables of whoever runs the tests: they would count as settings.
    return CliRunner().invoke(
        adapter, [str(argument) for argument in arguments], env={**QUIET, **(environ or {})}, standalone_mode=False
    )


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading an adapter puts its folder where modules are looked for."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a module of this test's own; a second module of one name would not be imported."""
    name = "module_" + re.sub(r"\W", "_", request.node.name)
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "adapter.yaml").write_text(CONFIG.format(task=f"{name}:dns"))
    return tmp_path


def named(project: Path, attribute: str) -> Path:
    """The settings file, with another adapter of the same module."""
    file = project / "adapter.yaml"
    file.write_text(file.read_text().replace(":dns", f":{attribute}"))
    return file


class TestPreparing:
    def test_the_adapter_is_found_beside_its_settings(self, project: Path) -> None:
        ready = prepare(project / "adapter.yaml", None, environ=BROKER)

        assert isinstance(ready, AdapterReady)
        assert ready.adapter.name == "dns"
        assert ready.settings.concurrency == 10
        assert ready.settings.task_timeout.total_seconds() == 30
        assert ready.settings.report_max_age.total_seconds() == 0

    def test_the_subscription_has_the_adapter_s_name(self, project: Path) -> None:
        ready = prepare(project / "adapter.yaml", None, environ=BROKER)

        assert isinstance(ready, AdapterReady)
        assert ready.subscription == "dns"

    def test_another_subscription_is_used_where_one_is_named(self, project: Path) -> None:
        environ = {**BROKER, "BROKER_SUBSCRIPTION_ID": "dns-blue"}

        ready = prepare(project / "adapter.yaml", None, environ=environ)

        assert isinstance(ready, AdapterReady)
        assert ready.subscription == "dns-blue"

    def test_environment_and_flags_beat_the_file(self, project: Path) -> None:
        environ = {**BROKER, "SENTINEL_CONCURRENCY": "3", "SENTINEL_TASK_TIMEOUT": "5s"}

        ready = prepare(project / "adapter.yaml", None, sets=["task_timeout=7s"], environ=environ)

        assert isinstance(ready, AdapterReady)
        assert ready.settings.concurrency == 3
        assert ready.settings.task_timeout.total_seconds() == 7

    def test_what_looks_like_a_secret_in_the_environment_is_kept_from_reports(self, project: Path) -> None:
        secret = {
            "DNS_API_KEY": "hunter22",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
            "STRIPE_SECRET_KEY": "sk_live_4eC39",
            "DB_PASSWORD_2": "correct-horse",
            "DB_PWD": "battery-staple",
            "SSH_PASSPHRASE": "open-sesame",
            "HOOK_SIGNATURE": "5ea1ed-0f-1a7e",
        }
        plain = {
            "DNS_ZONE": "example.com",
            "TOKEN_FILE": "/run/token",
            "USE_SECRET": "disabled",
            "MAX_TOKEN": "1000000",
            "SHORT_TOKEN": "true",
            "PWD": "/home/somebody",
            "OLDPWD": "/home/nobody",
        }

        ready = prepare(project / "adapter.yaml", None, environ={**BROKER, **secret, **plain})

        assert isinstance(ready, AdapterReady)
        assert set(ready.secrets) >= set(secret.values())
        assert not set(ready.secrets) & set(plain.values())


class TestRefusing:
    def test_without_a_file_it_says_what_to_do(self) -> None:
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
    def test_a_bad_setting_exits_2_with_its_place(self, project: Path, line: str, place: str) -> None:
        file = project / "adapter.yaml"
        file.write_text(file.read_text() + line + "\n")

        result = run("--config", file, environ=BROKER)

        assert result.return_value == 2
        assert place in result.stderr

    def test_without_a_broker_it_names_the_variable(self, project: Path) -> None:
        result = run("--config", project / "adapter.yaml")

        assert result.return_value == 2
        assert result.stderr.startswith("BROKER_TYPE: expected rabbitmq or pubsub")

    def test_it_cannot_receive_from_standard_output(self, project: Path) -> None:
        result = run("--config", project / "adapter.yaml", environ={"BROKER_TYPE": "stdout"})

        assert result.return_value == 2
        assert "BROKER_TYPE: expected rabbitmq or pubsub" in result.stderr

    def test_a_module_that_does_not_exist_exits_2_with_the_reason(self, tmp_path: Path) -> None:
        file = tmp_path / "adapter.yaml"
        file.write_text(CONFIG.format(task="acme.no_such_module:dns"))

        result = run("--config", file, environ=BROKER)

        assert result.return_value == 2
        expected = (
            f"{file}:1:7: task: cannot import acme.no_such_module: ModuleNotFoundError: No module named 'acme'"
        )
        assert result.stderr.strip() == expected

    @pytest.mark.parametrize("fault", ["1 / 0", "raise SystemExit(3)", "import nothing_of_that_name", "x = = 1"])
    def test_a_module_that_fails_exits_2_with_the_reason(self, project: Path, fault: str) -> None:
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
    def test_what_is_no_adapter_exits_2(self, project: Path, attribute: str, reason: str) -> None:
        result = run("--config", named(project, attribute), environ=BROKER)

        assert result.return_value == 2
        assert reason in result.stderr

    def test_a_task_from_the_environment_is_blamed_on_it(self, project: Path) -> None:
        environ = {**BROKER, "SENTINEL_TASK": "no_such_module:dns"}

        result = run("--config", project / "adapter.yaml", environ=environ)

        assert result.return_value == 2
        assert result.stderr.strip().endswith("(environment SENTINEL_TASK)")

    @pytest.mark.parametrize("task", ["dns", "a.b", "a:b:c", "a b:c", ":dns", "a:", "1a:b"])
    def test_a_task_that_names_no_module_and_attribute_is_refused(self, tmp_path: Path, task: str) -> None:
        file = tmp_path / "adapter.yaml"
        file.write_text(CONFIG.format(task=f'"{task}"'))

        result = run("--config", file, environ=BROKER)

        assert result.return_value == 2
        assert "task: expected MODULE:NAME" in result.stderr


def outcome_of_tests_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What pytest says there, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


class TestNew:
    def test_its_project_has_a_test_that_passes(self, tmp_path: Path) -> None:
        result = run("new", "dns", "--directory", tmp_path / "dns")

        assert result.return_value == 0, result.output
        files = sorted(path.name for path in (tmp_path / "dns").iterdir())
        assert files == ["README.md", "adapter.yaml", "adapter_dns.py", "pytest.ini", "test_adapter_dns.py"]
        tested = outcome_of_tests_in(tmp_path / "dns")
        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "5 passed" in tested.stdout

    def test_several_projects_are_tested_in_one_run(self, tmp_path: Path) -> None:
        for name in ("dns", "my-validation.x_y"):
            run("new", name, "--directory", tmp_path / name)

        tested = outcome_of_tests_in(tmp_path, "-p", "no:asyncio")

        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "10 passed" in tested.stdout

    def test_its_project_can_be_run(self, tmp_path: Path) -> None:
        run("new", "dns-zones", "--directory", tmp_path)

        ready = prepare(tmp_path / "adapter.yaml", None, environ=BROKER)

        assert isinstance(ready, AdapterReady)
        assert ready.adapter.name == "dns-zones"

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "adapter_dns.py").write_text("mine")

        result = run("new", "dns", "--directory", tmp_path)

        assert "expected a folder without adapter_dns.py" in str(result.exception)
        assert (tmp_path / "adapter_dns.py").read_text() == "mine"
        assert not (tmp_path / "adapter.yaml").exists()

    @pytest.mark.parametrize("name", ["", "-dns", "a/b", "..", "x" * 64])
    def test_a_name_that_no_adapter_can_have_is_refused(self, tmp_path: Path, name: str) -> None:
        result = run("new", "--directory", tmp_path / "new", "--", name)

        assert result.exception is not None
        assert not (tmp_path / "new").exists()


class TestDeadLetters:
    def test_about_a_broker_that_is_not_there_one_line_is_said(self) -> None:
        arguments = ["adapter", "dead-letters", "list", "--subscription", "dns"]

        ended = subprocess.run(
            [sys.executable, "-m", "sentinel.cli", *arguments],
            env={**os.environ, **BROKER},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

        assert ended.returncode == 1
        assert re.fullmatch(r"127\.0\.0\.1:1: .*\n", ended.stderr), ended.stderr

    @pytest.mark.parametrize("command", [("list",), ("replay", "--all"), ("drop", "--all")])
    def test_a_broker_that_is_not_there_exits_1(self, command: tuple[str, ...]) -> None:
        result = run("dead-letters", *command, "--subscription", "dns", environ=BROKER)

        assert result.return_value == 1
        assert result.stderr
        assert "guest:guest" not in result.stderr

    def test_without_a_broker_it_names_the_variable(self) -> None:
        result = run("dead-letters", "list", "--subscription", "dns")

        assert "BROKER_TYPE" in str(result.exception)

    def test_without_a_subscription_it_says_how_to_name_one(self) -> None:
        result = run("dead-letters", "list", environ=BROKER)

        assert "--subscription" in str(result.exception)

    @pytest.mark.parametrize("command", ["replay", "drop"])
    @pytest.mark.parametrize("which", [(), ("one", "--all")])
    def test_it_wants_to_know_which(self, command: str, which: tuple[str, ...]) -> None:
        result = run("dead-letters", command, *which, "--subscription", "dns", environ=BROKER)

        assert "expected the ids of dead letters, or --all" in str(result.exception)

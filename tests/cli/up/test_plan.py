"""What is to run, and what is refused before anything does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.cli.up.plan import UpOptions, UpPlan, make_plan
from sentinel.runtime.listening import Address
from sentinel.runtime.settings.broker import BrokerType
from tests.support.processes.up import write_adapter, write_kinds

SOURCE = """
from sentinel.adapter import Adapter, Done

adapter = Adapter("{name}")

@adapter.task(kinds=["Cluster"])
async def look(cluster, context):
    return Done()
"""


@pytest.fixture(autouse=True)
def _no_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loading an adapter leaves its folder and its modules behind, as it should; the next test has its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("adapter", None)


def attempt(environ: Mapping[str, str] | None = None, **wishes: Any) -> UpPlan | list[str]:
    return make_plan(
        UpOptions(**wishes),
        environ=environ or {},
        database_url="sqlite:////data/fleet.db",
        tokens_file=Path("/data/tokens.yaml"),
    )


def plan(environ: Mapping[str, str] | None = None, **wishes: Any) -> UpPlan:
    made = attempt(environ, **wishes)
    assert isinstance(made, UpPlan), made
    return made


def problems(environ: Mapping[str, str] | None = None, **wishes: Any) -> list[str]:
    made = attempt(environ, **wishes)
    assert isinstance(made, list)
    return made


def running(made: UpPlan) -> dict[str, tuple[str, ...]]:
    return {each.adapter.name: each.adapter.kinds for each in made.adapters}


def test_without_a_word_it_is_the_whole_loop() -> None:
    made = plan()

    assert made.address == Address("127.0.0.1", 8080)
    assert str(made.server.database_url) == "sqlite:////data/fleet.db"
    assert made.broker is None
    assert [each.resource_type for each in made.pulses] == ["clusters", "nodepools"]
    assert {each.poll_interval for each in made.pulses} == {timedelta(seconds=1)}
    assert {each.max_age_not_ready for each in made.pulses} == {timedelta(seconds=10)}
    assert all(each.pulse_on_progress for each in made.pulses)
    assert running(made) == {
        "validation": ("Cluster", "NodePool"),
        "dns": ("Cluster",),
        "provision": ("Cluster",),
    }
    assert made.warnings == ()


def test_settings_of_pulses_adapters_and_the_api_hold_each_where_it_belongs() -> None:
    made = plan(
        {
            "SENTINEL_POLL_INTERVAL": "2s",
            "SENTINEL_TASK_TIMEOUT": "7s",
            "SENTINEL_HYPERFLEET_API__TIMEOUT": "3s",
            "SENTINEL_REQUEST_TIMEOUT": "9s",
            "SENTINEL_SERVER": "http://elsewhere",
        },
        sets=("max_age_ready=1m", "concurrency=2", "retention.audit=1h", "message_data.region=.region"),
    )

    pulse, adapter = made.pulses[0], made.adapters[0].settings
    assert (pulse.poll_interval, pulse.max_age_ready) == (timedelta(seconds=2), timedelta(minutes=1))
    assert pulse.message_data["region"] == ".region"
    assert (adapter.task_timeout, adapter.concurrency) == (timedelta(seconds=7), 2)
    assert {each.hyperfleet_api.timeout for each in (pulse, adapter)} == {timedelta(seconds=3)}
    assert made.server.request_timeout == timedelta(seconds=9)
    assert made.server.retention.audit == timedelta(hours=1)
    assert made.warnings == ()


def test_what_is_about_another_api_does_not_hold() -> None:
    made = plan(
        {
            "SENTINEL_RESOURCE_TYPE": "gadgets",
            "SENTINEL_HYPERFLEET_API__ENDPOINT": "http://elsewhere",
            "HYPERFLEET_API_TOKEN": "of-another",
            "SENTINEL_TASK": "other:other",
            "SENTINEL_INSECURE": "true",
            "SENTINEL_TOKENS_FILE": "/elsewhere",
        },
        listen="192.0.2.1:80",
    )

    assert [each.resource_type for each in made.pulses] == ["clusters", "nodepools"]
    assert made.pulses[0].hyperfleet_api.token is None
    assert made.adapters[0].settings.task == "sentinel.adapter.samples:validation"
    assert (made.server.insecure, made.server.tokens_file) == (False, Path("/data/tokens.yaml"))


def test_flags_beat_the_environment() -> None:
    environ = {"SENTINEL_LISTEN": "127.0.0.1:1", "SENTINEL_DATABASE_URL": "sqlite:///one.db"}

    by_environment, by_flags = plan(environ), plan(environ, listen=":2", database_url="sqlite:///two.db")

    assert (by_environment.address.port, str(by_environment.server.database_url)) == (1, "sqlite:///one.db")
    assert (by_flags.address.port, str(by_flags.server.database_url)) == (2, "sqlite:///two.db")


def test_a_demonstration_is_quicker_and_can_be_told_otherwise() -> None:
    usual, told = plan(is_demo=True), plan(is_demo=True, sets=("max_age_not_ready=8s",))

    assert usual.pulses[0].max_age_not_ready == timedelta(seconds=3)
    assert told.pulses[0].max_age_not_ready == timedelta(seconds=8)


@pytest.mark.parametrize(
    ("listen", "is_open"),
    [
        ("127.0.0.1:0", False),
        ("127.0.0.2:80", False),
        ("[::1]:80", False),
        ("localhost:80", False),
        (":80", True),
        ("0.0.0.0:80", True),
        ("[::]:80", True),
        ("192.0.2.7:80", True),
        ("fleet.example:80", True),
    ],
)
def test_a_token_is_needed_wherever_other_machines_can_reach_it(listen: str, is_open: bool) -> None:
    made = plan(listen=listen)

    assert made.is_open_to_others is is_open
    assert made.server.insecure is not is_open


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"listen": "nonsense"}, "listen: expected HOST:PORT"),
        ({"listen": "0"}, "listen: expected an address"),
        ({"sets": ("max_age_redy=3s",)}, "max_age_ready"),
        ({"sets": ("poll_interval=5",)}, "poll_interval"),
        ({"sets": ("concurrency=0",)}, "concurrency"),
        ({"sets": ("task=other:other",)}, "task: expected in the file of an adapter"),
        ({"sets": ("resource_type=clusters",)}, "resource_type: expected nothing"),
        ({"sets": ("hyperfleet_api.endpoint=http://x",)}, "hyperfleet_api.endpoint: expected nothing"),
        ({"sets": ("insecure=true",)}, "insecure: expected nothing"),
        ({"sets": ("tokens_file=x",)}, "tokens_file: expected nothing"),
        ({"sets": ("task_timout=5s",)}, "task_timout: unknown key; did you mean task_timeout?"),
        ({"sets": ("kinds_fil=x",)}, "kinds_fil: unknown key; did you mean kinds_file?"),
        ({"database_url": "mysql://somewhere"}, "database_url"),
        ({"broker_url": "http://somewhere"}, "BROKER_URL"),
        ({"broker_url": "pubsub://"}, "BROKER_PROJECT_ID"),
        ({"kinds_file": "no/such/file"}, "no/such/file"),
        ({"adapter_files": (Path("no/such/adapter.yaml"),)}, "no/such/adapter.yaml"),
    ],
)
def test_what_will_not_do_is_told_once(wishes: dict[str, Any], words: str) -> None:
    told = [each for each in problems(**wishes) if words in each]

    assert len(told) == 1


def test_everything_that_is_wrong_is_told_at_once() -> None:
    told = "\n".join(problems(listen="nonsense", sets=("poll_interval=5",), broker_url="http://x"))

    assert all(word in told for word in ("listen", "poll_interval", "BROKER_URL"))


def test_a_variable_that_was_probably_mistyped_is_warned_of_once() -> None:
    made = plan({"SENTINEL_POL_INTERVAL": "5s", "SENTINEL_TASK_TIMEOUT": "5s"})

    assert [each for each in made.warnings if "SENTINEL_POLL_INTERVAL" in each] == list(made.warnings)
    assert len(made.warnings) == 1


def test_a_broker_is_named_by_its_url_and_its_password_is_a_secret() -> None:
    made = plan(
        {"BROKER_EXCHANGE": "mine", "BROKER_TYPE": "pubsub", "BROKER_SUBSCRIPTION_ID": "shared"},
        broker_url="amqp://me:hunter2@rabbit/vhost",
    )

    assert made.broker is not None
    assert (made.broker.type, made.broker.exchange) == (BrokerType.RABBITMQ, "mine")
    assert made.broker.subscription_id == ""
    assert "hunter2" not in str(made.broker.url)
    assert "hunter2" in made.secrets


def test_a_topic_is_named_by_its_url_and_made_where_it_is_missing() -> None:
    made, told = (
        plan(broker_url="pubsub://p/t").broker,
        plan({"BROKER_CREATE_TOPIC": "false"}, broker_url="pubsub://p"),
    )

    assert made is not None
    assert (made.type, made.project_id, made.topic, made.create_topic) == (BrokerType.PUBSUB, "p", "t", True)
    assert told.broker is not None
    assert (told.broker.topic, told.broker.create_topic) == ("hyperfleet-events", False)


def test_variables_about_a_broker_do_not_name_one() -> None:
    assert plan({"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://rabbit/"}).broker is None


def test_kinds_of_ones_own_get_the_samples_they_require_and_those_they_wait_for(tmp_path: Path) -> None:
    file = write_kinds(tmp_path, ("gadgets", "Gadget", ["provision"]), ("widgets", "Widget", []))

    made = plan(kinds_file=str(file))

    assert [each.resource_type for each in made.pulses] == ["gadgets"]
    assert running(made) == dict.fromkeys(("validation", "dns", "provision"), ("Gadget",))


def test_an_adapter_that_nothing_runs_is_warned_of(tmp_path: Path) -> None:
    file = write_kinds(tmp_path, ("gadgets", "Gadget", ["validation", "backup"]))

    [warning] = plan(kinds_file=str(file)).warnings
    [with_broker] = plan(kinds_file=str(file), broker_url="amqp://here").warnings

    assert "gadgets require backup" in warning
    # Nobody outside gets events from a broker inside.
    assert ("beside" in warning, "run it beside" in with_broker) == (False, True)


def test_an_adapter_of_ones_own_joins_the_samples_or_stands_in_for_one(tmp_path: Path) -> None:
    joins = write_adapter(tmp_path / "a", "joins", SOURCE.format(name="joins"), concurrency=3)
    stands_in = write_adapter(tmp_path / "b", "dns", SOURCE.format(name="dns"))

    made = plan(adapter_files=(joins, stands_in))

    assert list(running(made)) == ["validation", "dns", "provision", "joins"]
    files = {each.adapter.name: each.file for each in made.adapters}
    assert (files["dns"], files["joins"], files["validation"]) == (stands_in, joins, None)
    assert {each.adapter.name: each.settings.concurrency for each in made.adapters}["joins"] == 3


def test_two_adapters_of_one_name_are_refused(tmp_path: Path) -> None:
    files = tuple(write_adapter(tmp_path / each, each, SOURCE.format(name="same")) for each in ("a", "b"))

    [problem] = problems(adapter_files=files)

    assert "same already" in problem


def test_a_module_that_cannot_be_imported_is_named_with_its_place(tmp_path: Path) -> None:
    file = write_adapter(tmp_path, "bad", "1 / 0\n")

    [problem] = problems(adapter_files=(file,))

    assert problem.startswith(f"{file}:1:")
    assert "ZeroDivisionError" in problem


def test_the_file_of_an_adapter_need_not_say_where_the_api_is(tmp_path: Path) -> None:
    file = write_adapter(tmp_path, "short", SOURCE.format(name="short"))
    file.write_bytes(msgspec.json.encode({"task": "adapter:adapter"}))

    assert "short" in running(plan(adapter_files=(file,)))

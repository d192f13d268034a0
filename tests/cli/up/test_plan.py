"""The plan of `sentinel up`, and the options that it refuses."""

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
from sentinel.runtime.settings.report import Origin, Source
from tests.support.processes.up import write_adapter, write_kinds

SOURCE = """
from sentinel.adapter import Adapter, Done

adapter = Adapter("{name}")

@adapter.task(kinds=["Cluster"])
async def look(cluster, context):
    return Done()
"""


@pytest.fixture(autouse=True)
def _restore_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what loading an adapter does to the import system."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("adapter", None)


def try_plan(environ: Mapping[str, str] | None = None, **options: Any) -> UpPlan | list[str]:
    return make_plan(
        UpOptions(**options),
        environ=environ or {},
        database_url="sqlite:////data/fleet.db",
        tokens_file=Path("/data/tokens.yaml"),
    )


def plan(environ: Mapping[str, str] | None = None, **options: Any) -> UpPlan:
    made = try_plan(environ, **options)
    assert isinstance(made, UpPlan), made
    return made


def problems(environ: Mapping[str, str] | None = None, **options: Any) -> list[str]:
    made = try_plan(environ, **options)
    assert isinstance(made, list)
    return made


def kinds_by_adapter(made: UpPlan) -> dict[str, tuple[str, ...]]:
    return {each.adapter.name: each.adapter.kinds for each in made.adapters}


def test_the_default_plan_is_the_whole_loop() -> None:
    made = plan()

    assert made.address == Address("127.0.0.1", 8080)
    assert str(made.server.database_url) == "sqlite:////data/fleet.db"
    assert made.broker is None
    assert [each.resource_type for each in made.pulses] == ["clusters", "nodepools"]
    assert {each.poll_interval for each in made.pulses} == {timedelta(seconds=1)}
    assert {each.max_age_not_ready for each in made.pulses} == {timedelta(seconds=10)}
    assert all(each.pulse_on_progress for each in made.pulses)
    assert kinds_by_adapter(made) == {
        "validation": ("Cluster", "NodePool"),
        "dns": ("Cluster",),
        "provision": ("Cluster",),
    }
    assert made.warnings == ()


def test_settings_reach_the_pulses_the_adapters_and_the_api() -> None:
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


def test_the_hub_has_quick_defaults_and_settings_of_its_own() -> None:
    default = plan()
    changed = plan(
        {"SENTINEL_LISTEN_GRPC": "127.0.0.1:1", "SENTINEL_DRAIN_TIMEOUT": "7s"},
        sets=("heartbeat_interval=3s", "retention.events=2h"),
    )
    by_flag = plan({"SENTINEL_LISTEN_GRPC": "127.0.0.1:1"}, listen_grpc=":2")

    assert default.agents_address == Address("127.0.0.1", 9090)
    assert (default.hub.heartbeat_interval, default.hub.insecure) == (timedelta(seconds=2), True)
    assert (changed.agents_address.port, changed.hub.drain_timeout) == (1, timedelta(seconds=7))
    assert changed.hub.heartbeat_interval == timedelta(seconds=3)
    assert changed.hub.retention.events == timedelta(hours=2)
    assert by_flag.agents_address == Address("", 2)


def test_agents_on_other_machines_need_a_token_and_a_warning() -> None:
    local = plan(listen="0.0.0.0:1")
    exposed = plan(listen_grpc="192.0.2.7:1")

    assert (local.is_exposed_to_agents, local.hub.insecure, local.warnings) == (False, True, ())
    assert (exposed.is_exposed, exposed.is_exposed_to_agents, exposed.hub.insecure) == (False, True, False)
    assert "travel unencrypted on 192.0.2.7:1" in exposed.warnings[0]


def test_agents_run_here_if_asked_for_and_five_in_the_demo() -> None:
    assert plan().agents == 0
    assert plan(is_demo=True).agents == 5
    assert plan(is_demo=True, agents=0).agents == 0
    assert plan(agents=2).agents == 2


def test_settings_about_another_api_are_ignored() -> None:
    of_another_api = {
        "SENTINEL_RESOURCE_TYPE": "gadgets",
        "SENTINEL_HYPERFLEET_API__ENDPOINT": "http://elsewhere",
        "HYPERFLEET_API_TOKEN": "of-another-api",
        "SENTINEL_TASK": "other:other",
        "SENTINEL_INSECURE": "true",
        "SENTINEL_TOKENS_FILE": "/elsewhere",
    }

    made = plan(of_another_api, listen="192.0.2.1:80")

    assert [each.resource_type for each in made.pulses] == ["clusters", "nodepools"]
    assert made.pulses[0].hyperfleet_api.token is None
    assert made.adapters[0].settings.task == "sentinel.adapter.samples:validation"
    assert (made.server.insecure, made.server.tokens_file) == (False, Path("/data/tokens.yaml"))


def test_flags_override_the_environment() -> None:
    environ = {"SENTINEL_LISTEN": "127.0.0.1:1", "SENTINEL_DATABASE_URL": "sqlite:///one.db"}

    by_environment, by_flags = plan(environ), plan(environ, listen=":2", database_url="sqlite:///two.db")

    assert (by_environment.address.port, str(by_environment.server.database_url)) == (1, "sqlite:///one.db")
    assert (by_flags.address.port, str(by_flags.server.database_url)) == (2, "sqlite:///two.db")


def test_the_demo_has_shorter_max_ages_by_default() -> None:
    default, overridden = plan(is_demo=True), plan(is_demo=True, sets=("max_age_not_ready=8s",))

    assert default.pulses[0].max_age_not_ready == timedelta(seconds=3)
    assert overridden.pulses[0].max_age_not_ready == timedelta(seconds=8)


@pytest.mark.parametrize(
    ("listen", "is_exposed"),
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
def test_a_token_is_needed_if_other_machines_can_reach_the_api(listen: str, is_exposed: bool) -> None:
    made = plan(listen=listen)

    assert made.is_exposed is is_exposed
    assert made.server.insecure is not is_exposed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "nonsense"}, "--listen: expected HOST:PORT"),
        ({"listen": "0"}, "--listen: expected an address"),
        ({"listen_grpc": "nonsense"}, "--listen-grpc: expected HOST:PORT"),
        ({"listen_grpc": "0"}, "--listen-grpc: expected an address"),
        ({"sets": ("offline_threshold=1s",)}, "offline_threshold: expected more than heartbeat_interval"),
        ({"sets": ("tls_cert=x",)}, "tls_key: expected a file"),
        ({"sets": ("tls_cert=x", "tls_key=y"), "agents": 1}, "--agents: expected 0 with tls_cert"),
        ({"sets": ("max_age_redy=3s",)}, "max_age_ready"),
        ({"sets": ("poll_interval=5",)}, "poll_interval"),
        ({"sets": ("concurrency=0",)}, "concurrency"),
        ({"sets": ("task=other:other",)}, "task: expected no value here; set it in an adapter's file"),
        ({"sets": ("resource_type=clusters",)}, "resource_type: expected no value here"),
        ({"sets": ("hyperfleet_api.endpoint=http://x",)}, "hyperfleet_api.endpoint: expected no value here"),
        ({"sets": ("insecure=true",)}, "insecure: expected no value here"),
        ({"sets": ("tokens_file=x",)}, "tokens_file: expected no value here"),
        ({"sets": ("task_timout=5s",)}, "task_timout: unknown key; did you mean task_timeout?"),
        ({"sets": ("kinds_fil=x",)}, "kinds_fil: unknown key; did you mean kinds_file?"),
        ({"database_url": "mysql://somewhere"}, "--database-url: expected sqlite:///FILE"),
        ({"broker_url": "http://somewhere"}, "--broker-url: expected amqp://"),
        ({"broker_url": "amqp://a@b@c"}, "--broker-url: expected a URL such as amqp://"),
        ({"broker_url": "amqp://[host"}, "--broker-url: expected amqp://"),
        ({"broker_url": "pubsub://"}, "--broker-url: expected amqp://"),
        ({"broker_url": "pubsub://p/a topic"}, "--broker-url: expected"),
        ({"kinds_file": "no/such/file"}, "--kinds-file: no/such/file: cannot be read: no such file"),
        ({"adapter_files": (Path("no/such/adapter.yaml"),)}, "no/such/adapter.yaml"),
    ],
)
def test_an_invalid_option_is_reported_once(options: dict[str, Any], words: str) -> None:
    matching = [each for each in problems(**options) if words in each]

    assert len(matching) == 1
    assert "BROKER_" not in matching[0]
    assert "(flag --set)" in matching[0] or "(flag" not in matching[0]


def test_all_problems_are_reported_at_once() -> None:
    text = "\n".join(problems(listen="nonsense", sets=("poll_interval=5",), broker_url="http://x"))

    assert all(word in text for word in ("--listen", "poll_interval", "--broker-url"))


def test_a_problem_of_a_setting_without_option_names_the_setting() -> None:
    found = problems({"SENTINEL_DATABASE_URL": "mysql://x", "SENTINEL_LISTEN": "0"})
    kinds_files = problems({"SENTINEL_KINDS_FILE": "no/such/file"})

    assert [each.partition(":")[0] for each in found] == ["database_url"]
    assert "(environment SENTINEL_DATABASE_URL)" in found[0]
    assert kinds_files == ["no/such/file:1:1: : cannot be read: no such file or directory"]


def test_a_broker_url_from_the_environment_names_the_variable() -> None:
    origin = Origin(Source.ENVIRONMENT, "SENTINEL_BROKER_URL")

    found = [
        *problems(broker_url="http://me:hunter2@x", broker_url_origin=origin),
        *problems(broker_url="amqp://me:hunter2@b@c", broker_url_origin=origin),
    ]

    assert len(found) == 2
    assert all(each.endswith("(environment SENTINEL_BROKER_URL)") for each in found)
    assert "hunter2" not in str(found)


def test_a_mistyped_variable_is_warned_about_once() -> None:
    made = plan({"SENTINEL_POL_INTERVAL": "5s", "SENTINEL_TASK_TIMEOUT": "5s"})

    assert [each for each in made.warnings if "SENTINEL_POLL_INTERVAL" in each] == list(made.warnings)
    assert len(made.warnings) == 1


def test_the_broker_url_names_a_broker_and_its_password_is_secret() -> None:
    made = plan(
        {"BROKER_EXCHANGE": "mine", "BROKER_TYPE": "pubsub", "BROKER_SUBSCRIPTION_ID": "shared"},
        broker_url="amqp://me:hunter2@rabbit/vhost",
    )

    assert made.broker is not None
    assert (made.broker.type, made.broker.exchange) == (BrokerType.RABBITMQ, "mine")
    assert made.broker.subscription_id == ""
    assert "hunter2" not in str(made.broker.url)
    assert "hunter2" in made.secrets


def test_a_pubsub_url_names_a_topic_that_is_created_if_missing() -> None:
    full = plan(broker_url="pubsub://p/t").broker
    partial = plan({"BROKER_CREATE_TOPIC": "false"}, broker_url="pubsub://p").broker

    assert full is not None
    assert (full.type, full.project_id, full.topic, full.create_topic) == (BrokerType.PUBSUB, "p", "t", True)
    assert partial is not None
    assert (partial.topic, partial.create_topic) == ("hyperfleet-events", False)


def test_broker_variables_alone_do_not_select_a_broker() -> None:
    assert plan({"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://rabbit/"}).broker is None


def test_custom_kinds_get_required_samples_and_their_dependencies(tmp_path: Path) -> None:
    file = write_kinds(tmp_path, ("gadgets", "Gadget", ["provision"]), ("widgets", "Widget", []))

    made = plan(kinds_file=str(file))

    assert [each.resource_type for each in made.pulses] == ["gadgets"]
    assert kinds_by_adapter(made) == dict.fromkeys(("validation", "dns", "provision"), ("Gadget",))


def test_custom_kinds_may_have_conditions_by_expression(tmp_path: Path) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text("kinds:\n  - {plural: gadgets, kind: Gadget, required_adapters: [dns], ready: available}\n")

    made = plan(kinds_file=str(file))

    assert made.kinds.expressions("gadgets").ready is not None


def test_a_required_adapter_that_does_not_run_causes_a_warning(tmp_path: Path) -> None:
    file = write_kinds(tmp_path, ("gadgets", "Gadget", ["validation", "backup"]))

    [warning] = plan(kinds_file=str(file)).warnings
    [with_broker] = plan(kinds_file=str(file), broker_url="amqp://here").warnings

    assert "gadgets require backup" in warning
    # A broker in this process delivers nothing to adapters outside of it.
    assert ("separately" in warning, "run it separately" in with_broker) == (False, True)


def test_a_custom_adapter_joins_the_samples_or_replaces_one(tmp_path: Path) -> None:
    joins = write_adapter(tmp_path / "a", "joins", SOURCE.format(name="joins"), concurrency=3)
    replaces = write_adapter(tmp_path / "b", "dns", SOURCE.format(name="dns"))

    made = plan(adapter_files=(joins, replaces))

    assert list(kinds_by_adapter(made)) == ["validation", "dns", "provision", "joins"]
    files = {each.adapter.name: each.file for each in made.adapters}
    assert (files["dns"], files["joins"], files["validation"]) == (replaces, joins, None)
    assert {each.adapter.name: each.settings.concurrency for each in made.adapters}["joins"] == 3


def test_two_adapters_with_the_same_name_are_refused(tmp_path: Path) -> None:
    files = tuple(write_adapter(tmp_path / each, each, SOURCE.format(name="same")) for each in ("a", "b"))

    [problem] = problems(adapter_files=files)

    assert "already has an adapter named same" in problem


def test_an_import_error_is_reported_with_its_position(tmp_path: Path) -> None:
    file = write_adapter(tmp_path, "bad", "1 / 0\n")

    [problem] = problems(adapter_files=(file,))

    assert problem.startswith(f"{file}:1:")
    assert "ZeroDivisionError" in problem


def test_an_adapter_file_needs_no_api_endpoint(tmp_path: Path) -> None:
    file = write_adapter(tmp_path, "short", SOURCE.format(name="short"))
    file.write_bytes(msgspec.json.encode({"task": "adapter:adapter"}))

    assert "short" in kinds_by_adapter(plan(adapter_files=(file,)))

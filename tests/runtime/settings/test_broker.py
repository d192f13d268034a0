"""Broker settings from the environment, a file, a ConfigMap manifest and a mounted directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType, load_broker
from sentinel.runtime.settings.report import Loaded
from tests.support.examples import examples

CONFIG_MAP = """apiVersion: v1
kind: ConfigMap
metadata:
  name: broker
data:
  BROKER_TYPE: "rabbitmq"
  BROKER_HOST: "rabbit"
  BROKER_PORT: 5673
  BROKER_SUBSCRIPTION_ID: dns
  LOG_LEVEL: debug
"""
SERVICE_ACCOUNT_KEY = (
    '{"type": "service_account", "client_email": "s@p.iam.gserviceaccount.com",'
    ' "token_uri": "https://oauth2.googleapis.com/token", "private_key": "pr1vate"}'
)
BROKER_TYPES = "one of rabbitmq, pubsub, stdout"
EXCHANGE_TYPES = "fanout, topic, direct, headers or a plugin's x-..."


def from_environment(**environ: str) -> Loaded[BrokerSettings]:
    return load_broker(source=None, environ=environ)


def from_text(tmp_path: Path, text: str, **environ: str) -> Loaded[BrokerSettings]:
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    return load_broker(source=file, environ=environ)


def from_directory(tmp_path: Path, files: dict[str, str], **environ: str) -> Loaded[BrokerSettings]:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return load_broker(source=tmp_path, environ=environ)


def valid(loaded: Loaded[BrokerSettings]) -> BrokerSettings:
    assert loaded.problems == ()
    assert loaded.settings is not None
    return loaded.settings


def problems(loaded: Loaded[BrokerSettings]) -> list[tuple[int | None, str]]:
    assert loaded.settings is None
    assert loaded.entries == ()
    return [(problem.line, problem.field) for problem in loaded.problems]


class TestValues:
    def test_defaults_apply_to_unwritten_settings(self) -> None:
        broker = valid(from_environment(BROKER_TYPE="rabbitmq", BROKER_HOST="rabbit"))

        assert broker == BrokerSettings(type=BrokerType.RABBITMQ, host="rabbit")
        assert (broker.port, broker.vhost, broker.username) == (5672, "/", "guest")
        assert broker.password.reveal() == "guest"
        assert (broker.exchange, broker.exchange_type, broker.routing_key) == ("hyperfleet-events", "fanout", "")
        assert (broker.url, broker.tls, broker.ca_file) == (None, False, None)
        assert (broker.topic, broker.create_topic) == ("hyperfleet-events", False)

    def test_every_key_is_read(self) -> None:
        broker = valid(
            from_environment(
                BROKER_TYPE="rabbitmq",
                BROKER_HOST="rabbit",
                BROKER_PORT="5671",
                BROKER_VHOST="fleet",
                BROKER_USERNAME="sentinel",
                BROKER_PASSWORD="secret",
                BROKER_EXCHANGE="events",
                BROKER_EXCHANGE_TYPE="topic",
                BROKER_ROUTING_KEY="fleet.#",
                BROKER_TLS="true",
                BROKER_CA_FILE="/ca.pem",
                BROKER_PROJECT_ID="prod",
                BROKER_TOPIC="t",
                BROKER_CREATE_TOPIC="yes",
                BROKER_CREDENTIALS_JSON=SERVICE_ACCOUNT_KEY,
                BROKER_SUBSCRIPTION_ID="dns",
                PUBSUB_EMULATOR_HOST="127.0.0.1:8085",
            )
        )

        assert broker == BrokerSettings(
            type=BrokerType.RABBITMQ,
            host="rabbit",
            port=5671,
            vhost="fleet",
            username="sentinel",
            password=Secret("secret"),
            exchange="events",
            exchange_type="topic",
            routing_key="fleet.#",
            tls=True,
            ca_file=Path("/ca.pem"),
            project_id="prod",
            topic="t",
            create_topic=True,
            credentials_json=Secret(SERVICE_ACCOUNT_KEY),
            subscription_id="dns",
            emulator_host="127.0.0.1:8085",
        )

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("rabbitmq", BrokerType.RABBITMQ),
            ("pubsub", BrokerType.PUBSUB),
            ("gcp-pubsub", BrokerType.PUBSUB),
            ("googlepubsub", BrokerType.PUBSUB),
            ("stdout", BrokerType.STDOUT),
        ],
    )
    def test_each_broker_has_its_names(self, name: str, expected: BrokerType) -> None:
        broker = valid(from_environment(BROKER_TYPE=name, BROKER_HOST="h", BROKER_PROJECT_ID="p"))

        assert broker.type is expected

    @pytest.mark.parametrize("host", ["rabbit", "rabbit.svc.cluster.local", "10.0.0.1", "::1", "my_host"])
    def test_a_host_is_a_name_or_an_address(self, host: str) -> None:
        assert valid(from_environment(BROKER_TYPE="rabbitmq", BROKER_HOST=host)).host == host

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("amqp://rabbit", "amqp://rabbit"),
            ("amqps://user:pa%2Fss@rabbit:5671/fleet?heartbeat=5", "amqps://***@rabbit:5671/fleet"),
            ("amqp://user@[::1]:5672/%2F", "amqp://***@[::1]:5672/%2F"),
        ],
    )
    def test_a_url_is_shown_without_user_and_password(self, url: str, shown: str) -> None:
        loaded = from_environment(BROKER_TYPE="rabbitmq", BROKER_URL=url)

        broker = valid(loaded)
        assert broker.url is not None
        assert broker.url.reveal() == url
        assert [entry.value for entry in loaded.entries if entry.key == "BROKER_URL"] == [shown]

    def test_only_settings_of_the_chosen_broker_are_shown(self) -> None:
        stdout = from_environment(BROKER_TYPE="stdout", BROKER_TOPIC="t")
        pubsub = from_environment(BROKER_TYPE="pubsub", BROKER_PROJECT_ID="p")

        assert [entry.key for entry in stdout.entries] == ["BROKER_TYPE", "BROKER_TOPIC"]
        assert [entry.key for entry in pubsub.entries] == [
            "BROKER_TYPE",
            "BROKER_PROJECT_ID",
            "BROKER_TOPIC",
            "BROKER_CREATE_TOPIC",
            "BROKER_ORDERING_KEY",
            "BROKER_CREDENTIALS_JSON",
            "PUBSUB_EMULATOR_HOST",
        ]


class TestSources:
    @pytest.mark.parametrize(
        "environ",
        [
            {},
            {"PUBSUB_EMULATOR_HOST": "127.0.0.1:8085"},
            {"BROKER_SERVICE_HOST": "10.0.0.1", "BROKER_PORT": "tcp://10.0.0.1:5672", "BROKER_PORT_5672_TCP": "x"},
        ],
    )
    def test_without_any_broker_setting_the_result_is_empty(self, environ: dict[str, str]) -> None:
        loaded = load_broker(source=None, environ=environ)

        assert (loaded.settings, loaded.problems, loaded.entries) == (None, (), ())

    def test_a_plain_file_has_the_names_of_variables(self, tmp_path: Path) -> None:
        broker = valid(from_text(tmp_path, "BROKER_TYPE: rabbitmq\nBROKER_HOST: rabbit\nBROKER_PORT: 5673\n"))

        assert (broker.type, broker.host, broker.port) == (BrokerType.RABBITMQ, "rabbit", 5673)

    def test_a_config_map_is_read_and_other_keys_are_ignored(self, tmp_path: Path) -> None:
        broker = valid(from_text(tmp_path, CONFIG_MAP))

        assert (broker.host, broker.port, broker.subscription_id) == ("rabbit", 5673, "dns")

    def test_a_mounted_config_map_is_read(self, tmp_path: Path) -> None:
        variables = {"BROKER_TYPE": "rabbitmq\n", "BROKER_HOST": "rabbit", "BROKER_ROUTING_KEY": "a\n\n"}
        (tmp_path / "..2024").mkdir()
        (tmp_path / "..data").symlink_to("..2024")

        loaded = from_directory(tmp_path, variables | {"ca.crt": "x"})

        broker = valid(loaded)
        assert (broker.host, broker.routing_key) == ("rabbit", "a\n")
        assert f"file {tmp_path / 'BROKER_HOST'}:1" in {entry.origin for entry in loaded.entries}

    def test_the_environment_overrides_the_file(self, tmp_path: Path) -> None:
        loaded = from_text(tmp_path, CONFIG_MAP, BROKER_HOST="other", BROKER_ROUTING_KEY="")

        assert valid(loaded).host == "other"
        assert ("BROKER_HOST", "environment BROKER_HOST") in {(e.key, e.origin) for e in loaded.entries}

    def test_a_service_link_in_broker_port_is_ignored_with_a_warning(self, tmp_path: Path) -> None:
        loaded = from_text(tmp_path, CONFIG_MAP, BROKER_PORT="tcp://10.0.0.1:5672")

        assert valid(loaded).port == 5673
        (warning,) = loaded.warnings
        assert "enableServiceLinks" in warning

    def test_a_url_overrides_its_parts_with_a_warning(self, tmp_path: Path) -> None:
        loaded = from_text(tmp_path, CONFIG_MAP, BROKER_URL="amqp://u:p@h")

        assert valid(loaded).url is not None
        assert loaded.warnings == ("BROKER_URL overrides BROKER_HOST, BROKER_PORT",)

    def test_misspelled_variables_cause_warnings_and_others_are_ignored(self) -> None:
        loaded = from_environment(
            BROKER_TYPE="stdout", BROKER_SERVICE_HOST="x", BROKER_FLAVOUR="x", BROKER_EXCHAGNE="x", BROKER_TSL="x"
        )

        assert valid(loaded).type is BrokerType.STDOUT
        assert [warning.rpartition(" ")[2] for warning in loaded.warnings] == ["BROKER_EXCHANGE?", "BROKER_TLS?"]


class TestProblems:
    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("BROKER_TYPE", "rabbit", f'expected {BROKER_TYPES}, got "rabbit"; did you mean rabbitmq?'),
            ("BROKER_PORT", "0", 'expected a whole number from 1 to 65535, got "0"'),
            ("BROKER_PORT", "65536", 'expected a whole number from 1 to 65535, got "65536"'),
            ("BROKER_PORT", "amqp", 'expected a whole number from 1 to 65535, got "amqp"'),
            ("BROKER_TLS", "2", 'expected true or false, got "2"'),
            ("BROKER_EXCHANGE_TYPE", "fan", f'expected {EXCHANGE_TYPES}, got "fan"'),
            ("BROKER_HOST", "rabbit:5672", "put a port into BROKER_PORT"),
            ("BROKER_HOST", "a b", "expected a host name or address"),
            ("BROKER_HOST", "amqp://u:hunter2@h", "put a URL into BROKER_URL"),
            ("BROKER_EXCHANGE", "é" * 128, "at most 255 bytes"),
            ("BROKER_VHOST", "\udcff", "a byte that is not UTF-8"),
        ],
    )
    def test_an_invalid_value_is_a_problem_under_its_bare_name(self, key: str, value: str, expected: str) -> None:
        loaded = load_broker(source=None, environ={"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "h", key: value})

        assert problems(loaded) == [(None, key)]
        message = loaded.problems[0].message
        assert expected in message
        assert message.endswith(f"(environment {key})")
        assert "hunter2" not in message

    @pytest.mark.parametrize(
        "url",
        [
            "http://u:hunter2@h",
            "amqp://",
            "amqp://u:hunter2@",
            "amqp://u:hunter2@h:99999",
            "amqp://u:hunter2@h:0",
            "amqp://u:hunter2/x@h",
            "amqp://u:12/hunter2@h",
            "amqp://u:12?hunter2@h",
            "amqp://u:12#hunter2@h",
            "amqp://u:12@hunter2@h",
            "amqp://u:hunter2@[::1",
            "amqp://u:hunter2\u2100@h",
            "amqp://u:hunter2@h/ x",
            "hunter2",
        ],
    )
    def test_an_invalid_url_is_rejected_and_not_shown(self, url: str) -> None:
        loaded = from_environment(BROKER_TYPE="rabbitmq", BROKER_URL=url)

        assert problems(loaded) == [(None, "BROKER_URL")]
        assert "hunter2" not in str(loaded)

    @pytest.mark.parametrize(
        "key",
        [
            "hunter2",
            '["hunter2"]',
            '{"type": "service_account", "private_key": "hunter2"}',
            SERVICE_ACCOUNT_KEY.replace("service_account", "external_account"),
            SERVICE_ACCOUNT_KEY.replace('"pr1vate"', "1"),
            SERVICE_ACCOUNT_KEY.removesuffix("}"),
        ],
    )
    def test_only_the_key_of_a_service_account_is_accepted(self, key: str) -> None:
        loaded = from_environment(BROKER_TYPE="pubsub", BROKER_PROJECT_ID="p", BROKER_CREDENTIALS_JSON=key)

        assert problems(loaded) == [(None, "BROKER_CREDENTIALS_JSON")]
        assert "hunter2" not in str(loaded)
        assert "pr1vate" not in str(loaded)

    def test_tls_with_an_amqp_url_is_rejected(self) -> None:
        loaded = from_environment(BROKER_TYPE="rabbitmq", BROKER_URL="amqp://h", BROKER_TLS="true")

        assert problems(loaded) == [(None, "BROKER_TLS")]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("BROKER_HOST: h\n", [(1, "BROKER_TYPE")]),
            ("", [(1, "BROKER_TYPE")]),
            ("BROKER_TYPE: rabbitmq\n", [(1, "BROKER_HOST")]),
            ("BROKER_TYPE: pubsub\n", [(1, "BROKER_PROJECT_ID")]),
            ("kind: ConfigMap\n\ndata:\n  BROKER_TYPE: pubsub\n", [(3, "BROKER_PROJECT_ID")]),
            ("kind: ConfigMap\n\ndata:\n", [(3, "BROKER_TYPE")]),
            ("kind: ConfigMap\n", [(1, "BROKER_TYPE")]),
            ("kind: ConfigMap\ndata: [x]\n", [(2, "data")]),
            ("apiVersion: v1\nkind: Secret\ndata: {}\n", [(2, "kind")]),
            ("BROKER_TYPE: stdout\nBROKER_HSOT: h\n", [(2, "BROKER_HSOT")]),
            ("BROKER_TYPE: stdout\nLOG_LEVEL: h\n", [(2, "LOG_LEVEL")]),
            ("kind: ConfigMap\ndata:\n  BROKER_TYPE: stdout\n  BROKER_HSOT: h\n", [(4, "BROKER_HSOT")]),
            ("kind: ConfigMap\ndata:\n  BROKER_TYPE: stdout\n  BROKER_TYPE: h\n", [(4, "BROKER_TYPE")]),
            ("BROKER_TYPE: stdout\nBROKER_TYPE: stdout\n", [(2, "BROKER_TYPE")]),
            ("BROKER_TYPE: stdout\n---\nBROKER_TYPE: stdout\n", [(2, "")]),
            ("- BROKER_TYPE\n", [(1, "")]),
            ("BROKER_TYPE: [\n", [(1, "")]),
            (
                "BROKER_TYPE: {a: b}\nBROKER_PASSWORD: [hunter2]\nBROKER_PORT:\n",
                [(1, "BROKER_TYPE"), (2, "BROKER_PASSWORD"), (3, "BROKER_PORT")],
            ),
        ],
    )
    def test_problems_in_a_file_have_their_positions(
        self, tmp_path: Path, text: str, expected: list[tuple[int | None, str]]
    ) -> None:
        assert problems(from_text(tmp_path, text)) == expected

    def test_suggestions_ignore_case(self, tmp_path: Path) -> None:
        loaded = from_text(tmp_path, "BROKER_TYPE: stdout\nbroker_hsot: h\n")

        assert loaded.problems[0].message == "unknown key; did you mean BROKER_HOST?"

    def test_problems_in_a_directory_name_its_files(self, tmp_path: Path) -> None:
        (tmp_path / "BROKER_PORT").write_bytes(b"\xff")
        (tmp_path / "BROKER_TLS").mkdir()

        loaded = from_directory(tmp_path, {"BROKER_TYPE": "rabit", "BROKER_HSOT": "x"})

        assert [(problem.file, problem.field) for problem in loaded.problems] == [
            (str(tmp_path / name), name) for name in ("BROKER_HSOT", "BROKER_PORT", "BROKER_TLS", "BROKER_TYPE")
        ]

    def test_an_empty_directory_lacks_the_type(self, tmp_path: Path) -> None:
        loaded = from_directory(tmp_path, {})

        assert [(p.file, p.line, p.field) for p in loaded.problems] == [(str(tmp_path), 1, "BROKER_TYPE")]

    def test_a_missing_source_is_a_problem(self, tmp_path: Path) -> None:
        assert problems(load_broker(source=tmp_path / "none", environ={"BROKER_TYPE": "stdout"})) == [(1, "")]


@hypothesis_settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    content=st.binary(max_size=40),
    key=st.sampled_from(["URL", "HOST", "PORT", "CA_FILE", "TLS"]),
    value=st.text(max_size=20),
)
def test_any_input_is_settings_or_problems(tmp_path: Path, content: bytes, key: str, value: str) -> None:
    file = tmp_path / "broker.yaml"
    file.write_bytes(b"BROKER_TYPE: rabbitmq\n" + content)

    loaded = load_broker(source=file, environ={f"BROKER_{key}": value})

    assert (loaded.settings is None) == bool(loaded.problems)
    assert all(problem.message and str(problem).isprintable() for problem in loaded.problems)


def test_an_empty_variable_is_unset() -> None:
    broker = valid(from_environment(BROKER_TYPE="rabbitmq", BROKER_HOST="h", BROKER_URL="", BROKER_PORT=""))

    assert broker.url is None
    assert broker.port == 5672


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BROKER_TOPIC", "a b"),
        ("BROKER_TOPIC", "1a"),
        ("BROKER_TOPIC", "goog-x"),
        ("BROKER_TOPIC", "projects/p/topics/x"),
        ("BROKER_PROJECT_ID", "a/b"),
        ("PUBSUB_EMULATOR_HOST", "http://localhost:8085"),
        ("PUBSUB_EMULATOR_HOST", "localhost"),
    ],
)
def test_a_value_that_pubsub_would_reject_is_a_problem(name: str, value: str) -> None:
    loaded = from_environment(**{"BROKER_TYPE": "pubsub", "BROKER_PROJECT_ID": "p", name: value})

    assert [problem.field for problem in loaded.problems] == [name]

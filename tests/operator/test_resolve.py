"""A SentinelConfig with the values of its Secrets."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.operator.resolve import ResolvedConfig, decode_secret, resolve
from sentinel.runtime.secrets import MASK, Secret
from sentinel.runtime.settings import broker_values
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType, load_broker
from tests.operator.resources import RABBITMQ, make_config, valid_specs

KEY = (
    '{"type": "service_account", "client_email": "s@p.iam.gserviceaccount.com",'
    ' "token_uri": "https://oauth2.googleapis.com/token", "private_key": "pr1vate"}'
)
TOKEN_REF = {"hyperfleetAPI.tokenSecretRef": {"name": "api"}}
RABBITMQ_REF = {"broker": {**RABBITMQ, "credentialsSecretRef": {"name": "mq"}}}
PUBSUB_REF = {"broker.credentialsSecretRef": {"name": "gcp"}}


def resolved(
    changes: dict[str, Any], secrets: dict[str, dict[str, str]] | None = None, **options: str
) -> ResolvedConfig:
    loaded = resolve(make_config(changes), secrets or {}, **options)
    assert loaded.problems == ()
    assert loaded.settings is not None
    return loaded.settings


def url_of(settings: BrokerSettings) -> str:
    assert settings.url is not None
    return settings.url.reveal()


class TestValues:
    def test_without_secrets_the_pulse_is_that_of_the_config(self) -> None:
        found = resolved({})

        assert found.definition == make_config().definition
        assert found.broker == BrokerSettings(
            type=BrokerType.PUBSUB, project_id="hyperfleet-prod", topic="hyperfleet-events"
        )

    @pytest.mark.parametrize(
        ("exchange", "expected"), [({}, "hyperfleet-events"), ({"exchange": "other"}, "other")]
    )
    def test_the_exchange_defaults_to_the_topic(self, exchange: dict[str, str], expected: str) -> None:
        found = resolved({"broker": RABBITMQ | exchange})

        assert found.broker == BrokerSettings(
            type=BrokerType.RABBITMQ, url=Secret("amqp://rabbitmq:5672/"), exchange=expected
        )

    @pytest.mark.parametrize(
        ("reference", "key"), [({"name": "api"}, "token"), ({"name": "api", "key": "jwt"}, "jwt")]
    )
    def test_the_token_is_that_of_the_key(self, reference: dict[str, str], key: str) -> None:
        found = resolved({"hyperfleetAPI.tokenSecretRef": reference}, {"api": {key: "t0ken\n", "other": "x"}})

        assert found.definition.api.token == Secret("t0ken")

    @pytest.mark.parametrize(
        ("url", "data", "expected"),
        [
            ("amqp://h/v", {"username": "u", "password": "p"}, "amqp://u:p@h/v"),
            ("amqps://a:b@h:5671/%2F", {"username": "u", "password": "p"}, "amqps://u:p@h:5671/%2F"),
            ("amqp://a:b%40@h", {"username": "u"}, "amqp://u:b%40@h"),
            ("amqp://a%40:b@h", {"password": "p"}, "amqp://a%40:p@h"),
            ("amqp://h", {"password": "p"}, "amqp://guest:p@h"),
            ("amqp://h", {"username": "u"}, "amqp://u:guest@h"),
            (
                "amqp://[::1]:5672",
                {"username": "u@x", "password": "a/b:c%"},
                "amqp://u%40x:a%2Fb%3Ac%25@[::1]:5672",
            ),
            ("amqp://h", {"username": "u", "password": ""}, "amqp://u:@h"),
        ],
    )
    def test_credentials_override_those_of_the_url(self, url: str, data: dict[str, str], expected: str) -> None:
        found = resolved(
            {"broker": {**RABBITMQ, "url": url, "credentialsSecretRef": {"name": "mq"}}}, {"mq": data}
        )

        assert url_of(found.broker) == expected
        assert f"//{MASK}@" in str(found.broker.url)

    def test_pubsub_gets_the_key_and_the_emulator(self) -> None:
        found = resolved(PUBSUB_REF, {"gcp": {"key.json": KEY + "\n"}}, emulator_host="127.0.0.1:8085")

        assert found.broker.credentials_json == Secret(KEY)
        assert found.broker.emulator_host == "127.0.0.1:8085"

    def test_a_new_password_is_another_broker_and_a_new_token_another_pulse(self) -> None:
        changes = TOKEN_REF | RABBITMQ_REF
        before, token, password = (
            resolved(changes, {"api": {"token": token}, "mq": {"password": password}})
            for token, password in (("a", "b"), ("x", "b"), ("a", "x"))
        )

        assert before.broker == token.broker != password.broker
        assert before.definition == password.definition != token.definition

    def test_every_secret_is_returned_for_redaction(self) -> None:
        rabbitmq = resolve(
            make_config(TOKEN_REF | RABBITMQ_REF),
            {"api": {"token": "t"}, "mq": {"username": "u", "password": "p/w"}},
        )
        pubsub = resolve(make_config(PUBSUB_REF), {"gcp": {"key.json": KEY}})

        assert {secret.reveal() for secret in rabbitmq.secrets} == {
            *("t", "u", "p/w", "p%2Fw"),
            "amqp://u:p%2Fw@rabbitmq:5672/",
        }
        assert {secret.reveal() for secret in pubsub.secrets} == {KEY, "pr1vate"}


class TestProblems:
    @pytest.mark.parametrize(
        ("changes", "secrets", "field", "message"),
        [
            (
                TOKEN_REF,
                {},
                "hyperfleetAPI.tokenSecretRef.name",
                "expected a Secret api in the namespace of the SentinelConfig, got none",
            ),
            (
                TOKEN_REF,
                {"api": {"b": "1", "a": "2"}},
                "hyperfleetAPI.tokenSecretRef",
                "expected the Secret api to have token, got a, b",
            ),
            (
                TOKEN_REF,
                {"api": {"token": "hunter2 and more"}},
                "hyperfleetAPI.tokenSecretRef",
                "expected the key token of the Secret api to be a bearer token; it must not contain spaces or"
                " control characters",
            ),
            (
                RABBITMQ_REF,
                {"mq": {}},
                "broker.credentialsSecretRef",
                "expected the Secret mq to have username or password, got no keys",
            ),
            (
                RABBITMQ_REF,
                {"mq": {"username": "hunter2" * 40, "password": "hunter2"}},
                "broker.credentialsSecretRef",
                "expected the key username of the Secret mq to be a user name; at most 255 bytes",
            ),
            (
                PUBSUB_REF,
                {"gcp": {"username": "x"}},
                "broker.credentialsSecretRef",
                "expected the Secret gcp to have key.json, got username",
            ),
            (
                PUBSUB_REF,
                {"gcp": {"key.json": "hunter2"}},
                "broker.credentialsSecretRef",
                "expected the key key.json of the Secret gcp to be the key of a Google service account, as JSON;"
                " type, client_email, token_uri and private_key are needed",
            ),
        ],
    )
    def test_a_secret_that_does_not_fit_is_a_problem(
        self, changes: dict[str, Any], secrets: dict[str, dict[str, str]], field: str, message: str
    ) -> None:
        loaded = resolve(make_config(changes), secrets)

        assert loaded.settings is None
        assert [str(problem) for problem in loaded.problems] == [f"spec.{field}: {message}"]
        assert "hunter2" not in str(loaded)

    def test_problems_of_both_secrets_are_reported(self) -> None:
        loaded = resolve(make_config(TOKEN_REF | RABBITMQ_REF), {})

        assert len(loaded.problems) == 2


def test_the_data_of_a_secret_is_decoded() -> None:
    data = {
        "token": b64encode("tökén".encode()).decode(),
        "binary": b64encode(b"\xff").decode(),
        "bad": "?",
        "n": 1,
    }

    assert decode_secret({"kind": "Secret", "data": data}) == {"token": "tökén"}  # type: ignore[dict-item]  # JSON
    assert decode_secret({"kind": "Secret"}) == {}


@given(st.text(min_size=1), st.text())
def test_any_user_and_password_survive_the_url(username: str, password: str) -> None:
    try:
        (username + password).encode()
    except UnicodeEncodeError:
        return

    url = broker_values.with_credentials(Secret("amqp://h:5672/v"), username=username, password=password)

    parts = urlsplit(url.reveal())
    assert (unquote(parts.username or ""), unquote(parts.password or "")) == (username, password)
    assert (parts.hostname, parts.port, parts.path) == ("h", 5672, "/v")


@given(valid_specs)
def test_the_broker_settings_are_valid(spec: dict[str, Any]) -> None:
    secrets = {
        "api": {"token": "t", "jwt": "t"},
        "mq": {"username": "u", "password": "p"},
        "gcp": {"key.json": KEY},
    }
    settings = resolved(spec, secrets).broker
    texts = {
        "BROKER_TYPE": settings.type,
        "BROKER_URL": "" if settings.url is None else settings.url.reveal(),
        "BROKER_EXCHANGE": settings.exchange,
        "BROKER_PROJECT_ID": settings.project_id,
        "BROKER_TOPIC": settings.topic,
        "BROKER_CREDENTIALS_JSON": KEY if settings.credentials_json else "",
    }

    assert load_broker(environ=texts).settings == settings

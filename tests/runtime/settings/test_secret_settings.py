"""Secrets in settings are never shown."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import msgspec
import pytest

from sentinel.pulse.settings import load
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.broker import load_broker

PLANTED = "pl4nted-s3cret"


def service_account_key(private_key: str) -> str:
    members = (
        '"type": "service_account", "client_email": "s@p", "token_uri": "https://oauth2.googleapis.com/token"'
    )
    return f'{{{members}, "private_key": "{private_key}"}}'


FILE = """resource_type: clusters
hyperfleet_api:
  endpoint: http://api
"""


@pytest.mark.parametrize("render", [str, repr, "{}".format, "{!r}".format, "{:>9}".format, "%s".__mod__])
def test_a_secret_is_masked_in_every_format(render: object) -> None:
    assert callable(render)
    assert PLANTED not in render(Secret(PLANTED))


def test_a_secret_cannot_be_dumped() -> None:
    secret = Secret(PLANTED)

    assert PLANTED not in json.dumps({"password": secret}, default=str)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        vars(secret)


def test_a_secret_reveals_its_text_and_compares_by_it() -> None:
    secret = Secret(PLANTED)

    assert secret.reveal() == PLANTED
    assert secret == Secret(PLANTED)
    assert secret != Secret("other")
    assert secret != PLANTED
    assert len({secret, Secret(PLANTED)}) == 1
    assert copy.copy([secret]) == [secret]
    assert bool(secret) is True
    assert bool(Secret("")) is False


@pytest.mark.parametrize(
    ("text", "environ", "sets"),
    [
        (FILE, {"HYPERFLEET_API_TOKEN": PLANTED}, []),
        (FILE, {"HYPERFLEET_API_TOKEN": f"{PLANTED} {PLANTED}"}, []),
        (FILE, {"HYPERFLEET_API_TOKEN": f"é{PLANTED}"}, []),
        (FILE, {"SENTINEL_HYPERFLEET_API__TOKEN": PLANTED, "SENTINEL_TOKEN": PLANTED}, []),
        (FILE, {}, [f"hyperfleet_api.token={PLANTED}"]),
        (FILE, {}, [f"hyperfleet_api={{token: {PLANTED}}}"]),
        (FILE, {}, [f"hyperfleet_api.tokne={PLANTED}"]),
        (f"{FILE}  token: {PLANTED}\n", {}, []),
        (f"{FILE}  token: [{PLANTED}]\n", {}, []),
        (f"{FILE}  tokne: {PLANTED}\n", {}, []),
        (f"{FILE}  token: *{PLANTED}\n", {}, []),
        (f"{FILE}  token: !{PLANTED}\n", {}, []),
        (f"{FILE}  token: '{PLANTED}\n", {}, []),
        (FILE.replace("//api", f"//user:{PLANTED}@api"), {}, []),
        (FILE.replace("//api", f"//{PLANTED}@"), {}, []),
        (FILE.replace("//api", f"//user:1/{PLANTED}@api"), {}, []),
        (FILE, {}, [f"poll_interval=https://user:{PLANTED}@api"]),
    ],
)
def test_no_secret_of_a_pulse_is_shown(
    tmp_path: Path, text: str, environ: dict[str, str], sets: list[str]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)

    loaded = load(file=file, environ=environ, sets=sets)

    assert PLANTED not in repr(loaded)
    assert PLANTED not in str(loaded.settings)
    assert not any(PLANTED in str(problem) for problem in loaded.problems)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("BROKER_PASSWORD", PLANTED),
        ("BROKER_URL", f"amqp://user:{PLANTED}@host/vhost"),
        ("BROKER_URL", f"amqp://{PLANTED}:x@host/vhost"),
        ("BROKER_URL", f"amqp://{PLANTED}@host?password={PLANTED}"),
        ("BROKER_URL", f"ftp://user:{PLANTED}@host"),
        ("BROKER_URL", f"amqp://user:1/{PLANTED}@host"),
        ("BROKER_URL", PLANTED),
        ("BROKER_HOST", f"amqp://user:{PLANTED}@host"),
        ("BROKER_HOST", f"user:{PLANTED}@host"),
        ("BROKER_PORT", f"amqp://user:{PLANTED}@host"),
        ("BROKER_PASSWROD", PLANTED),
        ("BROKER_CREDENTIALS_JSON", PLANTED),
        ("BROKER_CREDENTIALS_JSON", f'{{"type": "service_account", "private_key": "{PLANTED}"}}'),
        ("BROKER_CREDENTIALS_JSON", service_account_key(PLANTED)),
    ],
)
@pytest.mark.parametrize("where", ["environment", "file", "list", "manifest", "directory"])
def test_no_secret_of_the_broker_is_shown(tmp_path: Path, key: str, value: str, where: str) -> None:
    settings = {"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "host", key: value}
    file = tmp_path / "broker.yaml"
    source: Path | None = file
    environ = {}
    match where:
        case "environment":
            source, environ = None, settings
        case "file":
            file.write_text(json.dumps(settings))
        case "list":
            file.write_text(json.dumps(settings | {key: [value]}))
        case "manifest":
            file.write_text(json.dumps({"kind": "ConfigMap", "data": settings}))
        case _:
            source = tmp_path / "mounted"
            source.mkdir()
            for name, text in settings.items():
                (source / name).write_text(text)

    loaded = load_broker(source=source, environ=environ)

    assert PLANTED not in repr(loaded)
    assert not any(PLANTED in str(problem) for problem in loaded.problems)


def test_the_private_key_of_a_service_account_is_returned_for_redaction() -> None:
    key = service_account_key("line\\nline")

    broker = load_broker(environ={"BROKER_TYPE": "stdout", "BROKER_CREDENTIALS_JSON": key})

    assert {secret.reveal() for secret in broker.secrets} == {key, "line\nline"}


def test_every_secret_is_returned_for_redaction(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(FILE)

    sentinel = load(file=file, environ={"HYPERFLEET_API_TOKEN": "the-token"})
    broker = load_broker(
        source=None,
        environ={"BROKER_TYPE": "stdout", "BROKER_URL": "amqp://u:a%2Fb@h", "BROKER_PASSWORD": "the-password"},
    )

    assert {secret.reveal() for secret in sentinel.secrets} == {"the-token"}
    assert {secret.reveal() for secret in broker.secrets} == {"amqp://u:a%2Fb@h", "a%2Fb", "a/b", "the-password"}

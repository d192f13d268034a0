"""Text that looks like a secret is masked, in any notation, and in linear time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.runtime.secret_text import is_secret_name, mask_secret_text

NAMES = st.sampled_from(
    (
        *("password", "PASSWORD", "db_password", "passwd", "pwd", "pass", "passphrase", "token", "X-Auth-Token"),
        *("api_key", "apiKey", "api-key", "secret", "client_secret", "secret_key", "AWS_SECRET_ACCESS_KEY"),
        *("private_key", "credentials", "signature", "PASSWORD_2"),
    )
)
TEXTS = st.text().map("zq{}qz".format)
"""Secrets of any characters. The ends show whether a part of one was left."""
WORDS = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="&;\"'")).map("zq{}qz".format)

NOTATIONS: list[Callable[[str, str], str]] = [
    lambda name, text: json.dumps({"user": "u", name: text, "port": 1}),
    lambda name, text: json.dumps({name: text}, ensure_ascii=False),
    lambda name, text: json.dumps({name: text}, separators=(",", ":")),
    lambda name, text: json.dumps(json.dumps({name: text, "port": 1})),
    lambda name, text: json.dumps({name: [text, text]}),
    lambda name, text: f"login failed: { ({'user': 'u', name: text})!r}",
    lambda name, text: f"connect(user='u', {name}={text!r}, port=1)",
    lambda name, text: f"{ ({name: text.encode()})!r}",
    lambda name, text: f"os.environ[{name!r}] = {text!r}",
    lambda name, text: f"GET https://api/x?{urlencode({'user': 'u', name: text})}: 403",
    lambda name, text: f"Command {['login', f'--{name}', text]!r} failed",
    lambda name, text: f"amqp://user:{quote(text, safe='')}@broker:5672/",
    lambda name, text: f"{ ({'headers': {'Authorization': text}})!r}",
    lambda name, text: json.dumps({"Authorization": f"Bearer {text}", "Cookie": text}),
    lambda name, text: json.dumps({"Set-Cookie": f"session={text}; Path=/"}),
]
BARE_NOTATIONS: list[Callable[[str, str], str]] = [
    lambda name, text: f"host=db {name}={text} user=u",
    lambda name, text: f"{name}: {text}",
    lambda name, text: f"refused ({name}: {text})",
    lambda name, text: f"Server=db;{name}={text};Database=x",
    lambda name, text: f"secret: {name}: {text}",
    lambda name, text: f"login --{name} {text} --verbose",
    lambda name, text: f"Authorization: Bearer {text}",
    lambda name, text: f"Authorization: {text}\n",
    lambda name, text: f"authorization: Custom {text} was refused",
    lambda name, text: f'Authorization: Digest username="u", response="{text}"',
    lambda name, text: f"Cookie: theme=dark; session={text}",
]


def assert_masked(text: str) -> None:
    """No part of the secret is left: each begins with `zq` and ends with `qz`."""
    masked = mask_secret_text(text)

    assert "***" in masked
    assert "zq" not in masked
    assert "qz" not in masked


@given(NAMES, TEXTS, st.sampled_from(NOTATIONS))
def test_a_quoted_or_encoded_secret_is_masked(name: str, text: str, notation: Callable[[str, str], str]) -> None:
    assert_masked(notation(name, text))


@given(NAMES, WORDS, st.sampled_from(BARE_NOTATIONS))
def test_an_unquoted_secret_is_masked(name: str, word: str, notation: Callable[[str, str], str]) -> None:
    assert_masked(notation(name, word))


@given(st.text())
def test_masking_twice_changes_nothing(text: str) -> None:
    once = mask_secret_text(f"password={text!r} {text}")

    assert mask_secret_text(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"user": "u", "password": "hunter2"}', '{"user": "u", "password": "***"}'),
        ('{\\"password\\": \\"hun\\\\\\"ter2\\", \\"a\\": 1}', '{\\"password\\": \\"***\\", \\"a\\": 1}'),
        ("password=hunter2, user=u", "password=***, user=u"),
        ("(password=hunter2)", "(password=***)"),
        ("password='hunter2", "password='***"),
        ('{"url":"http://x/?token=hunter2","code":"x"}', '{"url":"http://x/?token=***","code":"x"}'),
        ("password=it's,hunter2, user=u", "password=***, user=u"),
        ("password=1234", "password=***"),
        ("<password>hun ter2</password>", "<password>***</password>"),
        ("amqp://user:hun/ter2@broker/x", "amqp://user:***@broker/x"),
        ("https://ghp_hunter2@github.com/x.git", "https://***@github.com/x.git"),
        ("Authorization: Bearer swordfish was refused", "Authorization: Bearer *** was refused"),
        ("key: -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----!", "key: ***!"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "got ***"),
    ],
)
def test_the_rest_of_the_text_stays_readable(text: str, expected: str) -> None:
    assert mask_secret_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        'password authentication failed for user "fleet"',
        "BROKER_PASSWORD: expected text, got nothing",
        "hyperfleet_api.token_file: expected a file, got /run/token",
        "token: not found",
        "authorization: required",
        'secrets "db" is forbidden',
        "max_tokens=100 tokens: 500",
        "password='' user=u",
        "PWD=/home/u OLDPWD=/",
        "postgresql://fleet@db:5432/fleet",
        "http://host:8080/a@b",
        "bypass=fast compass: north monkey: banana",
        "GET http://api/clusters?page=1: connection refused",
    ],
)
def test_ordinary_text_is_not_masked(text: str) -> None:
    assert mask_secret_text(text) == text


def test_a_name_that_ends_with_a_telling_word_is_secret() -> None:
    secret = ["password", "BROKER_PASSWORD", "Api-Key", "client_secret", "TOKEN_2", "KEY_BASE64_TOKENS"]
    plain = ["token_file", "secretName", "key", "PWD", "OLDPWD", "resource_id", "password_age"]

    assert [name for name in (*secret, *plain) if is_secret_name(name)] == secret


@pytest.mark.parametrize(
    "piece",
    ["x", 'token="', 'token=\\"', "token={'", "?tokentoken", "://a:b", "password: ", "--token", "eyJaaaaaaaaa."],
)
def test_a_megabyte_takes_time_in_proportion_to_its_length(piece: str) -> None:
    """A pattern that backtracks over the whole text would take minutes."""
    started = time.process_time()
    mask_secret_text(f"?{piece * (1_000_000 // len(piece))}=")

    assert time.process_time() - started < 10

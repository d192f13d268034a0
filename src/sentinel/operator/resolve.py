"""Adds the values of Secrets to a SentinelConfig: what runs for it.

A SentinelConfig only names Secrets. The operator reads them, if it may, and gets the complete pulse and broker
settings from here. Both compare equal if nothing changed: a new password is a change of the broker, a new token
one of the pulse.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import assert_never

import msgspec

from sentinel.operator.sentinel_config import BrokerKind, SentinelConfig
from sentinel.ports.kube import KubeObject
from sentinel.pulse.definition import PulseDefinition
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import broker_values, field_types, hyperfleet_api
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import Loaded, Origin, SettingsProblem

_CREDENTIALS = "spec.broker.credentialsSecretRef"
_TOKEN = "spec.hyperfleetAPI.tokenSecretRef"  # noqa: S105 - a field's name
_USERNAME, _PASSWORD, _KEY = "username", "password", "key.json"


class ResolvedConfig(msgspec.Struct, frozen=True):
    """What a SentinelConfig runs."""

    definition: PulseDefinition
    broker: BrokerSettings


def decode_secret(secret: KubeObject) -> dict[str, str]:
    """Return the data of a Secret. A value that is not text is omitted."""
    data = secret.get("data")
    texts: dict[str, str] = {}
    for key, encoded in data.items() if isinstance(data, dict) else ():
        try:
            texts[key] = b64decode(str(encoded), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return texts


def resolve(
    config: SentinelConfig, secrets: Mapping[str, Mapping[str, str]], *, emulator_host: str = ""
) -> Loaded[ResolvedConfig]:
    """Return what the SentinelConfig runs, or the problems with its Secrets.

    `secrets` are the data of those in `config.secret_names` that exist, by name. `emulator_host` replaces Google's
    service for Pub/Sub.
    """
    values = _SecretValues(secrets)
    token, settings = _token(config, values), _broker(config, values, emulator_host)
    if values.problems:
        return Loaded(None, tuple(values.problems), secrets=tuple(values.read))
    definition = config.definition
    definition = msgspec.structs.replace(definition, api=msgspec.structs.replace(definition.api, token=token))
    within = () if settings.url is None else (settings.url, *broker_values.url_passwords(settings.url))
    return Loaded(ResolvedConfig(definition, settings), secrets=(*values.read, *within))


class _SecretValues:
    """The data of Secrets, what was read of it, and the problems."""

    def __init__(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self._secrets = secrets
        self.read: list[Secret] = []
        self.problems: list[SettingsProblem] = []

    def get(self, name: str, key: str, path: str, value: FieldType) -> str | None:
        """Return the text of a key; None if there is none, or if it is invalid, which is a problem."""
        text = self._secrets.get(name, {}).get(key)
        if text is None:
            return None
        text = text.removesuffix("\n")  # from an editor or `echo`
        self.read.append(Secret(text))
        try:
            value.parse(text)
        except InvalidValue as error:
            hint = f"; {error.hint}" if error.hint else ""
            self.reject(path, f"expected the key {key} of the Secret {name} to be {value.expected}{hint}")
            return None
        return text

    def require(self, name: str, keys: Sequence[str], path: str) -> None:
        """Record a problem unless the Secret exists and has one of the keys."""
        data = self._secrets.get(name)
        if data is None:
            self.reject(
                f"{path}.name", f"expected a Secret {name} in the namespace of the SentinelConfig, got none"
            )
        elif not data.keys() & set(keys):
            got = ", ".join(sorted(data)) or "no keys"
            self.reject(path, f"expected the Secret {name} to have {' or '.join(keys)}, got {got}")

    def reject(self, path: str, message: str) -> None:
        self.problems.append(SettingsProblem.at(Origin(), path, message))


def _token(config: SentinelConfig, values: _SecretValues) -> Secret | None:
    reference = config.spec.hyperfleet_api.token_secret_ref
    if reference is None:
        return None
    values.require(reference.name, [reference.key], _TOKEN)
    token = values.get(reference.name, reference.key, _TOKEN, hyperfleet_api.TOKEN)
    return None if token is None else Secret(token)


def _broker(config: SentinelConfig, values: _SecretValues, emulator_host: str) -> BrokerSettings:
    spec = config.spec.broker
    reference = spec.credentials_secret_ref
    match spec.type:
        case BrokerKind.GCP_PUBSUB:
            key = None
            if reference is not None:
                values.require(reference.name, [_KEY], _CREDENTIALS)
                key = values.get(reference.name, _KEY, _CREDENTIALS, broker_values.SERVICE_ACCOUNT_KEY)
            if key is not None:
                values.read.append(broker_values.private_key(Secret(key)))
            return BrokerSettings(
                type=BrokerType.PUBSUB,
                project_id=spec.project_id or "",
                topic=spec.topic,
                credentials_json=None if key is None else Secret(key),
                emulator_host=emulator_host,
            )
        case BrokerKind.RABBITMQ:
            url = spec.url
            if reference is not None and url is not None:
                values.require(reference.name, [_USERNAME, _PASSWORD], _CREDENTIALS)
                url = broker_values.with_credentials(
                    url,
                    username=values.get(reference.name, _USERNAME, _CREDENTIALS, broker_values.USERNAME),
                    password=values.get(reference.name, _PASSWORD, _CREDENTIALS, field_types.TEXT),
                )
            return BrokerSettings(type=BrokerType.RABBITMQ, url=url, exchange=spec.exchange or spec.topic)
        case _:
            assert_never(spec.type)

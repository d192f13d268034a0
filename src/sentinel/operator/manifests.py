"""Reads SentinelConfigs: objects of the API server, and manifests in files.

Both are read by the same rules and have the same problems, such as `spec.broker.url: required with type rabbitmq`.
Those in files also have a line and a column. A manifest file may hold several documents, and other kinds of
objects between SentinelConfigs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from sentinel.core.json import Json
from sentinel.core.labels import NotSearchable, SelectorParam
from sentinel.operator.sentinel_config import (
    OBJECT_NAME,
    SENTINEL_CONFIG,
    BrokerKind,
    SentinelConfig,
    SentinelConfigSpec,
)
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import broker_values, yaml_file
from sentinel.runtime.settings.config_tree import (
    ListNode,
    MappingNode,
    ParsedSource,
    ScalarNode,
    describe_node,
    locate,
)
from sentinel.runtime.settings.report import Loaded, SettingsProblem, file_origin, sorted_problems
from sentinel.runtime.settings.schema import section
from sentinel.runtime.settings.sources import from_object
from sentinel.runtime.settings.validation import Validation

_KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
_LISTS: Final = ("List", f"{SENTINEL_CONFIG.kind}List")
_SPEC = section(SentinelConfigSpec)


class ManifestFile(msgspec.Struct, frozen=True):
    """The SentinelConfigs of a file, in its order."""

    configs: tuple[Loaded[SentinelConfig], ...]
    problems: tuple[SettingsProblem, ...]
    """The problems of the file itself. Each SentinelConfig has its own."""


def read_object(document: Mapping[str, Json]) -> Loaded[SentinelConfig]:
    """Read a SentinelConfig that the API server sent."""
    # Without the status and the managed fields: nobody reads them here, and there is a limit on values.
    metadata = document.get("metadata")
    known = {key: document[key] for key in ("apiVersion", "kind", "spec") if key in document}
    if isinstance(metadata, dict):
        known["metadata"] = {key: value for key, value in metadata.items() if isinstance(value, str | int)}
    return read(from_object(known))


def read_file(path: Path) -> ManifestFile | None:
    """Read the SentinelConfigs of a file. None if it has none, so that it should be a settings file."""
    text = yaml_file.read_text(path)
    if isinstance(text, SettingsProblem):
        return None
    documents = [
        each for document in yaml_file.parse_documents(text, file_origin(path)) for each in _objects(document)
    ]
    configs = [each for each in documents if _kind(each) == SENTINEL_CONFIG.kind]
    others = [each for each in documents if _kind(each) is None]
    # An error in one of several documents may hide a SentinelConfig.
    is_hidden = len(documents) > 1 and any(each.root is None for each in others)
    if not configs and not is_hidden:
        return None
    return ManifestFile(
        tuple(map(read, configs)), sorted_problems(problem for each in others for problem in _problems(each))
    )


def read(document: ParsedSource) -> Loaded[SentinelConfig]:
    """Read one SentinelConfig."""
    validation = Validation(
        environ={}, known=_SPEC.paths("spec"), is_partial=document.root is None, has_json_types=True
    )
    validation.problems.extend(document.problems)
    root = document.root or MappingNode((), document.at)
    for member in root.members:
        if member.key not in _KEYS:
            validation.reject_unknown(member.at, member.key, _KEYS)
    _check_version(root, validation)
    metadata = _read_metadata(root, validation)
    written = root.get("spec")
    node, at = (MappingNode((), root.at), root.at) if written is None else (written.value, written.at)
    spec = _SPEC.read(node, "spec", at, validation)
    warnings = tuple(_check_broker(root, validation))
    if isinstance(spec, SentinelConfigSpec):
        _check_search(spec, root, validation)
    url = validation.values.get("spec.broker.url")
    secrets = (*validation.secrets, *(broker_values.url_passwords(url) if isinstance(url, Secret) else ()))
    if validation.problems or not isinstance(spec, SentinelConfigSpec):
        return Loaded(None, sorted_problems(validation.problems), warnings, secrets=secrets)
    config = SentinelConfig(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        created=metadata.creation_timestamp,
        spec=spec,
    )
    return Loaded(config, warnings=warnings, entries=tuple(validation.entries), secrets=secrets)


def duplicates(configs: Iterable[SentinelConfig]) -> Iterator[tuple[SentinelConfig, SentinelConfig]]:
    """Yield each SentinelConfig that watches the same as an earlier one in its namespace, after that one."""
    first: dict[object, SentinelConfig] = {}
    for config in configs:
        earlier = first.setdefault((config.namespace, config.shard_key), config)
        if earlier is not config:
            yield earlier, config


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The members of `metadata` that we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None


def _read_metadata(root: MappingNode, validation: Validation) -> _Metadata:
    """Only the name has to be there. The API server sets the others, so they are not checked."""
    member = root.get("metadata")
    members = member.value.members if member is not None and isinstance(member.value, MappingNode) else ()
    name = next((each for each in members if each.key == "name"), None)
    if name is not None:
        OBJECT_NAME.read(name.value, "metadata.name", name.at, validation)
    elif not validation.is_partial:
        message = f"required, but missing; expected {OBJECT_NAME.expected}"
        validation.reject(root.at if member is None else member.at, "metadata.name", message)
    texts = {
        each.key: each.value.text
        for each in members
        if isinstance(each.value, ScalarNode) and not each.value.is_null
    }
    try:
        return msgspec.convert(texts, _Metadata, strict=False)
    except msgspec.ValidationError:
        return _Metadata(texts.get("name", ""), texts.get("namespace", ""))


def _check_version(root: MappingNode, validation: Validation) -> None:
    member = root.get("apiVersion")
    expected = f"expected {SENTINEL_CONFIG.api_version}"
    if member is None:
        if not validation.is_partial:
            validation.reject(root.at, "apiVersion", f"required, but missing; {expected}")
    elif not isinstance(member.value, ScalarNode) or member.value.text != SENTINEL_CONFIG.api_version:
        validation.reject(member.value.at, "apiVersion", f"{expected}, got {describe_node(member.value)}")


def _check_broker(root: MappingNode, validation: Validation) -> Iterator[str]:
    """Check what each type of broker needs. Yields warnings."""
    values = validation.values
    match values.get("spec.broker.type"):
        case BrokerKind.GCP_PUBSUB:
            _require("projectID", broker_values.PROJECT_ID.expected, BrokerKind.GCP_PUBSUB, root, validation)
            _check_topic(root, validation)
            yield from _unused(("url", "exchange"), BrokerKind.GCP_PUBSUB, validation)
        case BrokerKind.RABBITMQ:
            _require("url", broker_values.URL.expected, BrokerKind.RABBITMQ, root, validation)
            yield from _unused(("projectID",), BrokerKind.RABBITMQ, validation)
        case _:
            pass


def _require(key: str, expected: str, kind: BrokerKind, root: MappingNode, validation: Validation) -> None:
    path = f"spec.broker.{key}"
    if path in validation.values and validation.values[path] is None:
        message = f"required with type {kind}, but missing; expected {expected}"
        validation.reject(locate(root, path), path, message)


def _check_topic(root: MappingNode, validation: Validation) -> None:
    """Pub/Sub accepts fewer names than RabbitMQ."""
    path = "spec.broker.topic"
    topic = validation.values.get(path)
    if isinstance(topic, str):
        at = locate(root, path)
        checked = validation.for_items()
        broker_values.TOPIC.read(ScalarNode(topic, at, is_plain=False), path, at, checked)
        validation.problems.extend(checked.problems)


def _unused(keys: Iterable[str], kind: BrokerKind, validation: Validation) -> Iterator[str]:
    for path in (f"spec.broker.{key}" for key in keys):
        if validation.values.get(path) is not None:
            yield f"{path} is not used with type {kind}"


def _check_search(spec: SentinelConfigSpec, root: MappingNode, validation: Validation) -> None:
    if spec.selector_param is SelectorParam.SEARCH:
        try:
            spec.shard_selector.selector.as_search_parameter()
        except NotSearchable as error:
            path = "spec.shardSelector"
            validation.reject(locate(root, path), path, f"{error}; or set selectorParam to labels")


def _objects(document: ParsedSource) -> Iterator[ParsedSource]:
    """Yield the object of a document, or those of a list, as `kubectl get --output yaml` prints it."""
    items = document.root.get("items") if document.root is not None and _kind(document) in _LISTS else None
    if items is None or not isinstance(items.value, ListNode):
        yield document
        return
    if document.problems:
        yield ParsedSource(None, document.at, document.problems)
    for item in items.value.items:
        yield ParsedSource.of(item, item.at)


def _kind(document: ParsedSource) -> str | None:
    """The kind of an object; None if it has none, or could not be read."""
    member = None if document.root is None else document.root.get("kind")
    return member.value.text if member is not None and isinstance(member.value, ScalarNode) else None


def _problems(document: ParsedSource) -> Iterator[SettingsProblem]:
    """Yield the problems of a document without a kind. Nothing at all is allowed."""
    yield from document.problems
    if document.root is not None and document.root.members:
        message = f"required, but missing; expected {SENTINEL_CONFIG.kind}, or another kind of object"
        yield SettingsProblem.at(document.at, "kind", message)

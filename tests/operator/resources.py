"""SentinelConfigs for tests: as objects, and as specs that hypothesis draws."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.operator import manifests
from sentinel.operator.sentinel_config import SentinelConfig

SPEC: dict[str, Json] = {
    "resourceType": "clusters",
    "hyperfleetAPI": {"url": "http://hyperfleet-api:8080"},
    "broker": {"type": "gcp-pubsub", "topic": "hyperfleet-events", "projectID": "hyperfleet-prod"},
}
RABBITMQ: dict[str, Json] = {"type": "rabbitmq", "topic": "hyperfleet-events", "url": "amqp://rabbitmq:5672/"}
REMOVED = object()
"""As a value in `changes`: no such field."""


def make_object(
    changes: dict[str, Any] | None = None, *, name: str = "us-east", **metadata: Json
) -> dict[str, Any]:
    """Return a SentinelConfig as the API server sends it. Keys of `changes` are paths such as `broker.url`."""
    spec: dict[str, Any] = copy.deepcopy(SPEC)
    for path, value in (changes or {}).items():
        *parents, key = path.split(".")
        target = spec
        for parent in parents:
            target = target.setdefault(parent, {})
        if value is REMOVED:
            target.pop(key, None)
        else:
            target[key] = value
    return {
        "apiVersion": "hyperfleet.redhat.com/v1alpha1",
        "kind": "SentinelConfig",
        "metadata": {"name": name, "namespace": "hyperfleet-system", **metadata},
        "spec": spec,
    }


def make_config(
    changes: dict[str, Any] | None = None, *, name: str = "us-east", **metadata: Json
) -> SentinelConfig:
    """Return a valid SentinelConfig."""
    loaded = manifests.read_object(make_object(changes, name=name, **metadata))
    assert loaded.problems == ()
    assert loaded.settings is not None
    return loaded.settings


durations = st.sampled_from(["100ms", "1.5s", "10s", "30m", "1h30m", "8760h"])
label_keys = st.sampled_from(["region", "env", "app.kubernetes.io/name", "x"])
label_values = st.sampled_from(["", "us-east", "prod", "A.b_c-1", "007"])


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        label_keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(label_values, min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        label_keys,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
selectors = _optional(
    matchLabels=st.dictionaries(label_keys, label_values, max_size=3),
    matchExpressions=st.lists(expressions, max_size=3),
)
brokers = st.one_of(
    st.builds(
        lambda more: {"type": "gcp-pubsub", "topic": "hyperfleet-events", "projectID": "prod", **more},
        _optional(credentialsSecretRef=st.just({"name": "gcp"})),
    ),
    st.builds(
        lambda more: {"type": "rabbitmq", "topic": "hyperfleet events", "url": "amqp://u:p%2Fw@rabbit/v", **more},
        _optional(
            exchange=st.sampled_from(["e", "hyperfleet events"]), credentialsSecretRef=st.just({"name": "mq"})
        ),
    ),
)
apis = st.builds(
    lambda more: {"url": "https://api.example.com/base", **more},
    _optional(
        timeout=durations,
        tokenSecretRef=st.one_of(st.just({"name": "api"}), st.just({"name": "api", "key": "jwt"})),
    ),
)
valid_specs: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda required, more: {**required, **more},
    st.fixed_dictionaries(
        {"resourceType": st.sampled_from(["clusters", "nodepools"]), "hyperfleetAPI": apis, "broker": brokers}
    ),
    _optional(
        backoffNotReady=durations,
        backoffReady=durations,
        shardSelector=selectors,
        pollInterval=durations,
        messageData=st.one_of(
            st.just({}),
            st.just(
                {"id": ".id", "nested": {"region": "{{.labels.region}}", "n": 1, "is": True}, "text": "literal"}
            ),
        ),
        messageDataTypes=st.sampled_from(["text", "native"]),
        pageSize=st.integers(1, 1000),
        generationCheck=st.booleans(),
        republishInterval=st.sampled_from(["0s", "1m"]),
        maxEventsPerSecond=st.sampled_from([0.001, 1, 2.5, 1_000_000]),
    ),
)
"""Specs that are valid. `selectorParam` is not drawn, because `search` limits the selector."""

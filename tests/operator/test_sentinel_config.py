"""What a SentinelConfig means: its pulse, its shard, its Secrets."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.events import Mode
from sentinel.core.json import Json
from sentinel.core.labels import Operator, Requirement, Selector, SelectorParam, equality
from sentinel.core.pulse.decision import Policy, Reason
from sentinel.core.pulse.message import DataTypes, reason_data
from sentinel.operator import manifests
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.definition import PulseApiSettings, PulseDefinition
from sentinel.runtime.settings.sources import from_object
from tests.operator.resources import (
    RABBITMQ,
    REMOVED,
    durations,
    label_keys,
    label_values,
    make_config,
    make_object,
    valid_specs,
)

SECOND = timedelta(seconds=1)


class TestDefinition:
    def test_defaults_are_those_of_the_crd(self) -> None:
        assert make_config().definition == PulseDefinition(
            resource_type="clusters",
            selector=Selector(),
            api=PulseApiSettings(endpoint="http://hyperfleet-api:8080", timeout=10 * SECOND, page_size=100),
            poll_interval=5 * SECOND,
            policy=Policy(max_age_not_ready=10 * SECOND, max_age_ready=timedelta(minutes=30)),
            message_data=reason_data("clusters"),
            message_data_types=DataTypes.TEXT,
            republish_interval=None,
            max_events_per_second=None,
            event_mode=Mode.STRUCTURED,
            sorts_shard_by_key=True,
        )

    def test_every_field_reaches_the_pulse(self) -> None:
        config = make_config(
            {
                "resourceType": "nodepools",
                "backoffNotReady": "1s",
                "backoffReady": "2s",
                "shardSelector": {"matchLabels": {"region": "us-east"}},
                "hyperfleetAPI": {"url": "https://api/", "timeout": "3s"},
                "pollInterval": "4s",
                "messageData": {"id": ".id"},
                "messageDataTypes": "native",
                "selectorParam": "search",
                "pageSize": 7,
                "generationCheck": False,
                "republishInterval": "0s",
                "maxEventsPerSecond": 2,
            }
        )

        assert config.definition == PulseDefinition(
            resource_type="nodepools",
            selector=Selector((equality("region", "us-east"),)),
            api=PulseApiSettings(
                endpoint="https://api", timeout=3 * SECOND, page_size=7, selector_param=SelectorParam.SEARCH
            ),
            poll_interval=4 * SECOND,
            policy=Policy(max_age_not_ready=SECOND, max_age_ready=2 * SECOND, checks_generation=False),
            message_data={"id": ".id"},
            message_data_types=DataTypes.NATIVE,
            republish_interval=timedelta(0),
            max_events_per_second=2.0,
            event_mode=Mode.STRUCTURED,
            sorts_shard_by_key=True,
        )

    @pytest.mark.parametrize(
        ("reason", "text"),
        [(Reason.GENERATION_CHANGED, "generation-changed"), (Reason.EXPIRED_READY, "backoff-expired")],
    )
    def test_without_message_data_events_have_the_reason(self, reason: Reason, text: str) -> None:
        composed = make_config({"resourceType": "nodepools"}).definition.composer.compose({"id": "np-1"}, reason)

        assert msgspec.json.decode(composed.data) == {
            "resourceType": "nodepools",
            "resourceId": "np-1",
            "reason": text,
        }

    @given(
        st.fixed_dictionaries(
            {"poll": durations, "not_ready": durations, "ready": durations, "timeout": durations},
            optional={
                "labels": st.dictionaries(label_keys, label_values, max_size=3),
                "republish": st.sampled_from(["0s", "1m"]),
                "rate": st.sampled_from([0.5, 3]),
                "page_size": st.integers(1, 1000),
                "checks": st.booleans(),
                "param": st.sampled_from(["labels", "search"]),
                "types": st.sampled_from(["text", "native"]),
            },
        )
    )
    def test_a_settings_file_that_says_the_same_defines_the_same_pulse(self, said: dict[str, Json]) -> None:
        data: Json = {"id": ".id", "nested": {"region": ".labels.region"}}
        labels = said.get("labels", {})
        assert isinstance(labels, dict)

        def given_only(**fields: str) -> dict[str, Json]:
            return {field: said[name] for field, name in fields.items() if name in said}

        config = make_config(
            {
                "backoffNotReady": said["not_ready"],
                "backoffReady": said["ready"],
                "pollInterval": said["poll"],
                "hyperfleetAPI.timeout": said["timeout"],
                "shardSelector": {"matchLabels": labels},
                "messageData": data,
                **given_only(
                    republishInterval="republish",
                    maxEventsPerSecond="rate",
                    pageSize="page_size",
                    generationCheck="checks",
                    selectorParam="param",
                    messageDataTypes="types",
                ),
            }
        )
        file: Json = {
            "resource_type": "clusters",
            "poll_interval": said["poll"],
            "max_age_not_ready": said["not_ready"],
            "max_age_ready": said["ready"],
            "resource_selector": [{"label": key, "value": labels[key]} for key in sorted(labels)],
            "hyperfleet_api": {
                "endpoint": "http://hyperfleet-api:8080",
                "timeout": said["timeout"],
                **given_only(page_size="page_size", selector_param="param"),
            },
            "message_data": data,
            **given_only(
                republish_interval="republish",
                max_events_per_second="rate",
                generation_check="checks",
                message_data_types="types",
            ),
        }
        settings = pulse_settings.load(document=from_object(file, "file"), environ={}).settings

        assert settings is not None
        assert msgspec.structs.replace(settings.definition, sorts_shard_by_key=True) == config.definition


class TestSelector:
    def test_labels_and_expressions_are_one_selector_sorted_by_key(self) -> None:
        config = make_config(
            {
                "shardSelector": {
                    "matchLabels": {"x": "", "region": "us-east"},
                    "matchExpressions": [
                        {"key": "tier", "operator": "In", "values": ["b", "a"]},
                        {"key": "env", "operator": "NotIn", "values": ["dev"]},
                        {"key": "gpu", "operator": "Exists"},
                        {"key": "old", "operator": "DoesNotExist", "values": []},
                    ],
                }
            }
        )

        assert config.definition.shard == "env notin (dev),gpu,!old,region=us-east,tier in (a,b),x="
        assert config.selector.requirements[0] == Requirement("env", Operator.NOT_IN, ("dev",))

    def test_labels_alone_are_sorted_by_key_in_the_shard(self) -> None:
        config = make_config({"shardSelector": {"matchLabels": {"env-2": "a", "env": "b"}}})

        assert config.definition.shard == "env=b,env-2=a"

    @pytest.mark.parametrize("selector", [{}, {"matchLabels": {}}, {"matchExpressions": []}, REMOVED])
    def test_an_empty_selector_watches_everything(self, selector: object) -> None:
        assert make_config({"shardSelector": selector}).definition.shard == "all"

    def test_the_order_of_writing_makes_no_difference(self) -> None:
        expressions = [
            {"key": "a", "operator": "Exists"},
            {"key": "a", "operator": "In", "values": ["2", "1"]},
            {"key": "b", "operator": "In", "values": ["1"]},
        ]
        one = make_config({"shardSelector": {"matchExpressions": expressions}})
        other = make_config({"shardSelector": {"matchExpressions": expressions[::-1]}}, name="other")

        assert one.definition == other.definition
        assert one.shard_key == other.shard_key

    def test_a_set_of_one_value_is_shown_as_kubernetes_writes_it(self) -> None:
        expressions = [{"key": "region", "operator": "In", "values": ["a", "a"]}]
        one = make_config({"shardSelector": {"matchExpressions": expressions}})
        other = make_config({"shardSelector": {"matchLabels": {"region": "a"}}})

        assert (one.definition.shard, other.definition.shard) == ("region in (a)", "region=a")
        assert one.shard_key == other.shard_key
        assert one.selector.as_parameter(SelectorParam.LABELS) == "region=a"

    def test_another_type_or_selector_is_another_shard(self) -> None:
        keys = {
            make_config(changes).shard_key
            for changes in (
                {},
                {"resourceType": "nodepools"},
                {"shardSelector": {"matchLabels": {"region": "us"}}},
                {"shardSelector": {"matchExpressions": [{"key": "region", "operator": "Exists"}]}},
            )
        }

        assert len(keys) == 4


class TestSecrets:
    def test_it_names_the_secrets_that_it_needs(self) -> None:
        config = make_config(
            {
                "hyperfleetAPI.tokenSecretRef": {"name": "api"},
                "broker": {**RABBITMQ, "credentialsSecretRef": {"name": "rabbitmq"}},
            }
        )

        assert config.secret_names == {"api", "rabbitmq"}
        assert config.spec.hyperfleet_api.token_secret_ref is not None
        assert config.spec.hyperfleet_api.token_secret_ref.key == "token"
        assert make_config().secret_names == frozenset()

    def test_the_password_in_a_url_is_masked_and_returned_for_redaction(self) -> None:
        broker = {**RABBITMQ, "url": "amqp://user:hunt%2Fer2@rabbitmq/"}

        loaded = manifests.read_object(make_object({"broker": broker}))

        assert loaded.settings is not None
        assert "hunt" not in repr(loaded)
        assert {"hunt%2Fer2", "hunt/er2"} <= {secret.reveal() for secret in loaded.secrets}


@given(valid_specs)
def test_every_valid_spec_defines_a_pulse(spec: dict[str, Json]) -> None:
    loaded = manifests.read_object(make_object() | {"spec": spec})

    assert loaded.problems == ()
    assert loaded.settings is not None
    assert loaded.settings.definition.composer is not None
    assert loaded.settings.definition == loaded.settings.definition

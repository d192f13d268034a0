"""Settings from a parsed object are the same as from a file, without positions."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.settings import LabelMatch, PulseSettings
from sentinel.runtime.settings.broker import BrokerSettings, load_broker
from sentinel.runtime.settings.config_tree import MAX_DEPTH, MAX_VALUES
from sentinel.runtime.settings.report import EffectiveSetting, Loaded, SettingsProblem
from sentinel.runtime.settings.schema import section
from sentinel.runtime.settings.sources import from_object

NAME = "sentinelconfig/us-east"
MINIMAL: dict[str, Json] = {"resource_type": "clusters", "hyperfleet_api": {"endpoint": "http://api:8000"}}
PROCESS = {"SENTINEL_POLL_INTERVAL": "1s", "BROKER_EXCHANGE": "of-the-process"}
"""Variables of a process that loads settings for others."""


def load(document: Json, **sources: object) -> Loaded[PulseSettings]:
    environ = sources.pop("environ", {})
    return pulse_settings.load(document=from_object(document, NAME), environ=environ, **sources)  # type: ignore[arg-type] # passed through


def valid(document: Json, **sources: object) -> PulseSettings:
    loaded = load(document, **sources)
    assert loaded.problems == ()
    assert loaded.settings is not None
    return loaded.settings


class TestValues:
    def test_an_object_means_the_same_as_its_yaml(self) -> None:
        pulse = valid(
            {
                "resource_type": "nodepools",
                "poll_interval": "500ms",
                "resource_selector": [{"label": "region", "value": "us-east"}, {"label": "tier", "value": 12}],
                "hyperfleet_api": {"endpoint": "http://api:8000", "page_size": 50, "gzip": True},
                "message_data": {"id": ".id", "nested": {"version": 1.5, "paid": False}},
                "republish_interval": None,
                "max_events_per_second": 2,
            }
        )

        assert pulse.poll_interval == timedelta(milliseconds=500)
        assert pulse.resource_selector == (LabelMatch("region", "us-east"), LabelMatch("tier", "12"))
        assert (pulse.hyperfleet_api.page_size, pulse.hyperfleet_api.gzip) == (50, True)
        assert pulse.message_data == {"id": ".id", "nested": {"version": "1.5", "paid": "false"}}
        assert (pulse.republish_interval, pulse.max_events_per_second) == (None, 2.0)

    def test_the_string_null_stays_a_string(self) -> None:
        pulse = valid(MINIMAL | {"resource_selector": [{"label": "island", "value": "null"}]})

        assert pulse.resource_selector == (LabelMatch("island", "null"),)

    def test_every_setting_names_the_object_as_its_origin(self) -> None:
        entries = load(MINIMAL).entries

        assert EffectiveSetting("resource_type", "clusters", f"object {NAME}") in entries
        assert EffectiveSetting("poll_interval", "5s", "default") in entries


class TestPrecedence:
    def test_variables_of_the_process_do_not_leak_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in PROCESS.items():
            monkeypatch.setenv(name, text)

        assert valid(MINIMAL).poll_interval == timedelta(seconds=5)

    def test_a_given_environment_and_flags_override_the_object(self) -> None:
        document = MINIMAL | {"poll_interval": "9s", "max_age_ready": "9s", "max_age_not_ready": "9s"}

        pulse = valid(document, environ=PROCESS, sets=["max_age_ready=2s"], defaults={"max_age_not_ready": "3s"})

        assert pulse.poll_interval == timedelta(seconds=1)
        assert pulse.max_age_ready == timedelta(seconds=2)
        assert pulse.max_age_not_ready == timedelta(seconds=9)

    def test_a_secret_can_be_given_without_the_process_environment(self) -> None:
        token = valid(MINIMAL, environ={"HYPERFLEET_API_TOKEN": "of-a-secret"}).hyperfleet_api.token

        assert token is not None
        assert token.reveal() == "of-a-secret"

    def test_a_file_and_an_object_together_raise_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="a file or a document"):
            pulse_settings.load(file=tmp_path / "f", document=from_object({}, NAME), environ={})
        with pytest.raises(TypeError, match="a source or a document"):
            load_broker(source=tmp_path / "f", document=from_object({}, NAME), environ={})


class TestProblems:
    def test_a_problem_has_its_path_and_the_name_of_the_object(self) -> None:
        loaded = load(MINIMAL | {"resource_selector": [{"label": "region"}], "poll_interval": 5})

        assert loaded.settings is None
        assert set(loaded.problems) == {
            SettingsProblem(
                None,
                None,
                None,
                "poll_interval",
                f'expected a duration such as 5s, got "5" (object {NAME})',
            ),
            SettingsProblem(
                None,
                None,
                None,
                "resource_selector[0].value",
                "required, but missing; expected the value of a label, without commas and equals signs"
                f" (object {NAME})",
            ),
        }

    def test_an_unknown_key_is_rejected_with_a_suggestion(self) -> None:
        (problem,) = load(MINIMAL | {"pol_interval": "5s"}).problems

        assert problem.field == "pol_interval"
        assert problem.message == f"unknown key; did you mean poll_interval? (object {NAME})"

    def test_a_missing_setting_is_missing_from_the_object(self) -> None:
        (problem,) = load(
            {"resource_type": "clusters"}, environ={"SENTINEL_HYPERFLEET_API__TIMEOUT": "1s"}
        ).problems

        assert problem.field == "hyperfleet_api.endpoint"
        assert problem.message.endswith(f"(object {NAME})")

    def test_a_secret_in_an_object_is_rejected(self) -> None:
        document = MINIMAL | {"hyperfleet_api": {"endpoint": "http://api:8000", "token": "abc"}}

        (problem,) = load(document).problems

        assert problem.field == "hyperfleet_api.token"
        assert "abc" not in problem.message

    @pytest.mark.parametrize(("document", "got"), [(["a"], "a list"), ("a", "text"), (5, "text"), (True, "text")])
    def test_a_document_that_is_not_a_mapping_is_rejected(self, document: Json, got: str) -> None:
        (problem,) = load(document).problems

        assert problem == SettingsProblem(
            None, None, None, "", f"expected a mapping of settings, got {got} (object {NAME})"
        )

    def test_null_is_an_empty_mapping(self) -> None:
        assert {problem.field for problem in load(None).problems} == {"resource_type", "hyperfleet_api.endpoint"}


def nested(levels: int) -> Json:
    value: Json = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


class TestLimits:
    """The same limits apply to objects and files."""

    @pytest.mark.parametrize(("levels", "is_rejected"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True), (300, True)])
    def test_an_object_may_be_as_deep_as_a_file(self, tmp_path: Path, levels: int, is_rejected: bool) -> None:
        message = f"expected at most {MAX_DEPTH} levels, got more"

        for loaded in load_both_ways(tmp_path, nested(levels)):
            assert any(message in problem.message for problem in loaded.problems) is is_rejected

    # The root, the key and the list count as well.
    @pytest.mark.parametrize(("items", "is_rejected"), [(MAX_VALUES - 3, False), (MAX_VALUES - 2, True)])
    def test_an_object_may_have_as_many_values_as_a_file(
        self, tmp_path: Path, items: int, is_rejected: bool
    ) -> None:
        message = f"expected at most {MAX_VALUES} values"

        for loaded in load_both_ways(tmp_path, {"resource_selector": [1] * items}):
            assert any(message in problem.message for problem in loaded.problems) is is_rejected

    def test_an_object_that_contains_itself_is_rejected(self) -> None:
        document: dict[str, Json] = {}
        document["message_data"] = document

        (problem,) = load(document).problems

        assert problem.message.startswith(f"expected at most {MAX_DEPTH} levels")


def load_both_ways(tmp_path: Path, document: Json) -> tuple[Loaded[PulseSettings], Loaded[PulseSettings]]:
    """Load the document from a file and as an object."""
    file = tmp_path / "sentinel.yaml"
    file.write_text(as_yaml(document))
    return pulse_settings.load(file=file, environ={}), load(document)


def as_yaml(document: Json) -> str:
    """Return JSON that is also YAML, which differs in line breaks within strings and surrogate pairs."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return re.sub("[^\x20-\x7e]", escape, json.dumps(document, ensure_ascii=False, allow_nan=False))


texts = st.text(max_size=20) | st.sampled_from(
    [".id", "{{.id}}", "{{", "5s", "0s", "null", "true", "", "~", "10", "http://api:8000", "region", "search"]
)
inner_keys = st.sampled_from(["label", "value", "endpoint", "token", "level"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | inner_keys, inner, max_size=4),
    max_leaves=12,
)


def mappings(known: list[str]) -> st.SearchStrategy[dict[str, Json]]:
    """Generate mappings with some known keys, some of them with valid values."""
    return st.dictionaries(st.sampled_from(known) | texts, values, max_size=5)


def summarize(loaded: Loaded[PulseSettings] | Loaded[BrokerSettings]) -> tuple[object, ...]:
    """Return the result of loading without positions."""
    problems = Counter(
        (problem.field, problem.message.removesuffix(f" (object {NAME})")) for problem in loaded.problems
    )
    entries = [(entry.key, entry.value, entry.origin == "default") for entry in loaded.entries]
    return loaded.settings, problems, entries, loaded.warnings, [secret.reveal() for secret in loaded.secrets]


class TestEqualToAFile:
    @given(mappings(section(PulseSettings).keys()), st.booleans())
    @hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_an_object_loads_like_the_file_of_the_same_content(
        self, tmp_path: Path, document: dict[str, Json], is_completed: bool
    ) -> None:
        if is_completed:
            document = document | MINIMAL

        from_file, from_document = load_both_ways(tmp_path, document)

        assert summarize(from_document) == summarize(from_file)
        positions = {(problem.file, problem.line, problem.column) for problem in from_document.problems}
        assert positions <= {(None, None, None)}

    @given(
        mappings(section(BrokerSettings).keys()),
        st.sampled_from(["rabbitmq", "pubsub", "stdout", None]),
        st.booleans(),
    )
    @hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_broker_object_loads_like_the_file_of_the_same_content(
        self, tmp_path: Path, document: dict[str, Json], kind: str | None, is_manifest: bool
    ) -> None:
        if kind is not None:
            document = document | {"BROKER_TYPE": kind, "BROKER_HOST": "rabbit", "BROKER_PROJECT_ID": "p"}
        if is_manifest:
            document = {"kind": "ConfigMap", "data": document}
        file = tmp_path / "broker.yaml"
        file.write_text(as_yaml(document))

        from_file = load_broker(source=file, environ={})
        from_document = load_broker(document=from_object(document, NAME), environ={})

        assert summarize(from_document) == summarize(from_file)


class TestBroker:
    def test_broker_settings_may_come_from_an_object(self) -> None:
        document: Json = {"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "rabbit", "BROKER_PORT": 5673}

        loaded = load_broker(document=from_object(document, NAME), environ={})

        assert loaded.settings is not None
        assert (loaded.settings.host, loaded.settings.port) == ("rabbit", 5673)
        assert loaded.settings.exchange == "hyperfleet-events"
        assert EffectiveSetting("BROKER_PORT", "5673", f"object {NAME}") in loaded.entries

    @pytest.mark.parametrize(
        ("environ", "exchange"), [({}, "of-the-object"), (PROCESS, "of-the-process")], ids=["without", "with"]
    )
    def test_only_a_given_environment_overrides_the_object(self, environ: dict[str, str], exchange: str) -> None:
        document: Json = {"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "h", "BROKER_EXCHANGE": "of-the-object"}

        loaded = load_broker(document=from_object(document, NAME), environ=environ)

        assert loaded.settings is not None
        assert loaded.settings.exchange == exchange

    @pytest.mark.parametrize(
        ("document", "field", "message"),
        [
            ({"BROKER_TYPE": "rabitmq"}, "BROKER_TYPE", "did you mean rabbitmq?"),
            ({"BROKER_TYPE": "stdout", "BROKER_TOPC": "t"}, "BROKER_TOPC", "did you mean BROKER_TOPIC?"),
            ({"BROKER_TYPE": "pubsub"}, "BROKER_PROJECT_ID", "required, but missing"),
            ({}, "BROKER_TYPE", "required, but missing"),
        ],
    )
    def test_a_problem_names_the_key_and_the_object(self, document: Json, field: str, message: str) -> None:
        (problem,) = load_broker(document=from_object(document, NAME), environ={}).problems

        assert (problem.file, problem.field) == (None, field)
        assert message in problem.message
        assert problem.message.endswith(f"(object {NAME})")

    def test_a_password_in_an_object_is_not_shown(self) -> None:
        document: Json = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://user:s3cret@rabbit"}

        loaded = load_broker(document=from_object(document, NAME), environ={})

        assert "s3cret" not in "".join(entry.value for entry in loaded.entries)
        assert "s3cret" in [secret.reveal() for secret in loaded.secrets]

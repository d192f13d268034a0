"""Every setting of a pulse, every source, their precedence, and all problems in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sentinel.core.events import Mode
from sentinel.core.labels import SelectorParam
from sentinel.core.pulse.message import DataTypes
from sentinel.pulse.settings import LabelMatch, PulseSettings, load
from sentinel.runtime.log import LogFormat, LogLevel
from sentinel.runtime.settings.report import EffectiveSetting, Loaded, SettingsProblem
from sentinel.runtime.settings.schema import section
from tests.support.examples import examples

MINIMAL = "resource_type: clusters\nhyperfleet_api:\n  endpoint: http://api:8000\n"


class Load(Protocol):
    def __call__(
        self, text: str, environ: Mapping[str, str] | None = None, sets: Sequence[str] = ()
    ) -> Loaded[PulseSettings]: ...


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    def load_text(
        text: str, environ: Mapping[str, str] | None = None, sets: Sequence[str] = ()
    ) -> Loaded[PulseSettings]:
        file = tmp_path / "sentinel.yaml"
        file.write_text(text)
        return load(file=file, environ=environ or {}, sets=sets)

    return load_text


@pytest.fixture
def settings(loaded: Load) -> Callable[..., PulseSettings]:
    def load_valid(text: str, **sources: object) -> PulseSettings:
        result = loaded(text, **sources)  # type: ignore[arg-type] # passed through
        assert result.problems == ()
        assert result.settings is not None
        return result.settings

    return load_valid


@pytest.fixture
def problems(loaded: Load) -> Callable[..., list[tuple[int | None, str, str]]]:
    def load_invalid(text: str, **sources: object) -> list[tuple[int | None, str, str]]:
        result = loaded(text, **sources)  # type: ignore[arg-type] # passed through
        assert result.settings is None
        assert result.entries == ()
        return [(problem.line, problem.field, problem.message) for problem in result.problems]

    return load_invalid


Settings = Callable[..., PulseSettings]
Problems = Callable[..., list[tuple[int | None, str, str]]]


class TestValues:
    def test_defaults_apply_to_unwritten_settings(self, settings: Settings) -> None:
        pulse = settings(MINIMAL)

        assert pulse.resource_type == "clusters"
        assert pulse.poll_interval == timedelta(seconds=5)
        assert pulse.max_age_not_ready == timedelta(seconds=10)
        assert pulse.max_age_ready == timedelta(minutes=30)
        assert pulse.resource_selector == ()
        assert pulse.message_data == {"resource_id": ".id", "resource_type": ".kind"}
        assert pulse.message_data_types is DataTypes.TEXT
        assert pulse.max_age_jitter == pulse.definition.policy.max_age_jitter == 0
        assert pulse.generation_check is True
        assert pulse.pulse_on_progress is False
        assert pulse.republish_interval is None
        assert pulse.max_events_per_second is None
        assert pulse.event_mode is Mode.STRUCTURED
        assert pulse.definition.shard == "all"
        api = pulse.hyperfleet_api
        assert (api.endpoint, api.selector_param) == ("http://api:8000", SelectorParam.LABELS)
        assert (api.timeout, api.page_size) == (timedelta(seconds=10), 100)
        assert (api.token_file, api.ca_file, api.gzip, api.token) == (None, None, False, None)
        assert (pulse.log.level, pulse.log.format) == (LogLevel.INFO, None)

    def test_every_key_is_read_from_the_file(self, settings: Settings) -> None:
        pulse = settings("""
resource_type: nodepools
poll_interval: 500ms
max_age_not_ready: 1m
max_age_ready: 1h30m
max_age_jitter: 0.25
resource_selector:
  - {label: region, value: us-east}
  - label: app.kubernetes.io/tier
    value: 12
hyperfleet_api:
  endpoint: https://api.example:8443/fleet/
  timeout: 3s
  page_size: 1000
  selector_param: search
  token_file: /var/run/token
  ca_file: ca.pem
  gzip: on
message_data:
  id: .id
  nested: {version: 1.10, deep: {enabled: true}}
message_data_types: native
generation_check: no
pulse_on_progress: yes
republish_interval: 0s
max_events_per_second: 0.5
event_mode: binary
log: {level: debug, format: console}
""")

        assert pulse.resource_type == "nodepools"
        assert pulse.poll_interval == timedelta(milliseconds=500)
        assert pulse.max_age_not_ready == timedelta(minutes=1)
        assert pulse.max_age_ready == timedelta(minutes=90)
        assert pulse.resource_selector == (
            LabelMatch("region", "us-east"),
            LabelMatch("app.kubernetes.io/tier", "12"),
        )
        assert pulse.definition.shard == "app.kubernetes.io/tier=12,region=us-east"
        api = pulse.hyperfleet_api
        assert api.endpoint == "https://api.example:8443/fleet"
        assert api.timeout == timedelta(seconds=3)
        assert api.page_size == 1000
        assert api.selector_param is SelectorParam.SEARCH
        assert (api.token_file, api.ca_file, api.gzip) == (Path("/var/run/token"), Path("ca.pem"), True)
        assert pulse.message_data == {"id": ".id", "nested": {"version": "1.10", "deep": {"enabled": "true"}}}
        assert pulse.message_data_types is DataTypes.NATIVE
        assert pulse.max_age_jitter == pulse.definition.policy.max_age_jitter == 0.25
        assert pulse.generation_check is False
        assert pulse.pulse_on_progress is pulse.definition.policy.follows_progress is True
        assert pulse.republish_interval == timedelta(0)
        assert pulse.max_events_per_second == 0.5
        assert pulse.event_mode is Mode.BINARY
        assert (pulse.log.level, pulse.log.format) == (LogLevel.DEBUG, LogFormat.CONSOLE)

    @pytest.mark.parametrize("spelling", ["true", "True", "TRUE", "yes", "on", "'true'"])
    def test_a_boolean_may_be_spelled_as_in_yaml(self, settings: Settings, spelling: str) -> None:
        assert settings(f"{MINIMAL}  gzip: {spelling}\n").hyperfleet_api.gzip is True

    @pytest.mark.parametrize(
        "value", ["us-east", "123", "no", "null-island", "'null'", "''", "1.0", "o'brien", "ü b"]
    )
    def test_the_value_of_a_label_is_its_text(self, settings: Settings, value: str) -> None:
        pulse = settings(f"{MINIMAL}resource_selector: [{{label: a, value: {value}}}]\n")

        assert pulse.resource_selector == (LabelMatch("a", value.strip("'") if value[0] == "'" else value),)

    def test_null_unsets_optional_settings(self, settings: Settings) -> None:
        pulse = settings(MINIMAL + "republish_interval:\nmax_events_per_second: null\nlog: {format: ~}\n")

        assert (pulse.republish_interval, pulse.max_events_per_second, pulse.log.format) == (None, None, None)

    def test_the_token_comes_from_its_variable(self, settings: Settings) -> None:
        pulse = settings(MINIMAL, environ={"HYPERFLEET_API_TOKEN": "abc\n"})

        assert pulse.hyperfleet_api.token is not None
        assert pulse.hyperfleet_api.token.reveal() == "abc"

    def test_an_empty_token_is_unset(self, settings: Settings) -> None:
        assert settings(MINIMAL, environ={"HYPERFLEET_API_TOKEN": " "}).hyperfleet_api.token is None


class TestSources:
    def test_flags_override_the_environment_which_overrides_the_file(self, loaded: Load) -> None:
        text = MINIMAL + "  timeout: 1s\n  page_size: 1\n  gzip: true\npoll_interval: 1s\n"
        environ = {"SENTINEL_HYPERFLEET_API__TIMEOUT": "2s", "SENTINEL_HYPERFLEET_API__PAGE_SIZE": "2"}

        result = loaded(text, environ, ["hyperfleet_api.timeout=3s"])

        assert result.settings is not None
        api = result.settings.hyperfleet_api
        assert (api.timeout, api.page_size, api.gzip) == (timedelta(seconds=3), 2, True)
        file = result.entries[0].origin.removesuffix(":1")
        assert set(result.entries) >= {
            EffectiveSetting("hyperfleet_api.timeout", "3s", "flag --set"),
            EffectiveSetting("hyperfleet_api.page_size", "2", "environment SENTINEL_HYPERFLEET_API__PAGE_SIZE"),
            EffectiveSetting("hyperfleet_api.gzip", "true", f"{file}:6"),
            EffectiveSetting("poll_interval", "1s", f"{file}:7"),
            EffectiveSetting("max_age_ready", "30m", "default"),
            EffectiveSetting("resource_selector", "[]", "default"),
            EffectiveSetting("republish_interval", "", "default"),
        }

    def test_every_setting_may_come_from_the_environment(self) -> None:
        environ = {
            "SENTINEL_RESOURCE_TYPE": "clusters",
            "SENTINEL_HYPERFLEET_API__ENDPOINT": "http://api",
            "SENTINEL_RESOURCE_SELECTOR": "[{label: region, value: us-east}]",
            "SENTINEL_MESSAGE_DATA": '{"id": ".id", "n": 1}',
            "SENTINEL_LOG": "{level: error}",
            "SENTINEL_LOG__FORMAT": "json",
        }

        result = load(file=None, environ=environ)

        assert result.problems == ()
        assert result.settings is not None
        assert result.settings.resource_selector == (LabelMatch("region", "us-east"),)
        assert result.settings.message_data == {"id": ".id", "n": "1"}
        assert (result.settings.log.level, result.settings.log.format) == (LogLevel.ERROR, LogFormat.JSON)

    def test_an_empty_file_is_completed_by_the_environment(self, settings: Settings) -> None:
        environ = {"SENTINEL_RESOURCE_TYPE": "clusters", "SENTINEL_HYPERFLEET_API__ENDPOINT": "http://api"}

        assert settings("", environ=environ).resource_type == "clusters"

    def test_the_last_of_two_flags_wins(self, settings: Settings) -> None:
        assert settings(MINIMAL, sets=["poll_interval=1s", "poll_interval=2s"]).poll_interval == timedelta(
            seconds=2
        )

    def test_a_mapping_set_as_a_whole_replaces_strings_but_not_sections(self, settings: Settings) -> None:
        text = MINIMAL + "  timeout: 1s\nmessage_data: {a: .a, b: .b}\n"

        pulse = settings(text, sets=["message_data={c: .c}", "hyperfleet_api={page_size: 7}"])

        assert pulse.message_data == {"c": ".c"}
        assert (pulse.hyperfleet_api.page_size, pulse.hyperfleet_api.timeout) == (7, timedelta(seconds=1))

    @pytest.mark.parametrize(
        ("text", "others"),
        [
            ("message_data: {a: .a, region: .b}\n", {"a": ".a"}),
            ("", {"resource_id": ".id", "resource_type": ".kind"}),
        ],
    )
    def test_one_value_of_a_mapping_can_be_set(
        self, settings: Settings, text: str, others: Mapping[str, object]
    ) -> None:
        pulse = settings(
            MINIMAL + text, environ={"SENTINEL_MESSAGE_DATA__DEEP__C": "1"}, sets=["message_data.region=x=y"]
        )

        assert pulse.message_data == {**others, "region": "x=y", "deep": {"c": "1"}}

    def test_overrides_have_the_highest_precedence_and_defaults_the_lowest(self, tmp_path: Path) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(MINIMAL + "max_age_ready: 7s\n")

        result = load(
            file=file,
            environ={"SENTINEL_RESOURCE_TYPE": "x"},
            sets=["log.level=error", "resource_type=y"],
            overrides={"log.level": "debug", "resource_type": "nodepools"},
            defaults={"poll_interval": "1s", "max_age_ready": "2s", "message_data.z": ".z"},
        )

        assert result.settings is not None
        assert result.settings.log.level is LogLevel.DEBUG
        assert result.settings.resource_type == "nodepools"
        assert result.settings.poll_interval == timedelta(seconds=1)
        assert result.settings.max_age_ready == timedelta(seconds=7)
        assert EffectiveSetting("log.level", "debug", "flag --log-level") in result.entries
        assert EffectiveSetting("poll_interval", "1s", "default") in result.entries

    def test_a_problem_of_a_variable_or_a_flag_names_it(self, loaded: Load) -> None:
        result = loaded(MINIMAL, {"SENTINEL_POLL_INTERVAL": "5"}, ["max_age_ready=x"])

        assert set(result.problems) == {
            SettingsProblem(
                None,
                None,
                None,
                "poll_interval",
                'expected a duration such as 5s, got "5" (environment SENTINEL_POLL_INTERVAL)',
            ),
            SettingsProblem(
                None, None, None, "max_age_ready", 'expected a duration such as 5s, got "x" (flag --set)'
            ),
        }

    @pytest.mark.parametrize(
        ("flag", "expected"),
        [
            ("pol_interval=5s", ("pol_interval", "did you mean poll_interval?")),
            ("hyperfleet_api.timeot=5s", ("hyperfleet_api.timeot", "did you mean hyperfleet_api.timeout?")),
            ("timeout=5s", ("timeout", "did you mean hyperfleet_api.timeout?")),
            ("poll_interval.x=5s", ("poll_interval.x", "unknown key")),
            ("poll_interval", ("poll_interval", "expected KEY=VALUE")),
            ("=x", ("", "unknown key")),
            ("resource_selector[0].label=x", ("resource_selector[0].label", "whole list at once")),
            ("resource_selector.0=x", ("resource_selector.0", "whole list at once")),
            ("resource_selector=[", ("resource_selector", "syntax error")),
            ("resource_selector=", ("resource_selector", "got nothing")),
            ("resource_selector=[{label: a}]", ("resource_selector[0].value", "required")),
            ("message_data={a: 1, a: 2}", ("message_data.a", "duplicate key")),
            ("message_data.a=", ("message_data.a", "got nothing")),
            ("message_data..a=x", ("message_data", "expected a name")),
            ("resource_selector=[{label: a, label: b, value: c}]", ("resource_selector[0].label", "duplicate")),
            ("hyperfleet_api.token=x", ("hyperfleet_api.token", "HYPERFLEET_API_TOKEN")),
            ("log=x", ("log", "expected a mapping")),
            ("resource_type=\udcff", ("resource_type", "UTF-8")),
            ("\udcff=x", ("\\udcff", "unknown key")),
            ("message_data.\udcff=x", ("message_data", "UTF-8")),
            ("message_data.a=\udcff", ("message_data.a", "UTF-8")),
            ("message_data={a: \udcff}", ("message_data", "control character")),
        ],
    )
    def test_an_invalid_flag_is_a_problem(self, problems: Problems, flag: str, expected: tuple[str, str]) -> None:
        field, text = expected

        ((line, got_field, message),) = problems(MINIMAL, sets=[flag])

        assert (line, got_field) == (None, field)
        assert text in message
        assert message.endswith("(flag --set)")

    @pytest.mark.parametrize(
        ("variable", "meant"),
        [
            ("SENTINEL_POL_INTERVAL", "SENTINEL_POLL_INTERVAL"),
            ("SENTINEL_HYPERFLEET_API_TIMEOUT", "SENTINEL_HYPERFLEET_API__TIMEOUT"),
            ("SENTINEL_LOG_LEVEL", "SENTINEL_LOG__LEVEL"),
            ("SENTINEL_HYPERFLEET_API__TOKEN", "HYPERFLEET_API_TOKEN"),
            ("SENTINEL_MESSAGEDATA", "SENTINEL_MESSAGE_DATA"),
        ],
    )
    def test_a_misspelled_variable_causes_a_warning(self, loaded: Load, variable: str, meant: str) -> None:
        result = loaded(MINIMAL, {variable: "x"})

        assert result.settings is not None
        (warning,) = result.warnings
        assert variable in warning
        assert warning.endswith(f"did you mean {meant}?")

    @pytest.mark.parametrize(
        "variable",
        [
            "SENTINEL_SERVER",
            "SENTINEL_TOKEN",
            "SENTINEL_REQUIRE_ALL",
            "SENTINEL_DEBOUNCE_WINDOW_SECONDS",
            "SENTINEL_REGISTRATION_TOKEN",
            "SENTINEL_SERVICE_HOST",
            "SENTINEL_SERVICE_PORT",
            "SENTINEL_SERVICE_PORT_METRICS",
            "SENTINEL_PORT",
            "SENTINEL_PORT_8080_TCP",
            "SENTINEL_PORT_8080_TCP_ADDR",
            "SENTINEL_LOG_LEVEL_SERVICE_HOST",
            "SENTINEL_SOMETHING_ELSE",
            "SENTINEL_",
            "POLL_INTERVAL",
        ],
    )
    def test_an_unrelated_variable_is_ignored(self, loaded: Load, variable: str) -> None:
        result = loaded(MINIMAL, {variable: "x"})

        assert result.settings is not None
        assert result.warnings == ()

    def test_two_tokens_cause_a_warning(self, loaded: Load) -> None:
        result = loaded(MINIMAL + "  token_file: t\n", {"HYPERFLEET_API_TOKEN": "x"})

        assert result.warnings == ("HYPERFLEET_API_TOKEN wins over hyperfleet_api.token_file",)


class TestProblems:
    def test_all_problems_are_reported_in_the_order_of_the_file(self, problems: Problems) -> None:
        found = problems(
            """
resource_type: clus/ters
pol_interval: 5s
poll_interval: 5
max_age_ready: 1m
max_age_ready: 30m
resource_selector:
  - lable: region
    value: a,b
  - text
hyperfleet_api:
  timeout: 0s
  page_size: 1001
  token: hunter2
message_data:
  a: [1]
  b: {c: , d: ''}
republish_interval: -1s
""",
            sets=["nonsense=1"],
        )

        assert [(line, field) for line, field, _ in found] == [
            (2, "resource_type"),
            (3, "pol_interval"),
            (4, "poll_interval"),
            (6, "max_age_ready"),
            (8, "resource_selector[0].lable"),
            (8, "resource_selector[0].label"),
            (9, "resource_selector[0].value"),
            (10, "resource_selector[1]"),
            (11, "hyperfleet_api.endpoint"),
            (12, "hyperfleet_api.timeout"),
            (13, "hyperfleet_api.page_size"),
            (14, "hyperfleet_api.token"),
            (16, "message_data.a"),
            (17, "message_data.b.c"),
            (17, "message_data.b.d"),
            (18, "republish_interval"),
            (None, "nonsense"),
        ]
        assert not any("hunter2" in message for _, _, message in found)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("poll_interval: 5", 'expected a duration such as 5s, got "5"'),
            ("poll_interval: 1:30", 'expected a duration such as 5s, got "1:30"'),
            ("poll_interval: 010", 'expected a duration such as 5s, got "010"'),
            ("poll_interval:", "expected a duration such as 5s, got nothing"),
            ("poll_interval: [5s]", "expected a duration such as 5s, got a list"),
            ("poll_interval: {a: 5s}", "expected a duration such as 5s, got a mapping"),
            ("max_age_ready: 0s", 'expected a duration such as 5s, got "0s"; at least 1us'),
            ("max_age_ready: -5s", 'expected a duration such as 5s, got "-5s"; at least 1us'),
            ("max_age_ready: 1ns", 'expected a duration such as 5s, got "1ns"; at least 1us'),
            ("poll_interval: 0s", 'expected a duration such as 5s, got "0s"; at least 100ms'),
            ("poll_interval: 99ms", 'expected a duration such as 5s, got "99ms"; at least 100ms'),
            ("poll_interval: 8761h", 'expected a duration such as 5s, got "8761h"; at most 8760h'),
            ("republish_interval: -1s", 'expected a duration such as 5s, got "-1s"; at least 0s'),
            ("generation_check: 1", 'expected true or false, got "1"'),
            ("generation_check: tRUE", 'expected true or false, got "tRUE"'),
            ("event_mode: Binary", 'expected one of structured, binary, got "Binary"; did you mean binary?'),
            ("event_mode: 1", 'expected one of structured, binary, got "1"'),
            ("max_events_per_second: 0", 'expected a number from 0.001 to 1000000, got "0"'),
            ("max_events_per_second: .inf", 'expected a number from 0.001 to 1000000, got ".inf"'),
            ("max_events_per_second: nan", 'expected a number from 0.001 to 1000000, got "nan"'),
            ("max_events_per_second: 1_0", 'expected a number from 0.001 to 1000000, got "1_0"'),
            ("max_age_jitter: 1", 'expected a number from 0 to below 1, such as 0.1, got "1"'),
            ("max_age_jitter: -0.1", 'expected a number from 0 to below 1, such as 0.1, got "-0.1"'),
            ("max_age_jitter: 10%", 'expected a number from 0 to below 1, such as 0.1, got "10%"'),
            ("max_age_jitter: nan", 'expected a number from 0 to below 1, such as 0.1, got "nan"'),
            ("message_data_types: typed", 'expected one of text, native, got "typed"'),
            ("message_data_types: Native", 'expected one of text, native, got "Native"; did you mean native?'),
            ("resource_selector:", "expected a list of {label, value}, or [] to watch everything, got nothing"),
            (
                "message_data: .id",
                'expected a mapping of names to paths or templates, such as {resource_id: .id}, got ".id"',
            ),
            ("log: debug", 'expected a mapping of settings, got "debug"'),
        ],
    )
    def test_a_message_has_the_expected_and_the_actual_value(
        self, problems: Problems, line: str, message: str
    ) -> None:
        assert problems(MINIMAL + line + "\n") == [(4, line.partition(":")[0], message)]

    @pytest.mark.parametrize(
        "value", ["a/b", "a?b", "a#b", "a%2Fb", "'a\\b'", "'a b'", ".", "..", "''", '"a\\tb"', "é", "a;b", "~"]
    )
    def test_a_resource_type_is_one_safe_path_segment(self, problems: Problems, value: str) -> None:
        ((_, field, _),) = problems(MINIMAL.replace("clusters", value))

        assert field == "resource_type"

    @pytest.mark.parametrize(
        "value",
        [
            "api:8000",
            "ftp://api",
            "http://",
            "http:///path",
            "http://api?x=1",
            "http://api/#top",
            "http://api:99999",
            "http://api:0",
            "http://[::1",
            "http://a b",
            "'http://api\\x'",
            '"http://api\\n"',
            "[]",
            "''",
        ],
    )
    def test_an_endpoint_is_an_http_url_without_a_query(self, problems: Problems, value: str) -> None:
        ((line, field, message),) = problems(MINIMAL.replace("http://api:8000", value))

        assert (line, field) == (3, "hyperfleet_api.endpoint")
        assert message.startswith("expected a URL such as http://")

    @pytest.mark.parametrize("value", ["http://[::1]:8000", "HTTPS://api.example", "http://127.0.0.1/prefix"])
    def test_an_endpoint_may_be_any_host(self, settings: Settings, value: str) -> None:
        assert settings(MINIMAL.replace("http://api:8000", value)).hyperfleet_api.endpoint == value

    @pytest.mark.parametrize("value", ["0", "1001", "1.5", "0x10", "010", "1e2", "-1", "9" * 30])
    def test_a_page_size_is_from_1_to_1000(self, problems: Problems, value: str) -> None:
        assert problems(f"{MINIMAL}  page_size: {value}\n") == [
            (4, "hyperfleet_api.page_size", f'expected a whole number from 1 to 1000, got "{value}"')
        ]

    @pytest.mark.parametrize("label", ["''", "a=b", "a,b", "'a b'", "a'b", "é", "'!a'"])
    def test_a_label_cannot_break_out_of_a_selector(self, problems: Problems, label: str) -> None:
        ((_, field, _),) = problems(f"{MINIMAL}resource_selector: [{{label: {label!r}, value: x}}]\n")

        assert field == "resource_selector[0].label"

    @pytest.mark.parametrize("value", ["a,b", "a=b", "a\nb"])
    def test_the_value_of_a_label_cannot_break_out_of_a_selector(self, problems: Problems, value: str) -> None:
        text = MINIMAL + yaml.safe_dump({"resource_selector": [{"label": "a", "value": value}]})

        ((_, field, _),) = problems(text)

        assert field == "resource_selector[0].value"

    def test_a_selector_has_each_label_once(self, problems: Problems) -> None:
        text = (
            MINIMAL
            + "resource_selector:\n- {label: a, value: x}\n- {label: b, value: x}\n- {label: a, value: y}\n"
        )

        assert problems(text) == [
            (7, "resource_selector[2].label", "expected each label once, got it a second time")
        ]

    def test_a_missing_key_is_reported_at_its_parent(self, problems: Problems) -> None:
        assert [
            (line, field) for line, field, _ in problems("# comment\n\nlog: {}\nhyperfleet_api:\n\n  gzip: on\n")
        ] == [
            (1, "resource_type"),
            (4, "hyperfleet_api.endpoint"),
        ]

    def test_a_missing_section_is_reported_at_the_top(self, loaded: Load) -> None:
        result = loaded("\nresource_type: clusters\n", {"SENTINEL_HYPERFLEET_API__TIMEOUT": "1s"})

        assert [(p.line, p.column, p.field) for p in result.problems] == [(1, 1, "hyperfleet_api.endpoint")]

    def test_without_a_file_a_missing_setting_has_no_position(self) -> None:
        result = load(file=None, environ={})

        assert [(p.file, p.line, p.field) for p in result.problems] == [
            (None, None, "resource_type"),
            (None, None, "hyperfleet_api.endpoint"),
        ]

    def test_an_invalid_file_does_not_hide_other_problems(self, loaded: Load) -> None:
        result = loaded("a: b: c\n", {"SENTINEL_POLL_INTERVAL": "5"}, ["nonsense=1"])

        assert [(p.line, p.field) for p in result.problems] == [
            (1, ""),
            (None, "nonsense"),
            (None, "poll_interval"),
        ]

    def test_an_assignment_below_an_invalid_value_is_ignored(self, problems: Problems) -> None:
        found = problems("resource_type: clusters\nhyperfleet_api: 5\n", sets=["hyperfleet_api.timeout=3s"])

        assert found == [(2, "hyperfleet_api", 'expected a mapping of settings, got "5"')]

    @pytest.mark.parametrize("flag", ["message_data.a=.b", "message_data.a.b=.c"])
    def test_a_flag_does_not_hide_an_invalid_value_in_the_file(self, problems: Problems, flag: str) -> None:
        assert [field for _, field, _ in problems(MINIMAL + "message_data: [x]\n", sets=[flag])] == [
            "message_data"
        ]

    def test_a_dotted_key_is_reported_with_its_mapping(self, problems: Problems) -> None:
        assert problems(MINIMAL + "log.level: debug\n") == [
            (4, "log.level", "unknown key; expected level as a key of the mapping log")
        ]

    def test_an_invalid_template_is_reported_at_its_position(self, problems: Problems) -> None:
        ((line, field, message),) = problems(MINIMAL + "message_data:\n  a: .id\n  b:\n    c: .a-b\n")

        assert (line, field) == (7, "message_data.b.c")
        assert "column 3 of the template" in message

    def test_a_token_with_a_space_is_rejected_and_not_shown(self, problems: Problems) -> None:
        ((_, field, message),) = problems(MINIMAL, environ={"HYPERFLEET_API_TOKEN": "hunter2 x"})

        assert field == "hyperfleet_api.token"
        assert "hunter2" not in message

    def test_the_password_of_an_endpoint_is_not_shown(self, problems: Problems) -> None:
        ((_, _, message),) = problems(MINIMAL.replace("//api", "//user:hunter2@api"))

        assert "hunter2" not in message
        assert "token_file" in message

    def test_a_value_is_quoted_on_one_line_and_shortened(self, problems: Problems) -> None:
        ((_, _, message),) = problems(MINIMAL + 'poll_interval: "a\\nb\\"' + "x" * 200 + '"\n')

        assert 'got "a\\nb\\"xxx' in message
        assert message.endswith('x…"')
        assert len(message) < 150


class TestRendering:
    def test_a_problem_in_a_file_starts_with_its_position(self) -> None:
        assert str(SettingsProblem("f.yaml", 3, 7, "a.b", "expected x")) == "f.yaml:3:7: a.b: expected x"

    def test_a_problem_without_a_field_has_the_same_form(self) -> None:
        assert str(SettingsProblem("f.yaml", 3, 7, "", "expected x")) == "f.yaml:3:7: : expected x"

    def test_a_problem_without_a_file_starts_with_its_field(self) -> None:
        assert (
            str(SettingsProblem(None, None, None, "a", "expected x (flag --set)")) == "a: expected x (flag --set)"
        )

    def test_a_problem_is_always_one_line(self, loaded: Load) -> None:
        (problem,) = loaded(MINIMAL + '"a\\nb\\u2028": 1\n').problems

        assert problem.field == "a\nb\u2028"
        assert len(str(problem).splitlines()) == 1


_NAMES = sorted({name for path in section(PulseSettings).paths() for name in path.split(".")})
_KEYS = st.sampled_from([*_NAMES, "label", "value", "<<", "a.b", ""])
_TEXTS = st.sampled_from(
    ["clusters", "5s", "5", "http://api", "yes", ".id", "null", "{{", "*x", "!y", "-1"]
) | st.text(max_size=8)
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_MANY_EXAMPLES = hypothesis_settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def _is_consistent(result: Loaded[PulseSettings]) -> bool:
    return (result.settings is None) == bool(result.problems) and all(
        problem.message and str(problem).isprintable() for problem in result.problems
    )


class TestArbitraryInput:
    @_MANY_EXAMPLES
    @given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
    def test_any_bytes_are_settings_or_problems(self, tmp_path: Path, content: bytes) -> None:
        file = tmp_path / "f.yaml"
        file.write_bytes(content)

        assert _is_consistent(load(file=file, environ={}))

    @_MANY_EXAMPLES
    @given(tree=st.dictionaries(_KEYS, _TREES, max_size=5), endpoint=_TEXTS)
    def test_any_tree_is_settings_or_problems(self, tmp_path: Path, tree: object, endpoint: str) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8", errors="replace")

        result = load(
            file=file,
            environ={"SENTINEL_RESOURCE_TYPE": "clusters"},
            sets=[f"hyperfleet_api.endpoint={endpoint}"],
        )

        assert _is_consistent(result)

    @_MANY_EXAMPLES
    @given(key=_KEYS, text=st.text(st.characters(), max_size=30) | _TREES.map(lambda tree: yaml.safe_dump(tree)))
    def test_any_flag_and_any_variable_are_settings_or_problems(self, tmp_path: Path, key: str, text: str) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(MINIMAL)
        name = "SENTINEL_" + key.upper()

        assert _is_consistent(
            load(file=file, environ={name: text}, sets=[f"{key}={text}", f"message_data.{key}={text}"])
        )


def test_an_empty_section_lacks_its_required_settings(tmp_path: Path) -> None:
    file = tmp_path / "sentinel.yaml"
    file.write_text("resource_type: clusters\nhyperfleet_api:\nlog:\n")

    (problem,) = load(file=file, environ={}).problems

    assert (problem.field, problem.line) == ("hyperfleet_api.endpoint", 2)

"""What the settings of a pulse define."""

from __future__ import annotations

from datetime import timedelta

from sentinel.core.events import Mode
from sentinel.core.labels import Selector, equality
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import DataTypes
from sentinel.pulse.definition import PulseApiSettings, PulseDefinition
from sentinel.pulse.settings import LabelMatch, PulseSettings

API = PulseApiSettings(endpoint="http://fleet", page_size=7)


def test_the_definition_has_every_setting_that_a_pulse_runs_with() -> None:
    settings = PulseSettings(
        resource_type="nodepools",
        poll_interval=timedelta(seconds=1),
        max_age_not_ready=timedelta(seconds=2),
        max_age_ready=timedelta(seconds=3),
        max_age_jitter=0.5,
        resource_selector=(LabelMatch("region", "us-east"), LabelMatch("env", "")),
        hyperfleet_api=API,
        message_data={"id": ".id"},
        message_data_types=DataTypes.NATIVE,
        generation_check=False,
        pulse_on_progress=True,
        republish_interval=timedelta(0),
        max_events_per_second=4.0,
        event_mode=Mode.BINARY,
    )

    assert settings.definition == PulseDefinition(
        resource_type="nodepools",
        selector=Selector((equality("region", "us-east"), equality("env", ""))),
        api=API,
        poll_interval=timedelta(seconds=1),
        policy=Policy(
            max_age_not_ready=timedelta(seconds=2),
            max_age_ready=timedelta(seconds=3),
            checks_generation=False,
            follows_progress=True,
            max_age_jitter=0.5,
        ),
        message_data={"id": ".id"},
        message_data_types=DataTypes.NATIVE,
        republish_interval=timedelta(0),
        max_events_per_second=4.0,
        event_mode=Mode.BINARY,
    )


def test_the_shard_is_named_after_the_sorted_selector() -> None:
    matches = (LabelMatch("region", "us-east"), LabelMatch("env", "prod"))
    some = PulseSettings(resource_type="clusters", hyperfleet_api=API, resource_selector=matches)
    everything = PulseSettings(resource_type="clusters", hyperfleet_api=API)

    assert some.definition.shard == "env=prod,region=us-east"
    assert everything.definition.shard == "all"

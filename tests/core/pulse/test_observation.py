"""A flat status and conditions give the same observation."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentinel.core.json import Malformed
from sentinel.core.pulse import observation
from sentinel.core.pulse.listing import decode_page
from sentinel.core.pulse.observation import (
    FetchedResource,
    MalformedItem,
    Observation,
    WireResource,
    observe,
    read_resource,
)

NOON = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
FLAT = {"phase": "Ready", "observed_generation": 1, "last_updated_time": "2025-10-21T12:00:00Z"}


def observed(**members: Any) -> Observation:
    return observe(msgspec.json.encode({"id": "cls-1", **members}))


def document(**members: Any) -> WireResource:
    return msgspec.json.decode(msgspec.json.encode({"id": "cls-1", **members}), type=WireResource)


def condition(kind: str, status: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, **members}


class TestFlatStatus:
    def test_conditions_are_not_read_if_the_flat_fields_say_everything(self) -> None:
        seen = observed(metadata={"labels": {"a": "b"}}, status={**FLAT, "conditions": "unreadable"})

        assert seen.labels == {"a": "b"}
        assert seen == observed(labels={"a": "b"}, status=FLAT)

    def test_every_field_is_read(self) -> None:
        seen = observed(
            kind="Cluster",
            generation=2,
            labels={"region": "us-east"},
            spec={"anything": [1, 2]},
            status={"phase": "Ready", "observed_generation": 1, "last_updated_time": "2025-10-21T12:00:00Z"},
        )

        assert seen == Observation("cls-1", "Cluster", 2, 1, True, NOON, {"region": "us-east"})

    @pytest.mark.parametrize("phase", ["Ready", "ready", "READY"])
    def test_ready_is_ready_in_any_case(self, phase: str) -> None:
        assert observed(status={"phase": phase}).is_ready

    @pytest.mark.parametrize("phase", ["NotReady", "Provisioning", "", "Ready "])
    def test_any_other_phase_is_not_ready(self, phase: str) -> None:
        assert not observed(status={"phase": phase}).is_ready

    def test_camel_case_is_read_too(self) -> None:
        seen = observed(status={"observedGeneration": 3, "lastUpdatedTime": "2025-10-21T12:00:00Z"})

        assert (seen.observed_generation, seen.last_updated_time) == (3, NOON)

    def test_snake_case_wins_over_camel_case(self) -> None:
        seen = observed(
            status={
                "observed_generation": 4,
                "observedGeneration": 3,
                "last_updated_time": "2025-10-21T12:00:00Z",
                "lastUpdatedTime": "2025-10-21T11:00:00Z",
            }
        )

        assert (seen.observed_generation, seen.last_updated_time) == (4, NOON)

    def test_camel_case_transition_time_is_the_last_resort(self) -> None:
        seen = observed(status={"phase": "Provisioning", "lastTransitionTime": "2025-10-21T12:00:00Z"})

        assert seen.last_updated_time == NOON

    def test_camel_case_transition_time_never_wins(self) -> None:
        seen = observed(
            status={
                "last_updated_time": "2025-10-21T12:00:00Z",
                "lastTransitionTime": "2025-10-21T13:00:00Z",
            }
        )

        assert seen.last_updated_time == NOON

    def test_snake_case_transition_time_is_never_read(self) -> None:
        assert observed(status={"last_transition_time": "2025-10-21T12:00:00Z"}).last_updated_time is None

    def test_flat_fields_win_over_conditions(self) -> None:
        seen = observed(
            generation=5,
            status={
                "phase": "NotReady",
                "observed_generation": 4,
                "last_updated_time": "2025-10-21T12:00:00Z",
                "conditions": [
                    condition("Ready", "True", observed_generation=5, last_updated_time="2025-10-21T13:00:00Z")
                ],
            },
        )

        assert (seen.is_ready, seen.observed_generation, seen.last_updated_time) == (False, 4, NOON)


class TestConditions:
    @pytest.mark.parametrize("kind", ["Ready", "Reconciled"])
    def test_a_true_condition_is_ready_at_the_current_generation(self, kind: str) -> None:
        seen = observed(
            generation=3,
            status={"conditions": [condition(kind, "True", last_updated_time="2025-10-21T12:00:00Z")]},
        )

        assert (seen.is_ready, seen.observed_generation, seen.last_updated_time) == (True, 3, NOON)

    @pytest.mark.parametrize("kind", ["Available", "LastKnownReconciled"])
    def test_while_not_ready_available_has_the_observed_generation(self, kind: str) -> None:
        seen = observed(
            generation=3,
            status={
                "conditions": [
                    condition("Ready", "False", observed_generation=3),
                    condition(kind, "True", observed_generation=2),
                ]
            },
        )

        assert (seen.is_ready, seen.observed_generation) == (False, 2)

    def test_our_names_win_over_the_public_ones(self) -> None:
        seen = observed(
            generation=3,
            status={
                "conditions": [
                    condition("Reconciled", "True"),
                    condition("LastKnownReconciled", "True", observed_generation=3),
                    condition("Ready", "False"),
                    condition("Available", "True", observed_generation=1),
                ]
            },
        )

        assert (seen.is_ready, seen.observed_generation) == (False, 1)

    @pytest.mark.parametrize("names", [("Ready", "Available"), ("Reconciled", "LastKnownReconciled")])
    def test_root_conditions_alone_that_are_not_true_mean_no_report(self, names: tuple[str, str]) -> None:
        stamp = {"observed_generation": 3, "last_updated_time": "2025-10-21T12:00:00Z"}

        seen = observed(generation=3, status={"conditions": [condition(name, "False", **stamp) for name in names]})

        assert (seen.is_ready, seen.observed_generation, seen.last_updated_time) == (False, 0, NOON)

    @pytest.mark.parametrize(
        "reported",
        [
            pytest.param(condition("DnsSuccessful", "False", observed_generation=2), id="an adapter's condition"),
            pytest.param(condition("Available", "True", observed_generation=2), id="a root condition is True"),
        ],
    )
    def test_after_a_report_available_has_the_observed_generation(self, reported: dict[str, object]) -> None:
        root = [
            condition("Reconciled", "False", observed_generation=3),
            condition("LastKnownReconciled", "False", observed_generation=2),
        ]

        seen = observed(generation=3, status={"conditions": [*root, reported]})

        assert seen.observed_generation == 2

    def test_without_ready_and_available_nothing_was_observed(self) -> None:
        seen = observed(generation=3, status={"conditions": [condition("DnsSuccessful", "True")]})

        assert (seen.is_ready, seen.observed_generation, seen.last_updated_time) == (False, 0, None)

    def test_available_without_a_generation_means_none_observed(self) -> None:
        assert (
            observed(generation=3, status={"conditions": [condition("Available", "True")]}).observed_generation
            == 0
        )


class TestAbsence:
    def test_only_the_id_is_required(self) -> None:
        assert observed() == Observation("cls-1", "", 0, 0, False, None, {})

    def test_null_is_absent(self) -> None:
        seen = observed(kind=None, generation=None, labels=None, metadata=None, status=None)

        assert seen == observed()

    def test_labels_of_the_metadata_are_the_fallback(self) -> None:
        assert observed(metadata={"labels": {"region": "us-east"}}).labels == {"region": "us-east"}

    def test_top_level_labels_win_even_when_empty(self) -> None:
        assert observed(labels={}, metadata={"labels": {"region": "us-east"}}).labels == {}

    def test_metadata_without_labels_has_none(self) -> None:
        assert observed(metadata={"name": "x"}).labels == {}


class TestTimes:
    @pytest.mark.parametrize("never", [None, "", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00"])
    def test_an_unset_time_is_none(self, never: str | None) -> None:
        assert observed(status={"phase": "Ready", "last_updated_time": never}).last_updated_time is None

    def test_an_empty_time_of_a_condition_is_none(self) -> None:
        seen = observed(status={"conditions": [condition("Ready", "True", last_updated_time="")]})

        assert seen.is_ready
        assert seen.last_updated_time is None

    def test_a_time_in_another_zone_is_converted_to_utc(self) -> None:
        seen = observed(status={"last_updated_time": "2025-10-21T14:00:00+02:00"}).last_updated_time

        assert seen == NOON
        assert seen.tzinfo is UTC

    def test_a_time_without_a_zone_is_in_utc(self) -> None:
        seen = observed(status={"last_updated_time": "2025-10-21T12:00:00"}).last_updated_time

        assert seen == NOON

    def test_nanoseconds_are_read(self) -> None:
        seen = observed(status={"last_updated_time": "2025-10-21T12:00:00.000001999Z"}).last_updated_time

        assert seen is not None
        assert abs(seen - NOON) <= timedelta(microseconds=2)

    def test_a_time_beyond_year_9999_is_clamped(self) -> None:
        seen = observed(status={"last_updated_time": "9999-12-31T23:59:59-05:00"}).last_updated_time

        assert seen == datetime.max.replace(tzinfo=UTC)


class TestRequests:
    def test_paused_and_requested_pulse_are_read(self) -> None:
        seen = observed(paused=True, pulse_requested_time="2025-10-21T12:00:00Z")

        assert (seen.is_paused, seen.pulse_requested_time) == (True, NOON)

    @pytest.mark.parametrize("never", [None, "", "0001-01-01T00:00:00Z"])
    def test_without_requests_both_are_unset(self, never: str | None) -> None:
        seen = observed(paused=None, pulse_requested_time=never)

        assert (seen.is_paused, seen.pulse_requested_time) == (False, None)


class TestProgress:
    @pytest.mark.parametrize("shape", [FLAT, {"conditions": []}])
    def test_the_last_progress_is_read_from_either_shape(self, shape: dict[str, object]) -> None:
        status = {**shape, "last_progress_time": "2025-10-21T14:00:00+02:00", "progress_count": 3}

        seen = observed(labels={}, status=status)

        assert (seen.last_progress_time, seen.progress_count) == (NOON, 3)

    @pytest.mark.parametrize("never", [None, "", "0001-01-01T00:00:00Z"])
    def test_without_progress_both_fields_are_unset(self, never: str | None) -> None:
        seen = observed(labels={}, status={**FLAT, "last_progress_time": never, "progress_count": None})

        assert (seen.last_progress_time, seen.progress_count) == (None, 0)


class TestPlain:
    def test_a_document_with_labels_and_a_flat_status_is_plain(self) -> None:
        plain = document(labels={}, status=FLAT, paused=True, pulse_requested_time="2025-10-21T12:00:00+02:00")

        seen = observation.plain_observation(plain)

        assert seen == observation.observation(plain)
        assert seen is not None
        assert (seen.is_paused, seen.pulse_requested_time) == (True, NOON - timedelta(hours=2))

    @pytest.mark.parametrize(
        "members",
        [
            {"labels": {}},
            {"status": FLAT},
            *({"labels": {}, "status": {**FLAT, name: None}} for name in FLAT),
            {"labels": {}, "status": {**FLAT, "last_updated_time": "0001-01-01T00:00:00Z"}},
        ],
    )
    def test_a_document_that_lacks_a_field_is_not_plain(self, members: dict[str, Any]) -> None:
        assert observation.plain_observation(document(**members)) is None

    def test_other_members_of_a_plain_document_are_ignored(self) -> None:
        other = {"conditions": [condition("Ready", "False")], "observedGeneration": 7}
        whole = observed(labels={"a": "b"}, metadata={"labels": {"c": "d"}}, status={**FLAT, **other})

        assert whole == observed(labels={"a": "b"}, status=FLAT)


class TestMalformed:
    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            (b'{"kind": "Cluster"}', "missing required field `id`"),
            (b'{"id": ""}', "id: expected a non-empty string"),
            (b'{"id": 7}', "Expected `str`, got `int` - at `$.id`"),
            (b'{"id": "cls-1", "generation": "s3cret"}', "Expected `int | null`, got `str` - at `$.generation`"),
            (b'{"id": "cls-1", "status": {"last_updated_time": "s3cret"}}', "Invalid RFC3339"),
            (b'{"id": "cls-1", "status": {"conditions": ["s3cret"], "phase": ""}}', "Expected `object`"),
            (b'{"id": "cls-1", "status": {"conditions": "s3cret"}}', "Expected `array | null`"),
            (b'["s3cret"]', "Expected `object`, got `array`"),
            (b"null", "Expected `object`, got `null`"),
            (b"{s3cret", "malformed"),
            (b"", "truncated"),
            (b'{"id": "\xff"}', "utf-8"),
            (b'{"id": "cls-1", "spec": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        ],
    )
    def test_a_malformed_resource_has_a_reason_without_values(self, document: bytes, reason: str) -> None:
        with pytest.raises(Malformed) as caught:
            observe(document)

        assert reason in str(caught.value)
        assert "s3cret" not in str(caught.value)

    def test_malformed_members_not_observed_fail_on_decode(self) -> None:
        resource = read_resource(msgspec.Raw(b'{"id": "cls-1", "spec": "\xff"}'))

        with pytest.raises(Malformed):
            resource.decode()


class TestMalformedItem:
    @pytest.mark.parametrize(
        ("document", "found"),
        [
            (b'{"kind": 7, "id": "cls-1"}', "cls-1"),
            (b'{"id": "cls-1", "spec": "\xff"}', "cls-1"),
            (b'{"id": 7}', "7"),
            (b'{"id": ""}', None),
            (b'{"id": ["cls-1"]}', None),
            (b'{"kind": "Cluster"}', None),
            (b'["cls-1"]', None),
            (b"{", None),
        ],
    )
    def test_it_has_the_id_if_that_can_be_read(self, document: bytes, found: str | None) -> None:
        item = observation.malformed_item(document, Malformed("bad"), "items[3]")

        assert item == MalformedItem(found, "bad", "items[3]")

    @pytest.mark.parametrize(
        ("item", "text"),
        [
            (MalformedItem("cls-1", "bad", "items[3]"), "cls-1 (items[3]): bad"),
            (MalformedItem("cls-1", "bad"), "cls-1: bad"),
            (MalformedItem(None, "bad", "items[3]"), "items[3]: bad"),
        ],
    )
    def test_its_text_names_it_or_says_where_it_is(self, item: MalformedItem, text: str) -> None:
        assert str(item) == text


class TestResource:
    def test_the_whole_document_is_kept(self) -> None:
        document = {"id": "cls-1", "spec": {"nodes": [1, 2.5, None, True]}}

        resource = read_resource(msgspec.Raw(msgspec.json.encode(document)))

        assert resource.observation.id == "cls-1"
        assert resource.decode() == document

    def test_a_resource_finds_its_document_in_the_page(self) -> None:
        documents = [msgspec.Raw(b'{"id":"a"}'), msgspec.Raw(b'{"id":"b"}')]

        resource = FetchedResource(observe(documents[1]), documents, 1)

        assert resource.decode() == {"id": "b"}


def test_the_requested_fields_are_exactly_those_read() -> None:
    """A field that is read but not requested would silently be missing."""

    nested: dict[str, type[msgspec.Struct]] = {
        "status": observation.WireStatus,
        "metadata": observation.WireMetadata,
    }
    paths = set()
    for field in msgspec.structs.fields(observation.WireResource):
        inner = msgspec.structs.fields(nested[field.name]) if field.name in nested else ()
        paths |= {f"{field.encode_name}.{part.encode_name}" for part in inner} or {field.encode_name}

    assert set(observation.FIELDS) == paths


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
times = st.datetimes().map(datetime.isoformat) | st.sampled_from(
    ["", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"]
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Ready", "NotReady"]) | json_values,
        "observed_generation": st.integers(0, 5) | json_values,
        "last_updated_time": times | json_values,
        "lastTransitionTime": times | json_values,
        "conditions": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["Ready", "Reconciled", "Available", "LastKnownReconciled"])},
                optional={"status": st.sampled_from(["True", "False"]) | json_values, "last_updated_time": times},
            )
            | json_values,
            max_size=3,
        )
        | json_values,
    },
)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_resource_or_malformed(document: bytes) -> None:
    with suppress(Malformed):
        observe(document)


@given(st.text(min_size=1), st.integers(0, 5), statuses | json_values)
def test_any_status_is_an_observation_or_malformed(resource_id: str, generation: int, status: object) -> None:
    document = msgspec.json.encode({"id": resource_id, "generation": generation, "status": status})

    try:
        seen = observe(document)
    except Malformed:
        return

    assert seen.id == resource_id
    assert seen.generation == generation
    assert seen.last_updated_time is None or seen.last_updated_time.tzinfo is UTC


resources = st.fixed_dictionaries(
    {"id": st.text(max_size=3)},
    optional={
        "generation": st.integers(0, 5) | json_values,
        "labels": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2) | json_values,
        "metadata": st.fixed_dictionaries({"labels": st.just({"region": "us-east"}) | json_values}) | json_values,
        "status": statuses | st.just(FLAT) | json_values,
    },
)


@given(st.lists(resources | json_values, max_size=4))
@example([{"id": "cls-1", "metadata": {"labels": {"region": "us-east"}}, "status": FLAT}])
@example([{"id": "cls-1", "labels": {}, "status": {"conditions": [condition("Reconciled", "True")]}}])
@example([{"id": "cls-1", "status": FLAT, "metadata": 7}, {"id": "cls-2", "labels": {}, "metadata": 7}])
def test_a_page_reads_the_same_whichever_shape_is_expected(documents: list[object]) -> None:
    body = msgspec.json.encode({"items": documents, "total": len(documents)})

    expected, other = (decode_page(body, expects_plain=expects_plain) for expects_plain in (True, False))

    assert [each.observation for each in other.resources] == [each.observation for each in expected.resources]
    assert [each.decode() for each in other.resources] == [each.decode() for each in expected.resources]
    assert other.malformed == expected.malformed
    assert (other.count, other.is_plain) == (expected.count, expected.is_plain)

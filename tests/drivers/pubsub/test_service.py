"""The Pub/Sub publisher with errors that the emulator never returns, and with credentials."""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Unpack

import grpc
import msgspec
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.pubsub_v1.types import PublishRequest
from grpc import StatusCode

from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
from sentinel.drivers.pubsub.publish_requests import RequestLimits
from sentinel.drivers.pubsub.publisher import PubSubPublisher
from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.publisher import Connectivity, PublishOutcome, Receipt
from tests.support.brokers import pubsub
from tests.support.brokers.pubsub import FakeService, always, in_turn, opened_publisher
from tests.support.brokers.rabbitmq import eventually, make_events

TIMEOUT = timedelta(seconds=20)
SHORT = timedelta(milliseconds=100)
SECRET = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU"


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with pubsub.fake_service() as made:
        yield made


async def publish(service: FakeService, count: int, **options: Unpack[pubsub.PublisherOptions]) -> Receipt:
    """Publish events with a new publisher."""
    async with opened_publisher(service.host, **options) as publisher:
        return await publisher.publish(make_events(count), deadline=TIMEOUT)


class TestTopic:
    async def test_a_publisher_without_permission_to_get_the_topic_publishes(self, service: FakeService) -> None:
        service.on_get = always(StatusCode.PERMISSION_DENIED)

        async with opened_publisher(service.host) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=TIMEOUT)

            assert publisher.unavailable_reason() is None
        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 2

    async def test_an_existing_topic_is_not_created(self, service: FakeService) -> None:
        async with opened_publisher(service.host, create_topic=True):
            pass

        assert (service.gets, service.creations) == (1, 0)

    @pytest.mark.parametrize("status", [None, StatusCode.ALREADY_EXISTS])
    async def test_a_topic_is_created_without_permission_to_get_it(
        self, service: FakeService, status: pubsub.CallError
    ) -> None:
        service.on_get = always(StatusCode.PERMISSION_DENIED)
        service.on_create = always(status)

        async with opened_publisher(service.host, create_topic=True) as publisher:
            assert publisher.unavailable_reason() is None
        assert service.creations == 1

    async def test_a_publisher_that_may_neither_get_nor_create_publishes(self, service: FakeService) -> None:
        service.on_get = service.on_create = always(StatusCode.PERMISSION_DENIED)

        receipt = await publish(service, 1, create_topic=True)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]

    async def test_open_reports_a_missing_topic_that_cannot_be_created(self, service: FakeService) -> None:
        service.on_get = always(StatusCode.NOT_FOUND)
        service.on_create = always(StatusCode.PERMISSION_DENIED)

        with pytest.raises(Misconfigured, match="PERMISSION_DENIED"):
            async with opened_publisher(service.host, create_topic=True):
                pass

    async def test_a_service_that_recovers_is_found_without_publishing(self, service: FakeService) -> None:
        observed: list[Connectivity] = []
        service.on_get = in_turn(StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.UNAVAILABLE)

        async with opened_publisher(service.host, observe=observed.append) as publisher:
            unavailable_reason = publisher.unavailable_reason()
            await eventually(lambda: publisher.unavailable_reason() is None)

        assert unavailable_reason == f"{service.host}: UNAVAILABLE: set by a test"
        assert [change.is_connected for change in observed] == [False, False, False, True]


class TestPublishing:
    @pytest.mark.parametrize(
        "status",
        [
            StatusCode.UNAVAILABLE,
            StatusCode.DEADLINE_EXCEEDED,
            StatusCode.RESOURCE_EXHAUSTED,
            StatusCode.INTERNAL,
            StatusCode.ABORTED,
            StatusCode.UNKNOWN,
        ],
    )
    async def test_a_transient_error_is_retried(self, service: FakeService, status: StatusCode) -> None:
        service.on_publish = in_turn(status, status)

        receipt = await publish(service, 2)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 2
        assert receipt.error == ""
        assert len(receipt.seconds) == 2
        assert len(service.requests) == 3

    async def test_after_all_retries_events_are_unconfirmed(self, service: FakeService) -> None:
        service.on_publish = always(StatusCode.UNAVAILABLE)

        receipt = await publish(service, 2)

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 2
        assert receipt.error == "UNAVAILABLE: set by a test"
        assert receipt.seconds == []

    async def test_after_all_retries_nothing_more_is_sent(self, service: FakeService) -> None:
        service.on_publish = always(StatusCode.UNAVAILABLE)

        receipt = await publish(service, 50, limits=RequestLimits(count=1), window=2)

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 50
        assert len({request.messages[0].attributes["ce-id"] for request in service.requests}) <= 4

    @pytest.mark.parametrize(
        "status",
        [StatusCode.PERMISSION_DENIED, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION],
    )
    async def test_other_errors_are_refusals(self, service: FakeService, status: StatusCode) -> None:
        service.on_publish = always(status)

        receipt = await publish(service, 2)

        assert list(receipt.outcomes) == [PublishOutcome.REFUSED] * 2
        assert receipt.error == f"{status.name}: set by a test"
        assert len(service.requests) == 1

    async def test_a_refused_request_does_not_stop_the_others(self, service: FakeService) -> None:
        service.on_publish = in_turn(StatusCode.PERMISSION_DENIED)

        receipt = await publish(service, 6, limits=RequestLimits(count=2), window=1)

        assert list(receipt.outcomes) == [PublishOutcome.REFUSED] * 2 + [PublishOutcome.CONFIRMED] * 4

    async def test_only_the_invalid_events_are_refused(self, service: FakeService) -> None:
        invalid = {"event-3", "event-500", "event-998"}

        def check(request: PublishRequest) -> pubsub.CallError:
            found = invalid & {message.attributes["ce-id"] for message in request.messages}
            return StatusCode.INVALID_ARGUMENT if found else None

        service.on_publish = check
        events = make_events(1_000)

        async with opened_publisher(service.host) as publisher:
            receipt = await publisher.publish(events, deadline=TIMEOUT)

        refused = {
            event.id
            for event, outcome in zip(events, receipt.outcomes, strict=True)
            if outcome is not PublishOutcome.CONFIRMED
        }
        assert refused == invalid
        assert receipt.outcomes.count(PublishOutcome.REFUSED) == 3
        assert receipt.error == "INVALID_ARGUMENT: set by a test"
        assert len(receipt.seconds) == 1_000

    async def test_splitting_ends_if_every_event_is_invalid(self, service: FakeService) -> None:
        service.on_publish = always(StatusCode.INVALID_ARGUMENT)

        receipt = await publish(service, 1_000)

        assert list(receipt.outcomes) == [PublishOutcome.REFUSED] * 1_000
        assert len(service.requests) < 150

    async def test_a_response_with_missing_ids_confirms_nothing(self, service: FakeService) -> None:
        service.missing_ids = 1

        receipt = await publish(service, 3)

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 3
        assert receipt.error == "3 messages were sent, but 2 confirmed"

    @pytest.mark.parametrize(("ordering_key", "expected"), [("", 3), ("fleet", 1)])
    async def test_at_most_the_window_of_requests_is_in_flight(
        self, service: FakeService, ordering_key: str, expected: int
    ) -> None:
        service.is_responding.clear()

        async with opened_publisher(
            service.host, limits=RequestLimits(count=1), window=3, ordering_key=ordering_key
        ) as publisher:
            publishing = asyncio.create_task(publisher.publish(make_events(20), deadline=TIMEOUT))
            await eventually(lambda: service.max_concurrent == expected)
            service.is_responding.set()
            receipt = await publishing

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 20
        assert service.max_concurrent == expected

    async def test_a_publish_error_triggers_a_check_of_the_topic(self, service: FakeService) -> None:
        async with opened_publisher(service.host) as publisher:
            service.on_publish = service.on_get = always(StatusCode.UNAVAILABLE)
            await publisher.publish(make_events(1), deadline=TIMEOUT)
            await eventually(lambda: publisher.unavailable_reason() is not None)
            service.on_publish = service.on_get = always(None)
            await publisher.publish(make_events(1), deadline=TIMEOUT)

            assert publisher.unavailable_reason() is None

    async def test_a_timeout_triggers_a_check_of_the_topic(self, service: FakeService) -> None:
        service.is_responding.clear()

        async with opened_publisher(service.host) as publisher:
            receipt = await publisher.publish(make_events(1), deadline=SHORT)
            await eventually(lambda: service.gets == 2)

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED]

    def test_a_window_of_zero_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="window: expected 1 or more, got 0"):
            PubSubPublisher(project_id=pubsub.PROJECT, topic="topic", window=0)

    def test_the_threaded_client_is_not_loaded(self) -> None:
        assert "google.cloud.pubsub_v1" not in sys.modules


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture(scope="module")
def private_keys() -> tuple[str, str]:
    def make() -> str:
        key = rsa.generate_private_key(65537, 2048)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return key.private_bytes(*pem).decode()

    return make(), make()


def write_key_file(path: Path, *, key: str, key_id: str) -> None:
    path.write_text(service_account_key(key=key, key_id=key_id))


def service_account_key(*, key: str, key_id: str) -> str:
    content = {
        "type": "service_account",
        "project_id": pubsub.PROJECT,
        "private_key_id": key_id,
        "private_key": key,
        "client_email": f"sentinel@{pubsub.PROJECT}.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return msgspec.json.encode(content).decode()


def signed_with(key_id: str) -> Callable[[str], pubsub.CallError]:
    """Accept only tokens that were signed with this key."""

    def check(authorization: str) -> pubsub.CallError:
        header = authorization.removeprefix("Bearer ").partition(".")[0]
        decoded = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)) or b"{}"
        is_valid = msgspec.json.decode(decoded).get("kid") == key_id
        return None if is_valid else StatusCode.UNAUTHENTICATED

    return check


INVALID_KEYS = [
    f'{{"type": "service_account", "private_key": "{SECRET}"',
    f'{{"type": "service_account", "private_key": "{SECRET}"}}',
    f'{{"type": "service_account", "private_key": "{SECRET}", "client_email": "a@b", "token_uri": "u"}}',
    f'{{"type": "authorized_user", "refresh_token": "{SECRET}"}}',
]


class TestCredentials:
    @pytest.fixture
    async def secure(
        self, authority: trustme.CA, ca_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[FakeService]:
        # gRPC reads its trusted roots once per process; no other test connects with TLS.
        monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(ca_file))
        issued = authority.issue_cert("localhost")
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        async with pubsub.fake_service(
            tls=grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
        ) as service:
            yield service

    @pytest.fixture
    def key_file(self, no_credentials: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        path = tmp_path / "key.json"
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        return path

    @pytest.fixture
    def first_key(self, key_file: Path, private_keys: tuple[str, str]) -> Path:
        write_key_file(key_file, key=private_keys[0], key_id="first")
        return key_file

    async def test_a_service_account_is_read_from_the_environment(
        self, secure: FakeService, first_key: Path
    ) -> None:
        secure.on_authorization = signed_with("first")

        async with opened_publisher("", endpoint=secure.host) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=TIMEOUT)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 3, receipt.error

    async def test_a_given_service_account_wins_over_the_environment(
        self, secure: FakeService, first_key: Path, private_keys: tuple[str, str]
    ) -> None:
        secure.on_authorization = signed_with("second")
        given = service_account_key(key=private_keys[1], key_id="second")

        async with opened_publisher("", endpoint=secure.host, credentials_json=given) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=TIMEOUT)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 3, receipt.error

    @pytest.mark.usefixtures("no_credentials")
    async def test_adapters_use_the_given_service_account(
        self, secure: FakeService, private_keys: tuple[str, str]
    ) -> None:
        given = service_account_key(key=private_keys[0], key_id="first")
        subscriber = PubSubSubscriber(
            project_id=pubsub.PROJECT,
            topic="topic",
            subscription="dns",
            max_in_flight=1,
            endpoint=secure.host,
            credentials_json=given,
        )
        letters = PubSubDeadLetters(
            project_id=pubsub.PROJECT,
            topic="topic",
            subscription="dns",
            endpoint=secure.host,
            credentials_json=given,
        )

        # The service implements no subscriptions. Without credentials there would be no call at all.
        with pytest.raises(Unavailable, match="UNIMPLEMENTED"):
            await letters.peek(limit=1)
        await subscriber.open()
        reason = subscriber.unavailable_reason()
        await subscriber.close()

        assert reason is not None
        assert "UNIMPLEMENTED" in reason

    async def test_no_token_is_sent_to_an_emulator(self, service: FakeService, first_key: Path) -> None:
        seen: list[str] = []
        service.on_authorization = seen.append

        async with opened_publisher(service.host) as publisher:
            await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert set(seen) == {""}

    async def test_open_reports_rejected_credentials(self, secure: FakeService, first_key: Path) -> None:
        secure.on_authorization = signed_with("second")

        with pytest.raises(Misconfigured, match="the credentials are not accepted: UNAUTHENTICATED"):
            async with opened_publisher("", endpoint=secure.host):
                pass

    async def test_a_replaced_key_is_read_again(
        self, secure: FakeService, first_key: Path, private_keys: tuple[str, str]
    ) -> None:
        secure.on_authorization = signed_with("first")

        async with opened_publisher("", endpoint=secure.host) as publisher:
            secure.on_authorization = signed_with("second")
            refused = await publisher.publish(make_events(1), deadline=TIMEOUT)
            await eventually(lambda: publisher.unavailable_reason() is not None)
            write_key_file(first_key, key=private_keys[1], key_id="second")
            await eventually(lambda: publisher.unavailable_reason() is None)
            again = await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert refused.outcomes[0] in (PublishOutcome.REFUSED, PublishOutcome.UNCONFIRMED)
        assert list(again.outcomes) == [PublishOutcome.CONFIRMED], again.error

    @pytest.mark.usefixtures("no_credentials")
    async def test_open_reports_missing_credentials(self) -> None:
        publisher = PubSubPublisher(project_id=pubsub.PROJECT, topic="topic")

        with pytest.raises(Misconfigured, match=r"no credentials for Google Cloud: .*credentials were not found"):
            await publisher.open()

    async def test_open_names_a_missing_key_file(self, key_file: Path) -> None:
        publisher = PubSubPublisher(project_id=pubsub.PROJECT, topic="topic")

        with pytest.raises(Misconfigured, match=f"File {key_file} was not found"):
            await publisher.open()

    @pytest.mark.parametrize("content", [*INVALID_KEYS, f'["{SECRET}"]'])
    async def test_the_text_of_an_invalid_given_key_is_never_shown(
        self, content: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        observed: list[Connectivity] = []
        publisher = PubSubPublisher(
            project_id=pubsub.PROJECT, topic="topic", observe=observed.append, credentials_json=content
        )

        with pytest.raises(Misconfigured, match="expected the key of a service account, as JSON") as raised:
            await publisher.open()

        assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r} {observed} {caplog.text}"

    @pytest.mark.parametrize("content", INVALID_KEYS)
    async def test_the_content_of_an_invalid_key_file_is_never_shown(
        self, key_file: Path, content: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        await asyncio.to_thread(key_file.write_text, content)
        observed: list[Connectivity] = []
        publisher = PubSubPublisher(project_id=pubsub.PROJECT, topic="topic", observe=observed.append)

        with pytest.raises(Misconfigured, match="no credentials for Google Cloud") as raised:
            await publisher.open()

        assert str(key_file) in str(raised.value)
        assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r} {observed} {caplog.text}"

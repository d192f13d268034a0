"""The Pub/Sub publisher on a service that says what the emulator never does: denials, faults, demands."""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # it ships no types
import msgspec
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.pubsub_v1.types import PublishRequest
from grpc import StatusCode

from sentinel.drivers.pubsub.client import DEFAULT_ENDPOINT
from sentinel.drivers.pubsub.publish_requests import RequestLimits
from sentinel.drivers.pubsub.publisher import LIMITS, WINDOW, PubSubPublisher
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, Outcome
from sentinel.runtime.backoff import Backoff
from tests.support.brokers.pubsub import PROJECT, FakeService, Verdict, fake_service
from tests.support.brokers.rabbitmq import eventually, make_events

AMPLE = timedelta(seconds=20)
SHORT = timedelta(milliseconds=100)
AT_ONCE = Backoff(initial=timedelta(milliseconds=5), maximum=timedelta(milliseconds=20))
SECRET = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU"


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with fake_service() as made:
        yield made


@asynccontextmanager
async def opened(
    service: FakeService,
    *,
    create_topic: bool = False,
    is_secure: bool = False,
    ordering_key: str = "",
    limits: RequestLimits = LIMITS,
    window: int = WINDOW,
    observed: list[Connectivity] | None = None,
) -> AsyncIterator[PubSubPublisher]:
    publisher = PubSubPublisher(
        project_id=PROJECT,
        topic="topic",
        create_topic=create_topic,
        emulator_host="" if is_secure else service.host,
        endpoint=service.host if is_secure else DEFAULT_ENDPOINT,
        ordering_key=ordering_key,
        limits=limits,
        window=window,
        retry=AT_ONCE,
        observe=(observed if observed is not None else []).append,
    )
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


def always(status: StatusCode) -> Callable[..., Verdict]:
    return lambda *_: status


def in_turn(*verdicts: Verdict) -> Callable[..., Verdict]:
    """These, one after the other, and yes from then on."""
    rest: Iterator[Verdict] = iter(verdicts)
    return lambda *_: next(rest, None)


class TestLooking:
    async def test_a_publisher_that_may_not_look_at_the_topic_publishes(self, service: FakeService) -> None:
        service.on_look = always(StatusCode.PERMISSION_DENIED)

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=AMPLE)

            assert publisher.trouble() is None
        assert list(receipt.outcomes) == [Outcome.CONFIRMED] * 2

    async def test_a_topic_that_exists_is_not_created(self, service: FakeService) -> None:
        async with opened(service, create_topic=True):
            pass

        assert (service.looks, service.creations) == (1, 0)

    @pytest.mark.parametrize("status", [None, StatusCode.ALREADY_EXISTS])
    async def test_a_topic_that_may_be_created_unseen_is(self, service: FakeService, status: Verdict) -> None:
        service.on_look = always(StatusCode.PERMISSION_DENIED)
        service.on_create = always(status)

        async with opened(service, create_topic=True) as publisher:
            assert publisher.trouble() is None
        assert service.creations == 1

    async def test_who_may_neither_look_nor_create_publishes(self, service: FakeService) -> None:
        service.on_look = service.on_create = always(StatusCode.PERMISSION_DENIED)

        async with opened(service, create_topic=True) as publisher:
            receipt = await publisher.publish(make_events(1), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.CONFIRMED]

    async def test_a_missing_topic_that_cannot_be_created_is_reported_when_opening(
        self, service: FakeService
    ) -> None:
        service.on_look = always(StatusCode.NOT_FOUND)
        service.on_create = always(StatusCode.PERMISSION_DENIED)

        with pytest.raises(Misconfigured, match="PERMISSION_DENIED"):
            async with opened(service, create_topic=True):
                pass

    async def test_a_service_that_recovers_is_found_without_publishing(self, service: FakeService) -> None:
        observed: list[Connectivity] = []
        service.on_look = in_turn(StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.UNAVAILABLE)

        async with opened(service, observed=observed) as publisher:
            trouble = publisher.trouble()
            await eventually(lambda: publisher.trouble() is None)

        assert trouble == f"{service.host}: UNAVAILABLE: said by a test"
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
    async def test_a_passing_fault_is_retried(self, service: FakeService, status: StatusCode) -> None:
        service.on_publish = in_turn(status, status)

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.CONFIRMED] * 2
        assert receipt.error == ""
        assert len(receipt.seconds) == 2
        assert len(service.requests) == 3

    async def test_a_fault_that_does_not_pass_leaves_events_unconfirmed(self, service: FakeService) -> None:
        service.on_publish = always(StatusCode.UNAVAILABLE)

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.UNCONFIRMED] * 2
        assert receipt.error == "UNAVAILABLE: said by a test"
        assert receipt.seconds == []

    async def test_after_a_fault_that_does_not_pass_nothing_more_is_sent(self, service: FakeService) -> None:
        service.on_publish = always(StatusCode.UNAVAILABLE)

        async with opened(service, limits=RequestLimits(count=1), window=2) as publisher:
            receipt = await publisher.publish(make_events(50), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.UNCONFIRMED] * 50
        assert len({request.messages[0].attributes["ce-id"] for request in service.requests}) <= 4

    @pytest.mark.parametrize(
        "status",
        [StatusCode.PERMISSION_DENIED, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION],
    )
    async def test_a_denial_is_a_refusal(self, service: FakeService, status: StatusCode) -> None:
        service.on_publish = always(status)

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.REFUSED] * 2
        assert receipt.error == f"{status.name}: said by a test"
        assert len(service.requests) == 1

    async def test_one_request_that_is_refused_does_not_stop_the_others(self, service: FakeService) -> None:
        service.on_publish = in_turn(StatusCode.PERMISSION_DENIED)

        async with opened(service, limits=RequestLimits(count=2), window=1) as publisher:
            receipt = await publisher.publish(make_events(6), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.REFUSED] * 2 + [Outcome.CONFIRMED] * 4

    async def test_only_the_events_at_fault_are_refused(self, service: FakeService) -> None:
        faulty = {"event-3", "event-500", "event-998"}

        def judge(request: PublishRequest) -> Verdict:
            found = faulty & {message.attributes["ce-id"] for message in request.messages}
            return StatusCode.INVALID_ARGUMENT if found else None

        service.on_publish = judge
        events = make_events(1_000)

        async with opened(service) as publisher:
            receipt = await publisher.publish(events, deadline=AMPLE)

        refused = {
            event.id
            for event, outcome in zip(events, receipt.outcomes, strict=True)
            if outcome is not Outcome.CONFIRMED
        }
        assert refused == faulty
        assert receipt.outcomes.count(Outcome.REFUSED) == 3
        assert receipt.error == "INVALID_ARGUMENT: said by a test"
        assert len(receipt.seconds) == 1_000

    async def test_where_every_event_is_at_fault_the_search_ends(self, service: FakeService) -> None:
        service.on_publish = always(StatusCode.INVALID_ARGUMENT)

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(1_000), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.REFUSED] * 1_000
        assert len(service.requests) < 150

    async def test_an_answer_that_is_short_of_ids_confirms_nothing(self, service: FakeService) -> None:
        service.forgotten_ids = 1

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.UNCONFIRMED] * 3
        assert receipt.error == "3 messages were sent, and 2 confirmed"

    @pytest.mark.parametrize(("ordering_key", "expected"), [("", 3), ("fleet", 1)])
    async def test_no_more_requests_than_the_window_allows_are_under_way(
        self, service: FakeService, ordering_key: str, expected: int
    ) -> None:
        service.is_answering.clear()

        async with opened(
            service, limits=RequestLimits(count=1), window=3, ordering_key=ordering_key
        ) as publisher:
            publishing = asyncio.create_task(publisher.publish(make_events(20), deadline=AMPLE))
            await eventually(lambda: service.most_at_once == expected)
            service.is_answering.set()
            receipt = await publishing

        assert list(receipt.outcomes) == [Outcome.CONFIRMED] * 20
        assert service.most_at_once == expected

    async def test_trouble_that_publishing_meets_is_looked_into(self, service: FakeService) -> None:
        async with opened(service) as publisher:
            service.on_publish = service.on_look = always(StatusCode.UNAVAILABLE)
            await publisher.publish(make_events(1), deadline=AMPLE)
            await eventually(lambda: publisher.trouble() is not None)
            service.on_publish = service.on_look = always(None)
            await publisher.publish(make_events(1), deadline=AMPLE)

            assert publisher.trouble() is None

    async def test_a_service_that_does_not_answer_is_looked_into(self, service: FakeService) -> None:
        service.is_answering.clear()

        async with opened(service) as publisher:
            receipt = await publisher.publish(make_events(1), deadline=SHORT)
            await eventually(lambda: service.looks == 2)

        assert list(receipt.outcomes) == [Outcome.UNCONFIRMED]

    def test_a_window_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="window: expected 1 or more, got 0"):
            PubSubPublisher(project_id=PROJECT, topic="topic", window=0)

    def test_the_threaded_client_is_not_loaded(self) -> None:
        assert "google.cloud.pubsub_v1" not in sys.modules


@pytest.fixture
def nothing_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A place where no credentials are."""
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
    content = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": key_id,
        "private_key": key,
        "client_email": f"sentinel@{PROJECT}.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path.write_bytes(msgspec.json.encode(content))


def signed_with(key_id: str) -> Callable[[str], Verdict]:
    """Takes only tokens that were signed with this key."""

    def judge(authorization: str) -> Verdict:
        header = authorization.removeprefix("Bearer ").partition(".")[0]
        decoded = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)) or b"{}"
        is_right = msgspec.json.decode(decoded).get("kid") == key_id
        return None if is_right else StatusCode.UNAUTHENTICATED

    return judge


class TestCredentials:
    @pytest.fixture
    async def secure(
        self, authority: trustme.CA, ca_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[FakeService]:
        # What gRPC trusts it reads once in a process; no other test connects to a service by way of TLS.
        monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(ca_file))
        issued = authority.issue_cert("localhost")
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        async with fake_service(
            tls=grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
        ) as service:
            yield service

    @pytest.fixture
    def key_file(self, nothing_at_home: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        path = tmp_path / "key.json"
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        return path

    async def test_a_service_account_is_taken_from_the_environment(
        self, secure: FakeService, key_file: Path, private_keys: tuple[str, str]
    ) -> None:
        write_key_file(key_file, key=private_keys[0], key_id="first")
        secure.on_authorization = signed_with("first")

        async with opened(secure, is_secure=True) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.CONFIRMED] * 3, receipt.error

    async def test_an_emulator_is_sent_no_token(
        self, service: FakeService, key_file: Path, private_keys: tuple[str, str]
    ) -> None:
        seen: list[str] = []
        service.on_authorization = seen.append
        write_key_file(key_file, key=private_keys[0], key_id="first")

        async with opened(service) as publisher:
            await publisher.publish(make_events(1), deadline=AMPLE)

        assert set(seen) == {""}

    async def test_credentials_that_are_not_accepted_are_reported_when_opening(
        self, secure: FakeService, key_file: Path, private_keys: tuple[str, str]
    ) -> None:
        write_key_file(key_file, key=private_keys[0], key_id="first")
        secure.on_authorization = signed_with("second")

        with pytest.raises(Misconfigured, match="the credentials are not accepted: UNAUTHENTICATED"):
            async with opened(secure, is_secure=True):
                pass

    async def test_a_key_that_is_replaced_is_read_again(
        self, secure: FakeService, key_file: Path, private_keys: tuple[str, str]
    ) -> None:
        write_key_file(key_file, key=private_keys[0], key_id="first")
        secure.on_authorization = signed_with("first")

        async with opened(secure, is_secure=True) as publisher:
            secure.on_authorization = signed_with("second")
            refused = await publisher.publish(make_events(1), deadline=AMPLE)
            await eventually(lambda: publisher.trouble() is not None)
            write_key_file(key_file, key=private_keys[1], key_id="second")
            await eventually(lambda: publisher.trouble() is None)
            again = await publisher.publish(make_events(1), deadline=AMPLE)

        assert refused.outcomes[0] in (Outcome.REFUSED, Outcome.UNCONFIRMED)
        assert list(again.outcomes) == [Outcome.CONFIRMED], again.error

    @pytest.mark.usefixtures("nothing_at_home")
    async def test_without_credentials_opening_says_so(self) -> None:
        publisher = PubSubPublisher(project_id=PROJECT, topic="topic")

        with pytest.raises(Misconfigured, match=r"no credentials for Google Cloud: .*credentials were not found"):
            await publisher.open()

    async def test_a_key_file_that_is_missing_is_named(self, key_file: Path) -> None:
        publisher = PubSubPublisher(project_id=PROJECT, topic="topic")

        with pytest.raises(Misconfigured, match=f"File {key_file} was not found"):
            await publisher.open()

    @pytest.mark.parametrize(
        "content",
        [
            f'{{"type": "service_account", "private_key": "{SECRET}"',
            f'{{"type": "service_account", "private_key": "{SECRET}"}}',
            f'{{"type": "service_account", "private_key": "{SECRET}", "client_email": "a@b", "token_uri": "u"}}',
            f'{{"type": "authorized_user", "refresh_token": "{SECRET}"}}',
        ],
    )
    async def test_a_key_file_that_makes_no_sense_is_not_repeated(
        self, key_file: Path, content: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        await asyncio.to_thread(key_file.write_text, content)
        observed: list[Connectivity] = []
        publisher = PubSubPublisher(project_id=PROJECT, topic="topic", observe=observed.append)

        with pytest.raises(Misconfigured, match="no credentials for Google Cloud") as raised:
            await publisher.open()

        assert str(key_file) in str(raised.value)
        assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r} {observed} {caplog.text}"

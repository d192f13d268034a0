"""The HTTP fleet reader when requests fail: retries, errors, tokens and certificates."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest
import trustme

from sentinel.core.pulse.listing import PageShape
from sentinel.drivers.fleet_api.fleet_reader import MAX_BODY
from sentinel.ports.fleet import FetchError
from sentinel.runtime.backoff import Backoff
from tests.drivers.fleet_api.walking import (
    MILLISECOND,
    SECOND,
    SECRET,
    TWICE,
    MakeReader,
    failure,
    fetch_ids,
    walk,
)
from tests.support.fleet.fake_api import FakeResponse, FleetRequest, FleetServer, ResponseFault, every, only
from tests.support.http.stream_server import BytesServer
from tests.support.loop_time import HOUR, LoopTime

RETRYABLE = [
    FakeResponse(status=500),
    FakeResponse(status=503, body=b"<html>bad gateway</html>", content_type="text/html"),
    FakeResponse(status=408),
    FakeResponse(status=429),
    FakeResponse(status=204),
    *(fault for fault in ResponseFault if fault is not ResponseFault.HANG),
]


async def until_received(server: FleetServer, count: int) -> None:
    async with asyncio.timeout(60):
        while len(server.received) < count:  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(0.01)


class TestRetries:
    @pytest.mark.parametrize("shape", [PageShape.NUMBERED, PageShape.CURSOR])
    @pytest.mark.parametrize("fault", RETRYABLE)
    @pytest.mark.parametrize("number", [1, 2, 3])
    async def test_a_failure_of_one_page_costs_one_more_request(
        self,
        server: FleetServer,
        make_reader: MakeReader,
        fault: ResponseFault | FakeResponse,
        number: int,
        shape: PageShape,
    ) -> None:
        server.shape = shape
        expected = server.put_many(6)
        server.script = only(number, fault)

        assert await fetch_ids(make_reader()) == expected
        assert len(server.received) == 4

    async def test_a_request_that_hangs_is_retried_after_the_timeout(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        expected = server.put_many(3)
        server.script = only(1, ResponseFault.HANG)
        loop_time = LoopTime()

        fetching = asyncio.create_task(fetch_ids(make_reader(timeout=HOUR, retry_for=2 * HOUR)))
        await until_received(server, 1)
        loop_time.advance(HOUR)

        assert await fetching == expected

    @pytest.mark.parametrize("shape", [PageShape.NUMBERED, PageShape.CURSOR])
    async def test_with_every_seventh_request_failing_a_walk_completes(
        self, server: FleetServer, make_reader: MakeReader, shape: PageShape
    ) -> None:
        server.shape = shape
        server.script = every(7, *RETRYABLE)
        expected = server.put_many(300)

        assert await fetch_ids(make_reader(page_size=3)) == expected

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (FakeResponse(status=500), "500 Internal Server Error"),
            (ResponseFault.GARBAGE, "expected a page of resources"),
            (ResponseFault.TRUNCATED, "payload is not completed"),
            (
                ResponseFault.HALF,
                "expected 2 items of a total of 3, got 1; does the server cap its pages below page_size?",
            ),
            (ResponseFault.EMPTY, "expected a page of resources"),
            (ResponseFault.DROP, "Server disconnected"),
        ],
    )
    async def test_a_persistent_failure_is_a_fetch_error_with_its_reason(
        self, server: FleetServer, make_reader: MakeReader, fault: ResponseFault | FakeResponse, reason: str
    ) -> None:
        server.put_many(3)
        server.script = lambda _: fault

        text = await failure(make_reader(backoff=TWICE))

        assert text.startswith(f"page 1 of {server.url}/api/hyperfleet/v1/clusters: ")
        assert reason in text
        assert text.endswith("(2 tries)")

    async def test_a_server_that_never_responds_is_a_fetch_error(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.script = lambda _: ResponseFault.HANG

        text = await failure(make_reader(timeout=20 * MILLISECOND, backoff=TWICE))

        assert text.endswith("no complete response within 0.02 s (2 tries)")

    async def test_a_shortened_last_attempt_does_not_hide_the_reason(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.script = lambda _: ResponseFault.HANG
        loop_time, minute = LoopTime(), 60 * SECOND

        walking = asyncio.create_task(failure(make_reader(timeout=10 * minute, retry_for=15 * minute)))
        for attempt in (1, 2):
            await until_received(server, attempt)
            loop_time.advance(10 * minute)

        assert "no complete response within 600 s (2 tries)" in await walking

    async def test_a_backoff_beyond_the_deadline_ends_the_walk(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.script = lambda _: FakeResponse(status=500)
        one_hour = Backoff(initial=3600 * SECOND, maximum=3600 * SECOND)

        assert (await failure(make_reader(backoff=one_hour))).endswith("(1 try)")

    async def test_on_retry_gets_the_first_failure_of_each_walk(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.put_many(6)
        server.script = lambda request: FakeResponse(status=503) if request.number % 2 else None
        retries: list[str] = []
        reader = make_reader(on_retry=retries.append)

        await walk(reader)
        after_one_walk = list(retries)
        await walk(reader)

        assert after_one_walk == [f"page 1 of {server.url}/api/hyperfleet/v1/clusters: 503 Service Unavailable"]
        assert retries == after_one_walk * 2

    async def test_on_retry_is_not_called_for_a_failure_without_retry(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.script = lambda _: FakeResponse(status=403)
        retries: list[str] = []

        await failure(make_reader(on_retry=retries.append))

        assert retries == []

    async def test_a_failure_names_its_page(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put_many(6)
        server.script = lambda request: FakeResponse(status=404) if request.page == 3 else None

        assert (await failure(make_reader())).startswith("page 3 of ")

    async def test_an_unreachable_server_is_a_fetch_error(self, make_reader: MakeReader) -> None:
        async with FleetServer() as gone:
            pass

        text = await failure(make_reader(endpoint=gone.url, backoff=TWICE))

        assert "Cannot connect to host 127.0.0.1" in text

    async def test_the_next_walk_succeeds_after_an_outage(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        expected = server.put_many(3)
        server.script = lambda _: ResponseFault.DROP
        reader = make_reader(backoff=TWICE)
        await failure(reader)

        server.script = None

        assert await fetch_ids(reader) == expected

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 422])
    async def test_a_rejection_is_not_retried(
        self, server: FleetServer, make_reader: MakeReader, status: int
    ) -> None:
        server.script = lambda _: FakeResponse(status=status)

        text = await failure(make_reader())

        assert f": {status} " in text
        assert text.endswith("(1 try)")
        assert len(server.received) == 1

    async def test_a_response_above_the_limit_is_not_read(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        bomb = gzip.compress(bytes(MAX_BODY + 1), compresslevel=1)
        server.script = lambda _: FakeResponse(body=bomb, headers={"Content-Encoding": "gzip"})

        assert "page_size" in await failure(make_reader())
        assert len(server.received) == 1

    async def test_a_response_that_is_not_http_is_a_fetch_error(self, make_reader: MakeReader) -> None:
        async with BytesServer(b"\x16\x03\x01 nonsense\r\n\r\n") as server:
            text = await failure(make_reader(endpoint=server.url, token=SECRET, backoff=TWICE))

        assert "malformed HTTP" in text
        assert SECRET not in text


class TestRetryAfter:
    async def test_retry_after_is_honoured(self, server: FleetServer, make_reader: MakeReader) -> None:
        times: list[float] = []

        def busy(request: FleetRequest) -> FakeResponse | None:
            times.append(asyncio.get_running_loop().time())
            return FakeResponse(status=429, headers={"Retry-After": "1"}) if request.number == 1 else None

        server.script = busy

        await walk(make_reader())

        assert times[1] - times[0] >= 1

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        "headers",
        [
            {"Retry-After": "3600"},
            {
                "Retry-After": format_datetime(datetime(2026, 3, 1, 13, tzinfo=UTC), usegmt=True),
                "Date": format_datetime(datetime(2026, 3, 1, 12, tzinfo=UTC), usegmt=True),
            },
        ],
    )
    async def test_retry_after_beyond_the_deadline_ends_the_walk(
        self, server: FleetServer, make_reader: MakeReader, headers: dict[str, str], status: int
    ) -> None:
        server.script = lambda _: FakeResponse(status=status, headers=headers)

        text = await failure(make_reader())

        assert "asks to wait 3600 s, which is cut to 300 s" in text
        assert len(server.received) == 1

    @pytest.mark.parametrize("wanted", ["90", "3600"])
    async def test_a_long_retry_after_holds_for_5_minutes_at_most(
        self, server: FleetServer, make_reader: MakeReader, wanted: str
    ) -> None:
        server.script = lambda _: FakeResponse(status=429, headers={"Retry-After": wanted})
        reader = make_reader()

        with pytest.raises(FetchError) as first:
            await walk(reader)
        with pytest.raises(FetchError) as second:
            await walk(reader)

        longest = min(int(wanted), 300) * SECOND
        assert longest - 30 * SECOND < second.value.retry_after <= first.value.retry_after <= longest
        assert "429 Too Many Requests (asks to wait" in str(second.value)
        assert str(second.value).endswith("; nothing was requested")
        assert len(server.received) == 1

    async def test_a_walk_waits_for_a_short_retry_after_of_the_last(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        expected = server.put_many(3)
        times: list[float] = []

        def busy(request: FleetRequest) -> FakeResponse | None:
            times.append(asyncio.get_running_loop().time())
            return FakeResponse(status=503, headers={"Retry-After": "1"}) if request.number == 1 else None

        server.script = busy
        reader = make_reader(retry_for=2 * SECOND, backoff=Backoff(initial=3 * SECOND, maximum=3 * SECOND))
        await failure(reader)

        assert await fetch_ids(reader) == expected
        assert times[1] - times[0] >= 1

    async def test_another_status_with_retry_after_does_not_hold_the_next_walk(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        expected = server.put_many(1)
        server.script = only(1, FakeResponse(status=500, headers={"Retry-After": "60"}))
        reader = make_reader()

        with pytest.raises(FetchError) as caught:
            await walk(reader)

        assert caught.value.retry_after == 0 * SECOND
        assert await fetch_ids(reader) == expected

    @pytest.mark.parametrize(
        "value", ["soon", "-5", "1.5", "", "9" * 30, "Sun, 01 Mar 1998 12:00:00 GMT", "Sun, 01 Mar 2026 12:00:00"]
    )
    async def test_an_invalid_retry_after_is_ignored(
        self, server: FleetServer, make_reader: MakeReader, value: str
    ) -> None:
        server.script = only(1, FakeResponse(status=429, headers={"Retry-After": value}))

        assert await fetch_ids(make_reader()) == []


JSON = "application/json"
PROBLEM_JSON = "application/problem+json"


class TestExplanations:
    @pytest.mark.parametrize(
        ("body", "content_type", "explanation"),
        [
            (b'{"title": "Bad", "detail": "size is at most 100"}', PROBLEM_JSON, "size is at most 100"),
            (b'{"code": "HYPERFLEET-9", "reason": "no such kind"}', JSON, "no such kind"),
            (b'{"message": "nope"}', JSON, "nope"),
            (
                b'{"title": "Bad", "detail": "invalid query", "errors": [{"field": "size", "value": 500,'
                b' "constraint": "max", "message": "size must be at most 100"}]}',
                PROBLEM_JSON,
                "invalid query: size: size must be at most 100",
            ),
            (
                b'{"kind": "Error", "id": "8", "code": "hyperfleet-8", "reason": "Validation failed",'
                b' "details": [{"field": "size", "error": "must be at most 100"}]}',
                JSON,
                "Validation failed: size: must be at most 100",
            ),
            (b'{"title": "Bad"}', PROBLEM_JSON, "Bad"),
            (b"plain\r\n\x1b[31mwords", "text/plain", "plain [31mwords"),
            (b'{"detail": 7}', JSON, '{"detail": 7}'),
            (b"\xff\xfe", "text/plain", "\ufffd\ufffd"),
        ],
    )
    async def test_a_rejection_quotes_the_server(
        self, server: FleetServer, make_reader: MakeReader, body: bytes, content_type: str, explanation: str
    ) -> None:
        server.script = lambda _: FakeResponse(status=400, body=body, content_type=content_type)

        assert f": 400 Bad Request: {explanation} (1 try)" in await failure(make_reader())

    async def test_quoted_errors_do_not_contain_the_token(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        problem = {"errors": [{"field": f"Bearer {SECRET}", "message": f"{SECRET} is no size"}]}
        server.script = lambda _: FakeResponse(status=400, body=msgspec.json.encode(problem))

        text = await failure(make_reader(token=SECRET))

        assert "is no size" in text
        assert SECRET not in text

    async def test_an_html_page_is_not_quoted(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.script = lambda _: FakeResponse(status=404, body=b"<html>", content_type="text/html")

        assert "404 Not Found (1 try)" in await failure(make_reader())

    async def test_a_long_explanation_is_shortened(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.script = lambda _: FakeResponse(status=400, body=b"x" * 100_000, content_type="text/plain")

        assert len(await failure(make_reader())) < 500

    async def test_a_truncated_explanation_leaves_the_status(self, make_reader: MakeReader) -> None:
        async with BytesServer(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 99\r\n\r\nbecause") as server:
            assert "403 Forbidden" in await failure(make_reader(endpoint=server.url))

    @pytest.mark.parametrize(
        ("location", "shown"),
        [
            (f"https://elsewhere.example/login?token={SECRET}", "https://elsewhere.example;"),
            ("/login", "elsewhere;"),
            ("http://[", "elsewhere;"),
        ],
    )
    async def test_a_redirect_is_not_followed(
        self, server: FleetServer, make_reader: MakeReader, location: str, shown: str
    ) -> None:
        server.script = lambda _: FakeResponse(status=302, headers={"Location": location})

        text = await failure(make_reader(token=SECRET))

        assert f"302 Found to {shown}" in text
        assert SECRET not in text
        assert len(server.received) == 1


class TestToken:
    async def test_it_is_sent_as_bearer(self, server: FleetServer, make_reader: MakeReader) -> None:
        await walk(make_reader(token=SECRET))

        assert server.received[0].headers["Authorization"] == f"Bearer {SECRET}"

    async def test_without_one_nothing_is_sent(self, server: FleetServer, make_reader: MakeReader) -> None:
        await walk(make_reader())

        assert "Authorization" not in server.received[0].headers

    async def test_it_is_read_from_its_file_without_the_newline(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text(f"  {SECRET}\n")

        await walk(make_reader(token_file=file))

        assert server.received[0].headers["Authorization"] == f"Bearer {SECRET}"

    async def test_a_given_token_wins_over_the_file(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        await walk(make_reader(token="given", token_file=tmp_path / "missing"))

        assert server.received[0].headers["Authorization"] == "Bearer given"

    async def test_a_rotated_file_is_read_again(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        reader = make_reader(token_file=file)
        await walk(reader)

        file.with_suffix(".new").write_text("new")
        file.with_suffix(".new").rename(file)
        await walk(reader)

        assert [each.headers["Authorization"] for each in server.received] == ["Bearer old", "Bearer new"]

    async def test_a_token_rotated_during_a_rejection_is_tried(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        expected = server.put_many(1)

        def rotate(request: FleetRequest) -> FakeResponse | None:
            if request.headers["Authorization"] == "Bearer new":
                return None
            file.write_text("new")
            return FakeResponse(status=401)

        server.script = rotate

        assert await fetch_ids(make_reader(token_file=file)) == expected

    async def test_a_missing_file_is_named(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"

        text = await failure(make_reader(token_file=file))

        assert f"token_file {file}: No such file or directory" in text
        assert server.received == []

    @pytest.mark.parametrize("content", [f"{SECRET}\nX-Evil: 1", f"{SECRET} two", f"{SECRET}ü", f"{SECRET}\0"])
    async def test_an_invalid_token_is_refused_without_showing_it(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path, content: str
    ) -> None:
        file = tmp_path / "token"
        file.write_text(content)

        in_file = await failure(make_reader(token_file=file))
        given = await failure(make_reader(token=content))

        assert f"token_file {file}: expected only visible ASCII characters" in in_file
        assert "token: expected only visible ASCII characters" in given
        assert SECRET not in in_file + given
        assert server.received == []

    async def test_an_empty_file_is_refused(self, make_reader: MakeReader, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("\n")

        assert "got nothing" in await failure(make_reader(token_file=file))

    async def test_a_token_echoed_by_the_server_is_redacted(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        echo = msgspec.json.encode({"detail": f"Bearer {SECRET} has expired"})
        server.script = lambda _: FakeResponse(status=401, body=echo)

        with pytest.raises(FetchError) as caught:
            await walk(make_reader(token=SECRET))

        assert "Bearer *** has expired" in str(caught.value)
        assert SECRET not in repr(caught.value) + repr(caught.value.__cause__)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_server(authority: trustme.CA) -> AsyncIterator[FleetServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with FleetServer(tls=context) as running:
        running.put_many(3)
        yield running


class TestTls:
    async def test_a_private_authority_is_trusted(
        self, tls_server: FleetServer, make_reader: MakeReader, authority: trustme.CA, tmp_path: Path
    ) -> None:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

        found = await fetch_ids(make_reader(endpoint=tls_server.url, ca_file=tmp_path / "ca.pem"))

        assert found == ["cls-0", "cls-1", "cls-2"]

    async def test_an_unknown_authority_is_not_trusted(
        self, tls_server: FleetServer, make_reader: MakeReader
    ) -> None:
        text = await failure(make_reader(endpoint=tls_server.url))

        assert "certificate is not trusted (unable to get local issuer certificate)" in text
        assert "ca_file" in text
        assert tls_server.received == []

    async def test_a_replaced_ca_file_is_read_again(
        self, tls_server: FleetServer, make_reader: MakeReader, authority: trustme.CA, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.pem"
        trustme.CA().cert_pem.write_to_path(str(file))
        reader = make_reader(endpoint=tls_server.url, ca_file=file)
        await failure(reader)

        authority.cert_pem.write_to_path(str(file))

        assert len(await fetch_ids(reader)) == 3

    async def test_a_missing_ca_file_is_named(
        self, tls_server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.pem"

        text = await failure(make_reader(endpoint=tls_server.url, ca_file=file))

        assert f"ca_file {file}: No such file or directory" in text

    async def test_an_invalid_ca_file_is_named(
        self, tls_server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.pem"
        file.write_text("not a certificate")

        assert f"ca_file {file}: " in await failure(make_reader(endpoint=tls_server.url, ca_file=file))

    async def test_without_tls_the_ca_file_is_not_read(
        self, server: FleetServer, make_reader: MakeReader, tmp_path: Path
    ) -> None:
        assert await fetch_ids(make_reader(ca_file=tmp_path / "missing")) == []

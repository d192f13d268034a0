"""The format of log lines, levels, and the redaction of secrets."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from sentinel.core.events import Mode
from sentinel.runtime.log import (
    Logging,
    configure_logging,
    flush_logs,
    get_logger,
    handle_loop_exception,
)
from sentinel.runtime.log_format import JsonFormatter
from sentinel.runtime.secrets import Redactor
from tests.support.examples import examples

SECRET = "pl4nted/s3cret+with ümläut@&\"quotes'"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Output:
    """The written log."""

    def __init__(self, stream: io.StringIO) -> None:
        self.stream = stream

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def record(self) -> dict[str, object]:
        (only,) = self.records
        return only


Configure = Callable[..., Output]


@pytest.fixture
def configure() -> Iterator[Configure]:
    configured: list[Logging] = []

    def start(
        level: str = "info",
        layout: str | None = "json",
        *,
        stream: io.StringIO | None = None,
        secrets: tuple[str, ...] = (),
    ) -> Output:
        output = Output(stream or io.StringIO())
        configured.append(configure_logging(level, layout, stream=output.stream, secrets=secrets, environ={}))
        return output

    yield start
    for logging_setup in reversed(configured):
        logging_setup.restore()


def test_an_event_is_one_json_object_with_its_fields_in_order(configure: Configure) -> None:
    output = configure()

    get_logger("pulse").info("cycle.done", fetched=40, selector="region=us-east")

    time = str(output.record["time"])
    assert list(output.record) == ["time", "level", "logger", "event", "fetched", "selector"]
    assert output.record | {"time": ""} == {
        "time": "",
        "level": "info",
        "logger": "sentinel.pulse",
        "event": "cycle.done",
        "fetched": 40,
        "selector": "region=us-east",
    }
    assert time.endswith("Z")
    assert datetime.fromisoformat(time).tzinfo == UTC


def test_values_are_rendered_by_type(configure: Configure) -> None:
    output = configure()

    get_logger("x").info(
        "values",
        took=timedelta(milliseconds=1500),
        at=datetime(2025, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        mode=Mode.BINARY,
        error=ValueError("went\n  wrong"),
        group=ExceptionGroup("several", [KeyError("a"), OSError()]),
        nothing=None,
        items=("a", 1, {"b": 2.5}),
        path=Redactor(),
    )

    record = output.record
    assert record["took"] == 1.5
    assert record["at"] == "2025-01-01T00:00:00Z"
    assert record["mode"] == "binary"
    assert record["error"] == "ValueError: went wrong"
    assert record["group"] == "KeyError: 'a'; OSError"
    assert record["nothing"] is None
    assert record["items"] == ["a", 1, {"b": 2.5}]
    assert record["path"] == "Redactor(0 secrets)"


def test_a_field_cannot_replace_time_level_or_logger(configure: Configure) -> None:
    output = configure()

    get_logger("x").info("plain", time="never", level="fatal", logger="other")

    assert output.record["level"] == "info"
    assert output.record["level_"] == "fatal"


def test_an_events_fields_override_bound_fields(configure: Configure) -> None:
    output = configure()

    get_logger("x").bind(part="pulse", attempt=1).info("failed", attempt=2)

    assert output.record["part"] == "pulse"
    assert output.record["attempt"] == 2


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@settings(max_examples=examples(30))
@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name not in ("self", "event")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(st.characters())
            | st.binary()
            | st.timedeltas()
            | st.datetimes(timezones=st.none() | st.just(UTC))
            | st.builds(Unprintable)
            | st.builds(ValueError, st.text()),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
def test_any_value_is_one_line_of_json(fields: dict[str, object]) -> None:
    record = logging.LogRecord("sentinel.x", logging.INFO, "", 0, "event", None, None)
    record.fields = fields

    line = JsonFormatter(Redactor(["secret"])).format(record)

    assert "\n" not in line
    assert json.loads(line)["event"] == "event"


def test_a_value_that_contains_itself_is_cut_off(configure: Configure) -> None:
    output = configure()
    endless: list[object] = []
    endless.append(endless)

    get_logger("x").info("odd", endless=endless, broken=Unprintable(), half="\ud800", huge=2**80)

    assert output.record["broken"] == "<unprintable Unprintable>"
    assert output.record["huge"] == 2**80


class Fatal(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_error_whose_str_raises_system_exit_is_logged_by_its_type(configure: Configure) -> None:
    output = configure()

    get_logger("x").exception("odd", error=Fatal(), also=[Fatal()])

    assert output.record["error"] == "Fatal"
    assert output.record["also"] == ["Fatal"]


def test_the_length_of_a_line_is_limited(configure: Configure) -> None:
    output = configure(secrets=(SECRET,))
    long = "x" * 16_380 + SECRET + "y" * 10_000_000

    get_logger("x").exception("odd", error=ValueError(long), text=long)

    assert len(output.text) < 100_000
    assert SECRET[:3] not in str(output.record["text"])


def test_events_below_the_level_are_not_written(configure: Configure) -> None:
    output = configure("warning")
    log = get_logger("x")

    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")

    assert [record["event"] for record in output.records] == ["c", "d"]
    assert not log.is_debug


def test_debug_can_be_enabled(configure: Configure) -> None:
    output = configure("debug")
    log = get_logger("x")

    log.debug("seen")

    assert log.is_debug
    assert output.record["level"] == "debug"


def test_only_an_unexpected_error_has_a_traceback(configure: Configure) -> None:
    output = configure()
    log = get_logger("x")
    try:
        raise LookupError("nowhere")
    except LookupError as error:
        log.error("expected", error=error)
        log.exception("bug", error=error)

    expected, bug = output.records
    assert expected["error"] == bug["error"] == "LookupError: nowhere"
    assert "traceback" not in expected
    assert 'raise LookupError("nowhere")' in str(bug["traceback"])


def test_warnings_of_libraries_are_logged(configure: Configure) -> None:
    output = configure()
    library = logging.getLogger("aiormq.connection")

    library.info("chatter")
    library.warning("connection to %s lost", "broker")

    assert output.record["logger"] == "aiormq.connection"
    assert output.record["event"] == "connection to broker lost"


def test_everything_of_libraries_is_logged_at_debug(configure: Configure) -> None:
    output = configure("debug")

    logging.getLogger("aiormq.connection").debug("chatter")

    assert output.record["event"] == "chatter"


def test_a_library_message_with_wrong_arguments_is_still_logged() -> None:
    record = logging.LogRecord("sloppy", logging.WARNING, "", 0, "%d items", ("many",), None)

    line = JsonFormatter(Redactor()).format(record)

    assert json.loads(line)["event"].startswith("%d items (unformattable: TypeError")


def test_python_warnings_are_logged(configure: Configure) -> None:
    output = configure()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)

    assert output.record["logger"] == "py.warnings"
    assert "old ways" in str(output.record["event"])


def test_console_lines_are_aligned_and_quote_values_if_needed(configure: Configure) -> None:
    output = configure(layout="console")

    get_logger("pulse").warning("cycle.failed", error="no route", count=3, seconds=0.1234567)

    assert output.text[12:] == " warning pulse      cycle.failed error='no route' count=3 seconds=0.123457\n"


def test_a_console_line_contains_no_control_characters(configure: Configure) -> None:
    output = configure(layout="console")
    evil = "\x1b[2Jgone\x9b\x7f\nnext"
    try:
        raise ValueError(evil)
    except ValueError as error:
        get_logger("x").exception(evil, error=error, field=evil)

    assert all(character.isprintable() or character == "\n" for character in output.text)


def test_only_terminals_get_color(configure: Configure) -> None:
    plain = configure(layout="console")
    get_logger("x").info("plain")
    colored = configure(layout="console", stream=Terminal())
    get_logger("x").info("colored")

    assert "\x1b[" not in plain.text
    assert "\x1b[" in colored.text


def test_no_color_is_respected() -> None:
    stream = Terminal()
    configured = configure_logging("info", "console", stream=stream, environ={"NO_COLOR": "1"})
    try:
        get_logger("x").info("plain")
    finally:
        configured.restore()

    assert "\x1b[" not in stream.getvalue()


def test_without_a_format_a_terminal_gets_console_and_a_pipe_gets_json(configure: Configure) -> None:
    pipe = configure(layout=None)
    get_logger("x").info("event")
    terminal = configure(layout=None, stream=Terminal())
    get_logger("x").info("event")

    assert pipe.text.startswith("{")
    assert not terminal.text.startswith("{")


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
        str(URL.build(scheme="amqp", host="broker", user="u", password=SECRET)),
        str(URL.build(scheme="http", host="api", query={"token": SECRET})),
        repr(SECRET),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        f"Authorization: Bearer {SECRET}!",
    ],
)
@pytest.mark.parametrize("layout", ["json", "console"])
def test_a_secret_is_masked_in_every_form_and_every_place(configure: Configure, layout: str, form: str) -> None:
    output = configure("debug", layout, secrets=(SECRET,))
    log = get_logger("x")
    try:
        raise ConnectionError(f"refused: {form}")
    except ConnectionError as error:
        event = f"event {form}"
        log.exception(event, error=error, field=form, nested={form: [form]}, other={1: error})
        logging.getLogger("library").warning("to %s", form, exc_info=True)

    visible = output.text.casefold()
    assert "***" in visible
    assert "s3cret" not in visible
    assert "pl4nted" not in visible


def test_the_password_of_any_url_is_masked(configure: Configure) -> None:
    output = configure()

    get_logger("x").info("connecting", url="amqp://guest:0p3n@broker:5672/%2F")

    assert output.record["url"] == "amqp://guest:***@broker:5672/%2F"


def test_the_password_of_a_secret_url_is_masked_alone(configure: Configure) -> None:
    output = configure(secrets=("amqp://user:p%40ssword@broker/",))

    get_logger("x").info("refused", raw="p%40ssword", decoded="for p@ssword")

    assert output.record["raw"] == "***"
    assert output.record["decoded"] == "for ***"


def test_a_short_secret_is_masked_only_as_a_whole_word(configure: Configure) -> None:
    output = configure(secrets=("abc",))

    get_logger("x").info("login", password="abc", text="user:abc@host", word="abcdef", number=3)

    assert output.record["password"] == "***"
    assert output.record["text"] == "user:***@host"
    assert output.record["word"] == "abcdef"


def test_a_secret_of_digits_does_not_break_the_json_of_a_number(configure: Configure) -> None:
    output = configure(secrets=("12345",))

    get_logger("x").info("count", items=123456, text="123456")

    assert output.record["items"] == 123456
    assert output.record["text"] == "***6"


def test_a_secret_added_later_is_masked() -> None:
    stream = io.StringIO()
    configured = configure_logging("info", "json", stream=stream)
    try:
        configured.redactor.add("rotated-token\n")
        get_logger("x").info("sent", header="Bearer rotated-token")
    finally:
        configured.restore()

    assert json.loads(stream.getvalue())["header"] == "Bearer ***"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("refused: Bearer abc123def", "refused: Bearer ***"),
        ("basic dXNlcjpwYXNz.", "basic ***"),
        ("{'Authorization': 'Bearer secretword', 'x': 1}", "{'Authorization': 'Bearer ***', 'x': 1}"),
        ("GET http://x/y?api_key=hunter22&a=b: 403", "GET http://x/y?api_key=***&a=b: 403"),
        ("GET http://x/y?passphrase=sesame&pwd=hunter", "GET http://x/y?passphrase=***&pwd=***"),
        ("https://s3/x?X-Amz-Signature=0a1b2c&Expires=300", "https://s3/x?X-Amz-Signature=***&Expires=300"),
    ],
)
def test_text_that_looks_like_a_secret_is_masked(text: str, expected: str) -> None:
    assert Redactor().redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Basic authentication required",
        "the bearer token has expired",
        "authorization failed: Bearer Token expected",
        "?page=2&size=100&order=key",
        "?has_token=true&key=17",
        "concurrency=10 key=value",
    ],
)
def test_words_and_numbers_are_not_masked(text: str) -> None:
    assert Redactor().redact(text) == text


def test_the_value_of_a_field_with_a_telling_name_is_masked(configure: Configure) -> None:
    output = configure()

    get_logger("x").info("login", password="swordfish", request={"api_key": ["swordfish"], "user": "u"}, tokens=3)

    assert output.record["password"] == "***"
    assert output.record["request"] == {"api_key": "***", "user": "u"}
    assert output.record["tokens"] == 3


@pytest.mark.parametrize("layout", ["json", "console"])
def test_a_secret_in_an_exceptions_text_is_masked(configure: Configure, layout: str) -> None:
    output = configure(layout=layout)
    body = {"user": "u", "password": "swordfish"}
    try:
        try:
            raise ValueError(f"rejected {body!r}")
        except ValueError as cause:
            raise ConnectionError(f"POST {json.dumps(body)}; Authorization: Custom swordfish") from cause
    except ConnectionError as error:
        get_logger("x").exception("failed", error=error, several=ExceptionGroup("two", [error]))
        logging.getLogger("library").exception("request %r failed", body)

    assert "ConnectionError" in output.text
    assert "swordfish" not in output.text


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert SECRET not in repr(Redactor([SECRET]))


@given(st.text(min_size=4).filter(lambda text: len(text.strip()) >= 4 and "*" not in text), st.text(), st.text())
def test_a_secret_of_four_characters_is_masked_in_any_text(secret: str, before: str, after: str) -> None:
    stripped = secret.strip()

    redacted = Redactor([secret]).redact(before + stripped + after)

    assert stripped not in redacted


def test_an_uncaught_exception_is_logged_and_redacted(configure: Configure) -> None:
    output = configure(secrets=(SECRET,))

    sys.excepthook(ValueError, ValueError(SECRET), None)

    assert output.record["event"] == "process.unhandled"
    assert output.record["error"] == "ValueError: ***"


def test_a_keyboard_interrupt_is_not_logged(configure: Configure) -> None:
    output = configure()

    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)

    assert output.text == ""


def test_an_exception_in_a_thread_is_logged(configure: Configure) -> None:
    output = configure()

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join(5)

    assert output.record["thread"] == "worker"
    assert output.record["error"] == "ValueError: in a thread"


def test_an_exception_in_a_finalizer_is_logged(configure: Configure) -> None:
    output = configure()

    class Sticky:
        def __del__(self) -> None:
            raise ValueError("in a finalizer")

    Sticky()
    gc.collect()

    assert output.record["event"] == "process.unraisable"


async def test_an_exception_in_a_callback_is_logged(configure: Configure) -> None:
    def fail() -> None:
        raise ValueError("in a callback")

    output = configure()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(handle_loop_exception)

    loop.call_soon(fail)
    loop.call_exception_handler({"message": "odd"})
    await asyncio.sleep(0)

    odd, failed = output.records
    assert odd["message"] == "odd"
    assert failed["error"] == "ValueError: in a callback"


def test_a_closed_stream_is_ignored(configure: Configure) -> None:
    output = configure()
    output.stream.close()

    get_logger("x").info("lost")
    flush_logs()


def test_restore_undoes_everything(configure: Configure) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), sys.excepthook, threading.excepthook, sys.unraisablehook)

    configure_logging("debug", "json", stream=io.StringIO()).restore()

    after = (root.level, list(root.handlers), sys.excepthook, threading.excepthook, sys.unraisablehook)
    assert after == before


def test_an_unknown_level_or_format_is_rejected() -> None:
    with pytest.raises(ValueError, match="chatty"):
        configure_logging("chatty")
    with pytest.raises(ValueError, match="xml"):
        configure_logging("info", "xml")


def test_logging_loads_neither_metrics_nor_http() -> None:
    script = (
        "import sys, sentinel.runtime.log\n"
        "print(sorted({'prometheus_client', 'aiohttp', 'rich', 'opentelemetry'} & set(sys.modules)))"
    )

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)

    assert result.stdout.strip() == "[]", result.stderr


VALUES = st.one_of(
    st.text(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none(),
    st.booleans(),
    st.sampled_from(Mode),
    st.lists(st.text(), max_size=2),
    st.sampled_from(
        [SECRET, f"x {SECRET} y", "amqp://user:p4ss@host", "?token=abcdef", "Bearer abc123", "\ud800"]
    ),
)


class CountingStream(io.StringIO):
    """Counts writes and flushes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.flushes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


class TestInfoEach:
    @pytest.mark.parametrize("layout", ["json", "console"])
    @given(rows=st.lists(st.tuples(VALUES, VALUES), max_size=4), bound=VALUES)
    def test_lines_are_those_of_single_calls(
        self, layout: str, rows: list[tuple[object, object]], bound: object
    ) -> None:
        written = []
        for is_batch in (False, True):
            stream = io.StringIO()
            logging_setup = configure_logging("info", layout, stream=stream, secrets=[SECRET], environ={})
            log = get_logger("x").bind(bound=bound)
            if is_batch:
                log.info_each("made", first=[row[0] for row in rows], time=[row[1] for row in rows])
            else:
                for first, time in rows:
                    log.info("made", first=first, time=time)
            logging_setup.restore()
            written.append(without_times(stream.getvalue(), layout))

        assert written[0] == written[1]

    def test_all_lines_are_one_write_and_one_flush(self, configure: Configure) -> None:
        stream = CountingStream()
        output = configure(stream=stream)

        get_logger("x").info_each("made", number=[1, 2, 3])

        assert (stream.writes, stream.flushes) == (1, 1)
        assert [record["number"] for record in output.records] == [1, 2, 3]

    def test_nothing_is_written_below_the_level(self, configure: Configure) -> None:
        output = configure("warning")

        get_logger("x").info_each("made", number=[1, 2])

        assert output.text == ""

    def test_other_handlers_get_each_record(self, configure: Configure, caplog: pytest.LogCaptureFixture) -> None:
        output = configure()

        get_logger("x").bind(who="me").info_each("made", number=[1, 2])

        assert [vars(record)["fields"] for record in caplog.records] == [
            {"who": "me", "number": 1},
            {"who": "me", "number": 2},
        ]
        assert len(output.records) == 2

    def test_filters_are_asked_about_each_record(self, configure: Configure) -> None:
        output = configure()
        logger = logging.getLogger("sentinel.x")
        numbers: list[object] = []

        def keep_even(record: logging.LogRecord) -> bool:
            numbers.append(vars(record)["fields"]["number"])
            return int(vars(record)["fields"]["number"]) % 2 == 0

        for filtered in (logger, logging.getLogger().handlers[-1]):
            filtered.addFilter(keep_even)
            get_logger("x").info_each("made", number=[1, 2])
            filtered.removeFilter(keep_even)

        assert numbers == [1, 2, 1, 2]
        assert [record["number"] for record in output.records] == [2, 2]

    def test_a_handler_above_the_level_gets_nothing(self, configure: Configure) -> None:
        output = configure()
        logging.getLogger().handlers[-1].setLevel(logging.WARNING)

        get_logger("x").info_each("made", number=[1])

        assert output.text == ""

    def test_a_line_that_the_stream_cannot_encode_is_dropped_alone(self, configure: Configure) -> None:
        raw = io.BytesIO()
        configure("info", "console", stream=io.TextIOWrapper(raw, "ascii"))

        get_logger("x").info_each("made", name=["a", "é", "b"])

        assert [line.rpartition(b"=")[2] for line in raw.getvalue().splitlines()] == [b"a", b"b"]

    def test_a_stream_that_fails_does_not_fail_the_caller(self, configure: Configure) -> None:
        stream = io.StringIO()
        configure(stream=stream)
        stream.close()

        get_logger("x").info_each("made", number=[1])


def without_times(text: str, layout: str) -> list[object]:
    if layout == "json":
        return [list((json.loads(line) | {"time": ""}).items()) for line in text.split("\n")[:-1]]
    return [line.partition(" ")[2] for line in text.split("\n")]


@given(
    st.lists(VALUES.filter(lambda value: isinstance(value, str)).map(str), max_size=6),
    st.sampled_from([SECRET, "abc", "a", "1"]),
)
def test_texts_redacted_together_are_those_redacted_one_by_one(texts: list[str], secret: str) -> None:
    redactor = Redactor([secret])

    assert list(redactor.redact_each(texts)) == [redactor.redact(text) for text in texts]

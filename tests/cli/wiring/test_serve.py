"""`serve`, which every service command calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

import sentinel.cli
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, refuse, serve
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Part, SharedResource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import LogFormat
from sentinel.runtime.probes.listener import Listener
from sentinel.runtime.probes.pages import PageResponse
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.tracing import NO_TRACING, Tracer

JSON = LogSettings(format=LogFormat.JSON)
LOOPBACK = Address("127.0.0.1", 0)
TRACED = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20pl4nted-s3cret",
}
"""Tracing is on; nothing is sent, because there are no spans."""


class Line(msgspec.Struct):
    event: str
    problem: str = ""
    number: int = 0
    paths: tuple[str, ...] = ()


def lines(captured: pytest.CaptureFixture[str]) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in captured.readouterr().err.splitlines()]


async def return_at_once(stopping: Stopping) -> None:
    """A loop that ends at once."""


def one_finite_part(context: ServiceContext) -> Assembly:
    return Assembly(
        parts=[lambda: Part(name="done", loops=(return_at_once,), is_finite=True)], description={"number": 42}
    )


def test_a_service_is_described_run_and_ended(capfd: pytest.CaptureFixture[str]) -> None:
    code = serve(one_finite_part, name="test", component="test", log=JSON, warnings=["odd but allowed"])

    logged = lines(capfd)
    assert code == 0
    assert [line.event for line in logged] == [
        "settings.warning",
        "service.starting",
        "service.started",
        "service.stopping",
        "service.stopped",
    ]
    assert logged[0].problem == "odd but allowed"
    assert logged[1].number == 42


def test_probes_and_metrics_listen_before_anything_is_shared(capfd: pytest.CaptureFixture[str]) -> None:
    def assemble(context: ServiceContext) -> Assembly:
        own = SharedResource("own", lambda: Listener(LOOPBACK, {"/own": _never}, log=context.log))
        return msgspec.structs.replace(one_finite_part(context), shared=[own])

    serve(assemble, name="test", component="test", log=JSON, probes=ProbeAddresses(LOOPBACK, LOOPBACK))

    listening = [line.paths for line in lines(capfd) if line.event == "http.listening"]
    assert listening == [("/healthz", "/metrics", "/readyz"), ("/own",)]


def test_every_service_has_a_tracer_whose_thread_ends_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    threads = set(threading.enumerate())
    tracers: list[Tracer] = []

    def assemble(context: ServiceContext) -> Assembly:
        tracers.append(context.tracer)
        return one_finite_part(context)

    def refuse_to_assemble(context: ServiceContext) -> Assembly:
        tracers.append(context.tracer)
        raise Misconfigured("install the extra")

    for each in (assemble, refuse_to_assemble):
        serve(each, name="test", component="test", log=JSON, environ=TRACED)
        serve(each, name="test", component="test", log=JSON, environ={})

    left = set(threading.enumerate()) - threads
    for thread in left:
        thread.join(timeout=2)
    assert [tracer is NO_TRACING for tracer in tracers] == [False, True, False, True]
    assert not [thread.name for thread in left if thread.is_alive()]


def test_the_headers_for_the_collector_are_secrets_of_every_service(capfd: pytest.CaptureFixture[str]) -> None:
    def assemble(context: ServiceContext) -> Assembly:
        context.log.info("leaking", text="it is pl4nted-s3cret")
        return one_finite_part(context)

    serve(assemble, name="test", component="test", log=JSON, environ=TRACED)

    output = capfd.readouterr().err
    assert "leaking" in output
    assert "pl4nted-s3cret" not in output


def test_a_misconfiguration_is_printed_with_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    def assemble(context: ServiceContext) -> Assembly:
        raise Misconfigured("install the extra")

    assert serve(assemble, name="test", component="test", log=JSON) == 2
    assert capfd.readouterr().err == "install the extra\n"


def test_early_and_late_secrets_stay_out_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    def assemble(context: ServiceContext) -> Assembly:
        context.redactor.add("learned-later")
        context.log.info("secrets", text="known-before and learned-later")
        return one_finite_part(context)

    serve(assemble, name="test", component="test", log=JSON, secrets=["known-before"])

    output = capfd.readouterr().err
    assert "secrets" in output
    assert "known-before" not in output
    assert "learned-later" not in output


def test_a_part_may_join_while_the_service_runs(capfd: pytest.CaptureFixture[str]) -> None:
    dynamic, stopping = DynamicParts(), Stopping()

    async def join(own: Stopping) -> None:
        dynamic.add("late", lambda: Part(name="late", loops=(end,)))
        await own.wait()

    async def end(own: Stopping) -> None:
        stopping.request()
        await own.wait()

    def assemble(context: ServiceContext) -> Assembly:
        return Assembly(parts=[lambda: Part(name="first", loops=(join,))], dynamic=dynamic, stopping=stopping)

    assert serve(assemble, name="test", component="test", log=JSON) == 0
    assert "part.added" in [line.event for line in lines(capfd)]


def test_sighup_reloads_a_service_with_on_reload(capfd: pytest.CaptureFixture[str]) -> None:
    stopping = Stopping()

    async def hang_up(own: Stopping) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await own.wait()

    async def reload() -> None:
        stopping.request()

    def assemble(context: ServiceContext) -> Assembly:
        part = Part(name="first", loops=(hang_up,))
        return Assembly(parts=[lambda: part], on_reload=reload, stopping=stopping)

    assert serve(assemble, name="test", component="test", log=JSON) == 0
    assert "service.reloaded" in [line.event for line in lines(capfd)]


def test_problems_are_printed_one_per_line_with_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert refuse(["first", "second"]) == 2
    assert capfd.readouterr().err == "first\nsecond\n"


def test_no_command_runs_a_lifecycle_by_itself() -> None:
    sources = Path(next(iter(sentinel.cli.__path__))).rglob("*.py")
    callers = [source.name for source in sources if "runner.run(" in source.read_text()]

    assert callers == ["serve.py"]


def _never(accept: str) -> PageResponse:
    raise AssertionError("expected no request for this page")


def test_a_rest_server_loads_no_second_http_server() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, sentinel.cli.api.command, sentinel.cli.wiring.api; print(*sorted(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()

    assert "uvicorn" in loaded
    assert not {"aiohttp", "alembic", "aio_pika", "cel_expr_python", "google", "jwt", "rich"} & set(loaded)

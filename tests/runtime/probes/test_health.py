"""Liveness and readiness are computed from checks."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from sentinel.runtime.probes.health import Health


def test_a_service_without_problems_is_alive_and_ready() -> None:
    health = Health()
    health.add(readiness={"broker": lambda: None}, liveness={"loop": lambda: None})

    assert json.loads(health.readiness().encode()) == {
        "status": "ok",
        "checks": {"broker": {"status": "ok", "message": ""}},
    }
    assert json.loads(health.liveness().encode()) == {
        "status": "ok",
        "checks": {"loop": {"status": "ok", "message": ""}},
    }


def test_one_failing_check_makes_a_service_unready() -> None:
    health = Health()
    health.add(readiness={"api": lambda: "no poll has succeeded yet", "broker": lambda: None})

    report = health.readiness()

    assert not report.is_ok
    assert json.loads(report.encode()) == {
        "status": "error",
        "checks": {
            "api": {"status": "error", "message": "no poll has succeeded yet"},
            "broker": {"status": "ok", "message": ""},
        },
    }


def test_an_unready_service_is_alive() -> None:
    health = Health()
    health.add(readiness={"api": lambda: "unreachable"})

    assert health.liveness().is_ok


def test_a_check_that_raises_has_failed() -> None:
    health = Health()

    def broken() -> str | None:
        raise LookupError("nothing there")

    health.add(readiness={"odd": broken})

    assert health.readiness().checks["odd"].message == "the check failed: LookupError: nothing there"


def test_a_check_is_run_every_time() -> None:
    results: list[str | None] = ["not yet", None]
    health = Health()
    health.add(readiness={"api": lambda: results.pop(0)})

    assert [health.readiness().is_ok, health.readiness().is_ok] == [False, True]


def test_a_removed_check_is_not_run() -> None:
    health = Health()
    health.add(readiness={"part": lambda: "gone"}, liveness={"part": lambda: "gone"})

    health.remove("part", "never there")

    assert health.readiness().is_ok
    assert health.liveness().is_ok


def test_a_stopping_service_is_alive_and_not_ready() -> None:
    health = Health()
    health.add(readiness={"broker": lambda: None}, liveness={"loop": lambda: "ended"})

    health.stop()

    assert health.liveness().is_ok
    assert json.loads(health.readiness().encode()) == {
        "status": "error",
        "checks": {"shutdown": {"status": "error", "message": "shutting down"}},
    }


def test_messages_are_redacted() -> None:
    health = Health(redact=lambda text: text.replace("hunter2", "***"))
    health.add(readiness={"broker": lambda: f"refused hunter2 at {datetime(2025, 1, 1, tzinfo=UTC):%Y}"})

    assert health.readiness().checks["broker"].message == "refused *** at 2025"


def test_a_name_is_taken_while_a_check_has_it() -> None:
    health = Health()
    health.add(readiness={"api": lambda: None}, liveness={"loop": lambda: None})

    health.remove("api")

    assert [health.has(name) for name in ("api", "loop")] == [False, True]

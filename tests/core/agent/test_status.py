"""What a heartbeat says about the configuration."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sentinel.core.agent import status
from sentinel.core.agent.apply import Apply
from sentinel.core.agent.orders import Task
from sentinel.core.agent.state import AgentState, Applied, Attempt
from sentinel.core.agent.status import Observation
from sentinel.core.hub.instance import Health

NOW = datetime(2025, 1, 1, tzinfo=UTC)
APPLIED = Applied(version="api@1", hash="h1", file_hash="f1", applied=NOW)
PATH = "/etc/sentinel/config.kdl"


def test_the_hash_is_that_of_the_content_while_the_file_is_as_written() -> None:
    running = status.running(AgentState(applied=APPLIED), Observation(path=PATH, file_hash="f1"))

    assert (running.version, running.hash, running.message) == ("api@1", "h1", "")


def test_before_anything_was_applied_the_hash_is_that_of_the_file() -> None:
    running = status.running(AgentState(), Observation(path=PATH, file_hash="f0"))

    assert (running.version, running.hash, running.message) == ("", "f0", "")


def test_a_file_that_the_agent_could_not_restore_was_not_changed_by_hand() -> None:
    state = AgentState(applied=APPLIED, restore_failure="no space left on device")

    running = status.running(state, Observation(path=PATH, file_hash="f2"))

    assert running.message == f"{PATH} is not api@1, which could not be restored: no space left on device"


@pytest.mark.parametrize("applied", [APPLIED, None])
def test_a_candidate_is_not_reported_before_it_works(applied: Applied | None) -> None:
    state = AgentState(applied=applied, apply=Apply(task=Task(version="api@2", hash="h2"), attempts=1))

    running = status.running(state, Observation(path=PATH, file_hash="f2"))

    assert running.hash == ("" if applied is None else "h1")
    assert running.message == ""


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (
            Observation(path=PATH, file_hash="f2", modified=NOW, differences=('routes "api"', "system")),
            f'{PATH} is not api@1 since 2025-01-01T00:00:00Z, it was changed by hand (routes "api", system)',
        ),
        (Observation(path=PATH, file_hash="f2"), f"{PATH} is not api@1, it was changed by hand"),
        (Observation(path=PATH), f"{PATH} is missing; it was api@1"),
        (
            Observation(path=PATH, file_problem="permission denied"),
            f"{PATH} cannot be compared with api@1: permission denied",
        ),
    ],
)
def test_a_file_that_is_not_what_was_written_is_explained(observed: Observation, message: str) -> None:
    running = status.running(AgentState(applied=APPLIED), observed)

    assert running.hash == observed.file_hash
    assert running.message == message
    assert running.health is Health.HEALTHY


def test_everything_that_people_should_know_is_said() -> None:
    state = AgentState(
        applied=Applied(version="api@1", hash="h1", file_hash="f1", applied=NOW, lacks_restart=0),
        attempt=Attempt(version="api@2", failure="health check failed after 3 attempts"),
        restore_failure="no copy",
    )
    observed = Observation(path=PATH, file_hash="f1", health_problem="503", state_problem="cannot write x")

    running = status.running(state, observed)

    assert running.health is Health.UNHEALTHY
    assert running.message == (
        "api@2: health check failed after 3 attempts; restart required; "
        "the proxy is not healthy: 503; cannot write x"
    )


@pytest.mark.parametrize(
    ("restore_failure", "health_problem", "health"),
    [
        ("", "", Health.HEALTHY),
        ("no copy", "", Health.DEGRADED),
        ("", "responded 503", Health.UNHEALTHY),
        ("no copy", "responded 503", Health.UNHEALTHY),
    ],
)
def test_failing_health_checks_are_unhealthy(restore_failure: str, health_problem: str, health: Health) -> None:
    state = AgentState(applied=APPLIED, restore_failure=restore_failure)

    running = status.running(state, Observation(path=PATH, file_hash="f1", health_problem=health_problem))

    assert running.health is health

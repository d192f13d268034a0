"""The live view, on terminals of all sizes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from rich.console import Console

from sentinel.cli.client.resource_table import ResourceSummary
from sentinel.cli.up.activity import Activity, ActivityLevel
from sentinel.cli.up.dashboard_state import DashboardObserver, DashboardState, InstancesState, KindState
from sentinel.cli.up.live import LogBuffer, run_live_view
from sentinel.cli.up.screen import draw
from sentinel.cli.up.welcome import ExampleCommand
from sentinel.core.fleet.documents import ConditionStatus
from sentinel.core.hub.states import State
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.health import Health
from sentinel.testing.clock import START
from tests.cli.hub.deployments_shown import progress
from tests.cli.up.instances.documents import make_instance
from tests.cli.up.reports import REQUIRED, SECOND, decide_on, make_summary, report_cycle
from tests.core.hub.rollout_driver import Driver, batches_of, request

SHOW_CURSOR, LEAVE_SCREEN = "\x1b[?25h", "\x1b[?1049l"
EXAMPLES = [
    ExampleCommand("sentinel create clusters --name one", "create a cluster"),
    ExampleCommand("sentinel watch clusters", "see it become ready"),
    ExampleCommand("sentinel why one", "what does it wait for?"),
]
DONE = (ConditionStatus.TRUE, "Done", "")
WAITING = (ConditionStatus.FALSE, "PreconditionsNotMet", "Waiting for validation to complete")
READY = dict.fromkeys(REQUIRED, DONE)


def make_dashboard(
    clusters: Sequence[ResourceSummary], *, pools: int = 0, total: int | None = None
) -> DashboardState:
    dashboard = DashboardState(started=START)
    dashboard.update(KindState("clusters", REQUIRED, clusters, len(clusters) if total is None else total))
    nodepools = [make_summary(f"pool-{number}") for number in range(pools)]
    dashboard.update(KindState("nodepools", ("validation",), nodepools, pools))
    return dashboard


def ready_clusters(count: int) -> list[ResourceSummary]:
    return [make_summary(f"cluster-{number}", READY) for number in range(count)]


def busy_dashboard(clusters: int = 10) -> DashboardState:
    dashboard = make_dashboard(ready_clusters(clusters), pools=8)
    for number in range(60):
        resource_id = f"id-cluster-{number % 5}"
        dashboard.record(
            Activity(at=START, source="pulse", resource_id=resource_id, text="max age expired (ready)")
        )
    return dashboard


def screen(
    dashboard: DashboardState,
    *,
    width: int = 80,
    height: int = 24,
    errors: Sequence[str] = (),
    examples: Sequence[ExampleCommand] = EXAMPLES,
    now: datetime = START,
) -> list[str]:
    frame = draw(
        dashboard, now=now, title="http://here", examples=examples, errors=errors, width=width, height=height
    )
    console = Console(
        width=width, height=height, file=io.StringIO(), record=True, highlight=False, force_terminal=True
    )
    console.print(frame)
    return console.export_text().splitlines()


def test_instances_are_shown_within_the_smallest_terminal() -> None:
    dashboard = busy_dashboard()
    edges = tuple(make_instance(f"edge-{number}", zone="abcab"[number - 1]) for number in range(1, 6))
    dashboard.instances = InstancesState(edges, 5)

    small, large = screen(dashboard), screen(dashboard, width=120, height=40)

    assert (len(small), len(large)) == (24, 40)
    for lines in (small, large):
        text = "\n".join(lines)
        assert "instances (5)  5 online" in text
        assert all(f"● {edge.id}/{edge.labels['zone']} online edge@1" in text for edge in edges)
        assert "try next" in text
        assert sum("max age expired" in line for line in lines) >= 3


def test_a_deployment_is_shown_until_a_while_after_its_end() -> None:
    asked = request(*"abcde", rolling=batches_of(5))
    driver = Driver(asked)
    dashboard = busy_dashboard()
    driver.start()
    dashboard.deployment = progress(driver, asked)
    running = screen(dashboard), screen(dashboard, width=120, height=40)
    driver.complete(*"abcde")
    dashboard.deployment = progress(driver, asked)
    completed = screen(dashboard, now=driver.now)
    later = screen(dashboard, now=driver.now + timedelta(minutes=1))

    assert [len(lines) for lines in running] == [24, 40]
    for lines in running:
        assert any("api@2 → 5 instances · rolling · running" in line for line in lines)
        assert sum("● cluster" in line for line in lines) >= 2
        assert any("try next" in line for line in lines)
    assert any("5 instances · rolling · completed" in line for line in completed)
    assert not any("5 instances" in line for line in later)


def test_without_instances_nothing_is_shown_of_them() -> None:
    assert "instances" not in "\n".join(screen(busy_dashboard()))


def test_an_instance_that_needs_attention_comes_first_and_says_why() -> None:
    dashboard = busy_dashboard()
    healthy = [make_instance(f"edge-{number}") for number in range(1, 30)]
    broken = [
        make_instance("edge-30", state=State.OFFLINE),
        make_instance("edge-31", running="edge@1", assigned="edge@2", in_sync=False),
        make_instance("edge-32", running="edge@1", assigned="edge@1", in_sync=False),
    ]
    dashboard.instances = InstancesState((*healthy, *broken), 40)

    lines = screen(dashboard)

    start = next(index for index, line in enumerate(lines) if "instances (40)" in line)
    first = lines[start + 1]
    assert "29" not in first
    assert "✕ edge-30" in first
    assert "edge@1 → edge@2" in " ".join(lines[start + 1 : start + 3])
    assert "more" in lines[start + 3]
    assert "2 out of sync" in lines[start]


def row(lines: Sequence[str], name: str) -> list[str]:
    [found] = [line.split() for line in lines if line[1:2] in ("●", "○", "✕") and f" {name} " in line]
    return found[2:]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40), (200, 60)])
@pytest.mark.parametrize("clusters", [0, 3, 30, 300])
def test_a_frame_fills_the_terminal_exactly(width: int, height: int, clusters: int) -> None:
    lines = screen(busy_dashboard(clusters), width=width, height=height, errors=["dns: broken"] * 5)

    assert len(lines) == height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 5), (40, 10), (60, 12)])
def test_a_terminal_that_is_too_small_is_not_an_error(width: int, height: int) -> None:
    assert screen(busy_dashboard(), width=width, height=height)


def test_a_row_shows_the_state_and_the_conditions_of_adapters() -> None:
    fails = (ConditionStatus.FALSE, "SpecRejected", "replicas: expected a positive integer, got 0")
    dashboard = make_dashboard(
        [
            make_summary("fine", READY, generation=3, available_at=3),
            make_summary("broken", {"validation": fails, "dns": WAITING}, generation=2, available_at=1),
            make_summary("going", READY, is_deleting=True),
        ]
    )
    report_cycle(
        DashboardObserver(dashboard, "clusters"),
        [decide_on("id-fine", age=4 * SECOND), decide_on("id-broken", generation=2)],
    )

    lines = screen(dashboard, width=160)

    assert row(lines, "fine") == ["3/3", "yes", "yes", "in", "11s", "✓validation", "✓dns", "✓provision"]
    assert row(lines, "broken")[:8] == ["2/2", "no", "at", "1", "→", "sent", "✗validation", "…dns"]
    assert any("·provision – replicas: expected a positive integer, got 0" in line for line in lines)
    assert row(lines, "going")[:3] == ["1/1", "deleting", "no"]


def test_a_row_shows_whether_its_event_is_paced_or_paused() -> None:
    dashboard = make_dashboard([make_summary("waiting"), make_summary("held", is_paused=True)])
    report_cycle(
        DashboardObserver(dashboard, "clusters"),
        [decide_on("id-waiting", generation=2, is_paced=True), decide_on("id-held", generation=2, is_paused=True)],
    )

    lines = screen(dashboard)

    assert row(lines, "waiting")[3] == "paced"
    assert row(lines, "held")[3] == "paused"


def test_resources_that_wait_come_first_in_a_large_fleet() -> None:
    lines = screen(make_dashboard([*ready_clusters(299), make_summary("broken")]))

    assert "broken" in next(line for line in lines if line[1:2] in ("●", "○"))
    assert any("more" in line and "…" in line for line in lines)


def test_resources_that_were_not_read_are_counted() -> None:
    lines = screen(make_dashboard([make_summary("one", READY)], total=5_000))

    assert any("clusters (5000)" in line for line in lines)
    assert any("… and 5000 more" in line or "… and 4999 more" in line for line in lines)


def test_the_ready_count_of_a_large_kind_comes_from_its_pulse() -> None:
    dashboard = make_dashboard(ready_clusters(5), total=1_200)
    decisions = [decide_on(f"c{number}", is_ready=number >= 3) for number in range(1_200)]
    report_cycle(DashboardObserver(dashboard, "clusters"), decisions)

    lines = screen(dashboard)

    assert "1197 of 1200 ready" in lines[0]
    assert any("… and 1196 more, 3 of them not ready" in line for line in lines)


def test_activities_show_the_name_of_the_resource() -> None:
    dashboard = busy_dashboard(3)
    dashboard.record(
        Activity(at=START, source="dns", resource_id="id-cluster-1", text="done", level=ActivityLevel.SUCCESS)
    )

    lines = screen(dashboard)

    assert any(line.split()[1:] == ["dns", "cluster-1", "done"] for line in lines)
    assert any(line.split()[1:3] == ["pulse", "cluster-2"] for line in lines)


def test_long_names_keep_their_ends() -> None:
    dashboard = make_dashboard([make_summary(f"a-rather-long-name-of-a-cluster-{number}") for number in range(2)])

    lines = [line for line in screen(dashboard) if line[1:2] == "○"]

    assert [line.split()[1][-1] for line in lines] == ["0", "1"]


def test_errors_are_at_the_top() -> None:
    lines = screen(busy_dashboard(), errors=["adapter dns: failure 3 in a row"])

    assert lines[1].split() == ["!", "adapter", "dns:", "failure", "3", "in", "a", "row"]


def test_example_commands_are_at_the_bottom() -> None:
    lines = screen(busy_dashboard())

    assert [line.split()[0] for line in lines[-4:]] == ["try", "sentinel", "sentinel", "sentinel"]


def test_a_small_terminal_shows_all_example_commands() -> None:
    examples = [
        ExampleCommand("export SENTINEL_TOKEN=…", ""),
        ExampleCommand("export SENTINEL_SERVER=…", ""),
        *EXAMPLES,
    ]

    lines = screen(busy_dashboard(), examples=examples)

    assert lines[-1].split()[:3] == ["sentinel", "why", "one"]


async def draw_once(health: Health, *, is_idle: bool = True) -> str:
    """Draw at most one frame and stop; return what was written to the terminal."""
    terminal = io.StringIO()
    stopping = Stopping()
    running = asyncio.create_task(
        run_live_view(
            stopping,
            dashboard=busy_dashboard(),
            clock=SystemClock(),
            title="here",
            examples=EXAMPLES,
            health=health,
            console=Console(file=terminal, force_terminal=True, width=80, height=24),
            is_idle=lambda: is_idle,
        )
    )
    await asyncio.sleep(0)
    stopping.request()
    await asyncio.wait_for(running, timeout=90)
    return terminal.getvalue()


async def test_nothing_is_drawn_while_the_terminal_is_blocked() -> None:
    output = await draw_once(Health(), is_idle=False)

    assert "try next" not in output
    assert output.endswith(SHOW_CURSOR + LEAVE_SCREEN)


async def test_the_view_draws_until_stopped_and_restores_the_screen() -> None:
    health = Health()
    health.add(readiness={"adapter dns": lambda: "is failing"})

    output = await draw_once(health)

    assert "try next" in output
    assert "adapter dns: is failing" in output
    assert output.endswith(SHOW_CURSOR + LEAVE_SCREEN)


def test_the_log_buffer_keeps_the_latest_lines_until_written() -> None:
    terminal = io.StringIO()
    buffer = LogBuffer(terminal)

    for number in range(1_000):
        buffer.write(f"line {number}\n")
    meanwhile = terminal.getvalue()
    buffer.write_to_terminal()

    assert meanwhile == ""
    assert terminal.getvalue().splitlines() == [f"line {number}" for number in range(500, 1_000)]

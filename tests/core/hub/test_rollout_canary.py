from __future__ import annotations

from collections.abc import Sequence

import pytest

from sentinel.core.hub.analysis import Outcome, Verdict
from sentinel.core.hub.deployment import Canary, Count, Strategy
from sentinel.core.hub.rollout_state import (
    Abort,
    Analyse,
    Analysed,
    Pause,
    Promote,
    Refuse,
    Resume,
    RollbackState,
    RolloutState,
)
from sentinel.core.hub.states import State
from tests.core.hub.rollout_driver import (
    MINUTE,
    NEW,
    SECOND,
    START,
    Driver,
    batches_of,
    facts,
    of_type,
    request,
    sent,
)

NAMES = ("a", "b", "c", "d")
SUCCESS, FAILED, INCONCLUSIVE = Outcome.SUCCESS, Outcome.FAILED, Outcome.INCONCLUSIVE


def started(canary: Canary | None = None, *, names: Sequence[str] = NAMES, threshold: int = 1) -> Driver:
    asked = request(
        *names,
        strategy=Strategy.CANARY,
        rolling=batches_of(2, threshold=threshold),
        canary=canary or Canary(instances=Count(1)),
    )
    driver = Driver(asked)
    driver.start()
    return driver


def watched(canary: Canary | None = None, *, names: Sequence[str] = NAMES) -> Driver:
    """Return a rollout whose canary has completed."""
    driver = started(canary, names=names)
    driver.complete("a")
    return driver


class TestWatch:
    def test_metrics_are_analysed_at_every_interval(self) -> None:
        driver = watched()
        assert driver.deadline == START + 30 * SECOND
        assert driver.wait(29 * SECOND) == []

        asked = of_type(driver.wait(SECOND), Analyse)

        assert asked == [Analyse(("a",), ("b", "c", "d"), START, START + 30 * SECOND)]
        assert driver.deadline == START + 60 * SECOND

    def test_it_goes_on_after_the_whole_duration(self) -> None:
        driver = watched()
        for _ in range(9):
            driver.wait(30 * SECOND)
            assert driver.answer(SUCCESS) == []
        assert sent(driver.wait(30 * SECOND)) == []

        assert sent(driver.answer(SUCCESS)) == [("b", "api@2"), ("c", "api@2")]
        driver.complete("b", "c")
        driver.complete("d")
        assert driver.rollout.state is RolloutState.COMPLETED

    def test_a_violation_fails_at_once_and_rolls_back(self) -> None:
        driver = watched()
        driver.wait(30 * SECOND)

        commands = driver.answer(FAILED, "error_rate 0.2 is above 0.05")

        assert driver.rollout.reason == "canary analysis: error_rate 0.2 is above 0.05"
        assert sent(commands) == [("a", "api@1")]
        assert driver.states == {"a": "completed", "b": "skipped", "c": "skipped", "d": "skipped"}
        driver.go_back("a")
        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_without_an_answer_it_is_asked_again(self) -> None:
        driver = watched()
        driver.wait(5 * MINUTE)
        assert driver.deadline == driver.now + 30 * SECOND

        [asked] = of_type(driver.wait(30 * SECOND), Analyse)

        assert asked.until == driver.now
        assert driver.rollout.state is RolloutState.RUNNING

    def test_an_answer_to_another_question_is_ignored(self) -> None:
        driver = watched()
        driver.wait(30 * SECOND)
        before = driver.rollout

        assert driver.do(Analysed(START, Verdict(outcome=FAILED))) == []
        assert driver.rollout is before
        driver.answer(INCONCLUSIVE)
        assert driver.answer(FAILED) == []

    def test_the_last_verdict_is_kept_for_users(self) -> None:
        driver = watched()
        driver.wait(30 * SECOND)

        driver.answer(INCONCLUSIVE, "3 requests")
        driver.do(Abort())

        assert driver.rollout.canary_wait is None
        assert driver.rollout.verdict == Verdict(outcome=INCONCLUSIVE, reason="3 requests")

    def test_a_short_duration_is_analysed_at_its_end(self) -> None:
        driver = watched(Canary(instances=Count(1), duration=10 * SECOND))

        driver.wait(10 * SECOND)

        assert sent(driver.answer(SUCCESS)) == [("b", "api@2"), ("c", "api@2")]

    def test_canaries_alone_complete_after_the_watch(self) -> None:
        driver = watched(names=("a",))
        assert driver.status == (RolloutState.RUNNING, RollbackState.NONE)
        driver.wait(5 * MINUTE)

        driver.answer(SUCCESS)

        assert driver.rollout.state is RolloutState.COMPLETED

    def test_a_canary_that_fails_is_rolled_back_without_a_watch(self) -> None:
        driver = started()

        assert sent(driver.fail("a")) == [("a", "api@1")]
        assert driver.rollout.state is RolloutState.FAILED

    def test_below_the_threshold_the_watch_begins_without_it(self) -> None:
        driver = started(Canary(instances=Count(2)), threshold=2)
        driver.fail("a")
        driver.complete("b")

        [asked] = of_type(driver.wait(30 * SECOND), Analyse)

        assert (asked.canaries, asked.baseline) == (("b",), ("c", "d"))

    def test_canaries_that_are_all_offline_are_watched_in_vain(self) -> None:
        asked = request(*NAMES, strategy=Strategy.CANARY, canary=Canary(instances=Count(1)))
        driver = Driver(asked, [facts(name, State.OFFLINE) for name in NAMES])
        driver.start()

        [asked_for] = of_type(driver.wait(5 * MINUTE), Analyse)

        assert asked_for.canaries == ()
        assert driver.states["b"] == "waiting"


class TestSteps:
    def test_each_is_analysed_like_the_first(self) -> None:
        driver = watched(Canary(instances=Count(1), steps=(Count(2), Count(3))))

        for expected in ([("b", "api@2")], [("c", "api@2")], [("d", "api@2")]):
            driver.wait(5 * MINUTE)
            assert sent(driver.answer(SUCCESS)) == expected
            driver.complete(expected[0][0])

        assert driver.rollout.state is RolloutState.COMPLETED

    def test_all_canaries_so_far_are_analysed_over_the_time_of_the_step(self) -> None:
        driver = watched(Canary(instances=Count(1), steps=(Count(2),)))
        driver.wait(5 * MINUTE)
        driver.answer(SUCCESS)
        driver.complete("b")

        [asked] = of_type(driver.wait(30 * SECOND), Analyse)

        assert asked == Analyse(("a", "b"), ("c", "d"), START + 5 * MINUTE, driver.now)


class TestInconclusive:
    def test_it_extends_the_duration_twice_then_pauses(self) -> None:
        driver = watched()

        for _ in range(2):
            driver.wait(5 * MINUTE)
            driver.answer(INCONCLUSIVE, "3 requests")
            assert driver.rollout.state is RolloutState.RUNNING
        driver.wait(5 * MINUTE)
        assert of_type(driver.commands, Analyse)[-1].since == START
        driver.answer(INCONCLUSIVE, "3 requests")

        assert driver.rollout.state is RolloutState.PAUSED
        assert driver.rollout.reason == "canary analysis is inconclusive: 3 requests"
        assert driver.deadline is None

    def test_an_extension_can_succeed(self) -> None:
        driver = watched()
        driver.wait(5 * MINUTE)
        driver.answer(INCONCLUSIVE)
        driver.wait(5 * MINUTE - SECOND)
        assert sent(driver.answer(SUCCESS)) == []
        driver.wait(SECOND)

        assert sent(driver.answer(SUCCESS)) == [("b", "api@2"), ("c", "api@2")]

    def test_an_interval_that_is_inconclusive_changes_nothing(self) -> None:
        driver = watched()
        driver.wait(30 * SECOND)

        assert driver.answer(INCONCLUSIVE) == []
        assert driver.rollout.state is RolloutState.RUNNING

    def paused(self) -> Driver:
        driver = watched()
        for _ in range(3):
            driver.wait(5 * MINUTE)
            driver.answer(INCONCLUSIVE)
        assert driver.rollout.state is RolloutState.PAUSED
        return driver

    def test_promote_ends_the_pause(self) -> None:
        driver = self.paused()

        assert sent(driver.do(Promote())) == [("b", "api@2"), ("c", "api@2")]
        assert (driver.rollout.state, driver.rollout.reason) == (RolloutState.RUNNING, "")

    def test_resume_begins_a_new_duration(self) -> None:
        driver = self.paused()

        driver.do(Resume())

        wait = driver.rollout.canary_wait
        assert wait is not None
        assert (wait.since, wait.ends, wait.extensions) == (driver.now, driver.now + 5 * MINUTE, 0)


class TestPromote:
    def test_it_ends_the_watch(self) -> None:
        driver = watched()

        assert sent(driver.do(Promote())) == [("b", "api@2"), ("c", "api@2")]

    def test_the_last_canary_completes_the_deployment(self) -> None:
        driver = watched(names=("a",))

        driver.do(Promote())

        assert driver.rollout.state is RolloutState.COMPLETED

    @pytest.mark.parametrize("is_after", [False, True])
    def test_it_is_refused_before_and_after_the_watch(self, is_after: bool) -> None:
        driver = watched() if is_after else started()
        if is_after:
            driver.do(Promote())

        assert of_type(driver.do(Promote()), Refuse) == [
            Refuse("only a canary that is being watched can be promoted")
        ]


class TestPause:
    def test_no_metrics_are_analysed_meanwhile(self) -> None:
        driver = watched()
        driver.wait(30 * SECOND)
        driver.do(Pause())

        assert driver.answer(FAILED) == []
        assert driver.wait(10 * MINUTE) == []
        assert driver.deadline is None

    def test_resume_begins_a_new_duration(self) -> None:
        driver = watched()
        driver.do(Pause())
        driver.wait(10 * MINUTE)

        driver.do(Resume())
        [asked] = of_type(driver.wait(30 * SECOND), Analyse)

        assert asked.since == START + 10 * MINUTE

    def test_a_canary_that_completes_meanwhile_is_watched_after_it(self) -> None:
        driver = started()
        driver.do(Pause())
        driver.complete("a")
        driver.now += MINUTE

        driver.do(Resume())

        assert driver.rollout.canary_wait is not None
        assert driver.rollout.canary_wait.since == START + MINUTE

    def test_an_instance_that_is_lost_during_the_watch_stays_completed(self) -> None:
        driver = watched()

        driver.observe("a", State.OFFLINE, assigned=NEW)

        assert driver.states["a"] == "completed"
        assert driver.rollout.state is RolloutState.RUNNING

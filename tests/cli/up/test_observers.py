"""Several observers as one, of pulses and of adapters."""

from __future__ import annotations

from sentinel.adapter import observer as adapter_observer
from sentinel.cli.up.narration import Activity, AdapterNarrator, PulseNarrator
from sentinel.core.adapter.task import OutcomeKind
from sentinel.pulse import report as pulse_report
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import ManualClock
from tests.cli.up.reports import cycle, evaluation, judge


def fails(happening: Activity) -> None:
    raise UnicodeEncodeError("ascii", "ö", 0, 1, "a terminal that cannot say it")


def test_an_observer_of_a_pulse_that_fails_harms_nobody_else() -> None:
    told: list[Activity] = []
    observers = pulse_report.PulseObservers(
        *(
            PulseNarrator(resource_type="clusters", tell=tell, clock=ManualClock())
            for tell in (fails, told.append)
        ),
        log=get_logger("test"),
    )

    cycle(observers, [judge("c1", generation=2)], fetch_error="no answer")
    observers.crashed(ValueError())

    assert len(told) == 3


def test_an_observer_of_an_adapter_that_fails_harms_nobody_else() -> None:
    told: list[Activity] = []
    observers = adapter_observer.AdapterObservers(
        *(AdapterNarrator(adapter="dns", tell=tell, clock=ManualClock()) for tell in (fails, told.append)),
        log=get_logger("test"),
    )

    observers.evaluated(evaluation(OutcomeKind.DONE))
    observers.nacked("no answer", "c1", 1)
    observers.crashed("c1", ValueError())

    assert len(told) == 3

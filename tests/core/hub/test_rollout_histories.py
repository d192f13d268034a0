from __future__ import annotations

import msgspec
import pytest

from sentinel.core.hub import rollout
from sentinel.core.hub.rollout_state import Rollout
from tests.core.hub import rollout_histories
from tests.core.hub.rollout_histories import STORIES


@pytest.mark.parametrize("name", STORIES)
def test_a_recorded_history_goes_the_same_way_again(name: str) -> None:
    history = rollout_histories.read(name)
    current = history.begin

    for step in history.steps:
        current, commands = rollout.advance(current, step.event, step.time)
        assert commands == step.commands

    assert current == history.end
    assert current.is_over


@pytest.mark.parametrize("name", STORIES)
def test_a_history_can_be_taken_up_after_every_step(name: str) -> None:
    history = rollout_histories.read(name)
    current = history.begin

    for step in history.steps:
        stored = msgspec.json.encode(current)
        current, commands = rollout.advance(msgspec.json.decode(stored, type=Rollout), step.event, step.time)
        assert commands == step.commands

    assert current == history.end

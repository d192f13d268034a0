"""Which agents a hub serves."""

from __future__ import annotations

import pytest

from sentinel.core.hub.agent_versions import is_supported


@pytest.mark.parametrize("agent", ["1.4.0", "1.5.9", "1.6", "v1.5.0-rc1", "1.5+build"])
def test_one_minor_version_older_or_newer_is_supported(agent: str) -> None:
    assert is_supported(agent, "1.5.2")


@pytest.mark.parametrize("agent", ["1.3.9", "1.7.0", "0.5.2", "2.5.2"])
def test_others_are_not_supported(agent: str) -> None:
    assert not is_supported(agent, "1.5.2")


@pytest.mark.parametrize("agent", ["", "dev", "1", "1.x", "٣.٤"])
def test_a_version_that_is_none_is_not_judged(agent: str) -> None:
    assert is_supported(agent, "1.5.2")
    assert is_supported("1.5.2", agent)

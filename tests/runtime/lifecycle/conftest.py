from __future__ import annotations

from random import Random

import pytest

from tests.runtime.lifecycle.journal import Journal


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def random(seed: int) -> Random:
    return Random(seed)  # noqa: S311  # not for secrets

from __future__ import annotations

import pytest

from tests.runtime.lifecycle.journal import Journal


@pytest.fixture
def journal() -> Journal:
    return Journal()

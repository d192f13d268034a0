"""The suites are plain modules, so pytest has to be told to explain their assertions too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.contract.dead_letters",
    "tests.contract.fleet",
    "tests.contract.publisher",
    "tests.contract.subscriber",
)

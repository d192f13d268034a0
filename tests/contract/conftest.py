"""Registers the suites for assertion rewriting, because they are not test modules."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.contract.dead_letters",
    "tests.contract.fleet",
    "tests.contract.publisher",
    "tests.contract.subscriber",
)

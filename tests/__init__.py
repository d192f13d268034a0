"""The tests. Assertions of suites and helpers that test modules share are explained like their own."""

import pytest

pytest.register_assert_rewrite("tests.contract", "tests.support")

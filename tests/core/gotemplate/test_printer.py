"""Values as Go prints them. The expected output was printed by Go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.gotemplate import go_string
from sentinel.core.json import Json


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e6, "1e+06"),
        (100000.0, "100000"),
        (123456.0, "123456"),
        (1234567.0, "1.234567e+06"),
        (123456789.0, "1.23456789e+08"),
        (1e20, "1e+20"),
        (1e21, "1e+21"),
        (1e-4, "0.0001"),
        (1e-5, "1e-05"),
        (0.00012345, "0.00012345"),
        (1.0, "1"),
        (120.0, "120"),
        (0.1, "0.1"),
        (-12.75, "-12.75"),
        (-2.5e-7, "-2.5e-07"),
        (1e100, "1e+100"),
        (0.0, "0"),
        (-0.0, "-0"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2097152.5, "2.0971525e+06"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_floats_are_printed_as_in_go(number: float, text: str) -> None:
    assert go_string(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a b"),
        (None, "<nil>"),
        (True, "true"),
        (False, "false"),
        (-(2**63), "-9223372036854775808"),
        (2**63, "9.223372036854776e+18"),
        (10**400, "+Inf"),
        (-(10**400), "-Inf"),
        ([], "[]"),
        ([1, None, "a", [2.0]], "[1 <nil> a [2]]"),
        ({}, "map[]"),
        ({"b": 2, "a": {"z": None, "é": 1, "e": True}}, "map[a:map[e:true z:<nil> é:1] b:2]"),
    ],
)
def test_values_are_printed_as_in_go(value: Json, text: str) -> None:
    assert go_string(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_float_reads_back_as_the_same_number(number: float) -> None:
    assert float(go_string(number)) == number

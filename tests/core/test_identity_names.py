"""Names of identities, users and instances."""

from __future__ import annotations

import pytest

from sentinel.core.identity_names import is_identity_name, is_instance_id, is_user_name


@pytest.mark.parametrize("name", ["ops", "ann@example.com", "a", "A-1_b.c+d", "x" * 128])
def test_these_are_names_of_identities_and_users(name: str) -> None:
    assert is_identity_name(name)
    assert is_user_name(name)


@pytest.mark.parametrize(
    "name", ["", " ops", "ops\n", "x" * 129, "anonymous", "nobody", "-ops", "grün", "a b", "ops\0"]
)
def test_these_are_not_names(name: str) -> None:
    assert not is_identity_name(name)
    assert not is_user_name(name)


@pytest.mark.parametrize("name", ["team/ops", "spiffe:ops"])
def test_a_user_is_a_segment_of_a_url(name: str) -> None:
    assert is_identity_name(name)
    assert not is_user_name(name)


@pytest.mark.parametrize(("instance", "is_valid"), [("edge-1", True), ("", False), ("a/b", False), ("..", False)])
def test_an_instance_is_a_segment_of_a_url(instance: str, is_valid: bool) -> None:
    assert is_instance_id(instance) is is_valid

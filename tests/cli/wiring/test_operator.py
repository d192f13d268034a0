"""What the operator of a process is built from."""

from __future__ import annotations

from sentinel.cli.wiring.operator import lease_name


def test_a_lease_is_named_after_its_config() -> None:
    assert lease_name("us-east") == "sentinel-us-east"
    assert len(lease_name("a" * 244)) == 253


def test_the_lease_of_a_long_name_is_valid_and_unique() -> None:
    one, two = (lease_name("a" * 251 + end) for end in ("b", "c"))

    assert one != two
    assert len(one) <= 253

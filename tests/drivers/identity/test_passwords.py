"""Passwords hashed with Argon2id."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.drivers.identity.passwords import MEMORY_KIB, Argon2Passwords
from tests.contract.passwords import PASSWORD, PasswordHasherContract

KNOWN = "$argon2id$v=19$m=65536,t=3,p=4$MDAwMDAwMDAwMDAwMDAwMA$j82koTqXH0xFBb+mbno82JgH5uXuTaoSbYXA2BXMhdw"
"""A hash with other parameters, of the password `pw`."""


class TestArgon2Passwords(PasswordHasherContract):
    @pytest.fixture
    def hasher(self) -> Argon2Passwords:
        return Argon2Passwords(memory_kib=64)


async def test_hashes_carry_the_parameters_that_owasp_recommends() -> None:
    hashed = await Argon2Passwords().hash(PASSWORD)

    assert hashed.startswith(f"$argon2id$v=19$m={MEMORY_KIB},t=2,p=1$")
    assert MEMORY_KIB == 19456


async def test_hashes_with_other_parameters_are_read() -> None:
    hasher = Argon2Passwords(memory_kib=64)

    assert await hasher.verify("pw", KNOWN)
    assert not await hasher.verify("pW", KNOWN)


@pytest.mark.parametrize("hashed", ["", "plain", "$argon2id$v=19$m=1$x$y", KNOWN[:-4]])
async def test_a_damaged_hash_is_right_for_no_password(hashed: str) -> None:
    assert not await Argon2Passwords(memory_kib=64).verify("pw", hashed)


async def test_the_event_loop_runs_while_a_password_is_hashed() -> None:
    hashing = asyncio.create_task(Argon2Passwords(memory_kib=256 * 1024).hash(PASSWORD))
    turns = 0
    while not hashing.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 100

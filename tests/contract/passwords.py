"""The contract of `ports.passwords.PasswordHasher`."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.ports.passwords import PasswordHasher

PASSWORD = "correct horse battery staple"


class PasswordHasherContract:
    """Subclasses define a fixture `hasher`."""

    @pytest.mark.parametrize("password", [PASSWORD, "", "x" * 1024, "grün-粒-🙂", " space "])
    async def test_a_hash_is_right_for_its_password_only(self, hasher: PasswordHasher, password: str) -> None:
        hashed = await hasher.hash(password)

        assert await hasher.verify(password, hashed)
        for other in (password + "x", password[1:] + "y", password.upper() + "1"):
            assert not await hasher.verify(other, hashed)

    async def test_equal_passwords_have_different_hashes(self, hasher: PasswordHasher) -> None:
        first, second = await asyncio.gather(hasher.hash(PASSWORD), hasher.hash(PASSWORD))

        assert first != second
        assert PASSWORD not in first

    async def test_an_unknown_user_has_no_password(self, hasher: PasswordHasher) -> None:
        assert not await hasher.verify(PASSWORD, None)
        assert not await hasher.verify("", None)

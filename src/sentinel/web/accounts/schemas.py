"""The bodies of requests and responses about accounts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sentinel.core.access import Role
from sentinel.ports.identity_store import IssuedToken, User
from sentinel.web.lists import Page, PageSize

UserRole: TypeAlias = Literal["viewer", "operator", "admin"]
"""The roles of people. Machines have tokens."""


class Credentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user signs in with."""

    name: Annotated[str, Meta(max_length=128)]
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"


class SignedIn(msgspec.Struct, frozen=True):
    """A sign-in. Send the token as `Authorization: Bearer …`."""

    token: str
    expires_time: datetime

    def __repr__(self) -> str:
        return f"SignedIn({self.expires_time})"


class Me(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whom the token of the request stands for."""

    name: str
    role: Role
    adapter: str = ""
    """The adapter it may report as, with the role adapter."""


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user to add."""

    name: str
    role: UserRole
    password: str

    def __repr__(self) -> str:
        return f"NewUser({self.name!r}, {self.role!r})"


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change of a user."""

    role: UserRole | UnsetType = UNSET
    password: str | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"UserChange({self.role!r})"


class UserDocument(msgspec.Struct, frozen=True):
    """A user, without the password."""

    name: str
    role: Role
    created_time: datetime
    created_by: str
    updated_time: datetime

    @classmethod
    def of(cls, user: User) -> UserDocument:
        return cls(user.name, user.role, user.created_time, user.created_by, user.updated_time)


class UserList(Page[UserDocument], frozen=True):
    """A page of users, in the order of their names."""


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to issue."""

    name: Annotated[str, Meta(description="The owner. Several tokens may have the same name.")]
    role: Role
    adapter: Annotated[str, Meta(description="The adapter it may report as; with the role adapter only.")] = ""
    instance: Annotated[str, Meta(description="The only instance it may register; with the role agent only.")] = ""
    expires_in: Annotated[
        str | UnsetType, Meta(description="How long it is valid, such as `720h`. Without it, until it is revoked.")
    ] = UNSET


class TokenDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its text."""

    id: str
    name: str
    role: Role
    adapter: str | UnsetType = UNSET
    instance: str | UnsetType = UNSET
    created_time: datetime
    created_by: str
    expires_time: datetime | None

    @classmethod
    def of(cls, token: IssuedToken) -> TokenDocument:
        return cls(
            id=token.id,
            name=token.name,
            role=token.role,
            adapter=token.adapter or UNSET,
            instance=token.instance or UNSET,
            created_time=token.created_time,
            created_by=token.created_by,
            expires_time=token.expires_time,
        )


class NewTokenDocument(TokenDocument, frozen=True, kw_only=True):
    """A token that was just issued. Its text is in this response only."""

    token: str

    @classmethod
    def issued(cls, token: IssuedToken, text: str) -> NewTokenDocument:
        shown = TokenDocument.of(token)
        return cls(token=text, **{name: getattr(shown, name) for name in TokenDocument.__struct_fields__})

    def __repr__(self) -> str:
        return f"NewTokenDocument({self.id!r})"


class TokenList(Page[TokenDocument], frozen=True):
    """A page of tokens, in the order they were issued."""


class AccountParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of the lists of users and tokens."""

    size: PageSize = 100
    after: Annotated[str, Meta(description="The cursor from `next` of the previous page.")] = ""

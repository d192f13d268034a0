"""The handlers of the routes on accounts: they decode requests, call the use cases, and encode responses."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import UNSET

from sentinel.core.access import Role
from sentinel.runtime import durations
from sentinel.web import lists, problem
from sentinel.web.accounts.schemas import (
    AccountParameters,
    Credentials,
    Me,
    NewToken,
    NewTokenDocument,
    NewUser,
    SignedIn,
    TokenDocument,
    TokenList,
    UserChange,
    UserDocument,
    UserList,
)
from sentinel.web.accounts.sign_ins import SignIns
from sentinel.web.accounts.tokens import Tokens
from sentinel.web.accounts.users import Users
from sentinel.web.routing import Request, Response

_NO_STORE = {"Cache-Control": "no-store"}
"""For responses with a secret."""

_encode = msgspec.json.Encoder().encode


class AccountHandlers:
    """Serves sign-ins, users and tokens."""

    def __init__(self, *, sign_ins: SignIns, users: Users, tokens: Tokens) -> None:
        self._sign_ins = sign_ins
        self._users = users
        self._tokens = tokens

    async def log_in(self, request: Request) -> Response:
        given = await request.decode(Credentials)
        begun, text = await self._sign_ins.begin(request.caller, name=given.name, password=given.password)
        return Response(200, _encode(SignedIn(text, begun.expires_time)), _NO_STORE)

    async def log_out(self, request: Request) -> Response:
        await self._sign_ins.end(request.caller, request.credential.digest)
        return Response(204)

    async def me(self, request: Request) -> Response:
        identity = request.caller.identity
        return Response(200, _encode(Me(identity.name, identity.role, identity.adapter)))

    async def list_users(self, request: Request) -> Response:
        parameters = request.query(AccountParameters)
        found, total = await self._users.find(
            after=lists.text_position(parameters.after, query="users"), limit=parameters.size + 1
        )
        page, following = lists.cut_page(found, parameters.size, lambda user: user.name, query="users")
        return Response(200, _encode(UserList(len(page), total, list(map(UserDocument.of, page)), following)))

    async def add_user(self, request: Request) -> Response:
        given = await request.decode(NewUser)
        user = await self._users.add(
            request.caller, name=given.name, role=Role(given.role), password=given.password
        )
        return Response(201, _encode(UserDocument.of(user)), {"Location": f"/api/v1/users/{user.name}"})

    async def get_user(self, request: Request) -> Response:
        return Response(200, _encode(UserDocument.of(await self._users.get(request.path["name"]))))

    async def change_user(self, request: Request) -> Response:
        given = await request.decode(UserChange)
        user = await self._users.change(
            request.caller,
            request.path["name"],
            role=None if given.role is UNSET else Role(given.role),
            password=None if given.password is UNSET else given.password,
        )
        return Response(200, _encode(UserDocument.of(user)))

    async def remove_user(self, request: Request) -> Response:
        await self._users.remove(request.caller, request.path["name"])
        return Response(204)

    async def list_tokens(self, request: Request) -> Response:
        parameters = request.query(AccountParameters)
        found, total = await self._tokens.find(
            after=lists.text_position(parameters.after, query="tokens"), limit=parameters.size + 1
        )
        page, following = lists.cut_page(found, parameters.size, lambda token: token.id, query="tokens")
        return Response(200, _encode(TokenList(len(page), total, list(map(TokenDocument.of, page)), following)))

    async def issue_token(self, request: Request) -> Response:
        given = await request.decode(NewToken)
        token, text = await self._tokens.issue(
            request.caller,
            name=given.name,
            role=given.role,
            adapter=given.adapter,
            instance=given.instance,
            lifetime=None if given.expires_in is UNSET else _duration(given.expires_in),
        )
        headers = {"Location": f"/api/v1/tokens/{token.id}", **_NO_STORE}
        return Response(201, _encode(NewTokenDocument.issued(token, text)), headers)

    async def get_token(self, request: Request) -> Response:
        return Response(200, _encode(TokenDocument.of(await self._tokens.get(request.path["id"]))))

    async def revoke_token(self, request: Request) -> Response:
        await self._tokens.revoke(request.caller, request.path["id"])
        return Response(204)


def _duration(text: str) -> timedelta:
    try:
        return durations.parse(text)
    except ValueError:
        message = f"expected a duration such as 720h, got {problem.shown(text)}"
        raise problem.bad_field("expires_in", message) from None

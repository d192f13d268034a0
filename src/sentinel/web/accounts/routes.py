"""The routes on accounts: `auth`, `users` and `tokens`."""

from __future__ import annotations

from functools import partial
from typing import Final

from sentinel.web.accounts import schemas
from sentinel.web.accounts.access import MANAGE_TOKENS, MANAGE_USERS, PERMISSIONS, USE
from sentinel.web.accounts.http import AccountHandlers
from sentinel.web.app import Component
from sentinel.web.body import JSON, MERGE_PATCH, Body
from sentinel.web.routing import OPEN, Method, Parameter, ResponseSpec, Route

_ROOT: Final = "/api/v1"
_BODY_LIMIT = 16 * 1024
_NAME = Parameter(name="name", description="The name of the user.")
_ID = Parameter(name="id", description="The id of the token.")
_TAGS = {
    "auth": "Sign in and out.",
    "users": "People, who sign in with a password.",
    "tokens": "Tokens of machines and scripts.",
}


def account_component(handlers: AccountHandlers) -> Component:
    """Return the component that serves accounts."""
    routes = [*_auth(handlers), *_users(handlers), *_tokens(handlers)]
    return Component(routes=routes, permissions=PERMISSIONS, tags=_TAGS)


def _auth(handlers: AccountHandlers) -> list[Route]:
    route = partial(Route, tag="auth")
    return [
        route(
            method=Method.POST,
            path=f"{_ROOT}/auth/login",
            action=OPEN,
            handler=handlers.log_in,
            summary="Sign in",
            description="After 5 failures a minute with one name or from one address, wait as `Retry-After` says.",
            body=Body(type=schemas.Credentials, limit=_BODY_LIMIT),
            responses=(ResponseSpec(status=200, description="Signed in.", type=schemas.SignedIn),),
            problems=(401, 429),
        ),
        route(
            method=Method.POST,
            path=f"{_ROOT}/auth/logout",
            action=USE,
            handler=handlers.log_out,
            summary="Sign out",
            description="Ends the sign-in that the token belongs to. Other tokens are not changed by it.",
            responses=(ResponseSpec(status=204, description="Signed out."),),
        ),
        route(
            method=Method.GET,
            path=f"{_ROOT}/auth/me",
            action=USE,
            handler=handlers.me,
            summary="Read whom the token stands for",
            responses=(ResponseSpec(status=200, description="The identity.", type=schemas.Me),),
        ),
    ]


def _users(handlers: AccountHandlers) -> list[Route]:
    route = partial(Route, path=f"{_ROOT}/users", action=MANAGE_USERS, tag="users")
    one = partial(route, path=f"{_ROOT}/users/{{name}}", path_parameters=(_NAME,))
    return [
        route(
            method=Method.GET,
            handler=handlers.list_users,
            summary="List users",
            query=schemas.AccountParameters,
            responses=(ResponseSpec(status=200, description="A page, by name.", type=schemas.UserList),),
        ),
        route(
            method=Method.POST,
            handler=handlers.add_user,
            summary="Add a user",
            body=Body(type=schemas.NewUser, limit=_BODY_LIMIT),
            responses=(ResponseSpec(status=201, description="Added.", type=schemas.UserDocument),),
            problems=(409,),
        ),
        one(
            method=Method.GET,
            handler=handlers.get_user,
            summary="Read a user",
            responses=(ResponseSpec(status=200, description="The user.", type=schemas.UserDocument),),
            problems=(404,),
        ),
        one(
            method=Method.PATCH,
            handler=handlers.change_user,
            summary="Change the role or password of a user",
            description="Ends the user's sign-ins. The last admin cannot be demoted.",
            body=Body(type=schemas.UserChange, limit=_BODY_LIMIT, content_types=(JSON, MERGE_PATCH)),
            responses=(ResponseSpec(status=200, description="The changed user.", type=schemas.UserDocument),),
            problems=(404, 409),
        ),
        one(
            method=Method.DELETE,
            handler=handlers.remove_user,
            summary="Remove a user",
            description="Ends the user's sign-ins. The last admin cannot be removed.",
            responses=(ResponseSpec(status=204, description="Removed."),),
            problems=(404, 409),
        ),
    ]


def _tokens(handlers: AccountHandlers) -> list[Route]:
    route = partial(Route, path=f"{_ROOT}/tokens", action=MANAGE_TOKENS, tag="tokens")
    one = partial(route, path=f"{_ROOT}/tokens/{{id}}", path_parameters=(_ID,), problems=(404,))
    token = ResponseSpec(status=200, description="The token, without its text.", type=schemas.TokenDocument)
    return [
        route(
            method=Method.GET,
            handler=handlers.list_tokens,
            summary="List tokens",
            description="Those in the database. Tokens of a tokens file are not listed.",
            query=schemas.AccountParameters,
            responses=(ResponseSpec(status=200, description="A page, oldest first.", type=schemas.TokenList),),
        ),
        route(
            method=Method.POST,
            handler=handlers.issue_token,
            summary="Issue a token",
            description="The response is the only place where the token itself is shown.",
            body=Body(type=schemas.NewToken, limit=_BODY_LIMIT),
            responses=(ResponseSpec(status=201, description="Issued.", type=schemas.NewTokenDocument),),
        ),
        one(method=Method.GET, handler=handlers.get_token, summary="Read a token", responses=(token,)),
        one(
            method=Method.DELETE,
            handler=handlers.revoke_token,
            summary="Revoke a token",
            description="Every server on the database rejects it within a second.",
            responses=(ResponseSpec(status=204, description="Revoked."),),
        ),
    ]

"""The routes on accounts: `auth`, `users` and `tokens`."""

from __future__ import annotations

from typing import Final

from sentinel.web.accounts.access import MANAGE_TOKENS, MANAGE_USERS, PERMISSIONS, USE
from sentinel.web.accounts.http import AccountHandlers
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
    return [
        Route(
            method=Method.POST,
            path=f"{_ROOT}/auth/login",
            action=OPEN,
            handler=handlers.log_in,
            summary="Sign in",
            description="After 5 failures a minute with one name or from one address, wait as `Retry-After` says.",
            tag="auth",
            body=Body(type=Credentials, limit=_BODY_LIMIT),
            responses=(ResponseSpec(status=200, description="Signed in.", type=SignedIn),),
            problems=(401, 429),
        ),
        Route(
            method=Method.POST,
            path=f"{_ROOT}/auth/logout",
            action=USE,
            handler=handlers.log_out,
            summary="Sign out",
            description="Ends the sign-in that the token belongs to. Other tokens are not changed by it.",
            tag="auth",
            responses=(ResponseSpec(status=204, description="Signed out."),),
        ),
        Route(
            method=Method.GET,
            path=f"{_ROOT}/auth/me",
            action=USE,
            handler=handlers.me,
            summary="Read whom the token stands for",
            tag="auth",
            responses=(ResponseSpec(status=200, description="The identity.", type=Me),),
        ),
    ]


def _users(handlers: AccountHandlers) -> list[Route]:
    one = f"{_ROOT}/users/{{name}}"
    return [
        Route(
            method=Method.GET,
            path=f"{_ROOT}/users",
            action=MANAGE_USERS,
            handler=handlers.list_users,
            summary="List users",
            tag="users",
            query=AccountParameters,
            responses=(ResponseSpec(status=200, description="A page, by name.", type=UserList),),
        ),
        Route(
            method=Method.POST,
            path=f"{_ROOT}/users",
            action=MANAGE_USERS,
            handler=handlers.add_user,
            summary="Add a user",
            tag="users",
            body=Body(type=NewUser, limit=_BODY_LIMIT),
            responses=(ResponseSpec(status=201, description="Added.", type=UserDocument),),
            problems=(409,),
        ),
        Route(
            method=Method.GET,
            path=one,
            action=MANAGE_USERS,
            handler=handlers.get_user,
            summary="Read a user",
            tag="users",
            path_parameters=(_NAME,),
            responses=(ResponseSpec(status=200, description="The user.", type=UserDocument),),
            problems=(404,),
        ),
        Route(
            method=Method.PATCH,
            path=one,
            action=MANAGE_USERS,
            handler=handlers.change_user,
            summary="Change the role or password of a user",
            description="Ends the user's sign-ins. The last admin cannot be demoted.",
            tag="users",
            path_parameters=(_NAME,),
            body=Body(type=UserChange, limit=_BODY_LIMIT, content_types=(JSON, MERGE_PATCH)),
            responses=(ResponseSpec(status=200, description="The changed user.", type=UserDocument),),
            problems=(404, 409),
        ),
        Route(
            method=Method.DELETE,
            path=one,
            action=MANAGE_USERS,
            handler=handlers.remove_user,
            summary="Remove a user",
            description="Ends the user's sign-ins. The last admin cannot be removed.",
            tag="users",
            path_parameters=(_NAME,),
            responses=(ResponseSpec(status=204, description="Removed."),),
            problems=(404, 409),
        ),
    ]


def _tokens(handlers: AccountHandlers) -> list[Route]:
    one = f"{_ROOT}/tokens/{{id}}"
    return [
        Route(
            method=Method.GET,
            path=f"{_ROOT}/tokens",
            action=MANAGE_TOKENS,
            handler=handlers.list_tokens,
            summary="List tokens",
            description="Those in the database. Tokens of a tokens file are not listed.",
            tag="tokens",
            query=AccountParameters,
            responses=(ResponseSpec(status=200, description="A page, oldest first.", type=TokenList),),
        ),
        Route(
            method=Method.POST,
            path=f"{_ROOT}/tokens",
            action=MANAGE_TOKENS,
            handler=handlers.issue_token,
            summary="Issue a token",
            description="The response is the only place where the token itself is shown.",
            tag="tokens",
            body=Body(type=NewToken, limit=_BODY_LIMIT),
            responses=(ResponseSpec(status=201, description="Issued.", type=NewTokenDocument),),
        ),
        Route(
            method=Method.GET,
            path=one,
            action=MANAGE_TOKENS,
            handler=handlers.get_token,
            summary="Read a token",
            tag="tokens",
            path_parameters=(_ID,),
            responses=(ResponseSpec(status=200, description="The token, without its text.", type=TokenDocument),),
            problems=(404,),
        ),
        Route(
            method=Method.DELETE,
            path=one,
            action=MANAGE_TOKENS,
            handler=handlers.revoke_token,
            summary="Revoke a token",
            description="Every server on the database rejects it within a second.",
            tag="tokens",
            path_parameters=(_ID,),
            responses=(ResponseSpec(status=204, description="Revoked."),),
            problems=(404,),
        ),
    ]

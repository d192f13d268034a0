"""Authentication and authorization of requests.

A guard checks every request before its handler runs. It asks the `Identities` it is given (a tokens file, a key
for JWTs) who a bearer token belongs to, and a table of permissions what that identity may do.

An insecure server permits everything, so only the user of this machine may reach it, and no page in their browser.
Such a page can send requests with its own `Origin`, or resolve its own name to this address (DNS rebinding). So
`Host` must name this machine, and `Origin` must be this server. Another port of the same machine is another site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sentinel.core import access
from sentinel.core.access import ANONYMOUS, Action, Identity, Permissions, Role
from sentinel.core.problem_codes import Code
from sentinel.ports.errors import Unavailable
from sentinel.ports.identity import Identities
from sentinel.runtime.identities import CombinedIdentities
from sentinel.runtime.listening import is_loopback
from sentinel.web import problem
from sentinel.web.credential import NO_TOKEN, Credential
from sentinel.web.problem import shown
from sentinel.web.routing import Open

UNAUTHENTICATED: Final = Identity("nobody", Role.AGENT)
"""The identity of callers of open routes. It has no permissions."""

_NO_PERMISSIONS = Permissions()
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE | re.ASCII)
_MAX_TOKEN_LENGTH = 8192
_INSECURE = "this server runs without authentication"
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{0,5})?", re.ASCII)


class Guard:
    """Authenticates and authorizes each request before its handler runs."""

    def __init__(
        self,
        *,
        identities: Sequence[Identities],
        permissions: Permissions = _NO_PERMISSIONS,
        is_insecure: bool = False,
        ignores_unknown_tokens: bool = False,
    ) -> None:
        """Look up tokens in each of `identities`. With `is_insecure`, a request without a token is anonymous, and
        with `ignores_unknown_tokens` one with an unknown token, too.

        `permissions` combines the tables of all components. Without it, every route has to be open.
        """
        if not identities and not is_insecure:
            raise ValueError("expected identities, or is_insecure")
        self.permissions = permissions
        self._identities = CombinedIdentities(identities)
        self._is_insecure = is_insecure
        self._ignores_unknown_tokens = is_insecure and ignores_unknown_tokens

    def permitting(self, permissions: Permissions) -> Guard:
        """Return a guard for the same identities with other permissions."""
        return Guard(
            identities=self._identities.sources,
            permissions=permissions,
            is_insecure=self._is_insecure,
            ignores_unknown_tokens=self._ignores_unknown_tokens,
        )

    async def identify(self, action: Action | Open, headers: Mapping[str, str]) -> Identity:
        """Return the caller, or `UNAUTHENTICATED` if the route is open. `headers` has lower-case names.

        Raises a `Problem`: 401 without a known token, 503 while a source that might know it is unavailable.
        """
        if self._is_insecure:
            _check_local(headers)
        return (
            UNAUTHENTICATED if isinstance(action, Open) else await self._bearer(headers.get("authorization", ""))
        )

    def authorize(self, identity: Identity, action: Action | Open) -> None:
        """Raise a `Problem` if the identity may not do this.

        Separate from `identify`, so that the access log can name a rejected caller.
        """
        if not isinstance(action, Open) and not self.permissions.permits(identity, action):
            verb = access.verb(action)
            raise problem.forbidden(f"the role {identity.role} of {identity.name} may not {verb}")

    def credential(self, identity: Identity, headers: Mapping[str, str]) -> Credential:
        """Return the token that `identify` found this identity by."""
        if identity.is_anonymous or identity is UNAUTHENTICATED:
            return NO_TOKEN
        matched = _BEARER.fullmatch(headers.get("authorization", ""))
        if matched is None:
            return NO_TOKEN
        return Credential(matched[1], identity=identity, lookup=self._identities.identify)

    async def _bearer(self, authorization: str) -> Identity:
        if self._is_insecure and not (authorization and self._identities):
            return ANONYMOUS
        matched = _BEARER.fullmatch(authorization)
        if matched is None and not self._ignores_unknown_tokens:
            raise problem.unauthorized(has_token=False)
        token = "" if matched is None else matched[1]
        identity = await self._lookup(token) if 0 < len(token) <= _MAX_TOKEN_LENGTH else None
        if identity is not None:
            return identity
        if self._ignores_unknown_tokens:
            return ANONYMOUS
        raise problem.unauthorized(has_token=True)

    async def _lookup(self, token: str) -> Identity | None:
        """Return the identity of the token. Raises a `Problem` while a source that may know it is unavailable."""
        try:
            return await self._identities.identify(token)
        except Unavailable as error:
            raise problem.unavailable("the server cannot look up the token now") from error


def _check_local(headers: Mapping[str, str]) -> None:
    host = headers.get("host", "")
    matched = _HOST.fullmatch(host)
    if matched is None or not is_loopback(matched["v6"] or matched["name"]):
        raise problem.misdirected(
            f"{_INSECURE}; expected a Host of this machine such as localhost, got {shown(host)}"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        raise problem.forbidden(
            f"{_INSECURE}; expected no requests from other sites, got one from {shown(origin)}", code=Code.FOREIGN
        )

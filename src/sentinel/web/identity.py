"""Who is let in, and what for.

A guard stands before every route. It knows bearer tokens by the `Identities` it is given (a tokens file, a key
for JWTs), and roles by `core.access`. A server without protection lets everybody do everything, and is therefore
only for whoever sits at the machine: a page in their browser must not reach it. Such a page can send requests
here under its own `Origin`, and can have its own name resolve to this address: so the `Host` has to be of this
machine, and the `Origin` this very server's. A page from another port of the same machine is another site, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sentinel.core.access import ANONYMOUS, Action, Identity, Role, permits
from sentinel.core.problem_codes import Code
from sentinel.ports.identity import Identities
from sentinel.runtime.listening import is_loopback
from sentinel.web import problem
from sentinel.web.problem import shown
from sentinel.web.routing import Open

NOBODY: Final = Identity("nobody", Role.AGENT)
"""Who calls a route that is open to everybody; it may do nothing beyond that."""

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE | re.ASCII)
_LONGEST_TOKEN = 8192
_WITHOUT = "this server runs without protection"
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{0,5})?", re.ASCII)


class Guard:
    """Decides on each request before its handler sees it."""

    def __init__(self, *, identities: Sequence[Identities], is_insecure: bool = False) -> None:
        """Asks each of `identities` in turn. With `is_insecure`, a request without a token is anonymous."""
        if not identities and not is_insecure:
            raise ValueError("expected identities, or a server that is insecure on purpose")
        self._identities = tuple(identities)
        self._is_insecure = is_insecure

    def identify(self, action: Action | Open, headers: Mapping[str, str]) -> Identity:
        """Who asks, or `NOBODY` where the route is open; raises a `Problem` where we know no such caller.
        `headers` has lower-case names."""
        if self._is_insecure:
            _check_local(headers)
        return NOBODY if isinstance(action, Open) else self._bearer_of(headers.get("authorization", ""))

    def authorize(self, identity: Identity, action: Action | Open) -> None:
        """Raises a `Problem` where they may not; who asks is known by then, and can be logged with the refusal."""
        if not isinstance(action, Open) and not permits(identity, action):
            raise problem.forbidden(f"the role {identity.role} of {identity.name} may not {action}")

    def _bearer_of(self, authorization: str) -> Identity:
        if self._is_insecure and not (authorization and self._identities):
            return ANONYMOUS
        matched = _BEARER.fullmatch(authorization)
        if matched is None:
            raise problem.unauthorized(has_token=False)
        token = matched[1]
        # All are asked, so that the time of an answer does not tell which of them knows a token.
        found = [identities.identify(token) for identities in self._identities] if _is_sane(token) else []
        identity = next((one for one in found if one is not None), None)
        if identity is None:
            raise problem.unauthorized(has_token=True)
        return identity


def _is_sane(token: str) -> bool:
    return len(token) <= _LONGEST_TOKEN


def _check_local(headers: Mapping[str, str]) -> None:
    host = headers.get("host", "")
    matched = _HOST.fullmatch(host)
    if matched is None or not is_loopback(matched["v6"] or matched["name"]):
        raise problem.misdirected(
            f"{_WITHOUT}; expected a Host of this machine such as localhost, got {shown(host)}"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        raise problem.forbidden(
            f"{_WITHOUT}; expected no requests from other sites, got one from {shown(origin)}", code=Code.FOREIGN
        )

"""Finds the route of a request.

The route of the highest priority wins. At equal priority the most specific one wins: an exact path before a
pattern before a prefix, a longer prefix before a shorter one; then hosts, headers, query parameters, methods. If
two are equal in all this, the first in the file wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, assert_never
from urllib.parse import parse_qsl

import msgspec

from sentinel.core.proxy import path_pattern
from sentinel.core.proxy.model import (
    HeaderMatch,
    HostMatch,
    Match,
    MethodMatch,
    PathMatch,
    PathPrefixMatch,
    PathRegexMatch,
    QueryParamMatch,
    Route,
)


class RequestFacts(msgspec.Struct, frozen=True):
    """What routes look at."""

    method: str
    path: str
    """The path as sent, not decoded."""
    host: str
    """The Host header, with or without a port."""
    headers: Mapping[str, str]
    """Header values by name. Names are in lower case, or the mapping ignores case."""
    query: str = ""


_Condition: TypeAlias = Callable[[RequestFacts], bool]
_Specificity: TypeAlias = tuple[int, ...]


class _CompiledRoute(msgspec.Struct, frozen=True):
    route: Route
    conditions: tuple[_Condition, ...]


class RouteTable:
    """Routes in the order in which they are tried. Immutable."""

    def __init__(self, routes: Iterable[Route]) -> None:
        in_order = sorted(routes, key=lambda route: (-route.priority, *(-rank for rank in specificity(route))))
        self._routes = tuple(
            _CompiledRoute(route, tuple(_condition(match) for match in route.matches)) for route in in_order
        )
        self._by_id = {route.id: route for route in in_order}

    def find(self, request: RequestFacts, *, default: str | None = None) -> Route | None:
        """Return the route of a request, the route with the id `default` if none matches, or None."""
        for candidate in self._routes:
            for holds in candidate.conditions:
                if not holds(request):
                    break
            else:
                return candidate.route
        return None if default is None else self._by_id.get(default)


def specificity(route: Route) -> _Specificity:
    """Return how specific a route is. Greater is more specific."""
    kinds = [type(match) for match in route.matches]
    longest = max((len(match.prefix) for match in route.matches if isinstance(match, PathPrefixMatch)), default=0)
    return (
        kinds.count(PathMatch),
        kinds.count(PathRegexMatch),
        longest,
        kinds.count(HostMatch),
        sum(_weight(match) for match in route.matches if isinstance(match, HeaderMatch)),
        sum(_weight(match) for match in route.matches if isinstance(match, QueryParamMatch)),
        kinds.count(MethodMatch),
    )


def _weight(match: HeaderMatch | QueryParamMatch) -> int:
    return 1 if match.value is None else 2


def _condition(match: Match) -> _Condition:
    match match:
        case PathMatch(path=path):
            return lambda request: request.path == path
        case PathPrefixMatch(prefix=prefix):
            return lambda request: request.path.startswith(prefix)
        case PathRegexMatch(pattern=pattern):
            return _pattern_condition(pattern)
        case HostMatch(host=host):
            return _host_condition(host.lower())
        case MethodMatch(method=method):
            wanted = method.upper()
            return lambda request: request.method == wanted
        case HeaderMatch(name=name, value=value):
            return _header_condition(name.lower(), value)
        case QueryParamMatch(name=name, value=value):
            return _query_condition(name, value)
        case _:
            assert_never(match)


def _pattern_condition(pattern: str) -> _Condition:
    """A pattern that Python cannot say matches nothing; `unimplemented` names it."""
    found = path_pattern.read(pattern)
    if isinstance(found, path_pattern.BadPattern) or found.python is None:
        return lambda _: False
    search = re.compile(found.python).search
    return lambda request: search(request.path) is not None


def _host_condition(pattern: str) -> _Condition:
    if pattern.startswith("*."):
        suffix = pattern[1:]
        return lambda request: (host := host_name(request.host)).endswith(suffix) and host != suffix
    return lambda request: host_name(request.host) == pattern


def host_name(host: str) -> str:
    """Return the host of a Host header without its port, in lower case."""
    name = host.lower()
    if name.startswith("["):
        return name[: name.find("]") + 1] or name
    return name.partition(":")[0]


def _header_condition(name: str, value: str | None) -> _Condition:
    if value is None:
        return lambda request: name in request.headers
    return lambda request: request.headers.get(name) == value


def _query_condition(name: str, value: str | None) -> _Condition:
    if value is None:
        return lambda request: any(found == name for found, _ in _parameters(request))
    return lambda request: (name, value) in _parameters(request)


def _parameters(request: RequestFacts) -> list[tuple[str, str]]:
    return parse_qsl(request.query, keep_blank_values=True)

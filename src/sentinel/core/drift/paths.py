"""Paths of fields: JSON pointers in which members of keyed lists are named by their key.

`/spec/template/spec/containers/name=bao/image` stays the same when another container is added before it, and it is
what Kubernetes' own `managedFields` name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sentinel.core.json import Json

LABELS: Final = "/metadata/labels"
ANNOTATIONS: Final = "/metadata/annotations"
STATUS: Final = "/status"


def child(path: str, name: str) -> str:
    """Return the path of a field, or of a member of a set by its value."""
    if "~" in name or "/" in name:
        name = name.replace("~", "~0").replace("/", "~1")
    return f"{path}/{name}"


def unescaped(name: str) -> str:
    """Return the name of a field, given the last part of its path."""
    return name.replace("~1", "/").replace("~0", "~")


def member(path: str, key: Mapping[str, Json]) -> str:
    """Return the path of a list's member by its key: `name=bao`, `port=8200,protocol=TCP`."""
    return child(path, ",".join(f"{name}={text(key[name])}" for name in sorted(key)))


def text(value: Json) -> str:
    """Return a value as part of a path."""
    return value if isinstance(value, str) else json.dumps(value)


def parent(path: str) -> str:
    """Return the path of the map or list that contains this."""
    return path[: path.rindex("/")]


def ancestors(path: str) -> Iterator[str]:
    """Yield the paths above this one, from the nearest, without the whole object."""
    end = path.rfind("/")
    while end > 0:
        path = path[:end]
        yield path
        end = path.rfind("/")


def is_below(path: str, root: str) -> bool:
    """Whether the path is inside of the root."""
    return path.startswith(root) and path[len(root) : len(root) + 1] == "/"


class PathSet:
    """Some paths, to ask whether another one is in the same branch as one of them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._above = frozenset(above for path in self._paths for above in (*ancestors(path), ""))

    def overlaps(self, path: str) -> bool:
        """Whether the path is one of them, contains one, or is inside of one."""
        return (
            path in self._paths
            or path in self._above
            or "" in self._paths
            or any(above in self._paths for above in ancestors(path))
        )

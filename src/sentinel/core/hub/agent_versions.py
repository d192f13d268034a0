"""Which agents a hub serves: those at most one minor version older or newer than itself."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})([.+-].*)?", re.ASCII | re.DOTALL)


def is_supported(agent_version: str, hub_version: str) -> bool:
    """Whether the hub serves an agent of this version. An unknown version is accepted."""
    agent, hub = _VERSION.fullmatch(agent_version), _VERSION.fullmatch(hub_version)
    if agent is None or hub is None:
        return True
    return agent[1] == hub[1] and abs(int(agent[2]) - int(hub[2])) <= 1

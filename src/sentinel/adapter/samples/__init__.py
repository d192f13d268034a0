"""Three adapters to try things with and to learn from; `sentinel up` runs them.

`validation` reads a spec and says whether it will do. `dns` waits for it, and has a service make a zone, which
takes longer than one evaluation. `provision` waits for `dns`, and fails its first attempt at every generation.
Together they show what adapters do: wait for each other, ask again, fail, heal, and clean up.

They are named like anybody's own (`task: sentinel.adapter.samples:dns`); `examples/adapters` has their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sentinel.adapter.declaration import Adapter
from sentinel.adapter.samples import acceptance, machines, zones

__all__ = ["NEEDS", "declare", "dns", "provision", "validation"]

_ALL = (acceptance, zones, machines)

NEEDS: Final[Mapping[str, Sequence[str]]] = {sample.NAME: sample.NEEDS for sample in _ALL}
"""The samples by name, and whom each waits for."""

_DECLARE: Final[Mapping[str, Callable[[Sequence[str]], Adapter]]] = {
    sample.NAME: sample.declare for sample in _ALL
}


def declare(name: str, *, kinds: Sequence[str]) -> Adapter:
    """The sample of this name, for these kinds of resource."""
    return _DECLARE[name](kinds)


validation = declare(acceptance.NAME, kinds=["Cluster", "NodePool"])
dns = declare(zones.NAME, kinds=["Cluster"])
provision = declare(machines.NAME, kinds=["Cluster"])

"""The versions that are assigned, and on which proxies each of them fails."""

from __future__ import annotations

from enum import StrEnum
from random import Random

import msgspec

from sentinel.core.hub.versions import VersionName, content_hash
from tests.support.hub.deployments import CONTENT

CONFIG = "api"
COUNT = 6


class Defect(StrEnum):
    """Why a version does not work on a proxy, in the words that must be part of every report about it."""

    REFUSED = "the proxy does not accept it"
    UNHEALTHY = "health check failed after"


class Version(msgspec.Struct, frozen=True):
    """A version and its text."""

    name: str
    text: str

    @property
    def hash(self) -> str:
        return content_hash(self.text)

    @property
    def parsed(self) -> VersionName:
        return VersionName(CONFIG, int(self.name.rpartition("@")[2]))


def _text(path: str, *, threads: int = 1) -> str:
    text = CONTENT.replace("/health", f"/{path}")
    return text.replace("worker-threads 1", f"worker-threads {threads}")


UNMANAGED = _text("unmanaged")
"""What proxies run before anything is assigned to them."""
VERSIONS = tuple(
    Version(f"{CONFIG}@{number}", _text(f"version-{number}", threads=1 + number // COUNT))
    for number in range(1, COUNT + 1)
)
"""The last one changes what needs a restart of the proxy."""
BY_NAME = {each.name: each for each in VERSIONS}
BY_TEXT = {each.text: each for each in VERSIONS}
KNOWN_HASHES = {content_hash(UNMANAGED): UNMANAGED} | {each.hash: each.text for each in VERSIONS}


def defects(random: Random) -> dict[str, Defect]:
    """Draw which versions, by their texts, fail on a proxy."""
    return {each.text: random.choice(tuple(Defect)) for each in VERSIONS if random.random() < 0.2}

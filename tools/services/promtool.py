"""promtool, for tests of alert rules. No Prometheus runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tools.services import debian

_MASK: Final = "mkdir -p /etc/systemd/system && ln -sf /dev/null /etc/systemd/system/prometheus.service"
"""Debian's package would start a server at every boot, on the port that the hub serves agents on."""


@contextmanager
def provide() -> Iterator[None]:
    """Install promtool if it is missing."""
    if shutil.which("promtool") is None:
        debian.install("prometheus", before=_MASK)
    yield

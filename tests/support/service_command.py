"""Runs a program with a service of `tools.services`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 100
"""In seconds. Only a test that fails waits this long."""


def run_with_service(
    service: str, program: str, *, unset: Collection[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program with a service, without some variables of our environment, and with these."""
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-m", "tools.services", service, "--", sys.executable, "-c", program],
        cwd=_ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )

"""Runs a `sentinel` command that is killed when it is about to make its write number COUNT durable.

python -m tests.e2e.mortal_agent COUNT COMMAND…
"""

from __future__ import annotations

import runpy
import sys

from tests.e2e.applier_process import die_at

if __name__ == "__main__":
    die_at(int(sys.argv.pop(1)))
    runpy.run_module("sentinel.cli", run_name="__main__", alter_sys=True)

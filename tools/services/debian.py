"""Installs Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools.services.server import ServiceError, log_progress


def install(package: str, *, before: str = "") -> None:
    """Install a package, after the shell command `before`, without starting the services it brings."""
    if shutil.which("apt-get") is None:
        raise ServiceError(f"{package} is not installed, and this is not Debian: install it and try again")
    # policy-rc.d denies service starts. A policy that the machine already has stays in place.
    script = f"""
        set -e
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$policy"' EXIT
            printf '#!/bin/sh\\nexit 101\\n' > "$policy"
            chmod 755 "$policy"
        fi
        {before or ":"}
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq || echo "the package lists could not be updated" >&2
        apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 {package}
    """
    command = ["sh", "-c", script]
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise ServiceError(f"{package} is not installed: install it, or run as root or with sudo available")
        command = ["sudo", *command]
    log_progress(f"installing {package}")
    # Standard output belongs to the command we run later.
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode != 0:
        raise ServiceError(f"{package} could not be installed")

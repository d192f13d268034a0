"""Writes src/sentinel/wire from proto/ with protoc, or with --check verifies that it is up to date."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.generated_files import ROOT, write_or_check

PROTO = ROOT / "proto" / "sentinel"
SOURCES = ROOT / "src"


def generated() -> Mapping[Path, str]:
    """Return the text of each generated file.

    protoc names Python packages after the folders of its input. Mapping proto/sentinel to sentinel/wire puts them
    into sentinel.wire, and keeps the protobuf package sentinel.hub.v1.
    """
    inputs = [f"sentinel/wire/{file.relative_to(PROTO).as_posix()}" for file in sorted(PROTO.rglob("*.proto"))]
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [f"--plugin={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        outputs = [f"--{kind}_out={output}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        options = [f"-Isentinel/wire={PROTO}", *plugins, *outputs]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, *inputs]
        # The plugins report progress on stderr.
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiled.returncode:
            raise SystemExit(compiled.stderr)
        files = sorted(file for file in output.rglob("*") if file.is_file())
        return {SOURCES / file.relative_to(output): file.read_text() for file in files}


def main() -> int:
    """Write the modules. With --check, return 1 if one would change."""
    return write_or_check(generated())


if __name__ == "__main__":
    sys.exit(main())

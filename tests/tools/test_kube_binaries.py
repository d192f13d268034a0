"""kube-apiserver and etcd are found or built once. A script stands in for Go; make test-kube runs the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.service_command import run_with_service
from tools.services.kube_apiserver import ASSETS_VARIABLE, KUBECONFIG_VARIABLE, binaries
from tools.services.server import ServiceError, ServiceMissing

PROGRAMS = ["etcd", "kube-apiserver"]

FAKE_GO = """#!/bin/sh
# Logs its command and environment. A build waits for the file `blocked` to disappear.
folder=$(dirname "$0")
echo "$1" >> "$folder/commands"
case "$1" in
version)
    echo "go version $(cat "$folder/version") linux/amd64" ;;
list)
    printf 'fmt\\ngo.etcd.io/etcd/server/v3\\n' ;;
build)
    while [ -e "$folder/blocked" ]; do sleep 0.02; done
    env > "$folder/environment"
    if [ -e "$folder/broken" ]; then printf '# k8s.io/kubernetes\\nno space left on device\\n' >&2; exit 1; fi
    while [ "$1" != -o ]; do shift; done
    mkdir "$2"
    for program in kube-apiserver server; do
        printf '#!/bin/sh\\n' > "$2$program"
        chmod +x "$2$program"
    done ;;
esac
"""


class FakeGo:
    """A script named `go`, alone with its files in a folder on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.command = folder / "go"
        self.command.write_text(FAKE_GO)
        self.command.chmod(0o755)
        self.set_version("go1.26.9")

    def set_version(self, version: str) -> None:
        (self.folder / "version").write_text(version)

    def break_builds(self) -> None:
        (self.folder / "broken").touch()

    def block_builds(self) -> None:
        (self.folder / "blocked").touch()

    def unblock_builds(self) -> None:
        (self.folder / "blocked").unlink()

    def count(self, command: str) -> int:
        log = self.folder / "commands"
        return log.read_text().split().count(command) if log.exists() else 0

    def build_environment(self) -> dict[str, str]:
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sentinel" / "kube-apiserver"


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> FakeGo:
    go = FakeGo(tmp_path / "go")
    monkeypatch.setenv("PATH", f"{go.folder}{os.pathsep}{os.environ['PATH']}")
    return go


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_named_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in PROGRAMS:
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))

    assert binaries.find_or_build() == tmp_path


def test_a_named_folder_without_the_programs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))

    with pytest.raises(ServiceError, match=f"expected the programs kube-apiserver and etcd in {tmp_path}"):
        binaries.find_or_build()


def test_the_programs_are_built_once_and_nothing_else_is_kept(fake_go: FakeGo, cache: Path) -> None:
    first, second = binaries.find_or_build(), binaries.find_or_build()

    assert first == second
    assert first.parent == cache
    assert names(first) == PROGRAMS
    assert names(cache) == [first.name, "lock"]
    assert fake_go.count("build") == 1


def test_another_go_version_builds_its_own_programs(fake_go: FakeGo) -> None:
    first = binaries.find_or_build()
    fake_go.set_version("go1.27.0")

    second = binaries.find_or_build()

    assert first != second
    assert fake_go.count("build") == 2


def test_two_builds_at_once_are_one(fake_go: FakeGo) -> None:
    fake_go.block_builds()
    found: list[Path] = []
    runs = [threading.Thread(target=lambda: found.append(binaries.find_or_build())) for _ in range(2)]
    for run in runs:
        run.start()

    wait_until(lambda: fake_go.count("version") == 2 and fake_go.count("build") > 0)
    fake_go.unblock_builds()
    for run in runs:
        run.join(timeout=30)

    assert len(found) == 2
    assert found[0] == found[1]
    assert fake_go.count("build") == 1


def test_leftovers_of_a_killed_build_are_removed(fake_go: FakeGo, cache: Path) -> None:
    (cache / "building-killed" / "modules").mkdir(parents=True)

    folder = binaries.find_or_build()

    assert names(cache) == [folder.name, "lock"]


def test_a_failed_build_says_why_and_is_tried_again(fake_go: FakeGo, cache: Path) -> None:
    fake_go.break_builds()

    with pytest.raises(ServiceMissing, match="go build failed: no space left on device") as failure:
        binaries.find_or_build()

    (log,) = cache.glob("*.log")
    assert str(log) in str(failure.value)
    assert names(cache) == [log.name, "lock"]
    (fake_go.folder / "broken").unlink()
    assert names(binaries.find_or_build()) == PROGRAMS


def test_go_gets_the_proxy_of_the_machine_and_caches_of_its_own(
    fake_go: FakeGo, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1/proxy")
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    for name in ("GOCACHE", "GOMODCACHE"):
        monkeypatch.delenv(name, raising=False)

    binaries.find_or_build()

    environment = fake_go.build_environment()
    assert environment["GOPROXY"] == "http://127.0.0.1:1/proxy"
    assert "GOOS" not in environment
    assert environment["GOFLAGS"].split() == ["-mod=readonly", "-trimpath", "-buildvcs=false", "-modcacherw"]
    assert (environment["GOTOOLCHAIN"], environment["GOWORK"]) == ("local", "off")
    for name in ("GOCACHE", "GOMODCACHE"):
        assert environment[name].startswith(f"{cache}/building-")


def test_caches_that_the_user_chose_are_used(
    fake_go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOCACHE", "GOMODCACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))

    binaries.find_or_build()

    environment = fake_go.build_environment()
    assert (environment["GOCACHE"], environment["GOMODCACHE"]) == (f"{tmp_path}/GOCACHE", f"{tmp_path}/GOMODCACHE")
    assert "-modcacherw" not in environment["GOFLAGS"]


def test_go_on_the_path_comes_first(fake_go: FakeGo) -> None:
    assert binaries.find_go().command == str(fake_go.command)


def test_go_that_is_too_old_is_passed_over_for_the_wheel(fake_go: FakeGo) -> None:
    fake_go.set_version("go1.25.11")

    assert "site-packages" in binaries.find_go().command


def test_without_go_the_message_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "go", None)

    with pytest.raises(ServiceMissing, match=r"install Go 1\.26 or newer, or set KUBEBUILDER_ASSETS"):
        binaries.find_or_build()


def run_with_kube_apiserver(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that prints whether it got an API server."""
    unset = (KUBECONFIG_VARIABLE, ASSETS_VARIABLE, "SENTINEL_REQUIRE_ALL")
    print_server = f"import os; print(os.environ.get('{KUBECONFIG_VARIABLE}', 'none'))"
    return run_with_service("kube-apiserver", print_server, unset=unset, **environment)


def test_the_command_runs_without_programs_that_cannot_be_built(fake_go: FakeGo) -> None:
    fake_go.break_builds()

    done = run_with_kube_apiserver()

    assert done.returncode == 0
    assert done.stdout == "none\n"
    assert "no space left on device" in done.stderr
    assert done.stderr.endswith("; continuing without it\n")


def test_a_failed_build_is_a_failure_if_all_are_required(fake_go: FakeGo) -> None:
    fake_go.break_builds()

    done = run_with_kube_apiserver(SENTINEL_REQUIRE_ALL="1")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "no space left on device" in done.stderr


def test_a_given_kubeconfig_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    done = run_with_kube_apiserver(**{KUBECONFIG_VARIABLE: str(tmp_path / "missing")})

    assert done.returncode == 1
    assert "No such file or directory" in done.stderr

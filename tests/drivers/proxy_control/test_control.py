"""What an agent does to a proxy on this machine, with real files, processes and signals."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.drivers.proxy_control import commands
from sentinel.drivers.proxy_control.control import LocalProxy
from sentinel.drivers.proxy_control.pid_file import is_zombie
from sentinel.ports.proxy_control import ProxyFailure
from tests.support.agent.disks import no_space_for_files, read_only, small_disk

MINUTE = timedelta(minutes=1)
PROXY = """
import pathlib, signal, sys, os
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGHUP})
    pathlib.Path(sys.argv[2]).write_text("reloaded")
"""
"""A process with a pid file that says when it was told to reload."""


def shell(script: str) -> Sequence[str]:
    return ("sh", "-c", script)


def python(script: str, *arguments: object) -> Sequence[str]:
    return (sys.executable, "-c", script, *map(str, arguments))


def control(
    folder: Path,
    *,
    test: Sequence[str] = (),
    pid_file: Path | None = None,
    reload: Sequence[str] = (),
    restart: Sequence[str] = (),
    stop: Sequence[str] = (),
    health_url: str | None = None,
    environ: dict[str, str] | None = None,
) -> LocalProxy:
    return LocalProxy(
        config_path=folder / "config.kdl",
        test_command=test,
        pid_file=pid_file,
        reload_command=reload,
        restart_command=restart,
        stop_command=stop,
        health_url=health_url,
        health_timeout=timedelta(seconds=60),
        environ=environ if environ is not None else dict(os.environ),
    )


@asynccontextmanager
async def running_proxy(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *python(PROXY, folder / "pid", folder / "reloaded"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_the_file_is_replaced_with_its_mode_and_a_copy(tmp_path: Path) -> None:
    file = tmp_path / "config.kdl"
    file.write_text("old")
    file.chmod(0o664)
    previous_umask = os.umask(0o077)
    try:
        await control(tmp_path).write("new")
    finally:
        os.umask(previous_umask)

    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    copy = tmp_path / "config.kdl.bak"
    assert copy.read_text() == "old"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o664
    assert names_in(tmp_path) == ["config.kdl", "config.kdl.bak"]


async def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real.kdl").write_text("old")
    (tmp_path / "config.kdl").symlink_to("real.kdl")

    await control(tmp_path).write("new")

    assert (tmp_path / "config.kdl").is_symlink()
    assert (tmp_path / "real.kdl").read_text() == "new"


async def test_the_copy_is_kept_when_it_is_written_back(tmp_path: Path) -> None:
    proxy = control(tmp_path)
    (tmp_path / "config.kdl").write_text("old")
    await proxy.write("new")

    await proxy.restore(await proxy.read_copy())

    assert (await proxy.read()).text == "old"
    assert await proxy.read_copy() == "old"
    await proxy.restore(None)
    assert (await proxy.read()).text is None


async def test_a_restored_file_says_when_it_was_changed(tmp_path: Path) -> None:
    file = tmp_path / "config.kdl"
    file.write_text("changed by hand")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    proxy = control(tmp_path)
    before = (await proxy.read()).modified

    await proxy.write("new")
    assert (await proxy.read()).modified != before
    await proxy.restore(await proxy.read_copy())

    assert before is not None
    assert (await proxy.read()).modified == before


async def test_bytes_that_are_no_text_survive_a_restore(tmp_path: Path) -> None:
    proxy = control(tmp_path)
    (tmp_path / "config.kdl").write_bytes(b"\xff\xfe\r\n")
    await proxy.write("new")

    await proxy.restore(await proxy.read_copy())

    assert (tmp_path / "config.kdl").read_bytes() == b"\xff\xfe\r\n"


async def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "config.kdl").mkdir()

    file = await control(tmp_path).read()

    assert (file.text, file.problem) == (None, "is a directory")


async def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "config.kdl").open("wb") as file:
        file.truncate(9 * 1024 * 1024)

    assert (await control(tmp_path).read()).problem == "expected at most 8 MiB"


async def test_a_full_disk_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.kdl").write_text("old")
    proxy = control(tmp_path, test=shell("true {config}"))

    with no_space_for_files():
        for action in (proxy.write("new"), proxy.test("new"), proxy.restore("new")):
            with pytest.raises(ProxyFailure, match=r"cannot .*config\.kdl.*: file too large"):
                await action

    assert names_in(tmp_path) == ["config.kdl"]
    assert (await proxy.read()).text == "old"


async def test_without_space_the_copy_becomes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.kdl"
    file.write_text("old")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    proxy = control(tmp_path)
    before = (await proxy.read()).modified
    await proxy.write("new")

    with no_space_for_files():
        await proxy.restore("old")

    restored = await proxy.read()
    assert (restored.text, restored.modified) == ("old", before)
    assert names_in(tmp_path) == ["config.kdl"]


async def test_a_read_only_folder_is_a_reason(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as folder:
        (folder / "config.kdl").write_text("old")
        proxy = control(folder, test=shell("true {config}"))
        with read_only(folder):
            for action in (proxy.write("new"), proxy.test("new")):
                with pytest.raises(ProxyFailure, match=os.strerror(errno.EROFS).lower()):
                    await action

            assert (await proxy.read()).text == "old"


async def test_a_missing_folder_is_a_reason(tmp_path: Path) -> None:
    proxy = control(tmp_path / "missing", test=shell("true {config}"))

    for action in (proxy.write("new"), proxy.test("new"), proxy.restore("new")):
        with pytest.raises(ProxyFailure, match=r"cannot .*: no such file or directory"):
            await action


async def test_the_candidate_is_tested_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.kdl").write_text("old")
    proxy = control(tmp_path, test=shell(f"cat {{config}} > {tmp_path}/seen"))

    await proxy.test("new")

    assert (tmp_path / "seen").read_text() == "new"
    assert (tmp_path / "config.kdl").read_text() == "old"
    assert not (tmp_path / "config.kdl.candidate").exists()


async def test_a_rejected_candidate_is_explained_in_the_proxy_s_words(tmp_path: Path) -> None:
    proxy = control(tmp_path, test=shell("echo {config}:3: unknown filter >&2; echo second; exit 1"))

    with pytest.raises(ProxyFailure) as raised:
        await proxy.test("new")

    file = tmp_path / "config.kdl"
    assert raised.value.message == f"the proxy does not accept it: {file}:3: unknown filter"
    assert raised.value.details == f"{file}:3: unknown filter\nsecond"


async def test_a_command_that_says_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProxyFailure, match="the proxy does not accept it: sh exits with 3"):
        await control(tmp_path, test=shell("exit 3 # {config}")).test("new")


async def test_a_command_that_cannot_be_run_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ProxyFailure, match="/does/not/exist: cannot be run: no such file"):
        await control(tmp_path, reload=("/does/not/exist",)).reload()


async def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    with pytest.raises(ProxyFailure, match="took longer than 100ms") as raised:
        await commands.run(
            shell("echo begun; sleep 1000 & echo $!; wait"),
            timeout=timedelta(milliseconds=100),
            environ=os.environ,
        )

    if raised.value.details:  # a busy machine may not have begun
        child = int(raised.value.details.split()[-1])
        async with asyncio.timeout(60):  # it was sent SIGKILL, and dies when the machine has time for it
            while not _is_dead(child):  # noqa: ASYNC110  # it is no child of ours
                await asyncio.sleep(0.01)


async def test_output_is_bounded_and_tokens_stay_with_the_agent() -> None:
    environ = {**os.environ, "SENTINEL_REGISTRATION_TOKEN": "t-1", "VAULT_TOKEN": "t-2", "OTHER": "t-3"}

    finished = await commands.run(shell("env"), timeout=timedelta(seconds=60), environ=environ)
    flood = await commands.run(shell("yes | head -c 100000"), timeout=timedelta(seconds=60), environ=environ)

    assert "t-3" in finished.output
    assert "t-1" not in finished.output
    assert "t-2" not in finished.output
    assert len(flood.output) <= commands.MAX_OUTPUT


async def test_a_daemon_that_a_command_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    proxy = control(tmp_path, restart=shell(f"sleep 1000 & echo $! > {tmp_path}/pid"))

    await proxy.restart()

    assert proxy.can_restart
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_a_failing_reload_command_says_why(tmp_path: Path) -> None:
    proxy = control(tmp_path, reload=shell("echo no such unit >&2; exit 5"))

    with pytest.raises(ProxyFailure, match="exits with 5: no such unit"):
        await proxy.reload()


async def test_our_own_command_is_found_without_a_path() -> None:
    environ = {"PATH": "/nonexistent"}

    finished = await commands.run(("sentinel", "version"), timeout=timedelta(seconds=90), environ=environ)

    assert finished.code == 0


async def test_a_signal_reloads_the_process_of_the_pid_file(tmp_path: Path) -> None:
    async with running_proxy(tmp_path) as process:
        proxy = control(tmp_path, pid_file=tmp_path / "pid")
        await proxy.check_health()

        await proxy.reload()

        async with asyncio.timeout(60):
            while not (tmp_path / "reloaded").exists():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        assert await proxy.process_id() == process.pid


async def test_stopping_waits_for_the_process_to_end(tmp_path: Path) -> None:
    async with running_proxy(tmp_path) as process:
        proxy = control(tmp_path, pid_file=tmp_path / "pid")

        await proxy.stop(MINUTE)
        await proxy.stop(MINUTE)  # it has ended

        assert await process.wait() == -signal.SIGTERM
        assert await proxy.process_id() is None


async def test_a_proxy_that_does_not_stop_in_time_is_a_failure(tmp_path: Path) -> None:
    async with running_proxy(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)  # so SIGTERM stays pending
        proxy = control(tmp_path, pid_file=tmp_path / "pid")

        with pytest.raises(ProxyFailure, match="still runs 100ms after SIGTERM"):
            await proxy.stop(timedelta(milliseconds=100))


async def test_a_stop_command_replaces_the_signal(tmp_path: Path) -> None:
    await control(tmp_path, stop=shell(f"touch {tmp_path}/stopped")).stop(MINUTE)

    assert (tmp_path / "stopped").exists()


async def test_a_proxy_without_pid_file_and_command_cannot_be_stopped(tmp_path: Path) -> None:
    with pytest.raises(ProxyFailure, match="there is no stop_command, and no pid_file"):
        await control(tmp_path).stop(MINUTE)


@pytest.mark.parametrize(
    "text", ["", "abc", "0", "1", "-5", "99999999999", pytest.param(str(os.getpid()), id="of this process")]
)
async def test_a_pid_file_with_something_else_gets_no_signal(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)

    with pytest.raises(ProxyFailure, match="expected the id of the proxy's process"):
        await control(tmp_path, pid_file=tmp_path / "pid").reload()


async def test_a_pid_file_of_a_process_that_has_ended_gets_no_signal(tmp_path: Path) -> None:
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    (tmp_path / "pid").write_text(f"{ended.pid}\n")

    with pytest.raises(ProxyFailure, match="which has ended"):
        await control(tmp_path, pid_file=tmp_path / "pid").reload()


async def test_a_pid_that_belongs_to_another_process_by_now_gets_no_signal(tmp_path: Path) -> None:
    async with running_proxy(tmp_path):
        os.utime(tmp_path / "pid", (0, 0))  # written long before that process began

        with pytest.raises(ProxyFailure, match="which began later"):
            await control(tmp_path, pid_file=tmp_path / "pid").reload()

    assert not (tmp_path / "reloaded").exists()


async def test_a_missing_pid_file_says_that_the_proxy_does_not_run(tmp_path: Path) -> None:
    proxy = control(tmp_path, pid_file=tmp_path / "pid")

    with pytest.raises(ProxyFailure, match="the proxy does not run: there is no"):
        await proxy.check_health()
    assert await proxy.process_id() is None


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (204, True), (404, False), (503, False)])
async def test_health_is_a_response_of_2xx(tmp_path: Path, status: int, is_healthy: bool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = control(tmp_path, health_url=f"http://127.0.0.1:{port}/health?full=1")
    try:
        if is_healthy:
            await proxy.check_health()
        else:
            with pytest.raises(ProxyFailure, match=rf"/health\?full=1: responded {status}"):
                await proxy.check_health()
    finally:
        await proxy.close()
        server.close()
    with pytest.raises(ProxyFailure, match=r"127\.0\.0\.1"):
        await proxy.check_health()
    await proxy.close()


def _is_dead(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or is_zombie(pid)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())

"""What every proxy that an agent controls promises: a real one, and the one in memory."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.drivers.proxy_control.control import LocalProxy
from sentinel.ports.proxy_control import ProxyControl, ProxyFailure
from sentinel.testing.proxy_control import MemoryProxy


@pytest.fixture(params=["local", "memory"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> ProxyControl:
    """A proxy without a file that accepts everything without the word `bad`, and can be restarted."""
    if request.param == "memory":
        memory = MemoryProxy(None, can_restart=True)
        memory.accepts = lambda text: "bad word" if "bad" in text else ""
        return memory
    return LocalProxy(
        config_path=tmp_path / "config.kdl",
        test_command=("sh", "-c", "if grep -q bad {config}; then echo bad word; exit 1; fi"),
        reload_command=("true",),
        restart_command=("true",),
        stop_command=("true",),
        environ=dict(os.environ),
    )


async def test_a_file_is_written_with_a_copy_and_restored(proxy: ProxyControl) -> None:
    missing = await proxy.read()
    await proxy.write("one")
    await proxy.write("two")

    assert (missing.text, missing.problem) == (None, "")
    assert (await proxy.read()).text == "two"
    assert await proxy.read_copy() == "one"
    await proxy.restore("one")
    assert (await proxy.read()).text == await proxy.read_copy() == "one"
    await proxy.restore(None)
    await proxy.restore(None)
    assert (await proxy.read()).text is None


async def test_a_test_changes_nothing(proxy: ProxyControl) -> None:
    await proxy.write("one")

    await proxy.test("good")
    with pytest.raises(ProxyFailure) as raised:
        await proxy.test("bad")

    assert raised.value.message == "the proxy does not accept it: bad word"
    assert raised.value.details == "bad word"
    assert (await proxy.read()).text == "one"


async def test_everything_can_be_repeated(proxy: ProxyControl) -> None:
    assert proxy.can_restart
    assert proxy.path.endswith("config.kdl")
    for _ in range(2):
        await proxy.write("one")
        await proxy.reload()
        await proxy.restart()
        await proxy.check_health()
    for _ in range(2):
        await proxy.stop(timedelta(minutes=1))

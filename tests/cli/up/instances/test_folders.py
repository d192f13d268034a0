"""What agents and proxies are started with."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sentinel.agent import settings as agent_settings
from sentinel.cli.up.instances import configurations
from sentinel.cli.up.instances.folders import InstanceFolder, folders
from sentinel.cli.up.instances.ports import MAX_INSTANCES, Ports
from sentinel.cli.up.instances.processes import child_environ
from sentinel.core import kdl
from sentinel.core.proxy.check import check
from sentinel.core.proxy.model import blocks_that_need_restart
from sentinel.proxy import configuration_file
from sentinel.runtime.listening import Address

PORTS = Ports(8100)
HUB = Address("127.0.0.1", 9090)
TEXTS = [
    configurations.unassigned(PORTS),
    configurations.forwarding(PORTS),
    configurations.forwarding(PORTS, greeting="next", upstream_port=PORTS.next_upstream),
]


def prepared(root: Path, *, token_file: Path | None = None) -> InstanceFolder:
    [instance] = folders(root, count=1, ports=PORTS)
    instance.prepare(hub=HUB, token_file=token_file)
    return instance


def test_instances_are_spread_over_three_zones() -> None:
    instances = folders(Path(), count=5, ports=PORTS)

    assert [(each.id, each.zone, each.port) for each in instances] == [
        ("edge-1", "a", 8101),
        ("edge-2", "b", 8102),
        ("edge-3", "c", 8103),
        ("edge-4", "a", 8104),
        ("edge-5", "b", 8105),
    ]


def test_an_agent_reads_its_settings_without_problems(tmp_path: Path) -> None:
    instance = prepared(tmp_path, token_file=tmp_path / "agent-token")

    loaded = agent_settings.load(file=instance.path / "agent.yaml", environ={})

    assert (loaded.problems, loaded.warnings) == ((), ())
    settings = loaded.settings
    assert settings is not None
    assert (settings.hub.address, settings.hub.registration_token_file) == (str(HUB), tmp_path / "agent-token")
    assert (settings.instance.id, dict(settings.instance.labels)) == ("edge-1", {"zone": "a"})
    assert settings.proxy.config_path == tmp_path / "edge-1" / "proxy.kdl"
    assert settings.proxy.reload.pid_file == tmp_path / "edge-1" / "proxy.pid"
    assert settings.proxy.health_url == "http://127.0.0.1:8101/health"
    assert settings.proxy.metrics_url == "http://127.0.0.1:8151/metrics"
    assert settings.state_dir == tmp_path / "edge-1" / "state"


def test_a_configuration_that_the_agent_has_applied_stays(tmp_path: Path) -> None:
    instance = prepared(tmp_path)
    (instance.path / "proxy.kdl").write_text("applied")

    prepared(tmp_path)

    assert (instance.path / "proxy.kdl").read_text() == "applied"
    assert stat.S_IMODE(instance.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", TEXTS)
def test_every_configuration_passes_all_checks_and_needs_no_restart(text: str, tmp_path: Path) -> None:
    file, first = tmp_path / "proxy.kdl", tmp_path / "first.kdl"
    file.write_text(text)
    first.write_text(TEXTS[0])

    loaded = configuration_file.load(file, port_offset=MAX_INSTANCES)
    before = configuration_file.load(first, port_offset=MAX_INSTANCES)

    assert check(kdl.parse(text.encode())).problems == ()
    assert loaded.problems == loaded.warnings == loaded.unimplemented == ()
    assert loaded.configuration is not None
    assert before.configuration is not None
    assert blocks_that_need_restart(before.configuration, loaded.configuration) == ()
    assert loaded.configuration.listeners[0].address.port == 8140


def test_settings_of_this_process_are_not_those_of_its_children() -> None:
    environ = {"SENTINEL_STATE_DIR": "/elsewhere", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "PATH": "/bin"}

    assert child_environ(environ) == {"PATH": "/bin"}

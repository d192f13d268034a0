"""What each instance has on disk, as it would on its own host.

instances/ports.json          the ports of all instances
instances/edge-1/agent.yaml   the settings of the agent, written at each start
instances/edge-1/proxy.kdl    the configuration of the proxy; the agent replaces it
instances/edge-1/proxy.pid    written by the proxy
instances/edge-1/state/       the state of the agent
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sentinel.cli.up.instances import configurations
from sentinel.cli.up.instances.ports import LOOPBACK, Ports
from sentinel.runtime.listening import Address

ZONES: Final = ("a", "b", "c")
COMMAND: Final = (sys.executable, "-P", "-m", "sentinel.cli")
"""Runs `sentinel` as this process was installed, whatever is on the path or in the working directory."""

_PRIVATE: Final = 0o700


class InstanceFolder(msgspec.Struct, frozen=True):
    """One instance."""

    number: int
    """Counts from 1. It is added to the ports of a configuration."""
    path: Path
    ports: Ports

    @property
    def id(self) -> str:
        return f"edge-{self.number}"

    @property
    def zone(self) -> str:
        return ZONES[(self.number - 1) % len(ZONES)]

    @property
    def port(self) -> int:
        """The port of the proxy, if the configuration has the listener of `configurations`."""
        return self.ports.listener + self.number

    @property
    def url(self) -> str:
        """The URL of the proxy."""
        return f"http://{LOOPBACK}:{self.port}"

    def prepare(self, *, hub: Address, token_file: Path | None) -> None:
        """Write the files that the processes start with. An existing configuration stays. Raises `OSError`."""
        self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        configuration = self.path / "proxy.kdl"
        if not configuration.exists():
            configuration.write_text(configurations.unassigned(self.ports))
        # JSON is YAML, too, and needs no rules for quoting paths.
        settings = msgspec.json.encode(self._settings(hub, token_file))
        (self.path / "agent.yaml").write_bytes(msgspec.json.format(settings, indent=2) + b"\n")

    def _settings(self, hub: Address, token_file: Path | None) -> dict[str, object]:
        connection: dict[str, object] = {"address": str(hub)}
        if token_file is not None:
            connection["registration_token_file"] = str(token_file)
        return {
            "hub": connection,
            "instance": {"id": self.id, "name": f"Edge {self.number}", "labels": {"zone": self.zone}},
            "proxy": {
                "config_path": "proxy.kdl",
                "test_command": [*COMMAND, "proxy", "--test", "-c", "{config}"],
                "reload": {"pid_file": "proxy.pid"},
                "health_url": f"{self.url}/health",
                "health": {"attempts": 3, "interval": "500ms", "timeout": "2s"},
                "metrics_url": f"http://{LOOPBACK}:{self.ports.metrics + self.number}/metrics",
            },
            "offline_behavior": {"retry_backoff": {"initial": "500ms", "max": "5s"}},
            "state_dir": "state",
        }

    def proxy_command(self, log: Sequence[str]) -> Sequence[str]:
        """Return the command of the proxy, to run in the folder."""
        offset = ("--port-offset", str(self.number), "--pid-file", "proxy.pid")
        return (*COMMAND, "proxy", "-c", "proxy.kdl", *offset, *log)

    def agent_command(self, log: Sequence[str]) -> Sequence[str]:
        """Return the command of the agent, to run in the folder. `up` has its metrics and its state."""
        no_listeners = ("--metrics-bind-address", "0", "--health-probe-bind-address", "0")
        return (*COMMAND, "agent", "--config", "agent.yaml", *no_listeners, *log)


def folders(root: Path, *, count: int, ports: Ports) -> Sequence[InstanceFolder]:
    """Return the folders of this many instances."""
    return [InstanceFolder(number, root / f"edge-{number}", ports) for number in range(1, count + 1)]

"""The processes of the instances, as parts: one agent and one proxy each.

Both are children of this process, and not the proxy a child of its agent: so a restart of an agent leaves its
proxy alone, as on a host, and none of them outlives this process, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sentinel.cli.up.instances import ports
from sentinel.cli.up.instances.folders import InstanceFolder
from sentinel.core.hub.states import CONNECTED, State
from sentinel.runtime.lifecycle.child_process import ChildProcess, ReadinessProbe
from sentinel.runtime.lifecycle.part import Part, PartFactory
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log
from sentinel.runtime.settings.loader import PREFIX

_OWN_VARIABLES: Final = ("OTEL_",)


class InstanceProcesses:
    """The agents and proxies of one run."""

    def __init__(
        self,
        instances: Sequence[InstanceFolder],
        *,
        hub: Callable[[], Address],
        token_file: Path | None,
        state_of: Callable[[str], State | None],
        environ: Mapping[str, str],
        log_level: str,
        log: Log,
        redact: Callable[[str], str],
    ) -> None:
        """`hub` is the address for agents, once it is bound. `state_of` is what the hub knows of an instance."""
        self._instances = instances
        self._hub = hub
        self._token_file = token_file
        self._state_of = state_of
        self._environ = child_environ(environ)
        self._log_options = ("--log-level", log_level, "--log-format", "console")
        self._log = log
        self._redact = redact

    @property
    def factories(self) -> Sequence[PartFactory]:
        """All proxies before the agents, which look for theirs when they start."""
        return [
            *(self._proxy(instance) for instance in self._instances),
            *(self._agent(instance) for instance in self._instances),
        ]

    def _proxy(self, instance: InstanceFolder) -> PartFactory:
        async def ready() -> str | None:
            _, writer = await asyncio.open_connection(ports.LOOPBACK, instance.port)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return None

        return self._factory(f"proxy {instance.id}", instance, instance.proxy_command(self._log_options), ready)

    def _agent(self, instance: InstanceFolder) -> PartFactory:
        async def ready() -> str | None:
            state = self._state_of(instance.id)
            return None if state in CONNECTED else "it has not registered yet"

        return self._factory(f"agent {instance.id}", instance, instance.agent_command(self._log_options), ready)

    def _factory(
        self, name: str, instance: InstanceFolder, command: Sequence[str], ready: ReadinessProbe
    ) -> PartFactory:
        child = ChildProcess(
            name=name,
            argv=command,
            environment=self._environ,
            cwd=instance.path,
            ready=ready,
            may_end=True,  # a drained instance has left the fleet
            log=self._log,
            redact=self._redact,
        )

        def build() -> Part:
            instance.prepare(hub=self._hub(), token_file=self._token_file)
            return child.part()

        return build


def child_environ(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of the processes: our own settings and traces are not theirs."""
    foreign = (PREFIX, *_OWN_VARIABLES)
    return {name: value for name, value in environ.items() if not name.startswith(foreign)}

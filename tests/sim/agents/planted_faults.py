"""Planted faults: each breaks one promise of the agent or the hub, to show that the simulation finds it.

None of them changes our code. Each wraps a port or derives a class, or changes a message, and looks from outside
like a bug in the component behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentinel.agent.applier import Applier
from sentinel.core.agent.orders import Task
from sentinel.ports.proxy_control import ProxyControl
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.sim.agents.agent_process import AgentParts
from tests.sim.agents.configurations import BY_NAME, VERSIONS
from tests.sim.agents.host import HostProxy
from tests.sim.agents.hub_process import Run
from tests.sim.agents.world import Planted

States = pb.DeploymentStatusRequest


class _WrappedProxy:
    """A `ProxyControl` that passes everything on."""

    def __init__(self, proxy: HostProxy) -> None:
        self._proxy = proxy
        self.path, self.can_restart = proxy.path, proxy.can_restart
        self.read, self.test, self.write, self.read_copy = proxy.read, proxy.test, proxy.write, proxy.read_copy
        self.restore, self.reload, self.restart = proxy.restore, proxy.reload, proxy.restart
        self.check_health, self.process_id, self.stop = proxy.check_health, proxy.process_id, proxy.stop


class _SaysHealthy(_WrappedProxy):
    def __init__(self, proxy: HostProxy) -> None:
        super().__init__(proxy)
        self.check_health = self._be_healthy

    async def _be_healthy(self) -> None: ...


class _NeverRestores(_WrappedProxy):
    def __init__(self, proxy: HostProxy) -> None:
        super().__init__(proxy)
        self.restore = self._forget

    async def _forget(self, text: str | None) -> None: ...


class _TearsWrites(_WrappedProxy):
    def __init__(self, proxy: HostProxy) -> None:
        super().__init__(proxy)
        self.write = self._write_in_two

    async def _write_in_two(self, text: str) -> None:
        await self._proxy.write(text[: len(text) // 2])
        await self._proxy.write(text)


class _NeverReloads(_WrappedProxy):
    def __init__(self, proxy: HostProxy) -> None:
        super().__init__(proxy)
        self.reload = self.restart = self._forget

    async def _forget(self) -> None: ...


class _IgnoresNews(Applier):
    """Takes note of its first version, and never of another one."""

    _first = ""

    def receive(self, task: Task) -> None:
        self._first = self._first or task.version
        if task.version == self._first:
            super().receive(task)


def _proxy(wrap: type[_WrappedProxy]) -> Planted:
    def make(proxy: HostProxy) -> ProxyControl:
        return wrap(proxy)

    return Planted(parts=AgentParts(proxy=make))


def _without_runner(loops: Sequence[Run]) -> Sequence[Run]:
    return [each for each in loops if "RolloutRunner" not in getattr(each, "__qualname__", "")]


def _complete_early(method: str, request: Any) -> Any:
    if method == "ReportDeploymentStatus" and request.state == States.IN_PROGRESS:
        request.state = States.COMPLETED
    return request


def _hide_reasons(method: str, request: Any) -> Any:
    if method == "Heartbeat":
        request.status.message = ""
    return request


def _claim_assigned(method: str, request: Any) -> Any:
    """Report the newest version, whatever runs."""
    if method == "Heartbeat" and request.current_config_version:
        request.current_config_version = VERSIONS[-1].name
        request.current_config_hash = VERSIONS[-1].hash
    return request


def _blame_the_version(method: str, request: Any) -> Any:
    if method == "ReportDeploymentStatus" and request.state == States.VALIDATING:
        request.state, request.message = States.FAILED, "health check failed after 3 attempts"
    return request


def _mix_deployments(method: str, request: Any) -> Any:
    if method == "ReportDeploymentStatus":
        request.deployment_id = request.deployment_id[::-1]
    return request


def _send_newest(method: str, response: Any) -> Any:
    """Hand out the newest version in place of the assigned one."""
    if method == "GetConfig":
        response.version, response.content = VERSIONS[-1].name, VERSIONS[-1].text
        response.hash = VERSIONS[-1].hash
    return response


def _assign_newest(method: str, response: Any) -> Any:
    """Ask for the newest version in events."""
    if method == "Event" and response is not None and response.type == pb.Event.CONFIG_UPDATE:
        response.config_update.config_version = VERSIONS[-1].name
        response.config_update.config_hash = VERSIONS[-1].hash
    elif method == "GetConfig":
        wanted = BY_NAME[VERSIONS[-1].name]
        response.version, response.content, response.hash = wanted.name, wanted.text, wanted.hash
    return response


def _ask_for_nothing(method: str, response: Any) -> Any:
    """Say in no answer and no event what is assigned."""
    if method == "Heartbeat":
        del response.actions[:]
    elif method == "Register":
        response.config_version = response.config_hash = ""
    elif method == "Event":
        return None
    return response


UNCHECKED_HEALTH = _proxy(_SaysHealthy)
MISSING_RESTORES = _proxy(_NeverRestores)
TORN_WRITES = _proxy(_TearsWrites)
MISSING_RELOADS = _proxy(_NeverReloads)
IGNORED_NEWS = Planted(parts=AgentParts(applier=_IgnoresNews))
RESTING_RUNNER = Planted(loops=_without_runner)
EARLY_COMPLETIONS = Planted(alter_request=_complete_early)
HIDDEN_REASONS = Planted(alter_request=_hide_reasons)
FALSE_HEARTBEATS = Planted(alter_request=_claim_assigned)
FALSE_REASONS = Planted(alter_request=_blame_the_version)
MIXED_DEPLOYMENTS = Planted(alter_request=_mix_deployments)
SWAPPED_CONTENTS = Planted(alter_response=_send_newest)
SWAPPED_ASSIGNMENTS = Planted(alter_response=_assign_newest)
UNTOLD_ASSIGNMENTS = Planted(alter_response=_ask_for_nothing)

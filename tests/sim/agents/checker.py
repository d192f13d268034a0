"""Checks what agents do and say, as it happens, and once everything has settled.

What is checked against is what users asked for, and what the proxies really run; never what the hub believes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from google.protobuf.message import Message

from sentinel.core.agent.apply import DEADLINE_PASSED
from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.states import State
from sentinel.ports.hub_store import InstanceRecord
from sentinel.ports.rollout_store import DeploymentRecord, RolloutRow
from sentinel.testing.rollout_tables import RolloutTables
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.sim.agents.configurations import BY_NAME, BY_TEXT, KNOWN_HASHES, UNMANAGED, Defect, Version
from tests.sim.agents.host import NO_SPACE, NOT_RUNNING, HostProxy
from tests.sim.trace import Trace

States = pb.DeploymentStatusRequest
_CIRCUMSTANCES = (
    "superseded by",
    DEADLINE_PASSED,
    "the deployment is over",
    "the agent was interrupted",
    "the version was never assigned to this instance",
)
"""Other reasons than a defect of the version, which end a deployment's version on an instance for good."""
_OVERCOME = (
    "put back",
    "is not healthy",
    "is not restored",
    "changed by hand",
    "is missing",
    "cannot be compared",
)
"""What may be said for a while, and not any more once the last fault is over."""


class AgentChecker:
    """Knows what every instance may run."""

    def __init__(self, trace: Trace, rollouts: RolloutTables) -> None:
        self._trace = trace
        self._rollouts = rollouts
        self._proxies: dict[str, HostProxy] = {}
        self._offered: dict[str, set[str]] = defaultdict(lambda: {UNMANAGED})
        """The texts that an instance may run, by what users have asked for."""
        self._ran: dict[str, set[str]] = defaultdict(lambda: {UNMANAGED})
        self.full_disks: set[str] = set()
        """Instances whose disk was full at some time."""
        self.kills: dict[str, int] = defaultdict(int)
        self.stopped_proxies: set[str] = set()
        """Instances whose proxy did not run at some time, so that any version may have failed there."""

    def add(self, name: str, proxy: HostProxy) -> None:
        self._proxies[name] = proxy

    def offered(self, name: str, version: Version) -> None:
        """A user wants this version to run there, from now on or once a deployment reaches it."""
        self._offered[name].add(version.text)

    def changed(self, name: str) -> None:
        """Check the file of a proxy and what it runs."""
        proxy = self._proxies[name]
        for what, text in (("file", proxy.text), ("process", proxy.running)):
            is_allowed = text in self._offered[name]
            self._trace.require(is_allowed, f"the {what} of {name} was never assigned to it: {_name(text)}")
        if proxy.running is not None:
            self._ran[name].add(proxy.running)
        self._trace.note(name, "runs", _name(proxy.running), "its file has", _name(proxy.text))

    def requested(self, name: str, method: str, request: Message) -> None:
        """Check what an agent tells the hub."""
        if isinstance(request, pb.HeartbeatRequest):
            self._check_heartbeat(name, request)
        elif isinstance(request, pb.DeploymentStatusRequest):
            self._check_report(name, request)

    def check_settled(self, name: str, stored: InstanceRecord) -> str:
        """Return why an instance has not reached what is assigned to it, or says nothing true about it."""
        proxy, assignment = self._proxies[name], stored.sync.assignment
        if stored.life.deployment_id is not None:
            return f"the deployment {stored.life.deployment_id} is in progress on it"
        file = next((each for each, text in KNOWN_HASHES.items() if text == proxy.text), "")
        if stored.sync.reported_hash != file:
            return f"its file is {_name(proxy.text)}, but the hub believes another one"
        if proxy.running != proxy.text:
            return f"it runs {_name(proxy.running)}, but its file is {_name(proxy.text)}"
        message = stored.life.message
        if proxy.defects.get(proxy.running or ""):
            return f'it runs {_name(proxy.running)}, which does not work there, and says "{message}"'
        if any(each in message for each in _OVERCOME):
            return f'it says what is no longer true: "{message}"'
        if stored.life.state is not State.ONLINE:
            return f"it is {stored.life.state}, although its proxy works"
        if assignment is None:
            return ""
        wanted = BY_NAME[str(assignment.version)]
        if proxy.text == wanted.text:
            return "" if stored.sync.is_in_sync else "the hub does not know that it is in sync"
        reason = next((each for each in message.split("; ") if each.startswith(f"{wanted.name}: ")), "")
        if not reason:
            return f'it runs {_name(proxy.running)} instead of {wanted.name}, and only says "{message}"'
        return "" if self._is_true(name, wanted, reason) else f'it says what is not true: "{reason}"'

    def check_deployment(self, record: DeploymentRecord, rows: list[RolloutRow]) -> None:
        """Check what a deployment that is over says about its targets."""
        text = BY_NAME[str(record.rollout.to.name)].text
        for each in rows:
            if each.row.state is RowState.COMPLETED:
                self._require_ran(each.row.instance_id, text, f"the deployment {record.rollout.to.name} completed")

    def _check_heartbeat(self, name: str, request: pb.HeartbeatRequest) -> None:
        is_honest = "changed by hand" not in request.status.message
        self._trace.require(is_honest, f"{name} blames a person:", request.status.message)
        if request.current_config_version:
            text = BY_NAME[request.current_config_version].text
            self._require_ran(name, text, "a heartbeat says that it was applied")
        if request.current_config_hash:  # empty: nothing that was applied is in the file
            reported = KNOWN_HASHES.get(request.current_config_hash)
            self._trace.require(
                reported in self._ran[name], f"{name} reports {_name(reported)}, which never ran there"
            )

    def _check_report(self, name: str, request: pb.DeploymentStatusRequest) -> None:
        deployment = self._rollouts.deployments.get(request.deployment_id)
        if deployment is None:
            self._trace.violation(f"{name} reports on a deployment that does not exist: {request.deployment_id}")
            return
        version = BY_NAME[str(deployment.rollout.to.name)]
        state = States.DeploymentState.Name(request.state)
        self._trace.note(name, f"reports {state}", version.name, request.message)
        if request.state == States.COMPLETED and not request.rollback:
            self._require_ran(name, version.text, "reports COMPLETED")
        if request.state == States.FAILED and not request.rollback:
            self._trace.require(
                self._is_true(name, version, request.message),
                f"{name} reports that {version.name} has failed, which is not true:",
                request.message,
            )

    def _require_ran(self, name: str, text: str, claim: str) -> None:
        self._trace.require(
            text in self._ran[name] and text not in self._proxies[name].defects,
            f"{name}: {claim}, but {_name(text)} never worked there",
        )

    def _is_true(self, name: str, version: Version, reason: str) -> bool:
        """Whether a version has failed for this reason, as far as anybody can know."""
        defect = self._proxies[name].defects.get(version.text)
        if defect is not None and defect in reason:
            return True
        if NO_SPACE in reason:
            return name in self.full_disks
        if NOT_RUNNING in reason or Defect.UNHEALTHY in reason:
            return name in self.stopped_proxies
        if "state was lost" in reason:
            return name in self.full_disks and self.kills[name] >= 1
        if "interrupted" in reason:
            return self.kills[name] >= 2
        return any(each in reason for each in _CIRCUMSTANCES)

    @property
    def deployments(self) -> Mapping[str, DeploymentRecord]:
        return self._rollouts.deployments


def _name(text: str | None) -> str:
    if text == UNMANAGED:
        return "what it had before"
    version = BY_TEXT.get(text or "")
    return "something else" if version is None else version.name

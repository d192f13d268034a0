"""Applies what the hub wants to the proxy, one version at a time, and keeps what the hub has to know about it.

The session with the hub hands over each task that it learns of, as often as it likes, and fetches what is
`wanted`. Everything that the applier has to say is state, not a message: what runs, and the reports that were not
delivered yet. Both outlive the process, so nothing is lost by a hub that is away or an agent that is killed.

`core.agent.state` decides; this performs one action after the other and saves the state before each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from sentinel.agent.proxy_actions import ActionFailed, ProxyActions
from sentinel.core.agent import apply as applying
from sentinel.core.agent import state as states
from sentinel.core.agent import status
from sentinel.core.agent.orders import Content, OrderKey, Report, Running, Task
from sentinel.core.agent.state import AgentState, Applied, Unloaded
from sentinel.ports.clock import Clock
from sentinel.ports.proxy_control import ProxyFailure
from sentinel.ports.state_dir import StateDir, StateDirFailure
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log


class Applier:
    """Applies configurations to one proxy."""

    def __init__(
        self,
        *,
        actions: ProxyActions,
        state_dir: StateDir,
        attempts: int,
        clock: Clock,
        log: Log,
    ) -> None:
        """The health is checked `attempts` times before a version counts as failed."""
        self.changed = asyncio.Event()
        """Set whenever `running`, `pending_reports` or `wanted` has changed. The reader clears it."""
        self._actions = actions
        self._state_dir = state_dir
        self._attempts = attempts
        self._clock = clock
        self._log = log
        self._state = AgentState()
        self._saved: AgentState | None = None
        self._reports: tuple[Report, ...] = ()
        self._content: Content | None = None
        self._action: applying.Action | None = None
        self._running = Running()
        self._state_problem = ""
        self._health_problem = ""
        self._start_problem = ""
        self._is_put_back_due = False
        self._is_draining = False
        self._early: list[Task] = []
        """What was received before the state was loaded."""
        self._starting = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._started = asyncio.Event()
        self._woken = asyncio.Event()
        self._unsaved = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None:
        """Load the state, and find out where an earlier process was. Called by `run`, unless it was before."""
        async with self._starting:
            if self._started.is_set():
                return
            try:
                loaded = await self._state_dir.load()
            except StateDirFailure as failure:
                self._log.error("state.unreadable", reason=str(failure))
                loaded = AgentState()
            file_hash = await self._actions.file_hash()
            self._state, self._action = states.restarted(loaded, file_hash)
            if self._action is not None and self._state.apply is not None:
                self._idle.clear()
                resumed = self._state.apply
                self._log.warning("apply.resumed", step=resumed.step, version=resumed.task.version)
            elif self._state.applied is not None:
                await self._put_back(self._state.applied)
            await self._save()
            await self._look()
            self._started.set()
            for task in self._early:
                self.receive(task)
            self._early.clear()

    async def run(self, stopping: Stopping) -> None:
        """Apply, one at a time, until stopped. An apply that has begun is finished.

        At the start it resumes what an earlier process has begun.
        """
        await self.start()
        saver = asyncio.create_task(self._save_changes())
        try:
            while self._action is not None or not stopping.requested:
                if self._action is not None:
                    await self._step(self._action)
                elif not await self._begin() and not await self._put_back_again():
                    self._idle.set()
                    self._woken.clear()
                    await stopping.interrupts(self._woken.wait())
            await self._save()
        finally:
            saver.cancel()
            await asyncio.wait([saver])
            self._idle.set()

    def receive(self, task: Task) -> None:
        """Take note of what the hub wants. A task that is known already changes nothing.

        A newer task supersedes one that has not begun. An order is acknowledged by a report.
        """
        if not self._started.is_set():
            self._early.append(task)
            return
        now = self._clock.now()
        self._change(lambda state: states.receive(state, task, now, is_draining=self._is_draining))

    @property
    def wanted(self) -> Task | None:
        """The task whose content has to be fetched now, by its version; None if nothing has to be.

        An order is acknowledged before it is fetched.
        """
        waiting = self._state.waiting
        if waiting is None or self._state.apply is not None or self._content is not None:
            return None
        if waiting.order is not None and (self._saved is None or self._saved.waiting != waiting):
            return None
        return waiting

    def supply(self, task: Task, content: Content) -> None:
        """Hand over the content of a wanted task. Ignored if it is not wanted any more."""
        if self.wanted == task:
            self._content = content
            self._woken.set()

    def cannot_fetch(self, task: Task, reason: str) -> None:
        """Give up a task because the hub refuses its content permanently. Not for a hub that is unreachable."""
        self._change(lambda state: states.refuse(state, task, reason))

    @property
    def running(self) -> Running:
        """What the next heartbeat says, as last observed."""
        return self._running

    async def observe(self) -> Running:
        """Look at the file and the health of the proxy, and return what a heartbeat says now.

        During an apply, the apply decides whether the proxy is healthy.
        """
        await self._started.wait()
        now = self._clock.now()
        self._change(lambda state: states.expire(state, now))
        if self._state_problem:
            await self._save()  # the disk may have space again
        if self._start_problem:
            self._is_put_back_due = True
            self._woken.set()
        if self._action is None:
            problem = await self._actions.health_problem()
            if self._action is None:
                self._health_problem = problem
                if not problem and self._state.unloaded is not None:
                    await self._note_healthy()
        await self._look()
        return self._running

    @property
    def pending_reports(self) -> Sequence[Report]:
        """What the hub has not been told yet, in the order in which it has to be. All of it is saved."""
        return self._reports

    def delivered(self, report: Report, *, is_over: bool = False) -> None:
        """Take note that the hub has a report. `is_over`: it says that the deployment is over (`stop`)."""
        self._reports = tuple(each for each in self._reports if each != report)
        self._change(lambda state: states.delivered(state, report))
        if is_over:
            self._change(lambda state: states.stop(state, report.order))

    def report_again(self, order: OrderKey) -> None:
        """Report once more how far an order is, because the hub asks for it."""
        self._change(lambda state: states.report_again(state, order))

    async def drain(self) -> None:
        """Refuse everything new from now on. Returns when what is being applied has ended."""
        self._is_draining = True
        self._change(states.drain)
        await self._idle.wait()

    async def stop_proxy(self, timeout: timedelta) -> str:
        """Stop the proxy, after what is being applied has ended. Returns why that failed, or an empty text.

        What is being applied gets half of the time: it may wait for a proxy that does not respond.
        """
        self._is_draining = True
        monotonic = asyncio.get_running_loop().time
        began = monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout.total_seconds() / 2):
                await self._idle.wait()
        try:
            await self._actions.stop(timeout - timedelta(seconds=monotonic() - began))
        except ProxyFailure as failure:
            return failure.message
        return ""

    async def _begin(self) -> bool:
        """Begin to apply what has arrived, if it is still wanted."""
        content, self._content = self._content, None
        waiting = self._state.waiting
        if content is None or waiting is None or content.version != waiting.version:
            if waiting is not None and content is not None:
                self.changed.set()  # another version is wanted by now
            return False
        self._idle.clear()
        self._actions.use(content)
        self._state, self._action = states.begin(self._state, attempts=self._attempts)
        self._log.info("apply.started", version=waiting.version)
        return True

    async def _step(self, action: applying.Action) -> None:
        """Perform an action, and go on with its outcome."""
        await self._save()
        apply = self._state.apply
        if apply is None:
            self._action = None
            return
        # Before the action: a proxy that starts meanwhile reads the file that was restored.
        process_id = await self._actions.process_id() if apply.step is applying.Step.RELOADING_BACK else None
        event = await self._perform(action, apply)
        applied = await self._result(apply, event)
        self._state, self._action = states.advance(
            self._state, event, self._clock.now(), applied=applied, unloaded=_unloaded(apply, process_id)
        )
        if self._action is None:
            await self._end(apply.task, has_succeeded=applied is not None)

    async def _perform(self, action: applying.Action, apply: applying.Apply) -> applying.Event:
        if action is applying.Action.WRITE and self._state_problem:
            # Nobody could tell, after a crash, what the file is. So it stays what it is.
            return applying.Failed(self._state_problem)
        try:
            return await self._actions.perform(action, self._state, apply)
        except ActionFailed as failed:
            return failed.failure
        except Exception as error:
            # A bug, and no reason to leave the proxy with a file that nobody has checked.
            self._log.exception("apply.broken", error=error, action=action)
            return applying.Failed(f"internal error while trying to {action}: {type(error).__name__}")

    async def _result(self, apply: applying.Apply, event: applying.Event) -> Applied | None:
        """Return what runs if this event ends the apply successfully."""
        if apply.step is not applying.Step.CHECKING or isinstance(event, applying.Failed):
            return None
        try:
            await self._actions.keep_text(apply)
        except StateDirFailure as failure:
            self._note_state_problem(str(failure))
        return await self._actions.result(apply, self._state.applied, self._clock.now())

    async def _end(self, task: Task, *, has_succeeded: bool) -> None:
        """An apply has ended. Its secrets are forgotten."""
        self._actions.forget()
        self._health_problem = self._state.restore_failure
        deployment = None if task.order is None else task.order.deployment_id
        if has_succeeded:
            self._start_problem = ""
            self._log.info("apply.done", version=task.version, deployment=deployment)
        else:
            failure = states.failure_of(self._state, task)
            self._log.warning("apply.failed", version=task.version, deployment=deployment, reason=failure)
        await self._save()
        applied = self._state.applied
        await self._state_dir.forget_secrets({} if applied is None else applied.secrets)
        await self._look()

    async def _put_back(self, applied: Applied) -> None:
        """Restore the file of the last good version and its secrets if the file is missing."""
        problem = ""
        try:
            if await self._actions.put_back(applied):
                self._log.warning("config.put_back", version=applied.version)
        except (StateDirFailure, ProxyFailure) as failure:
            problem = f"{applied.version} could not be put back: {failure}"
            if problem != self._start_problem:
                self._log.warning("config.not_put_back", version=applied.version, reason=str(failure))
        self._start_problem = problem

    async def _put_back_again(self) -> bool:
        """Try once more what has failed at the start, if it is time to. Returns whether anything was done."""
        is_due, self._is_put_back_due = self._is_put_back_due, False
        applied = self._state.applied
        if not is_due or not self._start_problem or applied is None or self._is_draining:
            return False
        self._idle.clear()
        await self._put_back(applied)
        await self._look()
        return True

    async def _note_healthy(self) -> None:
        """Find out whether a proxy that is healthy runs what was restored."""
        file_hash = await self._actions.file_hash()
        process_id = await self._actions.process_id()
        self._change(lambda state: states.healthy(state, file_hash, process_id))

    async def _look(self) -> None:
        """Find out what a heartbeat says."""
        observed = await self._actions.observe(self._state.applied)
        process_id = await self._actions.process_id()
        self._change(lambda state: _restarted_proxy(state, process_id))
        observation = msgspec.structs.replace(
            observed,
            health_problem=self._health_problem,
            state_problem=self._state_problem or self._start_problem,
        )
        running = status.running(self._state, observation)
        if running != self._running:
            self._running = running
            self.changed.set()

    def _change(self, change: Callable[[AgentState], AgentState]) -> None:
        changed = change(self._state)
        if changed == self._state:
            return
        self._state = changed
        content, waiting = self._content, changed.waiting
        if content is not None and (waiting is None or waiting.version != content.version):
            self._content = None
        self._unsaved.set()
        self._woken.set()
        self.changed.set()

    async def _save_changes(self) -> None:
        """Save what the session with the hub has changed, also while an action takes its time."""
        while True:
            await self._unsaved.wait()
            await self._save()

    async def _save(self) -> None:
        """Save the state, and show its reports. If it cannot be saved, they are shown nevertheless."""
        async with self._saving:
            self._unsaved.clear()
            state = self._state
            if state == self._saved and not self._state_problem:
                return
            try:
                await self._state_dir.save(state)
                self._note_state_problem("")
            except StateDirFailure as failure:
                self._note_state_problem(str(failure))
            self._saved = state
            self._reports = tuple(each for each in state.reports if each in self._state.reports)
            self.changed.set()

    def _note_state_problem(self, problem: str) -> None:
        if problem and problem != self._state_problem:
            self._log.error("state.not_saved", reason=problem)
        self._state_problem = problem


def _unloaded(apply: applying.Apply, process_id: int | None) -> Unloaded | None:
    """Return what may not run if this step of the way back fails. `process_id` was that of the proxy."""
    match apply.step:
        case applying.Step.RELOADING_BACK:
            return Unloaded(file_hash=apply.previous, process_id=process_id or 0)
        case applying.Step.CHECKING_BACK:
            return Unloaded(file_hash=apply.previous, process_id=None)
        case _:
            return None


def _restarted_proxy(state: AgentState, process_id: int | None) -> AgentState:
    """Note that the proxy has been restarted, if it lacked a restart and its process is another one now."""
    applied = state.applied
    if applied is None or not applied.lacks_restart or process_id in (None, applied.lacks_restart):
        return state
    return msgspec.structs.replace(state, applied=msgspec.structs.replace(applied, lacks_restart=None))

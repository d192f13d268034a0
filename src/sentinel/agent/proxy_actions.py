"""Performs the actions of an apply on the proxy's file and its process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar, assert_never

import msgspec

from sentinel.agent.secret_values import SecretFailure, SecretValues
from sentinel.core import kdl
from sentinel.core.agent import apply as applying
from sentinel.core.agent.apply import Action, Apply
from sentinel.core.agent.orders import Content, Task
from sentinel.core.agent.state import AgentState, Applied
from sentinel.core.agent.status import Observation
from sentinel.core.proxy.difference import changed_blocks, needs_restart
from sentinel.core.proxy.render import Rendered, render
from sentinel.core.proxy.secrets import Reference, needed_secrets, secret_uses
from sentinel.ports.clock import Clock
from sentinel.ports.proxy_control import ConfigFile, ProxyControl, ProxyFailure
from sentinel.ports.state_dir import StateDir, StateDirFailure
from sentinel.runtime.blocking import run_in_thread

_MAX_DIFFERENCES: Final = 10
_LARGE: Final = 64 * 1024
"""A text of this size takes so long to read that it must not delay heartbeats."""

T = TypeVar("T")


class ActionFailed(Exception):
    """An action did not work, for a reason that people should know."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.failure = applying.Failed(message, details)


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A version that is ready to be written."""

    text: str
    """The text with paths of secrets that stay the same when their values change."""
    test_text: str
    """The text with paths of the new values, which the running proxy does not know."""
    files: Mapping[str, str]


class ProxyActions:
    """Performs actions on one proxy. Each can be repeated."""

    def __init__(
        self,
        *,
        proxy: ProxyControl,
        state_dir: StateDir,
        secrets: SecretValues,
        interval: timedelta,
        clock: Clock,
    ) -> None:
        """`interval` is the time before each health check."""
        self._proxy = proxy
        self._state_dir = state_dir
        self._secrets = secrets
        self._interval = interval
        self._clock = clock
        self._content: Content | None = None
        self._prepared: _Prepared | None = None
        self._compared: tuple[str, str, tuple[str, ...]] = ("", "", ())
        """Hashes of two texts, and their differences. A changed file stays changed for many heartbeats."""

    @property
    def path(self) -> str:
        """The path of the proxy's file."""
        return self._proxy.path

    def use(self, content: Content) -> None:
        """Take the content of the version that is applied next."""
        self._content, self._prepared = content, None

    def forget(self) -> None:
        """Forget the content, and the secrets with it."""
        self._content = self._prepared = None

    async def perform(self, action: Action, state: AgentState, apply: Apply) -> applying.Event:
        """Perform an action. Raises `ActionFailed`."""
        try:
            match action:
                case Action.RENDER:
                    return await self._render(apply.task, state)
                case Action.TEST:
                    await self._proxy.test(self._ready.test_text)
                case Action.WRITE:
                    await self._state_dir.use_secrets(self._ready.files)
                    await self._proxy.write(self._ready.text)
                case Action.RELOAD:
                    await self._reload()
                case Action.RESTART:
                    await self._proxy.restart()
                case Action.CHECK:
                    await self._clock.sleep(self._interval)
                    await self._proxy.check_health()
                case Action.RESTORE:
                    await self._restore(state, apply)
                case _:
                    assert_never(action)
        except ProxyFailure as failure:
            raise ActionFailed(failure.message, failure.details) from failure
        except (StateDirFailure, SecretFailure) as failure:
            raise ActionFailed(str(failure)) from failure
        return applying.Done()

    async def result(self, apply: Apply, before: Applied | None, now: datetime) -> Applied:
        """Return what runs once an apply has succeeded, and keep its text. Raises `StateDirFailure`."""
        lacks_restart: int | None = None
        if apply.lacks_restart:
            lacks_restart = await self._proxy.process_id() or 0
        elif before is not None and not apply.needs_restart:
            lacks_restart = before.lacks_restart
        return Applied(
            version=apply.task.version,
            hash=apply.content_hash,
            file_hash=apply.candidate,
            secrets=apply.secrets,
            applied=now,
            lacks_restart=lacks_restart,
        )

    async def keep_text(self, apply: Apply) -> None:
        """Keep the text that was applied, to compare the file with it, and to put it back.

        Someone may have changed the file since it was written. After a restart of the agent only the file has it.
        """
        text = (await self._proxy.read()).text if self._prepared is None else self._prepared.text
        if text is not None and text_hash(text) == apply.candidate:
            await self._state_dir.save_applied(text)

    async def file_hash(self) -> str:
        """Return the hash of the file as it is."""
        return _hash_of(await self._proxy.read())

    async def put_back(self, applied: Applied) -> bool:
        """Restore the file and the secrets of the applied version if the file is missing.

        Returns whether it was. Raises `ProxyFailure` and `StateDirFailure`.
        """
        await self._state_dir.use_secrets(applied.secrets)
        file = await self._proxy.read()
        if file.text is not None or file.problem:
            return False
        text = await self._state_dir.load_applied()
        if text is None or text_hash(text) != applied.file_hash:
            return False
        await self._proxy.restore(text)
        await self._reload()
        return True

    async def health_problem(self) -> str:
        """Check the health once, and return why it is bad; empty if it is good."""
        try:
            await self._proxy.check_health()
        except ProxyFailure as failure:
            return failure.message
        return ""

    async def observe(self, applied: Applied | None) -> Observation:
        """Look at the file."""
        file = await self._proxy.read()
        found = _hash_of(file)
        differences: tuple[str, ...] = ()
        if applied is not None and file.text is not None and found != applied.file_hash:
            differences = await self._differences(applied, file.text, found)
        return Observation(
            path=self.path,
            file_hash=found,
            file_problem=file.problem,
            modified=file.modified,
            differences=differences,
        )

    async def process_id(self) -> int | None:
        """Return the id of the proxy's process; None if it does not run."""
        return await self._proxy.process_id()

    async def stop(self, timeout: timedelta) -> None:
        """Stop the proxy. Raises `ProxyFailure`."""
        await self._proxy.stop(timeout)

    @property
    def _ready(self) -> _Prepared:
        if self._prepared is None:
            raise ActionFailed("the content is not there any more")
        return self._prepared

    async def _render(self, task: Task, state: AgentState) -> applying.Rendered:
        content = self._content
        if content is None:
            raise ActionFailed("the content is not there any more")
        actual = hashlib.sha256(content.content.encode()).hexdigest()
        for expected in (task.hash, content.hash):
            if expected and expected != actual:
                raise ActionFailed(f"hash mismatch: expected {expected}, got {actual}")
        prepared = self._prepared = await self._prepare(content)
        file = await self._proxy.read()
        candidate, previous = text_hash(prepared.text), _hash_of(file)
        applied = state.applied
        is_running = (
            applied is not None
            and not state.restore_failure
            and candidate == applied.file_hash
            and prepared.files == applied.secrets
            and (task.may_be_applied or previous == candidate)
        )
        return applying.Rendered(
            hash=candidate,
            content_hash=actual,
            secrets=dict(prepared.files),
            previous=previous,
            is_running=is_running,
            needs_restart=not is_running and await self._needs_restart(applied, file, prepared.text),
            can_restart=self._proxy.can_restart,
        )

    async def _prepare(self, content: Content) -> _Prepared:
        text = content.content
        references = await _off_loop(text, partial(_references, text))
        if references is None:
            return _Prepared(text=text, test_text=text, files={})
        found = await self._secrets.find(references, content.secrets)
        files = await self._state_dir.put_secrets(found.values)
        stable = {reference: self._state_dir.stable_path(reference) for reference in files}
        return _Prepared(
            text=_text(await _off_loop(text, partial(render, text, {**found.paths, **stable}))),
            test_text=_text(await _off_loop(text, partial(render, text, {**found.paths, **files}))),
            files=files,
        )

    async def _needs_restart(self, applied: Applied | None, file: ConfigFile, text: str) -> bool:
        """Whether the proxy has to be restarted for a text. A file changed by hand may not run."""
        runs = file.text
        if applied is not None and _hash_of(file) != applied.file_hash:
            runs = await self._state_dir.load_applied() or runs
        if runs is None or runs == text:
            return False
        return await _off_loop(text, partial(_is_restart_needed, runs, text))

    async def _reload(self) -> None:
        try:
            await self._proxy.reload()
        except ProxyFailure:
            if not self._proxy.can_restart or await self._proxy.process_id() is not None:
                raise
            await self._proxy.restart()  # it does not run

    async def _restore(self, state: AgentState, apply: Apply) -> None:
        if state.applied is not None:
            await self._state_dir.use_secrets(state.applied.secrets)
        if await self.file_hash() == apply.previous:
            return
        if not apply.previous:
            await self._proxy.restore(None)
            return
        for text in (await self._proxy.read_copy(), await self._state_dir.load_applied()):
            if text is not None and text_hash(text) == apply.previous:
                await self._proxy.restore(text)
                return
        raise ProxyFailure(f"there is no copy of {self.path}")

    async def _differences(self, applied: Applied, text: str, found: str) -> tuple[str, ...]:
        if self._compared[:2] != (applied.file_hash, found):
            before = await self._state_dir.load_applied()
            if before is None or text_hash(before) != applied.file_hash:
                return ()  # it could not be kept; it may be when the version is applied once more
            differences = await _off_loop(text, partial(_changes, before, text))
            self._compared = (applied.file_hash, found, differences)
        return self._compared[2]


def text_hash(text: str) -> str:
    """Return the hash of a file's text, whatever its bytes are."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _hash_of(file: ConfigFile) -> str:
    return "" if file.text is None else text_hash(file.text)


def _text(rendered: Rendered) -> str:
    if rendered.text is None:
        problems = "; ".join(f"{each.line}:{each.column}: {each.message}" for each in rendered.problems)
        raise ActionFailed(f"the secrets cannot be filled in: {problems}")
    return rendered.text


def _references(text: str) -> Sequence[Reference] | None:
    """Return the secrets that a text names; None if there is nothing to fill in.

    In a text that is not valid, nobody can find any. The proxy says what is wrong, in its own words.
    """
    parsed = kdl.parse(text)
    if parsed.problems or not any(secret_uses(parsed.document)):
        return None
    return [each.reference for each in needed_secrets(parsed.document)]


def _is_restart_needed(before: str, after: str) -> bool:
    old, new = kdl.parse(before), kdl.parse(after)
    return not (old.is_valid and new.is_valid) or needs_restart(changed_blocks(old.document, new.document))


def _changes(before: str, after: str) -> tuple[str, ...]:
    """Name the blocks that are different, a bounded number of them."""
    parsed = kdl.parse(after)
    if not parsed.is_valid:
        return ("it is not valid KDL",)
    changes = changed_blocks(kdl.parse(before).document, parsed.document)
    named = [each.block if each.id is None else f'{each.block} "{each.id}"' for each in changes]
    more = [f"and {len(named) - _MAX_DIFFERENCES} more"] if len(named) > _MAX_DIFFERENCES else []
    return (*named[:_MAX_DIFFERENCES], *more)


async def _off_loop(text: str, function: Callable[[], T]) -> T:
    """Call a function; for a large text, in a thread."""
    return await run_in_thread(function, name="configuration") if len(text) > _LARGE else function()

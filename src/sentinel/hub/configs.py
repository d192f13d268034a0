"""Use cases of configurations. A version never changes; saving one changes nothing that runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sentinel.core.counted import counted
from sentinel.core.hub.versions import VersionName, content_hash, is_config_id
from sentinel.core.ids import MAX_ID_LENGTH
from sentinel.core.proxy.check import Report
from sentinel.core.proxy.difference import Difference
from sentinel.core.proxy.problem import Severity
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.schemas import RefusedText, VersionDocument
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import (
    Config,
    ConfigTaken,
    ConfigVersion,
    HubEventType,
    HubStore,
    HubTransaction,
)
from sentinel.web import etag
from sentinel.web.audit import Auditor
from sentinel.web.errors import Conflict, Invalid, NotFound, Unprocessable
from sentinel.web.etag import Precondition
from sentinel.web.problem import FieldError, shown
from sentinel.web.routing import Caller

KIND: Final = "config"
"""The kind of configurations in the audit."""
MAX_SUMMARY_LENGTH: Final = 1_000

_RESERVED: Final = frozenset(("validate",))
"""Names that are routes."""

_encode = msgspec.json.Encoder().encode


class NewVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants to save: a text, or a copy of an earlier version."""

    content: str | None = None
    copy_of: int | None = None
    change_summary: str = ""


class ConfigSummary(msgspec.Struct, frozen=True):
    """A configuration, and how many instances have one of its versions assigned."""

    config: Config
    assigned: int


class Configs:
    """Saves, reads, compares and deletes configurations."""

    def __init__(self, *, store: HubStore, checker: ConfigChecker, clock: Clock, auditor: Auditor) -> None:
        self._store = store
        self._checker = checker
        self._clock = clock
        self._auditor = auditor

    async def find(self, *, after: str, limit: int) -> tuple[Sequence[ConfigSummary], int]:
        """Return configurations in the order of their ids, and how many there are."""
        found = await self._store.configs(after=after, limit=limit)
        assigned = await self._store.assigned_counts([config.id for config in found])
        return [ConfigSummary(each, assigned.get(each.id, 0)) for each in found], await self._store.count_configs()

    async def get(self, config_id: str) -> ConfigSummary:
        """Raises `NotFound`."""
        config = await self._store.config(config_id)
        if config is None:
            raise _no_config(config_id)
        return ConfigSummary(config, (await self._store.assigned_counts([config_id])).get(config_id, 0))

    async def versions(self, config_id: str, *, before: int | None, limit: int) -> Sequence[ConfigVersion]:
        """Return versions, newest first, without their contents. Raises `NotFound`."""
        await self.get(config_id)
        return await self._store.versions(config_id, before=before, limit=limit)

    async def version(self, config_id: str, number: int) -> ConfigVersion:
        """Raises `NotFound`."""
        found = await self._store.version(VersionName(config_id, number))
        if found is None:
            raise _no_version(config_id, number)
        return found

    async def create(self, caller: Caller, config_id: str, new: NewVersion) -> ConfigVersion:
        """Create a configuration with its first version. Raises `Invalid`, `Unprocessable`, `Conflict`."""
        errors = tuple(_errors(new, config_id))
        if errors:
            raise Invalid(errors)
        now = self._clock.now()
        content = new.content or ""
        version = await self._checked(config_id, 1, content, new.change_summary, caller)
        config = Config(
            id=config_id,
            latest_version=1,
            created_time=now,
            created_by=caller.identity.name,
            updated_time=now,
        )

        def work(transaction: HubTransaction) -> None:
            transaction.add_config(config)
            self._add(transaction, caller, "create", version)

        try:
            await self._store.transact(work)
        except ConfigTaken:
            raise Conflict(f"there is a configuration {shown(config_id)} already") from None
        return version

    async def add_version(
        self, caller: Caller, config_id: str, new: NewVersion, *, if_match: Precondition | None
    ) -> ConfigVersion:
        """Add a version. Raises `Invalid`, `Unprocessable`, `NotFound`, `PreconditionFailed`."""
        errors = tuple(_errors(new))
        if errors:
            raise Invalid(errors)
        latest = (await self.get(config_id)).config.latest_version
        content = new.content
        if content is None:
            content = (await self._copied(config_id, new.copy_of)).content
        before = await self._store.version(VersionName(config_id, latest))
        version = await self._checked(
            config_id,
            latest + 1,
            content,
            new.change_summary,
            caller,
            before=None if before is None else before.content,
        )

        def work(transaction: HubTransaction) -> ConfigVersion:
            config = transaction.config(config_id)
            if config is None:
                raise _no_config(config_id)
            etag.require_match(if_match, version=config.latest_version, name=f"the configuration {config_id}")
            # Another version may have been added meanwhile. It is the one before this one then.
            added = msgspec.structs.replace(version, version=config.latest_version + 1)
            transaction.save_config(
                msgspec.structs.replace(config, latest_version=added.version, updated_time=version.created_time)
            )
            self._add(transaction, caller, "update", added)
            return added

        return await self._store.transact(work)

    async def remove(self, caller: Caller, config_id: str) -> None:
        """Delete a configuration with all its versions. Raises `NotFound`, `Conflict`."""
        now = self._clock.now()

        def work(transaction: HubTransaction) -> None:
            if transaction.config(config_id) is None:
                raise _no_config(config_id)
            assigned = transaction.count_assigned(config_id)
            if assigned:
                raise Conflict(
                    f"the configuration {shown(config_id)} is assigned to {counted(assigned, 'instance')}"
                )
            # After that look: what a deployment brings back is assigned before the deployment is over.
            if transaction.is_deploying(config_id):
                raise Conflict(f"the configuration {shown(config_id)} is being deployed")
            transaction.remove_config(config_id)
            transaction.record(
                self._auditor.entry(caller, action="delete", kind=KIND, resource_id=config_id, now=now, detail="")
            )

        await self._store.transact(work)

    async def compare(self, config_id: str, number: int, *, base: int | None) -> Difference:
        """Compare a version with another, by default the one before. Raises `NotFound`."""
        after = await self.version(config_id, number)
        if base is None:
            base = number - 1
        before = "" if base == 0 else (await self.version(config_id, base)).content
        return await self._checker.compare(
            before,
            after.content,
            before_name=str(VersionName(config_id, base)) if base else "/dev/null",
            after_name=str(VersionName(config_id, number)),
        )

    async def check(self, content: str) -> Report:
        """Check a text without storing it."""
        return await self._checker.check(content)

    async def _copied(self, config_id: str, number: int | None) -> ConfigVersion:
        found = None if number is None else await self._store.version(VersionName(config_id, number))
        if found is None:
            detail = f"copy_of: expected a version of the configuration {shown(config_id)}, got {number}"
            raise Unprocessable(detail, errors=(FieldError("copy_of", "expected an existing version"),))
        return found

    async def _checked(
        self, config_id: str, number: int, content: str, summary: str, caller: Caller, *, before: str | None = None
    ) -> ConfigVersion:
        """Return the version if its text can be stored. Raises `Unprocessable`."""
        checked = await self._checker.check_schema(content)
        if not checked.report.is_valid:
            errors = [RefusedText.of(each) for each in checked.report.problems if each.severity is Severity.ERROR]
            raise Unprocessable(
                f"the configuration has {counted(len(errors), 'error')}; nothing was stored", errors=errors
            )
        restart_required = False
        if before is not None:
            compared = await self._checker.compare(before, content, before_name="before", after_name="after")
            restart_required = compared.restart_required
        return ConfigVersion(
            config_id=config_id,
            version=number,
            hash=content_hash(content),
            content=content,
            change_summary=summary,
            restart_required=restart_required,
            secrets=checked.secrets,
            warnings=tuple(_encode(each) for each in checked.report.problems),
            created_time=self._clock.now(),
            created_by=caller.identity.name,
        )

    def _add(self, transaction: HubTransaction, caller: Caller, action: str, version: ConfigVersion) -> None:
        name = VersionName(version.config_id, version.version)
        transaction.add_version(version)
        transaction.record(
            self._auditor.entry(
                caller,
                action=action,
                kind=KIND,
                resource_id=version.config_id,
                now=version.created_time,
                detail=str(name),
            )
        )
        transaction.append_event(
            HubEventType.CONFIG_VERSION,
            str(name),
            _encode(VersionDocument.of(version, has_content=False)),
            version.created_time,
        )


def _errors(new: NewVersion, config_id: str | None = None) -> Iterator[FieldError]:
    if config_id is not None and not is_config_id(config_id):
        expected = f"letters, digits and ._~- only, at most {MAX_ID_LENGTH}, such as edge"
        yield FieldError("id", f"expected {expected}, got {shown(config_id)}")
    elif config_id in _RESERVED:
        yield FieldError("id", f"expected another id, because configs/{config_id} is a route of the API")
    if config_id is not None and new.content is None:
        yield FieldError("content", "expected the text of the configuration")
    if config_id is None and (new.content is None) == (new.copy_of is None):
        yield FieldError("content", "expected either content or copy_of")
    if len(new.change_summary) > MAX_SUMMARY_LENGTH:
        yield FieldError("change_summary", f"expected at most {MAX_SUMMARY_LENGTH} characters")


def _no_config(config_id: str) -> NotFound:
    return NotFound(f"there is no configuration {shown(config_id)}")


def _no_version(config_id: str, number: int) -> NotFound:
    return NotFound(f"there is no version {number} of the configuration {shown(config_id)}")

"""How agents come, stay and go: register, heartbeat, deregister.

A heartbeat only changes memory, unless it changes the state of the instance. All other changes are transactions,
after which the instance is read again, so that the next call of the agent finds it as it was stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from sentinel.core.access import Identity, Role
from sentinel.core.hub import sync as syncing
from sentinel.core.hub.instance import (
    Command,
    Deregistered,
    Heartbeat,
    Instance,
    Registered,
    StateChanged,
    Timeouts,
    advance,
)
from sentinel.core.hub.metrics_samples import Sample, admit_buffered
from sentinel.core.hub.sync import Action, Assignment, pending_actions
from sentinel.hub import instance_changes
from sentinel.hub.agent_reports import HeartbeatReport, Registration, clean
from sentinel.hub.deployments import Deployments
from sentinel.hub.event_feed import EventFeed
from sentinel.hub.observer import HubObserver
from sentinel.hub.refusals import denied, precondition, unauthenticated, unavailable
from sentinel.hub.registrants import Registrant, Registrants
from sentinel.hub.registry import KnownInstance, Registry, session_key, with_reports
from sentinel.hub.sessions import AgentCall, Session, Sessions
from sentinel.ports.audit import AuditEntry
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import HubStore, HubTransaction, InstanceRecord, ReportedStatus
from sentinel.web.audit import Auditor
from sentinel.web.routing import Caller

MAX_OUTAGE: Final = timedelta(seconds=10)
"""How long heartbeats are accepted while the log cannot be read: a failover of the database is no reason for
agents to think that they have lost their hub. Another hub may have ended their sessions, so not for longer."""
KIND: Final = "instance"
"""The kind of audit entries about instances."""
_MAX_INT64: Final = 2**63 - 1


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A session that Register has begun."""

    token: str
    expires: datetime
    assignment: Assignment | None


class HeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told in answer to its heartbeat."""

    is_update_available: bool
    assignment: Assignment | None
    actions: Sequence[Action]
    token: str = ""
    """Empty: the present one is still good."""
    token_expires: datetime | None = None


class Agents:
    """The use cases of agents. Every one may raise `CallRefused` and `Unavailable`."""

    def __init__(
        self,
        *,
        hub: str,
        store: HubStore,
        registry: Registry,
        feed: EventFeed,
        sessions: Sessions,
        registrants: Registrants,
        deployments: Deployments,
        timeouts: Timeouts,
        metrics_retention: timedelta,
        clock: Clock,
        observer: HubObserver,
        auditor: Auditor,
    ) -> None:
        """`hub` is the id of this process."""
        self._hub = hub
        self._store = store
        self._registry = registry
        self._feed = feed
        self._sessions = sessions
        self._registrants = registrants
        self._deployments = deployments
        self._timeouts = timeouts
        self._metrics_retention = metrics_retention
        self._clock = clock
        self._observer = observer
        self._auditor = auditor

    @property
    def heartbeat_interval(self) -> timedelta:
        return self._timeouts.heartbeat_interval

    async def register(self, call: AgentCall, registration: Registration) -> Begun:
        """Begin a session, which ends the one before."""
        registration.check()
        registrant = await self._registrants.identify(call)
        now = self._clock.now()
        entry = self._entry(call, registrant.identity, "register", now, registrant.owner)

        def work(transaction: HubTransaction) -> tuple[InstanceRecord, Sequence[StateChanged]]:
            before = transaction.instance(registration.instance_id)
            life, commands = advance(
                Instance() if before is None else before.life, Registered(), now, self._timeouts
            )
            instance = self._registered(registration, registrant, before, life)
            if instance_changes.refusal(commands) is not None:
                raise precondition("the instance is draining; it can register again once it is removed")
            if before is None or before.life.incarnation != life.incarnation:
                transaction.record(entry)
                instance = _with_offer(transaction, instance, now)
            return instance, instance_changes.save(transaction, instance, commands, now)

        instance, changes = await self._store.transact(work)
        token, claims = await self._sessions.issue(instance.id, instance.life)
        known = await self._registry.refresh(instance.id)
        if known is not None and known.session == session_key(instance.life):
            known.session_expires, known.heard_time, known.told = claims.expires, now, instance.sync.assignment
        self._observer.registered(
            instance.id,
            owner=registrant.owner,
            incarnation=instance.life.incarnation,
            session=instance.life.session,
            agent_version=instance.agent_version,
        )
        self._observe(instance.id, changes)
        return Begun(token=token, expires=claims.expires, assignment=instance.sync.assignment)

    async def heartbeat(self, call: AgentCall, report: HeartbeatReport) -> HeartbeatResponse:
        """Take note of what an agent reports, and tell it what to do."""
        session = await self._sessions.authenticate(call)
        known, now = session.known, self._clock.now()
        with self._sessions.counted(session):
            commands = self._note(known, report, now)
            if instance_changes.has_changed_state(commands):
                await self._change(session, Heartbeat(report.health, report.message), now)
            self._check_outage(now)
            step = await self._deployments.step(known.record)
            renewed = await self._sessions.renew(session)
        record = known.record
        actions = pending_actions(record.life, record.sync, step)
        if actions:
            known.told = record.sync.assignment
        self._observer.heartbeat()
        return HeartbeatResponse(
            is_update_available=record.sync.has_update,
            assignment=record.sync.assignment,
            actions=actions,
            token="" if renewed is None else renewed[0],
            token_expires=None if renewed is None else renewed[1].expires,
        )

    async def deregister(self, call: AgentCall, reason: str) -> None:
        """Let an instance leave: drain it, or, if it was draining already, remove it."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            now, event = self._clock.now(), Deregistered(clean(reason))
            identity = Identity(call.instance_id, Role.AGENT, instance=call.instance_id)
            await self._change(session, event, now, self._entry(call, identity, "deregister", now, event.reason))

    def _note(self, known: KnownInstance, report: HeartbeatReport, now: datetime) -> Sequence[Command]:
        """Remember a heartbeat. Returns what it changes, which is to be stored."""
        before = known.record
        life, commands = advance(before.life, Heartbeat(report.health, report.message), now, self._timeouts)
        samples = self._samples(before.status, report, now)
        status = ReportedStatus(
            version=report.running_version,
            uptime_seconds=before.status.uptime_seconds,
            active_connections=before.status.active_connections,
            metrics=samples[-1] if samples else before.status.metrics,
        )
        if report.status is not None:
            status = msgspec.structs.replace(
                status,
                uptime_seconds=min(max(report.status.uptime_seconds, 0), _MAX_INT64),
                active_connections=max(report.status.active_connections, 0),
            )
        heard = msgspec.structs.replace(
            before,
            life=msgspec.structs.replace(before.life, last_seen=life.last_seen, message=life.message),
            status=status,
            sync=syncing.report(before.sync, report.running_hash, now),
        )
        is_urgent = (before.sync.reported_hash, before.status.version, before.life.message) != (
            heard.sync.reported_hash,
            heard.status.version,
            heard.life.message,
        )
        self._registry.report(known, heard, samples, is_urgent=is_urgent)
        return commands

    def _samples(self, before: ReportedStatus, report: HeartbeatReport, now: datetime) -> Sequence[Sample]:
        latest = None if before.metrics is None else before.metrics.time
        samples = [*admit_buffered(report.buffered, latest=latest, now=now, retention=self._metrics_retention)]
        if report.metrics is not None and report.metrics.is_plausible:
            samples.append(Sample(now, report.metrics))
        return samples

    def _check_outage(self, now: datetime) -> None:
        since = self._feed.failing_since
        if since is not None and now - since > MAX_OUTAGE:
            raise unavailable("the database is unavailable")

    async def _change(
        self, session: Session, event: Heartbeat | Deregistered, now: datetime, entry: AuditEntry | None = None
    ) -> None:
        """Store what an event of the agent changes, with an entry of the audit."""
        known, claims = session.known, session.claims
        heard = known.record

        def work(transaction: HubTransaction) -> Sequence[StateChanged]:
            stored = transaction.instance(known.id)
            if stored is None or session_key(stored.life) != (claims.incarnation, claims.session):
                raise unauthenticated("the session has ended")
            before = with_reports(stored, heard)
            life, commands = advance(before.life, event, now, self._timeouts)
            if instance_changes.refusal(commands) is not None:
                raise precondition("the instance was removed")
            if not instance_changes.has_changed_state(commands):
                return ()
            if entry is not None:
                transaction.record(entry)
            return instance_changes.save(transaction, instance_changes.with_life(before, life), commands, now)

        changes = await self._store.transact(work)
        await self._registry.refresh(known.id)
        self._observe(known.id, changes)

    def _registered(
        self, registration: Registration, registrant: Registrant, before: InstanceRecord | None, life: Instance
    ) -> InstanceRecord:
        """Return the instance as it is after Register. Raises `CallRefused` if it belongs to someone else."""
        is_new = before is None or before.life.incarnation != life.incarnation
        if before is not None and not is_new and not registrant.may_take(before.owner):
            raise denied("the instance belongs to another registration token or certificate")
        instance = InstanceRecord(
            id=registration.instance_id,
            life=life,
            hub=self._hub,
            owner=registrant.owner,
            name=registration.name,
            hostname=registration.hostname,
            labels=dict(registration.labels),
            capabilities=tuple(registration.capabilities),
            agent_version=registration.agent_version,
            sentinel_version=registration.sentinel_version,
        )
        if before is None or is_new:
            return instance
        return msgspec.structs.replace(
            instance, owner=registrant.owner or before.owner, status=before.status, sync=before.sync
        )

    def _entry(self, call: AgentCall, identity: Identity, action: str, now: datetime, detail: str) -> AuditEntry:
        caller = Caller(identity, call.address, "")
        return self._auditor.entry(
            caller, action=action, kind=KIND, resource_id=call.instance_id, now=now, detail=detail
        )

    def _observe(self, instance_id: str, changes: Sequence[StateChanged]) -> None:
        for change in changes:
            self._observer.state_changed(instance_id, change)


def _with_offer(transaction: HubTransaction, instance: InstanceRecord, now: datetime) -> InstanceRecord:
    """Return a new instance with the version of the newest completed deployment whose selector matches it, if any.

    This happens once, at its first Register: deployments that complete later do not change it.
    """
    matching = (each for each in transaction.offers() if each.selector.matches(instance.labels))
    offer = next(matching, None)
    if offer is None or not transaction.keep_config(offer.version.name.config_id):
        return instance
    version = transaction.version(offer.version.name)
    if version is None or version.hash != offer.version.hash:
        return instance  # it was deleted, and another one has its name
    transaction.note_assigned(instance.id, instance.life.incarnation, offer.version.name)
    assignment = Assignment(offer.version.name, offer.version.hash, now)
    return msgspec.structs.replace(instance, sync=syncing.assign(instance.sync, assignment, now))

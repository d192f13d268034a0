"""A transaction of the hub on SQL.

Instances and configurations are locked when they are read. Events are inserted at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from sentinel.core.hub import secret_names
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.sql.engine.statements import Session, SqlValue
from sentinel.drivers.sql.hub import event_log, rows, statements
from sentinel.drivers.sql.hub.rollouts import SqlRolloutTransaction
from sentinel.drivers.sql.hub.tables import CONFIG_CONSTRAINT, INSTANCE_CONSTRAINT, VERSION_CONSTRAINT
from sentinel.ports.database import AlreadyExists
from sentinel.ports.hub_store import (
    Config,
    ConfigTaken,
    ConfigVersion,
    HubEvent,
    HubEventType,
    InstanceRecord,
    VersionTaken,
)


class RegisteredMeanwhile(AlreadyExists):
    """Another transaction has stored this new instance. The work has to run again, and then finds it.

    What does not exist cannot be locked.
    """


class SqlHubTransaction(SqlRolloutTransaction):
    """`ports.hub_store.HubTransaction` in a SQL database."""

    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {
        INSTANCE_CONSTRAINT: RegisteredMeanwhile,
        CONFIG_CONSTRAINT: ConfigTaken,
        VERSION_CONSTRAINT: VersionTaken,
    }

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._stored_instances: dict[str, bool] = {}
        """Whether each instance that was read is stored."""
        self._locked_configs: set[str] = set()
        self._events: list[HubEvent] = []

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def instance(self, instance_id: str) -> InstanceRecord | None:
        found = self._rows(statements.LOCK_INSTANCE, id=instance_id)
        self._stored_instances[instance_id] = bool(found)
        return rows.to_instance(found[0]) if found else None

    def save_instance(self, instance: InstanceRecord) -> None:
        self._require_open()
        is_stored = self._stored_instances.get(instance.id)
        if is_stored is None:
            raise RuntimeError(f"the instance {instance.id} was not read in this transaction")
        values = rows.instance_values(instance)
        if is_stored:
            self._run(statements.SAVE_INSTANCE, {**values, "of": instance.id})
        else:
            self._run(statements.ADD_INSTANCE, values)
            self._stored_instances[instance.id] = True

    def note_assigned(self, instance_id: str, incarnation: int, version: VersionName) -> None:
        self._run(statements.NOTE_ASSIGNED, rows.assigned_values(instance_id, incarnation, version))

    def config(self, config_id: str) -> Config | None:
        found = self._rows(statements.LOCK_CONFIG, id=config_id)
        self._locked_configs.add(config_id)
        return rows.to_config(found[0]) if found else None

    def add_config(self, config: Config) -> None:
        self._run(statements.ADD_CONFIG, rows.config_values(config))
        self._locked_configs.add(config.id)

    def save_config(self, config: Config) -> None:
        self._require_locked(config.id)
        self._run(statements.SAVE_CONFIG, {**rows.config_values(config), "of": config.id})

    def remove_config(self, config_id: str) -> None:
        self._require_locked(config_id)
        for statement in statements.REMOVE_CONFIG:
            self._run(statement, {"config_id": config_id})

    def keep_config(self, config_id: str) -> bool:
        return bool(self._rows(statements.KEEP_CONFIG, id=config_id))

    def version(self, name: VersionName) -> ConfigVersion | None:
        found = self._rows(statements.VERSION, config_id=name.config_id, number=name.number)
        return rows.to_version(found[0]) if found else None

    def add_version(self, version: ConfigVersion) -> None:
        self._run(statements.ADD_VERSION, rows.version_values(version))
        for secret in secret_names.names(version.secrets):
            self._run(statements.ADD_SECRET_USE, rows.secret_use_values(secret, version))

    def count_assigned(self, config_id: str) -> int:
        found = self._rows(statements.ASSIGNED_COUNTS, ids=rows.json_texts([config_id]))
        return int(found[0][1]) if found else 0

    def append_event(self, event_type: HubEventType, subject: str, data: bytes, time: datetime) -> None:
        self._require_open()
        self._events.append(HubEvent(number=0, time=time, type=event_type, subject=subject, data=data))

    def _before_commit(self) -> None:
        super()._before_commit()
        for event in self._events:
            values: Mapping[str, SqlValue] = event_log.values(event)
            self._run(event_log.APPEND, values)

    def _require_locked(self, config_id: str) -> None:
        self._require_open()
        if config_id not in self._locked_configs:
            raise RuntimeError(f"the configuration {config_id} was not read in this transaction")

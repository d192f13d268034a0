"""An observer that posts a summary of each drift to a URL.

Best effort: it never delays a trigger. Reports wait in a bounded queue; if the server does not take them, the
oldest are dropped and counted. The URL may contain a secret, such as the token of a chat, so it is never logged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Final

from sentinel.core.drift.judgement import Judgement
from sentinel.core.drift.schedule import Acknowledged
from sentinel.core.json import Json
from sentinel.core.times import timestamp
from sentinel.drift.settings import ClusterIdentity
from sentinel.drift.sidecar.report import ConflictFound, Judged, Triggered, TriggerFailed
from sentinel.ports.clock import Clock
from sentinel.ports.task_http import HttpClient, HttpFailure, redact_url
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.secrets import Secret
from sentinel.runtime.send_queue import SendFailure, SendQueue
from sentinel.runtime.workqueue import is_cancelled

MAX_WAITING: Final = 100
MAX_CHANGES: Final = 50
"""How many changes a report lists. `counts` has all."""
ATTEMPTS: Final = 5
_BACKOFF: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=30), jitter=0.2)
_TIMEOUT: Final = timedelta(seconds=10)
_FLUSH_TIMEOUT: Final = timedelta(seconds=2)


class Webhook:
    """Posts JSON to one URL."""

    def __init__(
        self,
        *,
        http: HttpClient,
        url: Secret,
        cluster: ClusterIdentity,
        clock: Clock,
        log: Log,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._http = http
        self._url = url
        self._cluster: Json = {"namespace": cluster.namespace, "name": cluster.name}
        self._clock = clock
        self._log = log
        self._queue = SendQueue[Json](
            self._attempt,
            on_drop=lambda report, error: self._drop(1, error),
            max_waiting=MAX_WAITING,
            attempts=ATTEMPTS,
            backoff=_BACKOFF,
            jitter=jitter,
            clock=clock,
        )
        self.dropped = 0
        """How many reports were lost."""

    def judged(self, report: Judged) -> None:
        if report.judgement.is_drift:
            fields = _describe(report.judgement)
            self._post("drift.detected", **fields, mode=report.mode.value, maintenance=report.is_maintenance)

    def triggered(self, report: Triggered) -> None:
        """Post nothing: it follows from the drift."""

    def trigger_failed(self, report: TriggerFailed) -> None:
        """Post nothing: it may happen every second. Metrics and readiness show it."""

    def acknowledged(self, report: Acknowledged) -> None:
        burst = report.batch.burst
        self._post("drift.corrected", resources=[name for name in burst.objects if name])

    def outstanding_changed(self, has_outstanding: bool) -> None:
        """Post nothing: the annotation itself shows it."""

    def conflict_found(self, report: ConflictFound) -> None:
        conflict = report.conflict
        manager = report.judgement.actor.manager
        self._post(
            "drift.conflict",
            summary=f"conflict with manager {manager or 'unknown'}",
            resource=conflict.field.resource,
            path=conflict.field.path,
            corrections=conflict.corrections,
            manager=manager,
        )

    def relisted(self) -> None:
        """Post nothing."""

    async def run(self, stopping: Stopping) -> None:
        """Send reports until stopped, then those that are left, each once."""
        await stopping.interrupts(self._queue.send_all())
        dropped = await self._queue.flush(_FLUSH_TIMEOUT)
        if dropped:
            self._drop(dropped, "no time left to send them")

    def _post(self, event: str, **fields: Json) -> None:
        now = timestamp(self._clock.now())
        oldest = self._queue.add({"event": event, "time": now, "cluster": self._cluster, **fields})
        if oldest is not None:
            self._drop(1, "too many reports are waiting")

    async def _attempt(self, report: Json) -> SendFailure | None:
        """Post a report. Returns why it failed."""
        try:
            response = await self._http.post(self._url.reveal(), json=report, timeout=_TIMEOUT)
        except HttpFailure as error:
            # The error names the URL without its query, but the path may be a secret, too.
            url = self._url.reveal()
            hidden = str(error).replace(url, str(self._url)).replace(redact_url(url), str(self._url))
            return SendFailure(hidden, is_final=False)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return SendFailure(type(error).__name__, is_final=True)
        if response.is_success:
            return None
        is_retryable = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status in (
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.TOO_MANY_REQUESTS,
        )
        return SendFailure(f"the server responded {response.status}", is_final=not is_retryable)

    def _drop(self, reports: int, error: BaseException | str) -> None:
        self.dropped += reports
        self._log.warning("webhook.dropped", reports=reports, error=error)


def _describe(judgement: Judgement) -> dict[str, Json]:
    return {
        "summary": judgement.summary,
        "resource": judgement.resource,
        "reason": judgement.reason.value,
        "rule": judgement.rule,
        "counts": {"added": judgement.added, "changed": judgement.changed, "removed": judgement.removed},
        # Paths only: a value may be a secret, also outside of ConfigMaps.
        "changes": [{"path": each.path, "op": each.op.value} for each in judgement.changes[:MAX_CHANGES]],
        "actor": judgement.actor.encode(),
    }

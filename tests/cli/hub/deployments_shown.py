"""Deployments that tests of their progress show: moved by the core, seen through their documents."""

from __future__ import annotations

from sentinel.cli.hub.deployment_progress import Progress
from sentinel.core.hub.deployment import Request
from sentinel.hub import deployment_documents
from sentinel.ports.rollout_store import DeploymentRecord
from tests.core.hub.rollout_driver import Driver


def progress(driver: Driver, asked: Request) -> Progress:
    """Return what a client knows of the rollout now."""
    rollout = driver.rollout
    record = DeploymentRecord(
        request=asked,
        created_by="ada",
        rollout=rollout,
        batches=len(rollout.batches),
        counts=rollout.counts,
    )
    rows = {name: deployment_documents.row_document(row, rollout.to) for name, row in rollout.rows.items()}
    return Progress(deployment=deployment_documents.document(record), rows=rows)

"""Why a call of an agent is refused. The gRPC server turns each reason into the status of the same name."""

from __future__ import annotations

from enum import StrEnum


class RefusalReason(StrEnum):
    """What an agent can do about a refusal depends on it."""

    INVALID_ARGUMENT = "invalid argument"
    """An empty or invalid field. The same call never succeeds."""
    UNAUTHENTICATED = "unauthenticated"
    """No valid token or certificate, or the session has ended: register again."""
    PERMISSION_DENIED = "permission denied"
    """It belongs to someone else."""
    NOT_FOUND = "not found"
    """Nothing is assigned, or there is no such deployment."""
    FAILED_PRECONDITION = "failed precondition"
    """The instance was removed, or is draining."""
    RESOURCE_EXHAUSTED = "resource exhausted"
    """Too much at once: try again later."""
    ABORTED = "aborted"
    """Another stream of the same instance has replaced this one."""
    UNAVAILABLE = "unavailable"
    """The database is unavailable, or the hub shuts down: try again."""
    INTERNAL = "internal"
    """A bug of the hub."""


class CallRefused(Exception):
    """A call is refused. Raised inside a transaction, it rolls that back. The text goes to the agent."""

    def __init__(self, reason: RefusalReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def invalid(text: str) -> CallRefused:
    return CallRefused(RefusalReason.INVALID_ARGUMENT, text)


def unauthenticated(text: str) -> CallRefused:
    return CallRefused(RefusalReason.UNAUTHENTICATED, text)


def denied(text: str) -> CallRefused:
    return CallRefused(RefusalReason.PERMISSION_DENIED, text)


def not_found(text: str) -> CallRefused:
    return CallRefused(RefusalReason.NOT_FOUND, text)


def precondition(text: str) -> CallRefused:
    return CallRefused(RefusalReason.FAILED_PRECONDITION, text)


def exhausted(text: str) -> CallRefused:
    return CallRefused(RefusalReason.RESOURCE_EXHAUSTED, text)


def unavailable(text: str) -> CallRefused:
    return CallRefused(RefusalReason.UNAVAILABLE, text)

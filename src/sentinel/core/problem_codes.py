"""The error codes of `application/problem+json`.

Servers write them and clients compare them, so they never change. Where the public HyperFleet API has a code, it
is the same one, because adapters written for that API compare it.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """The machine-readable error code of a response."""

    INVALID = "HYPERFLEET-VAL-000"
    UNPROCESSABLE = "HYPERFLEET-VAL-002"
    MALFORMED = "HYPERFLEET-VAL-003"
    UNSUPPORTED_MEDIA_TYPE = "HYPERFLEET-VAL-005"
    METHOD_NOT_ALLOWED = "HYPERFLEET-VAL-006"
    NO_CREDENTIALS = "HYPERFLEET-AUT-001"
    WRONG_CREDENTIALS = "HYPERFLEET-AUT-002"
    NOT_PERMITTED = "HYPERFLEET-AUZ-001"
    FOREIGN = "HYPERFLEET-AUZ-002"
    """The request has the Origin or the Host of another server."""
    NO_ROUTE = "HYPERFLEET-NTF-000"
    """The URL is wrong. Adapters treat this as a misconfiguration."""
    NOT_FOUND = "HYPERFLEET-NTF-001"
    """The resource does not exist. Adapters treat it as deleted."""
    GONE = "HYPERFLEET-NTF-002"
    """A stream cannot go on after the event that the client names. Clients begin again."""
    CONFLICT = "HYPERFLEET-CNF-001"
    PRECONDITION_FAILED = "HYPERFLEET-CNF-002"
    BODY_TOO_SLOW = "HYPERFLEET-LMT-001"
    TOO_LARGE = "HYPERFLEET-LMT-002"
    TOO_MANY_REQUESTS = "HYPERFLEET-LMT-003"
    INTERNAL = "HYPERFLEET-INT-001"
    UNAVAILABLE = "HYPERFLEET-SVC-001"
    TOO_SLOW = "HYPERFLEET-SVC-002"
    OVERLOADED = "HYPERFLEET-SVC-003"

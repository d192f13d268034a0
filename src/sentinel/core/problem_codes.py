"""The codes of problems: what went wrong, for programs.

Servers put them into `application/problem+json`, clients compare them. They never change, and are those of the
public HyperFleet API where it has one, because adapters written for it look at them.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """What went wrong, for programs."""

    INVALID = "HYPERFLEET-VAL-000"
    UNPROCESSABLE = "HYPERFLEET-VAL-002"
    MALFORMED = "HYPERFLEET-VAL-003"
    UNSUPPORTED_MEDIA_TYPE = "HYPERFLEET-VAL-005"
    METHOD_NOT_ALLOWED = "HYPERFLEET-VAL-006"
    NO_CREDENTIALS = "HYPERFLEET-AUT-001"
    WRONG_CREDENTIALS = "HYPERFLEET-AUT-002"
    NOT_PERMITTED = "HYPERFLEET-AUZ-001"
    FOREIGN = "HYPERFLEET-AUZ-002"
    """From a page, or under a name, that is not this server's."""
    NO_ROUTE = "HYPERFLEET-NTF-000"
    """The URL is wrong; adapters treat this as their own misconfiguration."""
    NOT_FOUND = "HYPERFLEET-NTF-001"
    """The resource is not there; adapters treat this as its being gone."""
    CONFLICT = "HYPERFLEET-CNF-001"
    PRECONDITION_FAILED = "HYPERFLEET-CNF-002"
    BODY_TOO_SLOW = "HYPERFLEET-LMT-001"
    TOO_LARGE = "HYPERFLEET-LMT-002"
    INTERNAL = "HYPERFLEET-INT-001"
    UNAVAILABLE = "HYPERFLEET-SVC-001"
    TOO_SLOW = "HYPERFLEET-SVC-002"
    OVERLOADED = "HYPERFLEET-SVC-003"

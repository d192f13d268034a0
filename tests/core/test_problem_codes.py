"""Problem codes are public: programs compare them."""

from __future__ import annotations

import re

from sentinel.core.problem_codes import Code

KNOWN = {
    "INVALID": "HYPERFLEET-VAL-000",
    "UNPROCESSABLE": "HYPERFLEET-VAL-002",
    "MALFORMED": "HYPERFLEET-VAL-003",
    "UNSUPPORTED_MEDIA_TYPE": "HYPERFLEET-VAL-005",
    "METHOD_NOT_ALLOWED": "HYPERFLEET-VAL-006",
    "NO_CREDENTIALS": "HYPERFLEET-AUT-001",
    "WRONG_CREDENTIALS": "HYPERFLEET-AUT-002",
    "NOT_PERMITTED": "HYPERFLEET-AUZ-001",
    "FOREIGN": "HYPERFLEET-AUZ-002",
    "NO_ROUTE": "HYPERFLEET-NTF-000",
    "NOT_FOUND": "HYPERFLEET-NTF-001",
    "CONFLICT": "HYPERFLEET-CNF-001",
    "PRECONDITION_FAILED": "HYPERFLEET-CNF-002",
    "BODY_TOO_SLOW": "HYPERFLEET-LMT-001",
    "TOO_LARGE": "HYPERFLEET-LMT-002",
    "INTERNAL": "HYPERFLEET-INT-001",
    "UNAVAILABLE": "HYPERFLEET-SVC-001",
    "TOO_SLOW": "HYPERFLEET-SVC-002",
    "OVERLOADED": "HYPERFLEET-SVC-003",
}


def test_known_codes_never_change() -> None:
    assert KNOWN.items() <= {code.name: code.value for code in Code}.items()


def test_every_code_has_the_public_format() -> None:
    assert all(re.fullmatch(r"HYPERFLEET-[A-Z]{3}-[0-9]{3}", code) for code in Code)

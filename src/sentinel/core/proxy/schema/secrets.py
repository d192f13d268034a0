"""The syntax of secrets, which is our own.

The proxy reads neither `cert` nor `key`: the agent replaces them by `cert-file` and `key-file`, or in an upstream
by `client-cert` and `client-key`, before the proxy sees the file.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.proxy.schema.row import Entry, Row
from sentinel.core.proxy.schema.types import Pattern

SOURCES: Final = (
    Entry(Pattern("the name of a secret", r"[^\s/#]+", "api-cert"), "secret", is_required=False),
    Entry(
        Pattern("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*", "API_CERT_PATH"),
        "env",
        is_required=False,
    ),
    Entry(
        Pattern(
            "a path and a field such as secret/data/api/tls#key", r"[^\s#]+#[^\s#]+", "secret/data/api/tls#key"
        ),
        "vault",
        is_required=False,
    ),
)


def secret_row(name: str, description: str, *, needs: tuple[str, ...] = ()) -> Row:
    """Return the row of a node whose value comes from exactly one source."""
    return Row(name, description, properties=SOURCES, one_property=True, needs=needs)

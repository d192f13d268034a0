"""Secrets that work, with a text that can be searched for wherever they must not be."""

from __future__ import annotations

import trustme

PLANTED = "pl4nted-hunter2"


def planted_certificate() -> dict[str, str]:
    """Return `api-cert` and `api-key`, with words before them that a PEM file may have."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    parts = {"api-cert": issued.cert_chain_pems[0], "api-key": issued.private_key_pem}
    return {name: f"{PLANTED} {name}\n{part.bytes().decode()}" for name, part in parts.items()}

"""What a table cannot say about a block: rules over several of its nodes."""

from __future__ import annotations

from typing import Final

from sentinel.core import kdl
from sentinel.core.proxy.block import Block
from sentinel.core.proxy.findings import Code, Findings, shown
from sentinel.core.proxy.schema import Schema
from sentinel.core.proxy.schema.routes import PRIORITIES

_HANDLERS: Final = ("upstream", "static-files", "builtin-handler")


def check_route(route: kdl.Node, block: Block, findings: Findings, answering_filters: frozenset[str]) -> None:
    """A route needs a match unless its priority is low, and something that answers."""
    matches = block.node("matches")
    has_match = matches is not None and any(
        node.name in block.row.children["matches"].children for node in matches.children
    )
    if not has_match and not _is_low(block) and (matches is None or not matches.is_damaged):
        findings.error(
            Code.MISSING,
            route if matches is None else matches,
            "expected at least one match in a route whose priority is not low, got none",
            'write matches { path-prefix "/" }, or priority "low"',
        )
    filters = block.node("filters")
    names = () if filters is None else (argument.value for argument in filters.arguments)
    if not any(name in block for name in _HANDLERS) and answering_filters.isdisjoint(names):
        findings.warning(
            Code.NO_HANDLER,
            route,
            "expected upstream, static-files or builtin-handler in a route, got none; the proxy cannot answer",
            "write upstream with the id of an upstream",
        )


def _is_low(block: Block) -> bool:
    priority = block.node("priority")
    if priority is None or not priority.arguments:
        return False
    value = priority.arguments[0].value
    return value == PRIORITIES["low"] or (isinstance(value, str) and value.lower() == "low")


def check_listener(block: Block, findings: Findings) -> None:
    """The proxy reads the certificates of a listener only if its protocol has TLS, and http is the default."""
    tls = block.node("tls")
    if tls is not None and block.text("protocol") == "http":
        findings.warning(
            Code.IGNORED_KEY,
            tls,
            "expected protocol https in a listener with tls, got http; the proxy speaks plain HTTP there",
            'write protocol "https"',
        )


def check_client_auth(block: Block, findings: Findings) -> None:
    """Without a CA the proxy silently asks no client for a certificate."""
    client_auth = block.node("client-auth")
    is_on = client_auth is not None and any(each.value is True for each in client_auth.arguments[:1])
    if is_on and "ca-file" not in block:
        findings.warning(
            Code.IGNORED_VALUE,
            client_auth,
            "expected ca-file where client-auth is #true, got none; the proxy asks no client for a certificate",
            'write ca-file "/path/to/file"',
        )


def check_acme(block: Block, findings: Findings) -> None:
    """A wildcard domain needs the DNS challenge."""
    if (block.text("challenge-type") or "").startswith("dns"):
        return
    for node in block.nodes:
        for domain in node.arguments if node.name == "domains" else ():
            if isinstance(domain.value, str) and domain.value.startswith("*."):
                findings.error(
                    Code.CONFLICT,
                    domain,
                    f'expected challenge-type "dns-01" for the wildcard {shown(domain.value)}, got http-01',
                    'write challenge-type "dns-01"',
                )


def check_version(value: kdl.Value, schema: Schema, findings: Findings) -> None:
    """The proxy refuses older versions of the schema, and reads newer ones as its own."""
    major, _, minor = str(value.value).partition(".")
    own = ".".join(map(str, schema.version))
    version = (int(major), int(minor))
    if version < schema.version:
        message = (
            f"expected version {own} of the schema, got {shown(value.value)}, which the proxy no longer reads"
        )
        findings.error(Code.UNSUPPORTED_VERSION, value, message, f'write "{own}"')
    elif version > schema.version:
        message = f"expected version {own} of the schema, got {shown(value.value)}; the proxy reads it as {own}"
        findings.warning(Code.NEWER_VERSION, value, message, f'write "{own}"')

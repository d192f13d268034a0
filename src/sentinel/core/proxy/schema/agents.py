"""Rows of `agents`: programs outside the proxy that decide about requests."""

from __future__ import annotations

from typing import Final

from sentinel.core.proxy.schema.row import Entry, Kind, Repeated, Row, unread, value
from sentinel.core.proxy.schema.types import (
    BYTES,
    COUNT,
    MILLISECONDS,
    PATH,
    TEXT,
    Choice,
    Either,
    HostPort,
    Integer,
    Pattern,
    Url,
)
from sentinel.core.proxy.schema.upstreams import CIRCUIT_BREAKER_ROWS

_EVENTS: Final = Choice(
    (
        "request_headers",
        "request_body",
        "response_headers",
        "response_body",
        "log",
        "websocket_frame",
        "guardrail",
    ),
    ("request-headers", "request-body", "response-headers", "response-body", "websocket-frame"),
)
_FAILURE_MODE: Final = Choice(
    ("open", "closed"), ("fail_open", "fail_closed", "fail-open", "fail-closed"), is_any_case=False
)
_BODY_MODE: Final = Either(
    (Choice(("buffer", "stream", "hybrid")), Pattern("hybrid:BYTES", "hybrid:[0-9]+", "hybrid:65536"))
)
_TLS_ROWS: Final = (
    Row("tls", "Use TLS.", is_open=True),
    Row("tls-insecure", "Use TLS and accept any certificate.", is_open=True),
    Row("ca-cert", "CA of the agent's certificate.", value(PATH)),
    Row("client-cert", "Certificate to present.", value(PATH)),
    Row("client-key", "Its private key.", value(PATH)),
)
_GRPC_ADDRESS: Final = Either((HostPort(), Url()))

AGENTS: Final = Row(
    "agents",
    "Programs that decide about requests.",
    rows=(
        Row(
            "agent",
            "A program. Filters of type agent refer to it.",
            value(TEXT, name="id"),
            properties=(Entry(TEXT, "type", is_required=False),),
            rows=(
                Row(
                    "unix-socket",
                    'Its socket, `unix-socket "/path"` or `path=`.',
                    (Entry(PATH, "path", is_required=False),),
                    properties=(Entry(PATH, "path", is_required=False),),
                    value_name="path",
                ),
                Row(
                    "grpc",
                    'Its gRPC server, `grpc "host:port"` or `address=`.',
                    (Entry(_GRPC_ADDRESS, "address", is_required=False),),
                    properties=(Entry(_GRPC_ADDRESS, "address", is_required=False),),
                    rows=_TLS_ROWS,
                    value_name="address",
                ),
                Row(
                    "http",
                    'Its HTTP server, `http "url"` or `url=`.',
                    (Entry(Url(), "url", is_required=False),),
                    properties=(Entry(Url(), "url", is_required=False),),
                    rows=_TLS_ROWS,
                    value_name="url",
                ),
                unread(
                    "transport",
                    uses="unix-socket, grpc or http",
                    advice="unix-socket, grpc or http",
                ),
                Row("timeout-ms", "Timeout of a call.", value(Integer(1, unit="milliseconds")), default=1000),
                Row("failure-mode", "Whether requests pass if it fails.", value(_FAILURE_MODE), default="open"),
                Row("events", "What it is asked about.", value(_EVENTS, is_many=True), default="request_headers"),
                Row("request-body-mode", "How it gets bodies of requests.", value(_BODY_MODE), default="buffer"),
                Row("response-body-mode", "How it gets bodies of responses.", value(_BODY_MODE), default="buffer"),
                Row("circuit-breaker", "When to stop asking.", rows=CIRCUIT_BREAKER_ROWS),
                Row("max-request-body-bytes", "Largest body of a request.", value(BYTES)),
                Row("max-response-body-bytes", "Largest body of a response.", value(BYTES)),
                Row("chunk-timeout-ms", "Timeout of a piece of a body.", value(MILLISECONDS), default=5000),
                Row("max-concurrent-calls", "Calls at the same time.", value(COUNT), default=100),
                Row("config", "Settings that it gets.", is_open=True),
            ),
            repeated=Repeated.ALL,
            defines=Kind.AGENT,
            at_least_one=(("unix-socket", "grpc", "http"),),
        ),
    ),
    repeated=Repeated.ALL,
)

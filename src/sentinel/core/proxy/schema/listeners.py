"""Rows of `system` and `listeners`: the process, and where it accepts connections. Changes need a restart."""

from __future__ import annotations

from typing import Final

from sentinel.core.proxy.schema.row import Entry, Kind, Repeated, Row, When, value
from sentinel.core.proxy.schema.secrets import secret_row
from sentinel.core.proxy.schema.types import (
    BOOLEAN,
    COUNT,
    PATH,
    POSITIVE,
    SECONDS,
    TEXT,
    Address,
    Choice,
    Url,
)

_TLS_VERSION: Final = Choice(("1.2", "1.3"), ("tls1.2", "tlsv1.2", "tls1.3", "tlsv1.3"), is_any_case=True)
_CHALLENGE: Final = Choice(("http-01", "dns-01"), ("http01", "http", "dns01", "dns"), is_any_case=True)
_DNS_CHALLENGE: Final = When("challenge-type", ("dns-01", "dns01", "dns"))

SYSTEM_ROWS: Final = (
    Row("worker-threads", "Worker threads; 0 means one for each core.", value(COUNT), default=0),
    Row("max-connections", "Connections at the same time.", value(COUNT), default=10_000),
    Row(
        "graceful-shutdown-timeout-secs",
        "How long requests may take to finish at shutdown.",
        value(SECONDS),
        default=30,
        implemented=True,
    ),
    Row("daemon", "Whether to run in the background.", value(BOOLEAN), default=False),
    Row("pid-file", "File for the process id.", value(PATH), implemented=True),
    Row("user", "User to run as.", value(TEXT)),
    Row("group", "Group to run as.", value(TEXT)),
    Row("working-directory", "Directory to run in.", value(PATH)),
    Row(
        "trace-id-format",
        "Format of request ids.",
        value(Choice(("tinyflake", "uuid"), is_any_case=True)),
        default="tinyflake",
    ),
    Row("auto-reload", "Whether to reload when the file changes.", value(BOOLEAN), default=False),
    Row("route-cache-size", "Routing decisions to remember.", value(POSITIVE), default=1_000),
)

SYSTEM: Final = Row(
    "system",
    "The process.",
    rows=SYSTEM_ROWS,
    is_required=True,
    unless=("server",),
    repeated=Repeated.LAST,
    needs_restart=True,
    implemented=True,
)

SERVER: Final = Row(
    "server",
    "The former name of `system`.",
    rows=SYSTEM_ROWS,
    repeated=Repeated.LAST,
    instead="system",
    is_deprecated=True,
    needs_restart=True,
    implemented=True,
)

_ACME: Final = Row(
    "acme",
    "Obtain certificates automatically.",
    rows=(
        Row("email", "Address of the account.", value(TEXT), is_required=True),
        Row(
            "domains",
            "Names in the certificate. `*.` needs `challenge-type dns-01`.",
            value(TEXT, is_many=True),
            is_required=True,
            repeated=Repeated.ALL,
        ),
        Row("staging", "Whether to use the staging server.", value(BOOLEAN), default=False),
        Row("server-url", "Directory of another server.", value(Url())),
        Row(
            "eab",
            "External account binding.",
            rows=(
                Row("kid", "Key id.", value(TEXT), is_required=True),
                Row("hmac-key", "Key.", value(TEXT), is_required=True),
            ),
        ),
        Row("storage", "Directory for certificates.", value(PATH)),
        Row("renew-before-days", "Days before expiry.", value(COUNT)),
        Row("challenge-type", "How to prove that a name is yours.", value(_CHALLENGE), default="http-01"),
        Row(
            "key-type",
            "Kind of key.",
            value(Choice(("ecdsa-p256", "ecdsa-p384"), ("p256", "p384", "ecdsa_p256", "ecdsa_p384"), True)),
        ),
        Row(
            "dns-provider",
            "How to write DNS records.",
            rows=(
                Row("type", "Name of the provider, or `webhook`.", value(TEXT), is_required=True),
                Row("credentials-file", "File with credentials.", value(PATH)),
                Row("credentials-env", "Environment variable with credentials.", value(TEXT)),
                Row("url", "Where the webhook is.", value(Url()), required_when=When("type", ("webhook",))),
                Row("auth-header", "Header for the webhook.", value(TEXT)),
                Row("api-timeout-secs", "Timeout of a call.", value(SECONDS), default=30),
                Row(
                    "propagation",
                    "How to wait for a record.",
                    rows=(
                        Row("initial-delay-secs", "First wait.", value(SECONDS), default=10),
                        Row("check-interval-secs", "Wait between checks.", value(SECONDS), default=5),
                        Row("timeout-secs", "When to give up.", value(SECONDS), default=120),
                        Row("nameservers", "Servers to ask.", value(TEXT, is_many=True), repeated=Repeated.ALL),
                    ),
                ),
            ),
            required_when=_DNS_CHALLENGE,
            at_least_one=(("credentials-file", "credentials-env"),),
        ),
    ),
)


def _certificate_rows(*, is_implemented: bool) -> tuple[Row, ...]:
    return (
        Row(
            "cert-file",
            "Certificate chain.",
            value(PATH),
            is_required=True,
            unless=("cert", "acme"),
            implemented=is_implemented,
        ),
        Row(
            "key-file",
            "Private key.",
            value(PATH),
            is_required=True,
            unless=("key", "acme"),
            implemented=is_implemented,
        ),
        secret_row("cert", "Certificate from a secret; becomes `cert-file`."),
        secret_row("key", "Private key from a secret; becomes `key-file`."),
        _ACME,
    )


TLS_PROTOCOLS: Final = ("https", "h2", "h3")

_TLS: Final = Row(
    "tls",
    "Certificates, for protocols with TLS. Without `ca-file`, `client-auth` has no effect.",
    rows=(
        *_certificate_rows(is_implemented=True),
        Row("ca-file", "CA of client certificates.", value(PATH), implemented=True),
        Row("min-version", "Oldest version of TLS.", value(_TLS_VERSION), default="1.2"),
        Row("max-version", "Newest version of TLS.", value(_TLS_VERSION)),
        Row("client-auth", "Whether clients need a certificate.", value(BOOLEAN), default=False, implemented=True),
        Row("ocsp-stapling", "Whether to staple OCSP responses.", value(BOOLEAN), default=True),
        Row("session-resumption", "Whether sessions may be resumed.", value(BOOLEAN), default=True),
        Row("cipher-suite", "An allowed cipher suite.", value(TEXT), repeated=Repeated.ALL),
        Row(
            "sni",
            "A certificate for some names.",
            rows=(
                Row("hostnames", "The names.", value(TEXT, is_many=True), repeated=Repeated.ALL),
                Row(
                    "priority-hostnames",
                    "Names for which it wins over other certificates.",
                    value(TEXT, is_many=True),
                    repeated=Repeated.ALL,
                ),
                *_certificate_rows(is_implemented=False),
            ),
            at_most_one=(("hostnames", "priority-hostnames"), ("cert-file", "cert"), ("key-file", "key")),
            repeated=Repeated.ALL,
        ),
    ),
    at_most_one=(("cert-file", "cert"), ("key-file", "key")),
    required_when=When("protocol", TLS_PROTOCOLS),
    implemented=True,
)

LISTENER_ROWS: Final = (
    Row("address", "Where to listen.", value(Address()), is_required=True, implemented=True),
    Row(
        "protocol",
        "What clients speak.",
        value(Choice(("http", "https", "h2", "h3"), is_any_case=True)),
        default="http",
        implemented=True,
    ),
    _TLS,
    Row(
        "default-route",
        "Route for requests that match no other.",
        value(TEXT, refers_to=Kind.ROUTE),
        implemented=True,
    ),
    Row("namespace", "Namespace whose routes it serves.", value(TEXT, refers_to=Kind.NAMESPACE)),
    Row("request-timeout-secs", "Timeout of a request.", value(SECONDS), default=60, implemented=True),
    Row("keepalive-timeout-secs", "Timeout of an idle connection.", value(SECONDS), default=75, implemented=True),
    Row("max-concurrent-streams", "Streams of an HTTP/2 connection.", value(COUNT), default=100),
    Row("keepalive-max-requests", "Requests of a connection.", value(COUNT)),
)

LISTENERS: Final = Row(
    "listeners",
    "Where the proxy accepts connections.",
    rows=(
        Row(
            "listener",
            "An address to listen on.",
            value(TEXT, name="id"),
            rows=LISTENER_ROWS,
            is_required=True,
            repeated=Repeated.ALL,
            defines=Kind.LISTENER,
            implemented=True,
        ),
    ),
    is_required=True,
    repeated=Repeated.ALL,
    needs_restart=True,
    implemented=True,
)

SERVICE_LISTENER: Final = Row(
    "listener",
    "The listener of a service.",
    (Entry(TEXT, "id", is_required=False),),
    rows=(Row("id", "Its id, if that is not on its line.", value(TEXT)), *LISTENER_ROWS),
    defines=Kind.LISTENER,
    needs_restart=True,
)

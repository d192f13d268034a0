"""Writes docs/reference from the code, or with --check verifies that it is up to date.

The reference entries are the docstrings of settings, and the help texts of metrics and commands, so they cannot
become outdated.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import click
import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from sentinel.adapter.settings import AdapterSettings
from sentinel.adapter.telemetry import AdapterTelemetry
from sentinel.agent.settings import AgentSettings
from sentinel.agent.telemetry import AgentTelemetry
from sentinel.api import kinds
from sentinel.api.settings import FleetApiSettings
from sentinel.api.telemetry import PREFIX, FleetTelemetry
from sentinel.cli.main import cli
from sentinel.cli.wiring import api as build_api
from sentinel.cli.wiring import hub as build_hub
from sentinel.cli.wiring.accounts import build_accounts
from sentinel.cli.wiring.server import audit_component, build_database
from sentinel.drift.operator.openbao import crd as openbao_crd
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER
from sentinel.drift.operator.telemetry import DriftMetrics
from sentinel.drift.settings import DriftSettings
from sentinel.drift.sidecar.telemetry import DriftTelemetry
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.hub.settings import HubSettings
from sentinel.hub.telemetry import METRICS_PREFIX as HUB_PREFIX
from sentinel.hub.telemetry import HubTelemetry
from sentinel.operator import crd
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeKind
from sentinel.proxy.telemetry import ProxyTelemetry
from sentinel.pulse.settings import PulseSettings
from sentinel.pulse.telemetry import PulseMetrics
from sentinel.runtime import durations, tracing
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.metrics import register_build_info
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.broker import BrokerSettings
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from sentinel.testing.hub_store import MemoryHubStore
from sentinel.web.app import Component, describe
from sentinel.web.audit import Auditor
from sentinel.web.metrics import RequestMetrics
from sentinel.web.openapi import Info
from tools.proxy_reference import proxy_page

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
GENERATED = "<!-- Written by `make docs` from the code. Change it there. -->\n\n"


def settings_page() -> str:
    return (
        f"# Settings\n\n{GENERATED}"
        "Flags override the environment, the environment the file, and the file the default. Every key can\n"
        "be set by a flag, `--set hyperfleet_api.timeout=3s`, or by a variable,\n"
        "`SENTINEL_HYPERFLEET_API__TIMEOUT=3s`. Durations are written as in Go: `500ms`, `5s`, `1h30m`.\n\n"
        "## The pulse: `--config`\n\n"
        + _table(settings_of(PulseSettings))
        + "\n## The broker: environment, or `--broker-config`\n\n"
        + _table(settings_of(BrokerSettings))
        + "\n## The fleet API: `sentinel api`\n\n"
        + _table(settings_of(FleetApiSettings))
        + "\n## The hub: `sentinel hub serve`\n\n"
        + _table(settings_of(HubSettings))
        + "\n## An agent: `sentinel agent --config`\n\n"
        "Relative paths are relative to the folder of the file.\n\n"
        + _table(settings_of(AgentSettings))
        + "\n## An adapter: `sentinel adapter --config`\n\n"
        + _table(settings_of(AdapterSettings))
        + "\n## Drift detection: `sentinel drift --config`\n\n"
        "`POD_NAMESPACE` and `CLUSTER_NAME` name the cluster and are required; `sentinel drift explain` needs\n"
        "neither.\n\n" + _table(settings_of(DriftSettings)) + "\n## Tracing: environment\n\n"
        "`run`, `api`, `adapter` and `up` read OpenTelemetry's variables; they need the extra `otel`.\n"
        "[How to trace](../how-to/run-in-production.md#traces).\n\n"
        "| variable | description |\n|---|---|\n"
        + "".join(f"| `{name}` | {_cell(text)} |\n" for name, text in tracing.VARIABLES.items())
    )


def settings_of(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield key, default and docstring of every setting that a struct declares."""
    texts = docstrings(struct)
    for field in msgspec.structs.fields(struct):
        if inspect.isclass(field.type) and issubclass(field.type, msgspec.Struct):
            yield from settings_of(field.type, f"{prefix}{field.encode_name}.")
            continue
        if field.default_factory is not msgspec.NODEFAULT:
            default = _format_default(field.default_factory())
        elif field.default is not msgspec.NODEFAULT:
            default = _format_default(field.default)
        else:
            default = "required"
        yield f"`{prefix}{field.encode_name}`", default, texts[field.name]


def docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the string literal below each field, including inherited fields. Python does not keep it."""
    texts: dict[str, str] = {}
    for declared in reversed(struct.__mro__):
        if issubclass(declared, msgspec.Struct) and declared is not msgspec.Struct:
            texts |= _own_docstrings(declared)
    return texts


def _own_docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    (definition,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(definition, ast.ClassDef), struct
    texts: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
                raise SystemExit(f"{struct.__name__}.{field.target.id} has no docstring")
            texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts


def _format_default(value: object) -> str:
    match value:
        case None:
            return "unset"
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            return f"`{durations.render(value)}`"
        case Enum() | Secret():
            return f"`{value.value if isinstance(value, Enum) else value.reveal()}`"
        case dict():
            return "`{" + ", ".join(f"{key}: {text}" for key, text in value.items()) + "}`"
        case tuple() | list():
            return f"`[{', '.join(map(str, value))}]`"
        case "":
            return "empty"
    return f"`{value}`"


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = ["| key | default | description |", "|---|---|---|"]
    lines += [f"| {key} | {default} | {_cell(text)} |" for key, default, text in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def sentinelconfig_page() -> str:
    return _resource_page(
        SENTINEL_CONFIG,
        crd.document(docstrings),
        "The CustomResourceDefinition is in [deploy/crds](../../deploy/crds). `sentinel check --config FILE`\n"
        "checks a manifest as the API server and the operator do. [Examples](../../examples/README.md).\n\n",
    )


def openbaocluster_page() -> str:
    return _resource_page(
        OPENBAO_CLUSTER,
        openbao_crd.document(docstrings),
        "The CustomResourceDefinition is in [deploy/crds](../../deploy/crds). `sentinel drift-operator`\n"
        "reconciles it. [How to detect drift](../how-to/detect-drift.md).\n\n",
    )


def _resource_page(kind: KubeKind, document: Any, introduction: str) -> str:
    (version,) = document["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    header = "| field | type | default | description |\n|---|---|---|---|\n"
    return (
        f"# {kind.kind}\n\n{GENERATED}"
        f"`apiVersion: {kind.api_version}`, `kind: {kind.kind}`, in a namespace; short name"
        f" `{document['spec']['names']['shortNames'][0]}`.\n"
        f"{introduction}"
        f"## Spec\n\n{header}"
        + "".join(_schema_rows(root["properties"]["spec"], "spec"))
        + f"\n## Status\n\n{header}"
        + "".join(_schema_rows(root["properties"]["status"], "status"))
    )


def _schema_rows(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield a row for each field of an object's schema that has a description, and for the fields below it."""
    for key, field in schema["properties"].items():
        if "description" not in field:
            continue  # the fields of a condition, which are those of Kubernetes
        name = f"{path}.{key}"
        default = "required" if key in schema.get("required", ()) else ""
        if "default" in field:
            default = _format_default(field["default"])
        elif not default and field["type"] in ("string", "integer", "number") and path.startswith("spec"):
            default = "unset"
        yield f"| `{name}` | {_schema_type(field)} | {default} | {_cell(field['description'])} |\n"
        if "properties" in field:
            yield from _schema_rows(field, name)
        elif "properties" in field.get("items", {}):
            yield from _schema_rows(field["items"], f"{name}[]")


def _schema_type(field: Mapping[str, Any]) -> str:
    match field:
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"type": "string", "x-kubernetes-validations": _}:
            return "duration"
        case {"format": "date-time"}:
            return "time"
        case {"type": "array", "items": items}:
            return f"list of {items['type']}s"
        case {"additionalProperties": {"x-kubernetes-int-or-string": True}}:
            return "mapping to quantities"
        case {"additionalProperties": values}:
            return f"mapping to {values['type']}s"
        case {"x-kubernetes-preserve-unknown-fields": True}:
            return "mapping"
        case {"minimum": minimum, "maximum": maximum, "type": kind}:
            return f"{kind}, {minimum} to {maximum}"
    return str(field["type"])


def metrics_page() -> str:
    pulse = CollectorRegistry()
    register_build_info(pulse, "pulse")
    PulseMetrics(pulse)
    api = CollectorRegistry()
    FleetTelemetry(
        kinds=kinds.DEFAULT,
        store=MemoryFleetStore(MemoryDatabase()),
        clock=SystemClock(),
        registry=api,
        log=get_logger("reference"),
    )
    RequestMetrics(registry=api, prefix=f"{PREFIX}_")
    hub = CollectorRegistry()
    HubTelemetry(
        store=MemoryHubStore(MemoryDatabase()),
        clock=SystemClock(),
        registry=hub,
        log=get_logger("reference"),
        expected_agents=1,
    )
    RequestMetrics(registry=hub, prefix=HUB_PREFIX)
    agent = CollectorRegistry()
    AgentTelemetry(registry=agent, log=get_logger("reference"))
    adapter = CollectorRegistry()
    AdapterTelemetry(registry=adapter, log=get_logger("reference"), adapter="dns")
    drift = CollectorRegistry()
    DriftTelemetry(
        kinds=[kind.kind for kind in DriftSettings().kinds], registry=drift, log=get_logger("reference")
    )
    drift_operator = CollectorRegistry()
    DriftMetrics(drift_operator, kinds=())
    return "\n".join(
        [
            "# Metrics\n",
            f"{GENERATED}In Prometheus' text format. Labels are closed sets. They never contain resource ids or",
            "error texts, with one exception of the hub.\n",
            "## The pulse: `GET :8080/metrics`\n",
            "`shard` is the selector, sorted `k=v,k=v`, or `all`.\n",
            *_families(pulse),
            "\n## The fleet API: `GET :8000/metrics`\n",
            "`route` is the template of a path, or `other`.\n",
            *_families(api),
            "\n## The hub: `GET :8080/metrics`\n",
            "`instance` is the id of an instance; only those out of sync are there, at most a thousand.",
            "`status` is that of gRPC. `hub_agents_expected` exists if `expected_agents` is set.\n",
            *_families(hub),
            "\n## An agent: `GET :8080/metrics`\n",
            *_families(agent),
            "\n## An adapter: `GET :8080/metrics`\n",
            *_families(adapter),
            "\n## The drift sidecar: `GET :8080/metrics`\n",
            "`kind` is one of the configured kinds, `reason` that of the judgement, `class` why a patch failed.\n",
            *_families(drift),
            "\n## The drift operator: `GET :8080/metrics`\n",
            "`name` is that of the OpenBaoCluster; `resource_kind` is a watched kind, or `other`.\n",
            *_families(drift_operator),
            "\n## The small proxy: where its configuration says\n",
            "The names are those of the real proxy. `route` and `upstream` are ids of the configuration, `none`",
            "if no route matches; `method` is a common one, or `other`.\n",
            *_families(ProxyTelemetry().registry),
            "",
        ]
    )


def _families(registry: CollectorRegistry) -> Iterator[str]:
    yield "| metric | type | labels | description |"
    yield "|---|---|---|---|"
    for family in registry.collect():
        labels = sorted({label for sample in family.samples for label in sample.labels if label != "le"})
        if not family.samples:  # no labels have been used yet
            labels = sorted(_label_names(registry, family.name))
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        yield (
            f"| `{family.name}{suffix}` | {family.type} | {', '.join(f'`{label}`' for label in labels)} "
            f"| {_cell(family.documentation)} |"
        )


def _label_names(registry: CollectorRegistry, name: str) -> Iterable[str]:
    """Return the labels of a metric. The client library has no public way."""
    collector = registry._names_to_collectors[name]
    assert isinstance(collector, MetricWrapperBase), name
    return tuple(collector._labelnames)


def commands_page() -> str:
    heading = f"# Commands\n\n{GENERATED}"
    exit_codes = "Exit codes: 0 success, 1 failure at run time, 2 invalid usage or configuration.\n"
    context = click.Context(cli, info_name="sentinel", color=False, terminal_width=80, **cli.context_settings)
    return "\n".join((heading + exit_codes, *_commands(cli, context)))


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        inner = click.Context(command, info_name=name, parent=context)
        yield f"## `{inner.command_path}`\n\n```\n{command.get_help(inner)}\n```\n"
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def openapi_document() -> str:
    settings = FleetApiSettings()
    database = build_database(settings)
    auditor, clock = Auditor(), SystemClock()
    built = build_api.build_api(settings, kinds=kinds.DEFAULT, database=database, auditor=auditor, clock=clock)
    return _described(built.web, build_api.info(settings), database, auditor, clock)


def hub_openapi_document() -> str:
    settings = HubSettings()
    database = build_database(settings)
    auditor, clock = Auditor(), SystemClock()
    built = build_hub.build_sql_hub(
        settings,
        database=database,
        identities=(),
        ignores_unknown_tokens=False,
        address=Address("127.0.0.1", 0),
        auditor=auditor,
        clock=clock,
    )
    return _described(built.component.web, build_hub.info(settings), database, auditor, clock)


def _described(component: Component, info: Info, database: SqlDatabase, auditor: Auditor, clock: Clock) -> str:
    """Return the OpenAPI document of a server with this component."""
    accounts = build_accounts(database, auditor=auditor, clock=clock)
    document = describe([component, accounts.web, audit_component(SqlAuditLog(database))], info)
    return msgspec.json.format(document, indent=1).decode() + "\n"


PAGES = {
    "settings.md": settings_page,
    "sentinelconfig.md": sentinelconfig_page,
    "openbaocluster.md": openbaocluster_page,
    "metrics.md": metrics_page,
    "commands.md": commands_page,
    "proxy-configuration.md": lambda: proxy_page(GENERATED),
    "openapi.json": openapi_document,
    "hub-openapi.json": hub_openapi_document,
}


def main() -> int:
    """Write the pages. With --check, return 1 if a page would change."""
    stale = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text)
            print(f"wrote {path.relative_to(REFERENCE.parent.parent)}")
    if stale and "--check" in sys.argv:
        print(f"docs/reference is out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Several components in one application: one listener, one OpenAPI document, metrics for each."""

from __future__ import annotations

import json

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from sentinel.web import errors
from sentinel.web.app import BadRoutes, Component, build_app
from sentinel.web.asgi import App
from sentinel.web.metrics import RequestMetrics
from sentinel.web.openapi import Info
from sentinel.web.routing import OPEN, Response, ResponseSpec
from tests.web.asgi_client import LOG, OPEN_GUARD, call, raising, returning, route


class Thing(msgspec.Struct, frozen=True):
    name: str


class Proxy(msgspec.Struct, frozen=True):
    size: int


def giving(type_: type[msgspec.Struct]) -> tuple[ResponseSpec, ...]:
    return (ResponseSpec(status=200, description="One.", type=type_),)


FLEET = Component(
    routes=[
        route(returning(Response(body=b'"fleet"')), path="/clusters", tag="clusters", responses=giving(Thing))
    ],
    tags={"clusters": "What is managed."},
)
HUB = Component(
    routes=[
        route(returning(Response(body=b'"hub"')), path="/instances", tag="instances", responses=giving(Proxy)),
        route(raising(lambda: errors.NotFound("no such config")), path="/configs/{id}", tag="configs"),
    ],
    tags={"instances": "Proxies.", "configs": "What they run."},
)
INFO = Info(title="Everything", version="1", description="All of it.", tags={"documentation": "Of the server."})


def application(*components: Component, **more: object) -> App:
    probe = route(returning(Response()), path="/healthz", action=OPEN, is_documented=False)
    return build_app([probe], components=components, info=INFO, guard=OPEN_GUARD, log=LOG, **more)  # type: ignore[arg-type]  # passed through


async def test_every_component_is_served_on_one_listener() -> None:
    app = application(FLEET, HUB)

    assert (await call(app, "GET", "/clusters")).json == "fleet"
    assert (await call(app, "GET", "/instances")).json == "hub"
    assert (await call(app, "GET", "/healthz")).status == 200


async def test_errors_of_every_component_become_problems() -> None:
    response = await call(application(FLEET, HUB), "GET", "/configs/a")

    assert (response.status, response.json["detail"]) == (404, "no such config")


async def test_one_document_describes_all_components_and_nothing_else() -> None:
    document = json.loads((await call(application(FLEET, HUB), "GET", "/openapi.json")).body)

    assert document["info"] == {"title": "Everything", "version": "1", "description": "All of it."}
    assert list(document["paths"]) == ["/clusters", "/instances", "/configs/{id}"]
    assert [(tag["name"], tag["description"]) for tag in document["tags"]] == [
        ("documentation", "Of the server."),
        ("clusters", "What is managed."),
        ("instances", "Proxies."),
        ("configs", "What they run."),
    ]
    assert (await call(application(FLEET, HUB), "GET", "/docs")).status == 200


def test_schemas_of_the_same_name_are_rejected() -> None:
    other = msgspec.defstruct("Thing", [("size", int)], module="elsewhere")
    hub = Component(routes=[route(returning(Response()), path="/things", responses=giving(other))])

    with pytest.raises(ValueError, match="got several schemas called Thing"):
        application(FLEET, hub)


async def test_without_info_no_document_is_served() -> None:
    app = build_app(components=[FLEET], guard=OPEN_GUARD, log=LOG)

    assert (await call(app, "GET", "/openapi.json")).status == 404
    assert (await call(app, "GET", "/clusters")).status == 200


def test_two_components_with_one_route_are_rejected() -> None:
    with pytest.raises(BadRoutes, match="GET /clusters: declared twice"):
        application(FLEET, HUB, FLEET)


def test_a_component_with_a_route_of_the_app_is_rejected() -> None:
    other = Component(routes=[route(returning(Response()), path="/openapi.json")])

    with pytest.raises(BadRoutes, match=r"GET /openapi\.json: declared twice"):
        application(FLEET, other)


async def test_observers_of_a_component_see_only_its_requests() -> None:
    registry = CollectorRegistry()
    hub = msgspec.structs.replace(HUB, observers=[RequestMetrics(registry=registry, prefix="hub_")])
    app = application(FLEET, hub, observers=[RequestMetrics(registry=registry, prefix="all_")])

    for path in ("/clusters", "/instances", "/configs/a", "/nowhere"):
        await call(app, "GET", path)
    await call(app, "DELETE", "/instances")

    def counted(prefix: str) -> set[tuple[str, str]]:
        return {
            (sample.labels["route"], sample.labels["status"])
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == f"{prefix}http_requests_total"
        }

    mine = {("/instances", "200"), ("/configs/{id}", "404")}
    assert counted("hub_") == mine
    assert counted("all_") == mine | {("/clusters", "200"), ("other", "404"), ("other", "405")}
    assert registry.get_sample_value("hub_http_requests_in_flight") == 0

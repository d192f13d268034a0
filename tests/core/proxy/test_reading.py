"""A document becomes the values that the small proxy works with."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sentinel.core import kdl
from sentinel.core.proxy import model
from sentinel.core.proxy.reading import parse_endpoint, read


def configuration(text: str) -> model.Configuration:
    parsed = kdl.parse(text)
    assert parsed.problems == ()
    return read(parsed.document)


def route(text: str) -> model.Route:
    (found,) = configuration(f'routes {{ route "r" {{ {text} }} }}').routes
    return found


def upstream(text: str) -> model.Upstream:
    (found,) = configuration(f'upstreams {{ upstream "u" {{ {text} }} }}').upstreams
    return found


def test_an_empty_document_has_the_defaults_of_the_real_proxy() -> None:
    found = configuration("")

    assert found == model.Configuration(system=model.System(), listeners=())
    assert found.system.graceful_shutdown_timeout == timedelta(seconds=30)


@pytest.mark.parametrize("name", ["system", "server"])
def test_the_system_block_has_an_old_name(name: str) -> None:
    found = configuration(f'{name} {{ pid-file "p.pid"; graceful-shutdown-timeout-secs 5 }}')

    assert found.system == model.System(graceful_shutdown_timeout=timedelta(seconds=5), pid_file="p.pid")


def test_a_listener_has_its_address_timeouts_and_certificate() -> None:
    found = configuration(
        """
        listeners {
            listener "web" {
                address "[::1]:8443"
                protocol "https"
                default-route "home"
                request-timeout-secs 7
                keepalive-timeout-secs 8
                tls { cert-file "c.pem"; key-file "k.pem"; ca-file "ca.pem"; client-auth #true }
            }
            listener "plain" { address "127.0.0.1:80"; tls { cert-file "c.pem" } }
        }
        """
    )

    assert found.listeners == (
        model.Listener(
            id="web",
            address=model.Endpoint("::1", 8443),
            protocol=model.Protocol.HTTPS,
            default_route="home",
            request_timeout=timedelta(seconds=7),
            keepalive_timeout=timedelta(seconds=8),
            tls=model.ListenerTls(
                cert_file="c.pem", key_file="k.pem", ca_file="ca.pem", requires_client_certificate=True
            ),
        ),
        model.Listener(id="plain", address=model.Endpoint("127.0.0.1", 80)),
    )


def test_a_route_has_all_kinds_of_matches() -> None:
    found = route(
        """
        matches {
            path "/a"; path-prefix "/b"; path-regex "^/c"; host "h"; method "GET" "POST"
            header "X-A"; header "X-B" "1"; query-param "p"; query-param "q" "2"; path; colour "red"
        }
        """
    )

    assert found.matches == (
        model.PathMatch("/a"),
        model.PathPrefixMatch("/b"),
        model.PathRegexMatch("^/c"),
        model.HostMatch("h"),
        model.MethodMatch("GET"),
        model.HeaderMatch("X-A"),
        model.HeaderMatch("X-B", "1"),
        model.QueryParamMatch("p"),
        model.QueryParamMatch("q", "2"),
    )


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("", 50),
        ("priority low", 10),
        ('priority "HIGH"', 100),
        ("priority critical", 1000),
        ("priority 7", 7),
        ("priority -1", -1),
        ("priority #true", 50),
        ("priority urgent", 50),
    ],
)
def test_a_priority_is_a_name_or_a_number(text: str, priority: int) -> None:
    assert route(text).priority == priority


def test_a_route_has_header_policies_and_attempts() -> None:
    found = route(
        """
        upstream "u"
        retry-policy { max-attempts 3 }
        policies {
            request-headers {
                set { X-A "1"; X-Number 2 }
                add { X-B "2" }
                rename { X-Old "X-New" }
                remove "X-C" "X-D"
            }
            response-headers { remove "Server" }
        }
        """
    )

    assert found == model.Route(
        id="r",
        upstream="u",
        max_attempts=3,
        request_headers=model.HeaderPolicy(
            set=(("X-A", "1"),), add=(("X-B", "2"),), rename=(("X-Old", "X-New"),), remove=("X-C", "X-D")
        ),
        response_headers=model.HeaderPolicy(remove=("Server",)),
    )


def test_a_route_serves_files_or_is_builtin() -> None:
    files = 'static-files { root "www"; index "i.html"; fallback "f.html"; cache-control "no-store" }'

    assert route(files).static_files == model.StaticFiles(
        root="www", index="i.html", fallback="f.html", cache_control="no-store"
    )
    assert route('static-files { root "www" }').static_files == model.StaticFiles(root="www")
    assert route("builtin-handler not_found").builtin_handler is model.BuiltinHandler.NOT_FOUND
    assert route("builtin-handler teapot").builtin_handler is None


@pytest.mark.parametrize(
    "text",
    [
        'target "a:1" weight=3; target "b:2"',
        'target address="a:1" weight=3; target address="b:2"',
        'targets { target "a:1" weight=3; target { address "b:2" } }',
        'target { address "a:1"; weight 3 }; targets { target "b:2" }',
    ],
)
def test_targets_have_four_notations(text: str) -> None:
    assert upstream(text).targets == (
        model.Target(model.Endpoint("a", 1), 3),
        model.Target(model.Endpoint("b", 2)),
    )


def test_an_address_is_a_single_target_and_an_empty_one_is_none() -> None:
    assert upstream('address "a:1"').targets == (model.Target(model.Endpoint("a", 1)),)
    assert upstream("target weight=3").targets == ()


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("round_robin", model.LoadBalancing.ROUND_ROBIN),
        ("Weighted", model.LoadBalancing.WEIGHTED),
        ("weighted_round_robin", model.LoadBalancing.WEIGHTED),
        ("least_connections", model.LoadBalancing.LEAST_CONNECTIONS),
        ("least-connections", model.LoadBalancing.ROUND_ROBIN),
        ("maglev", model.LoadBalancing.ROUND_ROBIN),
    ],
)
def test_an_unknown_load_balancing_is_round_robin(text: str, algorithm: model.LoadBalancing) -> None:
    assert upstream(f"load-balancing {text}").load_balancing is algorithm


def test_an_upstream_has_checks_timeouts_a_pool_and_tls() -> None:
    found = upstream(
        """
        health-check {
            type "http" { path "/ok"; expected-status "204"; host "h" }
            interval-secs 1; timeout-secs 2; healthy-threshold 3; unhealthy-threshold 4
        }
        timeouts { connect 1; request 2; read 3; write 4 }
        connection-pool { max-connections 5; idle-timeout 6 }
        tls { sni "s"; insecure-skip-verify #true; client-cert "c"; client-key "k"; ca-cert "ca" }
        """
    )

    assert found == model.Upstream(
        id="u",
        targets=(),
        health_check=model.HealthCheck(
            type=model.HealthCheckType.HTTP,
            interval=timedelta(seconds=1),
            timeout=timedelta(seconds=2),
            healthy_threshold=3,
            unhealthy_threshold=4,
            path="/ok",
            expected_status=204,
            host="h",
        ),
        timeouts=model.Timeouts(
            connect=timedelta(seconds=1), request=timedelta(seconds=2), read=timedelta(seconds=3)
        ),
        max_connections=5,
        idle_timeout=timedelta(seconds=6),
        tls=model.UpstreamTls(sni="s", is_insecure=True, client_cert="c", client_key="k", ca_cert="ca"),
    )


def test_checks_that_are_not_implemented_only_try_the_port() -> None:
    tcp = upstream('health-check { type "tcp" }').health_check
    grpc = upstream('health-check { type "grpc" }').health_check

    assert (
        tcp == grpc == upstream("health-check").health_check == model.HealthCheck(type=model.HealthCheckType.TCP)
    )


def test_of_top_level_blocks_the_last_counts() -> None:
    assert configuration('system { pid-file "a" }; system { pid-file "b" }').system.pid_file == "b"


def test_of_an_upstream_that_is_written_twice_the_last_counts() -> None:
    found = configuration('upstreams { upstream "u" { target "a:1" }; upstream "u" { target "b:2" } }')

    assert found.upstreams == (model.Upstream(id="u", targets=(model.Target(model.Endpoint("b", 2)),)),)


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("", None),
        ("observability { logging }", None),
        ("observability { metrics { enabled #false } }", None),
        ("observability { metrics }", model.MetricsEndpoint()),
        (
            'observability { metrics { enabled #true; address "127.0.0.1:1"; path "/m" } }',
            model.MetricsEndpoint(address=model.Endpoint("127.0.0.1", 1), path="/m"),
        ),
    ],
)
def test_metrics_are_served_only_where_the_file_says(text: str, metrics: model.MetricsEndpoint | None) -> None:
    assert configuration(text).metrics == metrics


@pytest.mark.parametrize(
    ("text", "endpoint", "printed"),
    [
        ("127.0.0.1:80", model.Endpoint("127.0.0.1", 80), "127.0.0.1:80"),
        ("[::1]:80", model.Endpoint("::1", 80), "[::1]:80"),
        ("localhost:x", model.Endpoint("localhost", 0), "localhost:0"),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, endpoint: model.Endpoint, printed: str) -> None:
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == printed


def test_listeners_and_system_need_a_restart_and_nothing_else_does() -> None:
    running = configuration('listeners { listener "a" { address "127.0.0.1:1" } }')
    moved = configuration('listeners { listener "a" { address "127.0.0.1:2" } }; system { pid-file "p" }')
    routed = configuration('listeners { listener "a" { address "127.0.0.1:1" } }; routes { route "r" }')

    assert model.blocks_that_need_restart(running, moved) == ("system", "listeners")
    assert model.blocks_that_need_restart(running, routed) == ()

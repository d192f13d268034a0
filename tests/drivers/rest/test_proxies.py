"""Choosing a proxy from the environment."""

from __future__ import annotations

import base64

import pytest
from yarl import URL

from sentinel.drivers.rest.proxies import NO_PROXIES, Proxies
from sentinel.ports.errors import Misconfigured

PROXY = "http://proxy.example:3128"


def chosen(url: str, **environ: str) -> str | None:
    proxy = Proxies(environ).choose(URL(url))
    return None if proxy is None else proxy.url


def test_without_variables_there_is_no_proxy() -> None:
    assert NO_PROXIES.choose(URL("https://fleet.example")) is None
    assert chosen("https://fleet.example", PATH="/bin", ALL_PROXY=PROXY) is None


def test_each_scheme_has_its_own_variable() -> None:
    environ = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "http://secure:2"}

    assert chosen("http://fleet.example", **environ) == "http://plain:1"
    assert chosen("https://fleet.example", **environ) == "http://secure:2"
    assert chosen("http://fleet.example", HTTPS_PROXY=PROXY) is None


def test_a_proxy_is_named_with_its_variable() -> None:
    proxy = Proxies({"https_proxy": PROXY}).choose(URL("https://fleet.example"))

    assert str(proxy) == "http://proxy.example:3128 (https_proxy)"


def test_lower_case_wins_and_an_empty_variable_counts_as_unset() -> None:
    assert chosen("http://fleet.example", http_proxy="http://a:1", HTTP_PROXY="http://b:1") == "http://a:1"
    assert chosen("http://fleet.example", http_proxy="", HTTP_PROXY="http://b:1") is None


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("proxy.example:3128", PROXY),
        ("http://proxy.example", "http://proxy.example"),
        ("http://proxy.example:3128/", PROXY),
        (" http://10.0.0.1:3128 ", "http://10.0.0.1:3128"),
    ],
)
def test_the_scheme_and_port_of_a_proxy_are_optional(value: str, url: str) -> None:
    assert chosen("http://fleet.example", HTTP_PROXY=value) == url


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "fleet.localhost",
        "127.0.0.1",
        "127.8.9.10",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",  # noqa: S104  # not listened on
        "[::]",
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_loopback_addresses_never_use_a_proxy(scheme: str, host: str) -> None:
    assert chosen(f"{scheme}://{host}:8080", HTTP_PROXY=PROXY, HTTPS_PROXY=PROXY) is None


@pytest.mark.parametrize("host", ["10.0.0.1", "fleet.example", "localhost.example", "[2001:db8::1]", "128.0.0.1"])
def test_other_addresses_use_the_proxy(host: str) -> None:
    assert chosen(f"http://{host}", HTTP_PROXY=PROXY) == PROXY


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("*", "http://fleet.example"),
        ("fleet.example", "http://fleet.example"),
        ("fleet.example", "http://api.fleet.example"),
        (".example", "http://fleet.example"),
        ("*.example", "http://fleet.example"),
        ("FLEET.example", "http://Fleet.Example."),
        ("a, b ,fleet.example", "http://fleet.example"),
        ("a fleet.example", "http://fleet.example"),
        ("fleet.example:8080", "http://fleet.example:8080"),
        ("fleet.example:80", "http://fleet.example"),
        ("10.1.2.3", "http://10.1.2.3"),
        ("10.1.2.3:80", "http://10.1.2.3"),
        ("10.0.0.0/8", "http://10.1.2.3"),
        ("2001:db8::/32", "http://[2001:db8::1]"),
        ("[2001:db8::1]", "http://[2001:db8::1]"),
        ("[2001:db8::1]:80", "http://[2001:db8::1]"),
    ],
)
def test_hosts_in_no_proxy_are_connected_to_directly(no_proxy: str, url: str) -> None:
    assert chosen(url, HTTP_PROXY=PROXY, NO_PROXY=no_proxy) is None


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("", "http://fleet.example"),
        (",", "http://fleet.example"),
        (".", "http://fleet.example"),
        ("example", "http://myexample"),
        ("api.fleet.example", "http://fleet.example"),
        ("fleet.example:8080", "http://fleet.example"),
        ("10.1.2.3:8080", "http://10.1.2.3"),
        ("10.0.0.0/8", "http://11.1.2.3"),
        ("2001:db8::/32", "http://10.1.2.3"),
        ("2001:db8::1", "http://fleet.example"),
    ],
)
def test_no_proxy_covers_no_other_hosts(no_proxy: str, url: str) -> None:
    assert chosen(url, HTTP_PROXY=PROXY, NO_PROXY=no_proxy) == PROXY


@pytest.mark.parametrize(
    "value",
    [
        "socks5://me:hunter22@proxy:1080",
        "https://me:hunter22@proxy:3128",
        "http://me:hunter22@",
        "http://me:hunter22@proxy:port",
        "http://me:hunter22@proxy/path",
        "http://proxy?hunter22",
        "http://proxy#hunter22",
    ],
)
def test_an_invalid_proxy_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(Misconfigured, match=r"^HTTPS_PROXY: expected a proxy such as") as caught:
        chosen("https://fleet.example", HTTPS_PROXY=value)

    assert "hunter22" not in str(caught.value) + repr(caught.value.__cause__)


def test_an_invalid_proxy_that_is_not_needed_is_ignored() -> None:
    assert chosen("http://127.0.0.1", HTTP_PROXY="socks5://proxy", HTTPS_PROXY="socks5://proxy") is None
    assert chosen("http://fleet.example", HTTP_PROXY=PROXY, HTTPS_PROXY="socks5://proxy") == PROXY


def test_credentials_become_a_header_and_are_never_shown() -> None:
    proxies = Proxies({"HTTP_PROXY": "http://me:hunter%3A22@proxy.example:3128"})

    proxy = proxies.choose(URL("http://fleet.example"))

    assert proxy is not None
    assert proxy.url == PROXY
    assert proxy.authorization is not None
    assert proxy.authorization.reveal() == f"Basic {base64.b64encode(b'me:hunter:22').decode()}"
    assert "hunter" not in f"{proxy} {proxy!r} {proxies!r}"

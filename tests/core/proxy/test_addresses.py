"""Which host an address names, and which hosts are forbidden."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core.proxy.addresses import are_forbidden, host_of, is_forbidden, is_ip_address


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("api.example:80", "api.example"),
        ("API.example:http", "api.example"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::1]:80", "::1"),
        ("[fe80::1%eth0]:80", "fe80::1%eth0"),
        ("api.example", None),
        (":80", None),
        ("::1:80", None),
        ("[::1]", None),
        ("[]:80", None),
        ("", None),
    ],
)
def test_the_host_of_an_address(address: str, host: str | None) -> None:
    assert host_of(address) == host


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "metadata.google.internal",
        "Metadata.Google.Internal.",
    ],
)
def test_link_local_addresses_and_metadata_services_are_forbidden(host: str) -> None:
    assert is_forbidden(host)


@hypothesis.given(last=st.integers(0, 0xFFFF))
def test_an_address_inside_another_is_forbidden_too(last: int) -> None:
    inner = 169 << 24 | 254 << 16 | last
    spellings = [
        IPv6Address(0xFFFF << 32 | inner),  # mapped
        IPv6Address(inner),  # compatible
        IPv6Address(0x64_FF9B << 96 | inner),  # NAT64
        IPv6Address(0x2002 << 112 | inner << 80),  # 6to4
        IPv6Address(0x2001_0000 << 96 | (inner ^ 0xFFFF_FFFF)),  # Teredo
    ]

    assert is_forbidden(str(IPv4Address(inner)))
    assert all(is_forbidden(str(address)) for address in spellings)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.1", "::1", "fd00::1", "2001:db8::1", "metadata", "a.example"]
)
def test_other_hosts_are_allowed(host: str) -> None:
    assert not is_forbidden(host)


def test_only_names_have_to_be_looked_up() -> None:
    hosts = ("10.0.0.1", "::1", "1.2.3", "api", "1.2.3.4.5", "0xg")

    assert [is_ip_address(host) for host in hosts] == [True, True, True, False, False, False]


@pytest.mark.parametrize(
    "host",
    [
        *("0xa9fea9fe", "0XA9FEA9FE", "2852039166", "025177524776", "169.16689662", "169.254.43518"),
        *("0xa9.0376.0xa9.254", "0251.254.169.254", "1.2.3", "1.65536", "0", "00.0x0.010", "4294967295"),
        *("4294967296", "256.1", "1.16777216", "1.2.65536", "1.2.3.256", "0x", "08", "1.2.3.4.5", "1..2", ""),
    ],
)
def test_ipv4_addresses_are_read_in_all_spellings_of_the_c_library(host: str) -> None:
    try:
        expected = ".".join(map(str, socket.inet_aton(host)))
    except OSError:
        expected = None

    assert is_ip_address(host) is (expected is not None)
    assert expected is None or is_forbidden(host) is is_forbidden(expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["10.0.0.1"], False),
        (["10.0.0.1", "fe80::1"], False),
        (["10.0.0.1", "fe80::1%eth0", "169.254.0.1"], True),
        (["fe80::1", "fe80::2"], True),
        (["169.254.169.254"], True),
        ([], False),
    ],
)
def test_one_forbidden_address_makes_a_name_forbidden(found: list[str], expected: bool) -> None:
    assert are_forbidden(found) is expected

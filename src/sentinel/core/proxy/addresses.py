"""Addresses of targets: which host they name, and which hosts a configuration must not name.

A link-local address is different on every machine, and in clouds it is where credentials are handed out. A proxy
that forwards requests there gives them to everybody, so such an address is never usable, however it is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

_FORBIDDEN_NETWORKS: Final = tuple(
    ip_network(network)
    for network in (
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure
        "192.0.0.192/32",  # Oracle Cloud
        "fe80::/10",  # link-local
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google Cloud
    )
)
_FORBIDDEN_NAMES: Final = frozenset(
    ("metadata.google.internal", "metadata.goog", "instance-data.ec2.internal", "instance-data")
)
_EMBEDDING_NETWORKS: Final = (ip_network("64:ff9b::/96"), ip_network("::/96"))
"""IPv6 networks whose last 32 bits are an IPv4 address, apart from those that `ipaddress` knows."""
_CLASSIC: Final = re.compile(r"0[xX][0-9a-fA-F]{1,8}|0[0-7]{0,11}|[1-9][0-9]{0,9}")


def host_of(address: str) -> str | None:
    """Return the host of HOST:PORT in lower case, without brackets. None if there is no host or no port."""
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        is_valid = port.startswith(":")
    else:
        host, _, _ = address.rpartition(":")
        is_valid = ":" not in host
    return host.lower() if is_valid and host else None


def is_ip_address(host: str) -> bool:
    """Whether a host is an IP address, which nobody has to look up."""
    return _read(host) is not None


def is_forbidden(host: str) -> bool:
    """Whether a configuration must not name this host or IP address."""
    address = _read(host)
    if address is None:
        return host.rstrip(".").lower() in _FORBIDDEN_NAMES
    return any(each in network for each in _meanings(address) for network in _FORBIDDEN_NETWORKS)


def are_forbidden(found: Collection[str]) -> bool:
    """Whether a name with these IP addresses must not be used: nobody can tell which of them a proxy takes.

    A link-local IPv6 address beside others does not count. A machine lists those of all its interfaces.
    """
    others = [each for each in found if not _is_link_local(each)]
    return any(map(is_forbidden, others)) if others else bool(found)


def _is_link_local(host: str) -> bool:
    address = _read(host)
    return isinstance(address, IPv6Address) and address.is_link_local


def _read(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return _read_classic(host)


def _read_classic(host: str) -> IPv4Address | None:
    """Read the spellings of an IPv4 address that the C library accepts: `0xa9fea9fe`, `0251.254.43518`."""
    parts = host.split(".")
    if len(parts) > 4 or not all(_CLASSIC.fullmatch(part) for part in parts):
        return None
    *high, low = (int(part, 16 if part[1:2] in "xX" else 8 if part[0] == "0" else 10) for part in parts)
    if any(byte > 0xFF for byte in high) or low >= 1 << 8 * (4 - len(high)):
        return None
    return IPv4Address(sum(byte << 8 * (3 - index) for index, byte in enumerate(high)) + low)


def _meanings(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return an address with the IPv4 addresses that it contains: mapped, translated or tunnelled ones."""
    meanings = [address]
    if isinstance(address, IPv6Address):
        embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if any(address in network for network in _EMBEDDING_NETWORKS):
            embedded.append(IPv4Address(int(address) & 0xFFFF_FFFF))
        meanings += [each for each in embedded if each is not None]
    return meanings

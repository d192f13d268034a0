"""The addresses that a proxy listens on: no two of them may be the same."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from sentinel.core import kdl
from sentinel.core.proxy.block import Block
from sentinel.core.proxy.findings import Code, Findings, shown


class _Taken(NamedTuple):
    address: IPv4Address | IPv6Address
    at: kdl.Value


class ListenAddresses:
    """The addresses of a document that were seen so far."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._by_port: dict[int, list[_Taken]] = {}

    def listen(self, value: kdl.Value) -> None:
        """Note the address of a listener, and report it if it is taken. `0.0.0.0` takes all of its port."""
        address, port = _split(str(value.value))
        first = self._find(address, port)
        if first is None:
            self._by_port.setdefault(port, []).append(_Taken(address, value))
            return
        message = (
            f"expected another address, got {shown(value.value)},"
            f" which is taken on line {first.at.line}{_detail(value, first)}"
        )
        self._findings.error(Code.DUPLICATE_ADDRESS, value, message, "write another port")

    def check_metrics(self, node: kdl.Node, block: Block) -> None:
        """Report an address of metrics that a listener has. The proxy runs, but without metrics."""
        enabled = block.node("enabled")
        if enabled is not None and any(each.value is False for each in enabled.arguments[:1]):
            return
        written, row = block.node("address"), block.row.children["address"]
        if written is not None and (
            not written.arguments or row.arguments[0].type.fault(written.arguments[0].value)
        ):
            return
        text = str(row.default if written is None else written.arguments[0].value)
        first = self._find(*_split(text))
        if first is not None:
            message = (
                f"expected another address for metrics, got {shown(text)},"
                f" which is taken on line {first.at.line}; the proxy cannot serve metrics"
            )
            at = node if written is None else written.arguments[0]
            self._findings.warning(Code.DUPLICATE_ADDRESS, at, message, "write another port")

    def _find(self, address: IPv4Address | IPv6Address, port: int) -> _Taken | None:
        for taken in self._by_port.get(port, ()):
            is_same = taken.address == address
            is_wild = taken.address.is_unspecified or address.is_unspecified
            if is_same or (is_wild and taken.address.version == address.version):
                return taken
        return None


def _split(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")), int(port)


def _detail(value: kdl.Value, first: _Taken) -> str:
    return "" if value.value == first.at.value else f" by {shown(first.at.value)}"

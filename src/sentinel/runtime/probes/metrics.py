"""What `/metrics` shows: the registries of all parts of a process, as one exposition.

A part has its own registry, which goes when the part does. Parts whose series outlive them, such as pulses that
are rebuilt, share a registry that is added once. Scraped one after the other, registries would repeat the heads of
the families they have in common, which the text format forbids; so families of one name are joined here.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sentinel.runtime.log import build_info


class Metrics(Collector):
    """Every registry of the process, beginning with one about the process itself."""

    def __init__(self, *, component: str) -> None:
        process = CollectorRegistry()
        build_info(process, component)
        ProcessCollector(registry=process)
        PlatformCollector(registry=process)
        self._registries = [process]

    def add(self, registry: CollectorRegistry) -> None:
        """Shows this registry, too."""
        self._registries.append(registry)

    def discard(self, registry: CollectorRegistry) -> None:
        """Shows it no longer; harmless where it was not shown."""
        self._registries = [known for known in self._registries if known is not registry]

    def collect(self) -> Iterable[Metric]:
        """The families of all registries, each once, without the client library's `_created` series: they
        double what a server has to keep, and tell it only when this process began."""
        families: dict[tuple[str, str], Metric] = {}
        for registry in self._registries:
            for family in registry.collect():
                joined = families.setdefault(
                    (family.name, family.type), Metric(family.name, family.documentation, family.type, family.unit)
                )
                joined.samples.extend(
                    sample for sample in family.samples if sample.name != f"{family.name}_created"
                )
        return families.values()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type: OpenMetrics for who asks for it, else Prometheus's text."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

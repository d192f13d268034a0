"""The metrics of a process: the registries of all parts in one exposition.

A part has its own registry, which is removed with the part. Parts whose series outlive them, such as pulses that
are rebuilt, share a registry that is added once. Families of the same name are merged, because the text format
forbids two families of one name.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Info, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sentinel.version import __version__


class Metrics(Collector):
    """All registries of the process, starting with one about the process itself."""

    def __init__(self, *, component: str) -> None:
        process = CollectorRegistry()
        register_build_info(process, component)
        ProcessCollector(registry=process)
        PlatformCollector(registry=process)
        self._registries = [process]

    def add(self, registry: CollectorRegistry) -> None:
        self._registries.append(registry)

    def discard(self, registry: CollectorRegistry) -> None:
        """Remove a registry, if it was added."""
        self._registries = [known for known in self._registries if known is not registry]

    def collect(self) -> Iterable[Metric]:
        """Return the families of all registries, each once.

        The client library's `_created` series are left out: they double the number of series and only tell when
        this process started.
        """
        families: dict[tuple[str, str], Metric] = {}
        for registry in self._registries:
            for family in registry.collect():
                merged = families.setdefault(
                    (family.name, family.type), Metric(family.name, family.documentation, family.type, family.unit)
                )
                merged.samples.extend(
                    sample for sample in family.samples if sample.name != f"{family.name}_created"
                )
        return families.values()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition and its content type: OpenMetrics if accepted, else Prometheus text."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type


def register_build_info(registry: CollectorRegistry, component: str) -> None:
    """Register `hyperfleet_sentinel_build_info{version,component} 1`."""
    info = Info("hyperfleet_sentinel_build", "The version and component of this process.", registry=registry)
    info.info({"version": __version__, "component": component})

"""Facts for the check of a proxy's configuration: names by the system's resolver, certificates by cryptography."""

from sentinel.drivers.proxy_facts.facts import SystemProxyFacts
from sentinel.drivers.proxy_facts.names import Limits, system_lookup

__all__ = ["Limits", "SystemProxyFacts", "system_lookup"]

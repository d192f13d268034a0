"""The contract of `ports.hub_store.HubStore`.

A driver's test class inherits `HubStoreContract` and defines a fixture `stores`, which is not bound to an event
loop.
"""

from __future__ import annotations

from tests.contract.hub_store_configs import ConfigContract
from tests.contract.hub_store_events import EventContract
from tests.contract.hub_store_heartbeats import HeartbeatContract, MetricsRetentionContract
from tests.contract.hub_store_instances import InstanceContract
from tests.contract.hub_store_rollouts import RolloutContract
from tests.contract.hub_store_unavailable import UnavailableContract


class HubStoreContract(
    InstanceContract,
    HeartbeatContract,
    MetricsRetentionContract,
    ConfigContract,
    EventContract,
    RolloutContract,
    UnavailableContract,
):
    """All promises of a store of the hub."""

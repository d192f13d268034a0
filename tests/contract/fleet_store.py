"""The contract of `ports.fleet_store.FleetStore`.

A driver's test class inherits `FleetStoreContract` and defines a fixture `stores`, which is not bound to an event
loop.
"""

from __future__ import annotations

from tests.contract.fleet_store_concurrency import ConcurrencyContract
from tests.contract.fleet_store_lists import LabelContract, ListContract
from tests.contract.fleet_store_model import ModelContract
from tests.contract.fleet_store_records import ExpiryContract, RecordContract
from tests.contract.fleet_store_search import SearchContract
from tests.contract.fleet_store_transactions import TransactionContract


class FleetStoreContract(
    TransactionContract,
    ConcurrencyContract,
    ListContract,
    LabelContract,
    SearchContract,
    RecordContract,
    ExpiryContract,
    ModelContract,
):
    """All promises of a fleet store."""

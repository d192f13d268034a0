"""What every `ports.fleet_store.FleetStore` promises.

A driver's test module inherits `FleetStoreContract` and gives a fixture `stores`, which belongs to no event loop.
"""

from __future__ import annotations

from tests.contract.fleet_store_concurrency import ConcurrencyContract
from tests.contract.fleet_store_lists import LabelContract, ListContract
from tests.contract.fleet_store_model import ModelContract
from tests.contract.fleet_store_records import ExpiryContract, RecordContract
from tests.contract.fleet_store_transactions import TransactionContract
from tests.support.fleet.store_records import Stores

__all__ = ["FleetStoreContract", "Stores"]


class FleetStoreContract(
    TransactionContract,
    ConcurrencyContract,
    ListContract,
    LabelContract,
    RecordContract,
    ExpiryContract,
    ModelContract,
):
    """For every store."""

"""Resources that several tests begin with."""

from __future__ import annotations

import pytest

from tests.support.fleet.one_resource import TRUE, OneResource


@pytest.fixture
def ready_cluster() -> OneResource:
    """A cluster at generation 1 whose adapters dns and validation reported True at minutes 1 and 2."""
    cluster = OneResource("dns", "validation")
    cluster.report("dns", TRUE, at=1)
    cluster.report("validation", TRUE, at=2)
    return cluster

"""Clusters as the API server would send them."""

from __future__ import annotations

from sentinel.core.json import Json
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, OpenBaoCluster, read_cluster


def make_cluster(**spec: Json) -> OpenBaoCluster:
    """Return the cluster `default/prod`."""
    return read_cluster(
        {
            "apiVersion": OPENBAO_CLUSTER.api_version,
            "kind": OPENBAO_CLUSTER.kind,
            "metadata": {"name": "prod", "namespace": "default", "uid": "1", "resourceVersion": "1"},
            "spec": spec,
        }
    )

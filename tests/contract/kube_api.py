"""The contract of every `ports.kube.KubeApi` and of every API server behind it.

A test module inherits `KubeApiContract` and provides a fixture `kube` with `tests.support.kube.server.open_kube`.
Nothing here is promised that a kube-apiserver of Kubernetes 1.36 does not keep.
"""

from __future__ import annotations

from tests.contract.kube_apply import KubeApplyContract, KubeApplyListContract, KubeApplyStatusContract
from tests.contract.kube_connection import KubeConnectionContract
from tests.contract.kube_lists import KubeListContract
from tests.contract.kube_objects import (
    KubeDeletionContract,
    KubeObjectContract,
    KubePatchContract,
    KubeReplaceContract,
    KubeSchemaContract,
    KubeStatusContract,
)
from tests.contract.kube_reflector import KubeReflectorContract
from tests.contract.kube_watch import KubeBookmarkContract, KubeExpiryContract, KubeWatchContract


class KubeApiContract(
    KubeObjectContract,
    KubeReplaceContract,
    KubePatchContract,
    KubeStatusContract,
    KubeSchemaContract,
    KubeDeletionContract,
    KubeApplyContract,
    KubeApplyListContract,
    KubeApplyStatusContract,
    KubeListContract,
    KubeWatchContract,
    KubeBookmarkContract,
    KubeExpiryContract,
    KubeConnectionContract,
    KubeReflectorContract,
):
    """All of it."""

"""What the pods of servers get."""

from __future__ import annotations

from typing import Any

from sentinel.drift.operator.openbao import server_objects
from tests.drift.operator.openbao_clusters import make_cluster


def test_the_key_of_the_authority_is_not_in_the_pods() -> None:
    stateful_set: Any = server_objects.stateful_set(make_cluster())
    volumes = stateful_set["spec"]["template"]["spec"]["volumes"]

    mounted = [volume["secret"] for volume in volumes if "secret" in volume]

    files = [{"key": file, "path": file} for file in ("ca.crt", "tls.crt", "tls.key")]
    assert mounted == [{"secretName": "prod-tls", "items": files}]

"""A Kubernetes API server in memory, for the tests of users and ours: `FakeKubeServer`.

`python -m sentinel.testing.kube` runs it as a process. The modules, from the outside in: `server` is what tests
use, `listener` is HTTP, `api` routes requests, `registry` has the verbs, `store` the objects. Server-side apply is
`ownership`, `managed_fields`, `merging`, `field_sets` and `field_types`.
"""

from sentinel.testing.kube.access import ADMIN, KubeUser, service_account
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.request_log import LoggedRequest
from sentinel.testing.kube.server import FakeKubeServer

__all__ = ["ADMIN", "ApiError", "FakeKubeServer", "KubeUser", "LoggedRequest", "service_account"]

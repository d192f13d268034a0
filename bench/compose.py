"""The cost of composing the data of an event: a path, the specification's conditional, and whole message data.

    python -m bench.compose [--rounds N] [--output json]

CPU time of this process, the minimum of several rounds, because other load only adds to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import msgspec

from bench.command_line import DEFAULT_ROUNDS, make_parser, print_json
from sentinel.core.json import Json
from sentinel.core.pulse.decision import Reason
from sentinel.core.pulse.message import Composer, compile_leaf

PATH_BUDGET = 1.0
CONDITIONAL_BUDGET = 20.0

_REPETITIONS = 50_000
_CONDITIONAL = "{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}"
_MESSAGE_DATA = {
    "resource_id": ".id",
    "resource_type": ".kind",
    "region": ".metadata.labels.region",
    "cluster_id": ".ownerResource.id",
    "display_name": _CONDITIONAL,
}
_CLUSTER: Json = {
    "id": "0192a6c0-7b1e-7c3a-9f0e-2f5b8c1d4e6f",
    "kind": "Cluster",
    "generation": 2,
    "metadata": {"name": "cluster-000001", "labels": {"region": "us-east", "environment": "production"}},
    "ownerResource": {"id": "org-1"},
    "status": {"phase": "Ready", "observed_generation": 2},
}


class Composing(msgspec.Struct, frozen=True):
    """CPU microseconds."""

    path_microseconds: float
    """`.metadata.labels.region`"""
    conditional_microseconds: float
    """The specification's conditional, on the branch that reads two fields."""
    loop_microseconds: float
    """A template with a loop and a printf, over two labels."""
    message_microseconds: float
    """The specification's five fields, encoded."""

    @property
    def is_within_budget(self) -> bool:
        return self.path_microseconds <= PATH_BUDGET and self.conditional_microseconds <= CONDITIONAL_BUDGET


def measure(*, rounds: int = DEFAULT_ROUNDS) -> Composing:
    """Compose the same document repeatedly."""
    path = compile_leaf(".metadata.labels.region").render
    conditional = compile_leaf(_CONDITIONAL).render
    loop = compile_leaf('{{range $k, $v := .metadata.labels}}{{printf "%s=%q," $k $v}}{{end}}').render
    message = Composer(_MESSAGE_DATA).compose
    return Composing(
        path_microseconds=_minimum(path, rounds),
        conditional_microseconds=_minimum(conditional, rounds),
        loop_microseconds=_minimum(loop, rounds),
        message_microseconds=_minimum(lambda document: message(document, Reason.EXPIRED_READY), rounds),
    )


def _minimum(compose: Callable[[Json], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(_REPETITIONS):
            compose(_CLUSTER)
        seconds.append(time.process_time() - start)
    return min(seconds) / _REPETITIONS * 1e6


def main() -> int:
    options = make_parser("compose", __doc__).parse_args()
    result = measure(rounds=options.rounds)
    if options.output == "json":
        print_json(result, is_within_budget=result.is_within_budget)
    else:
        print(f"{'':24}{'CPU µs':>8}{'budget':>8}")
        print(f"{'a bare path':24}{result.path_microseconds:8.2f}{PATH_BUDGET:8g}")
        print(f"{'the conditional':24}{result.conditional_microseconds:8.2f}{CONDITIONAL_BUDGET:8g}")
        print(f"{'a loop with printf':24}{result.loop_microseconds:8.2f}")
        print(f"{'five fields, encoded':24}{result.message_microseconds:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks that an application conforms to its OpenAPI document.

Schemathesis generates valid and invalid requests from the document, and checks status, content type, headers and
body of every response.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.schemas import APIOperation

from tests.support.examples import examples

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
EXAMPLES = 10


def check_operation(
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    *,
    create: Callable[[], dict[str, str]],
    headers: dict[str, str] | None = None,
) -> None:
    """Send requests. `create` makes what they are about, by the segment of the path before its id: each request
    gets its own, because it may delete them."""
    path = operation.path
    is_found = st.sampled_from([True, False]) if "{" in path else st.just(False)  # the first one is tried first

    @settings(
        max_examples=examples(EXAMPLES),
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode), is_found=is_found)
    def check(case: schemathesis.Case[Any], is_found: bool) -> None:
        if is_found:
            case.path_parameters = _existing(path, create())
        response = case.call(base_url="http://localhost", headers=headers)
        case.validate_response(response, checks=CHECKS)

    check()


def _existing(path: str, ids: dict[str, str]) -> dict[str, str]:
    """Return path parameters that name existing resources."""
    segments = path.split("/")
    return {segment.strip("{}"): ids[before] for before, segment in pairwise(segments) if segment.startswith("{")}

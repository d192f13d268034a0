"""Query parameters that lists of every component take: `labels` and `fields`. What cannot be read is a 400."""

from __future__ import annotations

from sentinel.core import labels
from sentinel.core import projection as projections
from sentinel.core.labels import Selector
from sentinel.core.projection import Projection
from sentinel.web import problem


def selector(text: str) -> Selector:
    """The label selector in `labels`, in Kubernetes' syntax; empty for everything."""
    try:
        return labels.parse(text)
    except labels.SelectorError as error:
        raise problem.bad_field("labels", str(error)) from None


def projection(text: str) -> Projection | None:
    """The members named in `fields`; None for all of them."""
    if not text:
        return None
    try:
        return projections.compile_fields(text)
    except ValueError as error:
        raise problem.bad_field("fields", str(error)) from None

"""The rules of Kubernetes for label keys and values."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LABELS = 64
"""The maximum number of labels of a resource."""
MAX_NAME = 63
"""The maximum length of a label's value, and of its key without the prefix."""
MAX_PREFIX = 253

_MAX_EXCERPT = MAX_PREFIX + 1 + MAX_NAME

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check_labels(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the errors in the labels of a resource as field and message."""
    if len(labels) > MAX_LABELS:
        return [("labels", f"expected at most {MAX_LABELS} labels, got {len(labels)}")]
    problems = []
    for key, value in labels.items():
        problem = key_problem(key) or value_problem(value)
        if problem:
            problems.append((f"labels.{excerpt(key)}", problem))
    return problems


def key_problem(key: str) -> str:
    """Return the error in a label's key, or "" if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return (
            f"expected a key whose prefix is a DNS name of at most {MAX_PREFIX} lower-case characters, "
            f'got "{excerpt(key)}"'
        )
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        return (
            f"expected a key of at most {MAX_NAME} letters, digits, '-', '_' and '.', beginning and ending with a "
            f'letter or digit, got "{excerpt(key)}"'
        )
    return ""


def value_problem(value: str) -> str:
    """Return the error in a label's value, or "" if it is valid. An empty value is valid."""
    if value and (len(value) > MAX_NAME or not _NAME.fullmatch(value)):
        return (
            f"expected a value of at most {MAX_NAME} letters, digits, '-', '_' and '.', beginning and ending with "
            f'a letter or digit, got "{excerpt(value)}"'
        )
    return ""


def excerpt(text: str) -> str:
    """Return the text, cut if it is longer than any valid label."""
    return text if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT]}…"

"""What labels may be: Kubernetes' rules for keys and values."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LABELS = 64
"""How many labels a resource may carry."""
MAX_NAME = 63
"""How long a label's value, or its key without the prefix, may be."""
MAX_PREFIX = 253

_EXCERPT = MAX_PREFIX + 1 + MAX_NAME

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check_labels(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is wrong with a resource's labels: field and message, empty where they are fine."""
    if len(labels) > MAX_LABELS:
        return [("labels", f"expected at most {MAX_LABELS} labels, got {len(labels)}")]
    problems = []
    for key, value in labels.items():
        complaint = key_problem(key) or value_problem(value)
        if complaint:
            problems.append((f"labels.{excerpt(key)}", complaint))
    return problems


def key_problem(key: str) -> str:
    """What is wrong with a label's key, empty where it is fine."""
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
    """What is wrong with a label's value, empty where it is fine; an empty value is."""
    if value and (len(value) > MAX_NAME or not _NAME.fullmatch(value)):
        return (
            f"expected a value of at most {MAX_NAME} letters, digits, '-', '_' and '.', beginning and ending with "
            f'a letter or digit, got "{excerpt(value)}"'
        )
    return ""


def excerpt(text: str) -> str:
    """The text, or its beginning where it is longer than any label could be."""
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"

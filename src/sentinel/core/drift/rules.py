"""The rules of drift as values: whose writes are the operator's, what counts, and what is ignored.

Nothing here is specific to one operator except `OPENBAO`, a preset of names.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec


class Unowned(StrEnum):
    """Which fields that another manager adds are drift."""

    NONE = "none"
    SPEC = "spec"
    """Those outside the object's `metadata` and `status`, and annotations with the operator's prefix."""
    ALL = "all"
    """All but `status`."""


class Glob(msgspec.Struct, frozen=True):
    """A pattern: `*`, `?`, `[abc]`, `[a-c]` and `[!abc]` do not match `/`, `**` matches everything."""

    text: str
    pattern: re.Pattern[str]

    @classmethod
    def compile(cls, text: str) -> Glob:
        """Compile a pattern. Every text is a valid one."""
        # At odd indexes are the wildcards. A bracket that is not closed is not a wildcard.
        parts = re.split(r"(\*\*|\*|\?|\[(?>!?\]?)[^]]*\])", text)
        pattern = "".join(_wildcard(part) if at % 2 else re.escape(part) for at, part in enumerate(parts))
        return cls(text, re.compile(pattern, re.DOTALL))

    def matches(self, text: str) -> bool:
        return self.pattern.fullmatch(text) is not None


_WILDCARDS: Final = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


def _wildcard(text: str) -> str:
    """Return the regular expression of a wildcard."""
    if text in _WILDCARDS:
        return _WILDCARDS[text]
    is_negated = text.startswith("[!")
    members = ""
    for first, last, single in re.findall(r"(.)-(.)|(.)", text[1 + is_negated : -1], re.DOTALL):
        if single:
            members += re.escape(single)
        elif first <= last:  # as in fnmatch, a range that is the wrong way round has no members
            members += f"{re.escape(first)}-{re.escape(last)}"
    if not members:
        return "[^/]" if is_negated else "(?!)"
    return f"(?!/)[{'^' if is_negated else ''}{members}]"


class IgnoreRule(msgspec.Struct, frozen=True):
    """Changes that are not drift. A member that is None matches everything; all others must match."""

    kind: Glob | None = None
    name: Glob | None = None
    path: Glob | None = None
    """Compared with the path of a change. A rule with a path never covers a deletion."""
    manager: Glob | None = None
    """Compared with an empty text if the manager is not known."""


class AnnotationNames(msgspec.Struct, frozen=True):
    """The annotations of an operator."""

    prefix: str
    """Annotations that begin with it are the operator's business, also if another manager adds them."""
    ignore: str
    """Annotation of an object: `"true"` opts it out."""
    fingerprint: str
    """Annotation of an object: the fingerprint that the operator attests."""
    mode: str
    """Annotation of the target: overrides the mode."""
    maintenance_until: str
    """Annotation of the target: no triggers until this time."""
    trigger: str
    """Annotation of the target: the time of the trigger."""
    trigger_resource: str
    """Annotation of the target: the object that drifted first."""

    @classmethod
    def with_prefix(cls, prefix: str) -> AnnotationNames:
        """Return the names with a prefix that ends in a slash, such as `openbao.org/`."""
        return cls(
            prefix=prefix,
            ignore=f"{prefix}sentinel-ignore",
            fingerprint=f"{prefix}sentinel-fingerprint",
            mode=f"{prefix}sentinel-mode",
            maintenance_until=f"{prefix}sentinel-maintenance-until",
            trigger=f"{prefix}sentinel-trigger",
            trigger_resource=f"{prefix}sentinel-trigger-resource",
        )


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a judgement depends on besides the object."""

    managers: frozenset[str]
    """The operator's field managers. What they hold is owned, and their writes are the operator's.

    `NAME` is a manager with all its writes. `NAME/OPERATION` are only those with that operation, such as
    `manager/Apply`, and `NAME/OPERATION/SUBRESOURCE` those of one subresource, such as `manager/Update/scale`.
    """
    managed_labels: tuple[str, ...]
    """The labels by which the operator's objects are selected."""
    annotations: AnnotationNames
    unowned: Unowned = Unowned.SPEC
    ignore: tuple[IgnoreRule, ...] = ()


MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"

OPENBAO: Final = Rules(
    managers=frozenset({"openbao-operator", "openbao-operator-controller", "manager", "openbao-controller"}),
    managed_labels=(MANAGED_BY_LABEL, INSTANCE_LABEL),
    annotations=AnnotationNames.with_prefix("openbao.org/"),
)
"""The rules for the objects of the OpenBao operator."""

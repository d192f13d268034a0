"""Labels, and the one language in which they are selected: Kubernetes' own.

`syntax` says what labels may be, `selector` what a selector means and how it is written, `parser` reads its text,
`match_labels` reads it from `matchLabels` and `matchExpressions`.
"""

from sentinel.core.labels.match_labels import InvalidMatch, MatchExpression, from_match_labels
from sentinel.core.labels.parser import MAX_LENGTH, MAX_REQUIREMENTS, MAX_VALUES, SelectorError, parse
from sentinel.core.labels.selector import (
    NotSearchable,
    Operator,
    Requirement,
    Selector,
    SelectorParam,
    as_integer,
    equality,
)
from sentinel.core.labels.syntax import MAX_LABELS, check_labels

__all__ = [
    "MAX_LABELS",
    "MAX_LENGTH",
    "MAX_REQUIREMENTS",
    "MAX_VALUES",
    "InvalidMatch",
    "MatchExpression",
    "NotSearchable",
    "Operator",
    "Requirement",
    "Selector",
    "SelectorError",
    "SelectorParam",
    "as_integer",
    "check_labels",
    "equality",
    "from_match_labels",
    "parse",
]

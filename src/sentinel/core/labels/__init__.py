"""Labels and selectors as in Kubernetes.

`syntax` has the rules for keys and values, `selector` the meaning of a selector, `parser` reads its text form, and
`match_labels` reads `matchLabels` and `matchExpressions`.
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

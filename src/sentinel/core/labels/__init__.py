"""Labels, and the one language in which they are selected: Kubernetes' own.

`syntax` says what labels may be, `selector` what a selector means, `parser` reads its text.
"""

from sentinel.core.labels.parser import MAX_LENGTH, MAX_REQUIREMENTS, MAX_VALUES, SelectorError, parse
from sentinel.core.labels.selector import Operator, Requirement, as_integer, matches
from sentinel.core.labels.syntax import MAX_LABELS, check_labels

__all__ = [
    "MAX_LABELS",
    "MAX_LENGTH",
    "MAX_REQUIREMENTS",
    "MAX_VALUES",
    "Operator",
    "Requirement",
    "SelectorError",
    "as_integer",
    "check_labels",
    "matches",
    "parse",
]

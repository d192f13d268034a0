"""Search expressions, in the form of the public HyperFleet API: `labels.region='us-east' and not generation=1`.

`expression` has the meaning of a search, `parser` reads its text form.
"""

from sentinel.core.search.expression import (
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Field,
    FieldKind,
    Searchable,
    attributes,
    conjuncts,
    matches,
)
from sentinel.core.search.parser import (
    MAX_COMPARISONS,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_VALUES,
    SearchError,
    parse,
)

__all__ = [
    "MAX_COMPARISONS",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "MAX_VALUES",
    "AllOf",
    "AnyOf",
    "Comparison",
    "Expression",
    "Field",
    "FieldKind",
    "SearchError",
    "Searchable",
    "attributes",
    "conjuncts",
    "matches",
    "parse",
]

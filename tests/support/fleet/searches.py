"""Random searches, with a plain evaluator that knows nothing about the parser's structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from hypothesis import strategies as st

from sentinel.core.search import Searchable


@dataclass(frozen=True)
class Compare:
    """One comparison."""

    name: str
    operator: str
    """`=`, `!=`, `in` or `not in`, in any case."""
    values: tuple[str, ...]

    def __str__(self) -> str:
        quoted = [self._literal(value) for value in self.values]
        if self.operator in ("=", "!="):
            return f"{self.name}{self.operator}{quoted[0]}"
        return f"{self.name} {self.operator} ({' , '.join(quoted)})"

    def _literal(self, value: str) -> str:
        return value if self.name == "generation" else "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True)
class Negation:
    operand: Tree
    keyword: str = "not"

    def __str__(self) -> str:
        return f"{self.keyword} ({self.operand})"


@dataclass(frozen=True)
class Joined:
    """Operands joined by `and` or `or`."""

    keyword: str
    operands: tuple[Tree, ...]

    def __str__(self) -> str:
        return f" {self.keyword} ".join(f"({each})" for each in self.operands)


Tree: TypeAlias = Compare | Negation | Joined


@dataclass(frozen=True)
class Subject:
    """A resource, as far as searches see it."""

    id: str = "cls-1"
    name: str = "first"
    labels: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


def holds(tree: Tree, resource: Searchable) -> bool:
    """Evaluate a search."""
    match tree:
        case Compare(name, operator, values):
            known = {f"labels.{key}": value for key, value in resource.labels.items()}
            known |= {**resource.attributes, "name": resource.name, "id": resource.id}
            is_one = name in known and known[name] in values
            return is_one if operator.lower() in ("=", "in") else not is_one
        case Negation(operand):
            return not holds(operand, resource)
        case Joined(keyword, operands):
            results = [holds(each, resource) for each in operands]
            return all(results) if keyword.lower() == "and" else any(results)
        case _:
            assert_never(tree)


def trees(fields: Mapping[str, Sequence[str]], *, max_leaves: int = 8) -> st.SearchStrategy[Tree]:
    """Searches on these fields with these values."""
    compare: st.SearchStrategy[Tree] = st.sampled_from(sorted(fields)).flatmap(
        lambda name: st.one_of(
            st.builds(Compare, st.just(name), st.sampled_from(("=", "!=")), st.tuples(_one_of(fields[name]))),
            st.builds(
                Compare,
                st.just(name),
                st.sampled_from(("in", "IN", "not in", "Not In")),
                st.lists(_one_of(fields[name]), min_size=1, max_size=3).map(tuple),
            ),
        )
    )
    return st.recursive(
        compare,
        lambda inner: st.one_of(
            st.builds(Negation, inner, st.sampled_from(("not", "NOT"))),
            st.builds(
                Joined,
                st.sampled_from(("and", "or", "AND", "Or")),
                st.lists(inner, min_size=1, max_size=3).map(tuple),
            ),
        ),
        max_leaves=max_leaves,
    )


def _one_of(values: Sequence[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(values)

"""The kinds of resource that the API serves, the adapters that each kind requires, and its rules for conditions.

The kinds file is read once, at startup, and its expressions are compiled then. If it has changed, `maintenance`
reaggregates the affected resources in the background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import KindRules
from sentinel.core.fleet.expressions import CompileExpression, ConditionExpressions, ConditionRule, Expression
from sentinel.core.fleet.reports import is_adapter_name
from sentinel.core.ids import segment_pattern
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Member, Node, ScalarNode, describe_node
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import Loaded, Origin, SettingsProblem, file_origin
from sentinel.runtime.settings.schema import Section, StructList, section
from sentinel.runtime.settings.validation import INVALID, Validation

_RESERVED = frozenset(
    {"kinds", "resources", "statuses", "waiting", "history", "force-delete", "pulse", "pause", "resume"}
)
_MAX_ADAPTERS = 32
_SEGMENT = segment_pattern(63)


def _parse_adapter(text: str) -> str:
    if not is_adapter_name(text):
        raise InvalidValue
    return text


class _Adapters(msgspec.Struct, frozen=True):
    """A list of distinct adapter names."""

    expected: str = "a list of adapters' names, such as [validation, dns]"

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        if not isinstance(node, ListNode):
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        item_type = FieldType("an adapter's name, such as dns", _parse_adapter)
        nested = Validation(environ={})
        values = [item_type.read(item, f"{path}[{n}]", item.at, nested) for n, item in enumerate(node.items)]
        if len(values) > _MAX_ADAPTERS:
            nested.reject(node.at, path, f"expected at most {_MAX_ADAPTERS} adapters, got {len(values)}")
        conditions: set[str] = set()
        for n, value in enumerate(values):
            if not isinstance(value, str):
                continue
            condition = condition_type(value)
            if condition in conditions:
                message = f"expected each adapter once, got {condition} a second time"
                nested.reject(node.items[n].at, f"{path}[{n}]", message)
            conditions.add(condition)
        validation.problems.extend(nested.problems)
        if nested.problems:
            return INVALID
        validation.accept(path, ", ".join(map(str, values)), at)
        return tuple(values)


class _ExpressionText(msgspec.Struct, frozen=True):
    """An expression that compiles."""

    rule: ConditionRule
    compile: CompileExpression
    expected: str = "a CEL expression"

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        text = field_types.text(self.expected).read(node, path, at, validation)
        if not isinstance(text, str) or not isinstance(node, ScalarNode):
            return INVALID
        try:
            compiled = self.compile(self.rule, text)
        except Misconfigured as missing:
            validation.reject(node.at, path, str(missing))
            return text
        if not callable(compiled):
            for error in compiled:
                place = f"line {error.line}, column {error.column} of the expression"
                validation.reject(node.at, path, f"expected {self.expected}; {place}: {error.message}")
        # Even an invalid one, so that the kinds are compared with each other in the same run.
        return text


class _KindsField(StructList, frozen=True):
    """The list of kinds. Also checks them against each other."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        values = super().read(node, path, at, validation)
        if not isinstance(node, ListNode):
            return INVALID
        # Compared as written, so that one invalid kind does not hide the problems between the others.
        problems = list(_inconsistencies([_as_written(item) for item in node.items]))
        for index, field, message in problems:
            validation.reject(_origin(node, index, field), f"{path}[{index}].{field}", message)
        return INVALID if problems else values


def _as_written(item: Node) -> KindRules:
    """Return the names of a kind as they are in the file, valid or not; "" for what is missing."""

    def text(key: str) -> str:
        member = item.get(key) if isinstance(item, MappingNode) else None
        node = member.value if member is not None else None
        return node.text if isinstance(node, ScalarNode) and not node.is_null else ""

    return KindRules(text("plural"), text("kind"), text("parent"))


def _origin(node: ListNode, index: int, field: str) -> Origin:
    item = node.items[index]
    member: Member | None = item.get(field) if isinstance(item, MappingNode) else None
    return item.at if member is None else member.value.at


def _inconsistencies(kinds: Sequence[KindRules]) -> Iterator[tuple[int, str, str]]:
    """Yield (index, field, message) for every problem that only shows when kinds are compared."""
    parents = {each.plural: each.parent for each in kinds if each.plural}
    has_all_plurals = all(each.plural for each in kinds)
    for index, each in enumerate(kinds):
        before = kinds[:index]
        if each.plural in _RESERVED:
            yield index, "plural", f'expected a plural that is not reserved, got "{each.plural}"'
        if each.plural and any(other.plural == each.plural for other in before):
            yield index, "plural", f'expected each plural once, got "{each.plural}" a second time'
        if each.kind and any(other.kind.lower() == each.kind.lower() for other in before):
            yield index, "kind", f'expected each kind once, got "{each.kind}" a second time'
        if each.parent and each.parent not in parents and has_all_plurals:
            yield index, "parent", f'expected the plural of another kind, got "{each.parent}"'
        seen, ancestor = {each.plural}, each.parent
        while ancestor in parents and ancestor not in seen:
            seen.add(ancestor)
            ancestor = parents[ancestor]
        if each.plural and ancestor == each.plural:
            yield index, "parent", f'expected no cycle of parents, "{each.plural}" is its own ancestor'


class KindsFile(msgspec.Struct, frozen=True):
    """The content of a kinds file."""

    kinds: tuple[KindRules, ...]


def _schema(compile_expression: CompileExpression) -> Section:
    return section(
        KindsFile,
        kinds=_KindsField(
            item=section(
                KindRules,
                plural=field_types.text("a plural that is one segment of a URL, such as clusters", _SEGMENT),
                kind=field_types.text("a kind in one word, such as Cluster", r"[A-Za-z][A-Za-z0-9]{0,62}"),
                parent=field_types.text("the plural of the parent's kind", _SEGMENT),
                required_adapters=_Adapters(),
                available=_ExpressionText(ConditionRule.AVAILABLE, compile_expression),
                ready=_ExpressionText(ConditionRule.READY, compile_expression),
            ),
            expected="a list of {plural, kind, parent, required_adapters, available, ready}",
        ),
    )


def _no_expressions(rule: ConditionRule, text: str) -> Expression:
    raise Misconfigured("expressions are not supported here")


class Kinds:
    """The kinds that are served, by plural."""

    def __init__(
        self, kinds: Sequence[KindRules], *, compile_expression: CompileExpression = _no_expressions
    ) -> None:
        """The expressions of the kinds have to be valid."""
        self._by_plural = {each.plural: each for each in kinds}
        self._expressions = {each.plural: _compiled(each, compile_expression) for each in kinds}

    def __iter__(self) -> Iterator[KindRules]:
        return iter(self._by_plural.values())

    def get(self, plural: str) -> KindRules | None:
        """Return the kind with this plural."""
        return self._by_plural.get(plural)

    def of(self, plural: str) -> KindRules:
        """Return the kind of a stored resource. A kind that is no longer served requires no adapters."""
        return self._by_plural.get(plural) or KindRules(plural, plural)

    def expressions(self, plural: str) -> ConditionExpressions:
        """Return the compiled expressions of a kind."""
        return self._expressions.get(plural) or ConditionExpressions()


def _compiled(kind: KindRules, compile_expression: CompileExpression) -> ConditionExpressions:
    def compiled(rule: ConditionRule, text: str) -> Expression | None:
        if not text:
            return None
        expression = compile_expression(rule, text)
        if not callable(expression):
            raise ValueError(f"{kind.plural}: {rule}: expected a valid expression, got {expression}")
        return expression

    return ConditionExpressions(
        available=compiled(ConditionRule.AVAILABLE, kind.available),
        ready=compiled(ConditionRule.READY, kind.ready),
    )


DEFAULT = Kinds(
    (
        KindRules("clusters", "Cluster"),
        KindRules("nodepools", "NodePool", "clusters"),
        KindRules("manifests", "Manifest"),
        KindRules("workloads", "Workload"),
    )
)


def warnings(kinds: Kinds) -> Iterator[str]:
    """Yield what is allowed, but probably not what the author of the kinds file wants."""
    plurals = [each.plural for each in kinds if not each.required_adapters]
    if plurals:
        yield (
            f"no adapter is required for {', '.join(plurals)} (required_adapters in the kinds file): these never"
            " become ready, and a Sentinel that watches them publishes an event for each every max_age_not_ready"
        )


def load(
    file: Path | None, *, compile_expression: CompileExpression = _no_expressions
) -> tuple[Kinds | None, Sequence[SettingsProblem]]:
    """Load the kinds from a file, or the default ones without a file. Return None if there are problems."""
    if file is None:
        return DEFAULT, ()
    loaded: Loaded[KindsFile] = loader.load(KindsFile, file=file, environ={}, schema=_schema(compile_expression))
    if loaded.settings is None:
        return None, loaded.problems
    if not loaded.settings.kinds:
        return None, [SettingsProblem.at(file_origin(file), "kinds", "expected at least one kind, got none")]
    return Kinds(loaded.settings.kinds, compile_expression=compile_expression), ()

"""Kinds files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.api import kinds
from sentinel.api.kinds import Kinds
from sentinel.cli.wiring.expressions import compile_expression
from sentinel.core.fleet.documents import KindRules
from sentinel.core.fleet.expressions import ConditionExpressions
from sentinel.ports.errors import Misconfigured

EXAMPLE = Path(__file__).parents[2] / "examples" / "kinds.yaml"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "kinds.yaml"
    file.write_text(text)
    return file


def test_the_default_kinds_are_served_without_a_file() -> None:
    served, problems = kinds.load(None)

    assert not problems
    assert served is not None
    assert [(each.plural, each.parent, each.required_adapters) for each in served] == [
        ("clusters", "", ()),
        ("nodepools", "clusters", ()),
        ("manifests", "", ()),
        ("workloads", "", ()),
    ]


def test_a_file_names_kinds_parents_and_adapters(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """\
kinds:
  - plural: clusters
    kind: Cluster
    required_adapters: [validation, dns]
  - plural: nodepools
    kind: NodePool
    parent: clusters
    required_adapters: [validation]
""",
    )

    served, problems = kinds.load(file)

    assert not problems
    assert served is not None
    assert list(served) == [
        KindRules("clusters", "Cluster", "", ("validation", "dns")),
        KindRules("nodepools", "NodePool", "clusters", ("validation",)),
    ]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("kinds:\n  - plural: clusters\n", "2: kinds[0].kind"),
        ("kinds:\n  - {plural: a/b, kind: A}\n", "2: kinds[0].plural"),
        ("kinds:\n  - {plural: resources, kind: A}\n", "2: kinds[0].plural"),
        ("kinds:\n  - {plural: as, kind: A}\n  - {plural: as, kind: B}\n", "3: kinds[1].plural"),
        ("kinds:\n  - {plural: as, kind: A}\n  - {plural: bs, kind: a}\n", "3: kinds[1].kind"),
        ("kinds:\n  - {plural: as, kind: A, parent: bs}\n", "2: kinds[0].parent"),
        ("kinds:\n  - {plural: as, kind: A, parent: as}\n", "2: kinds[0].parent"),
        ("kinds:\n  - {plural: as, kind: A, required_adapters: [x, x]}\n", "2: kinds[0].required_adapters[1]"),
        ("kinds:\n  - {plural: as, kind: A, required_adapters: [a-b, a_b]}\n", "2: kinds[0].required_adapters[1]"),
        ("kinds:\n  - {plural: as, kind: A, required_adapters: [a b]}\n", "2: kinds[0].required_adapters[0]"),
        ("kinds:\n  - {plural: as, kind: A, required_adapters: dns}\n", "2: kinds[0].required_adapters"),
        ("kinds:\n  - {plural: as, kind: A, adapters: [dns]}\n", "2: kinds[0].adapters"),
        ("kinds:\n  - {plural: as, kind: A, available: }\n", "2: kinds[0].available"),
        ("kinds:\n  - {plural: as, kind: A, ready: [available]}\n", "2: kinds[0].ready"),
        ("kinds: []\n", "1: kinds"),
        ("kinds: x\n", "1: kinds"),
        ("", "1: kinds"),
    ],
)
def test_problems_have_field_and_line(tmp_path: Path, text: str, position: str) -> None:
    served, problems = kinds.load(written(tmp_path, text))

    assert served is None
    assert [f"{problem.line}: {problem.field}" for problem in problems] == [position]


def test_all_problems_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = """\
kinds:
  - plural: a/b
    kind: A
  - plural: clusters
    kind: a
    required_adapters: [dns, dns]
  - plural: clusters
    kind: B
    parent: nowhere
  - plural: resources
    kind: C
    colour: red
"""

    served, problems = kinds.load(written(tmp_path, text))

    assert served is None
    assert [(problem.line, problem.column, problem.field) for problem in problems] == [
        (2, 13, "kinds[0].plural"),
        (5, 11, "kinds[1].kind"),
        (6, 30, "kinds[1].required_adapters[1]"),
        (7, 13, "kinds[2].plural"),
        (9, 13, "kinds[2].parent"),
        (10, 13, "kinds[3].plural"),
        (12, 5, "kinds[3].colour"),
    ]


def test_a_missing_plural_causes_no_further_problems(tmp_path: Path) -> None:
    text = """\
kinds:
  - {plurals: as, kind: A}
  - {plural: bs, kind: B}
  - {plural: cs, kind: C, parent: as}
  - {kind: D, parent: bs}
"""

    _, problems = kinds.load(written(tmp_path, text))

    assert [problem.field for problem in problems] == ["kinds[0].plural", "kinds[0].plurals", "kinds[3].plural"]


def test_a_cycle_of_parents_is_rejected(tmp_path: Path) -> None:
    text = "kinds:\n  - {plural: as, kind: A, parent: bs}\n  - {plural: bs, kind: B, parent: as}\n"

    served, problems = kinds.load(written(tmp_path, text))

    assert served is None
    assert [problem.field for problem in problems] == ["kinds[0].parent", "kinds[1].parent"]


def test_kinds_without_required_adapters_are_named_in_one_warning() -> None:
    (warning,) = kinds.warnings(
        Kinds([KindRules("a", "A"), KindRules("b", "B", "", ("dns",)), KindRules("c", "C")])
    )

    assert warning.startswith("no adapter is required for a, c (")
    assert "an event for each every max_age_not_ready" in warning


def test_kinds_with_required_adapters_need_no_warning() -> None:
    assert list(kinds.warnings(Kinds([KindRules("b", "B", "", ("dns",))]))) == []


def test_a_kind_that_is_not_served_requires_no_adapter() -> None:
    assert kinds.DEFAULT.of("gone").required_adapters == ()


# --- Expressions -------------------------------------------------------------------------------------------------


def test_the_example_has_valid_expressions() -> None:
    served, problems = kinds.load(EXAMPLE, compile_expression=compile_expression)

    assert not problems
    assert served is not None
    assert [each.plural for each in served if served.expressions(each.plural) != ConditionExpressions()] == [
        "nodepools",
        "mirrors",
    ]
    assert f"({EXAMPLE.name})" in (EXAMPLE.parent / "README.md").read_text()


def test_all_problems_of_a_file_are_found_together(tmp_path: Path) -> None:
    text = """\
kinds:
  - plural: clusters
    kind: Cluster
    required_adapters: [dns]
    available: self.items.all(i, i.generation == 1) && foo
    ready: |
      available &&
        generationN
  - plural: clusters
    kind: NodePool
    ready: ""
"""

    served, problems = kinds.load(written(tmp_path, text), compile_expression=compile_expression)

    assert served is None
    places = [f"{each.line}:{each.column}: {each.field}: {each.message}" for each in problems]
    expected = "expected a CEL expression; line 1, column"
    assert places[:3] == [
        f"5:16: kinds[0].available: {expected} 20 of the expression: "
        "undefined field 'generation' not found in struct 'Report'",
        f"5:16: kinds[0].available: {expected} 41 of the expression: undeclared reference to 'foo'",
        "6:12: kinds[0].ready: expected a CEL expression; line 1, column 11 of the expression: "
        "found no matching overload for '_&&_' applied to '(bool, int)'",
    ]
    assert [each.field for each in problems[3:]] == ["kinds[1].plural", "kinds[1].ready"]


def test_kinds_are_not_made_of_invalid_expressions() -> None:
    with pytest.raises(ValueError, match="clusters: ready: expected a valid expression"):
        Kinds([KindRules("clusters", "Cluster", ready="(")], compile_expression=compile_expression)
    with pytest.raises(Misconfigured):
        Kinds([KindRules("clusters", "Cluster", ready="true")])
